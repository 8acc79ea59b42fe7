"""The cases of the matrix: which script runs how, and what must come out."""

from dataclasses import dataclass

# What an epoch of training must consist of, over all ranks.
ONCE = "once"  # as with PyTorch's loader: as many samples, as often, in any order
SAMPLER = "sampler"  # what the script's own sampler says: each rank's order as with PyTorch's
DROPPED = "dropped"  # as many on each rank as with PyTorch's loader, none of them twice
DRAWN = "drawn"  # as many as with PyTorch's loader, of any samples
SHARDED = "sharded"  # PyTorch's loader repeats the epoch on every rank; ours must share it

TORCHRUN, PYTHON, ENVIRONMENT = "torchrun", "python", "environment"


@dataclass(frozen=True)
class Case:
    name: str
    script: str
    ranks: int
    arguments: tuple[str, ...] = ()
    launcher: str = PYTHON
    samples: str = ONCE
    # A checkpoint is written after so many steps, in the middle of the second epoch.
    save_every: int | None = None
    is_training: bool = True
    # Warnings of ours that are due, each once in every rank.
    warns: tuple[str, ...] = ()
    # Ray wants a folder for its sockets, whose path is short.
    has_ray: bool = False


def _torchrun(name, script, ranks, *arguments, **more):
    return Case(name, script, ranks, arguments, launcher=TORCHRUN, **more)


def _alone(name, script, *arguments, **more):
    return Case(name, script, 1, arguments, **more)


# Steps after which a checkpoint comes once, in the middle of the second of three epochs: of 83
# samples in batches of 4, one rank has 21 batches, each of two 11 and each of three 7.
_MIDDLE = [{"save_every": steps} for steps in (35, 18, 12)]
_GIVEN = [{"samples": SAMPLER, **middle} for middle in _MIDDLE]
_DROPPED = [{"samples": DROPPED, **middle} for middle in _MIDDLE]
_OF_60 = {"samples": SAMPLER, "save_every": 25}
# What a rank reads whole, or shares, without a sampler that says so.
_NOBODY = ("a part of the shuffled epoch", "every rank loads all 53 samples")

CASES = [
    _alone("imagenet", "imagenet", **_MIDDLE[0]),
    _torchrun("imagenet ddp", "imagenet", 2, **_GIVEN[1]),
    _torchrun("imagenet ddp 3", "imagenet", 3, **_GIVEN[2]),
    _torchrun("imagenet -e", "imagenet", 3, "--evaluate", is_training=False),
    _torchrun(
        "torchvision ra mix",
        "torchvision_reference",
        2,
        *("--auto-augment", "ra", "--mix", "--random-erase", "0.1"),
        **_GIVEN[1],
    ),
    _torchrun(
        "torchvision ta ra-sampler",
        "torchvision_reference",
        3,
        *("--auto-augment", "ta_wide", "--ra-sampler"),
        **_GIVEN[2],
    ),
    _alone("timm", "timm_train", "--prefetcher"),
    _torchrun("timm ddp", "timm_train", 2, **_GIVEN[1]),
    _torchrun("timm ddp prefetcher", "timm_train", 2, "--prefetcher", samples=SAMPLER),
    _torchrun(
        "timm ddp mixup repeats",
        "timm_train",
        2,
        *("--prefetcher", "--mixup", "--aug-repeats", "3"),
        samples=SAMPLER,
    ),
    _alone("accelerate", "accelerate_cv", **_MIDDLE[0]),
    _torchrun("accelerate ddp", "accelerate_cv", 2, **_MIDDLE[1]),
    _torchrun(
        "accelerate ddp seedable", "accelerate_cv", 3, "--seedable", "--seed", "5", **_GIVEN[2]
    ),
    _torchrun("accelerate ddp uneven", "accelerate_cv", 2, "--uneven"),
    _torchrun("accelerate ddp split", "accelerate_cv", 2, "--split-batches"),
    _alone("lightning", "lightning_imagenet", **_MIDDLE[0]),
    Case("lightning ddp", "lightning_imagenet", 2, ("--devices", "2"), **_MIDDLE[1]),
    Case(
        "lightning ddp hook", "lightning_imagenet", 2, ("--devices", "2", "--hook"), **_MIDDLE[1]
    ),
    Case("lightning Loader", "lightning_loader", 2, ("--devices", "2"), **_DROPPED[1]),
    Case(
        "lightning Loader hook", "lightning_loader", 2, ("--devices", "2", "--hook"), **_DROPPED[1]
    ),
    Case("ray train", "ray_train", 2, has_ray=True, **_MIDDLE[1]),
    _alone("trainer", "trainer_folder", **_MIDDLE[0]),
    _torchrun("trainer ddp", "trainer_folder", 2, **_MIDDLE[1]),
    _alone("trainer datasets", "trainer_datasets", **_MIDDLE[0]),
    _torchrun("trainer datasets ddp", "trainer_datasets", 2, **_MIDDLE[1]),
    _alone("plain", "plain", "--drop", **_MIDDLE[0]),
    _torchrun("plain torchrun", "plain", 2, samples=SHARDED, **_MIDDLE[1], warns=_NOBODY),
    _alone("plain weighted", "plain", "--order", "weighted", "--seeded", **_OF_60),
    _alone("plain replacement", "plain", "--order", "replacement", "--seeded", **_OF_60),
    _alone("plain weighted unseeded", "plain", "--order", "weighted", samples=DRAWN, save_every=25),
    _alone("plain batches", "plain", "--order", "batches", "--seeded", **_GIVEN[0]),
    _alone("plain batches unseeded", "plain", "--order", "batches", **_MIDDLE[0]),
    _alone("plain split", "plain", "--order", "split", save_every=13),
    Case("jax", "jax_train", 2, launcher=ENVIRONMENT, **_DROPPED[1]),
]
