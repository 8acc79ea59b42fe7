"""scripts/evaluate-throughput and scripts/evaluate-energy as they are called, with a stub for `bothends`."""

import json
import os
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

import conditions
import figures

SCRIPTS = Path(__file__).resolve().parents[1]
BOTH = ["evaluate-throughput", "evaluate-energy"]
CELL = ["--recipes", "imagenet-train", "--workers", "1", "--accelerators", "none", "--strategies", "ordered",
        "--devices", "newport", "--counts", "1"]
QUANTITIES = {
    "host": {"processor_seconds": 1.0, "receiving_processor_seconds": 0.1, "memory_byte_seconds": 1e9},
    "devices": [],
    "accelerator": None,
    "bytes": {"storage_read": 1, "device_to_host": 1, "host_to_accelerator": 1},
}
TOTAL = {"source": "modelled(default@1)", "low": 1.0, "joules": 2.0, "high": 3.0}
EPOCH = {
    "images_per_s": 100.0, "samples": 500, "batches": 8, "seconds": 5.0, "cpu_ms_per_image": 1.0,
    "front": {"batches": 6}, "accelerator": {"utilisation": None},
}
# Counts its calls, and answers as `bothends run` does.
STUB = """#!/bin/sh
echo "$*" >> "{folder}/log"
case "$*" in
*--csd*) cat "{folder}/with-device.json" ;;
*) cat "{folder}/alone.json" ;;
esac
"""


def result(back):
    energy = {"totals": [TOTAL], "quantities": QUANTITIES}
    return json.dumps({"epochs": [EPOCH | {"back": back}], "energy": energy})


def rows(markdown):
    return [line for line in markdown.splitlines() if line.startswith("|")]


class Scripts(unittest.TestCase):
    def setUp(self):
        work = tempfile.TemporaryDirectory()
        self.addCleanup(work.cleanup)
        self.folder = Path(work.name)
        self.out = self.folder / "out"
        self.stub = self.program("bothends", STUB.format(folder=self.folder))
        # Nothing may be built.
        self.program("cargo", "#!/bin/sh\nexit 99\n")
        for name in ("a", "b"):
            (self.folder / name / "class").mkdir(parents=True)
            (self.folder / name / "class/image.jpg").write_text(name)
        (self.folder / "alone.json").write_text(result([]))
        self.let_device_make(batches=2)

    def program(self, name, text):
        path = self.folder / name
        path.write_text(text)
        path.chmod(0o755)
        return path

    def let_device_make(self, **counts):
        (self.folder / "with-device.json").write_text(result([counts]))

    def call(self, script, *words, env=None):
        path = f"{self.folder}:{os.environ['PATH']}"
        env = os.environ | {"BOTHENDS": str(self.stub), "PATH": path} | (env or {})
        words = [SCRIPTS / script, "--out", self.out, "--blocks", 1, "--seconds", 5, *CELL, *words]
        return subprocess.run(list(map(str, words)), env=env, capture_output=True, text=True)

    def made(self, script, *words):
        ran = self.call(script, *words)
        self.assertEqual((ran.returncode, "Traceback" in ran.stderr), (0, False), ran.stderr)
        return ran.stdout

    def refused(self, script, *words, env=None):
        """The one line that says why."""
        before = self.n_called()
        ran = self.call(script, *words, env=env)
        self.assertEqual((ran.returncode, ran.stdout), (2, ""), ran.stderr)
        self.assertRegex(ran.stderr, r"\Aerror: [^\n]*\n\Z")
        self.assertEqual(self.n_called(), before)
        return ran.stderr

    def n_called(self):
        log = self.folder / "log"
        return len(log.read_text().splitlines()) if log.exists() else 0

    def images(self, name):
        return ["--images", self.folder / name]


