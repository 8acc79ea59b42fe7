#!/usr/bin/env python3
"""Figures of the Python package: run by scripts/bench-python, prints one JSON line each.

    figures.py import | overhead | first-batch | index | counting    DATA [COMMAND]

* import: milliseconds of `import bothends`, no framework.
* overhead: microseconds per batch. `convert`: from a slot that has been handed over to tensors,
  the least of many. `next`: a whole `next()` while the loader is ahead and this thread spins
  between batches; it includes waking the thread that waits for room to hand over the next.
* first-batch: milliseconds from construction, and from the constructed loader, to the first
  batch of the first 1,000 images.
* index: the same, and bytes, for a folder of class folders of 1,281,167 files (made of hard links
  to DATA's, in a folder of its own that is removed).
* counting: the share of its speed that a Python thread on one core keeps while this process
  loads with one worker on another, next to a process of COMMAND (`bothends`) that does the same
  there. Interleaved; medians.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import timeit
from pathlib import Path

N_IMAGENET = 1_281_167


def say(**figures):
    print(json.dumps(figures), flush=True)


def import_time(_data):
    code = "import time; t = time.perf_counter(); import bothends; print(time.perf_counter() - t)"
    runs = [subprocess.check_output([sys.executable, "-c", code]) for _ in range(9)]
    say(figure="import", ms=statistics.median(map(float, runs)) * 1e3)


def overhead(data):
    import bothends

    for framework in ("torch", "numpy"):
        options = {"batch_size": 4, "workers": 1, "repeat": 40, "framework": framework}
        loader = bothends.Loader(data, "imagenet-train", **options)
        batches = iter(loader)
        times = []
        for _ in range(300):
            until = time.perf_counter() + 0.012
            while time.perf_counter() < until:
                pass
            began = time.perf_counter_ns()
            batch = next(batches)
            times.append((time.perf_counter_ns() - began) / 1e3)
            del batch
        (consumer,) = loader._native.begin(1)
        ready = next(consumer)
        runs = timeit.repeat(lambda: loader._tensors(ready), number=10_000, repeat=5)
        say(
            figure="overhead",
            framework=framework,
            convert_us=min(runs) * 1e2,
            next_us=statistics.median(times),
        )


def first_batch(data):
    import bothends

    constructed, first = [], []
    for _ in range(7):
        began = time.perf_counter()
        options = {"limit": 1000, "side_index": "off", "batch_size": 64}
        loader = bothends.Loader(data, "imagenet-train", **options)
        made = time.perf_counter()
        next(iter(loader))
        now = time.perf_counter()
        constructed.append(made - began)
        first.append(now - made)
    medians = statistics.median(constructed), statistics.median(first)
    say(figure="first-batch", construct_ms=medians[0] * 1e3, first_batch_ms=medians[1] * 1e3)


def pss_bytes():
    with open("/proc/self/smaps_rollup") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("Pss:")) * 1024


def index(data):
    import bothends

    files = sorted(Path(data).glob("*/*"))
    with tempfile.TemporaryDirectory(dir=Path(data).absolute().parent) as folder:
        for number in range(N_IMAGENET):
            if number % 1300 == 0:
                place = Path(folder) / f"class-{number // 1300:04}"
                place.mkdir()
            os.link(files[number % len(files)], place / f"{number:07}.jpg")
        small = bothends.Loader(data, "imagenet-train", side_index="off")
        before, began = pss_bytes(), time.perf_counter()
        loader = bothends.Loader(folder, "imagenet-train", side_index="off")
        made, taken = time.perf_counter(), pss_bytes() - before
        next(iter(loader))
        now = time.perf_counter()
        del small
    say(
        figure="index",
        samples=N_IMAGENET,
        list_s=made - began,
        first_batch_ms=(now - made) * 1e3,
        bytes=taken,
    )


class Counter(threading.Thread):
    """Counts on a core of its own."""

    def __init__(self, cpu):
        super().__init__(daemon=True)
        self.cpu, self.n, self.over = cpu, 0, False

    def run(self):
        os.sched_setaffinity(0, {self.cpu})
        n = 0
        while not self.over:
            n += 1
            if n % 1024 == 0:
                self.n = n


def rate(counter, seconds):
    before, began = counter.n, time.perf_counter()
    time.sleep(seconds)
    return (counter.n - before) / (time.perf_counter() - began)


def counting(data, command):
    import bothends

    worker_cpu, own_cpu = sorted(os.sched_getaffinity(0))[:2]
    os.sched_setaffinity(0, {worker_cpu})
    options = {"batch_size": 16, "workers": 1, "repeat": 1000, "framework": "numpy"}
    loader = bothends.Loader(data, "imagenet-train", **options)
    theirs = [command, "run", "--data", data, "--recipe", "imagenet-train", "--workers", "1"]
    theirs += ["--batch-size", "16", "--repeat", "1000", "--output", "f32", "--layout", "nchw"]
    counter = Counter(own_cpu)
    counter.start()
    shares = []
    for _ in range(5):
        beside = subprocess.Popen(theirs, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(1)
        alone = rate(counter, 2.0)
        beside.kill()
        beside.wait()
        stop = threading.Event()

        def consume(stop=stop):
            for _ in loader:
                if stop.is_set():
                    return

        consumer = threading.Thread(target=consume)
        consumer.start()
        time.sleep(1)
        shares.append(rate(counter, 2.0) / alone)
        stop.set()
        consumer.join()
    counter.over = True
    say(figure="counting", share=statistics.median(shares), rounds=shares)


def main():
    figure, data, *more = sys.argv[1:]
    figures = {
        "import": import_time,
        "overhead": overhead,
        "first-batch": first_batch,
        "index": index,
        "counting": counting,
    }
    figures[figure](data, *more)


if __name__ == "__main__":
    main()
