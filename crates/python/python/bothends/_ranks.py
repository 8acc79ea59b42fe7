"""Which rank this process is, and of how many, as its launcher says."""

import os
import sys

from ._errors import OptionsError

# Each launcher's two variables, in the order in which they are looked at.
_LAUNCHERS = [
    ("torchrun", "RANK", "WORLD_SIZE"),
    ("Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("MPICH", "PMI_RANK", "PMI_SIZE"),
    ("MVAPICH2", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    ("Slurm", "SLURM_PROCID", "SLURM_NTASKS"),
]


def rank_and_world(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """The arguments where they are given, else what `torch.distributed` or the launcher's
    environment says, else one process alone.

    Raises:
        OptionsError: only one of the two is given, or a launcher's variable is no number.
    """
    if rank is not None and world_size is not None:
        return rank, world_size
    if rank is not None or world_size is not None:
        raise OptionsError("give rank and world_size together, or neither")
    return _of_torch() or _of_environment() or (0, 1)


def _of_torch() -> tuple[int, int] | None:
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available():
        return None
    if not distributed.is_initialized():
        return None
    return distributed.get_rank(), distributed.get_world_size()


def _of_environment() -> tuple[int, int] | None:
    for launcher, rank, world in _LAUNCHERS:
        # A batch script of Slurm is one process, and has the numbers of the tasks it may start.
        if launcher == "Slurm" and "SLURM_STEP_ID" not in os.environ:
            continue
        if rank in os.environ and world in os.environ:
            return _number(launcher, rank), _number(launcher, world)
    return None


def _number(launcher: str, variable: str) -> int:
    text = os.environ[variable]
    try:
        return int(text)
    except ValueError:
        line = f"{variable}={text!r} ({launcher}) is no number; give rank and world_size"
        raise OptionsError(line) from None
