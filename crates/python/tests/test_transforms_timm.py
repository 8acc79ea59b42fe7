"""timm's `create_transform` becomes recipes, for training and evaluation; and what stays in Python.

Without timm everything here is skipped.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("torchvision", reason="torchvision is not installed")
pytest.importorskip("timm", reason="timm is not installed")

import torchvision.transforms as v1
from bothends._transforms import translate
from timm.data import create_transform
from timm.data import transforms as timm_transforms
from timm.data.auto_augment import rand_augment_transform
from timm.data.random_erasing import RandomErasing

from compare_transforms import furthest, write_images
from translations import (
    F32,
    FLIP,
    MEAN,
    NCHW,
    NORMALIZE,
    SIZE,
    STD,
    crop,
    erasing,
    jitter,
    resize,
    rrc,
    wholly,
)

CENTER = {"op": "center_crop", "size": [24, 24]}
FLOATS = [NORMALIZE, F32, NCHW]
TENSOR = [v1.ToTensor(), v1.Normalize(MEAN, STD)]


def train(**changes: Any) -> Any:
    return create_transform(**{"input_size": 24, "is_training": True, "color_jitter": 0, **changes})


def evaluation(**changes: Any) -> Any:
    return create_transform(**{"input_size": 24, **changes})


def ops_of(transform: Any, **options: Any) -> list[dict[str, Any]]:
    ops: list[dict[str, Any]] = wholly(transform, **options).recipe["ops"]
    assert ops[0] == {"op": "decode"}
    return ops[1:]


# ---- training -------------------------------------------------------------------------------


def rand_augment(**changes: Any) -> dict[str, Any]:
    defaults: dict[str, Any] = {
        "num_layers": 2,
        "magnitude": 9,
        "magnitude_std": 0.5,
        "increasing": True,
        "p": 0.5,
        "interpolation": "bilinear",
        "fill": [124, 116, 104],
    }
    return {"op": "timm_rand_augment", **defaults, **changes}


def jitters(amount: float) -> dict[str, Any]:
    both = [1 - amount, 1 + amount]
    return jitter(brightness=both, contrast=both, saturation=both)


def timm_erasing(value: Any = 0, **changes: Any) -> dict[str, Any]:
    wide = {"scale": [0.02, 1 / 3], "ratio": [0.3, 1 / 0.3]}
    return erasing(value, **{**wide, **changes})


WAY = [rrc(), FLIP]
EITHER = {"op": "random_choice", "transforms": [rrc(), rrc(interpolation="bicubic")]}

TRAIN: list[tuple[dict[str, Any], list[dict[str, Any]]]] = [
    ({}, [*WAY, *FLOATS]),
    ({"color_jitter": None}, [*WAY, *FLOATS]),
    ({"color_jitter": 0.5}, [*WAY, jitters(0.5), *FLOATS]),
    ({"color_jitter": None, "hflip": 0, "vflip": 0.25},
     [rrc(), {"op": "random_vertical_flip", "p": 0.25}, *FLOATS]),
    ({"color_jitter": None, "input_size": (3, 24, 32), "scale": (0.5, 0.9), "ratio": (1, 2)},
     [rrc(size=[24, 32], scale=[0.5, 0.9], ratio=[1, 2]), FLIP, *FLOATS]),
    ({"color_jitter": None, "interpolation": "bicubic"},
     [rrc(interpolation="bicubic"), FLIP, *FLOATS]),
    ({"color_jitter": None, "interpolation": "random"}, [EITHER, FLIP, *FLOATS]),
    ({"color_jitter": 0.5, "color_jitter_prob": 0.75},
     [*WAY, {"op": "random_apply", "p": 0.75, "transforms": [jitters(0.5)]}, *FLOATS]),
    ({"color_jitter": None, "grayscale_prob": 0.2, "gaussian_blur_prob": 0.5},
     [*WAY, {"op": "random_grayscale", "p": 0.2},
      {"op": "random_apply", "p": 0.5, "transforms": [
          {"op": "gaussian_blur", "kernel_size": [23, 23], "sigma": [0.1, 2.0]}]}, *FLOATS]),
    ({"auto_augment": "rand-m9-mstd0.5-inc1"}, [*WAY, rand_augment(), *FLOATS]),
    ({"auto_augment": "rand-m9-mstd0.5-inc1", "interpolation": "random"},
     [EITHER, FLIP, rand_augment(interpolation="random"), *FLOATS]),
    ({"auto_augment": "rand-m7-n3-p0.25", "interpolation": "bicubic"},
     [rrc(interpolation="bicubic"), FLIP,
      rand_augment(num_layers=3, magnitude=7, magnitude_std=0, increasing=False, p=0.25,
                   interpolation="bicubic"), *FLOATS]),
    ({"auto_augment": "rand-m15"},  # timm limits it to 10
     [*WAY, rand_augment(magnitude=10, magnitude_std=0, increasing=False), *FLOATS]),
    ({"auto_augment": "rand-m9-mmax10"},
     [*WAY, rand_augment(magnitude_std=0, increasing=False), *FLOATS]),
    ({"color_jitter": None, "re_prob": 0.25, "re_mode": "pixel"},
     [*WAY, *FLOATS, timm_erasing("random", p=0.25)]),
    ({"color_jitter": None, "re_prob": 0.25}, [*WAY, *FLOATS, timm_erasing(p=0.25)]),
    ({"color_jitter": None, "use_prefetcher": True}, [*WAY, NCHW]),
    ({"color_jitter": None, "normalize": False}, [*WAY, NCHW]),
    ({"color_jitter": None, "separate": True}, [*WAY, *FLOATS]),
    ({"no_aug": True, "interpolation": "random"}, [resize(24), CENTER, *FLOATS]),
    ({"no_aug": True, "use_prefetcher": True}, [resize(24), CENTER, NCHW]),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "ops"), TRAIN, ids=lambda case: str(case)[:60])
def test_training(arguments: dict[str, Any], ops: list[dict[str, Any]]) -> None:
    assert ops_of(train(**arguments), image_size=None) == ops


def test_deits_and_convnexts_training() -> None:
    transform = train(
        input_size=24,
        color_jitter=0.4,
        auto_augment="rand-m9-mstd0.5-inc1",
        interpolation="bicubic",
        re_prob=0.25,
        re_mode="pixel",
        re_count=1,
    )
    bicubic = rrc(interpolation="bicubic")
    augment = rand_augment(interpolation="bicubic")
    end = timm_erasing("random", p=0.25)
    assert ops_of(transform, image_size=None) == [bicubic, FLIP, augment, *FLOATS, end]
    # On small images both use torchvision's crop instead of timm's.
    transform.transforms[0] = v1.RandomCrop(32, padding=4)
    made = wholly(transform, image_size=(32, 32)).recipe["ops"]
    assert made[1] == crop(padding=[4] * 4, pad_if_needed=False, fill=0)


# ---- evaluation -----------------------------------------------------------------------------

EVALUATION: list[tuple[dict[str, Any], list[dict[str, Any]]]] = [
    ({}, [resize(27), CENTER]),
    ({"crop_pct": 0.95, "interpolation": "bicubic"},
     [resize(25, interpolation="bicubic"), CENTER]),
    ({"crop_pct": 1.0}, [resize(24), CENTER]),
    ({"crop_mode": "squash"}, [resize([27, 27]), CENTER]),
    ({"crop_mode": "squash", "input_size": (3, 24, 32)},
     [resize([27, 36]), {"op": "center_crop", "size": [24, 32]}]),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "ops"), EVALUATION, ids=lambda case: str(case)[:60])
def test_evaluation(arguments: dict[str, Any], ops: list[dict[str, Any]]) -> None:
    assert ops_of(evaluation(**arguments), image_size=None) == [*ops, *FLOATS]
    assert ops_of(evaluation(**arguments, use_prefetcher=True), image_size=None) == [*ops, NCHW]


def test_of_images_of_one_size_more_is_known() -> None:
    border = evaluation(crop_mode="border")  # 40 rows, 50 columns → 22 rows, 27 columns
    fill = [124, 116, 104]
    padding = {"op": "pad", "padding": [0, 1, 0, 1], "fill": fill}
    assert ops_of(border, image_size=SIZE) == [resize([22, 27]), padding, CENTER, *FLOATS]
    longer = evaluation(input_size=(3, 24, 30))
    assert ops_of(longer, image_size=SIZE)[0] == resize([27, 34])
    trimmed = evaluation(crop_border_pixels=3)
    assert ops_of(trimmed, image_size=SIZE)[0] == {"op": "center_crop", "size": [34, 44]}
    for size in (SIZE, (30, 20), (20, 30), (21, 21)):
        for crop_ in (24, (31, 19)):
            ops_of([timm_transforms.CenterCropOrPad(crop_, padding_mode="edge")], image_size=size)
    inside = timm_transforms.RandomCropOrPad(24)
    assert ops_of(inside, image_size=SIZE) == [crop(size=[24, 24])]


# ---- what stays -----------------------------------------------------------------------------


class OwnErasing(RandomErasing):
    def __call__(self, image: Any) -> Any:
        return image


class OwnCrop(timm_transforms.RandomResizedCropAndInterpolation):
    def __init__(self) -> None:
        super().__init__(24)


def with_another_op() -> Any:
    policy = rand_augment_transform("rand-m9", {"img_mean": (1, 2, 3)})
    policy.ops[3].aug_fn = lambda image, *_, **__: image
    return policy


def with_another_strength() -> Any:
    policy = rand_augment_transform("rand-m9", {"img_mean": (1, 2, 3)})
    policy.ops[3].magnitude = 3
    return policy


def with_another_level() -> Any:
    policy = rand_augment_transform("rand-m9", {"img_mean": (1, 2, 3)})
    policy.ops[3].level_fn = lambda *_: (0,)
    return policy


def policy(config: str, **parameters: Any) -> Any:
    return rand_augment_transform(config, {"img_mean": (1, 2, 3), **parameters})


STAYS: list[tuple[list[Any], Any, str]] = [
    ([], policy("rand-m9-mstd101"), "evenly"),
    ([], policy("rand-m15-mstd0.5"), "magnitude is 15"),
    ([], policy("rand-m9-mmax20"), "mmax"),
    ([], policy("rand-m9-tweights"), "weights"),
    ([], policy("rand-m9-t3a"), "other ops"),
    ([], policy("rand-n20"), "num_layers is 20"),
    ([], policy("rand-m9", translate_pct=0.3), "a fraction"),
    ([], policy("rand-m9", interpolation=1), "lanczos"),
    ([], with_another_op(), "not timm's own"),
    ([], with_another_strength(), "differ"),
    ([], with_another_level(), "not timm's own"),
    ([v1.Grayscale()], policy("rand-m9"), "3 values"),
    ([v1.ToTensor()], policy("rand-m9"), "PIL"),
    ([], timm_transforms.ResizeKeepRatio(24), "image's"),
    ([], timm_transforms.ResizeKeepRatio(24, random_scale_prob=0.5), "chance"),
    ([], timm_transforms.CenterCropOrPad(24, fill=3), "something other than zeros"),
    ([], timm_transforms.RandomCropOrPad(24), "random positions"),
    ([], timm_transforms.TrimBorder(2), "borders"),
    ([], timm_transforms.RandomPad((24, 24)), "not one of"),
    ([v1.ToTensor()], timm_transforms.RandomResizedCropAndInterpolation(24), "floats"),
    ([], timm_transforms.ToTensor(), "from 0 to 255"),
    ([v1.ToTensor()], timm_transforms.ToNumpy(), "after tensors"),
    ([], RandomErasing(), "refuses PIL"),
    ([v1.ToTensor()], RandomErasing(mode="pixel"), "after Normalize"),
    (TENSOR, RandomErasing(mode="rand"), "one random colour"),
    (TENSOR, RandomErasing(max_count=3), "up to 3"),
    (TENSOR, OwnErasing(), "subclass of timm's RandomErasing"),
]


@pytest.mark.parametrize(("before", "transform", "why"), STAYS)
def test_what_no_op_can_do_stays(before: list[Any], transform: Any, why: str) -> None:
    sized = [v1.CenterCrop(30)] if before else []
    transforms = [*sized, *before, transform, v1.RandomHorizontalFlip()]
    made = translate(v1.Compose(transforms))
    name = type(transform).__name__
    stays = [line for line in made.words if "stays in Python" in line]
    assert stays[0].startswith(f"{name} stays in Python") and why in stays[0], stays[0]
    assert made.rest is not None and made.has_fixed_size == bool(before)


@pytest.mark.parametrize("name", ["original", "v0", "3a", "augmix-m5"])
def test_policies_of_timms_own_stay_behind_the_crop(name: str) -> None:
    made = translate(train(auto_augment=name))
    assert made.recipe["ops"] == [{"op": "decode"}, *WAY] and made.rest_input == "pil"
    assert "magnitudes of its own" in made.words[2]
    assert "rand-m9-mstd0.5-inc1" in made.remedies[0]


def test_a_subclass_that_only_gives_parameters_is_known() -> None:
    assert ops_of(OwnCrop()) == [rrc()]


def test_an_array_is_the_last_that_bothends_makes() -> None:
    crop_, to_numpy = v1.CenterCrop(24), timm_transforms.ToNumpy()
    made = wholly(v1.Compose([crop_, to_numpy]), image_size=None)
    assert made.recipe["ops"][1:] == [CENTER, NCHW]
    assert (made.result, made.output) == ("numpy", "u8")
    made = translate(v1.Compose([crop_, to_numpy, torch.as_tensor]))
    assert made.rest is not None and made.rest.transforms == (to_numpy, torch.as_tensor)
    assert made.rest_input == "pil"


# ---- pixels ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Any]]:
    folder = tmp_path_factory.mktemp("images")
    return folder, write_images(folder)


def loaded(folder: Path, transform: Any, **options: Any) -> Any:
    bothends = pytest.importorskip("bothends", reason="bothends is not built")
    if not hasattr(bothends, "Loader"):
        pytest.skip("bothends is not built")
    made = wholly(transform, image_size=None)
    settings = {"batch_size": 4, "shuffle": False, "workers": 1, "side_index": "off", **options}
    loader = bothends.Loader(
        folder, made.recipe, output=made.output, layout=made.layout, **settings
    )
    return [images for images, _ in loader]


PIXELS = [
    *(evaluation(**arguments) for arguments, _ in EVALUATION),
    *(evaluation(**arguments, use_prefetcher=True) for arguments, _ in EVALUATION),
    evaluation(input_size=38, crop_pct=1.0, interpolation="bicubic"),
    train(no_aug=True),
    v1.Compose([v1.Resize((60, 50)), timm_transforms.ToNumpy()]),
    v1.Compose([v1.Resize((40, 30)), timm_transforms.CenterCropOrPad(45), *TENSOR]),
]


@pytest.mark.parametrize("transform", PIXELS, ids=lambda transform: str(transform)[:80])
def test_pixels_of_evaluation_are_timms(data: Any, transform: Any) -> None:
    folder, images = data
    (ours,) = loaded(folder, transform)
    theirs = torch.stack([torch.as_tensor(transform(image)) for image in images])
    assert ours.dtype == theirs.dtype
    assert furthest(ours, theirs) == 0


def test_samples_of_training_have_timms_shape_and_type(data: Any) -> None:
    folder, images = data
    for arguments, _ in TRAIN:
        if not arguments.get("separate"):
            transform = train(**arguments)
            (ours,), theirs = loaded(folder, transform), transform(images[0])
            assert (ours.shape[1:], ours.dtype) == (theirs.shape, theirs.dtype), arguments


@pytest.mark.parametrize("value", ["pixel", "const"])
def test_erasing_is_as_often_and_as_large_as_timms(data: Any, value: str) -> None:
    folder, images = data
    end = [v1.ToTensor(), v1.Normalize(MEAN, STD), RandomErasing(0.5, mode=value, device="cpu")]
    transform = v1.Compose([v1.CenterCrop((44, 48)), *end])
    plain = torch.stack([v1.Compose(transform.transforms[:-1])(image) for image in images])
    ours = [loaded(folder, transform, seed=seed)[0] for seed in range(60)]
    theirs = [torch.stack([transform(image) for image in images]) for _ in range(60)]
    shares = [
        torch.cat([(batch != plain).any(1).float().mean((1, 2)) for batch in batches])
        for batches in (ours, theirs)
    ]
    for share in shares:
        assert abs(float((share > 0).float().mean()) - 0.5) < 0.16  # 5 standard deviations
    both = [float(share[share > 0].mean()) for share in shares]
    assert abs(both[0] - both[1]) < 0.06
