"""What is known of a sample between two transforms, and how a transform's parameters are read.

Anything that no op of bothends supports raises `Stays`, whose text says why. `ops` decides what a
transform becomes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import index
from struct import pack, unpack
from typing import Any

Op = dict[str, Any]
Size = tuple[int, int]


@dataclass(frozen=True)
class Sample:
    """What is known of a sample between two transforms.

    Attributes:
        values: "pil", a PIL image; "u8", a tensor of bytes; "unit", of floats from 0 to 1;
            "normal", of normalised floats; "numpy", an array of bytes, channels first.
        size: rows and columns, or None where they depend on the image.
        is_image: whether the tensor is a `tv_tensors.Image`.
        is_erased: whether normalised values have been erased, which recipes do at the feed.
        n_views: more than 1 after a transform that makes several images of one.
        is_list: whether those are a list rather than a tuple.
    """

    values: str = "pil"
    size: Size | None = None
    channels: int = 3
    is_image: bool = False
    is_erased: bool = False
    n_views: int = 1
    is_list: bool = False

    @property
    def is_float(self) -> bool:
        return self.values in ("unit", "normal")


@dataclass(frozen=True)
class Step:
    """What a transform became: ops before the cut, ops at the feed, and the sample after it."""

    sample: Sample
    ops: list[Op] = field(default_factory=list)
    feed: list[Op] = field(default_factory=list)
    note: str = ""


class Stays(Exception):
    """Why a transform stays in Python, and what can be done about it, if anything.

    Both are parts of a sentence: "it ..." and "put it ...".
    """

    def __init__(self, why: str, remedy: str = "") -> None:
        super().__init__(why)
        self.remedy = remedy


Translator = Callable[[Any, Sample], Step]


def is_v2(transform: Any) -> bool:
    classes = type(transform).__mro__
    return any(cls.__module__.startswith("torchvision.transforms.v2") for cls in classes)


# ---- parameters -----------------------------------------------------------------------------

POSITIVE = math.ulp(0.0)
MOST_SIDE = 16_384
_PILLOW = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box", 5: "hamming"}


# Ops whose pixels depend on the version of Pillow.
RESIZES = ("resize", "random_resized_crop")


def exact_version() -> int:
    """The recipe version whose `exact` numerics resize as the installed Pillow does.

    It is read when a transform is translated. Without Pillow there is no PIL image to equal.
    """
    try:
        import PIL
    except ImportError:
        return 1
    return 2 if int(PIL.__version__.split(".")[0]) >= 13 else 1


def make_op(name: str, **parameters: Any) -> Op:
    """An op as JSON, without parameters that are None."""
    return {"op": name, **{key: v for key, v in parameters.items() if v is not None}}


def within(name: str, value: Any, least: float, most: float) -> float:
    """`value`, if it is a number in this range, inclusive."""
    if not least <= float(value) <= most:
        raise Stays(f"{name} is {value}, which no op of bothends can have")
    return float(value)


def whole(name: str, value: Any, least: int, most: int) -> int:
    within(name, value, least, most)
    return index(value)


def bounds(name: str, value: Any, least: float, most: float) -> list[float]:
    low, high = (within(name, v, least, most) for v in value)
    if low > high:
        raise Stays(f"{name} is {value}, which goes down")
    return [low, high]


def probability(transform: Any) -> float:
    return within("p", transform.p, 0, 1)


def listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, Sequence) else [value]


def numbers(value: Any) -> list[float]:
    """One number or many, also of NumPy or torch, as a list."""
    if not hasattr(value, "tolist"):
        return [float(v) for v in listed(value)]
    # A float32 as it would be written, so that equal transforms give equal recipes.
    is_single = str(getattr(value, "dtype", "")).endswith("float32")
    return [_shortest(v) if is_single else float(v) for v in listed(value.tolist())]


def _shortest(value: float) -> float:
    """The number with the fewest digits that rounds to this float32."""
    if not math.isfinite(value):
        return value
    texts = (f"{value:.{digits}g}" for digits in range(1, 10))
    return next((float(text) for text in texts if _single(float(text)) == value), value)


def _single(value: float) -> float:
    try:
        return float(unpack("f", pack("f", value))[0])
    except OverflowError:
        return math.inf


def two_sides(size: Any) -> Size:
    """Rows and columns, from one number, [one], or [rows, columns]."""
    sides = listed(size)
    height, width = (whole("size", side, 1, MOST_SIDE) for side in (sides[0], sides[-1]))
    return height, width


def four_sides(padding: Any) -> list[int]:
    """[left, top, right, bottom], from the one, two or four numbers of `Pad`."""
    sides = [whole("padding", side, 0, MOST_SIDE) for side in listed(padding)]
    return sides * (4 // len(sides))


def filter_name(value: Any) -> str:
    """The name of an interpolation, from torchvision's enum, Pillow's number, or a string."""
    return _PILLOW[value] if isinstance(value, int) else str(getattr(value, "value", value))


def resize_filter(transform: Any, sample: Sample) -> str:
    """How an op that resizes interpolates."""
    name = filter_name(transform.interpolation)
    is_tensor = sample.values != "pil"
    antialias = transform.antialias
    if antialias is False or (antialias is None and is_tensor):
        why = f"antialias={antialias}, and bothends always resizes without aliasing"
        raise Stays(why, "give it antialias=True")
    if name.startswith("nearest") and is_tensor:
        why = f"{name} chooses other pixels on tensors than on PIL images, which bothends matches"
        raise Stays(why, "put it before the conversion to a tensor")
    return resizing_filter("nearest" if name == "nearest-exact" else name, sample)


_WARPING = ("nearest", "bilinear", "bicubic")
_OF_PIL_IMAGES = ("box", "hamming", "lanczos")


def resizing_filter(name: str, sample: Sample) -> str:
    """The interpolation of an op that resizes, if bothends has it."""
    if name in _OF_PIL_IMAGES and sample.values != "pil":
        why = f"torchvision has no {name} interpolation of tensors"
        raise Stays(why, "put it before the conversion to a tensor")
    if name not in (*_WARPING, *_OF_PIL_IMAGES):
        names = ", ".join((*_WARPING, *_OF_PIL_IMAGES))
        why = f"its interpolation is {name}; bothends has {names}"
        raise Stays(why, "give it interpolation=InterpolationMode.BICUBIC")
    return name


def warp_filter(transform: Any, sample: Sample) -> str:
    """How an op that turns or shears interpolates."""
    name = filter_name(transform.interpolation)
    if sample.values == "pil":
        return known_filter("nearest" if name == "nearest-exact" else name)
    if name not in ("nearest", "bilinear"):
        why = f"torchvision has no {name} interpolation of tensors here"
        raise Stays(why, "put it before the conversion to a tensor")
    return name


def known_filter(name: str) -> str:
    if name not in _WARPING:
        why = f"its interpolation is {name}; bothends has nearest, bilinear and bicubic here"
        raise Stays(why, "give it interpolation=InterpolationMode.BICUBIC")
    return name


def fill_bytes(fill: Any, sample: Sample) -> int | list[int]:
    """The fill around an image, as bytes."""
    if isinstance(fill, dict):
        fills = list(fill.values())
        if not fills or any(other != fills[0] for other in fills):
            raise Stays("its fill is different for each type")
        fill = fills[0]
    values = [byte_of(v, sample) for v in ([0.0] if fill is None else numbers(fill))]
    if len(values) not in (1, sample.channels):
        raise Stays(f"its fill has {len(values)} values and a sample {sample.channels} channels")
    return values[0] if len(set(values)) == 1 else values


def byte_of(value: float, sample: Sample) -> int:
    """The byte for a fill or an erased value."""
    if sample.values == "normal":
        raise Stays("it fills normalised values, which have no byte", "put it before Normalize")
    if sample.values == "pil":
        value = math.trunc(value)  # as torchvision does
    byte = value * 255 if sample.values == "unit" else value
    if not (0 <= byte <= 255 and byte == round(byte)):
        raise Stays(f"it fills with {value}, which is not a byte")
    return round(byte)


def needs_bytes(sample: Sample) -> None:
    if sample.is_float:
        why = "it would work on floats, but recipes work on bytes"
        raise Stays(why, "put it before ToTensor (or before ToDtype)")


def needs_order(sample: Sample) -> None:
    """Ops that move whole pixels commute with conversion and normalisation, but not with
    erasing."""
    if sample.is_erased:
        why = "it moves pixels after RandomErasing, which recipes do last"
        raise Stays(why, "put RandomErasing last")


def fits(crop: Size, size: Size | None) -> bool | None:
    """Whether a crop is inside an image; None if the image's size is unknown."""
    return None if size is None else crop[0] <= size[0] and crop[1] <= size[1]
