"""torchvision's transforms become recipes: every class and form (the table is translations.py),
and what stays in Python.

Without torchvision everything here is skipped. Without the program `bothends` (found on PATH, or
under `CARGO_TARGET_DIR` or target/) only those tests are that show our parser the recipes.
"""

from __future__ import annotations

import functools
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("torchvision", reason="torchvision is not installed")

import torchvision.transforms as v1
from bothends._transforms import translate
from PIL import Image
from torchvision.transforms import InterpolationMode, v2

from translations import (
    BEHIND,
    BICUBIC,
    BILINEAR,
    F32,
    FLIP,
    MEAN,
    NEAREST,
    NORMALIZE,
    PRESETS,
    SIZE,
    STD,
    erasing,
    pil_cases,
    resize,
    rrc,
    wholly,
)


@pytest.mark.parametrize(("transform", "ops"), list(pil_cases()))
def test_a_transform_of_pil_images_becomes_ops(transform: Any, ops: list[Any]) -> None:
    made = wholly(transform)
    assert made.recipe["ops"] == [{"op": "decode"}, *ops]
    assert (made.output, made.layout) == ("u8", "nhwc")


@pytest.mark.parametrize(("transforms", "ops", "feed"), BEHIND)
def test_conversion_and_what_comes_behind(
    transforms: list[Any], ops: list[Any], feed: list[Any]
) -> None:
    made = wholly(v1.Compose(transforms))
    assert made.recipe["ops"] == [{"op": "decode"}, *ops, *feed]
    assert (made.output, made.layout) == ("f32" if F32 in feed else "u8", "nchw")


# ---- Pillow's version -----------------------------------------------------------------------

TO_TENSOR = [v2.ToImage(), v2.Resize((9, 9), antialias=True)]
RESIZING: list[tuple[Any, bool]] = [
    (v1.Resize((9, 9)), True),
    (v2.RandomResizedCrop(9), True),
    (v1.Compose([v1.Resize((9, 9)), v1.ToTensor(), v1.Normalize(MEAN, STD)]), True),
    (v2.RandomApply([v2.RandomResizedCrop(SIZE)]), True),
    (v1.CenterCrop(9), False),
    # torch resizes tensors, along their rows first, whichever Pillow decodes.
    (v2.Compose(TO_TENSOR), False),
]


@pytest.mark.parametrize(
    ("pillow", "newest"), [("11.3.0", 1), ("12.3.0", 1), ("13.0.0", 2), ("14.1.0.dev0", 2)]
)
def test_numerics_are_those_of_the_installed_pillow(
    monkeypatch: pytest.MonkeyPatch, pillow: str, newest: int
) -> None:
    monkeypatch.setattr("PIL.__version__", pillow)
    for transform, depends in RESIZING:
        recipe = wholly(transform).recipe
        assert (recipe["version"], recipe["numerics"]) == (newest if depends else 1, "exact")


def test_tensors_have_none_of_pillows_filters() -> None:
    for mode in (InterpolationMode.LANCZOS, InterpolationMode.BOX, InterpolationMode.HAMMING):
        transform = v2.Compose([v2.ToImage(), v2.Resize((9, 9), mode, antialias=True)])
        (remedy,) = translate(transform, image_size=SIZE).remedies
        assert remedy == "Resize: put it before the conversion to a tensor"


# ---- our parser -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def inspect() -> Callable[[dict[str, Any], Path], None]:
    """Shows a recipe to `bothends inspect`, which refuses what is not one."""
    root = Path(__file__).resolve().parents[3]
    targets = [Path(os.environ.get("CARGO_TARGET_DIR", "target")), root / "target"]
    built = [target / kind / "bothends" for target in targets for kind in ("release", "debug")]
    found = shutil.which("bothends") or next((str(path) for path in built if path.exists()), None)
    if found is None:
        pytest.skip("the program bothends is not built; cargo build -p bothends --bins")

    def run(recipe: dict[str, Any], path: Path) -> None:
        path.write_text(json.dumps(recipe))
        done = subprocess.run([found, "inspect", path], capture_output=True, text=True)
        assert done.returncode == 0, f"{done.stderr}\n{json.dumps(recipe)}"

    return run


