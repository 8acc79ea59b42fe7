"""Classes that training scripts copy from each other become recipes, by their code; and what only
looks like one of them stays in Python.

Without torchvision everything here is skipped.
"""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("torchvision", reason="torchvision is not installed")

import torchvision.transforms as v1
from bothends._transforms import translate
from PIL import Image, ImageFilter, ImageOps
from torchvision.transforms import v2

from script_classes import (
    Blur,
    BoxBlur,
    CallsItself,
    Chained,
    Converts,
    Counts,
    Decorated,
    Deep,
    Described,
    Grey,
    HigherSolarization,
    Kept,
    Lazy,
    Many,
    Method,
    Module,
    ModuleOfModules,
    MultiCrop,
    Named,
    NamedBlur,
    Pads,
    Posterization,
    Preset,
    RangeBlur,
    RarerBlur,
    Renamed,
    Rotates,
    Skips,
    Solarization,
    Starred,
    Swapped,
    SwappedBlur,
    ToGrey,
    Twice,
    TwoOfOne,
    TwoOfOneListed,
    TwoOfOneTuple,
    TwoWays,
    Watched,
    WithTarget,
)
from translations import F32, FLIP, MEAN, NCHW, NORMALIZE, SIZE, STD, erasing, rrc, wholly

TENSOR = [v1.ToTensor(), v1.Normalize(MEAN, STD)]


def usual() -> Any:
    return v1.Compose([v1.RandomResizedCrop(24), v1.RandomHorizontalFlip(), *TENSOR])


USUAL = [{"op": "decode"}, rrc(), FLIP, NORMALIZE, F32, NCHW]


# ---- classes that hold one transform --------------------------------------------------------


HOLDERS = [Preset, Described, Named, Module, ModuleOfModules, Converts]


@pytest.mark.parametrize("holder", HOLDERS)
def test_what_only_holds_a_transform_is_looked_into(holder: Any) -> None:
    assert wholly(holder(usual()), image_size=None).recipe["ops"] == USUAL
    assert wholly(Preset(holder(usual()))).recipe["ops"] == USUAL
    assert wholly(v1.Compose([holder(usual())])).recipe["ops"] == USUAL


def test_positional_only_is_another_signature() -> None:
    assert translate(Renamed(usual())).rest is not None


def test_words_are_of_the_transforms_inside() -> None:
    names = [line.split(" ")[0] for line in translate(Preset(usual())).words]
    assert names == ["RandomResizedCrop", "RandomHorizontalFlip", "ToTensor", "Normalize"]


def test_what_a_holder_holds_may_stay_by_itself() -> None:
    made = translate(Preset(v1.Compose([v1.RandomResizedCrop(24), abs, v1.ToTensor()])))
    assert made.recipe["ops"] == [{"op": "decode"}, rrc()]
    assert made.words[1].startswith("abs stays in Python")


# ---- what only looks like one ---------------------------------------------------------------


class Other(Preset):
    def __call__(self, img: Any) -> Any:
        return usual()(img)


class Computed:
    @property
    def transforms(self) -> Any:
        return usual()

    def __call__(self, img: Any) -> Any:
        return self.transforms(img)


class OfTheClass:
    transforms = usual()

    def __call__(self, img: Any) -> Any:
        return self.transforms(img)


