"""Hugging Face's Trainer with a data set of theirs, in the shape of their example for image
classification: columns are renamed by a transform that is set on the rows."""

import torch
import transformers.trainer
from datasets import load_dataset
from torchvision import transforms
import bothends.torch  # bothends

import tiny
import trainer_folder

transformers.trainer.DataLoader = bothends.torch.DataLoader  # bothends


def rows(args):
    normalize = transforms.Normalize(tiny.MEAN, tiny.STD)
    train_transform = transforms.Compose(
        [
            transforms.RandomResizedCrop(tiny.SIZE),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            normalize,
        ]
    )
    val_transform = transforms.Compose(
        [
            transforms.Resize(tiny.SIZE + 8),
            transforms.CenterCrop(tiny.SIZE),
            transforms.ToTensor(),
            normalize,
        ]
    )

    def train_transforms(batch):
        images = [train_transform(image.convert("RGB")) for image in batch["image"]]
        return {"pixel_values": images, "labels": batch["label"]}

    def val_transforms(batch):
        images = [val_transform(image.convert("RGB")) for image in batch["image"]]
        return {"pixel_values": images, "labels": batch["label"]}

    found = load_dataset("imagefolder", data_dir=args.data)
    train = found["train"].with_transform(train_transforms)
    val = found["validation"].with_transform(val_transforms)
    names = {"image": "pixel_values", "label": "labels"}
    train = bothends.torch.HuggingFaceImages(train, train_transform, names=names)  # bothends
    val = bothends.torch.HuggingFaceImages(val, val_transform, names=names)  # bothends
    return train, val


def collate_fn(examples):
    return {
        "pixel_values": torch.stack([example["pixel_values"] for example in examples]),
        "labels": torch.tensor([example["labels"] for example in examples]),
    }


if __name__ == "__main__":
    args = tiny.options()
    trainer_folder.main(args, rows(args), collate_fn)
