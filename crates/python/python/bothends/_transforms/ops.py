"""Every class of torchvision's transforms that has an op in recipes, with how it becomes one.

Reading order: `TRANSLATORS`, at the end, is the table; above it stands one short function for
each class or family. A function takes the transform and what is known of the sample before it, and
returns ops and what is known after them, or raises `Stays`. Transforms made of transforms are in
`_transforms`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from .parameters import (
    MOST_SIDE,
    POSITIVE,
    Op,
    Sample,
    Size,
    Stays,
    Step,
    Translator,
    bounds,
    byte_of,
    fill_bytes,
    fits,
    four_sides,
    is_v2,
    listed,
    make_op,
    needs_bytes,
    needs_order,
    numbers,
    probability,
    resize_filter,
    two_sides,
    warp_filter,
    whole,
    within,
)

# ---- geometry -------------------------------------------------------------------------------


def _random_resized_crop(t: Any, sample: Sample) -> Step:
    needs_bytes(sample)
    size = two_sides(t.size)
    op = make_op(
        "random_resized_crop",
        size=list(size),
        scale=bounds("scale", t.scale, POSITIVE, 1),
        ratio=bounds("ratio", t.ratio, POSITIVE, 1e300),
        interpolation=resize_filter(t, sample),
    )
    return Step(replace(sample, size=size), [op])


def _resize(t: Any, sample: Sample) -> Step:
    needs_bytes(sample)
    if t.size is None:
        why = "its size is None, so max_size sets the longer side; an op sets the shorter side"
        raise Stays(why, "give it the shorter side, or both")
    interpolation = resize_filter(t, sample)
    height, width = two_sides(t.size)
    if len(listed(t.size)) == 2:
        if t.max_size is not None:
            raise Stays("it has both sides and max_size, which torchvision refuses")
        op = make_op("resize", size=[height, width], interpolation=interpolation)
        return Step(replace(sample, size=(height, width)), [op])
    longest = None
    if t.max_size is not None:
        longest = whole("max_size", t.max_size, height + 1, MOST_SIDE)
    op = make_op("resize", size=height, max_size=longest, interpolation=interpolation)
    size = None if sample.size is None else _resized(sample.size, height, longest)
    return Step(replace(sample, size=size), [op])


def _resized(size: Size, side: int, longest: int | None) -> Size:
    """The size of an image whose shorter side becomes `side` and whose longer side is at most
    `longest`."""
    short, long = side, side * max(size) // min(size)
    if longest is not None and long > longest:
        short, long = longest * short // long, longest
    return (long, short) if size[1] <= size[0] else (short, long)


def _center_crop(t: Any, sample: Sample) -> Step:
    needs_order(sample)
    size = two_sides(t.size)
    if sample.values == "normal" and not fits(size, sample.size):
        why = "it may put zeros among normalised values, which have no byte"
        raise Stays(why, "put it before Normalize")
    return Step(replace(sample, size=size), [make_op("center_crop", size=list(size))])


def _random_crop(t: Any, sample: Sample) -> Step:
    needs_order(sample)
    size = two_sides(t.size)
    if is_v2(t) and t.padding is not None:
        left, right, top, bottom = t.padding  # v2 keeps them in this order
        padding = four_sides([left, top, right, bottom])
    else:
        padding = four_sides(t.padding or 0)
    if not t.pad_if_needed and fits(size, _padded(sample.size, padding)) is False:
        raise Stays("its crop is larger than the image")
    keys: Op = {}
    if any(padding) or t.pad_if_needed:
        keys = dict(padding=padding, pad_if_needed=bool(t.pad_if_needed), **_around(t, sample))
    mirrors = keys.get("padding_mode") in ("reflect", "symmetric")
    if mirrors and any(padding) and t.pad_if_needed and not is_v2(t):
        why = "it pads twice with mirror images of mirror images"
        raise Stays(why, "use the class of torchvision.transforms.v2")
    op = make_op("random_crop", size=list(size), **keys)
    return Step(replace(sample, size=size), [op])


def _pad(t: Any, sample: Sample) -> Step:
    needs_order(sample)
    padding = four_sides(t.padding)
    op = make_op("pad", padding=padding, **_around(t, sample))
    return Step(replace(sample, size=_padded(sample.size, padding)), [op])


def _padded(size: Size | None, padding: list[int]) -> Size | None:
    left, top, right, bottom = padding
    return None if size is None else (size[0] + top + bottom, size[1] + left + right)


def _around(t: Any, sample: Sample) -> Op:
    if t.padding_mode != "constant":
        return {"padding_mode": t.padding_mode}
    return {"fill": fill_bytes(t.fill, sample)}


def _flip(name: str) -> Translator:
    def translator(t: Any, sample: Sample) -> Step:
        needs_order(sample)
        return Step(sample, [make_op(name, p=probability(t))])

    return translator


def _crops(name: str, n_views: int) -> Translator:
    def translator(t: Any, sample: Sample) -> Step:
        needs_order(sample)
        if sample.values == "pil":
            why = "it makes a tuple of PIL images"
            raise Stays(why, "put it last, after the conversion to a tensor")
        size = two_sides(t.size)
        if fits(size, sample.size) is False:
            raise Stays("its crop is larger than the image")
        vertical_flip = True if getattr(t, "vertical_flip", False) else None
        op = make_op(name, size=list(size), vertical_flip=vertical_flip)
        return Step(replace(sample, size=size, n_views=n_views), [op], note=f"{n_views} views")

    return translator


_EDGE = "torchvision blends the edge of a tensor with the fill; bothends does not"
_MOST_DEGREES = 36_000


def _warp(t: Any, sample: Sample) -> tuple[Op, str]:
    """Parameters shared by all ops that move pixels, and what to report."""
    needs_bytes(sample)
    keys: Op = {"interpolation": warp_filter(t, sample), "fill": fill_bytes(t.fill, sample)}
    is_blended = sample.values != "pil" and keys["interpolation"] == "bilinear"
    return keys, _EDGE if is_blended else ""


def _center(t: Any) -> list[float] | None:
    return None if t.center is None else [within("center", c, -1e6, 1e6) for c in t.center]


def _random_rotation(t: Any, sample: Sample) -> Step:
    keys, note = _warp(t, sample)
    if t.expand and t.center is not None:
        raise Stays("it expands around a centre other than the middle")
    degrees = bounds("degrees", t.degrees, -_MOST_DEGREES, _MOST_DEGREES)
    op = make_op(
        "random_rotation", degrees=degrees, expand=bool(t.expand), center=_center(t), **keys
    )
    return Step(replace(sample, size=None if t.expand else sample.size), [op], note=note)


def _random_affine(t: Any, sample: Sample) -> Step:
    keys, note = _warp(t, sample)
    translate = shear = None
    if t.translate is not None:
        translate = [within("translate", share, 0, 1) for share in t.translate]
    if t.shear is not None:
        ends = [float(v) for v in t.shear]
        pairs = zip(ends[::2], ends[1::2], strict=True)
        shear = [v for pair in pairs for v in bounds("shear", pair, -89, 89)]
    op = make_op(
        "random_affine",
        degrees=bounds("degrees", t.degrees, -_MOST_DEGREES, _MOST_DEGREES),
        translate=translate,
        scale=None if t.scale is None else bounds("scale", t.scale, 1e-3, 1e3),
        shear=shear,
        center=_center(t),
        **keys,
    )
    return Step(sample, [op], note=note)


def _random_perspective(t: Any, sample: Sample) -> Step:
    keys, note = _warp(t, sample)
    scale = within("distortion_scale", t.distortion_scale, 0, 1)
    op = make_op("random_perspective", distortion_scale=scale, p=probability(t), **keys)
    return Step(sample, [op], note=note)


# ---- colour ---------------------------------------------------------------------------------


def _color_jitter(t: Any, sample: Sample) -> Step:
    needs_bytes(sample)
    names = ("brightness", "contrast", "saturation")
    factors = {name: getattr(t, name) for name in names if getattr(t, name) is not None}
    ranges = {name: bounds(name, factor, 0, 1e6) for name, factor in factors.items()}
    hue = None if t.hue is None else bounds("hue", t.hue, -0.5, 0.5)
    if not ranges and hue is None:
        return Step(sample)
    is_other = hue is not None and sample.values == "pil"
    note = "hue as torchvision has it on tensors, up to 7 of 255 from Pillow's" if is_other else ""
    return Step(sample, [make_op("color_jitter", **ranges, hue=hue)], note=note)


def _grayscale(t: Any, sample: Sample) -> Step:
    needs_bytes(sample)
    channels = whole("num_output_channels", t.num_output_channels, 1, 3)
    if sample.channels == channels == 1:
        return Step(sample)
    if channels == 2 or channels > sample.channels:
        raise Stays(f"it makes {channels} channels of {sample.channels}")
    op = make_op("grayscale", num_output_channels=channels)
    return Step(replace(sample, channels=channels), [op])


def _rgb(t: Any, sample: Sample) -> Step:
    if sample.channels != 3:
        raise Stays(f"it makes 3 channels of {sample.channels}")
    return Step(sample)


def _gaussian_blur(t: Any, sample: Sample) -> Step:
    needs_bytes(sample)
    kernel = [whole("kernel_size", k, 1, 255) for k in t.kernel_size]
    op = make_op("gaussian_blur", kernel_size=kernel, sigma=bounds("sigma", t.sigma, POSITIVE, 1e3))
    return Step(sample, [op])


def _jpeg(t: Any, sample: Sample) -> Step:
    needs_bytes(sample)
    quality = [whole("quality", q, 1, 100) for q in t.quality]
    return Step(sample, [make_op("jpeg", quality=quality)])


def _chance(name: str, **limits: tuple[float, float]) -> Translator:
    """An op that is done with probability p, and its other parameters with their limits."""

    def translator(t: Any, sample: Sample) -> Step:
        needs_bytes(sample)
        keys = {key: within(key, getattr(t, key), *ends) for key, ends in limits.items()}
        return Step(sample, [make_op(name, **keys, p=probability(t))])

    return translator


def _random_posterize(t: Any, sample: Sample) -> Step:
    needs_bytes(sample)
    bits = whole("bits", t.bits, 1, 8)
    return Step(sample, [make_op("random_posterize", bits=bits, p=probability(t))])


def _random_erasing(t: Any, sample: Sample) -> Step:
    if sample.values == "pil" and not is_v2(t):
        raise Stays("torchvision's v1 refuses PIL images")
    op = make_op(
        "random_erasing",
        p=probability(t),
        scale=bounds("scale", t.scale, 0, 1),
        ratio=bounds("ratio", t.ratio, POSITIVE, 1e300),
        value=_erased(t.value, sample),
    )
    if sample.values == "normal":
        return Step(replace(sample, is_erased=True), feed=[op])
    return Step(sample, [op])


def _erased(value: Any, sample: Sample) -> Any:
    """The fill of an erased rectangle: normalised values, or bytes."""
    if value is None or value == "random":
        if sample.values != "normal":
            why = "it erases with random values, which recipes do after Normalize"
            raise Stays(why, "put it after Normalize")
        return "random"
    values = numbers(value)
    if len(values) not in (1, sample.channels):
        raise Stays(f"it has {len(values)} values and a sample {sample.channels} channels")
    if sample.values != "normal":
        values = [byte_of(v, sample) for v in values]
    elif not all(map(math.isfinite, values)):
        raise Stays("its value is not finite")
    return values[0] if len(values) == 1 else values


# ---- policies -------------------------------------------------------------------------------

_Keys = Callable[[Any], Op]


def _policy(name: str, keys: _Keys) -> Translator:
    def translator(t: Any, sample: Sample) -> Step:
        # AugMix converts a PIL image to a tensor and works on that.
        is_mix = name == "augmix" and sample.values == "pil"
        shared, note = _warp(t, replace(sample, values="u8") if is_mix else sample)
        return Step(sample, [make_op(name, **keys(t), **shared)], note=note)

    return translator


def _bins(t: Any) -> int:
    return whole("num_magnitude_bins", t.num_magnitude_bins, 2, 1000)


def _rand_augment(t: Any) -> Op:
    return {
        "num_ops": whole("num_ops", t.num_ops, 1, 16),
        "magnitude": whole("magnitude", t.magnitude, 0, _bins(t) - 1),
        "num_magnitude_bins": _bins(t),
    }


def _auto_augment(t: Any) -> Op:
    policy = str(t.policy.value)
    if policy not in ("imagenet", "cifar10", "svhn"):
        raise Stays(f"its policy is {policy}")
    return {"policy": policy}


def _augmix(t: Any) -> Op:
    depth = t.chain_depth
    return {
        "severity": whole("severity", t.severity, 1, 10),
        "mixture_width": whole("mixture_width", t.mixture_width, 1, 16),
        "chain_depth": whole("chain_depth", depth, 1, 16) if depth > 0 else None,
        "alpha": within("alpha", t.alpha, 1e-3, 1e3),
        "all_ops": bool(t.all_ops),
    }


# ---- conversion -----------------------------------------------------------------------------


def _nothing(t: Any, sample: Sample) -> Step:
    return Step(sample)


def _to_tensor(t: Any, sample: Sample) -> Step:
    return _from_pil(t, sample, "unit", "f32 from 0 to 1, nchw")


def _pil_to_tensor(t: Any, sample: Sample) -> Step:
    return _from_pil(t, sample, "u8", "u8, nchw")


def _from_pil(t: Any, sample: Sample, values: str, note: str) -> Step:
    if sample.values == "pil":
        return Step(replace(sample, values=values), note=note)
    if not is_v2(t):
        raise Stays("torchvision's v1 refuses tensors here")
    return Step(sample)


def _to_image(t: Any, sample: Sample) -> Step:
    if sample.values == "pil":
        return Step(replace(sample, values="u8", is_image=True), note="u8, nchw")
    return Step(replace(sample, is_image=True))


def _to_pure_tensor(t: Any, sample: Sample) -> Step:
    return Step(replace(sample, is_image=False))


_AS_IT_IS = "nothing: torchvision leaves PIL images as they are"


def _to_dtype(t: Any, sample: Sample) -> Step:
    if sample.values == "pil":
        return Step(sample, note=_AS_IT_IS)
    return _cast(_dtype_for(t.dtype, sample), t.scale, sample)


def _convert_dtype(t: Any, sample: Sample) -> Step:
    if sample.values == "pil":
        if is_v2(t):
            return Step(sample, note=_AS_IT_IS)
        raise Stays("torchvision's v1 refuses PIL images")
    return _cast(t.dtype, True, sample)


def _dtype_for(dtype: Any, sample: Sample) -> Any:
    """The type for such a tensor, from a single type or a dictionary of types."""
    if not isinstance(dtype, dict):
        return dtype
    wanted = ("torchvision", "Image") if sample.is_image else ("torch", "Tensor")
    for key, value in dtype.items():
        if isinstance(key, type) and (key.__module__.split(".")[0], key.__name__) == wanted:
            return value
    if "others" not in dtype:
        raise Stays("it has no type for images, which torchvision refuses")
    return dtype["others"]


def _cast(dtype: Any, scale: Any, sample: Sample) -> Step:
    own = "torch.float32" if sample.is_float else "torch.uint8"
    if dtype is None or str(dtype) == own:
        return Step(sample)
    if str(dtype) == "torch.float32":
        if scale:
            return Step(replace(sample, values="unit"), note="f32 from 0 to 1")
        why = "without scale it gives floats from 0 to 255; bothends gives 0 to 1"
        raise Stays(why, "give it scale=True")
    why = f"it makes {dtype} of {own}; bothends gives bytes, and float32 made of them"
    output = {"torch.bfloat16": "bf16", "torch.float16": "f16"}.get(str(dtype))
    if output is not None:
        raise Stays(why, f'convert to float32 there, and give the loader output="{output}"')
    raise Stays(why, "convert to float32 there, and the batch to a different type later")


def _normalize(t: Any, sample: Sample) -> Step:
    if sample.values == "normal":
        raise Stays("it normalises a second time", "make one Normalize of the two")
    if sample.values != "unit":
        why = "it comes before the conversion to floats, which torchvision refuses"
        raise Stays(why, "put ToTensor, or ToImage and ToDtype(scale=True), before it")
    mean = [within("mean", m, -1e30, 1e30) for m in _per_channel(t.mean, sample.channels)]
    std = [within("std", s, 1e-30, 1e30) for s in _per_channel(t.std, sample.channels)]
    op = make_op("normalize", mean=mean, std=std)
    return Step(replace(sample, values="normal"), feed=[op])


def _per_channel(value: Any, channels: int) -> list[float]:
    values = numbers(value)
    values = values * channels if len(values) == 1 else values
    if len(values) != channels:
        raise Stays(f"it has {len(values)} values and a sample {channels} channels")
    return values


@dataclass(frozen=True)
class _Resizing:
    """The parameters of a Resize or CenterCrop inside another transform's code."""

    size: Any
    interpolation: Any = None
    antialias: Any = None
    max_size: Any = None


