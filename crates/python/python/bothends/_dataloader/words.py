"""What a `bothends.torch.DataLoader` says about itself and about unknown arguments."""

from __future__ import annotations

import difflib
from typing import Any

from .._errors import OptionsError
from .orders import is_default
from .rows import is_default_collate

# For transforms that stay in Python and have no remedy of their own.
_BATCHES = "apply it to whole batches after the loader, or use one of torchvision's transforms"

# What people call an option elsewhere.
_ELSEWHERE = {
    "num_threads": "num_workers",
    "workers": "num_workers",
    "devices": "csds",
    "rank": "sampler",
    "world_size": "sampler",
    "num_replicas": "sampler",
    "recipe": "dataset",
    "data": "dataset",
}


def refuse_unknown(options: dict[str, Any], names: list[str], cls: type[Any]) -> None:
    """Raises an OptionsError that suggests the most similar of the names."""
    for name in (name for name in options if name not in names):
        near = _ELSEWHERE.get(name) or next(iter(difflib.get_close_matches(name, names, 1)), None)
        hint = f"; did you mean `{near}`?" if near else ""
        raise OptionsError(f"`{name}` is not an option of {cls.__name__}{hint}")


def explained(loader: Any) -> list[str]:
    """What became of the data set, sampler, transforms and collate_fn, and what would be faster."""
    left, prepared = loader.left, loader.prepared
    if left is not None:
        lines = [f"loaded by: {_left_to(loader)}", f"why: {left.why}"]
        if loader.idle_options:
            lines.append(f"without effect: {', '.join(loader.idle_options)}")
        return [*lines, *([f"to be fast: {left.remedy}"] if left.remedy else [])]
    lines = ["loaded by: bothends", *prepared.lines, f"sampler: {_order(loader)}"]
    lines.append(f"collate_fn: {_collate(loader)}")
    remedies = prepared.translation.remedies
    if prepared.translation.rest is not None:
        lines.append(_where(loader))
        remedies = remedies or [_BATCHES]
    return [*lines, *(f"to be faster: {remedy}" for remedy in remedies)]


def _left_to(loader: Any) -> str:
    if loader.own_items is None:
        return "PyTorch's own loader"
    n = loader.num_workers
    return f"the data set's own code, in {_workers(n) if n else 'the calling thread'}"


def _workers(n: int, kind: str = "worker") -> str:
    return f"{n} {kind}{'' if n == 1 else 's' if kind == 'worker' else 'es'}"


def _order(loader: Any) -> str:
    if is_default(loader):
        kind = "shuffled" if type(loader.sampler).__name__ == "RandomSampler" else "sequential"
        return f"{kind}, by bothends itself"
    outer = loader.batch_sampler
    name = type(outer).__name__
    if name == "BatchSampler":
        name = type(outer.sampler).__name__
    return f"{name} is followed"


def _collate(loader: Any) -> str:
    if is_default_collate(loader.collate_fn):
        return "PyTorch's default, at no cost"
    name = getattr(loader.collate_fn, "__name__", type(loader.collate_fn).__name__)
    where = "a worker" if _has_workers(loader) else "the thread that asks for the batch"
    return f"{name} runs in {where}"


def _where(loader: Any) -> str:
    if _has_workers(loader):
        return f"transforms in Python: in {_workers(loader.num_workers, 'worker process')}"
    return (
        "transforms in Python: in the thread that asks for the batch, as num_workers=0 says; "
        "num_workers=N starts N workers for them"
    )


def _has_workers(loader: Any) -> bool:
    return loader.prepared.translation.rest is not None and loader.num_workers > 0
