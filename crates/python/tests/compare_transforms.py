"""What tests of pixels share: images, transforms that leave nothing to chance, torchvision's
pixels of a given crop box, and how far two results are from each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
import torchvision.transforms as v1
from PIL import Image
from torchvision.transforms import InterpolationMode, v2
from torchvision.transforms import functional as F
from torchvision.transforms._presets import ImageClassification

BILINEAR = InterpolationMode.BILINEAR
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
SIZE = (40, 50)

Box = tuple[int, int, int, int]


def write_images(folder: Path, n_images: int = 4) -> list[Image.Image]:
    """Images of several sizes, noise on soft colours, in one class folder; as they are decoded."""
    rng = np.random.default_rng(7)
    (folder / "class").mkdir(parents=True)
    images = []
    for nth in range(n_images):
        height, width = 44 + 9 * nth, 71 - 6 * nth
        coarse = Image.fromarray(rng.integers(0, 256, (4, 5, 3), dtype=np.uint8))
        soft = np.asarray(coarse.resize((width, height), Image.Resampling.BICUBIC), dtype=int)
        noisy = (soft + rng.integers(-20, 21, soft.shape)).clip(0, 255).astype(np.uint8)
        path = folder / "class" / f"{nth}.{'png' if nth % 2 else 'jpg'}"
        Image.fromarray(noisy).save(path)
        with Image.open(path) as image:
            images.append(image.convert("RGB"))
    return images


def pixels_of_box(
    image: Image.Image,
    box: Box,
    size: tuple[int, int],
    interpolation: InterpolationMode = BILINEAR,
) -> torch.Tensor:
    """What torchvision makes of the box (top, left, height, width) of an image: u8, channels ×
    rows × columns."""
    return F.pil_to_tensor(F.resized_crop(image, *box, list(size), interpolation))


def views(result: Any) -> list[torch.Tensor]:
    """A transform's result as tensors, one for each view."""
    several = result if isinstance(result, (list, tuple)) else [result]
    return [F.pil_to_tensor(v).permute(1, 2, 0) if is_pil(v) else v for v in several]


def is_pil(value: Any) -> bool:
    return isinstance(value, Image.Image)


