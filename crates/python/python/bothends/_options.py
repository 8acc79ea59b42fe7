"""The options of loaders whose values are a few words: for type checkers, and checked where the
native loader, which checks all options, is only opened later."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from typing import Any, Literal, ParamSpec, get_args

from ._errors import OptionsError

RanksOption = Literal["auto", "shard", "replicate"]
Strategy = Literal[
    "ordered",
    "relaxed",
    "mte",
    "wrr",
    "cpu",
    "csd",
    "ordered-baseline",
    "mte-with-step",
    "wrr-by-rates",
]
Output = Literal["u8", "f32", "f16", "bf16"]
Layout = Literal["nchw", "nhwc"]
OnBad = Literal["raise", "skip", "replace", "zero"]
# "uring" is the earlier name of "io_uring".
Reader = Literal["auto", "io_uring", "uring", "pread"]
SideIndex = Literal["auto", "beside", "off"]
PageCache = Literal["auto", "through", "past"]

_WORDS: dict[str, tuple[Any, ...]] = {
    "ranks": get_args(RanksOption),
    "strategy": get_args(Strategy),
    "output": (None, *get_args(Output)),
    "layout": (None, *get_args(Layout)),
    "on_bad": get_args(OnBad),
    "reader": get_args(Reader),
    "side_index": get_args(SideIndex),
    "page_cache": get_args(PageCache),
}
_OBJECTIVE = re.compile(r"throughput|energy|host-cpu-cap=\d+%?")

P = ParamSpec("P")


def refuse_values(options: dict[str, Any]) -> None:
    """Raises an OptionsError that names the possible values of the first option with another."""
    for name, words in _WORDS.items():
        value = options[name]
        if value not in words:
            known = ", ".join(word for word in words if word is not None)
            raise OptionsError(f"`{name}` is {value!r}; it must be one of {known}")
    objective = options["objective"]
    if not isinstance(objective, str) or not _OBJECTIVE.fullmatch(objective):
        known = "throughput, energy, or host-cpu-cap=P with P from 1 to 100"
        raise OptionsError(f"`objective` is {objective!r}; it must be {known}")


def refusing(
    refuse: Callable[[dict[str, Any], list[str], type[Any]], None],
) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """A decorator of an `__init__`: calls `refuse` first, with the keyword arguments, the names that
    there are, and the class. Type checkers see these arguments only."""

    def decorated(init: Callable[P, None]) -> Callable[P, None]:
        names = list(inspect.signature(init).parameters)[1:]

        @functools.wraps(init)
        def checked(*args: P.args, **options: P.kwargs) -> None:
            refuse(options, names, type(args[0]))
            init(*args, **options)

        return checked

    return decorated
