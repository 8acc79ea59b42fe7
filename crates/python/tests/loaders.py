"""`bothends.torch.DataLoader`s that load themselves, and data sets whose labels number their
samples, so that an order can be read off a stream."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
import torchvision.transforms as v1
from bothends.torch import DataLoader
from torchvision.datasets import ImageFolder

EVAL = v1.Compose([v1.Resize(36), v1.CenterCrop(32), v1.ToTensor()])
TRAIN = v1.Compose([v1.RandomResizedCrop(32), v1.RandomHorizontalFlip(), v1.ToTensor()])
DEVICE = {"csds": ["sim:ideal,rate=2000"]}


def numbered(root: Path, transform: Any = EVAL) -> ImageFolder:
    """A folder of images in which the label of sample i is i."""
    dataset = ImageFolder(root, transform)
    dataset.samples = dataset.imgs = [(path, i) for i, (path, _) in enumerate(dataset.samples)]
    dataset.targets = list(range(len(dataset.samples)))
    return dataset


def ours(dataset: Any, **options: Any) -> DataLoader:
    """A loader that must not fall back, and has nothing to warn of."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return DataLoader(dataset, **{"batch_size": 4, **options})


def quiet(dataset: Any, **options: Any) -> DataLoader:
    """A loader that may warn, of transforms that remain in Python."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return DataLoader(dataset, **{"batch_size": 4, **options})


def older(state: dict[str, Any]) -> dict[str, Any]:
    """The state as versions wrote it whose loader had no checksum over all of it."""
    items = {"items": state["items"][:3]} if state.get("items", [0])[0] else {}
    rest = {k: v for k, v in state.items() if k not in ("loader_checksum", "items")}
    return {**rest, **items}


def order(loader: Iterable[Any]) -> list[list[int]]:
    """An epoch's samples, batch by batch."""
    return [labels.tolist() for _, labels in loader]


def stream(loader: Iterable[Any]) -> list[tuple[list[int], bytes]]:
    """An epoch: the samples of each batch, and its pixels."""
    return [(labels.tolist(), images.numpy().tobytes()) for images, labels in loader]


def pictures(loader: Iterable[Any]) -> Any:
    """The images of an epoch in one tensor."""
    return torch.cat([images for images, _ in loader])
