#!/usr/bin/env python3
"""One loader over a folder of class folders, measured: prints one JSON line.

    scripts/peers/loader.py NAME DATA [--workers 2] [--batch-size 64] [--seconds 8] [--au]

The pipeline is ImageNet's: decode, RandomResizedCrop 224, flip, normalise, float32 in planes,
batches of 64 in a new order every epoch. NAME is one of scripts/peers/loaders; each module says
in its header what it is and how it is set up.

What is measured, of the whole process tree: seconds from construction to the first batch, imports
left out; then, after a warm-up of two epochs, images and CPU seconds of a steady window of
whole epochs, and how many processors others kept busy; the greatest proportional set size that
was seen. Epochs follow one another without a pause.

--au feeds emulated accelerators instead: the consumer sleeps for a step's time after every batch.
Utilisation is sleeping ÷ (sleeping + waiting for batches) of all steps but the first and the
last, as in `bothends bench au`; before each rate, what lies ready from the one before is taken
away. Rates are those of configs/accelerators, and whatever scripts/peers/sustained.py asks for
to find the highest that is kept 90 % busy. MLPerf-Storage-style (DLIO constants), with real
decode and augment; no MLPerf result.
"""

import argparse
import json
import math
import os
import sys
import time
from pathlib import Path

from loaders import LOADERS, SIDE, files, opened
from sustained import highest
from usage import Peak, Window

ACCELERATORS = Path(__file__).resolve().parent.parent.parent / "configs" / "accelerators"
WARM_UP_EPOCHS, LONGEST_WARM_UP_S = 2, 60
# More than any of the loaders makes ahead.
BATCHES_AHEAD = 16
LEAST_STEPS = 12


class Stream:
    """A loader's batches, and how they are taken."""

    def __init__(self, options):
        self.options = options
        self.loader = opened(options.name, options)
        self.epoch = max(1, len(files(options.data)) // options.batch_size)
        self.peak = Peak()
        began = time.perf_counter()
        self.batches = self.loader.make()
        images, _ = next(self.batches)
        self.first_batch_s = time.perf_counter() - began
        self.check(images)
        began = time.perf_counter()
        for _ in range(WARM_UP_EPOCHS * self.epoch):
            next(self.batches)
            if time.perf_counter() - began > LONGEST_WARM_UP_S:
                break

    def check(self, images):
        """Whoever does other work is not compared."""
        shape = tuple(map(int, images.shape))
        if shape != (self.options.batch_size, 3, SIDE, SIDE) or "float32" not in str(images.dtype):
            sys.exit(f"error: its batches are {shape} of {images.dtype}")
        pixels = images if self.loader.arrays == "NumPy" else images.numpy()
        self.mean, self.deviation = float(pixels.mean()), float(pixels.std())
        if abs(self.mean) > 1 or not 0.5 < self.deviation < 2:
            sys.exit(f"error: its pixels have mean {self.mean}, deviation {self.deviation}")

    def about(self):
        return {
            "name": self.options.name,
            "version": self.loader.version,
            "antialiases": self.loader.antialiases,
            "arrays": self.loader.arrays,
            "first_batch_s": self.first_batch_s,
            "mean": self.mean,
            "deviation": self.deviation,
        }

    def rate(self):
        """As fast as it can."""
        n_batches, window, began = 0, Window(), time.perf_counter()
        # Whole epochs: their beginnings cost something, too.
        while time.perf_counter() - began < self.options.seconds:
            for _ in range(self.epoch):
                next(self.batches)
            n_batches += self.epoch
        seconds = time.perf_counter() - began
        cpu, others = window.end()
        n_images = n_batches * self.options.batch_size
        return {
            "images_per_s": n_images / seconds,
            "cpu_ms_per_image": cpu * 1e3 / n_images,
            "others_busy": others / seconds,
        }

    def fed(self, rate):
        """Feeds an emulated accelerator that takes so many images a second."""
        for _ in range(BATCHES_AHEAD):
            next(self.batches)
        step_s, waits, window = self.options.batch_size / rate, [], Window()
        began = end = time.perf_counter()
        while len(waits) < LEAST_STEPS or end - began < self.options.seconds:
            asked = time.perf_counter()
            next(self.batches)
            waits.append(time.perf_counter() - asked)
            # Steps lie on one timeline: who wakes late does not make the next one late.
            end += waits[-1] + step_s
            time.sleep(max(0.0, end - time.perf_counter()))
        seconds = time.perf_counter() - began
        cpu, others = window.end()
        counted = sorted(waits[1:-1])
        busy_s = step_s * len(counted)
        return {
            "rate_images_per_s": rate,
            "n_steps": len(waits),
            "utilisation": busy_s / (busy_s + sum(counted)),
            "p99_wait_ms": counted[math.ceil(len(counted) * 0.99) - 1] * 1e3,
            "cpu_ms_per_image": cpu * 1e3 / (len(waits) * self.options.batch_size),
            "others_busy": others / seconds,
        }

    def au(self):
        unpaced, accelerators = self.rate(), {}
        for path in sorted(ACCELERATORS.glob("*.json")):
            constants = json.loads(path.read_text())
            rate = constants["batch_size"] / constants["step_s"]
            accelerators[constants["short_name"]] = self.fed(rate)
        tried = []

        def utilisation_at(rate):
            tried.append(self.fed(rate))
            return tried[-1]["utilisation"]

        rate, _ = highest(unpaced["images_per_s"], utilisation_at)
        everything = [unpaced, *accelerators.values(), *tried]
        return {
            "unpaced": unpaced,
            "accelerators": accelerators,
            "sustained_images_per_s": rate,
            "at_sustained": tried[-1] if rate else None,
            "tried": tried,
            "others_busy": max(each["others_busy"] for each in everything),
        }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=LOADERS)
    parser.add_argument("data")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--au", action="store_true")
    options = parser.parse_args()
    stream = Stream(options)
    measured = stream.au() if options.au else stream.rate()
    result = stream.about() | measured | {"peak_pss_bytes": stream.peak.end()}
    print(json.dumps(result), flush=True)
    # Workers that wait for work need not be waited for.
    os._exit(0)


if __name__ == "__main__":
    main()