def test_our_parser_takes_every_recipe(inspect: Any, tmp_path: Path) -> None:
    transforms = [case.values[0] for case in pil_cases()]
    transforms += [v1.Compose(case[0]) for case in BEHIND]
    transforms += [make() for make in PRESETS.values()]
    for transform in transforms:
        inspect(translate(transform, image_size=SIZE).recipe, tmp_path / "recipe.json")
    with pytest.raises(AssertionError):
        inspect({"version": 1, "name": "x", "ops": [{"op": "resize"}]}, tmp_path / "no.json")


# ---- what stays in Python -------------------------------------------------------------------


class OwnCrop(v1.RandomCrop):
    """A subclass that overrides something may do anything."""

    def forward(self, image: Any) -> Any:
        return super().forward(image).rotate(3)


class OwnDraw(v1.RandomCrop):
    @staticmethod
    def get_params(image: Any, output_size: tuple[int, int]) -> tuple[int, int, int, int]:
        return 0, 0, *output_size


class Cifar10Crop(v1.RandomCrop):
    """A subclass that only gives parameters."""

    def __init__(self) -> None:
        super().__init__(32, padding=4)

    def __repr__(self) -> str:
        return "CIFAR-10's crop"


class Hooked:
    def __new__(cls) -> Any:
        flip = v2.RandomHorizontalFlip()
        flip.register_forward_hook(lambda *_: None)
        return flip


class Patched:
    def __new__(cls) -> Any:
        flip = v2.RandomHorizontalFlip()
        flip.forward = lambda image: image
        return flip


class Spoilt:
    def __new__(cls) -> Any:
        crop = v2.CenterCrop(4)
        crop.size = "large"
        return crop


def nested(depth: int) -> Any:
    flip = v2.RandomHorizontalFlip()
    return functools.reduce(lambda inner, _: v2.RandomApply([inner]), range(depth), flip)


