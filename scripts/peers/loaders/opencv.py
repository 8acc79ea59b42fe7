"""A loader as one writes it by hand: a pool of threads round OpenCV.

Settings: as many threads as workers; OpenCV itself uses none; tasks of four images, straight
into the batch; two batches ahead. It does not antialias.
"""

import random
from collections import deque
from concurrent.futures import ThreadPoolExecutor

import cv2
import numpy as np

from loaders import AHEAD, Opened, files
from loaders.pixels import PLANES, decoded, finish

TASK = 4


def load(samples, images):
    for (path, _), out in zip(samples, images, strict=True):
        with open(path, "rb") as file:
            finish(decoded(file.read()), out)


def shuffled(samples):
    while True:
        yield from random.sample(samples, len(samples))


def opened(_name, options):
    samples = files(options.data)

    def make():
        order, pool = shuffled(samples), ThreadPoolExecutor(options.workers)

        def begin():
            batch = [next(order) for _ in range(options.batch_size)]
            images = np.empty((len(batch), *PLANES), np.float32)
            parts = [slice(at, at + TASK) for at in range(0, len(batch), TASK)]
            tasks = [pool.submit(load, batch[part], images[part]) for part in parts]
            return images, np.array([label for _, label in batch]), tasks

        under_way = deque(begin() for _ in range(1 + AHEAD))
        while True:
            images, labels, tasks = under_way.popleft()
            for task in tasks:
                task.result()
            under_way.append(begin())
            yield images, labels

    return Opened(make, f"OpenCV {cv2.__version__}", False, "NumPy")
