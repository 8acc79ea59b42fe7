"""Google's Grain, which has no decoder of its own: OpenCV decodes and resizes.

Settings: as many read threads as workers (faster here than its worker processes, since OpenCV
lets go of Python's lock), two batches of samples ahead, batches collected in a thread of
Grain's own. It does not antialias.
"""

from importlib.metadata import version

import cv2
import grain
import numpy as np

from loaders import AHEAD, Opened, files
from loaders.pixels import PLANES, decoded, finish


class Files(grain.sources.RandomAccessDataSource):
    """Bytes and label by number."""

    def __init__(self, samples):
        self.samples = samples

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, number):
        path, label = self.samples[number]
        with open(path, "rb") as file:
            return file.read(), label


def sample(record):
    data, label = record
    out = np.empty(PLANES, np.float32)
    finish(decoded(data), out)
    return out, label


def opened(_name, options):
    samples = files(options.data)

    def make():
        data = grain.MapDataset.source(Files(samples)).seed(42).shuffle().repeat().map(sample)
        reading = grain.ReadOptions(
            num_threads=options.workers, prefetch_buffer_size=AHEAD * options.batch_size
        )
        batches = data.to_iter_dataset(reading).batch(options.batch_size, drop_remainder=True)
        return iter(grain.experimental.ThreadPrefetchIterDataset(batches, prefetch_buffer_size=AHEAD))

    return Opened(make, f"grain {version('grain')}, OpenCV {cv2.__version__}", False, "NumPy")
