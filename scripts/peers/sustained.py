"""The highest rate at which an accelerator can be kept busy: the rule, and nothing else.

It is the rule of `bothends bench au` (crates/bench/src/au.rs has its words); a test there
plays both over the same curves:

    sustained.py START CAPACITY     the rates that are measured on such a curve, then the answer
"""

import math
import sys

WANTED = 0.9
RESOLUTION = 1.02
FIRST_STRIDE, LONGEST_STRIDE = 1.1, 2.0
MOST_PROBES = 24
LOWEST = 1 / 64


def highest(start, utilisation_at):
    """The highest rate that passed twice, or None; and all measurements, as pairs."""
    stride, passed, failed, probes = FIRST_STRIDE, [], None, []
    while len(probes) < MOST_PROBES:
        is_second = False
        if passed and failed and failed > passed[-1] * RESOLUTION:
            rate = math.sqrt(passed[-1] * failed)
        elif passed and failed:
            rate, is_second = passed[-1], True
        elif not passed and not failed:
            rate = start
        else:
            rate = passed[-1] * stride if passed else failed / stride
            stride = min(stride * stride, LONGEST_STRIDE)
        if rate < start * LOWEST:
            break
        utilisation = utilisation_at(rate)
        probes.append((rate, utilisation))
        if utilisation >= WANTED and is_second:
            return rate, probes
        if utilisation >= WANTED:
            passed.append(rate)
            continue
        failed = rate
        if is_second:
            passed.pop()
            stride = FIRST_STRIDE
    return None, probes


def main():
    start, capacity = map(float, sys.argv[1:])
    n = 0

    def curve(rate):
        nonlocal n
        n += 1
        print(f"{rate:.6f}")
        # One in five measurements is disturbed.
        return min(1.0, capacity / rate) * (0.8 if n % 5 == 0 else 1.0)

    found, _ = highest(start, curve)
    print(f"{found:.6f}" if found else "none")


if __name__ == "__main__":
    main()
