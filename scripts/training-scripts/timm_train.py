"""In the shape of timm's train.py: its data sets, transforms and `create_loader`, which makes a
`torch.utils.data.DataLoader` itself, behind a `PrefetchLoader` where that is not refused. (That one
is a batch ahead of the training loop and keeps no state: nobody resumes with it in mid-epoch.)"""

import os

import timm.data
import torch
import torch.distributed as dist
import torch.utils.data
import bothends.torch  # bothends

import notes
import tiny

torch.utils.data.DataLoader = bothends.torch.DataLoader  # bothends


def loaders(args):
    of_both = {
        "input_size": (3, tiny.SIZE, tiny.SIZE),
        "batch_size": args.batch_size,
        "num_workers": args.workers,
        "distributed": args.distributed,
        "use_prefetcher": args.prefetcher,
        "device": torch.device("cpu"),
        "pin_memory": False,
    }
    train = timm.data.create_dataset("", root=args.data, split="train", is_training=True)
    collate_fn = mixup_fn = None
    if args.mixup:
        mixing = {"mixup_alpha": 0.8, "cutmix_alpha": 1.0, "num_classes": len(train.reader)}
        if args.prefetcher:
            collate_fn = timm.data.FastCollateMixup(label_smoothing=0.1, **mixing)
        else:
            mixup_fn = timm.data.Mixup(label_smoothing=0.1, **mixing)
    loader_train = timm.data.create_loader(
        train,
        is_training=True,
        re_prob=0.25,
        re_mode="pixel",
        color_jitter=0.4,
        auto_augment="rand-m9-mstd0.5-inc1",
        interpolation="random",
        num_aug_repeats=args.aug_repeats,
        collate_fn=collate_fn,
        **of_both,
    )
    loader_eval = timm.data.create_loader(
        timm.data.create_dataset("", root=args.data, split="val", is_training=False),
        interpolation="bicubic",
        crop_pct=0.9,
        **of_both,
    )
    return loader_train, loader_eval, mixup_fn


def train_one_epoch(epoch, model, loader, optimizer, loss_fn, mixup_fn, args):
    model.train()
    for image, target in loader:
        if mixup_fn is not None and len(image) % 2 == 0:
            image, target = mixup_fn(image, target)
        loss = loss_fn(model(image), target)
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


def validate(epoch, model, loader, args):
    model.eval()
    sums = torch.zeros(2, dtype=torch.float64)
    with torch.inference_mode():
        for image, target in loader:
            loss = torch.nn.functional.cross_entropy(model(image), target)
            sums += torch.tensor([loss.item() * image.size(0), image.size(0)])
            notes.evaluated(epoch, image, target)
    if args.distributed:
        dist.all_reduce(sums)
    notes.result(epoch, sums[0] / sums[1], sums[1])


def main():
    args = tiny.options("prefetcher", "mixup", aug_repeats=0)
    args.distributed = int(os.environ.get("WORLD_SIZE", 1)) > 1
    if args.distributed:
        dist.init_process_group("gloo")
    args.rank = dist.get_rank() if args.distributed else 0
    loader_train, loader_eval, mixup_fn = loaders(args)
    model = tiny.model(len(loader_train.dataset.reader))
    if args.distributed:
        model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.05)
    loss_fn = torch.nn.CrossEntropyLoss()
    start = args.step = 0
    if args.resume:
        checkpoint = torch.load(args.checkpoint)
        start, args.step = checkpoint["epoch"], checkpoint["step"]
        model.load_state_dict(checkpoint["model"])
        loader_train.load_state_dict(checkpoint["loader"])  # bothends: resume
    for epoch in range(start, args.epochs):
        if args.distributed and hasattr(loader_train.sampler, "set_epoch"):
            loader_train.sampler.set_epoch(epoch)
        train_one_epoch(epoch, model, loader_train, optimizer, loss_fn, mixup_fn, args)
        validate(epoch, model, loader_eval, args)
    inner = [getattr(each, "loader", each) for each in (loader_train, loader_eval)]
    notes.loaders(train=inner[0], evaluate=inner[1])


if __name__ == "__main__":
    main()
