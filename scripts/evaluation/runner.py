"""Runs the cells of a matrix: paired, interleaved, resumable, with the time that is left.

Every cell is run in blocks of four, baseline, cell, cell, baseline (ABBA). Each run is one line of
JSON in the results file, with its cell, block and place; what stands there is not run again. A run
that fails stands there too, with its reason, and is not tried again in that file, unless a signal
ended it: that is nothing of the cell. A file whose runs were made with other data or options is
refused (conditions.py).
"""

import datetime
import fcntl
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import conditions
import matrix

sys.path.append(str(Path(__file__).resolve().parent.parent))
from machine import head  # noqa: E402
from machine import machine as here  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent.parent
ORDER = ["baseline", "cell", "cell", "baseline"]
LONGEST_S = 600
CALIBRATION_S = 4
# `mte` delivers what devices make after all that the host makes: half an epoch waits at most.
SAMPLE_BYTES = {"imagenet-train": 224 * 224 * 3, "cifar10-train": 32 * 32 * 3}
LEAST_MIB = 512


def say(text):
    print(text, file=sys.stderr, flush=True)


def refuse(text):
    """Ends the script as wrong usage does."""
    say(f"error: {text}")
    sys.exit(2)


def program():
    """Where `bothends` is, and what it is called in a table: the one that BOTHENDS names, else one
    built from these sources."""
    given = os.environ.get("BOTHENDS")
    if not given:
        return build() / "bothends", f"commit {commit()}"
    found = shutil.which(given)
    if not found:
        refuse(f"BOTHENDS is {given!r}, which is not a program")
    return Path(found).absolute(), f"program {found}"


def build():
    """The folder of the release programs."""
    packages = ["-p", "bothends", "--bins"]
    command = ["cargo", "build", "--release", "--locked", *packages]
    subprocess.run(command, cwd=ROOT, check=True)
    return Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release"


