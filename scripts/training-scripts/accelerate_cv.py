"""In the shape of Accelerate's cv_example.py: `prepare`, `gather_for_metrics`, and a checkpoint in
the middle of an epoch."""

import os

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration, set_seed
from torch.utils.data import DataLoader
from torchvision import datasets, transforms
from bothends.torch import DataLoader  # bothends

import notes
import tiny


def data_loaders(args):
    normalize = transforms.Normalize(tiny.MEAN, tiny.STD)
    train_tfm = transforms.Compose(
        [transforms.RandomResizedCrop(tiny.SIZE), transforms.ToTensor(), normalize]
    )
    eval_tfm = transforms.Compose(
        [transforms.Resize((tiny.SIZE, tiny.SIZE)), transforms.ToTensor(), normalize]
    )
    train = datasets.ImageFolder(os.path.join(args.data, "train"), train_tfm)
    evaluate = datasets.ImageFolder(os.path.join(args.data, "val"), eval_tfm)
    of_both = {"batch_size": args.batch_size, "num_workers": args.workers}
    return (
        DataLoader(train, shuffle=True, drop_last=args.uneven, **of_both),
        DataLoader(evaluate, shuffle=False, **of_both),
    )


def checkpointed(args, accelerator, model, loader, epoch):
    if args.step % args.save_every:
        return
    checkpoint = {"model": accelerator.get_state_dict(model), "epoch": epoch, "step": args.step}
    checkpoint["loader"] = loader.state_dict()  # bothends: resume
    accelerator.save(checkpoint, args.checkpoint)
    notes.saved()


def evaluate(args, accelerator, model, loader, epoch):
    model.eval()
    loss_sum, n = 0.0, 0
    for inputs, targets in loader:
        notes.evaluated(epoch, inputs, targets)
        with torch.no_grad():
            losses = torch.nn.functional.cross_entropy(model(inputs), targets, reduction="none")
        if not args.uneven:
            losses, targets = accelerator.gather_for_metrics((losses, targets))
        loss_sum += losses.double().sum()
        n += len(losses)
    if args.uneven:
        # Ranks may have different numbers of batches: they meet at the end.
        loss_sum, n = accelerator.reduce(torch.tensor([loss_sum, n]))
    notes.result(epoch, loss_sum / n, n)


def main():
    args = tiny.options("seedable", "split-batches", "uneven", seed=-1)
    accelerator = Accelerator(
        cpu=True,
        dataloader_config=DataLoaderConfiguration(
            use_seedable_sampler=args.seedable,
            split_batches=args.split_batches,
            even_batches=not args.uneven,
        ),
    )
    if args.seed >= 0:
        set_seed(args.seed)
    train_loader, eval_loader = data_loaders(args)
    model = tiny.model(len(train_loader.dataset.classes))
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    model, optimizer, train_loader, eval_loader = accelerator.prepare(
        model, optimizer, train_loader, eval_loader
    )
    start = args.step = 0
    if args.resume:
        checkpoint = torch.load(args.checkpoint)
        start, args.step = checkpoint["epoch"], checkpoint["step"]
        accelerator.unwrap_model(model).load_state_dict(checkpoint["model"])
        train_loader.load_state_dict(checkpoint["loader"])  # bothends: resume
    for epoch in range(start, args.epochs):
        model.train()
        train_loader.set_epoch(epoch)
        for inputs, targets in train_loader:
            with accelerator.accumulate(model):
                loss = torch.nn.functional.cross_entropy(model(inputs), targets)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            notes.trained(epoch, inputs, targets)
            args.step += 1
            checkpointed(args, accelerator, model, train_loader, epoch)
        evaluate(args, accelerator, model, eval_loader, epoch)
    notes.loaders(train=train_loader.base_dataloader, evaluate=eval_loader.base_dataloader)
    accelerator.end_training()


if __name__ == "__main__":
    main()
