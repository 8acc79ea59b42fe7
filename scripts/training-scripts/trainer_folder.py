"""Hugging Face's Trainer with an ImageFolder and a `collate_fn` of the script's own. The Trainer
makes its loaders of the class `DataLoader` in its module."""

import os

import torch
import transformers
import transformers.trainer
from torchvision import datasets, transforms
import bothends.torch  # bothends

import notes
import tiny

transformers.trainer.DataLoader = bothends.torch.DataLoader  # bothends


class Model(torch.nn.Module):
    """Takes what the collate function names, and notes it."""

    def __init__(self):
        super().__init__()
        self.layers = tiny.model(83)
        self.trainer = None

    def forward(self, pixel_values, labels):
        epoch = int(self.trainer.state.epoch or 0)
        if self.training:
            notes.trained(epoch, pixel_values, labels)
        else:
            # Evaluation comes when the epoch is over.
            notes.evaluated(round(self.trainer.state.epoch), pixel_values, labels)
        logits = self.layers(pixel_values)
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}


class Saved(transformers.TrainerCallback):
    def on_save(self, args, state, control, **more):
        # There is another one at the end of training.
        if state.global_step % args.save_steps == 0:
            notes.saved()


class Results(transformers.TrainerCallback):
    def on_evaluate(self, args, state, control, metrics, **more):
        # The Trainer has gathered as many rows as it says it has samples.
        notes.result(round(state.epoch), metrics["eval_loss"], metrics["eval_n"])


def collate_fn(examples):
    return {
        "pixel_values": torch.stack([image for image, _ in examples]),
        "labels": torch.tensor([label for _, label in examples]),
    }


def folders(args):
    normalize = transforms.Normalize(tiny.MEAN, tiny.STD)
    train = transforms.Compose(
        [
            transforms.RandomResizedCrop(tiny.SIZE),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            normalize,
        ]
    )
    val = transforms.Compose(
        [
            transforms.Resize(tiny.SIZE + 8),
            transforms.CenterCrop(tiny.SIZE),
            transforms.ToTensor(),
            normalize,
        ]
    )
    return (
        datasets.ImageFolder(os.path.join(args.data, "train"), train),
        datasets.ImageFolder(os.path.join(args.data, "val"), val),
    )


def arguments(args):
    saves = args.save_every < 10**9
    return transformers.TrainingArguments(
        output_dir=args.checkpoint.removesuffix(".pt"),
        use_cpu=True,
        num_train_epochs=args.epochs,
        per_device_train_batch_size=args.batch_size,
        per_device_eval_batch_size=args.batch_size,
        dataloader_num_workers=args.workers,
        learning_rate=args.lr,
        eval_strategy="epoch",
        save_strategy="steps" if saves else "no",
        save_steps=args.save_every,
        remove_unused_columns=False,
        report_to="none",
        disable_tqdm=True,
        ddp_backend="gloo" if "RANK" in os.environ else None,
    )


def main(args, datasets, collate_fn):
    model = Model()
    train, val = datasets
    trainer = transformers.Trainer(
        model=model,
        args=arguments(args),
        train_dataset=train,
        eval_dataset=val,
        data_collator=collate_fn,
        callbacks=[Saved(), Results()],
        compute_metrics=lambda predicted: {"n": len(predicted.label_ids)},
    )
    model.trainer = trainer
    checkpoint = f"{trainer.args.output_dir}/checkpoint-{args.save_every}"
    trainer.train(resume_from_checkpoint=checkpoint if args.resume else None)
    handler = trainer.callback_handler
    notes.loaders(
        train=handler.train_dataloader.base_dataloader,
        evaluate=handler.eval_dataloader.base_dataloader,
    )


if __name__ == "__main__":
    args = tiny.options()
    main(args, folders(args), collate_fn)
