"""Which runs an evaluation makes: cells, each with its own baseline.

A cell is a strategy with devices; its baseline is strategy `cpu` of the same recipe, accelerator,
host workers and processors, without a device. The host has the first processors, the emulated
device the last one, in both: what a device brings is measured at the host's expense nowhere.
"""

import argparse
import itertools
from dataclasses import asdict, dataclass, replace

# Accelerators: none takes everything at once; v100, a100, h100 are emulated; 1.5x is emulated
# and takes 1.5 times what the host alone makes.
ACCELERATORS = ["none", "v100", "a100", "h100", "1.5x"]
STRATEGIES = ["ordered", "relaxed", "mte", "wrr"]
RECIPES = ["imagenet-train", "cifar10-train"]
DEVICES = ["newport,rate=0.235x", "newport", "smartssd", "dpu-bf2", "storage-server"]
COUNTS = [1, 2]
QUICK = {
    "strategies": ["ordered", "mte", "wrr"],
    "devices": ["newport,rate=0.235x"],
    "counts": [1],
    "accelerators": ["none", "1.5x"],
}


@dataclass(frozen=True)
class Cell:
    """One configuration; `device` is "" without any."""

    recipe: str
    workers: int
    accelerator: str
    strategy: str
    device: str = ""
    count: int = 0

    def baseline(self):
        return replace(self, strategy="cpu", device="", count=0)

    def key(self):
        return "|".join(str(value) for value in asdict(self).values())

    def words(self):
        if not self.count:
            return "host alone"
        return f"{self.strategy}, {self.count} x {self.device}"


def workers(cell):
    """In words."""
    return f"{cell.workers} host worker{'s' if cell.workers > 1 else ''}"


def choices(options, name, default):
    """What the command line says, else the quick or the whole list."""
    chosen = getattr(options, name)
    if chosen:
        return chosen
    return QUICK.get(name, default) if options.quick else default


def cells(options):
    """All cells but the baselines, those of one baseline together."""
    counts = options.counts or (QUICK["counts"] if options.quick else COUNTS)
    dimensions = [
        choices(options, "recipes", RECIPES),
        options.workers,
        choices(options, "accelerators", ACCELERATORS),
        choices(options, "devices", DEVICES),
        counts,
        choices(options, "strategies", STRATEGIES),
    ]
    made = []
    for recipe, workers, accelerator, device, count, strategy in itertools.product(*dimensions):
        made.append(Cell(recipe, workers, accelerator, strategy, device, count))
    return made


def whole(text):
    """A number of something on the command line."""
    if not text.isascii() or not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number, 1 or more; it is {text!r}")
    return int(text)


def add_arguments(parser):
    parser.add_argument("--quick", action="store_true", help="a small matrix, short runs")
    parser.add_argument("--recipes", action="append", choices=RECIPES)
    parser.add_argument("--accelerators", action="append", choices=ACCELERATORS)
    parser.add_argument("--strategies", action="append", choices=STRATEGIES)
    parser.add_argument("--devices", action="append", help="a preset, with keys as in --csd sim:")
    parser.add_argument("--counts", action="append", type=whole)
    parser.add_argument("--workers", action="append", type=whole)
