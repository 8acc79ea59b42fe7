"""Loaders that a framework re-creates are still bothends'.

Accelerate and Ray Train do not use the loader that they are given: they make a new
`torch.utils.data.DataLoader` from its data set and their own sampler. If these two packages do so
with the data set of a live `bothends.torch.DataLoader`, they get another one of these, with the
same options. Any other code that makes a `torch.utils.data.DataLoader` gets exactly that.

(Lightning does not need this: it makes a loader of the class that it was given.)
"""

from __future__ import annotations

import sys
import weakref
from typing import Any

import torch.utils.data

from .orders import skipping, within

# Packages that re-create loaders, by the prefix of their modules' names.
_FRAMEWORKS = ("accelerate.", "ray.train.")

_TorchLoader = torch.utils.data.DataLoader

# Arguments that torchdata's loader takes and PyTorch's does not.
_STATEFUL_ONLY = ("snapshot_every_n_steps",)

_live: weakref.WeakSet[Any] = weakref.WeakSet()


def watch(loader: Any) -> None:
    """From now on, loaders that a framework makes from this loader's data set are like this one."""
    _live.add(loader)
    if "__new__" not in vars(_TorchLoader):
        # PyTorch's class does not define one, so nothing is replaced.
        _TorchLoader.__new__ = _new  # type: ignore[method-assign]


def inherited(loader: Any) -> dict[str, Any]:
    """The options of the loader that a framework has replaced with this one."""
    options: dict[str, Any] = vars(loader).pop("_inherited", {})
    return options


def _new(cls: type[Any], *args: Any, **kwargs: Any) -> Any:
    is_stateful = cls.__module__.startswith("torchdata.") and cls.__name__ == "StatefulDataLoader"
    if cls is not _TorchLoader and not is_stateful:
        return object.__new__(cls)
    caller = sys._getframe(1).f_globals.get("__name__", "")
    dataset = kwargs.get("dataset", args[0] if args else None)
    is_framework = f"{caller}.".startswith(_FRAMEWORKS)
    parent = _parent(dataset, kwargs.get("batch_sampler")) if is_framework else None
    if parent is None:
        return object.__new__(cls)
    made = object.__new__(type(parent))
    shared = {name: getattr(parent, name) for name in (*parent.OPTIONS, "shared_seed")}
    batches = kwargs.get("batch_sampler")
    if skipping(batches)[0] is not batches and _draws_from(parent, batches):
        # Its epochs are the parent's, whose next one comes after them.
        shared["course"] = parent.course
    vars(made)["_inherited"] = shared
    if is_stateful:
        # It is not an instance of that class, so Python does not call its __init__.
        made.__init__(*args, **{k: v for k, v in kwargs.items() if k not in _STATEFUL_ONLY})
    return made


def _parent(dataset: Any, batches: Any) -> Any:
    """The loader over this data set whose samplers are in the new one's; else the newest."""
    if dataset is None:
        return None
    found = [loader for loader in list(_live) if loader.dataset is dataset]
    return max(found, key=lambda made: (_draws_from(made, batches), made.made_nth), default=None)


def _draws_from(loader: Any, batches: Any) -> bool:
    """Whether these batches come from the loader's samplers."""
    own = (loader.batch_sampler, loader.sampler)
    return any(s is o for s in within(batches) for o in own if o is not None)
