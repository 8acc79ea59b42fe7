"""The evaluation without its program: intervals, verdicts, resuming after a kill.

    python3 -m unittest discover -s scripts/evaluation
"""

import json
import re
import tempfile
import unittest
from pathlib import Path

import figures
import matrix
import runner

CELL = matrix.Cell("imagenet-train", 1, "none", "ordered", "newport", 1)
# Stands in for `bothends run`: a device brings a quarter, and every call is counted.
FAKE = """#!/bin/sh
echo "$*" >> "{log}"
case "$*" in *--csd*broken*) echo "error: no such device" >&2; exit 1 ;; esac
case "$*" in *--csd*) rate=125.0 ;; *) rate=100.0 ;; esac
echo '{{"epochs": [{{"images_per_s": '$rate', "samples": 500, "accelerator": {{"utilisation": null}}}}]}}'
"""


def rate(result):
    return result["epochs"][-1]["images_per_s"]


class Figures(unittest.TestCase):
    def test_an_interval_holds_its_median_and_repeats(self):
        values = [1.1, 1.3, 1.2, 1.25, 1.15]
        middle, low, high = figures.interval(values)
        self.assertEqual(middle, 1.2)
        self.assertTrue(1.1 <= low <= middle <= high <= 1.3)
        self.assertEqual(figures.interval(values), (middle, low, high))

    def test_two_values_have_no_interval_and_claim_nothing(self):
        middle, low, high = figures.interval([2.0, 4.0])
        self.assertEqual((middle, low, high), (3.0, None, None))
        self.assertEqual(figures.verdict(low, high), "no difference shown")

    def test_a_gain_is_named_only_where_the_whole_interval_is_on_one_side(self):
        self.assertEqual(figures.verdict(1.01, 1.3), "gain")
        self.assertEqual(figures.verdict(0.99, 1.3), "no difference shown")
        self.assertEqual(figures.verdict(0.7, 0.9), "loss")
        self.assertEqual(figures.verdict(0.7, 0.9, "less"), "gain")

    def test_drift_falls_out_within_a_block(self):
        # The machine slows down by a tenth from run to run; the cell is twice as fast.
        runs = [100.0, 180.0, 160.0, 70.0]
        block = {"baseline": [runs[0], runs[3]], "cell": [runs[1], runs[2]]}
        self.assertAlmostEqual(figures.ratios([block], lambda run: run)[0], 2.0)


class Runs(unittest.TestCase):
    def setUp(self):
        self.work = tempfile.TemporaryDirectory()
        self.addCleanup(self.work.cleanup)
        folder = Path(self.work.name)
        self.log, self.path = folder / "log", folder / "results.jsonl"
        program = folder / "bothends"
        program.write_text(FAKE.format(log=self.log))
        program.chmod(0o755)
        data = {"imagenet-train": folder / "images"}
        kept = folder / "calibration.json"
        self.programs = runner.Programs((program, "a stub"), data, 5.0, kept)

    def run_all(self, cells, n_blocks=2):
        results = runner.Results(self.path)
        runner.run_all(self.programs, results, cells, n_blocks)
        return results

    def n_called(self):
        return len(self.log.read_text().splitlines())

    def test_blocks_are_paired_and_compared(self):
        results = self.run_all([CELL])
        blocks = results.blocks(CELL)
        self.assertEqual(figures.ratios(blocks, rate), [1.25, 1.25])
        places = [line["place"] for line in results.lines]
        self.assertEqual(places, [0, 1, 2, 3] * 2)
        # Two calibrations and eight runs.
        self.assertEqual(self.n_called(), 10)

    def test_what_was_done_is_not_done_again_after_a_kill(self):
        self.run_all([CELL])
        whole = self.path.read_text()
        lines = whole.splitlines(keepends=True)
        # Killed in the middle of writing the sixth run, where an inner brace happens to end it.
        self.path.write_text("".join(lines[:5]) + lines[5][: lines[5].index("}") + 1])
        before = self.n_called()
        results = self.run_all([CELL])
        self.assertEqual(self.n_called() - before, 3)
        self.assertEqual(len(results.blocks(CELL)), 2)
        self.assertEqual(len(self.path.read_text().splitlines()), 8)
        self.assertTrue(all(json.loads(line) for line in self.path.read_text().splitlines()))

    def test_a_cell_that_fails_is_kept_with_its_reason(self):
        broken = matrix.Cell("imagenet-train", 1, "none", "ordered", "broken", 1)
        results = self.run_all([broken, CELL])
        self.assertEqual(results.failure(broken), "error: no such device")
        self.assertEqual(results.blocks(broken), [])
        self.assertEqual(len(results.blocks(CELL)), 2)

    def test_host_and_device_have_processors_of_their_own(self):
        self.programs.rates = {runner.host(CELL): {"samples": 500, "images_per_s": 100.0}}
        command = self.programs.command(CELL, 3)
        host = command[command.index("-c") + 1].split(",")
        device = command[command.index("--csd") + 1]
        if len(runner.processors()) > 1:
            self.assertNotIn(re.search(r"pin=(\d+)", device).group(1), host)
        self.assertEqual(command[command.index("--repeat") + 1], "3")

    def test_what_mte_holds_back_has_room(self):
        mte = matrix.Cell("imagenet-train", 1, "none", "mte", "newport", 1)
        self.programs.rates = {runner.host(mte): {"samples": 1000, "images_per_s": 400.0}}
        command = self.programs.command(mte, 10)
        room = int(command[command.index("--memory") + 1])
        self.assertGreaterEqual(room << 20, 5000 * 224 * 224 * 3)
        self.assertNotIn("--memory", self.programs.command(mte.baseline(), 10))

    def test_a_rate_relative_to_the_host_is_that_of_the_calibration(self):
        self.programs.rates = {runner.host(CELL): {"samples": 500, "images_per_s": 400.0}}
        relative = matrix.Cell("imagenet-train", 1, "none", "ordered", "newport,rate=0.235x", 1)
        self.assertEqual(self.programs.device(relative), "newport,rate=94.0")
        self.assertEqual(self.programs.device(CELL), "newport")


    def test_in_a_block_a_rate_is_relative_to_its_own_host_unless_that_was_held_up(self):
        relative = matrix.Cell("imagenet-train", 1, "none", "ordered", "newport,rate=0.5x", 1)
        results = self.run_all([relative], 1)
        self.programs.rates[runner.host(relative)]["images_per_s"] = 400.0
        epoch = results.find(relative.key(), 0, 0)["result"]["epochs"][0]
        seen = {}
        for utilisation in (None, 0.6, 0.97):
            epoch["accelerator"]["utilisation"] = utilisation
            known = runner.host_rate(results, relative, 0)
            seen[utilisation] = self.programs.device(relative, known)
        # The host alone made 100 in this block.
        fast, slow = "newport,rate=200.0", "newport,rate=50.0"
        self.assertEqual(seen, {None: slow, 0.6: slow, 0.97: fast})
        self.assertIn(f"sim:{slow}", self.log.read_text())


if __name__ == "__main__":
    unittest.main()