# What stays, behind what, its name, and a part of the reason.
STAYS: list[tuple[list[Any], Any, str, str]] = [
    ([], v1.Lambda(abs), "Lambda", "no op"),
    ([], v2.Lambda(abs), "Lambda", "no op"),
    ([], lambda image: image, "<lambda>", "not one of torchvision's"),
    ([], OwnCrop(8), "OwnCrop", "subclass of torchvision's RandomCrop"),
    ([], OwnDraw(8), "OwnDraw", "subclass of torchvision's RandomCrop"),
    ([], v1.RandomCrop, "RandomCrop", "it is a class"),
    ([], v2.ElasticTransform(), "ElasticTransform", "no op"),
    ([], v2.RandomPhotometricDistort(), "RandomPhotometricDistort", "no op"),
    ([], Hooked(), "RandomHorizontalFlip", "hooks"),
    ([], Patched(), "RandomHorizontalFlip", "its own hooks or methods"),
    ([], Spoilt(), "CenterCrop", "not understood"),
    ([], v1.Resize((9, 9), antialias=False), "Resize", "antialias=False"),
    ([], v2.RandomResizedCrop(9, antialias=False), "RandomResizedCrop", "antialias=False"),
    ([], v1.RandomAffine(9, interpolation=4), "RandomAffine", "box"),
    ([], v2.Resize(None, max_size=20), "Resize", "longer side"),
    ([], v1.Resize(30, max_size=20), "Resize", "max_size is 20"),
    ([], v1.Resize(20_000), "Resize", "size is 20000"),
    ([], v1.RandomResizedCrop(9, scale=(0.5, 1.5)), "RandomResizedCrop", "scale is 1.5"),
    ([], v1.RandomCrop(60), "RandomCrop", "larger than the image"),
    ([], v1.RandomCrop(60, 2, True, padding_mode="reflect"), "RandomCrop", "twice"),
    ([], v1.Pad(-1), "Pad", "padding is -1"),
    ([], v1.Pad(1, 300), "Pad", "not a byte"),
    ([], v1.Pad(1, (1, 2)), "Pad", "2 values"),
    ([v1.Grayscale()], v1.Pad(1, (1, 2, 3)), "Pad", "3 values and a sample 1"),
    ([], v2.Pad(1, {Image.Image: 1, "others": 2}), "Pad", "different for each type"),
    ([v2.ToImage()], v2.Pad(1, 0.5), "Pad", "not a byte"),
    ([], v1.RandomRotation(9, expand=True, center=(0, 0)), "RandomRotation", "centre"),
    ([], v1.RandomAffine(9, shear=100), "RandomAffine", "shear"),
    ([], v1.GaussianBlur(301), "GaussianBlur", "kernel_size is 301"),
    ([], v1.RandomSolarize(300), "RandomSolarize", "threshold"),
    ([], v1.RandAugment(magnitude=31), "RandAugment", "magnitude is 31"),
    ([], v2.AugMix(interpolation=BICUBIC), "AugMix", "bicubic"),
    ([v1.Grayscale()], v1.Grayscale(3), "Grayscale", "3 channels of 1"),
    ([v1.Grayscale()], v2.RGB(), "RGB", "3 channels of 1"),
    ([], v1.RandomErasing(), "RandomErasing", "refuses PIL"),
    ([], v2.RandomErasing(value="random"), "RandomErasing", "random values"),
    ([], v1.Normalize(MEAN, STD), "Normalize", "refuses"),
    ([], v1.ConvertImageDtype(torch.float32), "ConvertImageDtype", "refuses PIL"),
    ([], v1.FiveCrop(9), "FiveCrop", "tuple of PIL"),
    # Containers.
    ([], v1.RandomApply([v1.Lambda(abs)]), "RandomApply", "Lambda inside it"),
    ([], v2.RandomApply([v2.Resize((9, 9))]), "RandomApply", "size of a sample"),
    ([], v1.RandomApply([v1.Grayscale()]), "RandomApply", "channels of a sample"),
    ([], v1.RandomApply([v1.ToTensor()]), "RandomApply", "in the list itself"),
    ([], v2.RandomChoice([v2.CenterCrop(8), v2.CenterCrop(9)]), "RandomChoice", "size"),
    ([], v1.RandomChoice([v1.CenterCrop(8)], [0.5, 0.5]), "RandomChoice", "p for each"),
    ([], v2.RandomOrder([v2.CenterCrop(8), v2.RandomInvert()]), "RandomOrder", "size"),
    ([], nested(8), "RandomApply", "inside each other"),
    ([], v2.RandomOrder([v2.RandomInvert()] * 250), "RandomOrder", "that many"),
    # Bytes in tensors.
    ([v2.ToImage()], v2.Resize((9, 9), NEAREST), "Resize", "nearest chooses other pixels"),
    ([v2.ToImage()], v2.Resize((9, 9), "nearest-exact"), "Resize", "nearest-exact chooses"),
    ([v2.ToImage()], v2.Resize((9, 9), antialias=None), "Resize", "antialias=None"),
    ([v2.ToImage()], v2.RandomRotation(9, BICUBIC), "RandomRotation", "bicubic"),
    ([v2.ToImage()], v2.ToDtype(torch.float32), "ToDtype", "without scale"),
    ([v2.ToImage()], v2.ToDtype(torch.float16, scale=True), "ToDtype", "float16"),
    ([v2.ToImage()], v2.ToDtype({torch.Tensor: torch.float32}), "ToDtype", "no type for images"),
    ([v2.ToImage()], v2.Normalize(MEAN, STD), "Normalize", "refuses"),
    ([v2.ToImage()], v2.ToPILImage(), "ToPILImage", "no op"),
    ([v1.PILToTensor()], v1.ToTensor(), "ToTensor", "refuses tensors"),
    # Floats.
    ([v1.ToTensor()], v1.ColorJitter(0.5), "ColorJitter", "floats"),
    ([v1.ToTensor()], v1.Resize((9, 9)), "Resize", "floats"),
    ([v1.ToTensor()], v1.RandomResizedCrop(9), "RandomResizedCrop", "floats"),
    ([v1.ToTensor()], v1.RandomGrayscale(), "RandomGrayscale", "floats"),
    ([v1.ToTensor()], v1.GaussianBlur(3), "GaussianBlur", "floats"),
    ([v1.ToTensor()], v2.TrivialAugmentWide(), "TrivialAugmentWide", "floats"),
    ([v1.ToTensor()], v1.RandomRotation(9), "RandomRotation", "floats"),
    ([v1.ToTensor()], v1.RandomErasing(value="random"), "RandomErasing", "after Normalize"),
    ([v1.ToTensor()], v1.RandomErasing(value=0.3), "RandomErasing", "not a byte"),
    ([v1.ToTensor()], v1.Normalize(MEAN[:2], STD[:2]), "Normalize", "2 values"),
    ([v1.ToTensor()], v1.Normalize(MEAN, [0, 1, 1]), "Normalize", "std is 0"),
    ([v1.ToTensor(), v1.FiveCrop(9)], v1.Lambda(abs), "FiveCrop", "one image"),
    # Normalised floats.
    ([v1.ToTensor(), v1.Normalize(MEAN, STD)], v1.Normalize(MEAN, STD), "Normalize", "second"),
    ([v1.ToTensor(), v1.Normalize(MEAN, STD)], v1.RandomCrop(9, 1), "RandomCrop", "normalised"),
    ([v1.ToTensor(), v1.Normalize(MEAN, STD)], v1.CenterCrop(60), "CenterCrop", "zeros"),
    (
        [v1.ToTensor(), v1.Normalize(MEAN, STD)],
        v1.RandomApply([v1.RandomErasing()]),
        "RandomApply",
        "in the list itself",
    ),
    (
        [v1.ToTensor(), v1.Normalize(MEAN, STD), v1.RandomErasing()],
        v1.RandomHorizontalFlip(),
        "RandomHorizontalFlip",
        "after RandomErasing",
    ),
]


