"""Runs training scripts with PyTorch's loader and with ours, and compares what they were given.

Called by scripts/check-training-scripts, which says what the options mean.
"""

import argparse
import dataclasses
import datetime
import json
import os
import platform
import re
import shutil
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path

import launch
import verdict
from cases import CASES, ONCE, SAMPLER

HERE = Path(__file__).resolve().parent
SCRIPTS = HERE.parent / "training-scripts"
DEADLINE_S = 120
OURS = re.compile(r"#\s*bothends(: resume)?\s*$")
# Scripts rarely end their process group. A thread of gloo's that then still holds a tensor asks
# for an interpreter that is gone, and the C++ runtime ends the process with these words (seen in
# ProcessGroupGloo::runLoop, in 5 of 40 runs of one case).
ABORTED = "terminate called without an active exception"
THEIRS = re.compile(r"#\s*pytorch\s*$")
PACKAGES = ["torch", "torchvision", "timm", "lightning", "accelerate", "ray", "transformers"]
PACKAGES += ["datasets", "jax", "numpy", "pillow"]


@dataclasses.dataclass
class Row:
    """A case's line of the table; a text in place of True says what is wrong."""

    case: str
    ranks: int
    lines: int
    resume_lines: int
    batches: int = 0
    delivered: int = 0
    wrong: dict[str, str] = dataclasses.field(default_factory=dict)
    pixels_equal: bool = False
    is_resumed: bool = False
    is_training: bool = True
    seconds: float = 0.0
    warnings: list[str] = dataclasses.field(default_factory=list)
    words: dict[str, list[str]] = dataclasses.field(default_factory=dict)


# ---- the two versions of a script ---------------------------------------------------------------


def changed(script):
    """How many lines of a script are ours, and how many of them are there for resuming."""
    found = [match for line in script.splitlines() if (match := OURS.search(line))]
    resume = sum(match[1] is not None for match in found)
    return len(found) - resume, resume


def write_versions(work):
    """All scripts twice: as they stand, and without the lines that are marked as ours."""
    for name, drop in (("pytorch", OURS), ("bothends", THEIRS)):
        folder = work / name
        folder.mkdir()
        for script in SCRIPTS.glob("*.py"):
            kept = [line for line in script.read_text().splitlines() if not drop.search(line)]
            (folder / script.name).write_text("\n".join(kept) + "\n")


# ---- one case -------------------------------------------------------------------------------


class Runner:
    def __init__(self, work, options):
        self.work = work
        self.options = options
        self.data = work / "data"
        self.n_runs = 0
        self.ray = _short(work / "ray")
        # What a loader or a framework keeps for the next time goes here, and goes with it.
        caches = {"XDG_CACHE_HOME": "cache", "HF_HOME": "huggingface", "HOME": "home"}
        paths = [*map(str, options.path), str(HERE)]
        self.environment = {
            **os.environ,
            **{name: str(work / folder) for name, folder in caches.items()},
            "PYTHONPATH": os.pathsep.join(paths),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONUNBUFFERED": "1",
            "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": "lo",
            "HF_HUB_OFFLINE": "1",
            "CUDA_VISIBLE_DEVICES": "",
            "JAX_PLATFORMS": "cpu",
            "TOKENIZERS_PARALLELISM": "false",
            "RAY_USAGE_STATS_ENABLED": "0",
            # Or Ray takes the address of the machine for its own, and listens to the network.
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        }

    def run(self, case, version, *more):
        """One run, and what its ranks wrote down; once more where PyTorch aborted at its end."""
        ran, notes = self._run_once(version, case, more)
        if ran.code and case.ranks > 1 and ABORTED in ran.output:
            print(f"  {case.name}: gloo aborted at exit; once more", file=sys.stderr)
            ran, notes = self._run_once(version, case, more)
        return ran, notes

    def _run_once(self, version, case, more):
        self.n_runs += 1
        notes = self.work / "notes" / str(self.n_runs)
        notes.mkdir(parents=True)
        script = self.work / version / f"{case.script}.py"
        checkpoint = self.work / version / f"{case.name.replace(' ', '-')}.pt"
        command = [script, self.data, *case.arguments, "--checkpoint", checkpoint, *more]
        if case.has_ray:
            command += ["--ray", self.ray]
        if case.save_every:
            command += ["--save-every", case.save_every]
        environment = self.environment | {"MATRIX_NOTES": str(notes)}
        ran = launch.run(case, list(map(str, command)), environment, self.options.deadline)
        (notes / "output").write_text(ran.output)
        return ran, verdict.Notes(notes)

    def row(self, case):
        lines = changed((SCRIPTS / f"{case.script}.py").read_text())
        row = Row(case.name, case.ranks, *lines, is_training=case.is_training)
        start = time.monotonic()
        theirs = self._counted(row, case, "pytorch")
        if self.options.pytorch_only:
            ours = theirs
        else:
            ours = theirs and self._counted(row, case, "bothends")
        if ours:
            self._judge(row, case, theirs, ours)
        if ours and case.save_every and not self.options.pytorch_only:
            row.is_resumed = True
            after = self._counted(row, case, "bothends", "--resume")
            self._note(row, "resume", after and verdict.resumed(case, ours, after))
        row.seconds = time.monotonic() - start
        return row

    def _counted(self, row, case, version, *more):
        """A run's notes, unless it failed, which the row then says."""
        before = files(self.data)
        ran, notes = self.run(case, version, *more)
        name = " ".join((version, *more))
        if ran.code:
            row.wrong[f"run ({name})"] = f"ended with {ran.code}:\n{tail(ran.output)}"
        if ran.left_behind:
            row.wrong[f"left behind ({name})"] = ", ".join(ran.left_behind)
        if new := files(self.data) - before:
            row.wrong[f"in the data's folder ({name})"] = ", ".join(sorted(new)[:3])
        if version == "bothends":
            row.warnings += [line for line in ran.output.splitlines() if "bothends: " in line]
        return None if ran.code else notes

    def _judge(self, row, case, theirs, ours):
        if not self.options.pytorch_only:
            row.batches, wrong = verdict.front_batches(ours)
            row.delivered = len(ours.of("train")) + len(ours.of("evaluate"))
            self._note(row, "really ours", wrong)
            row.words = {line["name"]: line["words"] for line in ours.of("loader")}
            self._note(row, "warnings", _unexpected(case, row.warnings))
        if self.options.pytorch_only and case.samples != SAMPLER:
            # PyTorch's loader is what it is; the script shall run.
            case = dataclasses.replace(case, samples=ONCE)
        self._note(row, "samples", verdict.samples(case, theirs, ours))
        wrong, row.pixels_equal = verdict.evaluation(theirs, ours)
        self._note(row, "evaluation", wrong)
        self._note(row, "epochs", verdict.differing(case, ours))

    @staticmethod
    def _note(row, what, wrong):
        if wrong:
            row.wrong[what] = wrong