class Found(Preset):
    def __init__(self, transforms: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        return usual()


def hooked(transforms: Any) -> Any:
    module = Module(transforms)
    module.register_forward_hook(lambda *_: None)
    return module


def replaced(transforms: Any) -> Any:
    module = Module(transforms)
    module.forward = lambda img: img  # type: ignore[method-assign]
    return module


def closed_over(transforms: Any) -> Any:
    return lambda img: transforms(img)


def partial(transforms: Any) -> Any:
    return functools.partial(Preset.__call__, Preset(transforms))


UNKNOWN = [
    Twice, Rotates, Counts, Pads, Deep, Other, ToGrey, WithTarget, Starred, Lazy, Kept, Decorated,
    Watched, Found, CallsItself, hooked, replaced, closed_over, partial,
]  # fmt: skip


@pytest.mark.parametrize("make", UNKNOWN)
def test_what_may_do_more_stays(make: Callable[[Any], Any]) -> None:
    transform = make(usual())
    made = translate(v1.Compose([v1.CenterCrop(30), transform]))
    assert made.recipe["ops"][1:] == [{"op": "center_crop", "size": [30, 30]}]
    assert made.rest is not None and made.rest.transforms == (transform,)
    assert not made.words[1].startswith("RandomResizedCrop")


@pytest.mark.parametrize("make", [Computed, OfTheClass, lambda: Method.__new__(Method)])
def test_an_attribute_that_is_not_the_objects_own_is_not_believed(make: Callable[[], Any]) -> None:
    made = translate(make(), image_size=SIZE)
    assert made.rest is not None and made.recipe["ops"] == [{"op": "decode"}]


def test_an_unknown_class_around_a_compose_has_a_remedy() -> None:
    made = translate(Counts(usual()))
    assert made.remedies == ["Counts: if it does no more, give the data set its .transforms"]
    assert "may do more than its transforms" in made.words[0]


# ---- conversion to RGB ----------------------------------------------------------------------


def to_rgb(image: Any) -> Any:
    return image.convert("RGB")


def to_lab(image: Any) -> Any:
    return image.convert("LAB")


def test_converting_to_rgb_is_nothing() -> None:
    for same in (to_rgb, v1.Lambda(to_rgb), v2.Lambda(lambda x: x.convert("RGB"))):
        assert wholly(v1.Compose([same, usual()])).recipe["ops"] == USUAL
    for other in (to_lab, v1.Lambda(to_lab), lambda image: image.convert("RGB", None)):
        assert translate(v1.Compose([other, usual()]), image_size=SIZE).rest is not None
    made = translate(v1.Compose([v1.CenterCrop(9), v1.Grayscale(), to_rgb]))
    assert made.words[2] == "to_rgb stays in Python: it makes 3 channels of 1"
    made = translate(v1.Compose([v1.CenterCrop(9), v1.ToTensor(), to_rgb]))
    assert "PIL" in made.words[2]


# ---- classes that call Pillow ---------------------------------------------------------------


BLUR = {"op": "gaussian_blur", "kernel_size": [23, 23], "sigma": [0.1, 2.0]}


def applied(p: float, *ops: dict[str, Any]) -> dict[str, Any]:
    return {"op": "random_apply", "p": p, "transforms": list(ops)}


@pytest.mark.parametrize(
    ("transform", "op"),
    [
        (Blur(), applied(0.5, BLUR)),
        (Blur(1.0), BLUR),
        (NamedBlur(0.1), applied(0.1, BLUR)),
        (Blur(1, 0.5, 4), {**BLUR, "kernel_size": [45, 45], "sigma": [0.5, 4.0]}),
        (RangeBlur(), BLUR),
        (RangeBlur([0.1, 2]), BLUR),
        (Solarization(0.2), {"op": "random_solarize", "threshold": 128, "p": 0.2}),
        (Grey(), applied(0.2, {"op": "grayscale", "num_output_channels": 3})),
    ],
)
def test_a_class_that_calls_pillow_is_known_by_its_code(transform: Any, op: Any) -> None:
    assert wholly(transform).recipe["ops"] == [{"op": "decode"}, op]


def in_other_module(cls: type, **names: Any) -> Any:
    """The method of a class, in a module where a name means something else."""
    method: Any = cls.__call__  # type: ignore[operator]
    known = {"random": random, "ImageFilter": ImageFilter, "ImageOps": ImageOps}
    function = type(to_rgb)(method.__code__, {**known, **names})
    return type(cls.__name__, (cls,), {"__call__": function})


class NotRandom:
    random = staticmethod(lambda: 0.0)
    uniform = staticmethod(lambda low, high: low)


@pytest.mark.parametrize(
    "transform",
    [
        BoxBlur(),
        SwappedBlur(),
        RarerBlur(),
        Posterization(0.2),
        HigherSolarization(0.2),
        in_other_module(Blur, random=NotRandom)(),
        in_other_module(Blur, ImageFilter=ImageOps)(),
        in_other_module(Solarization, ImageOps=NotRandom)(0.5),
        Blur(2.0),
        Blur(1.0, 3.0, 2.0),
        Blur(1.0, 0.0, 500.0),
        RangeBlur(1.0),
        RangeBlur(()),
        Solarization(math.nan),
    ],
)
def test_other_code_or_parameters_stay(transform: Any) -> None:
    made = translate(v1.Compose([v1.CenterCrop(30), transform]))
    assert made.rest is not None and made.words[1].startswith(f"{type(transform).__name__} stays")


def test_the_same_code_in_another_module_is_known() -> None:
    same = in_other_module(Blur)()
    assert wholly(same).recipe["ops"] == [{"op": "decode"}, applied(0.5, BLUR)]


def test_after_a_conversion_pillow_has_nothing_to_work_on() -> None:
    made = translate(v1.Compose([v1.CenterCrop(9), v1.ToTensor(), Blur()]))
    assert made.remedies == ["Blur: put it before the conversion to a tensor"]


def test_deits_three_augment() -> None:
    three = v1.RandomChoice([Grey(p=1.0), Solarization(p=1.0), Blur(p=1.0)])
    crop = v1.RandomResizedCrop(24, interpolation=3)
    list_ = [crop, v1.RandomHorizontalFlip(), three, v1.ColorJitter(0.3, 0.3, 0.3), *TENSOR]
    ops = wholly(v1.Compose(list_)).recipe["ops"]
    grey = {"op": "grayscale", "num_output_channels": 3}
    solarize = {"op": "random_solarize", "threshold": 128, "p": 1.0}
    assert ops[1:3] == [rrc(interpolation="bicubic"), FLIP]
    assert ops[3]["transforms"] == [applied(1.0, grey), solarize, BLUR]


# ---- several images of one ------------------------------------------------------------------


def view(side: int, *more: Any, end: list[Any] | None = None) -> Any:
    return v1.Compose([v1.RandomResizedCrop(side), *more, *(TENSOR if end is None else end)])


def views(*kinds: tuple[int, list[Any]]) -> dict[str, Any]:
    return {"op": "multi_crop", "views": [{"repeat": n, "ops": ops} for n, ops in kinds]}


def test_dinos_crops() -> None:
    flip = v1.RandomHorizontalFlip()
    dino = MultiCrop(
        view(24, flip, Blur(1.0)), view(24, Blur(0.1), Solarization(0.2)), view(9, Blur())
    )
    made = wholly(dino, image_size=None)
    small = {**rrc(), "size": [9, 9]}
    solarize = {"op": "random_solarize", "threshold": 128, "p": 0.2}
    crops = views(
        (1, [rrc(), FLIP, BLUR]),
        (1, [rrc(), applied(0.1, BLUR), solarize]),
        (8, [small, applied(0.5, BLUR)]),
    )
    assert made.recipe["ops"] == [{"op": "decode"}, crops, NORMALIZE, F32, NCHW]
    assert (made.views, made.result) == ("list", "tensor")
    assert "10 views" in made.words[0] and "Gaussian" in made.words[0]


def test_two_and_many_views() -> None:
    two = views((2, [rrc()]))
    for make, kind in ((TwoOfOne, "list"), (TwoOfOneListed, "list"), (TwoOfOneTuple, "tuple")):
        made = wholly(make(view(24)), image_size=None)
        assert made.recipe["ops"] == [{"op": "decode"}, two, NORMALIZE, F32, NCHW]
        assert made.views == kind
    assert wholly(Many(view(24), 5)).recipe["ops"][1] == views((5, [rrc()]))
    ways = TwoWays(view(24), view(24, v1.RandomHorizontalFlip()))
    made = wholly(ways)
    assert made.recipe["ops"][1] == views((1, [rrc()]), (1, [rrc(), FLIP])) and made.views == "tuple"
    made = wholly(MultiCrop(view(24), view(24), abs, 0))
    assert made.recipe["ops"][1] == views((1, [rrc()]), (1, [rrc()]))


def test_views_with_erasing_share_it() -> None:
    end = [*TENSOR, v1.RandomErasing()]
    made = wholly(TwoWays(view(24, end=end), view(20, end=end)))
    assert made.recipe["ops"][-1] == erasing()


@pytest.mark.parametrize(
    ("transform", "why"),
    [
        (Skips(view(24), view(24), view(9)), "not one of torchvision's"),
        (Chained(view(24)), "code is unknown"),
        (Swapped(view(24)), "code is unknown"),
        (TwoOfOne(view(24, abs)), "abs inside it"),
        (TwoOfOne(v1.Compose(TENSOR)), "the same size"),
        (TwoOfOne(view(24, end=[])), "PIL images"),
        (TwoWays(view(24), view(24, end=[v1.ToTensor()])), "end differently"),
        (TwoWays(view(24), view(24, v1.Grayscale(), end=[v1.ToTensor()])), "end differently"),
        (Many(view(24), 1), "1 images"),
        (Many(view(24), 100), "100 images"),
        (Many(view(24), 2.0), "code is unknown"),
        (Many(view(24), True), "code is unknown"),
        (TwoOfOne(Many(view(24), 3)), "the same size"),
    ],
)
def test_views_that_no_op_makes_stay(transform: Any, why: str) -> None:
    made = translate(transform)
    assert made.rest is not None and why in made.words[0], made.words


def test_nothing_comes_behind_views() -> None:
    made = translate(v1.Compose([v1.CenterCrop(40), TwoOfOne(view(24)), torch.stack]))
    assert made.recipe["ops"] == [{"op": "decode"}, {"op": "center_crop", "size": [40, 40]}]
    assert made.rest is not None and len(made.rest.transforms) == 2


# ---- remedies -------------------------------------------------------------------------------


class GaussianBlur:
    def __call__(self, image: Any) -> Any:
        return image.filter(ImageFilter.GaussianBlur(3))


def test_remedies_name_what_to_change() -> None:
    cases: list[tuple[list[Any], list[str]]] = [
        ([v1.Resize(30), abs, v1.CenterCrop(24)],
         ["Resize: put abs after CenterCrop, which bothends then does"]),
        ([abs, v1.RandomResizedCrop(24)],
         ["abs: put it after RandomResizedCrop, which bothends then does"]),
        ([v1.CenterCrop(24), abs], []),
        ([v1.CenterCrop(24), GaussianBlur()],
         ["GaussianBlur: use torchvision.transforms.v2.GaussianBlur, if that does the same"]),
        ([v1.ToTensor(), v1.CenterCrop(24), v1.ColorJitter(0.5), abs, v1.GaussianBlur(3)],
         ["ColorJitter: put it before ToTensor (or before ToDtype)",
          "GaussianBlur: put it before ToTensor (or before ToDtype)"]),
        ([v1.Resize(30), v1.ToTensor()],
         ["Resize: a crop, or Resize((rows, columns)), before that lets bothends prepare the "
          "samples"]),
    ]  # fmt: skip
    for transforms, remedies in cases:
        assert translate(v1.Compose(transforms)).remedies == remedies


# ---- a list, and what a sample is -----------------------------------------------------------


def test_a_list_is_its_transforms_one_behind_the_other() -> None:
    parts = (v1.Compose([v1.RandomResizedCrop(24)]), v1.RandomHorizontalFlip(), v1.Compose(TENSOR))
    assert wholly(parts).recipe["ops"] == wholly(list(parts)).recipe["ops"] == USUAL


def test_what_a_sample_is_in_the_end() -> None:
    crop = v2.CenterCrop(24)
    ends = [([], "pil"), ([v2.ToImage()], "image"), ([v1.PILToTensor()], "tensor")]
    for end, result in [*ends, ([v2.ToImage(), v2.ToPureTensor()], "tensor"), ([abs], "rest")]:
        assert translate(v1.Compose([crop, *end])).result == result


# ---- real files -----------------------------------------------------------------------------


def test_views_are_delivered_with_their_sizes(tmp_path: Path) -> None:
    bothends = pytest.importorskip("bothends", reason="bothends is not built")
    if not hasattr(bothends, "Loader"):
        pytest.skip("bothends is not built")
    from compare_transforms import write_images

    images = write_images(tmp_path)
    whole = v1.Compose([v1.Resize((20, 24)), *TENSOR])
    half = v1.Compose([v1.Resize((10, 12)), *TENSOR])
    made = wholly(MultiCrop(whole, whole, half, 3), image_size=None)
    loader = bothends.Loader(
        tmp_path,
        made.recipe,
        batch_size=4,
        shuffle=False,
        workers=1,
        output=made.output,
        layout=made.layout,
        side_index="off",
    )
    ((ours, _),) = list(loader)
    theirs = [[whole(i), whole(i), half(i), half(i), half(i)] for i in images]
    assert len(ours) == 5
    for view_, rows in zip(ours, zip(*theirs, strict=True), strict=True):
        assert torch.equal(view_, torch.stack(rows))