def _image_classification(t: Any, sample: Sample) -> Step:
    """The result of `weights.transforms()`: a whole evaluation in one transform."""
    first = _resize(_Resizing(t.resize_size, t.interpolation, t.antialias), sample)
    second = _center_crop(_Resizing(t.crop_size), first.sample)
    last = _normalize(t, replace(second.sample, values="unit"))
    return Step(last.sample, first.ops + second.ops, last.feed, note="f32, nchw")


# ---- the table ------------------------------------------------------------------------------

TRANSLATORS: dict[str, Translator] = {
    # geometry
    "RandomResizedCrop": _random_resized_crop,
    "Resize": _resize,
    "CenterCrop": _center_crop,
    "RandomCrop": _random_crop,
    "Pad": _pad,
    "RandomHorizontalFlip": _flip("random_horizontal_flip"),
    "RandomVerticalFlip": _flip("random_vertical_flip"),
    "RandomRotation": _random_rotation,
    "RandomAffine": _random_affine,
    "RandomPerspective": _random_perspective,
    "FiveCrop": _crops("five_crop", 5),
    "TenCrop": _crops("ten_crop", 10),
    # colour
    "ColorJitter": _color_jitter,
    "Grayscale": _grayscale,
    "RandomGrayscale": _chance("random_grayscale"),
    "RGB": _rgb,
    "GaussianBlur": _gaussian_blur,
    "RandomAdjustSharpness": _chance("random_adjust_sharpness", sharpness_factor=(0, 1e6)),
    "RandomAutocontrast": _chance("random_autocontrast"),
    "RandomEqualize": _chance("random_equalize"),
    "RandomInvert": _chance("random_invert"),
    "RandomPosterize": _random_posterize,
    "RandomSolarize": _chance("random_solarize", threshold=(0, 255)),
    "JPEG": _jpeg,
    "RandomErasing": _random_erasing,
    # policies
    "AutoAugment": _policy("auto_augment", _auto_augment),
    "RandAugment": _policy("rand_augment", _rand_augment),
    "TrivialAugmentWide": _policy(
        "trivial_augment_wide", lambda t: {"num_magnitude_bins": _bins(t)}
    ),
    "AugMix": _policy("augmix", _augmix),
    # conversion
    "Identity": _nothing,
    "ToTensor": _to_tensor,
    "PILToTensor": _pil_to_tensor,
    "ToImage": _to_image,
    "ToPureTensor": _to_pure_tensor,
    "ToDtype": _to_dtype,
    "ConvertImageDtype": _convert_dtype,
    "ConvertDtype": _convert_dtype,
    "Normalize": _normalize,
    "ImageClassification": _image_classification,
}
