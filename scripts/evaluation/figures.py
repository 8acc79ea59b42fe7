"""From paired runs to a median with an interval, and to what may be said of it."""

import random
import statistics

RESAMPLES = 2000
SEED = 1


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


def shown(value, low, high, unit=""):
    if low is None:
        return f"{value:.3f}{unit}"
    return f"{value:.3f}{unit} ({low:.3f} to {high:.3f})"
