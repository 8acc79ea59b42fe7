"""The evaluation without its program: intervals, verdicts, resuming after a kill.

    python3 -m unittest discover -s scripts/evaluation
"""

import json
import random
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
case "$*" in *--csd*broken*) echo "error: no such device" >&2; echo "note: that is all" >&2; exit 1 ;; esac
case "$*" in *--csd*killed*) echo "note: has slots for 64 batches" >&2; [ -e "{log}.calm" ] || kill -9 $$ ;; esac
case "$*" in *--csd*stopped*) exit 143 ;; esac
case "$*" in *--csd*) rate=125.0 ;; *) rate=100.0 ;; esac
echo '{{"epochs": [{{"images_per_s": '$rate', "samples": 500, "accelerator": {{"utilisation": null}}}}]}}'
"""


def rate(result):
    return result["epochs"][-1]["images_per_s"]


class Figures(unittest.TestCase):
    def test_an_interval_holds_its_median_and_repeats(self):
        values = [1.1, 1.3, 1.2, 1.25, 1.15, 1.05, 1.22]
        self.assertEqual(figures.interval(values), (1.2, 1.05, 1.3))
        self.assertEqual(figures.interval(values), figures.interval(sorted(values)))

    def test_less_than_six_values_have_no_interval_and_claim_nothing(self):
        for n in range(1, 6):
            middle, low, high = figures.interval([2.0] * n)
            self.assertEqual((middle, low, high), (2.0, None, None))
            self.assertEqual(figures.verdict(low, high), "too few blocks")
            self.assertIn("no interval, which takes 6", figures.coverage(n))
        self.assertEqual(figures.LEAST_BLOCKS, 6)

    def test_an_interval_holds_the_median_as_often_as_it_says(self):
        draw = random.Random(1)
        for n in (6, 7, 9, 10, 15):
            held = 0
            for _ in range(4000):
                _, low, high = figures.interval([draw.gauss(1.0, 0.05) for _ in range(n)])
                held += low <= 1 <= high
            part, said = held / 4000, figures.bounds(n)[1]
            self.assertGreaterEqual(said, 0.95)
            self.assertAlmostEqual(part, said, delta=0.012, msg=f"{n} blocks")
            self.assertIn(f"{100 * said:.1f} %", figures.coverage(n))
        self.assertIn("from the smallest to the largest", figures.coverage(7))
        self.assertIn("without the smallest and the largest", figures.coverage(10))

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

    def test_what_a_signal_ended_says_so_and_is_tried_again(self):
        for name, why in [("killed", "ended by SIGKILL"), ("stopped", "ended by SIGTERM")]:
            cell = matrix.Cell("imagenet-train", 1, "none", "ordered", name, 1)
            results = self.run_all([cell])
            self.assertEqual(results.failures([cell, CELL]), [(cell, why)])
        killed = matrix.Cell("imagenet-train", 1, "none", "ordered", "killed", 1)
        line = results.find(killed.key(), 0, 1)
        self.assertIsNone(line, "it is not shown as done")
        self.log.with_suffix(".calm").touch()
        results = self.run_all([killed])
        self.assertEqual((results.failures([killed]), len(results.blocks(killed))), ([], 2))
        # Once more all of it is there.
        before = self.n_called()
        self.assertEqual(len(self.run_all([killed]).blocks(killed)), 2)
        self.assertEqual(self.n_called(), before)

    def test_a_failure_is_the_last_error_that_was_said(self):
        said = "note: one\nerror: no room\nnote: two\n"
        self.assertEqual(runner.failure(1, said), {"error": "error: no room", "returncode": 1})
        self.assertEqual(runner.failure(1, "note: one\n")["error"], "note: one")
        self.assertIn("status 101", runner.failure(101, "")["error"])
        self.assertEqual(runner.failure(-9, said)["signal"], "SIGKILL")

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

    def test_an_accelerator_relative_to_the_host_follows_it_from_block_to_block(self):
        cell = matrix.Cell("imagenet-train", 1, "1.5x", "ordered", "newport", 1)
        self.run_all([cell], 1)
        self.programs.rates[runner.host(cell)]["images_per_s"] = 400.0
        results = self.run_all([cell], 3)
        consumers = [line["accelerator"] for line in results.lines]
        # The host alone made 100 in every block, whatever the calibration was.
        self.assertEqual(consumers, ["sim:150.0"] * 12)
        epochs = [line["result"]["epochs"][0] for line in results.lines if line["place"] in (0, 3)]
        following = lambda block: runner.accelerator(self.programs, results, (cell, block, 0))  # noqa: E731
        # One run that was disturbed does not matter, a machine that became slower does.
        epochs[-1]["images_per_s"] = 3.0
        self.assertEqual(following(3), "sim:150.0")
        epochs[-1]["images_per_s"] = epochs[-2]["images_per_s"] = 60.0
        self.assertEqual(following(3), "sim:90.0")
        # Within a block it stays the same.
        self.assertEqual(following(2), "sim:150.0")
        # A host that it held up is at least as fast; one that another held up may be any.
        for epoch in epochs:
            epoch["accelerator"]["utilisation"] = 0.97
        self.assertEqual(following(3), "sim:90.0")
        for line in results.lines:
            line["cell"]["accelerator"] = "v100"
        self.assertEqual(following(3), "sim:600.0")


if __name__ == "__main__":
    unittest.main()
