"""NVIDIA DALI on the processor (`device_id=None`): its own recipe for ImageNet.

Settings: `decoders.image_random_crop`, which decodes only what the box needs, then resize, and
one op that mirrors, normalises and lays out in planes; as many threads as workers; two batches
ahead. It antialiases. A batch is DALI's own memory and is valid until the next is asked for.
"""

import numpy as np
import nvidia.dali
from nvidia.dali import fn, pipeline_def, types

from loaders import AHEAD, MEAN, SIDE, STD, Opened


@pipeline_def
def training(data):
    jpegs, labels = fn.readers.file(file_root=data, random_shuffle=True, name="reader")
    images = fn.decoders.image_random_crop(
        jpegs,
        output_type=types.RGB,
        random_area=[0.08, 1.0],
        random_aspect_ratio=[3 / 4, 4 / 3],
        num_attempts=10,
    )
    images = fn.resize(
        images, size=[SIDE, SIDE], interp_type=types.INTERP_LINEAR, antialias=True
    )
    images = fn.crop_mirror_normalize(
        images,
        mirror=fn.random.coin_flip(),
        dtype=types.FLOAT,
        output_layout="CHW",
        mean=[255 * mean for mean in MEAN],
        std=[255 * std for std in STD],
    )
    return images, labels


def opened(_name, options):
    settings = {"batch_size": options.batch_size, "num_threads": options.workers}

    def make():
        pipeline = training(
            options.data, device_id=None, prefetch_queue_depth=AHEAD, seed=42, **settings
        )
        pipeline.build()
        while True:
            images, labels = pipeline.run()
            yield np.asarray(images.as_tensor()), labels

    return Opened(make, f"nvidia-dali {nvidia.dali.__version__}", True, "NumPy")