class Resuming(Scripts):
    def test_results_of_other_images_are_not_shown_under_a_new_name(self):
        self.assertIn("images: a", self.made(BOTH[0], *self.images("a")))
        for script in BOTH:
            said = self.refused(script, *self.images("b"))
            for part in (self.out, self.folder / "a", self.folder / "b", "--out", "--fresh"):
                self.assertIn(str(part), said)

    def test_what_was_made_with_the_same_is_shown_again(self):
        first = rows(self.made(BOTH[0], *self.images("a")))
        n_called = self.n_called()
        self.assertEqual(rows(self.made(BOTH[0], *self.images("a"))), first)
        self.made(BOTH[1], *self.images("a"))
        (self.folder / "link").symlink_to(self.folder / "a")
        self.made(BOTH[1], *self.images("link"))
        self.assertEqual(self.n_called(), n_called)

    def test_files_that_changed_at_the_same_place_are_other_data(self):
        self.made(BOTH[0], *self.images("a"))
        image = self.folder / "a/class/image.jpg"
        about = image.stat()
        os.utime(image, ns=(about.st_atime_ns, about.st_mtime_ns + 1))
        self.assertIn("have changed since", self.refused(BOTH[0], *self.images("a")))
        (self.folder / "a/class/second.jpg").write_text("more")
        self.assertIn("with 2 files", self.refused(BOTH[1], *self.images("a")))

    def test_other_seconds_and_programs_are_refused(self):
        self.made(BOTH[0], *self.images("a"))
        for script in BOTH:
            said = self.refused(script, *self.images("a"), "--seconds", 2)
            self.assertIn("seconds: 5.0; now 2.0", said)
        self.stub.write_text(self.stub.read_text() + "# Built again.\n")
        self.assertIn("another program", self.refused(BOTH[0], *self.images("a")))

    def test_results_of_an_earlier_version_are_not_believed(self):
        self.made(BOTH[0], *self.images("a"))
        results, calibration = self.out / "results.jsonl", self.out / "calibration.json"
        lines = [json.loads(line) for line in results.read_text().splitlines()]
        for line in lines:
            del line["made_with"]
        new = results.read_text()
        results.write_text("".join(json.dumps(line) + "\n" for line in lines))
        self.assertIn("an earlier version", self.refused(BOTH[0], *self.images("a")))
        results.write_text(new)
        rates = json.loads(calibration.read_text())
        for rate in rates.values():
            del rate["made_with"]
        calibration.write_text(json.dumps(rates))
        self.assertIn("an earlier version", self.refused(BOTH[1], *self.images("a")))

    def test_fresh_begins_again(self):
        self.made(BOTH[0], *self.images("a"))
        n_called = self.n_called()
        self.assertIn("images: b", self.made(BOTH[0], *self.images("b"), "--fresh"))
        # Two calibrations and four runs, as at first.
        self.assertEqual((n_called, self.n_called()), (6, 12))
        self.refused(BOTH[1], *self.images("a"))

    def test_fewer_blocks_than_there_are_show_only_these(self):
        self.made(BOTH[0], *self.images("a"), "--blocks", 7)
        for n_blocks, said in [(7, "98.4 %"), (6, "96.9 %"), (3, "no interval"), (1, "no interval")]:
            for script in BOTH:
                table = self.made(script, *self.images("a"), "--blocks", n_blocks)
                row = rows(table)[-1]
                self.assertEqual(" to " in row, n_blocks >= 6, row)
                self.assertEqual("too few blocks" in row, n_blocks < 6, row)
                self.assertIn(said, table)
                self.assertNotIn("bootstrap", table)


