"""Meta's SPDL: a pipeline of threads.

Settings: a task makes a whole batch (the least overhead of what can be set up with it), as
many tasks at once as workers, batches in the order they are done; simplejpeg (libjpeg-turbo) decodes and OpenCV resizes,
which is about twice as fast as SPDL's own FFmpeg decoder. It does not antialias.
"""

import random
from importlib.metadata import version

import cv2
import numpy as np
import simplejpeg
from spdl.pipeline import PipelineBuilder

from loaders import AHEAD, Opened, files
from loaders.pixels import PLANES, finish


def load(samples):
    """A batch of files."""
    images = np.empty((len(samples), *PLANES), np.float32)
    for (path, _), out in zip(samples, images, strict=True):
        with open(path, "rb") as file:
            finish(simplejpeg.decode_jpeg(file.read(), "RGB"), out)
    return images, np.array([label for _, label in samples])


def batches_of(samples, size):
    """Lists of samples, in a new order every epoch, without end."""
    left = []
    while True:
        if len(left) < size:
            left += random.sample(samples, len(samples))
        yield left[:size]
        del left[:size]


def opened(_name, options):
    samples = files(options.data)

    def make():
        builder = PipelineBuilder().add_source(batches_of(samples, options.batch_size))
        builder = builder.pipe(load, concurrency=options.workers).add_sink(AHEAD)
        pipeline = builder.build(num_threads=options.workers, max_failures=0)
        with pipeline.auto_stop():
            yield from pipeline.get_iterator()

    versions = f"spdl {version('spdl')}, simplejpeg {version('simplejpeg')}, OpenCV {cv2.__version__}"
    return Opened(make, versions, False, "NumPy")
