"""A LightningModule for ImageNet, as people write it: loaders that are passed to `fit`, or made
in the hooks. Lightning starts the ranks, puts in the samplers and keeps the loaders' states."""

import os

import lightning.pytorch as pl
import torch
from torch.utils.data import DataLoader
from torchvision import datasets, transforms
from bothends.torch import DataLoader  # bothends

import notes
import tiny


def train_loader(args, drop_last=False):
    transform = transforms.Compose(
        [
            transforms.RandomResizedCrop(tiny.SIZE),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize(tiny.MEAN, tiny.STD),
        ]
    )
    dataset = datasets.ImageFolder(os.path.join(args.data, "train"), transform)
    of_all = {"batch_size": args.batch_size, "num_workers": args.workers}
    return DataLoader(dataset, shuffle=True, drop_last=drop_last, **of_all)


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


class ImageNet(pl.LightningModule):
    def __init__(self, args):
        super().__init__()
        self.args = args
        self.model = tiny.model(83)
        self.sums = [0.0, 0]

    def training_step(self, batch, batch_idx):
        images, target = batch
        notes.trained(self.current_epoch, images, target)
        return torch.nn.functional.cross_entropy(self.model(images), target)

    def validation_step(self, batch, batch_idx):
        if self.trainer.sanity_checking:
            return
        images, target = batch
        loss = torch.nn.functional.cross_entropy(self.model(images), target, reduction="sum")
        self.sums = [self.sums[0] + loss.item(), self.sums[1] + len(target)]
        notes.evaluated(self.current_epoch, images, target)

    def on_validation_epoch_end(self):
        if self.sums[1]:
            notes.result(self.current_epoch, self.sums[0] / self.sums[1], self.sums[1])
        self.sums = [0.0, 0]

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), self.args.lr)

    def on_save_checkpoint(self, checkpoint):
        notes.saved()


class WithHooks(ImageNet):
    def train_dataloader(self):
        return train_loader(self.args)

    def val_dataloader(self):
        return val_loader(self.args)


def main(train_loader=train_loader, hooks=WithHooks):
    args = tiny.options("hook", devices=1)
    # As Lightning's users resume: from the file that its callback has written.
    folder, name = os.path.split(args.checkpoint)
    saving = pl.callbacks.ModelCheckpoint(
        folder,
        name.removesuffix(".pt"),
        every_n_train_steps=args.save_every,
        save_top_k=1 if args.save_every < 10**9 else 0,
        enable_version_counter=False,
    )
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=args.devices,
        strategy="ddp" if args.devices > 1 else "auto",
        max_epochs=args.epochs,
        callbacks=[saving],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
    )
    checkpoint = args.checkpoint.removesuffix(".pt") + ".ckpt" if args.resume else None
    if args.hook:
        trainer.fit(hooks(args), ckpt_path=checkpoint)
    else:
        trainer.fit(ImageNet(args), train_loader(args), val_loader(args), ckpt_path=checkpoint)
    notes.loaders(train=trainer.train_dataloader, evaluate=trainer.val_dataloaders)


if __name__ == "__main__":
    main()
