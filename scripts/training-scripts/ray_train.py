"""A training function for Ray Train with two workers: `prepare_model`, `prepare_data_loader`."""

import functools
import os
import sys

import ray
import ray.train.torch
import torch
import torch.distributed as dist
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer
from torch.utils.data import DataLoader
from torchvision import datasets, transforms
from bothends.torch import DataLoader  # bothends

import notes
import tiny


def loaders(args):
    normalize = transforms.Normalize(tiny.MEAN, tiny.STD)
    train = datasets.ImageFolder(
        os.path.join(args.data, "train"),
        transforms.Compose(
            [transforms.RandomResizedCrop(tiny.SIZE), transforms.ToTensor(), normalize]
        ),
    )
    val = datasets.ImageFolder(
        os.path.join(args.data, "val"),
        transforms.Compose(
            [
                transforms.Resize(tiny.SIZE + 8),
                transforms.CenterCrop(tiny.SIZE),
                transforms.ToTensor(),
                normalize,
            ]
        ),
    )
    of_both = {"batch_size": args.batch_size, "num_workers": args.workers}
    return DataLoader(train, shuffle=True, **of_both), DataLoader(val, **of_both)


def train_func(config):
    args = config["args"]
    train_loader, val_loader = loaders(args)
    prepare = ray.train.torch.prepare_data_loader
    val_loader = prepare(val_loader)
    # What moves batches to a device is a batch ahead of the training loop, and has no state.
    prepare = functools.partial(prepare, move_to_device=False)  # bothends: resume
    train_loader = prepare(train_loader)
    model = ray.train.torch.prepare_model(tiny.model(83))
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
    rank = ray.train.get_context().get_world_rank()
    start = step = 0
    if args.resume:
        checkpoint = torch.load(args.checkpoint)
        start, step = checkpoint["epoch"], checkpoint["step"]
        train_loader.load_state_dict(checkpoint["loader"])  # bothends: resume
    for epoch in range(start, args.epochs):
        if ray.train.get_context().get_world_size() > 1:
            train_loader.sampler.set_epoch(epoch)
        for images, target in train_loader:
            loss = torch.nn.functional.cross_entropy(model(images), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            notes.trained(epoch, images, target)
            step += 1
            if step % args.save_every == 0:
                checkpoint = {"epoch": epoch, "step": step}
                checkpoint["loader"] = train_loader.state_dict()  # bothends: resume
                if rank == 0:
                    torch.save(checkpoint, args.checkpoint)
                notes.saved()
        validate(model, val_loader, epoch)
    notes.loaders(train=train_loader, evaluate=val_loader._dataloader)


def validate(model, loader, epoch):
    sums = torch.zeros(2, dtype=torch.float64)
    with torch.no_grad():
        for images, target in loader:
            loss = torch.nn.functional.cross_entropy(model(images), target)
            sums += torch.tensor([loss.item() * len(images), len(images)])
            notes.evaluated(epoch, images, target)
    dist.all_reduce(sums)
    notes.result(epoch, sums[0] / sums[1], sums[1])
    ray.train.report({"loss": (sums[0] / sums[1]).item()})


def main():
    args = tiny.options(ray="")
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        object_store_memory=80 * 2**20,
        _temp_dir=args.ray,
    )
    trainer = TorchTrainer(
        train_func,
        train_loop_config={"args": args},
        scaling_config=ScalingConfig(num_workers=2, use_gpu=False),
        run_config=RunConfig(storage_path=os.path.dirname(args.checkpoint)),
    )
    try:
        trainer.fit()
    finally:
        ray.shutdown()


if __name__ == "__main__":
    sys.exit(main())
