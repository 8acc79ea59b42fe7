#!/usr/bin/env python3
"""Trains a ResNet in bfloat16 on a GPU, from a loader whose batches end in the GPU's memory.

    train_on_gpu.py DATA [--loader bothends|torch] [--model resnet18] [--batch-size 256]
                         [--epochs 3] [--workers 8] [--csd SPEC]...

DATA is a folder with class folders of images, below `train` or directly, or the folder that
`torchvision.datasets.CIFAR10` downloads into. With bothends `device="cuda"` is all that the loop needs:
images and labels are on the GPU when it gets them, and a batch is copied and normalised there while
the step before runs. With `--loader torch` the same network is trained by PyTorch's loader,
with pinned memory and copies that do not block. Without a GPU a few steps run on the processor.

Prints a JSON line for each epoch: loss, images/s, and with bothends the way that batches took.
"""

import argparse
import json
import time
from pathlib import Path

import torch
import torch.utils.data
import torchvision
from torch import nn
from torchvision import datasets
from torchvision.transforms import v2

import bothends.torch

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
TO_TENSOR = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
PHOTOS = v2.Compose([v2.RandomResizedCrop(224), v2.RandomHorizontalFlip(), *TO_TENSOR])
CIFAR = v2.Compose([v2.RandomCrop(32, padding=4), v2.RandomHorizontalFlip(), *TO_TENSOR])
STEPS_WITHOUT_GPU = 3


def data_set(root):
    if (root / "cifar-10-batches-py").is_dir():
        return datasets.CIFAR10(root, train=True, transform=CIFAR)
    folder = root / "train"
    return datasets.ImageFolder(folder if folder.is_dir() else root, PHOTOS)


def loader(options, data, device):
    common = {"batch_size": options.batch_size, "num_workers": options.workers}
    common |= {"shuffle": True, "drop_last": True}
    if options.loader == "torch":
        keep = options.workers > 0
        return torch.utils.data.DataLoader(
            data, pin_memory=device == "cuda", persistent_workers=keep, **common
        )
    return bothends.torch.DataLoader(data, csds=options.csd, device=device, **common)


def network(options, n_classes, device):
    made = getattr(torchvision.models, options.model)(num_classes=n_classes)
    return made.to(device, memory_format=torch.channels_last)


def train(options, batches, made, device):
    optimiser = torch.optim.SGD(made.parameters(), 0.1, momentum=0.9, weight_decay=1e-4)
    for epoch in range(options.epochs):
        began, n, loss = time.perf_counter(), 0, None
        for step, (images, labels) in enumerate(batches, 1):
            # Where bothends has put them there already, this is nothing.
            images, labels = (x.to(device, non_blocking=True) for x in (images, labels))
            images = images.contiguous(memory_format=torch.channels_last)
            with torch.autocast(device, torch.bfloat16):
                loss = nn.functional.cross_entropy(made(images), labels)
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            optimiser.step()
            n += len(labels)
            if device == "cpu" and step == STEPS_WITHOUT_GPU:
                break
        # Reading the loss waits for the GPU, so the seconds are those of the work.
        shown = {"epoch": epoch, "loss": None if loss is None else round(loss.item(), 4)}
        shown["images_per_s"] = round(n / (time.perf_counter() - began), 1)
        if options.loader == "bothends":
            shown["path"] = batches.stats().get("path")
        print(json.dumps(shown), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--loader", choices=["bothends", "torch"], default="bothends")
    parser.add_argument("--model", default="resnet18", help="of torchvision.models")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--csd", action="append", default=[], help="a device, for bothends")
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu":
        print(f"PyTorch has no GPU here; {STEPS_WITHOUT_GPU} steps an epoch on the processor")
        options.batch_size = min(options.batch_size, 8)
    torch.manual_seed(0)
    data = data_set(options.data)
    batches = loader(options, data, device)
    train(options, batches, network(options, len(data.classes), device), device)


if __name__ == "__main__":
    main()
