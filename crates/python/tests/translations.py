"""The table of translations: transforms of torchvision and the ops that they become."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import pytest
import torch
import torchvision.transforms as v1
from bothends._transforms import Translation, translate
from PIL import Image
from torchvision import tv_tensors
from torchvision.transforms import InterpolationMode, v2
from torchvision.transforms._presets import ImageClassification

SIZE = (40, 50)
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
NORMALIZE = {"op": "normalize", "mean": MEAN, "std": STD}
F32 = {"op": "to_dtype", "dtype": "f32", "scale": True}
NCHW = {"op": "layout", "layout": "nchw"}
FLIP = {"op": "random_horizontal_flip", "p": 0.5}
NEAREST, BILINEAR, BICUBIC = (
    InterpolationMode.NEAREST,
    InterpolationMode.BILINEAR,
    InterpolationMode.BICUBIC,
)

Make = Callable[[Any], Any]


def rrc(**changes: Any) -> dict[str, Any]:
    defaults = {"scale": [0.08, 1.0], "ratio": [3 / 4, 4 / 3], "interpolation": "bilinear"}
    return {"op": "random_resized_crop", "size": [24, 24], **defaults, **changes}


def resize(size: Any, **changes: Any) -> dict[str, Any]:
    return {"op": "resize", "size": size, "interpolation": "bilinear", **changes}


def crop(**padding: Any) -> dict[str, Any]:
    return {"op": "random_crop", "size": [32, 32], **padding}


def padded(padding: list[int], around: dict[str, Any], if_needed: bool = False) -> dict[str, Any]:
    return crop(padding=padding, pad_if_needed=if_needed, **around)


def rotation(**changes: Any) -> dict[str, Any]:
    defaults = {"degrees": [-30, 30], "interpolation": "nearest", "expand": False, "fill": 0}
    return {"op": "random_rotation", **defaults, **changes}


def affine(**changes: Any) -> dict[str, Any]:
    defaults = {"degrees": [-10, 10], "interpolation": "nearest", "fill": 0}
    return {"op": "random_affine", **defaults, **changes}


def policy(op: str, interpolation: str = "nearest", fill: Any = 0, **more: Any) -> dict[str, Any]:
    return {"op": op, "interpolation": interpolation, "fill": fill, **more}


def erasing(value: Any = 0, **changes: Any) -> dict[str, Any]:
    defaults = {"p": 0.5, "scale": [0.02, 0.33], "ratio": [0.3, 3.3]}
    return {"op": "random_erasing", **defaults, "value": value, **changes}


def jitter(**ranges: Any) -> dict[str, Any]:
    return {"op": "color_jitter", **ranges}


# On PIL images, of v1 and v2: how it is made, and the ops it becomes.
PIL: list[tuple[Make, list[dict[str, Any]]]] = [
    (lambda v: v.RandomResizedCrop(24), [rrc()]),
    (lambda v: v.RandomResizedCrop([24]), [rrc()]),
    (lambda v: v.RandomResizedCrop((24, 30)), [rrc(size=[24, 30])]),
    (
        lambda v: v.RandomResizedCrop(24, (0.2, 0.5), (1, 2), BICUBIC),
        [rrc(scale=[0.2, 0.5], ratio=[1, 2], interpolation="bicubic")],
    ),
    (lambda v: v.RandomResizedCrop(24, interpolation=3), [rrc(interpolation="bicubic")]),
    (
        lambda v: v.RandomResizedCrop(24, interpolation=Image.Resampling.NEAREST),
        [rrc(interpolation="nearest")],
    ),
    (
        lambda v: v.RandomResizedCrop(24, interpolation=InterpolationMode.NEAREST_EXACT),
        [rrc(interpolation="nearest")],
    ),
    (lambda v: v.Resize(30), [resize(30)]),
    (lambda v: v.Resize([30]), [resize(30)]),
    (lambda v: v.Resize((30, 20)), [resize([30, 20])]),
    (lambda v: v.Resize(30, antialias=None), [resize(30)]),
    (lambda v: v.Resize(30, max_size=35), [resize(30, max_size=35)]),
    (lambda v: v.Resize(30, NEAREST), [resize(30, interpolation="nearest")]),
    (lambda v: v.Resize(30, InterpolationMode.LANCZOS), [resize(30, interpolation="lanczos")]),
    (lambda v: v.Resize(30, 4), [resize(30, interpolation="box")]),
    (lambda v: v.RandomResizedCrop(24, interpolation=5), [rrc(interpolation="hamming")]),
    (lambda v: v.CenterCrop(32), [{"op": "center_crop", "size": [32, 32]}]),
    (lambda v: v.CenterCrop((32, 60)), [{"op": "center_crop", "size": [32, 60]}]),
    (lambda v: v.RandomCrop(32), [crop()]),
    (lambda v: v.RandomCrop((32, 20)), [crop(size=[32, 20])]),
    (lambda v: v.RandomCrop(32, padding=0), [crop()]),
    (lambda v: v.RandomCrop(32, padding=4), [padded([4, 4, 4, 4], {"fill": 0})]),
    (lambda v: v.RandomCrop(32, padding=[4]), [padded([4, 4, 4, 4], {"fill": 0})]),
    (lambda v: v.RandomCrop(32, padding=(1, 2)), [padded([1, 2, 1, 2], {"fill": 0})]),
    (lambda v: v.RandomCrop(32, padding=(1, 2, 3, 4)), [padded([1, 2, 3, 4], {"fill": 0})]),
    (
        lambda v: v.RandomCrop(32, padding=4, fill=(1, 2, 3)),
        [padded([4, 4, 4, 4], {"fill": [1, 2, 3]})],
    ),
    (
        lambda v: v.RandomCrop(32, padding=4, padding_mode="reflect"),
        [padded([4, 4, 4, 4], {"padding_mode": "reflect"})],
    ),
    (
        lambda v: v.RandomCrop(32, pad_if_needed=True, fill=7),
        [padded([0, 0, 0, 0], {"fill": 7}, if_needed=True)],
    ),
    (lambda v: v.Pad(3), [{"op": "pad", "padding": [3, 3, 3, 3], "fill": 0}]),
    (lambda v: v.Pad((1, 2), 9), [{"op": "pad", "padding": [1, 2, 1, 2], "fill": 9}]),
    (
        lambda v: v.Pad([1, 2, 3, 4], (5, 6, 7)),
        [{"op": "pad", "padding": [1, 2, 3, 4], "fill": [5, 6, 7]}],
    ),
    (
        lambda v: v.Pad(3, padding_mode="symmetric"),
        [{"op": "pad", "padding": [3, 3, 3, 3], "padding_mode": "symmetric"}],
    ),
    # Pillow has whole values, and torchvision cuts fractions off.
    (
        lambda v: v.Pad(3, (123.675, 116.28, 103.53)),
        [{"op": "pad", "padding": [3, 3, 3, 3], "fill": [123, 116, 103]}],
    ),
    (lambda v: v.RandomHorizontalFlip(), [FLIP]),
    (lambda v: v.RandomVerticalFlip(0.2), [{"op": "random_vertical_flip", "p": 0.2}]),
    (lambda v: v.RandomRotation(30), [rotation()]),
    (lambda v: v.RandomRotation((-5, 90)), [rotation(degrees=[-5, 90])]),
    (
        lambda v: v.RandomRotation(30, BILINEAR, center=(3, 4), fill=(1, 2, 3)),
        [rotation(interpolation="bilinear", center=[3, 4], fill=[1, 2, 3])],
    ),
    (lambda v: v.RandomAffine(10), [affine()]),
    (
        lambda v: v.RandomAffine((-3, 4), (0.1, 0.2), (0.8, 1.2), 5, BICUBIC, 9, (1, 2)),
        [
            affine(
                degrees=[-3, 4],
                translate=[0.1, 0.2],
                scale=[0.8, 1.2],
                shear=[-5, 5],
                interpolation="bicubic",
                fill=9,
                center=[1, 2],
            )
        ],
    ),
    (lambda v: v.RandomAffine(10, shear=[-1, 2]), [affine(shear=[-1, 2])]),
    (lambda v: v.RandomAffine(10, shear=[-1, 2, -3, 4]), [affine(shear=[-1, 2, -3, 4])]),
    (
        lambda v: v.RandomPerspective(),
        [policy("random_perspective", "bilinear", distortion_scale=0.5, p=0.5)],
    ),
    (
        lambda v: v.RandomPerspective(0.3, 0.7, NEAREST, 5),
        [policy("random_perspective", fill=5, distortion_scale=0.3, p=0.7)],
    ),
    (lambda v: v.ColorJitter(0.4), [jitter(brightness=[0.6, 1.4])]),
    (
        lambda v: v.ColorJitter(2, (0.5, 0.75), 0.25, 0.125),
        [
            jitter(
                brightness=[0, 3],
                contrast=[0.5, 0.75],
                saturation=[0.75, 1.25],
                hue=[-0.125, 0.125],
            )
        ],
    ),
    (lambda v: v.ColorJitter(hue=(-0.25, 0.5)), [jitter(hue=[-0.25, 0.5])]),
    (lambda v: v.ColorJitter(), []),
    (lambda v: v.Grayscale(), [{"op": "grayscale", "num_output_channels": 1}]),
    (lambda v: v.Grayscale(3), [{"op": "grayscale", "num_output_channels": 3}]),
    (
        lambda v: v.Compose([v.Grayscale(), v.Grayscale(), v.RandomGrayscale()]),
        [
            {"op": "grayscale", "num_output_channels": 1},
            {"op": "random_grayscale", "p": 0.1},
        ],
    ),
    (lambda v: v.RandomGrayscale(), [{"op": "random_grayscale", "p": 0.1}]),
    (
        lambda v: v.GaussianBlur(5),
        [{"op": "gaussian_blur", "kernel_size": [5, 5], "sigma": [0.1, 2.0]}],
    ),
    (
        lambda v: v.GaussianBlur((5, 9), 1.5),
        [{"op": "gaussian_blur", "kernel_size": [5, 9], "sigma": [1.5, 1.5]}],
    ),
    (
        lambda v: v.RandomAdjustSharpness(2),
        [{"op": "random_adjust_sharpness", "sharpness_factor": 2, "p": 0.5}],
    ),
    (lambda v: v.RandomAutocontrast(0.1), [{"op": "random_autocontrast", "p": 0.1}]),
    (lambda v: v.RandomEqualize(0.1), [{"op": "random_equalize", "p": 0.1}]),
    (lambda v: v.RandomInvert(0.1), [{"op": "random_invert", "p": 0.1}]),
    (lambda v: v.RandomPosterize(4), [{"op": "random_posterize", "bits": 4, "p": 0.5}]),
    (lambda v: v.RandomSolarize(128), [{"op": "random_solarize", "threshold": 128, "p": 0.5}]),
    (
        lambda v: v.TrivialAugmentWide(),
        [policy("trivial_augment_wide", num_magnitude_bins=31)],
    ),
    (
        lambda v: v.TrivialAugmentWide(10, BILINEAR, [1, 2, 3]),
        [policy("trivial_augment_wide", "bilinear", [1, 2, 3], num_magnitude_bins=10)],
    ),
    (
        lambda v: v.RandAugment(),
        [policy("rand_augment", num_ops=2, magnitude=9, num_magnitude_bins=31)],
    ),
    (
        lambda v: v.RandAugment(3, 5, 11, BICUBIC, [128]),
        [policy("rand_augment", "bicubic", 128, num_ops=3, magnitude=5, num_magnitude_bins=11)],
    ),
    (lambda v: v.AutoAugment(), [policy("auto_augment", policy="imagenet")]),
    (
        lambda v: v.AutoAugment(v1.AutoAugmentPolicy.CIFAR10, BILINEAR),
        [policy("auto_augment", "bilinear", policy="cifar10")],
    ),
    (
        lambda v: v.AutoAugment(v1.AutoAugmentPolicy.SVHN),
        [policy("auto_augment", policy="svhn")],
    ),
    (
        lambda v: v.AugMix(),
        [policy("augmix", "bilinear", severity=3, mixture_width=3, alpha=1, all_ops=True)],
    ),
    (
        lambda v: v.AugMix(5, 2, 4, 0.5, False, NEAREST, [7]),
        [
            policy(
                "augmix",
                fill=7,
                severity=5,
                mixture_width=2,
                chain_depth=4,
                alpha=0.5,
                all_ops=False,
            )
        ],
    ),
    (
        lambda v: v.RandomApply([v.RandomHorizontalFlip(), v.RandomInvert(0.1)], 0.3),
        [
            {
                "op": "random_apply",
                "p": 0.3,
                "transforms": [FLIP, {"op": "random_invert", "p": 0.1}],
            }
        ],
    ),
    (
        lambda v: v.RandomApply(torch.nn.ModuleList([v.RandomHorizontalFlip()])),
        [{"op": "random_apply", "p": 0.5, "transforms": [FLIP]}],
    ),
    (lambda v: v.RandomApply([v.RandomHorizontalFlip()], 0), []),
    (
        lambda v: v.RandomChoice([v.RandomResizedCrop(24), v.Resize((24, 24))]),
        [{"op": "random_choice", "transforms": [rrc(), resize([24, 24])]}],
    ),
    (
        lambda v: v.RandomChoice([v.ColorJitter(), v.RandomHorizontalFlip()], [0.25, 0.75]),
        [
            {
                "op": "random_choice",
                "p": [0.25, 0.75],
                "transforms": [{"op": "random_horizontal_flip", "p": 0.0}, FLIP],
            }
        ],
    ),
    (
        lambda v: v.RandomChoice([v.Compose([v.Resize(30), v.CenterCrop(24)]), v.RandomCrop(24)]),
        [
            {
                "op": "random_choice",
                "transforms": [
                    {
                        "op": "random_apply",
                        "p": 1.0,
                        "transforms": [resize(30), {"op": "center_crop", "size": [24, 24]}],
                    },
                    crop(size=[24, 24]),
                ],
            }
        ],
    ),
    (
        # What is never done need not be known.
        lambda v: v.RandomChoice([v.Lambda(abs), v.RandomHorizontalFlip()], [0.0, 1.0]),
        [{"op": "random_choice", "transforms": [FLIP]}],
    ),
    (
        lambda v: v.RandomOrder([v.RandomHorizontalFlip(), v.RandomInvert()]),
        [{"op": "random_order", "transforms": [FLIP, {"op": "random_invert", "p": 0.5}]}],
    ),
    (
        lambda v: v.Compose([v.Compose([v.RandomHorizontalFlip()]), v.RandomCrop(32)]),
        [FLIP, crop()],
    ),
    (lambda v: torch.nn.Sequential(v.RandomHorizontalFlip()), [FLIP]),
]

# On PIL images, of v2 alone.
PIL_V2: list[tuple[Make, list[dict[str, Any]]]] = [
    (lambda v: v.Resize(30, "bicubic"), [resize(30, interpolation="bicubic")]),
    (lambda v: v.JPEG(50), [{"op": "jpeg", "quality": [50, 50]}]),
    (lambda v: v.JPEG((20, 90)), [{"op": "jpeg", "quality": [20, 90]}]),
    (lambda v: v.RGB(), []),
    (lambda v: v.Identity(), []),
    (lambda v: v.ToPureTensor(), []),
    (lambda v: v.ToDtype(torch.float32, scale=True), []),
    (lambda v: v.ConvertImageDtype(), []),
    (lambda v: v.RandomErasing(), [erasing()]),
    (
        lambda v: v.RandomErasing(0.25, (0.1, 0.2), (1, 2), 9),
        [erasing(9, p=0.25, scale=[0.1, 0.2], ratio=[1, 2])],
    ),
    (lambda v: v.RandomErasing(value=(1, 2, 3)), [erasing([1, 2, 3])]),
    (lambda v: v.Pad(3, {"others": 4}), [{"op": "pad", "padding": [3, 3, 3, 3], "fill": 4}]),
    (lambda v: v.Pad(3, None), [{"op": "pad", "padding": [3, 3, 3, 3], "fill": 0}]),
]

# Behind a conversion: the list, ops before the cut, ops at the feed.
BEHIND: list[tuple[list[Any], list[dict[str, Any]], list[dict[str, Any]]]] = [
    ([v1.PILToTensor()], [], [NCHW]),
    ([v2.PILToTensor()], [], [NCHW]),
    ([v2.ToImage()], [], [NCHW]),
    ([v2.ToImage(), v2.ToPureTensor(), v2.ToImage(), v2.PILToTensor()], [], [NCHW]),
    ([v1.ToTensor()], [], [F32, NCHW]),
    ([v2.ToImage(), v2.ToDtype(torch.float32, scale=True)], [], [F32, NCHW]),
    ([v2.ToImage(), v2.ToDtype(torch.uint8), v2.ConvertImageDtype()], [], [F32, NCHW]),
    ([v1.PILToTensor(), v1.ConvertImageDtype(torch.float32)], [], [F32, NCHW]),
    (
        [v2.ToImage(), v2.ToDtype({tv_tensors.Image: torch.float32, "others": None}, True)],
        [],
        [F32, NCHW],
    ),
    ([v2.PILToTensor(), v2.ToDtype({torch.Tensor: torch.float32}, True)], [], [F32, NCHW]),
    ([v2.PILToTensor(), v2.ToDtype({"others": None})], [], [NCHW]),
    ([v1.ToTensor(), v2.ToDtype(torch.float32)], [], [F32, NCHW]),
    ([v1.ToTensor(), v1.Normalize(MEAN, STD)], [], [NORMALIZE, F32, NCHW]),
    ([v1.ToTensor(), v2.Normalize(tuple(MEAN), STD, inplace=True)], [], [NORMALIZE, F32, NCHW]),
    (
        [v1.ToTensor(), v1.Normalize(torch.tensor([0.5]), 0.25)],
        [],
        [{"op": "normalize", "mean": [0.5] * 3, "std": [0.25] * 3}, F32, NCHW],
    ),
    (
        [v1.Grayscale(), v1.ToTensor(), v1.Normalize(0.5, 0.25)],
        [{"op": "grayscale", "num_output_channels": 1}],
        [{"op": "normalize", "mean": [0.5], "std": [0.25]}, F32, NCHW],
    ),
    # Bytes in tensors: the same ops.
    ([v2.ToImage(), v2.Resize(30)], [resize(30)], [NCHW]),
    ([v1.PILToTensor(), v1.RandomResizedCrop(24)], [rrc()], [NCHW]),
    ([v2.ToImage(), v2.ColorJitter(0.5)], [jitter(brightness=[0.5, 1.5])], [NCHW]),
    ([v2.ToImage(), v2.RandomRotation(30, BILINEAR)], [rotation(interpolation="bilinear")], [NCHW]),
    ([v2.ToImage(), v2.RandomErasing(value=7)], [erasing(7)], [NCHW]),
    ([v1.PILToTensor(), v1.RandomErasing(value=[7])], [erasing(7)], [NCHW]),
    # Floats: what moves whole pixels, and what erases, with the byte that a value is.
    ([v1.ToTensor(), v1.RandomHorizontalFlip()], [FLIP], [F32, NCHW]),
    ([v1.ToTensor(), v1.RandomCrop(32, 4, fill=0.2)], [padded([4] * 4, {"fill": 51})], [F32, NCHW]),
    ([v1.ToTensor(), v1.CenterCrop(60)], [{"op": "center_crop", "size": [60, 60]}], [F32, NCHW]),
    ([v1.ToTensor(), v1.RandomErasing(value=1)], [erasing(255)], [F32, NCHW]),
    (
        [v1.ToTensor(), v1.RandomApply([v1.RandomHorizontalFlip()])],
        [{"op": "random_apply", "p": 0.5, "transforms": [FLIP]}],
        [F32, NCHW],
    ),
    (
        [v1.ToTensor(), v1.Normalize(MEAN, STD), v1.RandomHorizontalFlip()],
        [FLIP],
        [NORMALIZE, F32, NCHW],
    ),
    (
        [v1.ToTensor(), v1.Normalize(MEAN, STD), v1.CenterCrop(30)],
        [{"op": "center_crop", "size": [30, 30]}],
        [NORMALIZE, F32, NCHW],
    ),
    (
        [v1.ToTensor(), v1.Normalize(MEAN, STD), v1.RandomCrop(32, 4, padding_mode="reflect")],
        [padded([4] * 4, {"padding_mode": "reflect"})],
        [NORMALIZE, F32, NCHW],
    ),
    # Erasing of normalised values, at the feed.
    (
        [v1.ToTensor(), v1.Normalize(MEAN, STD), v1.RandomErasing()],
        [],
        [NORMALIZE, F32, NCHW, erasing()],
    ),
    (
        [v1.ToTensor(), v1.Normalize(MEAN, STD), v1.RandomErasing(value="random")],
        [],
        [NORMALIZE, F32, NCHW, erasing("random")],
    ),
    (
        [v1.ToTensor(), v2.Normalize(MEAN, STD), v2.RandomErasing(value="random")],
        [],
        [NORMALIZE, F32, NCHW, erasing("random")],
    ),
    (
        [v1.ToTensor(), v1.Normalize(MEAN, STD), v1.RandomErasing(value=(-1, 0, 1.5))],
        [],
        [NORMALIZE, F32, NCHW, erasing([-1, 0, 1.5])],
    ),
    # Views, where nothing comes behind them.
    ([v1.ToTensor(), v1.FiveCrop(24)], [{"op": "five_crop", "size": [24, 24]}], [F32, NCHW]),
    (
        [v2.ToImage(), v2.TenCrop((24, 20), vertical_flip=True)],
        [{"op": "ten_crop", "size": [24, 20], "vertical_flip": True}],
        [NCHW],
    ),
    (
        [ImageClassification(crop_size=24, resize_size=30)],
        [resize(30), {"op": "center_crop", "size": [24, 24]}],
        [NORMALIZE, F32, NCHW],
    ),
    (
        [v2.ToImage(), ImageClassification(crop_size=24, resize_size=30)],
        [resize(30), {"op": "center_crop", "size": [24, 24]}],
        [NORMALIZE, F32, NCHW],
    ),
]


# ---- what torchvision's reference training of classification does to a sample ----------------

POLICIES = (None, "ra", "ta_wide", "augmix", "imagenet", "cifar10")


def _floats(v: Any) -> list[Any]:
    floats = v2.ToDtype(torch.float, scale=True)
    made = floats if v is v2 else v1.ConvertImageDtype(torch.float)
    return [made, v.Normalize(mean=tuple(MEAN), std=tuple(STD))]


def _augmented(v: Any, policy: str | None, interpolation: Any) -> list[Any]:
    if policy is None:
        return []
    if policy == "ra":
        return [v.RandAugment(interpolation=interpolation, magnitude=9)]
    if policy == "ta_wide":
        return [v.TrivialAugmentWide(interpolation=interpolation)]
    if policy == "augmix":
        return [v.AugMix(interpolation=interpolation, severity=3)]
    return [v.AutoAugment(policy=v1.AutoAugmentPolicy(policy), interpolation=interpolation)]


def preset_train(
    v: Any, backend: str, policy: str | None, erase: float, interpolation: Any
) -> Callable[[], Any]:
    def make() -> Any:
        steps: list[Any] = [v.PILToTensor()] if backend == "tensor" else []
        steps += [v.RandomResizedCrop(176, interpolation=interpolation, antialias=True)]
        steps += [v.RandomHorizontalFlip(0.5), *_augmented(v, policy, interpolation)]
        steps += [v.PILToTensor()] if backend == "pil" else []
        steps += [*_floats(v), *([v.RandomErasing(p=erase)] if erase > 0 else [])]
        return v.Compose(steps + ([v2.ToPureTensor()] if v is v2 else []))

    return make


def preset_eval(v: Any, backend: str, interpolation: Any) -> Callable[[], Any]:
    def make() -> Any:
        steps: list[Any] = [v.PILToTensor()] if backend == "tensor" else []
        steps += [v.Resize(232, interpolation=interpolation, antialias=True), v.CenterCrop(224)]
        steps += [v.PILToTensor()] if backend == "pil" else []
        return v.Compose([*steps, *_floats(v), *([v2.ToPureTensor()] if v is v2 else [])])

    return make


def _presets() -> Iterator[tuple[str, Callable[[], Any]]]:
    versions, filters = (("v1", v1), ("v2", v2)), (BILINEAR, BICUBIC)
    ways = product(versions, ("pil", "tensor"), filters)
    for (version, v), backend, interpolation in ways:
        end = f"{version} {backend} {interpolation.value}"
        yield f"eval {end}", preset_eval(v, backend, interpolation)
        for policy, erase in product(POLICIES, (0.0, 0.1)):
            # torchvision warps tensors by nearest and bilinear alone.
            if backend == "tensor" and policy is not None and interpolation is BICUBIC:
                continue
            if policy == "augmix" and interpolation is BICUBIC:
                continue
            name = f"train {policy} {'erasing' if erase else 'whole'} {end}"
            yield name, preset_train(v, backend, policy, erase, interpolation)


PRESETS = dict(_presets())


def pil_cases() -> Iterator[Any]:
    for version, table in (("v1", PIL), ("v2", PIL), ("v2", PIL_V2)):
        for make, ops in table:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # v2 calls parts of itself deprecated
                transform = make({"v1": v1, "v2": v2}[version])
            name = " ".join(str(transform).split())[:60]
            yield pytest.param(transform, ops, id=f"{version} {name}")


def wholly(transform: Any, **options: Any) -> Translation:
    """What becomes of a transform of which nothing stays."""
    made = translate(transform, **{"image_size": SIZE, **options})
    assert made.warning is None, made.words
    assert (made.rest, made.rest_input, made.has_fixed_size) == (None, "none", True)
    assert not any("stays" in line for line in made.words)
    return made