def alone(folder):
    """Holds a lock for as long as this process lives."""
    lock = (folder / "lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        sys.exit(f"error: another evaluation writes to {folder}; wait for it or use --out")
    return lock


def processors():
    """Those that this process may use."""
    return sorted(os.sched_getaffinity(0))


def commit():
    words = ["git", "describe", "--always", "--dirty"]
    ran = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    return ran.stdout.strip() or "unknown"


def machine():
    return head(here())


def host(cell):
    """What a calibration is of."""
    return f"{cell.recipe}, {matrix.workers(cell)}"


class Programs:
    """What runs are made of: the program, the data of each recipe, the time for a run."""

    def __init__(self, program, data, seconds, kept):
        self.bothends, self.called = program
        self.data = data
        self.seconds = seconds
        self.common = conditions.of_all(self.bothends, seconds, processors())
        self.data_sets = {recipe: conditions.data_set(path) for recipe, path in data.items()}
        # A resumed evaluation makes runs as long as those that it has.
        self.kept = kept
        self.rates = json.loads(kept.read_text()) if kept.exists() else {}
        all_of_them = processors()
        # One processor is the device's, where there are two.
        self.of_host, self.of_device = all_of_them[:-1] or all_of_them, all_of_them[-1]

    def made_with(self, recipe):
        """The conditions of a run; those of the data only where this evaluation uses that recipe."""
        known = self.data_sets.get(recipe)
        return ({"data": known} if known else {}) | self.common

    def command(self, cell, repeat, host_rate=None, accelerator=None):
        accelerator = accelerator or self.accelerator(cell)
        host = ",".join(map(str, self.of_host))
        words = ["taskset", "-c", host, self.bothends, "run", "--data", self.data[cell.recipe]]
        words += ["--recipe", cell.recipe, "--workers", cell.workers, "--strategy", cell.strategy]
        words += ["--repeat", repeat, "--accelerator", accelerator, "--json", "-"]
        if cell.strategy.startswith("mte"):
            words += ["--memory", self.memory_mib(cell, repeat)]
        for _ in range(cell.count):
            words += ["--csd", f"sim:{self.device(cell, host_rate)},pin={self.of_device}"]
        return list(map(str, words))

    def memory_mib(self, cell, repeat):
        """Enough for half of the epoch, or half of what the machine has left."""
        n_samples = self.rates[host(cell)]["samples"] * repeat
        wanted = n_samples * SAMPLE_BYTES[cell.recipe] // 2
        left = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
        return LEAST_MIB + min(wanted, left) // (1 << 20)

    def device(self, cell, host_rate=None):
        """With a rate in images per second instead of one relative to the host, which every
        run would measure again: relative to `host_rate`, else to the calibration."""
        def absolute(match):
            known = host_rate or self.rates[host(cell)]["images_per_s"]
            return f"rate={float(match.group(1)) * known:.1f}"

        return re.sub(r"rate=([\d.]+)x", absolute, cell.device)

    def accelerator(self, cell, host_rate=None):
        """One relative to the host is so to `host_rate`, else to the calibration."""
        if cell.accelerator == "none":
            return "host"
        if cell.accelerator.endswith("x"):
            known = host_rate or self.rates[host(cell)]["images_per_s"]
            return f"sim:{float(cell.accelerator[:-1]) * known:.1f}"
        return f"sim:{cell.accelerator}"

    def calibrate(self, cell):
        """How many images the host alone makes in a run's time: the same for all cells of a
        recipe and a number of workers."""
        if host(cell) in self.rates:
            return
        say(f"measuring the host alone: {host(cell)}")
        plain = type(cell)(cell.recipe, cell.workers, "none", "cpu")
        # The first one makes the side index and warms the page cache.
        epoch = self.once(plain, 1)
        self.rates[host(cell)] = {key: epoch[key] for key in ("samples", "images_per_s")}
        epoch = self.once(plain, self.repeat(plain, CALIBRATION_S))
        self.rates[host(cell)]["images_per_s"] = epoch["images_per_s"]
        self.rates[host(cell)]["made_with"] = self.made_with(cell.recipe)
        self.kept.write_text(json.dumps(self.rates, indent=1) + "\n")

    def repeat(self, cell, seconds):
        known = self.rates[host(cell)]
        return max(1, round(seconds * known["images_per_s"] / known["samples"]))

    def once(self, cell, repeat):
        result = self.run(self.command(cell, repeat))
        if "error" in result:
            sys.exit(f"error: {result['error'].removeprefix('error: ')}")
        return result["epochs"][-1]

    def run(self, command):
        """The result's JSON, or {"error": why} with what the program ended with."""
        try:
            ran = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_S)
        except subprocess.TimeoutExpired:
            return {"error": f"did not end within {LONGEST_S} s"}
        if ran.returncode:
            return failure(ran.returncode, ran.stderr)
        return json.loads(ran.stdout)


def failure(returncode, said):
    """Why a program failed: the signal that ended it, else its last error, else its last words."""
    # A program that ends itself after a signal says so as shells do.
    number = -returncode if returncode < 0 else returncode - 128
    if number > 0:
        name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
        return {"error": f"ended by {name}", "returncode": returncode, "signal": name}
    lines = said.strip().splitlines() or [f"ended with status {returncode} and without a word"]
    errors = [line for line in lines if line.startswith("error:")] or lines
    return {"error": errors[-1], "returncode": returncode}


class Results:
    """The results file; of each cell the first `n_blocks` blocks, else all."""

    def __init__(self, path, n_blocks=None):
        self.path = path
        self.n_blocks = n_blocks
        self.lines = []
        if path.exists():
            # A line that a killed evaluation left half written is run again.
            whole = path.read_text().split("\n")[:-1]
            lines = [json.loads(line) for line in whole]
            # What a signal ended is run again. It stays in the file, where the later run counts.
            self.lines = [line for line in lines if "signal" not in line]
            path.write_text("".join(line + "\n" for line in whole))

    def find(self, key, block, place):
        wanted = key, block, place
        return next((l for l in self.lines if (l["key"], l["block"], l["place"]) == wanted), None)

    def add(self, line):
        self.lines.append(line)
        with self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def blocks(self, cell):
        """The whole blocks of a cell."""
        found = {}
        for line in self.lines:
            if line["key"] == cell.key() and "error" not in line:
                block = found.setdefault(line["block"], {"cell": [], "baseline": []})
                block[ORDER[line["place"]]].append(line["result"])
        whole = [block for _, block in sorted(found.items()) if len(block["cell"]) == 2]
        return whole[: self.n_blocks]

    def failure(self, cell):
        mine = (line for line in self.lines if line["key"] == cell.key())
        return next((line["error"] for line in mine if "error" in line), None)


    def failures(self, cells):
        """(cell, why) of those that failed."""
        found = ((cell, self.failure(cell)) for cell in cells)
        return [(cell, why) for cell, why in found if why]


