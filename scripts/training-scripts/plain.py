"""A training loop as everybody writes one: with no sampler or with any, in one process or under
torchrun, unseeded."""

import os

import torch
import torch.distributed as dist
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    RandomSampler,
    Subset,
    WeightedRandomSampler,
    random_split,
)
from torchvision import datasets, transforms
from bothends.torch import DataLoader  # bothends

import notes
import tiny


def chosen(args, dataset):
    """The data set and the arguments that choose its samples. Seeded, an order follows from the
    epoch; else from whatever PyTorch's generator gives."""
    generator = args.generator
    batches = {"batch_size": args.batch_size}
    if args.order == "weighted":
        weights = torch.arange(1, len(dataset) + 1).double()
        sampler = WeightedRandomSampler(weights, 60, generator=generator)
        return dataset, {"sampler": sampler, **batches}
    if args.order == "replacement":
        return dataset, {"sampler": RandomSampler(dataset, True, 60, generator), **batches}
    if args.order == "batches":
        order = RandomSampler(dataset, generator=generator)
        return dataset, {"batch_sampler": BatchSampler(order, args.batch_size, drop_last=False)}
    if args.order == "split":
        part, _ = random_split(dataset, [0.7, 0.3], torch.Generator().manual_seed(3))
        return Subset(part, range(1, len(part), 2)), {"shuffle": True, **batches}
    return dataset, {"shuffle": True, "drop_last": args.drop, **batches}


def train_loader(args):
    transform = transforms.Compose(
        [
            transforms.RandomResizedCrop(tiny.SIZE),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize(tiny.MEAN, tiny.STD),
        ]
    )
    dataset = datasets.ImageFolder(os.path.join(args.data, "train"), transform)
    dataset, choice = chosen(args, dataset)
    return DataLoader(dataset, num_workers=args.workers, **choice)


def val_loader(args):
    transform = transforms.Compose(
        [
            transforms.Resize(tiny.SIZE + 8),
            transforms.CenterCrop(tiny.SIZE),
            transforms.ToTensor(),
            transforms.Normalize(tiny.MEAN, tiny.STD),
        ]
    )
    dataset = datasets.ImageFolder(os.path.join(args.data, "val"), transform)
    return DataLoader(dataset, batch_size=args.batch_size, num_workers=args.workers)


def evaluate(model, loader, epoch):
    loss_sum, n = 0.0, 0
    with torch.no_grad():
        for images, target in loader:
            loss_sum += torch.nn.functional.cross_entropy(
                model(images), target, reduction="sum"
            ).item()
            n += len(target)
            notes.evaluated(epoch, images, target)
    notes.result(epoch, loss_sum / n, n)


def main():
    args = tiny.options("seeded", "drop", order="shuffle")
    args.generator = torch.Generator() if args.seeded else None
    rank = 0
    model = tiny.model(83)
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
        rank = dist.get_rank()
        model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), args.lr)
    train, val = train_loader(args), val_loader(args)
    start = step = 0
    if args.resume:
        checkpoint = torch.load(args.checkpoint)
        start, step = checkpoint["epoch"], checkpoint["step"]
        train.load_state_dict(checkpoint["loader"])  # bothends: resume
    for epoch in range(start, args.epochs):
        if args.seeded:
            args.generator.manual_seed(epoch)
        for images, target in train:
            loss = torch.nn.functional.cross_entropy(model(images), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            notes.trained(epoch, images, target)
            step += 1
            if step % args.save_every == 0:
                checkpoint = {"epoch": epoch, "step": step}
                checkpoint["loader"] = train.state_dict()  # bothends: resume
                if rank == 0:
                    torch.save(checkpoint, args.checkpoint)
                notes.saved()
        evaluate(model, val, epoch)
    notes.loaders(train=train, evaluate=val)


if __name__ == "__main__":
    main()
