"""The data of the matrix: a few small photographs-to-be, each a class of its own."""

import numpy as np
from PIL import Image

# Neither 2 nor 3 ranks divide them, nor do whole batches.
N_TRAIN, N_VAL = 83, 53


def make(root):
    """`root`/train and `root`/val, a folder per image."""
    for split, n, seed in (("train", N_TRAIN, 1), ("val", N_VAL, 2)):
        random = np.random.default_rng(seed)
        for number in range(n):
            folder = root / split / f"class{number:03}"
            folder.mkdir(parents=True)
            # A few are PNGs, as in ImageNet a few are.
            name = "image.png" if number % 20 == 7 else "image.jpg"
            _picture(random).save(folder / name, quality=90)


def _picture(random):
    """Coloured waves with some noise, of a size of its own."""
    rows, columns = random.integers(66, 110, 2)
    y, x = np.mgrid[0:rows, 0:columns] / 100.0
    planes = []
    for _ in range(3):
        a, b, phase = random.uniform(2, 15, 2).tolist() + [random.uniform(0, 6)]
        planes.append(np.sin(a * x + b * y + phase))
    pixels = 128 + 90 * np.stack(planes, -1) + random.normal(0, 12, (rows, columns, 3))
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))