def furthest(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    """The largest difference of two values."""
    assert ours.shape == theirs.shape and ours.dtype == theirs.dtype
    return float((ours.double() - theirs.double()).abs().max())


def certain(v: Any) -> dict[str, tuple[list[Any], float]]:
    """Lists of transforms, v1 or v2, that do the same each time; and how far our values may be.

    Bytes may be 1 apart where docs/ops.md says so. Floats of v2's ToDtype are rounded otherwise.
    """
    cut, end = v.CenterCrop(SIZE), v.PILToTensor()
    floats = [v.ToTensor(), v.Normalize(MEAN, STD)]
    always = 1.0
    return {
        "resize": ([v.Resize(30), v.CenterCrop(24), end], 0),
        "resize bicubic": ([v.Resize((30, 20), 3), end], 0),
        # Pillow 13 goes along the columns first.
        "resize flat": ([v.Resize((12, 70)), end], 0),
        "resize flat bicubic": ([v.Resize((12, 70), 3), end], 0),
        "resize lanczos": ([v.Resize((30, 20), 1), end], 0),
        "resize box": ([v.Resize((12, 30), 4), end], 0),
        "resize hamming": ([v.Resize((60, 90), 5), end], 0),
        "resize nearest": ([v.Resize((30, 24), 0), end], 0),
        "resize max_size": ([v.Resize(30, max_size=33), v.CenterCrop(24), end], 0),
        "resize tensor": ([end, v.Resize(30), v.CenterCrop(24)], 1),
        "center_crop pads": ([v.CenterCrop((90, 30)), end], 0),
        "pad": ([v.Pad((1, 2, 3, 4), (5, 6, 7)), cut, end], 0),
        "pad reflect": ([v.Pad((1, 2, 3, 4), padding_mode="reflect"), v.CenterCrop(60), end], 0),
        "random_crop": ([cut, v.RandomCrop((46, 54), (1, 2, 3, 4), fill=9), end], 0),
        "random_crop symmetric": (
            [cut, v.RandomCrop((46, 54), (1, 2, 3, 4), padding_mode="symmetric"), end],
            0,
        ),
        "pad floats": ([cut, v.ToTensor(), v.Pad(2, fill=0.2), v.Normalize(MEAN, STD)], 0),
        "move normalised": ([cut, *floats, v.RandomHorizontalFlip(always), v.CenterCrop(20)], 0),
        "pad normalised": ([cut, *floats, v.Pad((1, 2), padding_mode="edge")], 0),
        "vertical_flip": ([cut, v.RandomVerticalFlip(always), end], 0),
        "grayscale": ([cut, v.Grayscale(), v.ToTensor(), v.Normalize([0.5], [0.25])], 0),
        "grayscale 3": ([cut, v.Grayscale(3), end], 0),
        "grey jitter": (
            [cut, v.Grayscale(), v.ColorJitter(contrast=(2, 2), hue=(0.2, 0.2)), end],
            0,
        ),
        "brightness": ([cut, v.ColorJitter((1.3, 1.3)), end], 0),
        "saturation": ([cut, v.ColorJitter(saturation=(1.3, 1.3)), end], 0),
        "hue tensor": ([cut, end, v.ColorJitter(hue=(0.3, 0.3))], 1),
        "contrast tensor": ([cut, end, v.ColorJitter(contrast=(0.3, 0.3))], 1),
        "blur": ([cut, v.GaussianBlur((5, 9), 1.5), end], 1),
        "sharpness": ([cut, v.RandomAdjustSharpness(2, always), end], 0),
        "autocontrast": ([cut, v.RandomAutocontrast(always), end], 0),
        "equalize": ([cut, v.RandomEqualize(always), end], 0),
        "tables": (
            [
                cut,
                v.RandomInvert(always),
                v.RandomPosterize(3, always),
                v.RandomSolarize(77.5, always),
                end,
            ],
            0,
        ),
        "rotation": (
            [cut, v.RandomRotation((30, 30), fill=(1, 2, 3), center=(10, 12)), end],
            0,
        ),
        "rotation expands": (
            [cut, v.RandomRotation((30, 30), expand=True), v.CenterCrop(60), end],
            0,
        ),
        "rotation bilinear": ([cut, v.RandomRotation((30, 30), BILINEAR), end], 1),
        "affine": (
            [
                cut,
                v.RandomAffine((9, 9), scale=(1.2, 1.2), shear=(5, 5, 3, 3), center=(3, 4)),
                end,
            ],
            0,
        ),
        "choice": (
            [v.RandomChoice([v.Compose([v.Resize(30), v.CenterCrop(20)])]), end],
            0,
        ),
        "order": ([cut, v.RandomOrder([v.RandomInvert(1.0), v.RandomVerticalFlip(1.0)]), end], 0),
        "apply": (
            [cut, v.RandomApply([v.RandomInvert(1.0), v.RandomVerticalFlip(1.0)], 1.0), end],
            0,
        ),
        "a PIL image at the end": ([cut], 0),
        "weights.transforms()": ([ImageClassification(crop_size=24, resize_size=30)], 0),
        "five_crop": ([cut, v.ToTensor(), v1.FiveCrop((20, 30))], 0),
        "ten_crop": ([cut, *floats, v1.TenCrop((20, 30), vertical_flip=True)], 0),
        "to_dtype": (
            [
                cut,
                v2.ToImage(),
                v2.ToDtype(torch.float32, scale=True),
                v2.Pad(2, fill=(0.2, 0.4, 1.0)),
                v2.Normalize(MEAN, STD),
            ],
            2e-6,
        ),
        "jpeg": ([cut, v2.JPEG(30), v2.ToImage()], 0),
    }