def _short(folder):
    """A folder for Ray: a socket's path has at most 107 bytes, of which Ray needs 75."""
    return folder if len(str(folder)) <= 30 else Path(tempfile.mkdtemp(prefix="ray-"))


def _unexpected(case, warnings):
    """Each line that is due once per rank, and no other."""
    for due in case.warns:
        n = sum(due in line for line in warnings)
        if n != case.ranks:
            return f"{n} lines say {due!r}, in {case.ranks} ranks"
    if others := [line for line in warnings if not any(due in line for due in case.warns)]:
        return f"{len(others)}, the first: {others[0]}"
    return None


def files(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def tail(output, n=30):
    """The last lines that are not what torchrun says about a rank that failed."""
    said = output.split(" failed (exitcode", 1)[0]
    return "\n".join(said.rstrip().splitlines()[-n:])


# ---- the table ------------------------------------------------------------------------------

HEAD = ["case", "ranks", "lines changed", "really ours (batches)", "samples right"]
HEAD += ["evaluation equal", "epochs differ", "resume exact", "seconds"]


def cells(row):
    def yes(what, word="yes"):
        if any(key.startswith("run") for key in row.wrong):
            return "did not run"
        return "**no**" if what in row.wrong else word

    lines = f"{row.lines} + {row.resume_lines} to resume" if row.is_resumed else str(row.lines)
    return [
        row.case,
        str(row.ranks),
        lines,
        yes("really ours", f"{row.batches} of {row.delivered}"),
        yes("samples") if row.is_training else "-",
        yes("evaluation", "to the bit" if row.pixels_equal else "yes"),
        yes("epochs") if row.is_training else "-",
        yes("resume") if row.is_resumed else "-",
        f"{row.seconds:.0f}",
    ]


def versions():
    found = [f"Python {platform.python_version()}"]
    for package in PACKAGES:
        try:
            found.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            found.append(f"no {package}")
    return found


def report(rows):
    print(f"{datetime.date.today()}, {platform.machine()}, {os.cpu_count()} processors;")
    print(f"{', '.join(versions())}\n")
    print("| " + " | ".join(HEAD) + " |")
    print("| --- |" + " ---: |" * 3 + " --- |" * 4 + " ---: |")
    for row in rows:
        print("| " + " | ".join(cells(row)) + " |")
    for row in rows:
        for what, wrong in row.wrong.items():
            print(f"\n{row.case}, {what}: {wrong}")


def parsed():
    parser = argparse.ArgumentParser(prog="check-training-scripts")
    parser.add_argument("--case", action="append", help="only cases with this in their names")
    parser.add_argument("--list", action="store_true", help="name the cases")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--keep", type=Path, help="do all in this new folder and keep it")
    parser.add_argument("--deadline", type=float, default=DEADLINE_S, help="seconds of a run")
    parser.add_argument("--pytorch-only", action="store_true", help="try the scripts themselves")
    parser.add_argument("--path", action="append", default=[], help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    options = parsed()
    wanted = options.case or [""]
    cases = [case for case in CASES if any(part in case.name for part in wanted)]
    if options.list or not cases:
        print("\n".join(case.name for case in CASES))
        sys.exit(0 if options.list else f"error: no case has {options.case} in its name")
    # Only a run needs NumPy and Pillow.
    import images

    work = options.keep or Path(tempfile.mkdtemp(prefix="training-scripts-"))
    rows, runner = [], Runner(work, options)
    try:
        images.make(work / "data")
        for folder in ("cache", "huggingface", "home"):
            (work / folder).mkdir()
        write_versions(work)
        for case in cases:
            print(f"{case.name} ...", file=sys.stderr, flush=True)
            rows.append(runner.row(case))
            print(f"  {' | '.join(cells(rows[-1])[3:])}", file=sys.stderr, flush=True)
    finally:
        if not options.keep:
            shutil.rmtree(work, ignore_errors=True)
            shutil.rmtree(runner.ray, ignore_errors=True)
    report(rows)
    if options.json:
        record = {"versions": versions(), "rows": [dataclasses.asdict(row) for row in rows]}
        options.json.write_text(json.dumps(record, indent=1) + "\n")
    sys.exit(1 if any(row.wrong for row in rows) else 0)


if __name__ == "__main__":
    main()
