"""NVIDIA DALI on the processor doing what `bothends run` does with imagenet-train.

    dali.py DATA THREADS IMAGES

Files are read, a random part of each is decoded and resized to 224 x 224 (bilinear with
antialiasing), and half of them are flipped; batches of 64 with 8-bit RGB, rows x columns x
channels. The parts are DALI's own draws from the same distribution. Measured over IMAGES
images after a warm-up; prints one JSON object.
"""

import json
import sys
import time

import nvidia.dali
from nvidia.dali import fn, pipeline_def, types

BATCH = 64
SIDE = 224


@pipeline_def(batch_size=BATCH, device_id=None, prefetch_queue_depth=2, seed=42)
def training(data):
    files, labels = fn.readers.file(file_root=data, random_shuffle=True)
    # The recipe's scale and ratio; everything else as DALI has it by default.
    images = fn.decoders.image_random_crop(
        files, output_type=types.RGB, random_area=[0.08, 1.0], random_aspect_ratio=[3 / 4, 4 / 3]
    )
    images = fn.resize(
        images, size=[SIDE, SIDE], interp_type=types.INTERP_LINEAR, antialias=True
    )
    return fn.flip(images, horizontal=fn.random.coin_flip()), labels


def main():
    data, n_threads, n_images = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    pipeline = training(data, num_threads=n_threads)
    pipeline.build()
    for _ in range(4):
        images, _ = pipeline.run()
    batch = images.as_array()
    assert batch.shape == (BATCH, SIDE, SIDE, 3) and batch.dtype == "uint8", batch.shape
    n_batches = max(1, round(n_images / BATCH))
    start, cpu = time.perf_counter(), time.process_time()
    for _ in range(n_batches):
        pipeline.run()
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    n_images = n_batches * BATCH
    print(json.dumps({
        "dali": nvidia.dali.__version__,
        "mean_value": float(batch.mean()),
        "images": n_images,
        "images_per_s": n_images / seconds,
        "cpu_us_per_image": cpu / n_images * 1e6,
    }))


if __name__ == "__main__":
    main()
