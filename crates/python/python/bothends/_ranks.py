"""This process's rank and the number of ranks. They are determined when an iteration begins, since
a loader is often made before its process knows them."""

from __future__ import annotations

import os
import sys
from typing import Any, NamedTuple

from ._errors import OptionsError

# Each launcher's two variables, in the order in which they are checked.
_LAUNCHERS = [
    ("torchrun", "RANK", "WORLD_SIZE"),
    ("Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("MPICH", "PMI_RANK", "PMI_SIZE"),
    ("MVAPICH2", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    ("Slurm", "SLURM_PROCID", "SLURM_NTASKS"),
]


class Ranks(NamedTuple):
    """This process's rank among those that train together."""

    rank: int
    world_size: int


ALONE = Ranks(0, 1)


def given(rank: int | None, world_size: int | None) -> Ranks | None:
    """The ranks given as arguments; None if these leave it to the launcher.

    Raises:
        OptionsError: only one of the two is given.
    """
    if rank is not None and world_size is not None:
        return Ranks(rank, world_size)
    if rank is not None or world_size is not None:
        raise OptionsError("give rank and world_size together, or neither")
    return None


def known() -> Ranks | None:
    """What `torch.distributed`, `jax.distributed`, Ray Train or the launcher's environment says by
    now; None if none of them does.

    Raises:
        OptionsError: a launcher's variable is not a number.
    """
    return of_group() or _of_jax() or _of_ray_train() or _of_environment()


def current(rank: int | None = None, world_size: int | None = None) -> Ranks:
    """The arguments if given, otherwise what is known, otherwise a single process.

    Raises:
        OptionsError: as for `given` and `known`; or several processes run and nothing says which of
            them this is, so that each would load everything.
    """
    ranks = given(rank, world_size) or known()
    if ranks is not None:
        return ranks
    world = os.environ.get("WORLD_SIZE", "1")
    if world.strip() not in ("", "0", "1") and "LOCAL_RANK" in os.environ:
        raise OptionsError(
            f"WORLD_SIZE={world} says that several processes train together, and nothing says "
            "which of them this is: iterate after torch.distributed.init_process_group, or give "
            "rank and world_size"
        )
    return ALONE


def parent_of_ranks() -> int | None:
    """The process that started this one through `multiprocessing`, as `torch.multiprocessing.spawn`
    does: its other children that open loaders are ranks of the same job."""
    multiprocessing = sys.modules.get("multiprocessing")
    parent = multiprocessing.parent_process() if multiprocessing else None
    return None if parent is None else parent.pid


def of_group() -> Ranks | None:
    """The ranks of PyTorch's process group; None without one."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available():
        return None
    if not distributed.is_initialized():
        return None
    return Ranks(distributed.get_rank(), distributed.get_world_size())


def rendezvous() -> Any:
    """The store of PyTorch's process group, in which ranks note what others look for; None without
    one."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed.distributed_c10d._get_default_store()


def _of_jax() -> Ranks | None:
    jax = sys.modules.get("jax")
    is_initialized = getattr(getattr(jax, "distributed", None), "is_initialized", None)
    # Asking JAX for its processes would start its backends.
    if jax is None or is_initialized is None or not is_initialized():
        return None
    return Ranks(jax.process_index(), jax.process_count())


def _of_ray_train() -> Ranks | None:
    train = sys.modules.get("ray.train")
    if train is None:
        return None
    try:
        context = train.get_context()
        rank, world_size = context.get_world_rank(), context.get_world_size()
    except RuntimeError:
        return None  # this is not a Ray Train worker
    # Older releases have a context everywhere, but without numbers in it.
    return None if rank is None or world_size is None else Ranks(rank, world_size)


def _of_environment() -> Ranks | None:
    for launcher, rank, world in _LAUNCHERS:
        # A Slurm batch script is one process but has the numbers of the tasks it may start.
        if launcher == "Slurm" and "SLURM_STEP_ID" not in os.environ:
            continue
        if rank in os.environ and world in os.environ:
            return Ranks(_number(launcher, rank), _number(launcher, world))
    return None


def _number(launcher: str, variable: str) -> int:
    text = os.environ[variable]
    try:
        return int(text)
    except ValueError:
        line = f"{variable}={text!r} ({launcher}) is not a number; give rank and world_size"
        raise OptionsError(line) from None
