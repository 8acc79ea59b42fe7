"""The loaders that are compared: one module each, with its settings and why, all at the same work.

A module has `opened(name, options)`, which imports what it needs and returns an `Opened`.
`options` has `data` (a folder of class folders), `workers` and `batch_size`. Batches are pairs
of images and labels, images float32 in planes, normalised, 224 x 224, whole batches only, in a
new random order every epoch, each for its receiver to keep unless the header says otherwise.
"""

import importlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

SIDE = 224
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
# Batches that are made ahead, where a loader asks for a number.
AHEAD = 2


class Opened(NamedTuple):
    """A loader that has been imported and told what to do."""

    # Gives batches without end. What it takes to the first one is measured.
    make: Callable[[], Iterator[tuple[Any, Any]]]
    version: str
    # Whether it smooths before it makes an image smaller, as Pillow does; it costs time.
    antialiases: bool
    # What a batch is an array of.
    arrays: str


# Name: the environment that it runs in (`requirements-….txt`), and its module.
LOADERS = {
    "pillow": ("torchvision", "pytorch"),
    "tensor": ("torchvision", "pytorch"),
    "dali": ("dali", "dali"),
    "spdl": ("spdl", "spdl"),
    "tfdata": ("tfdata", "tfdata"),
    "grain": ("grain", "grain"),
    "opencv": ("opencv", "opencv"),
    "bothends": ("torchvision", "ours"),
    "bothends-loader": ("torchvision", "ours"),
}


def opened(name, options):
    """Opens one by its name."""
    module = importlib.import_module(f"loaders.{LOADERS[name][1]}")
    return module.opened(name, options)


def files(data):
    """Paths and labels: a label is the number of a class folder."""
    classes = sorted(path for path in Path(data).iterdir() if path.is_dir())
    found = [
        (str(path), label)
        for label, folder in enumerate(classes)
        for path in sorted(folder.iterdir())
        if path.suffix.lower() in (".jpg", ".jpeg")
    ]
    if not found:
        raise SystemExit(f"error: no JPEG file in the class folders of {data}")
    return found


def endless(epochs):
    """All that an epoch gives, epoch after epoch."""
    while True:
        yield from epochs
