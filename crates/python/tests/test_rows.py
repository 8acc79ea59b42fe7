"""Rows of a batch: `default_collate` gives the whole back, and else they are plain samples."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import torch.utils.data
from bothends._dataloader.rows import ImageRow, is_default_collate, named_rows, rows
from torch.utils.data import default_collate

N = 6


def batch() -> tuple[Any, Any]:
    return torch.rand(N, 3, 4, 5), torch.arange(N) * 10


def plain(samples: list[Any]) -> list[Any]:
    """The samples, without what they know."""
    kind = {True: tuple, False: dict}
    return [kind[isinstance(sample, tuple)](sample) for sample in samples]


def same(a: Any, b: Any) -> bool:
    """Whether two nests are of the same types and values."""
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


def test_rows_are_samples_as_of_a_data_set() -> None:
    images, labels = batch()
    samples = rows(images, labels)
    assert type(samples) is list
    for i, sample in enumerate(samples):
        image, label = sample
        assert isinstance(sample, tuple)
        assert type(label) is int
        assert label == 10 * i
        assert torch.equal(image, images[i])
        assert sample == (image, label)
        assert hash(sample) == hash((image, label))


def test_the_whole_comes_back_without_a_copy() -> None:
    images, labels = batch()
    collated = default_collate(rows(images, labels))
    assert type(collated) is list
    assert collated[0] is images
    assert collated[1] is labels
    assert default_collate(tuple(rows(images, labels)))[0] is images


def test_views_of_a_sample() -> None:
    views, labels = [batch()[0], torch.rand(N, 3, 2, 2)], batch()[1]
    for kind in (list, tuple):
        samples = rows(kind(views), labels)
        assert type(samples[0][0]) is kind
        expected = default_collate(plain(samples))
        collated = default_collate(samples)
        assert same(collated, expected)
        assert [each.data_ptr() for each in collated[0]] == [each.data_ptr() for each in views]


def test_targets_that_are_any_objects() -> None:
    images, labels = batch()
    targets = [{"boxes": torch.rand(4), "id": i, "name": str(i)} for i in range(N)]
    samples = rows(images, targets, labels)
    expected = default_collate(plain(samples))
    collated = default_collate(samples)
    assert collated[0] is images
    assert collated[2] is labels
    assert same(collated, expected)
    uneven = rows(images, [torch.rand(i) for i in range(N)])
    assert [len(target) for _, target in uneven] == list(range(N))
    with pytest.raises(RuntimeError, match="equal size"):
        default_collate(uneven)


def test_labels_of_other_types_are_tensors() -> None:
    images, _ = batch()
    for targets in (torch.rand(N), torch.rand(N, 7), torch.arange(N, dtype=torch.int32)):
        samples = rows(images, targets)
        assert same(default_collate(samples), default_collate(plain(samples)))


def test_named_rows() -> None:
    images, labels = batch()
    masks = torch.zeros(N, 4, 5, dtype=torch.bool)
    names = [f"{i}.jpg" for i in range(N)]
    fields = {"label": labels, "image": images, "mask": masks, "name": names}
    samples = named_rows(fields)
    assert isinstance(samples[0], dict)
    assert list(samples[2]) == list(fields)
    assert samples[2]["label"] == 20
    assert samples[2]["name"] == "2.jpg"
    expected = default_collate(plain(samples))
    collated = default_collate(samples)
    assert same(collated, expected)
    assert all(collated[name] is fields[name] for name in ("label", "image", "mask"))
    many = named_rows({"views": [images, images], "label": labels}, images=("views",))
    assert default_collate(many)["views"][1] is images


CHANGES: dict[str, Callable[[list[Any]], list[Any]]] = {
    "a part": lambda samples: samples[:-1],
    "one": lambda samples: samples[:1],
    "reversed": lambda samples: samples[::-1],
    "twice": lambda samples: samples + samples,
    "one twice": lambda samples: [*samples[:-1], samples[0]],
    "with a plain one": lambda samples: [*samples[:-1], plain(samples)[-1]],
    "behind a plain one": lambda samples: [plain(samples)[0], *samples[1:]],
    "copies": lambda samples: [copy.copy(sample) for sample in samples],
    "deep copies": copy.deepcopy,
    "pickled": lambda samples: pickle.loads(pickle.dumps(samples)),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("make", [rows, lambda *b: named_rows({"image": b[0], "label": b[1]})])
def test_others_than_all_in_order_are_plain(
    make: Callable[..., list[Any]], change: Callable[[list[Any]], list[Any]]
) -> None:
    images, labels = batch()
    samples = change(make(images, labels))
    expected = default_collate(plain(samples))
    collated = default_collate(samples)
    assert same(collated, expected)
    first = collated[0] if isinstance(collated, list) else collated["image"]
    assert first.data_ptr() != images.data_ptr()


def test_rows_of_two_batches() -> None:
    first, second = rows(*batch()), rows(*batch())
    mixed = [*first[:3], *second[3:]]
    assert same(default_collate(mixed), default_collate(plain(mixed)))


def in_place(change: Callable[[Any], Any]) -> Callable[[list[Any]], None]:
    def to_all(samples: list[Any]) -> None:
        for sample in samples:
            change(sample[0])

    return to_all


def transposed(image: Any) -> None:
    image.data = image.data.transpose(0, 2).contiguous()


@pytest.mark.parametrize(
    "change",
    [
        in_place(lambda image: image.unsqueeze_(0)),
        in_place(lambda image: image.requires_grad_()),
        in_place(transposed),
        in_place(lambda image: image.mul_(2)),
        lambda samples: samples[1][0].zero_(),
    ],
)
def test_what_is_changed_in_place_counts(change: Callable[[list[Any]], None]) -> None:
    images, labels = batch()
    samples = rows(images, labels)
    change(samples)
    expected = default_collate(plain(samples))
    assert same(default_collate(samples), expected)
    assert default_collate(rows(*batch()))[0].requires_grad is False


@pytest.mark.parametrize(
    "change",
    [
        lambda sample: sample.update(label=7),
        lambda sample: sample.update(more=1),
        lambda sample: sample.pop("label"),
        lambda sample: sample.update(image=sample["image"] + 1),
        lambda sample: sample.update(label=sample.pop("image"), image=1),
        lambda sample: sample.update(image=sample.pop("image")),
    ],
)
def test_a_changed_dict_counts(change: Callable[[dict[str, Any]], None]) -> None:
    images, labels = batch()
    samples = named_rows({"image": images, "label": labels})
    for sample in samples:
        change(sample)
    assert same(default_collate(samples), default_collate(plain(samples)))


def test_a_changed_list_of_views_counts() -> None:
    images, labels = batch()
    for change in (list.reverse, list.pop, lambda views: views.append(views[0])):
        samples = rows([images, images + 1], labels)
        for views, _ in samples:
            change(views)
        assert same(default_collate(samples), default_collate(plain(samples)))


def test_a_second_collate_shares_nothing_with_the_first() -> None:
    images, labels = batch()
    samples = rows(images, labels)
    first, second = default_collate(samples), default_collate(samples)
    assert same(first, second)
    first[0].zero_()
    assert second[0].abs().sum() > 0


def test_a_collate_of_a_part_of_each_row() -> None:
    images, labels = batch()
    nested = [(sample, i) for i, sample in enumerate(rows(images, labels))]
    collated = default_collate(nested)
    assert collated[0][0] is images
    assert collated[1].tolist() == list(range(N))
    stacked = [torch.stack(list(column)) for column in list(zip(*rows(images, labels)))[:1]]
    assert torch.equal(stacked[0], images)


def test_image_rows_stand_for_images_in_any_sample() -> None:
    images, labels = batch()
    for whole in (images, [images, images + 1]):
        stand_ins = [ImageRow(whole, row) for row in range(N)]
        samples = [{"x": (row, i), "y": i} for i, row in enumerate(stand_ins)]
        real = [{"x": (row.image, i), "y": i} for i, row in enumerate(stand_ins)]
        expected = default_collate(real)
        collated = default_collate(samples)
        assert same(collated, expected)
        first = collated["x"][0] if whole is images else collated["x"][0][0]
        assert first is images
        for part in (stand_ins[1:], stand_ins[::-1], [*stand_ins[:-1], stand_ins[0]]):
            assert same(default_collate(part), default_collate([row.image for row in part]))
    mixed = [ImageRow(images, 0), images[1]]
    assert torch.equal(default_collate(mixed), images[:2])


def test_the_empty_list_is_refused_as_ever() -> None:
    samples = rows(torch.rand(0, 3), torch.arange(0))
    assert samples == []
    with pytest.raises(IndexError):
        default_collate(samples)


def test_a_collate_with_another_map_takes_them_for_tuples() -> None:
    from torch.utils.data._utils.collate import collate

    images, labels = batch()
    fns = {torch.Tensor: lambda batch, **_: len(batch), int: lambda batch, **_: sum(batch)}
    assert collate(rows(images, labels), collate_fn_map=fns) == [N, 150]


def test_mixup_of_torchvision() -> None:
    v2 = pytest.importorskip("torchvision.transforms.v2", reason="no torchvision")
    images, labels = batch()
    mixup = v2.MixUp(num_classes=60)
    torch.manual_seed(1)
    expected = mixup(*default_collate(plain(rows(images, labels))))
    torch.manual_seed(1)
    mixed = mixup(*default_collate(rows(images, labels)))
    assert same(list(mixed), list(expected))


def test_rows_made_of_their_type_are_plain() -> None:
    samples = rows(*batch())
    # As libraries do that walk through nests.
    again = [type(sample)(item for item in sample) for sample in samples]
    assert same(default_collate(again), default_collate(plain(samples)))
    assert type(samples[0][:1]) is tuple


def test_which_collate_functions_are_the_default() -> None:
    assert is_default_collate(None)
    assert is_default_collate(default_collate)
    assert is_default_collate(torch.utils.data.dataloader.default_collate)
    assert not is_default_collate(lambda samples: default_collate(samples))
    assert not is_default_collate(torch.utils.data.default_convert)
