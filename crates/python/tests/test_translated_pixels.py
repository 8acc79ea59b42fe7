"""A translated transform gives torchvision's pixels, in the layout and type it says.

These are the deterministic transforms. The tests of crates/core (`draws`) compare random draws.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("torchvision", reason="torchvision is not installed")
bothends = pytest.importorskip("bothends", reason="bothends is not built")
if not hasattr(bothends, "Loader"):
    pytest.skip("bothends is not built", allow_module_level=True)

import torchvision.transforms as v1
from bothends._transforms import translate
from torchvision.transforms import InterpolationMode, v2

from compare_transforms import SIZE, STD, certain, furthest, pixels_of_box, views, write_images
from translations import PRESETS


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Any]]:
    folder = tmp_path_factory.mktemp("images")
    return folder, write_images(folder)


def loaded(folder: Path, transform: Any, n_images: int) -> list[Any]:
    """What bothends makes of all images, one batch for each view."""
    made = translate(transform)
    assert made.rest is None and made.has_fixed_size, made.words
    loader = bothends.Loader(
        folder,
        made.recipe,
        batch_size=n_images,
        shuffle=False,
        workers=1,
        output=made.output,
        layout=made.layout,
        side_index="off",
    )
    ((images, _),) = list(loader)
    return images if isinstance(images, list) else [images]


def cases() -> list[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # v2 calls ToTensor deprecated
        tables = {"v1": (v1, certain(v1)), "v2": (v2, certain(v2))}
    return [
        pytest.param(version.Compose(transforms), most, id=f"{name} {case}")
        for name, (version, table) in tables.items()
        for case, (transforms, most) in table.items()
    ]


@pytest.mark.parametrize(("transform", "most"), cases())
def test_pixels_are_torchvisions(data: Any, transform: Any, most: float) -> None:
    folder, images = data
    results = [views(transform(image)) for image in images]
    theirs = [torch.stack(batch) for batch in zip(*results, strict=True)]
    ours = loaded(folder, transform, len(images))
    assert len(ours) == len(theirs)
    assert all(furthest(*pair) <= most for pair in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("name", [name for name in PRESETS if name.startswith("eval")])
def test_pixels_of_the_reference_evaluation_are_torchvisions(data: Any, name: str) -> None:
    folder, images = data
    transform = PRESETS[name]()
    theirs = torch.stack([transform(image) for image in images])
    (ours,) = loaded(folder, transform, len(images))
    # v2 rounds floats otherwise. Bytes of tensors may be 1 apart (docs/ops.md); of images made
    # five times larger, bicubic ones 3.
    n_levels = (3.001 if "bicubic" in name else 1.001) if "tensor" in name else 0
    assert furthest(ours, theirs) <= n_levels / 255 / min(STD) + (2e-6 if "v2" in name else 0)


@pytest.mark.parametrize("interpolation", [InterpolationMode.BILINEAR, InterpolationMode.BICUBIC])
def test_a_given_crop_box_has_torchvisions_pixels(data: Any, interpolation: Any) -> None:
    folder, images = data
    # All of the image's middle is a box that chance cannot move.
    height, width = SIZE
    middle = v1.RandomResizedCrop((17, 23), (1, 1), (width / height,) * 2, interpolation)
    transform = v1.Compose([v1.CenterCrop(SIZE), middle, v1.PILToTensor()])
    (ours,) = loaded(folder, transform, len(images))
    boxes = [
        (round((image.height - height) / 2), round((image.width - width) / 2), height, width)
        for image in images
    ]
    pairs = zip(images, boxes, strict=True)
    theirs = [pixels_of_box(image, box, (17, 23), interpolation) for image, box in pairs]
    assert furthest(ours, torch.stack(theirs)) == 0
