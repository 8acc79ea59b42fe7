"""How a batch's arrays become tensors of a framework, without a copy."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from typing import Any

from ._errors import OptionsError

FRAMEWORKS = ("auto", "torch", "numpy", "jax", "dlpack")

_SHARE = {
    "torch": ("torch", "from_dlpack"),
    "numpy": ("numpy", "asarray"),
    "jax": ("jax.dlpack", "from_dlpack"),
}


def converter(framework: str, output: str, sharding: Any = None) -> Callable[[Any], Any]:
    """The function that shares an array with `framework`: "auto" is PyTorch where it is
    installed, else NumPy. With a JAX `sharding` it makes global arrays, of which this process
    has its part.

    Raises:
        OptionsError: there is no such framework, it is not installed, or it has no such type.
    """
    if framework not in FRAMEWORKS:
        line = f"`framework` is {framework!r}; it must be one of {', '.join(FRAMEWORKS)}"
        raise OptionsError(line)
    if sharding is not None and framework != "jax":
        raise OptionsError(f"`sharding` is for framework='jax', and framework is {framework!r}")
    if framework == "dlpack":
        return _same
    if framework == "auto":
        framework = _installed()
    if framework == "numpy" and output == "bf16":
        raise OptionsError("NumPy has no bfloat16; use output='f16' or 'f32'")
    share = _imported(framework)
    return share if sharding is None else _global(sharding)


def _installed() -> str:
    for framework in ("torch", "numpy"):
        if importlib.util.find_spec(framework):
            return framework
    raise OptionsError(
        "neither PyTorch nor NumPy is installed here to give batches to; `pip install numpy` (or torch),"
        " or pass framework='dlpack'"
    )


def _imported(framework: str) -> Callable[[Any], Any]:
    module, name = _SHARE[framework]
    try:
        share: Callable[[Any], Any] = getattr(importlib.import_module(module), name)
    except ImportError as error:
        others = "framework='numpy'" if framework != "numpy" else "framework='dlpack'"
        line = f"framework={framework!r} cannot be imported ({error}); `pip install {framework}`, or use {others}"
        raise OptionsError(line) from error
    return share


def _global(sharding: Any) -> Callable[[Any], Any]:
    """Global arrays in JAX's sense, along the batch: every process gives the rows it has."""
    jax = importlib.import_module("jax")
    numpy = importlib.import_module("numpy")

    def share(array: Any) -> Any:
        # A copy: devices of JAX on the CPU would keep the slot's memory.
        return jax.make_array_from_process_local_data(sharding, numpy.array(array))

    return share


def _same(array: Any) -> Any:
    return array
