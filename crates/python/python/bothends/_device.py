"""Where batches are delivered: the meaning of `device`, and which GPU a plain "cuda" is."""

from __future__ import annotations

import operator
import re
import sys
from typing import Any

from . import _native
from ._errors import OptionsError


def named(device: Any) -> str | None:
    """The device as text: "cuda" or "cuda:N"; None for host memory.

    Args:
        device: None, "cpu", "cuda", "cuda:N", N, or an object that stands for one of these, such as
            a `torch.device` or a device of JAX's.

    Raises:
        OptionsError: batches cannot be delivered to that device.
    """
    if device is None:
        return None
    name = _text(device)
    if name == "cpu":
        return None
    if re.fullmatch(r"cuda(:\d+)?", name) is None:
        raise OptionsError(
            f"`device` is {device!r}; it must be 'cpu', 'cuda', 'cuda:N', a number from 0, or a "
            "torch.device of one of these"
        )
    return name


def _text(device: Any) -> str:
    if isinstance(device, bool):
        return str(device)
    try:
        return f"cuda:{operator.index(device)}"
    except TypeError:
        kind = getattr(device, "type", None)
    if not isinstance(kind, str):
        return str(device)
    index = getattr(device, "index", None)  # of a torch.device
    return kind if index is None else f"{kind}:{index}"


def ordinal_of(name: str | None) -> int | None:
    """The number of the GPU that `named` returned, among those that this process can see; None for
    host memory. A plain "cuda" is PyTorch's current device if the script has set one, otherwise the
    one that matches this process's local rank (`LOCAL_RANK` and other launchers' names for it),
    otherwise 0."""
    if name is None:
        return None
    _, _, number = name.partition(":")
    return int(number) if number else _own()


def _own() -> int:
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        current: int = torch.cuda.current_device()
        if current > 0:
            return current
    return _native.own_gpu()
