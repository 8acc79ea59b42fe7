"""Every class of timm's transforms that has an op in recipes, with how it becomes one.

Reading order: `TIMM`, at the end, is the table; it holds whatever `timm.data.create_transform`
puts together with torchvision's transforms. Functions are as in `ops`. timm is not
imported.
"""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from typing import Any

from .parameters import (
    POSITIVE,
    Op,
    Sample,
    Size,
    Stays,
    Step,
    Translator,
    bounds,
    fill_bytes,
    filter_name,
    fits,
    listed,
    make_op,
    needs_bytes,
    needs_order,
    resizing_filter,
    two_sides,
    whole,
    within,
)

# ---- geometry -------------------------------------------------------------------------------


def _crop_and_interpolation(t: Any, sample: Sample) -> Step:
    needs_bytes(sample)
    size = two_sides(t.size)
    keys: Op = {
        "size": list(size),
        "scale": bounds("scale", t.scale, POSITIVE, 1),
        "ratio": bounds("ratio", t.ratio, POSITIVE, 1e300),
    }
    names = _filters(t, sample)
    ops = [make_op("random_resized_crop", **keys, interpolation=name) for name in names]
    return Step(replace(sample, size=size), [_one_of(ops)], note=_drawn(ops))


def _filters(t: Any, sample: Sample) -> list[str]:
    """The names of the interpolations from which one is drawn for each image."""
    drawn = t.interpolation if isinstance(t.interpolation, (list, tuple)) else [t.interpolation]
    names = [resizing_filter(filter_name(value), sample) for value in drawn]
    if "nearest" in names and sample.values != "pil":
        raise Stays("nearest chooses other pixels on tensors than on PIL images, which bothends matches")
    return names[:1] if len(set(names)) == 1 else names


def _one_of(ops: list[Op]) -> Op:
    return ops[0] if len(ops) == 1 else make_op("random_choice", transforms=ops)


def _drawn(ops: list[Op]) -> str:
    names = " or ".join(op["interpolation"] for op in ops)
    return f"{ops[0]['op']}, {names}" if len(ops) > 1 else ""


_NO_MARGIN = "bothends has no op whose size depends on the image's in this way"


def _resize_keep_ratio(t: Any, sample: Sample) -> Step:
    needs_bytes(sample)
    if t.random_scale_prob > 0 or t.random_aspect_prob > 0:
        raise Stays("it scales at random, and bothends has no op for that")
    if sample.size is None:
        remedy = "use Resize with one number, or with both sides (crop_mode 'center' or 'squash')"
        raise Stays(f"it rounds sides; {_NO_MARGIN}", remedy)
    ratios = [own / side for own, side in zip(sample.size, two_sides(t.size), strict=True)]
    longest = within("longest", t.longest, 0, 1)
    ratio = max(ratios) * longest + min(ratios) * (1.0 - longest)
    height, width = two_sides([round(own / ratio) for own in sample.size])
    size = [height, width]
    ops = [make_op("resize", size=size, interpolation=name) for name in _filters(t, sample)]
    return Step(replace(sample, size=(height, width)), [_one_of(ops)], note=_drawn(ops))


def _center_crop_or_pad(t: Any, sample: Sample) -> Step:
    needs_order(sample)
    crop = two_sides(t.size)
    op = make_op("center_crop", size=list(crop))
    after = replace(sample, size=crop)
    if fits(crop, sample.size):
        return Step(after, [op])
    if t.padding_mode == "constant" and fill_bytes(t.fill, sample) == 0:
        return Step(after, [op])
    if sample.size is None:
        raise Stays(f"it may pad with something other than zeros; {_NO_MARGIN}")
    padding = _margins(crop, sample.size)
    around: Op = {"padding_mode": t.padding_mode}
    if t.padding_mode == "constant":
        around = {"fill": fill_bytes(t.fill, sample)}
    return Step(after, [make_op("pad", padding=padding, **around), op])


