"""What scripts/bench-drop-in compares: data sets, transforms, samplers and collate functions as
training scripts have them, each with the same arguments for two loaders.

Run as a program it measures one loader once: cases.py CASE LOADER DATA WORKERS SECONDS prints
{"images_per_s": ...}, the median of whole epochs behind the first one.
"""

import json
import statistics
import sys
import time
from pathlib import Path

import torch
import torch.utils.data
from PIL import Image
from torchvision import datasets, transforms
from torchvision.transforms import autoaugment

BATCH = 64
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class ClassificationPresetTrain:
    """The wrapper that torchvision's reference training puts round its transforms."""

    def __init__(self, *, crop_size, auto_augment_policy=None, random_erase_prob=0.0):
        trans = [transforms.RandomResizedCrop(crop_size), transforms.RandomHorizontalFlip()]
        if auto_augment_policy == "ra":
            trans.append(autoaugment.RandAugment())
        if auto_augment_policy == "ta_wide":
            trans.append(autoaugment.TrivialAugmentWide())
        trans += [transforms.PILToTensor(), transforms.ConvertImageDtype(torch.float)]
        trans.append(transforms.Normalize(MEAN, STD))
        if random_erase_prob > 0:
            trans.append(transforms.RandomErasing(p=random_erase_prob))
        self.transforms = transforms.Compose(trans)

    def __call__(self, img):
        return self.transforms(img)


class Unknown(torch.utils.data.Dataset):
    """A data set of somebody's own."""

    def __init__(self, root, transform):
        self.files = sorted(str(path) for path in Path(root).rglob("*.JPEG"))
        self.transform = transform

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        with Image.open(self.files[index]) as image:
            return self.transform(image.convert("RGB")), index


def plain():
    return transforms.Compose(
        [
            transforms.RandomResizedCrop(224),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize(MEAN, STD),
        ]
    )


def timm_train():
    from timm.data import create_transform

    return create_transform(
        224,
        is_training=True,
        auto_augment="rand-m9-mstd0.5-inc1",
        interpolation="random",
        re_prob=0.25,
        re_mode="pixel",
    )


def pil_lambda():
    return transforms.Compose(
        [
            transforms.RandomResizedCrop(224),
            transforms.Lambda(lambda image: image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)),
            transforms.ToTensor(),
            transforms.Normalize(MEAN, STD),
        ]
    )


def preset(**arguments):
    return ClassificationPresetTrain(crop_size=224, **arguments)


def folder(make):
    return lambda root: (datasets.ImageFolder(root, make()), {"shuffle": True})


def weighted(root):
    data = datasets.ImageFolder(root, plain())
    sampler = torch.utils.data.WeightedRandomSampler(torch.rand(len(data)) + 0.1, len(data))
    return data, {"sampler": sampler}


def subset(root):
    data = datasets.ImageFolder(root, plain())
    return torch.utils.data.Subset(data, torch.randperm(len(data)).tolist()), {"shuffle": True}


def collated(collate_fn):
    data = folder(plain)
    return lambda root: (data(root)[0], {"shuffle": True, "collate_fn": collate_fn})


def mine(root):
    return Unknown(root, plain()), {"shuffle": True}


# Each case: what it loads; the loader and the case that it is compared with.
CASES = {
    "plain": (folder(plain), ("torch", "plain")),
    "torchvision preset": (folder(preset), ("torch", "torchvision preset")),
    "torchvision preset, ra, erasing": (
        folder(lambda: preset(auto_augment_policy="ra", random_erase_prob=0.1)),
        ("torch", "torchvision preset, ra, erasing"),
    ),
    "torchvision preset, ta_wide, erasing": (
        folder(lambda: preset(auto_augment_policy="ta_wide", random_erase_prob=0.1)),
        ("torch", "torchvision preset, ta_wide, erasing"),
    ),
    "timm create_transform": (folder(timm_train), ("torch", "timm create_transform")),
    "weighted sampler": (weighted, ("bothends", "plain")),
    "Subset": (subset, ("bothends", "plain")),
    "collate_fn=default_collate": (
        collated(torch.utils.data.default_collate),
        ("torch", "collate_fn=default_collate"),
    ),
    "collate_fn=lambda: default_collate": (
        collated(lambda batch: torch.utils.data.default_collate(batch)),
        ("torch", "collate_fn=lambda: default_collate"),
    ),
    "PIL lambda after the crop": (folder(pil_lambda), ("torch", "PIL lambda after the crop")),
    "unknown data set": (mine, ("torch", "unknown data set")),
}


def rate(case, loader, root, workers, seconds):
    """Images per second of whole epochs, the first one left out; and who loaded."""
    data, arguments = CASES[case][0](root)
    if loader == "bothends":
        from bothends.torch import DataLoader
    else:
        from torch.utils.data import DataLoader
    batches = DataLoader(
        data, batch_size=BATCH, num_workers=workers, persistent_workers=workers > 0, **arguments
    )
    rates = []
    begun = time.monotonic()
    while len(rates) < 2 or time.monotonic() - begun < seconds:
        started = time.perf_counter()
        n = sum(len(images) for images, _ in batches)
        rates.append(n / (time.perf_counter() - started))
    who = batches.stats()["loader"] if loader == "bothends" else "pytorch"
    return {"images_per_s": statistics.median(rates[1:]), "loader": who, "epochs": len(rates)}


if __name__ == "__main__":
    case, loader, root, workers, seconds = sys.argv[1:]
    print(json.dumps(rate(case, loader, root, int(workers), float(seconds))))