@pytest.mark.parametrize(("before", "transform", "name", "why"), STAYS)
def test_what_no_op_can_do_stays_with_its_reason(
    before: list[Any], transform: Any, name: str, why: str
) -> None:
    flip = v1.RandomHorizontalFlip()
    made = translate(v1.Compose([*before, transform, flip]), image_size=SIZE)
    stays = [line for line in made.words if "stays in Python" in line]
    assert stays[0].startswith(f"{name} stays") and why in stays[0], stays[0]
    assert stays[-1].startswith("RandomHorizontalFlip stays")
    assert made.warning is not None and made.warning.startswith(name) and why in made.warning
    assert made.rest is not None and made.rest_input in ("pil", "tensor")
    assert len(made.words) == len(before) + 2


def test_from_the_first_unknown_on_everything_stays() -> None:
    normalize = v1.Normalize(MEAN, STD)
    unknown = v1.Lambda(abs)
    made = translate(v1.Compose([v1.RandomResizedCrop(24), unknown, v1.ToTensor(), normalize]))
    assert made.recipe["ops"] == [{"op": "decode"}, rrc()]
    assert (made.output, made.layout, made.rest_input) == ("u8", "nhwc", "pil")
    assert made.words == [
        "RandomResizedCrop → random_resized_crop",
        "Lambda stays in Python: bothends has no op for it",
        "ToTensor stays in Python: it comes after Lambda",
        "Normalize stays in Python: it comes after Lambda",
    ]
    assert made.warning == (
        "Lambda and all after it stay in Python: bothends has no op for it. That costs what it "
        "costs in PyTorch's loader, in as many workers. What comes before (1 of 4) is prepared by "
        "bothends."
    )


# ---- sizes ----------------------------------------------------------------------------------


def test_a_recipe_ends_where_samples_have_one_size() -> None:
    known, cut = v1.Resize(256), v1.CenterCrop(224)
    assert wholly(v1.Compose([known, cut]), image_size=None).recipe["ops"][1] == resize(256)
    made = translate(v1.Compose([known, v1.Lambda(abs), cut]))
    assert not made.has_fixed_size and made.recipe["ops"] == [{"op": "decode"}]
    assert made.warning is not None
    assert made.warning.startswith("Resize and all after it stay in Python: before Lambda")
    assert made.warning.endswith("Nothing is prepared by bothends.")
    made = translate(v1.Compose([cut, v1.RandomRotation(9, expand=True), v1.Lambda(abs)]))
    assert made.has_fixed_size and len(made.recipe["ops"]) == 2
    assert made.words[1].startswith("RandomRotation stays in Python: before Lambda")
    for maybe in ([cut, v1.RandomInvert()], [v1.RandomInvert(), cut]):
        assert not translate(v1.RandomChoice(maybe)).has_fixed_size
    made = translate(v1.Compose([known, v1.ToTensor()]))
    assert not made.has_fixed_size and made.rest_input == "pil"
    assert made.warning is not None and "at the end" in made.warning


