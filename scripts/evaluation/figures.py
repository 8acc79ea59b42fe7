"""From paired runs to a median with an interval, and to what may be said of it."""

import math
import statistics

# The least probability with which an interval is to hold the true median.
CONFIDENCE = 0.95
# An emulated device whose batches come later than its model has them, by more than this part of the
# epoch's time in all, is slower than what it is to emulate. `bothends run` has the same bound.
LATE_PART = 0.01
MARK = " †"
NOTE = (
    "† The emulator's host could not keep the model's pace: in at least one run of this row a device's batches were "
    "late by more than 1 % of the epoch. The figures are of this machine and not of the modelled device. Give it more "
    "cores or model a slower device."
)


def bounds(n):
    """Which of `n` sorted values, counted from 0 and from either end, bound the narrowest interval
    that holds the median of what they are drawn from with CONFIDENCE, and with what it does; None
    where not even the smallest and the largest do. It is exact for values of any distribution: each is
    above the median or below it, as a coin falls."""
    found = None
    outside = 0.0
    for k in range(n // 2):
        outside += 2 * math.comb(n, k) / 2**n
        if 1 - outside >= CONFIDENCE:
            found = k, 1 - outside
    return found


LEAST_BLOCKS = next(n for n in range(1, 100) if bounds(n))


def interval(values):
    """Median of `values` and its interval by order statistics, of at least 95 %; with less than
    LEAST_BLOCKS values there is none."""
    middle = statistics.median(values)
    found = bounds(len(values))
    if found is None:
        return middle, None, None
    ordered = sorted(values)
    return middle, ordered[found[0]], ordered[-1 - found[0]]


def coverage(n):
    """What the interval of `n` blocks is, in words."""
    blocks = f"{n} block{'s' if n > 1 else ''}"
    found = bounds(n)
    if found is None:
        return f"{blocks}: no interval, which takes {LEAST_BLOCKS}, and no gain or loss is named"
    k, held = found
    ends = "from the smallest to the largest"
    if k:
        n_out = f"{k} " if k > 1 else ""
        ends = f"without the {n_out}smallest and the {n_out}largest"
    return f"{blocks}: {ends}, which holds the true median {100 * held:.1f} % of the time"


def verdict(low, high, better="more"):
    """A gain or a loss only where the whole interval is on one side of 1, and nothing without one."""
    if low is None:
        return "too few blocks"
    if low <= 1 <= high:
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
    Programs and devices that do not count it leave that unknown: no."""
    # All of it, else at least the largest.
    lateness = device.get("lateness_seconds") or device.get("max_lateness_seconds") or 0.0
    return lateness > LATE_PART * seconds


def marked(name, runs):
    """A row's name, with a mark if a device fell behind in one of its runs."""
    epochs = (epoch for run in runs for epoch in run["epochs"])
    behind = any(is_behind(device, epoch["seconds"]) for epoch in epochs for device in epoch["back"])
    return name + MARK if behind else name


def shown(value, low, high, unit=""):
    if low is None:
        return f"{value:.3f}{unit}"
    return f"{value:.3f}{unit} ({low:.3f} to {high:.3f})"
