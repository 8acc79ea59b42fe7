"""CIFAR-10, whose images are in pickled batches that the native loader reads."""

from __future__ import annotations

import os
import pickle
from typing import Any

from .code import refuse_batched
from .fields import paired
from .marks import Marks
from .records import Path, Source, Unknown, exact_labels


def cifar10_source(dataset: Any) -> Source:
    """The source of a `CIFAR10` whose images are those of its files.

    Raises:
        Unknown: it is CIFAR-100, or its images were changed.
    """
    if any(c.__qualname__ == "CIFAR100" for c in type(dataset).__mro__):
        raise Unknown("CIFAR-100 is not read, only CIFAR-10")
    refuse_batched(dataset)
    folder = os.path.join(os.getcwd(), dataset.root, dataset.base_folder)
    files = dataset.train_list if dataset.train else dataset.test_list
    names = [os.path.join(folder, file) for file, *_ in files]
    has_own = _has_own_labels(dataset, names)
    to_target = dataset.target_transform
    labels = exact_labels(dataset.targets)
    # Labels that differ from those in the files cannot come from there.
    fields = paired(dataset.targets, labels if has_own else None, to_target)
    return Source(
        name=f"{type(dataset).__name__}, {len(dataset)} images",
        records=Path(names[0] if len(names) == 1 else folder),
        n_samples=len(dataset),
        transform=dataset.transform,
        fields=fields,
        image_size=(32, 32),
        marks=Marks()
        .of(dataset)
        .data(dataset, "data", "targets")
        .transforms(dataset, "transform", "target_transform"),
    )


def _has_own_labels(dataset: Any, files: list[str]) -> bool:
    """Makes sure that the images are those of the files; returns whether the labels have been
    replaced.

    Raises:
        Unknown: the images differ, or their number does.
    """
    start = 0
    labels: list[int] = []
    for name in files:
        with open(name, "rb") as file:
            # As torchvision has read it, after verifying its checksum.
            batch = pickle.load(file, encoding="latin1")
        images = batch["data"].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        own = dataset.data[start : start + len(images)]
        if own.shape != images.shape or not (own == images).all():
            raise _changed(dataset)
        start += len(images)
        labels += batch["labels"]
    if start != len(dataset.data) or start != len(dataset):
        raise _changed(dataset)
    return bool(list(dataset.targets) == labels)


def _changed(dataset: Any) -> Unknown:
    return Unknown(
        f"the images of the {type(dataset).__name__} are not those of its files",
        "use torch.utils.data.Subset for a part of it",
    )