def test_nothing_to_do_is_a_recipe_too() -> None:
    for nothing in (None, torch.nn.Sequential(), v1.Compose([])):
        assert wholly(nothing).recipe["ops"] == [{"op": "decode"}]
        made = translate(nothing)
        assert not made.has_fixed_size and made.rest is None and made.warning is not None


def test_sizes_on_the_way_are_torchvisions() -> None:
    """Whether a crop of normalised values fits tells which size is known."""
    rng = random.Random(7)
    for _ in range(300):
        image = Image.new("RGB", (rng.randint(5, 60), rng.randint(5, 60)))
        side = rng.randint(5, 60)
        before = rng.choice(
            [
                v1.Resize(side),
                v1.Resize(side, max_size=side + rng.randint(1, 20)),
                v1.Pad((1, 2, 3, 4)),
                v1.CenterCrop((side, 9)),
                v1.Compose([v1.Pad(3), v1.Resize(side)]),
                v1.RandomOrder([v1.RandomInvert(), v1.RandomVerticalFlip()]),
            ]
        )
        width, height = before(image).size
        list_ = [before, v1.ToTensor(), v1.Normalize(0.5, 0.5)]
        size = (image.height, image.width)
        exact = v1.Compose([*list_, v1.CenterCrop((height, width))])
        assert translate(exact, image_size=size).rest is None
        for larger in ((height + 1, width), (height, width + 1)):
            made = translate(v1.Compose([*list_, v1.CenterCrop(larger)]), image_size=size)
            assert made.rest is not None, (before, size)


# ---- presets --------------------------------------------------------------------------------


class ClassificationPreset:
    """torchvision's reference training hides its transforms in such a class."""

    def __init__(self, transforms: Any) -> None:
        self.transforms = transforms

    def __call__(self, img: Any) -> Any:
        return self.transforms(img)


@pytest.mark.parametrize("name", PRESETS)
def test_the_reference_presets_translate_wholly(name: str) -> None:
    made = wholly(ClassificationPreset(PRESETS[name]()), image_size=None)
    assert (made.output, made.layout, made.result) == ("f32", "nchw", "tensor")
    assert made.recipe == wholly(PRESETS[name](), image_size=None).recipe
    ops = made.recipe["ops"]
    assert NORMALIZE in ops
    if name.startswith("train"):
        interpolation = name.split()[-1]
        assert ops[1] == rrc(size=[176, 176], interpolation=interpolation)
        assert (ops[-1] == erasing(p=0.1)) == ("erasing" in name)


def test_maes_training_before_the_labels() -> None:
    """Its interpolation is Pillow's number."""
    crop = v1.RandomResizedCrop(224, scale=(0.2, 1.0), interpolation=3)
    list_ = [crop, v1.RandomHorizontalFlip(), v1.ToTensor(), v1.Normalize(MEAN, STD)]
    ops = wholly(v1.Compose(list_), image_size=None).recipe["ops"]
    bicubic = rrc(size=[224, 224], scale=[0.2, 1.0], interpolation="bicubic")
    assert ops[1:4] == [bicubic, FLIP, NORMALIZE]


def test_a_subclass_that_only_gives_parameters_is_known() -> None:
    flip = type("OwnFlip", (v2.RandomHorizontalFlip,), {"__doc__": "None."})()
    for crop in (Cifar10Crop, type("Again", (Cifar10Crop,), {})):
        ops = wholly(v1.Compose([crop(), flip]), image_size=(32, 32)).recipe["ops"]
        assert [op["op"] for op in ops] == ["decode", "random_crop", "random_horizontal_flip"]
    assert translate(type("Own", (Cifar10Crop,), {"forward": abs})(), image_size=SIZE).rest


def test_cifar10s_usual_transform() -> None:
    usual = [v1.RandomCrop(32, padding=4), v1.RandomHorizontalFlip(), v1.ToTensor()]
    made = wholly(v1.Compose([*usual, v1.Normalize(MEAN, STD)]), image_size=(32, 32))
    names = [op["op"] for op in made.recipe["ops"]]
    assert names[:3] == ["decode", "random_crop", "random_horizontal_flip"]


# ---- the order in Python --------------------------------------------------------------------


class Mark(torch.nn.Module):
    """Unknown to bothends; returns what it gets."""

    def forward(self, sample: Any) -> Any:
        return sample


