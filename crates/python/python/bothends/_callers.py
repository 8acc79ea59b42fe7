"""Finds the caller: the first frame outside bothends, which a warning is addressed to."""

from __future__ import annotations

import sys


def stacklevel_of_caller() -> int:
    """The `stacklevel` of the first frame outside bothends, for the function that calls this."""
    frame, level = sys._getframe(1), 1
    while frame is not None and _is_ours(frame.f_globals.get("__name__", "")):
        frame, level = frame.f_back, level + 1  # type: ignore[assignment]
    return level


def _is_ours(module: str) -> bool:
    return module == "bothends" or module.startswith("bothends.")
