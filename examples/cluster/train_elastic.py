#!/usr/bin/env python3
"""Trains with as many ranks as there are: torchrun restarts it with another number, and it continues with
the batch after the last saved one. Every sample is trained on once in each epoch.

    torchrun --nnodes=1:4 --nproc-per-node=1 --max-restarts=100 \\
        --rdzv-backend=c10d --rdzv-endpoint=HOST:29400 --rdzv-id=JOB \\
        train_elastic.py DATA --checkpoint /on/all/nodes/run.pt [--csd pool+file:///on/all/nodes/agents]

A rank's batch stays as it is, so a step of more ranks has more samples, and the learning rate grows with
them. With --samples DIR each rank writes the samples of its saved steps there.
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import bothends

LEARNING_RATE = 0.01  # of one rank


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data")
    parser.add_argument("--recipe", default="imagenet-train")
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--csd", action="append", default=[], help="a device or a pool of them")
    parser.add_argument("--key-file", help="the key of the devices")
    parser.add_argument("--batch-size", type=int, default=128, help="samples of a rank")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--save-every", type=int, default=20, help="steps")
    parser.add_argument("--stop-after", type=int, help="saved steps, as if the machine were taken away")
    parser.add_argument("--samples", help="a folder")
    return parser.parse_args()


def open_loader(options):
    return bothends.Loader(
        options.data,
        options.recipe,
        batch_size=options.batch_size,
        csds=options.csd,
        key_file=options.key_file,
        framework="torch",
    )


def save(options, model, optimizer, loader, saved):
    state = {
        "model": model.module.state_dict(),
        "optimizer": optimizer.state_dict(),
        # The same on all ranks, and right for any number of them.
        "loader": loader.state_dict(),
        "saved": saved,
    }
    if dist.get_rank() == 0:
        torch.save(state, options.checkpoint + ".new")
        os.replace(options.checkpoint + ".new", options.checkpoint)
    # Nobody goes on before it is there.
    dist.barrier()


def note(options, steps):
    if options.samples:
        with open(os.path.join(options.samples, f"rank{dist.get_rank()}.txt"), "a") as file:
            file.writelines(f"{epoch} {' '.join(map(str, ids))}\n" for epoch, ids in steps)


def main():
    options = parse()
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.AdaptiveAvgPool2d(8), torch.nn.Flatten(), torch.nn.LazyLinear(1000)
    )
    model(torch.zeros(1, 3, 8, 8))
    model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE * dist.get_world_size())
    with open_loader(options) as loader:
        saved = 0
        if os.path.exists(options.checkpoint):
            state = torch.load(options.checkpoint, weights_only=True)
            model.module.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
            for group in optimizer.param_groups:
                group["lr"] = LEARNING_RATE * dist.get_world_size()
            loader.load_state_dict(state["loader"])
            saved = state["saved"]
        ends = None if options.stop_after is None else saved + options.stop_after
        steps = []
        while loader.epoch < options.epochs:
            epoch = loader.epoch
            for batch in loader.batches():
                optimizer.zero_grad()
                cross_entropy(model(batch.images[0]), batch.labels).backward()
                optimizer.step()
                steps.append((epoch, batch.sample_ids.tolist()))
                if len(steps) == options.save_every:
                    saved += len(steps)
                    save(options, model, optimizer, loader, saved)
                    note(options, steps)
                    steps = []
                    if saved == ends:
                        return
        save(options, model, optimizer, loader, saved + len(steps))
        note(options, steps)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
