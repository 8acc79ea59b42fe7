"""From paired runs to a median with an interval, and to what may be said of it."""

import random
import statistics

RESAMPLES = 2000
SEED = 1
# An emulated device whose batches come later than its model has them, by more than this part of their
# number or of the epoch's time, is slower than what it is to emulate.
LATE_PART = 0.01
MARK = " †"
NOTE = (
    "† The emulator's host could not keep the model's pace: in at least one run of this row more than 1 % of a "
    "device's batches were late, or they were late by more than 1 % of the epoch. The figures are of this machine and "
    "not of the modelled device. Give it more cores or model a slower device."
)


def interval(values):
    """Median of `values` and its 95 % bootstrap interval (percentiles of resampled medians; the
    same numbers give the same interval). With less than three values there is none."""
    middle = statistics.median(values)
    if len(values) < 3:
        return middle, None, None
    draw = random.Random(SEED)
    medians = sorted(
        statistics.median(draw.choices(values, k=len(values))) for _ in range(RESAMPLES)
    )
    return middle, medians[int(0.025 * RESAMPLES)], medians[int(0.975 * RESAMPLES) - 1]


def verdict(low, high, better="more"):
    """A gain or a loss only where the whole interval is on one side of 1."""
    if low is None or low <= 1 <= high:
        return "no difference shown"
    is_more = low > 1
    return "gain" if is_more == (better == "more") else "loss"


def ratios(blocks, quantity):
    """The cell's against its baseline's, one for each ABBA block: drift of the machine falls out
    within a block."""
    found = []
    for block in blocks:
        ours = [quantity(run) for run in block["cell"]]
        theirs = [quantity(run) for run in block["baseline"]]
        if all(value is not None for value in ours + theirs) and sum(theirs):
            found.append(sum(ours) / len(ours) / (sum(theirs) / len(theirs)))
    return found


def is_behind(device, seconds):
    """Whether an emulated device did not keep its model's pace in an epoch of so many seconds.
    Programs that do not count late completions leave that unknown: no."""
    late = device.get("late_completions") or 0
    # All of it, else at least the largest.
    lateness = device.get("lateness_seconds") or device.get("max_lateness_seconds") or 0.0
    completed = device["batches"] + device.get("wasted", 0)
    return late > LATE_PART * completed or lateness > LATE_PART * seconds


def marked(name, runs):
    """A row's name, with a mark if a device fell behind in one of its runs."""
    epochs = (epoch for run in runs for epoch in run["epochs"])
    behind = any(is_behind(device, epoch["seconds"]) for epoch in epochs for device in epoch["back"])
    return name + MARK if behind else name


def shown(value, low, high, unit=""):
    if low is None:
        return f"{value:.3f}{unit}"
    return f"{value:.3f}{unit} ({low:.3f} to {high:.3f})"
