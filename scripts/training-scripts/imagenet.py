"""In the shape of PyTorch's examples/imagenet: samplers, and a second loader for what is left."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Subset
from torch.utils.data.distributed import DistributedSampler
from torchvision import datasets, transforms
from bothends.torch import DataLoader  # bothends

import notes
import tiny


def loaders(args, distributed):
    normalize = transforms.Normalize(mean=tiny.MEAN, std=tiny.STD)
    train_dataset = datasets.ImageFolder(
        os.path.join(args.data, "train"),
        transforms.Compose(
            [
                transforms.RandomResizedCrop(tiny.SIZE),
                transforms.RandomHorizontalFlip(),
                transforms.ToTensor(),
                normalize,
            ]
        ),
    )
    val_dataset = datasets.ImageFolder(
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
    train_sampler = val_sampler = None
    if distributed:
        train_sampler = DistributedSampler(train_dataset)
        val_sampler = DistributedSampler(val_dataset, shuffle=False, drop_last=True)
    of_both = {"batch_size": args.batch_size, "num_workers": args.workers, "pin_memory": True}
    train = DataLoader(
        train_dataset, shuffle=(train_sampler is None), sampler=train_sampler, **of_both
    )
    val = DataLoader(val_dataset, shuffle=False, sampler=val_sampler, **of_both)
    return train, val, train_sampler, val_sampler


def train(loader, model, optimizer, epoch, args):
    criterion = torch.nn.CrossEntropyLoss()
    model.train()
    for images, target in loader:
        loss = criterion(model(images), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        notes.trained(epoch, images, target)
        args.step += 1
        if args.step % args.save_every == 0:
            checkpoint = {"epoch": epoch, "step": args.step, "model": model.state_dict()}
            checkpoint["loader"] = loader.state_dict()  # bothends: resume
            if args.rank == 0:
                torch.save(checkpoint, args.checkpoint)
            notes.saved()


def validate(loader, model, epoch, args):
    sums = torch.zeros(2, dtype=torch.float64)

    def run(batches):
        with torch.no_grad():
            for images, target in batches:
                loss = torch.nn.functional.cross_entropy(model(images), target)
                sums.add_(torch.tensor([loss.item() * images.size(0), images.size(0)]))
                notes.evaluated(epoch, images, target)

    model.eval()
    run(loader)
    if args.distributed:
        dist.all_reduce(sums)
        n_seen = len(loader.sampler) * dist.get_world_size()
        if n_seen < len(loader.dataset):
            rest = Subset(loader.dataset, range(n_seen, len(loader.dataset)))
            aux = DataLoader(rest, args.batch_size, shuffle=False, num_workers=args.workers)
            run(aux)
            notes.loaders(rest=aux)
    notes.result(epoch, sums[0] / sums[1], sums[1])


def main():
    args = tiny.options("evaluate")
    args.distributed = int(os.environ.get("WORLD_SIZE", 1)) > 1
    if args.distributed:
        dist.init_process_group("gloo")
    args.rank = dist.get_rank() if args.distributed else 0
    train_loader, val_loader, train_sampler, _ = loaders(args, args.distributed)
    model = tiny.model(len(train_loader.dataset.classes))
    if args.distributed:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=0.9)
    start = args.step = 0
    if args.resume:
        checkpoint = torch.load(args.checkpoint)
        start, args.step = checkpoint["epoch"], checkpoint["step"]
        model.load_state_dict(checkpoint["model"])
        train_loader.load_state_dict(checkpoint["loader"])  # bothends: resume
    if args.evaluate:
        validate(val_loader, model, 0, args)
        notes.loaders(evaluate=val_loader)
        return
    for epoch in range(start, args.epochs):
        if args.distributed:
            train_sampler.set_epoch(epoch)
        train(train_loader, model, optimizer, epoch, args)
        validate(val_loader, model, epoch, args)
    notes.loaders(train=train_loader, evaluate=val_loader)


if __name__ == "__main__":
    main()
