"""The checksum over a whole state of `bothends.torch.DataLoader`. The native loader's part of a
state has one of its own, which does not cover the rest: the generators, the samplers' epoch, the
end of an epoch, and places in data sets that make their samples themselves.

Nothing here knows what a place means; `items` and `course` do. Nothing here needs PyTorch.
"""

from __future__ import annotations

import hashlib
import json
import operator
from typing import Any

from .._errors import StateError

# What a state says besides the place in the epoch.
BESIDES = frozenset((
    "sampler_epoch",
    "sampler_drawn",
    "sampler_origin",
    "sampler_before",
    "seeds_drawn",
    "given_all",
))
_KEY = "loader_checksum"
# All that states without a checksum had, except the native loader's.
_EARLIER = BESIDES | {"epoch", "seed", "items", "items_ranks", "items_skipped"}
# The native loader counts epochs in 32 bits, of which it reserves the last.
N_EPOCHS = 2**32 - 1

_NOT_OURS = "the state was not made by state_dict(); give what that returned"
_UNCHECKED = (
    "the resume state is of an earlier version, whose checksum, if any, does not cover all of it: "
    "damage to it may go unnoticed; states saved from here on have one that does"
)

# The form that the checksum covers. A file may have tuples as lists, and keys in any order; numbers
# of NumPy's, such as an epoch that a script counts with, are those of Python.
_canonical = json.JSONEncoder(
    sort_keys=True,
    separators=(",", ":"),
    default=operator.index,
).encode


def with_checksum(state: dict[str, Any]) -> dict[str, Any]:
    """The same state, as JSON has it, with a checksum over all of its keys. Some frameworks save a
    state in each step; this takes some 30 µs."""
    text = _canonical(state)
    # JSON refuses NumPy's numbers when a state is written, and PyTorch when it is loaded.
    return {**json.loads(text), _KEY: _checksum(text)}


def checked(state: Any) -> tuple[dict[str, Any], str | None]:
    """The state that `with_checksum` was given, as JSON has it, and what to tell whoever loads a
    state of an earlier version. Frameworks add keys of their own, which begin with "_": these are
    left out.

    Raises:
        StateError: the state is damaged.
    """
    if not isinstance(state, dict):
        raise StateError(_NOT_OURS)
    own = {name: value for name, value in state.items() if not str(name).startswith("_")}
    has_checksum, checksum = _KEY in own, own.pop(_KEY, None)
    try:
        text = _canonical(own)
    except (TypeError, ValueError) as error:
        raise StateError(_NOT_OURS) from error
    if has_checksum and checksum != _checksum(text):
        raise _damaged("is not that of the rest; give all keys of the state")
    own = json.loads(text)
    epoch, seed = own.get("epoch"), own.get("seed")
    # Data sets that make their own samples take any number for an epoch.
    is_epoch = type(epoch) is int and ("items" in own or 0 <= epoch < N_EPOCHS)
    is_seed = seed is None or type(seed) is int
    if not is_epoch or not is_seed:
        raise StateError(_NOT_OURS)
    return own, None if has_checksum else _note(own)


def _note(own: dict[str, Any]) -> str | None:
    """What to tell of a state without this checksum."""
    if "version" in own:
        # The native loader refuses keys that it does not know, and warns of its version 1.
        is_told = own["version"] == 1 or BESIDES.isdisjoint(own)
        return None if is_told else _UNCHECKED
    items = own.get("items")
    has_later_form = isinstance(items, list) and len(items) > 3
    if has_later_form or not own.keys() <= _EARLIER:
        raise _damaged("is missing")
    return _UNCHECKED


def _checksum(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _damaged(why: str) -> StateError:
    return StateError(f"the resume state is damaged: `{_KEY}` {why}; use an older checkpoint")