class Failing(Scripts):
    def test_a_cell_that_failed_is_said_and_ends_with_1(self):
        self.stub.write_text(self.stub.read_text().replace("*--csd*) ", "*--csd*) echo 'error: no preset' >&2; exit 2; "))
        for script in BOTH:
            ran = self.call(script, *self.images("a"))
            self.assertEqual(ran.returncode, 1, ran.stderr)
            self.assertRegex(ran.stderr, r"(?m)^error: .*ordered, 1 x newport: error: no preset$")
        self.assertIn("no preset", self.call(BOTH[0], *self.images("a")).stdout)

    def test_a_cell_that_failed_does_not_take_the_baseline_with_it(self):
        self.stub.write_text(self.stub.read_text().replace("*--csd*) ", "*sim:newport,*) exit 2 ;;\n*--csd*) "))
        table = rows(self.call(BOTH[0], *self.images("a"), "--devices", "smartssd").stdout)
        self.assertEqual([row.split(" | ")[0] for row in table[2:]],
                         ["| host alone", "| ordered, 1 x newport", "| ordered, 1 x smartssd"])

    def test_an_interrupt_is_one_line_and_the_runs_are_kept(self):
        self.made(BOTH[0], *self.images("a"))
        slow = self.stub.read_text().replace('case', 'touch "{folder}/started"; sleep 60\ncase'.format(folder=self.folder), 1)
        self.stub.write_text(slow)
        env = os.environ | {"BOTHENDS": str(self.stub), "PATH": f"{self.folder}:{os.environ['PATH']}"}
        words = [SCRIPTS / BOTH[0], "--out", self.folder / "slow", "--seconds", 5, *CELL, *self.images("a")]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        script = subprocess.Popen(list(map(str, words)), env=env, start_new_session=True, **pipes)
        while not (self.folder / "started").exists():
            self.assertIsNone(script.poll(), "it ended before it ran anything")
            time.sleep(0.01)
        os.killpg(script.pid, signal.SIGINT)
        _, said = script.communicate(timeout=60)
        self.assertEqual(script.returncode, 130)
        self.assertNotIn("Traceback", said)
        self.assertRegex(said, r"interrupted; with the same arguments it goes on from here\n\Z")

    def test_a_device_that_died_leaves_its_row_without_joules_and_says_why(self):
        why = "not counted here: busy seconds of device 0"
        made = json.loads((self.folder / "with-device.json").read_text())
        made["energy"] |= {"totals": [], "remarks": ["no meter `rapl` here", why]}
        (self.folder / "with-device.json").write_text(json.dumps(made))
        text = self.made(BOTH[1], *self.images("a"))
        modelled = text[text.index(": modelled"):]
        self.assertIn("| host alone | 2.00 | 4.00 | 6.00 | 1 |", modelled)
        self.assertIn("| ordered, 1 x newport | - | - | - | - | not known |", modelled)
        self.assertIn(f"ordered, 1 x newport: 2 of 2 runs ({why})", modelled)
        self.assertNotIn("measured", text[text.index("##"):])

    def test_an_emulated_device_gains_and_loses_nothing_by_a_meter(self):
        measured = {"source": "measured(rapl:package-0)", "low": 8.0, "joules": 8.0, "high": 8.0}
        for name in ("alone", "with-device"):
            made = json.loads((self.folder / f"{name}.json").read_text())
            made["energy"]["totals"] = [measured, TOTAL]
            for device in made["epochs"][0]["back"]:
                device["emulated"] = True
            (self.folder / f"{name}.json").write_text(json.dumps(made))
        text = self.made(BOTH[1], *self.images("a"))
        at = text.index(": modelled")
        measured, modelled = text[text.index(": measured"):at], text[at:]
        self.assertIn("| ordered, 1 x newport | 16.00 | 16.00 | 16.00 | - | no claim |", measured)
        self.assertIn("Measured joules include the emulation of devices", measured)
        self.assertNotIn("whole interval", measured)
        self.assertNotIn("no claim", modelled)

    def test_a_rank_has_its_part_of_what_a_meter_counts(self):
        for name in ("alone", "with-device"):
            made = json.loads((self.folder / f"{name}.json").read_text())
            made["energy"]["totals"] = [{"source": "measured(x)", "low": 8.0, "joules": 8.0, "high": 8.0}, TOTAL]
            made["energy"]["quantities"]["host"]["ranks"] = 4
            (self.folder / f"{name}.json").write_text(json.dumps(made))
        text = self.made(BOTH[1], *self.images("a"))
        self.assertIn("| host alone | 4.00 | 4.00 | 4.00 | 1 |", text)
        self.assertIn("| host alone | 2.00 | 4.00 | 6.00 | 1 |", text)


