"""In the shape of torchvision's references/classification/train.py: presets, repeated
augmentation, mixup and cutmix in a lambda for `collate_fn`."""

import os

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, RandomSampler, SequentialSampler
from torch.utils.data.dataloader import default_collate
from torch.utils.data.distributed import DistributedSampler
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2
from bothends.torch import DataLoader  # bothends

import notes
import presets
import tiny
from sampler import RASampler


def load_data(args):
    dataset = ImageFolder(
        os.path.join(args.data, "train"),
        presets.ClassificationPresetTrain(
            crop_size=tiny.SIZE,
            auto_augment_policy=args.auto_augment or None,
            random_erase_prob=args.random_erase,
        ),
    )
    dataset_test = ImageFolder(
        os.path.join(args.data, "val"),
        presets.ClassificationPresetEval(crop_size=tiny.SIZE, resize_size=tiny.SIZE + 8),
    )
    if args.distributed:
        if args.ra_sampler:
            train_sampler = RASampler(dataset, repetitions=3)
        else:
            train_sampler = DistributedSampler(dataset)
        test_sampler = DistributedSampler(dataset_test, shuffle=False)
    else:
        train_sampler = RandomSampler(dataset)
        test_sampler = SequentialSampler(dataset_test)
    return dataset, dataset_test, train_sampler, test_sampler


def mixing(args, num_classes):
    if not args.mix:
        return default_collate
    mixup = v2.MixUp(alpha=0.2, num_classes=num_classes)
    cutmix = v2.CutMix(alpha=1.0, num_classes=num_classes)
    mixup_cutmix = v2.RandomChoice([mixup, cutmix])
    return lambda batch: mixup_cutmix(*default_collate(batch))


def train_one_epoch(model, criterion, optimizer, loader, epoch, args):
    model.train()
    for image, target in loader:
        loss = criterion(model(image), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        notes.trained(epoch, image, target)
        args.step += 1
        if args.step % args.save_every == 0:
            checkpoint = {"model": model.state_dict(), "epoch": epoch, "step": args.step}
            checkpoint["loader"] = loader.state_dict()  # bothends: resume
            if args.rank == 0:
                torch.save(checkpoint, args.checkpoint)
            notes.saved()


def evaluate(model, criterion, loader, epoch, args):
    model.eval()
    sums = torch.zeros(2, dtype=torch.float64)
    with torch.inference_mode():
        for image, target in loader:
            loss = criterion(model(image), target)
            sums += torch.tensor([loss.item() * image.shape[0], image.shape[0]])
            notes.evaluated(epoch, image, target)
    if args.distributed:
        dist.barrier()
        dist.all_reduce(sums)
    notes.result(epoch, sums[0] / sums[1], sums[1])


def main():
    args = tiny.options("ra-sampler", "mix", auto_augment="", random_erase=0.0)
    args.distributed = "RANK" in os.environ
    if args.distributed:
        dist.init_process_group("gloo")
    args.rank = dist.get_rank() if args.distributed else 0
    dataset, dataset_test, train_sampler, test_sampler = load_data(args)
    data_loader = DataLoader(
        dataset,
        batch_size=args.batch_size,
        sampler=train_sampler,
        num_workers=args.workers,
        pin_memory=True,
        collate_fn=mixing(args, len(dataset.classes)),
    )
    data_loader_test = DataLoader(
        dataset_test,
        batch_size=args.batch_size,
        sampler=test_sampler,
        num_workers=args.workers,
        pin_memory=True,
    )
    model = tiny.model(len(dataset.classes))
    criterion = torch.nn.CrossEntropyLoss(label_smoothing=0.1)
    if args.distributed:
        model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    start = args.step = 0
    if args.resume:
        checkpoint = torch.load(args.checkpoint)
        start, args.step = checkpoint["epoch"], checkpoint["step"]
        model.load_state_dict(checkpoint["model"])
        data_loader.load_state_dict(checkpoint["loader"])  # bothends: resume
    for epoch in range(start, args.epochs):
        if args.distributed:
            train_sampler.set_epoch(epoch)
        train_one_epoch(model, criterion, optimizer, data_loader, epoch, args)
        evaluate(model, criterion, data_loader_test, epoch, args)
    notes.loaders(train=data_loader, evaluate=data_loader_test)


if __name__ == "__main__":
    main()
