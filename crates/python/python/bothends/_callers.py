"""Finds the caller: the first frame outside bothends, which a warning is addressed to, and
whether Lightning is among the callers."""

from __future__ import annotations

import sys
from types import FrameType

# What loads the states of loaders in Lightning's trainer, under either name of the package.
_LIGHTNINGS = (
    "lightning.pytorch.utilities.combined_loader",
    "pytorch_lightning.utilities.combined_loader",
)


def stacklevel_of_caller() -> int:
    """The `stacklevel` of the first frame outside bothends, for the function that calls this."""
    frame, level = sys._getframe(1), 1
    while frame is not None and _is_ours(_module(frame)):
        frame, level = frame.f_back, level + 1  # type: ignore[assignment]
    return level


def counts_batches() -> bool:
    """Whether Lightning's trainer loads a state, also through a loader of the script's own round
    this one. It considers an epoch done after its last batch and never asks for its end. A hook in
    which the script itself loads a state is called from elsewhere in Lightning."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _module(frame) not in _LIGHTNINGS:
        frame = frame.f_back
    return frame is not None


def _module(frame: FrameType) -> str:
    name: str = frame.f_globals.get("__name__", "")
    return name


def _is_ours(module: str) -> bool:
    return module == "bothends" or module.startswith("bothends.")