def _margins(crop: Size, size: Size) -> list[int]:
    """[left, top, right, bottom] of the margins that a centred crop lacks; an odd pixel goes to the
    right or bottom."""
    missing = [max(0, side - own) for side, own in zip(crop, size, strict=True)]
    return [missing[1] // 2, missing[0] // 2, (missing[1] + 1) // 2, (missing[0] + 1) // 2]


def _random_crop_or_pad(t: Any, sample: Sample) -> Step:
    needs_order(sample)
    crop = two_sides(t.size)
    if not fits(crop, sample.size):
        raise Stays(f"it may pad at random positions; {_NO_MARGIN}", "use RandomCrop")
    return Step(replace(sample, size=crop), [make_op("random_crop", size=list(crop))])


def _trim_border(t: Any, sample: Sample) -> Step:
    needs_order(sample)
    border = whole("border_size", t.border_size, 0, 8192)
    if sample.size is None:
        raise Stays(f"it cuts off borders; {_NO_MARGIN}")
    size = (sample.size[0] - 2 * border, sample.size[1] - 2 * border)
    if min(size) < 1:
        raise Stays("nothing is left of the image")
    return Step(replace(sample, size=size), [make_op("center_crop", size=list(size))])


# ---- policies -------------------------------------------------------------------------------

# What `rand-m9` and `rand-m9-inc1` draw from, each once, in any order.
_DRAWN = {
    "AutoContrast": None,
    "Equalize": None,
    "Invert": None,
    "Rotate": "rotate",
    "Posterize": "posterize",
    "Solarize": "solarize",
    "SolarizeAdd": "solarize_add",
    "Color": "enhance",
    "Contrast": "enhance",
    "Brightness": "enhance",
    "Sharpness": "enhance",
    "ShearX": "shear",
    "ShearY": "shear",
    "TranslateXRel": "translate_rel",
    "TranslateYRel": "translate_rel",
}
_GROWS = {"Posterize", "Solarize", "Color", "Contrast", "Brightness", "Sharpness"}
_RAND = "'rand-m9-mstd0.5-inc1'"
_LIKE_TORCHVISION = f"use auto_augment={_RAND}, or torchvision.transforms.v2.RandAugment"


def _rand_augment(t: Any, sample: Sample) -> Step:
    if sample.values != "pil":
        raise Stays("it takes PIL images", "put it before the conversion to a tensor")
    if t.choice_weights is not None:
        raise Stays("it draws ops by weight, and bothends' op draws all with equal probability")
    ops = list(t.ops)
    increasing = _draws_from(ops)
    first = ops[0]
    if any(_strength(op) != _strength(first) for op in ops):
        raise Stays("its ops differ in magnitude or probability")
    magnitude, deviation = _magnitude(first)
    op = make_op(
        "timm_rand_augment",
        num_layers=whole("num_layers", t.num_layers, 1, 16),
        magnitude=magnitude,
        magnitude_std=deviation,
        increasing=increasing,
        p=within("prob", first.prob, 0, 1),
        interpolation=_warp_filter(first.kwargs["resample"]),
        fill=fill_bytes(first.kwargs["fillcolor"], sample),
    )
    return Step(sample, [op])


def _draws_from(ops: list[Any]) -> bool:
    """Whether these are the ops that increase with the magnitude, rather than the plain ones.

    Raises:
        Stays: they are neither.
    """
    names = sorted(op.name for op in ops)
    grows = [f"{name}Increasing" if name in _GROWS else name for name in _DRAWN]
    increasing = names == sorted(grows)
    if not increasing and names != sorted(_DRAWN):
        why = "it draws from ops other than timm's fifteen (`rand-...` without `t...`)"
        raise Stays(why, _LIKE_TORCHVISION)
    for op in ops:
        module = sys.modules.get(type(op).__module__)
        is_timms = type(op).__module__ == _AUTO and type(op).__qualname__ == "AugmentOp"
        if not is_timms or vars(module).get("NAME_TO_OP", {}).get(op.name) is not op.aug_fn:
            raise Stays(f"its op {op.name} is not timm's own")
        if _level(op.level_fn) != _level_of(op.name):
            raise Stays(f"the magnitude of its op {op.name} is not timm's own")
    return increasing


def _level(function: Any) -> str | None:
    """The name of the function that turns a magnitude into a parameter."""
    if function is None:
        return None
    return function.__name__ if function.__module__ == _AUTO else "another"


def _level_of(name: str) -> str | None:
    stem = name.removesuffix("Increasing")
    kind = _DRAWN[stem]
    if kind is None:
        return None
    return f"_{kind}_increasing_level_to_arg" if stem != name else f"_{kind}_level_to_arg"


def _strength(op: Any) -> tuple[Any, ...]:
    return (op.prob, op.magnitude, op.magnitude_std, op.magnitude_max, op.kwargs, op.hparams)


_MOST_STRENGTH = 10


def _magnitude(op: Any) -> tuple[float, float]:
    """The magnitude of one of timm's ops, and its standard deviation."""
    if (op.magnitude_max or _MOST_STRENGTH) != _MOST_STRENGTH:
        raise Stays(f"its largest magnitude (`mmax`) is {op.magnitude_max}; bothends has 10")
    if op.hparams.get("translate_pct", 0.45) != 0.45:
        raise Stays("it translates by a fraction of the image other than 0.45")
    if op.magnitude_std == math.inf:
        raise Stays("it draws magnitudes uniformly (`mstd` above 100) rather than normally")
    deviation = within("magnitude_std", max(0, op.magnitude_std), 0, 100)
    magnitude = float(op.magnitude)
    if deviation == 0:  # timm clamps what it has drawn
        magnitude = min(magnitude, _MOST_STRENGTH)
    return within("magnitude", magnitude, 0, _MOST_STRENGTH), deviation


def _warp_filter(resample: Any) -> str:
    """How timm's ops interpolate: `random` draws bilinear or bicubic for each."""
    names = sorted(filter_name(value) for value in listed(resample))
    if names == ["bicubic", "bilinear"]:
        return "random"
    if len(names) == 1 and names[0] in ("bicubic", "bilinear"):
        return names[0]
    raise Stays(f"its interpolation is {' or '.join(names)}; bothends has bilinear and bicubic")


def _has_none(what: str) -> Translator:
    def translator(t: Any, sample: Sample) -> Step:
        why = f"timm's {what} has magnitudes of its own, for which bothends has no op"
        raise Stays(why, f"use torchvision.transforms.v2.{what}, or auto_augment={_RAND}")

    return translator


# ---- conversion -----------------------------------------------------------------------------


def _maybe_to_tensor(t: Any, sample: Sample) -> Step:
    return _from_pil(sample, "unit", "f32 from 0 to 1, nchw")


def _maybe_pil_to_tensor(t: Any, sample: Sample) -> Step:
    return _from_pil(sample, "u8", "u8, nchw")


def _from_pil(sample: Sample, values: str, note: str) -> Step:
    if sample.values != "pil":
        return Step(sample)
    return Step(replace(sample, values=values), note=note)


def _to_tensor(t: Any, sample: Sample) -> Step:
    if sample.values != "pil":
        raise Stays("timm refuses tensors here")
    if str(t.dtype) != "torch.uint8":
        why = f"it makes {t.dtype} from 0 to 255 of bytes; bothends gives floats from 0 to 1"
        raise Stays(why, "use MaybeToTensor, or torchvision's ToTensor")
    return _from_pil(sample, "u8", "u8, nchw")


def _to_numpy(t: Any, sample: Sample) -> Step:
    if sample.values != "pil":
        raise Stays("it comes after tensors")
    return _from_pil(sample, "numpy", "u8, nchw")


# ---- erasing --------------------------------------------------------------------------------


def _random_erasing(t: Any, sample: Sample) -> Step:
    if sample.values == "pil":
        raise Stays("timm refuses PIL images here", "put it after the conversion to a tensor")
    if (t.min_count, t.max_count) != (1, 1):
        why = f"it erases up to {t.max_count} rectangles; bothends' op erases one"
        raise Stays(why, "give it re_count=1")
    if t.rand_color:
        why = "it erases with one random colour for a rectangle (`rand`)"
        raise Stays(why, "give it re_mode='pixel', or 'const'")
    if t.per_pixel and sample.values != "normal":
        why = "it erases with random values, which recipes do after Normalize"
        raise Stays(why, "put it after Normalize")
    op = make_op(
        "random_erasing",
        p=within("probability", t.probability, 0, 1),
        scale=bounds("min_area and max_area", (t.min_area, t.max_area), 0, 1),
        ratio=_ratio(t.log_aspect_ratio),
        value="random" if t.per_pixel else 0,
    )
    if sample.values == "normal":
        return Step(replace(sample, is_erased=True), feed=[op])
    return Step(sample, [op])


def _ratio(logarithms: tuple[float, float]) -> list[float]:
    """The ratios whose logarithms timm keeps; it sets the second to 1 ÷ the first."""
    low, high = (_power(value) for value in logarithms)
    if math.log(1 / low) == logarithms[1]:
        high = 1 / low
    return bounds("ratio", (low, high), POSITIVE, 1e300)


def _power(logarithm: float) -> float:
    """The number with the fewest digits that has this logarithm."""
    near = math.exp(logarithm)
    texts = (f"{near:.{digits}g}" for digits in range(1, 18))
    return next((float(text) for text in texts if math.log(float(text)) == logarithm), near)


# ---- the table ------------------------------------------------------------------------------

_CLASSES = "timm.data.transforms"
_AUTO = "timm.data.auto_augment"

# By module and name.
TIMM: dict[tuple[str, str], Translator] = {
    (_CLASSES, "RandomResizedCropAndInterpolation"): _crop_and_interpolation,
    (_CLASSES, "ResizeKeepRatio"): _resize_keep_ratio,
    (_CLASSES, "CenterCropOrPad"): _center_crop_or_pad,
    (_CLASSES, "RandomCropOrPad"): _random_crop_or_pad,
    (_CLASSES, "TrimBorder"): _trim_border,
    (_CLASSES, "MaybeToTensor"): _maybe_to_tensor,
    (_CLASSES, "MaybePILToTensor"): _maybe_pil_to_tensor,
    (_CLASSES, "ToTensor"): _to_tensor,
    (_CLASSES, "ToNumpy"): _to_numpy,
    (_AUTO, "RandAugment"): _rand_augment,
    (_AUTO, "AutoAugment"): _has_none("AutoAugment"),
    (_AUTO, "AugMixAugment"): _has_none("AugMix"),
    ("timm.data.random_erasing", "RandomErasing"): _random_erasing,
}
