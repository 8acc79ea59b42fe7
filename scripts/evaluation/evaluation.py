"""What both evaluations share: arguments, data, runs, and their output."""

import argparse
import datetime
import random
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import figures
import matrix
import runner

N_IMAGES, N_RECORDS = 500, 10_000


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message):
        runner.refuse(message)


def existing(text):
    if not Path(text).exists():
        raise argparse.ArgumentTypeError(f"there is no {text!r}")
    return Path(text)


def duration(text):
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    # Not `seconds <= 0`: that would let "nan" through.
    if not 0 < seconds <= runner.LONGEST_S:
        bounds = f"above 0 and at most {runner.LONGEST_S}"
        raise argparse.ArgumentTypeError(f"must be a number {bounds}; it is {text!r}")
    return seconds


def arguments(about):
    parser = Parser(description=about.splitlines()[0])
    parser.add_argument("--images", type=existing, help="class folders of photographs; else made")
    parser.add_argument("--cifar", type=existing, help="a CIFAR-10 folder; else made")
    parser.add_argument("--out", type=Path, default=runner.ROOT / "target/evaluate")
    parser.add_argument("--fresh", action="store_true", help="discard the results in OUT")
    parser.add_argument("--blocks", type=matrix.whole, help=f"ABBA blocks of each cell; {figures.LEAST_BLOCKS} or more for intervals")
    parser.add_argument("--seconds", type=duration, help="of a run of the host alone")
    matrix.add_arguments(parser)
    options = parser.parse_args()
    options.workers = options.workers or [max(1, len(runner.processors()) - 1)]
    options.blocks = options.blocks or (figures.LEAST_BLOCKS if options.quick else 7)
    options.seconds = options.seconds or (3.0 if options.quick else 10.0)
    return options


def photographs():
    """Photograph-like JPEGs, where no images are given."""
    folder = runner.ROOT / "target" / "evaluate-images"
    if not folder.is_dir():
        runner.say(f"making {N_IMAGES} images (none were given)")
        example = ["-p", "bothends-samples", "--example", "generate", "--", folder, N_IMAGES]
        command = ["cargo", "run", "--release", "--locked", "--quiet", *map(str, example)]
        subprocess.run(command, cwd=runner.ROOT, check=True, stdout=subprocess.DEVNULL)
    return folder


def records():
    """A batch of CIFAR-10's binary form with noise in it (it is not decoded, only cropped)."""
    folder = runner.ROOT / "target" / "evaluate-cifar10"
    batch = folder / "data_batch_1.bin"
    if not batch.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        draw = random.Random(0)
        lines = (bytes([i % 10]) + draw.randbytes(3072) for i in range(N_RECORDS))
        batch.write_bytes(b"".join(lines))
    return folder


class Evaluation:
    """A matrix that was run, and where its results lie."""

    def __init__(self, options):
        self.options = options
        options.out.mkdir(parents=True, exist_ok=True)
        self.lock = runner.alone(options.out)
        self.cells = matrix.cells(options)
        recipes = {cell.recipe for cell in self.cells}
        data = {}
        if "imagenet-train" in recipes:
            data["imagenet-train"] = options.images or photographs()
        if "cifar10-train" in recipes:
            data["cifar10-train"] = options.cifar or records()
        kept, results = options.out / "calibration.json", options.out / "results.jsonl"
        program = runner.program()
        if options.fresh:
            kept.unlink(missing_ok=True)
            results.unlink(missing_ok=True)
        programs = runner.Programs(program, data, options.seconds, kept)
        self.results = runner.Results(results, options.blocks)
        runner.refuse_others(options.out, programs, self.results)
        runner.run_all(programs, self.results, self.cells, options.blocks)
        self.data = data

    def origin(self):
        """How the figures came about, line by line."""
        given = {str(path) for path in (self.options.images, self.options.cifar) if path}
        called = [path.absolute().name if str(path) in given else "generated" for path in self.data.values()]
        programs = sorted({program_of(line) for line in self.results.lines})
        command = Path(sys.argv[0]).name + " " + shlex.join(sys.argv[1:])
        return [
            f"scripts/{command.strip()}; {datetime.date.today()}; {', '.join(programs)}",
            f"{runner.machine()}; images: {', '.join(called)}",
            "Measured: everything, on this machine, in turns (ABBA). Emulated: devices (their pace is "
            "held to a model's) and accelerators other than `none`. Medians of blocks with intervals by order "
            f"statistics ({self.coverage()}); a gain or a loss is named only where the whole interval shows it.",
        ]

    def coverage(self):
        """What the intervals hold, for every number of blocks that a cell has."""
        numbers = sorted({len(self.results.blocks(cell)) for cell in self.cells} - {0})
        return "; ".join(map(figures.coverage, numbers)) or "no whole block yet"

    def groups(self):
        """Cells that share a baseline: (heading, cells)."""
        found = {}
        for cell in self.cells:
            heading = f"{cell.recipe}, {matrix.workers(cell)}, accelerator {cell.accelerator}"
            found.setdefault(heading, []).append(cell)
        return found.items()

    def write(self, name, title, sections):
        """Markdown to standard output and to a file; `sections` are (heading, text, head, rows)."""
        texts = [f"# {title}", *self.origin()]
        for heading, text, head, rows in sections:
            texts += [f"## {heading}", text, table(head, rows)]
        if any(row[0].endswith(figures.MARK) for _, _, _, rows in sections for row in rows):
            texts.append(figures.NOTE)
        markdown = "\n\n".join(texts) + "\n"
        print(markdown)
        (self.options.out / f"{name}.md").write_text(markdown)
        runner.say(f"written: {self.options.out}/{name}.md, results.jsonl")
        failures = self.results.failures(self.cells)
        for cell, why in failures:
            runner.say(f"error: {runner.host(cell)}, accelerator {cell.accelerator}, {cell.words()}: {why}")
        if failures:
            sys.exit(1)


def run(main):
    """Runs a script. One that is interrupted keeps the runs that it has made."""
    try:
        main()
    except KeyboardInterrupt:
        runner.say("interrupted; with the same arguments it goes on from here")
        sys.exit(128 + signal.SIGINT)


def program_of(line):
    """A run's program, as it is called and with the digest that results.jsonl has of it."""
    return f"{line['program']}, digest {line['made_with']['program'][:16]}"


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "| --- |" + " ---: |" * (len(head) - 1)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def ratio_row(blocks, quantity, better):
    """Middle, low, high and verdict of a cell against its baseline."""
    found = figures.ratios(blocks, quantity)
    if not found:
        return None
    middle, low, high = figures.interval(found)
    return middle, low, high, figures.verdict(low, high, better)