def random_list(rng: random.Random) -> list[Any]:
    """A list as people write it: images, a conversion, tensors; and now and then a surprise."""
    on_images = [
        lambda: v2.RandomResizedCrop(16),
        lambda: v2.RandomHorizontalFlip(1.0),
        lambda: v2.ColorJitter(0.4),
        lambda: v2.Pad(1),
        lambda: v2.RandomRotation(10, expand=rng.random() < 0.5),
        lambda: v2.Resize(rng.choice([20, (20, 21)])),
    ]
    on_floats = [
        lambda: v2.Normalize(MEAN, STD),
        lambda: v2.RandomVerticalFlip(1.0),
        lambda: v2.CenterCrop(10),
        lambda: v2.RandomErasing(1.0),
        lambda: v2.GaussianBlur(3),
    ]
    kinds = [on_images] * rng.randint(0, 4) + [on_floats] * rng.randint(0, 4)
    transforms = [rng.choice(kind)() for kind in kinds]
    middle = kinds.count(on_images)
    transforms[middle:middle] = rng.choice(
        [
            [v2.ToImage(), v2.ToDtype(torch.float32, scale=True)],
            [v2.PILToTensor(), v2.ToDtype(torch.float32, scale=True)],
            [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.ToPureTensor()],
        ]
    )
    for _ in range(rng.randint(0, 2)):
        transforms.insert(rng.randint(0, len(transforms)), Mark())
    return transforms


def folded(rng: random.Random, transforms: list[Any]) -> Any:
    """The same list, parts of it in lists of their own."""
    if len(transforms) > 2 and rng.random() < 0.7:
        at = rng.randint(1, len(transforms) - 1)
        parts = [folded(rng, transforms[:at]), *transforms[at:]]
        return torch.nn.Sequential(*parts) if rng.random() < 0.5 else v2.Compose(parts)
    return v2.Compose(transforms)


@pytest.mark.parametrize("seed", range(200))
def test_what_remains_runs_in_its_order_on_what_it_would_have_got(seed: int) -> None:
    rng = random.Random(seed)
    transforms = random_list(rng)
    whole = v1.Compose([folded(rng, transforms)])
    made = translate(whole, image_size=SIZE if rng.random() < 0.5 else None)
    n_taken = sum("stays in Python" not in line for line in made.words)
    assert len(made.words) == len(transforms)
    assert (made.rest is None) == (n_taken == len(transforms)) == (made.warning is None)
    if made.rest is None:
        return
    image = Image.new("RGB", SIZE[::-1], (200, 100, 50))
    before = functools.reduce(lambda sample, t: t(sample), transforms[:n_taken], image)
    given = before
    if made.rest_input == "tensor":
        assert before.dtype == (torch.float32 if made.output == "f32" else torch.uint8)
        given = before.as_subclass(torch.Tensor)
    assert (made.rest_input == "pil") == isinstance(before, Image.Image)

    expected = run_noting(v2.Compose(transforms[n_taken:]), before)
    assert run_noting(made.rest, given) == expected
    assert [name for name, _ in expected] == [type(t).__name__ for t in transforms[n_taken:]]


def run_noting(transform: Callable[[Any], Any], sample: Any) -> list[tuple[str, type]]:
    """The modules that run, in order, and what each is given."""
    noted: list[tuple[str, type]] = []

    def note(module: Any, given: tuple[Any, ...]) -> None:
        if not isinstance(module, v2.Compose):
            noted.append((type(module).__name__, type(given[0])))

    hook = torch.nn.modules.module.register_module_forward_pre_hook(note)
    try:
        transform(sample)
    finally:
        hook.remove()
    return noted


def test_importing_needs_neither_torch_nor_torchvision() -> None:
    script = (
        "import sys; from bothends import _transforms; "
        "assert not {'torch', 'torchvision', 'PIL'} & set(sys.modules), 'imported'; "
        "assert _transforms.translate(None, image_size=(2, 3)).has_fixed_size"
    )
    subprocess.run([sys.executable, "-c", script], check=True, env=with_package_path())


def with_package_path() -> dict[str, str]:
    import bothends._transforms as module

    return {**os.environ, "PYTHONPATH": str(Path(module.__file__).parents[1])}
