"""Where the batches of a `bothends.torch.DataLoader` end up: in host memory, in pinned memory, or
on a GPU.

The native loader delivers batches that reach the script as they were made. A batch that passes
through Python on the way (a transform, a `collate_fn`, a data set's own code) is moved at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.utils.data

from .._device import ordinal_of

NO_GPU = (
    "bothends: pin_memory=True, but PyTorch has no GPU here; batches are in memory that is not pinned"
)


def gpu_of(name: str | None) -> torch.device | None:
    """The GPU that batches end on; None where they stay on the host."""
    ordinal = ordinal_of(name)
    return None if ordinal is None else torch.device("cuda", ordinal)


def pinned(batch: Any) -> Any:
    """The batch in pinned memory. Tensors that are there already are not copied."""
    pin: Callable[[Any], Any] = torch.utils.data._utils.pin_memory.pin_memory
    return pin(batch)


def on_gpu(batch: Any, device: torch.device) -> Any:
    """The batch with its tensors on this GPU. Tensors that are there already are not copied; the
    others are copied asynchronously on the current stream."""

    def move(tensor: torch.Tensor) -> torch.Tensor:
        # Pinned memory, PyTorch's and ours, is kept until such a copy has finished.
        tensor = tensor if tensor.is_cuda else tensor.pin_memory()
        return tensor.to(device, non_blocking=True)

    return moved(batch, move)


def moved(batch: Any, move: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """A batch of the same form whose tensors have been moved, in lists, tuples and dictionaries."""
    if isinstance(batch, torch.Tensor):
        return move(batch)
    if isinstance(batch, (str, bytes)):
        return batch
    if isinstance(batch, Mapping):
        pairs = {key: moved(value, move) for key, value in batch.items()}
        return pairs if type(batch) is dict else _like(batch, pairs)
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(moved(value, move) for value in batch))
    if isinstance(batch, Sequence):
        return _like(batch, [moved(value, move) for value in batch])
    return batch


def _like(batch: Any, content: Any) -> Any:
    """Of the batch's type if that accepts the content, as in PyTorch's own functions."""
    try:
        return type(batch)(content)
    except TypeError:
        return content
