#!/usr/bin/env python3
"""Trains a small residual network on CIFAR-10, with PyTorch's DataLoader or with bothends.

    train_cifar10.py DATA [--loader bothends|torch] [--seed 0] [--epochs 6] [--workers 2]
                          [--csd SPEC]... [--checkpoint FILE]

DATA is the folder that `torchvision.datasets.CIFAR10` downloads into, or one with class folders
of images below `train` and `test`. One line differs between the two loaders: look for
`DataLoader` below. With --checkpoint the training is saved after every 50 steps and goes on from
there when it is started again: with bothends in the middle of an epoch, exactly; with PyTorch's
loader from the beginning of the epoch, which has no such state.

Prints one JSON line at the end: accuracy on the test images, seconds of training, the part of them
that was spent in steps (`busy`; the rest waited for batches), CPU seconds. With
`--loader torch --workers 0` every batch is made while the network waits.
"""

import argparse
import json
import math
import os
import resource
import time
from pathlib import Path

import torch
import torch.utils.data
from torch import nn
from torchvision import datasets
from torchvision.transforms import v2

import bothends.torch

BATCH = 128
FOR_TRAINING = {"shuffle": True, "drop_last": True}
FOR_TESTING = {"shuffle": False, "drop_last": False}
SAVE_EVERY = 50
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.247, 0.2435, 0.2616)
TO_TENSOR = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
TRAIN = v2.Compose([v2.RandomCrop(32, padding=4), v2.RandomHorizontalFlip(), *TO_TENSOR])
# Of 32 x 32 images it changes nothing, but says that all have one size.
TEST = v2.Compose([v2.Resize((32, 32)), *TO_TENSOR])


def data_set(root, split, transform):
    folder = Path(root) / split
    if folder.is_dir():
        return datasets.ImageFolder(folder, transform)
    return datasets.CIFAR10(root, train=split == "train", transform=transform)


def loader(options, data, order):
    common = {"batch_size": BATCH, "num_workers": options.workers, **order}
    if options.loader == "torch":
        keep = options.workers > 0
        return torch.utils.data.DataLoader(data, persistent_workers=keep, **common)
    return bothends.torch.DataLoader(data, csds=options.csd, **common)


class Block(nn.Module):
    """Halves the sides and doubles the channels."""

    def __init__(self, n_in, n_out):
        super().__init__()
        self.first = nn.Conv2d(n_in, n_out, 3, stride=2, padding=1, bias=False)
        self.second = nn.Conv2d(n_out, n_out, 3, padding=1, bias=False)
        self.past = nn.Conv2d(n_in, n_out, 1, stride=2, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(n_out) for _ in range(2))

    def forward(self, x):
        y = torch.relu(self.norms[0](self.first(x)))
        return torch.relu(self.norms[1](self.second(y)) + self.past(x))


def network(n_classes):
    return nn.Sequential(
        nn.Conv2d(3, 24, 3, padding=1, bias=False),
        nn.BatchNorm2d(24),
        nn.ReLU(),
        Block(24, 48),
        Block(48, 96),
        Block(96, 128),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(128, n_classes),
    )


class Training:
    """What is saved: the network, the optimiser, the place in the data."""

    def __init__(self, network, path, n_steps):
        self.path = path
        self.network = network
        self.optimiser = torch.optim.SGD(
            self.network.parameters(), 0.1, momentum=0.9, weight_decay=5e-4, nesterov=True
        )
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(self.optimiser, 0.2, n_steps)
        self.epoch = self.seconds = self.cpu_seconds = self.busy_seconds = 0

    def step(self, images, labels):
        began = time.perf_counter()
        loss = nn.functional.cross_entropy(self.network(images), labels)
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()
        self.schedule.step()
        self.busy_seconds += time.perf_counter() - began
        return loss

    def save(self, batches, seconds):
        if self.path is None:
            return
        parts = {"network": self.network, "optimiser": self.optimiser, "schedule": self.schedule}
        state = {name: part.state_dict() for name, part in parts.items()}
        if hasattr(batches, "state_dict"):
            state["batches"] = batches.state_dict()
        state |= {"epoch": self.epoch, "seconds": seconds}
        state["cpu_seconds"] = self.cpu_seconds + cpu_seconds()
        state["busy_seconds"] = self.busy_seconds
        torch.save(state, f"{self.path}.new")
        os.replace(f"{self.path}.new", self.path)

    def load(self, batches):
        if self.path is None or not self.path.exists():
            return
        state = torch.load(self.path)
        for name in ("network", "optimiser", "schedule"):
            getattr(self, name).load_state_dict(state[name])
        if "batches" in state:
            batches.load_state_dict(state["batches"])
        self.epoch, self.seconds = state["epoch"], state["seconds"]
        self.cpu_seconds, self.busy_seconds = state["cpu_seconds"], state["busy_seconds"]


def train(options, network, batches):
    training = Training(network, options.checkpoint, options.epochs * len(batches))
    training.load(batches)
    began = time.perf_counter() - training.seconds
    training.network.train()
    while training.epoch < options.epochs:
        if hasattr(batches, "set_epoch"):
            batches.set_epoch(training.epoch)
        # Nothing is left of an epoch that was saved after its last step.
        loss = math.nan
        for step, (images, labels) in enumerate(batches, 1):
            loss = training.step(images, labels)
            # PyTorch's loader has no place to go on from but an epoch's beginning.
            if step % SAVE_EVERY == 0 and hasattr(batches, "state_dict"):
                training.save(batches, time.perf_counter() - began)
        seconds = time.perf_counter() - began
        print(f"epoch {training.epoch}: loss {loss:.3f}, {seconds:.0f} s", flush=True)
        training.epoch += 1
        training.save(batches, seconds)
    return training, time.perf_counter() - began


def accuracy(network, batches):
    network.eval()
    right = total = 0
    with torch.inference_mode():
        for images, labels in batches:
            right += (network(images).argmax(1) == labels).sum().item()
            total += len(labels)
    return right / total


def cpu_seconds():
    parts = [resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(part.ru_utime + part.ru_stime for part in parts)


def result(options, training, accuracy, seconds):
    shown = {"loader": options.loader, "seed": options.seed, "epochs": options.epochs}
    shown |= {"accuracy": accuracy, "seconds": seconds}
    shown |= {"busy": training.busy_seconds / seconds}
    return shown | {"cpu_seconds": training.cpu_seconds + cpu_seconds()}


def parser(about):
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--loader", choices=["bothends", "torch"], default="bothends")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--csd", action="append", default=[], help="a device, for bothends")
    parser.add_argument("--checkpoint", type=Path)
    return parser


def main():
    options = parser(__doc__).parse_args()
    torch.manual_seed(options.seed)
    train_set = data_set(options.data, "train", TRAIN)
    batches = loader(options, train_set, FOR_TRAINING)
    training, seconds = train(options, network(10), batches)
    # CPU seconds of PyTorch's workers count once they have ended.
    del batches
    test_set = data_set(options.data, "test", TEST)
    right = accuracy(training.network, loader(options, test_set, FOR_TESTING))
    print(json.dumps(result(options, training, right, seconds)))


if __name__ == "__main__":
    main()
