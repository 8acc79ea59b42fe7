#!/usr/bin/env python3
"""Learns to recognise 500 photographs by boxes it has not seen, with PyTorch's DataLoader or
with bothends.

    finetune_imagenet500.py DATA [--start FILE] [--loader bothends|torch] [--seed 0]
                                 [--epochs 8] [--workers 2] [--csd SPEC]... [--checkpoint FILE]

DATA is a folder of class folders, one photograph or more in each. --start is a checkpoint of
train_cifar10.py, whose network gets a new head; without it the network begins at random. Trains
on random boxes of 64 x 64, tests on the centre. What is printed and saved is as there.
"""

import json
import sys
from pathlib import Path

import torch
from torch import nn
from torchvision import datasets
from torchvision.transforms import v2

import train_cifar10 as base

TRAIN = v2.Compose(
    [v2.RandomResizedCrop(64, scale=(0.25, 1.0)), v2.RandomHorizontalFlip(), *base.TO_TENSOR]
)
TEST = v2.Compose([v2.Resize(80), v2.CenterCrop(64), *base.TO_TENSOR])


def network(n_classes, start):
    made = base.network(10)
    if start is not None:
        made.load_state_dict(torch.load(start)["network"])
    made[-1] = nn.Linear(made[-1].in_features, n_classes)
    return made


def main():
    parser = base.parser(__doc__)
    parser.add_argument("--start", type=Path)
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    train_set, test_set = (datasets.ImageFolder(options.data, t) for t in (TRAIN, TEST))
    batches = base.loader(options, train_set, base.FOR_TRAINING)
    made = network(len(train_set.classes), options.start)
    training, seconds = base.train(options, made, batches)
    del batches  # as there
    right = base.accuracy(made, base.loader(options, test_set, base.FOR_TESTING))
    print(json.dumps(base.result(options, training, right, seconds)))


if __name__ == "__main__":
    sys.exit(main())