def refuse_others(folder, programs, results):
    """Ends the script where the folder holds anything that was made with other data or options."""
    kept = [(line["cell"]["recipe"], line.get("made_with")) for line in results.lines]
    for name, rate in programs.rates.items():
        kept.append((name.split(",")[0], rate.get("made_with")))
    found = {}
    for recipe, made in kept:
        for words in conditions.differences(recipe, made, programs.made_with(recipe)):
            found[words] = True
    if found:
        which = "unknown data and" if conditions.UNTOLD in found else "other data or"
        refuse(
            f"{folder} holds results of {which} options ({'; '.join(found)});"
            " use another --out, or --fresh to discard them"
        )


def left(n_left, lasted):
    if not lasted:
        return ""
    seconds = n_left * sum(lasted) / len(lasted)
    if seconds >= 2 * 3600:
        time_left = f"{seconds / 3600:.0f} h"
    else:
        time_left = f"{seconds / 60:.0f} min" if seconds >= 60 else f"{seconds:.0f} s"
    return f", about {time_left} left"


def run_all(programs, results, cells, n_blocks):
    """All runs that are not there yet."""
    blocks = ((block, cell) for block in range(n_blocks) for cell in cells)
    places = [(cell, block, place) for block, cell in blocks for place in range(len(ORDER))]
    wanted = [each for each in places if not results.find(each[0].key(), each[1], each[2])]
    say(f"{len(places)} runs, {len(places) - len(wanted)} of them done before")
    lasted = []
    for i, (cell, block, place) in enumerate(wanted):
        if results.failure(cell):
            continue
        programs.calibrate(cell)
        say(f"run {i + 1} of {len(wanted)}{left(len(wanted) - i, lasted)}")
        began = time.monotonic()
        run_one(programs, results, (cell, block, place))
        lasted.append(time.monotonic() - began)


def host_rate(results, cell, block):
    """What the host alone made at the beginning of this block, unless an accelerator held it up:
    the machine may have become faster or slower since the calibration."""
    first = results.find(cell.key(), block, 0)
    if first is None or "error" in first or is_held_up(first):
        return None
    return first["result"]["epochs"][-1]["images_per_s"]


def is_held_up(line):
    utilisation = line["result"]["epochs"][-1]["accelerator"]["utilisation"]
    return utilisation is not None and utilisation >= 0.9


def accelerator(programs, results, what):
    """The same for the four runs of a block, and relative to what the host alone made before it: the
    median of three runs, of which a single disturbed one does not matter."""
    cell, block, _ = what
    first = results.find(cell.key(), block, 0)
    if first and "accelerator" in first:
        return first["accelerator"]
    known = [programs.rates[host(cell)]["images_per_s"]]
    for line in results.lines:
        other = matrix.Cell(**line["cell"])
        if "error" in line or ORDER[line["place"]] != "baseline" or host(other) != host(cell):
            continue
        # What held the host up says nothing of it, unless it grows with the host.
        if not is_held_up(line) or other.accelerator.endswith("x"):
            known.append(line["result"]["epochs"][-1]["images_per_s"])
    return programs.accelerator(cell, statistics.median(known[-3:]))


def run_one(programs, results, what):
    cell, block, place = what
    ran = cell if ORDER[place] == "cell" else cell.baseline()
    say(f"  {host(cell)}, accelerator {cell.accelerator}: {ran.words()}")
    repeat = programs.repeat(cell, programs.seconds)
    consumer = accelerator(programs, results, what)
    command = programs.command(ran, repeat, host_rate(results, cell, block), consumer)
    result = programs.run(command)
    line = {"key": cell.key(), "block": block, "place": place, "cell": asdict(cell)}
    line |= {"date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")}
    line |= {"program": programs.called, "made_with": programs.made_with(cell.recipe)}
    line |= {"accelerator": consumer}
    line |= result if "error" in result else {"result": result}
    results.add(line)
