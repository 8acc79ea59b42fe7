"""Identifies the code that a data set runs: names can be borrowed, but the location of a function's
code cannot."""

from __future__ import annotations

import types
from typing import Any

from .records import Unknown


def home(function: Any) -> str:
    """Module and qualified name of the code of a function or method; empty if it has none.

    It is the same for a subclass that inherits the method, and different for whatever replaces or
    wraps it, even with `functools.wraps`.
    """
    function = getattr(function, "__func__", function)
    if not isinstance(function, types.FunctionType):
        return ""
    module = function.__globals__.get("__name__", "")
    return f"{module}.{function.__code__.co_qualname}"


def getitem(dataset: Any) -> str:
    """The home of the data set's indexing."""
    return home(getattr(type(dataset), "__getitem__", None))


def is_a(dataset: Any, name: str) -> bool:
    """Whether the data set's class is, or derives from, one of this module and name."""
    return any(f"{c.__module__}.{c.__qualname__}" == name for c in type(dataset).__mro__)


def refuse_batched(dataset: Any) -> None:
    """Refuses `__getitems__`, which PyTorch's loader prefers and of which nothing is known.

    Raises:
        Unknown: the data set has it.
    """
    if hasattr(dataset, "__getitems__"):
        line = f"the {type(dataset).__name__} has `__getitems__`"
        raise Unknown(line, "remove it, if `__getitem__` gives the same samples")
