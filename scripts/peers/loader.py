#!/usr/bin/env python3
"""One loader over a folder of class folders, measured: prints one JSON line.

    scripts/peers/loader.py NAME DATA [--workers 2] [--batch-size 64] [--seconds 8]

The pipeline is ImageNet's: decode, RandomResizedCrop 224, flip, normalise, float32 in planes,
batches of 64 in a new order every epoch. NAME is one of

  pillow            torch.utils.data.DataLoader(ImageFolder), Pillow images, worker processes
                    that stay (persistent_workers), default prefetching
  tensor            the same with torchvision.io.decode_jpeg and transforms on tensors
  bothends          bothends.torch.DataLoader on the very same data set and transforms, threads
  bothends-planar   bothends.Loader with the built-in recipe imagenet-train (planar numerics)

What is measured, of the whole process tree: seconds from construction to the first batch, imports
left out; then, after a warm-up of two epochs, images and processor seconds of a steady window,
and how many processors others kept busy; the greatest proportional set size that was seen. Epochs follow one another without a pause.
"""

import argparse
import json
import os
import sys
import threading
import time

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
WARM_UP_EPOCHS = 2


def processes():
    """This process and all below it."""
    children = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat") as file:
                parent = int(file.read().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(pid))
        except OSError:
            continue  # it has ended
    found, todo = [], [os.getpid()]
    while todo:
        found.append(todo.pop())
        todo += children.get(found[-1], [])
    return found


def cpu_seconds():
    """Of the process tree, ended children included."""
    ticks = 0
    for pid in processes():
        try:
            with open(f"/proc/{pid}/stat") as file:
                fields = file.read().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))
        except OSError:
            continue
    return ticks * TICK_S


def busy_seconds():
    """Of all processors, since the machine began."""
    with open("/proc/stat") as file:
        ticks = list(map(int, file.readline().split()[1:9]))
    return (sum(ticks) - ticks[3] - ticks[4]) * TICK_S


def pss_bytes():
    total = 0
    for pid in processes():
        try:
            with open(f"/proc/{pid}/smaps_rollup") as file:
                lines = [line for line in file if line.startswith("Pss:")]
            total += int(lines[0].split()[1]) * 1024
        except (OSError, IndexError):
            continue
    return total


class Peak(threading.Thread):
    """Looks at the memory now and then; a look takes a few milliseconds."""

    def __init__(self):
        super().__init__(daemon=True)
        self.bytes, self.over = 0, threading.Event()

    def run(self):
        while not self.over.wait(0.5):
            self.bytes = max(self.bytes, pss_bytes())


def data_set(data, on_tensors):
    import torch
    import torchvision
    from torchvision.io import ImageReadMode, decode_jpeg, read_file
    from torchvision.transforms import v2

    first, last = [], [v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
    options = {}
    if on_tensors:
        last = last[1:]
        options["loader"] = lambda path: decode_jpeg(read_file(path), mode=ImageReadMode.RGB)
    crop = [v2.RandomResizedCrop(224, antialias=True), v2.RandomHorizontalFlip()]
    transform = v2.Compose([*first, *crop, *last, v2.Normalize(MEAN, STD)])
    return torchvision.datasets.ImageFolder(data, transform, **options)


def open_loader(options):
    """A function that makes the loader: what comes before it is not measured."""
    import torch

    common = {"batch_size": options.batch_size, "shuffle": True, "num_workers": options.workers}
    if options.name in ("pillow", "tensor"):
        data = data_set(options.data, options.name == "tensor")
        common |= {"persistent_workers": True, "drop_last": True}
        return lambda: torch.utils.data.DataLoader(data, **common)
    if options.name == "bothends":
        import bothends.torch

        data = data_set(options.data, False)
        return lambda: bothends.torch.DataLoader(data, drop_last=True, **common)
    import bothends

    settings = {"batch_size": options.batch_size, "workers": options.workers}
    return lambda: bothends.Loader(options.data, "imagenet-train", **settings)


def endless(loader):
    while True:
        yield from loader


def measure(options):
    make = open_loader(options)
    peak = Peak()
    peak.start()
    began = time.perf_counter()
    loader = make()
    batches = endless(loader)
    images, _ = next(batches)
    first_batch_s = time.perf_counter() - began
    shape, dtype = list(images.shape), str(images.dtype)
    for _ in range(WARM_UP_EPOCHS * len(loader)):
        images, _ = next(batches)
    n_images, cpu_before, busy_before = 0, cpu_seconds(), busy_seconds()
    began = time.perf_counter()
    # Whole epochs: their beginnings cost something, too.
    while time.perf_counter() - began < options.seconds:
        for _ in range(len(loader)):
            images, _ = next(batches)
            n_images += len(images)
    seconds = time.perf_counter() - began
    cpu, busy = cpu_seconds() - cpu_before, busy_seconds() - busy_before
    peak.over.set()
    return {
        "name": options.name,
        "images_per_s": n_images / seconds,
        "cpu_ms_per_image": cpu * 1e3 / n_images,
        "peak_pss_bytes": max(peak.bytes, pss_bytes()),
        "first_batch_s": first_batch_s,
        "others_busy": max(0.0, busy - cpu) / seconds,
        "batch": [shape, dtype],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = ["pillow", "tensor", "bothends", "bothends-planar"]
    parser.add_argument("name", choices=names)
    parser.add_argument("data")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=8.0)
    print(json.dumps(measure(parser.parse_args())), flush=True)
    # Workers that wait for work need not be waited for.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
