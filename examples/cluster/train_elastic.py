#!/usr/bin/env python3
"""Trains with as many ranks as there are: torchrun restarts it with another number, and it continues with
the batch after the last saved one. Every sample is trained on once in each epoch.

    export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
    torchrun --nnodes=1:4 --nproc-per-node=1 --max-restarts=100 \\
        --rdzv-backend=c10d --rdzv-endpoint=HOST:29400 --rdzv-id=JOB \\
        train_elastic.py DATA --checkpoint /on/all/nodes/run.pt [--csd pool+file:///on/all/nodes/agents]

Without that variable, ranks that restart look for the others where these were before, and nodes that join
are never told where the first rank is.

A rank's batch stays as it is, so a step of more ranks has more samples, and the learning rate grows with
them. With --samples FILE the first rank writes there which samples each rank had in its saved steps.
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
    parser.add_argument("--samples", help="a file that all nodes see")
    return parser.parse_args()


def own_device():
    if not torch.cuda.is_available():
        return torch.device("cpu")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    return torch.device("cuda", torch.cuda.current_device())


def open_loader(options, device):
    return bothends.Loader(
        options.data,
        options.recipe,
        batch_size=options.batch_size,
        csds=options.csd,
        key_file=options.key_file,
        framework="torch",
        device=device,
    )


def save(options, model, optimizer, loader, progress):
    state = {
        "model": model.module.state_dict(),
        "optimizer": optimizer.state_dict(),
        # The same on all ranks, and right for any number of them.
        "loader": loader.state_dict(),
        "progress": progress,
    }
    if dist.get_rank() == 0:
        torch.save(state, options.checkpoint + ".new")
        os.replace(options.checkpoint + ".new", options.checkpoint)
    # Nobody goes on before it is there.
    dist.barrier()


def note(options, steps):
    """Appends the samples of these steps of all ranks; how many bytes the file of the first rank has then."""
    if not options.samples:
        return 0
    everyone = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, steps)
    if dist.get_rank() > 0:
        return 0
    with open(options.samples, "a") as file:
        for rank, own in enumerate(everyone):
            file.writelines(f"{rank} {epoch} {' '.join(map(str, ids))}\n" for epoch, ids in own)
        return file.tell()


def advanced(options, progress, steps):
    return {"steps": progress["steps"] + len(steps), "noted": note(options, steps)}


def rewind(options, progress):
    """Forgets the samples of steps that are not in the checkpoint, as they are trained on again."""
    if options.samples and dist.get_rank() == 0:
        with open(options.samples, "a") as file:
            file.truncate(progress["noted"])


def main():
    options = parse()
    device = own_device()
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.AdaptiveAvgPool2d(8), torch.nn.Flatten(), torch.nn.LazyLinear(1000)
    )
    model(torch.zeros(1, 3, 8, 8))
    model = DistributedDataParallel(model.to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE * dist.get_world_size())
    with open_loader(options, device) as loader:
        progress = {"steps": 0, "noted": 0}
        if os.path.exists(options.checkpoint):
            state = torch.load(options.checkpoint, map_location="cpu", weights_only=True)
            model.module.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
            for group in optimizer.param_groups:
                group["lr"] = LEARNING_RATE * dist.get_world_size()
            loader.load_state_dict(state["loader"])
            progress = state["progress"]
        rewind(options, progress)
        ends = None if options.stop_after is None else progress["steps"] + options.stop_after
        steps = []
        while loader.epoch < options.epochs:
            epoch = loader.epoch
            for batch in loader.batches():
                optimizer.zero_grad()
                cross_entropy(model(batch.images[0]), batch.labels).backward()
                optimizer.step()
                steps.append((epoch, batch.sample_ids.tolist()))
                if len(steps) == options.save_every:
                    progress = advanced(options, progress, steps)
                    save(options, model, optimizer, loader, progress)
                    steps = []
                    if progress["steps"] == ends:
                        return
        save(options, model, optimizer, loader, advanced(options, progress, steps))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
