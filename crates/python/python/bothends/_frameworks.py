"""How a batch's arrays become tensors of a framework, without a copy."""

import importlib
from collections.abc import Callable
from typing import Any

from ._errors import OptionsError

FRAMEWORKS = ("torch", "numpy", "jax", "dlpack")


def converter(framework: str, output: str) -> Callable[[Any], Any]:
    """The function that shares an array with `framework`.

    Raises:
        OptionsError: there is no such framework, it is not installed, or it has no such type.
    """
    if framework not in FRAMEWORKS:
        line = f"framework is {framework!r}; it must be one of {', '.join(FRAMEWORKS)}"
        raise OptionsError(line)
    if framework == "dlpack":
        return _same
    if framework == "numpy" and output == "bf16":
        raise OptionsError("NumPy has no bfloat16; use output='f16' or 'f32'")
    module, name = {
        "torch": ("torch", "from_dlpack"),
        "numpy": ("numpy", "asarray"),
        "jax": ("jax.dlpack", "from_dlpack"),
    }[framework]
    try:
        share: Callable[[Any], Any] = getattr(importlib.import_module(module), name)
    except ImportError as error:
        line = f"framework={framework!r} cannot be imported ({error}); install it, or use another"
        raise OptionsError(line) from error
    return share


def _same(array: Any) -> Any:
    return array
