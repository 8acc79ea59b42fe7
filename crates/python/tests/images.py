"""Images for tests: soft colours with noise, all different."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
from PIL import Image


def photo(seed: int, height: int, width: int) -> Image.Image:
    rng = np.random.default_rng(seed)
    coarse = Image.fromarray(rng.integers(0, 256, (5, 6, 3), dtype=np.uint8))
    soft = np.asarray(coarse.resize((width, height), Image.Resampling.BICUBIC), dtype=int)
    noisy = (soft + rng.integers(-12, 13, soft.shape)).clip(0, 255)
    return Image.fromarray(noisy.astype(np.uint8))


def write_photos(folder: Path, n_images: int, n_classes: int, side: int = 240) -> None:
    """JPEGs in class folders, all of other sizes."""
    for n in range(n_images):
        place = folder / f"class{n % n_classes}" / f"{n:03}.jpg"
        place.parent.mkdir(parents=True, exist_ok=True)
        photo(n, side + n % 7, side + n % 11).save(place, quality=90)


def write_cifar10(root: Path, per_batch: int = 12) -> None:
    """CIFAR-10's folder as torchvision downloads it, with few records."""
    folder = root / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    rng = np.random.default_rng(3)
    for name in [*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"]:
        batch = {
            "batch_label": name,
            "labels": [int(label) for label in rng.integers(0, 10, per_batch)],
            "data": rng.integers(0, 256, (per_batch, 3072), dtype=np.uint8),
            "filenames": [f"{n}.png" for n in range(per_batch)],
        }
        (folder / name).write_bytes(pickle.dumps(batch, protocol=3))
    names = "airplane automobile bird cat deer dog frog horse ship truck".split()
    meta = {"label_names": names, "num_cases_per_batch": per_batch, "num_vis": 3072}
    (folder / "batches.meta").write_bytes(pickle.dumps(meta, protocol=3))