class Options(Scripts):
    def test_numbers_below_their_range_are_refused(self):
        for script in BOTH:
            for flag in ("--blocks", "--counts", "--workers"):
                for number in ("0", "-1", "1.5"):
                    said = self.refused(script, *self.images("a"), flag, number)
                    self.assertIn(f"argument {flag}: must be a whole number, 1 or more", said)
            for number in ("0", "-3", "nan", "inf", "601"):
                said = self.refused(script, *self.images("a"), "--seconds", number)
                self.assertIn("argument --seconds: must be a number above 0 and at most 600", said)

    def test_data_that_are_not_there_are_named(self):
        for flag in ("--images", "--cifar"):
            self.assertIn(f"argument {flag}", self.refused(BOTH[0], flag, self.folder / "none"))

    def test_bothends_names_the_program(self):
        said = self.made(BOTH[0], *self.images("a"))
        results = (self.out / "results.jsonl").read_text().splitlines()
        digest = json.loads(results[0])["made_with"]["program"]
        self.assertIn(f"program {self.stub}, digest {digest[:16]}", said)
        self.assertNotIn("commit", said)
        env = {"BOTHENDS": str(self.folder / "none")}
        self.assertIn("BOTHENDS is", self.refused(BOTH[1], *self.images("a"), env=env))


class LateDevices(Scripts):
    def tables(self, **counts):
        self.let_device_make(**counts)
        self.out = Path(tempfile.mkdtemp(dir=self.folder))
        return [self.made(script, *self.images("a")) for script in BOTH]

    def test_a_row_whose_device_fell_behind_is_marked_with_one_note(self):
        for counts in [
            {"batches": 1000, "late_completions": 1, "max_lateness_seconds": 0.06},
            {"batches": 1000, "late_completions": 9, "max_lateness_seconds": 0.01, "lateness_seconds": 0.06},
        ]:
            for text in self.tables(**counts):
                of_device = [row for row in rows(text) if row.startswith("| ordered")]
                self.assertTrue(of_device and all("newport † |" in row for row in of_device), text)
                self.assertNotIn("host alone †", text)
                self.assertEqual(text.count(figures.NOTE), 1)

    def test_a_device_on_time_or_of_a_program_that_does_not_count_is_not_marked(self):
        for counts in [
            {"batches": 2},
            {"batches": 2, "late_completions": None, "max_lateness_seconds": None},
            {"batches": 0, "late_completions": 0, "max_lateness_seconds": 0.0},
            # `bothends run` says nothing of these, either.
            {"batches": 30, "late_completions": 1, "max_lateness_seconds": 0.0002, "lateness_seconds": 0.0002},
            {"batches": 100, "late_completions": 90, "max_lateness_seconds": 0.001, "lateness_seconds": 0.05},
            {"batches": 100, "late_completions": None, "max_lateness_seconds": None, "lateness_seconds": None},
        ]:
            for text in self.tables(**counts):
                self.assertNotIn("†", text)


class Conditions(unittest.TestCase):
    def test_another_machine_and_other_processors_are_named(self):
        made = {"processors": [0, 1], "machine": "this one", "program": "0"}
        now = {"processors": [0], "machine": "that one", "program": "0"}
        found = conditions.differences("imagenet-train", made, now)
        self.assertEqual(found, ["processors: 0,1; now 0", "machine: this one; now that one"])
        self.assertEqual(conditions.differences("imagenet-train", made, made), [])

    def test_links_that_lead_back_or_nowhere_end(self):
        with tempfile.TemporaryDirectory() as work:
            folder = Path(work)
            (folder / "class").mkdir()
            (folder / "class/image.jpg").write_text("abc")
            (folder / "class/back").symlink_to(folder)
            (folder / "nowhere").symlink_to(folder / "none")
            found = conditions.data_set(folder)
            self.assertEqual(found["n_files"], 2)
            self.assertEqual(conditions.data_set(folder), found)
            one = conditions.data_set(folder / "class/image.jpg")
            self.assertEqual((one["n_files"], one["len_bytes"]), (1, 3))


if __name__ == "__main__":
    unittest.main()
