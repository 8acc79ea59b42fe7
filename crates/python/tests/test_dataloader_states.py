"""The checksum over a state of `bothends.torch.DataLoader`, which needs no PyTorch. What the loader
does with a state is in test_torch_state.py and test_items.py."""

from __future__ import annotations

import json
import pickle
from typing import Any

import numpy as np
import pytest
from bothends import StateError
from bothends._dataloader.states import checked, with_checksum

BETWEEN: dict[str, Any] = {"epoch": 3, "seed": 2**63 - 1}
OF_ITEMS = {**BETWEEN, "items": [5, 23, 4, False], "items_ranks": 2, "given_all": True}
OF_SAMPLERS = {
    **BETWEEN,
    "items": [0, 23, None, None],
    "sampler_epoch": 3,
    "sampler_drawn": [4, 2],
    "sampler_origin": "00ff12ab00ff12ab",
    "sampler_before": "00ff12ab00ff12ac",
    "seeds_drawn": "once",
}
# Of the native loader, in which some keys stand for the others.
NATIVE = {**BETWEEN, "version": 2, "checksum": "ab" * 8, "done": [[1, 2]], "seeds_drawn": "each"}
STATES = [BETWEEN, OF_ITEMS, OF_SAMPLERS, NATIVE]
IDS = ["between", "items", "samplers", "native"]


def flipped(text: bytes) -> list[bytes]:
    """The text with each of its bits changed."""
    changes = ((n, 1 << bit) for n in range(len(text)) for bit in range(8))
    return [text[:n] + bytes([text[n] ^ bit]) + text[n + 1 :] for n, bit in changes]


@pytest.mark.parametrize("state", STATES, ids=IDS)
def test_every_changed_bit_is_refused(state: dict[str, Any]) -> None:
    n_read = 0
    for text in flipped(json.dumps(with_checksum(state)).encode()):
        try:
            changed = json.loads(text.decode())
        except ValueError:
            continue
        n_read += 1
        if "version" in changed and "loader_checksum" not in changed:
            # The native loader refuses what has become of that key.
            continue
        with pytest.raises(StateError):
            checked(changed)
    assert n_read > 100


@pytest.mark.parametrize("state", STATES, ids=IDS)
def test_every_other_dictionary_is_refused(state: dict[str, Any]) -> None:
    whole = with_checksum(state)
    assert whole.keys() == state.keys() | {"loader_checksum"}
    for key, value in whole.items():
        others = (None, -1, 1.5, "x", [], {}, not value, [value])
        bad = [{**whole, key: other} for other in others]
        bad += [{k: v for k, v in whole.items() if k != key}] if key in state else []
        for other in bad:
            with pytest.raises(StateError, match="give what that returned|use an older checkpoint"):
                checked(other)
    with pytest.raises(StateError, match="`loader_checksum` is not that of the rest"):
        checked({**whole, "more": 1})


@pytest.mark.parametrize("state", STATES, ids=IDS)
def test_frameworks_write_dictionaries_as_they_like(state: dict[str, Any]) -> None:
    whole = with_checksum(state)
    as_tuples = {k: tuple(v) if isinstance(v, list) else v for k, v in whole.items()}
    ways: list[dict[str, Any]] = [
        json.loads(json.dumps(whole, indent=2)),
        pickle.loads(pickle.dumps(whole)),
        dict(reversed(whole.items())),
        as_tuples,
        {**whole, "_iterator_finished": True, "_snapshot": {1: object()}},
    ]
    for way in ways:
        assert checked(way) == (state, None)
    assert len(json.dumps(whole)) - len(json.dumps(state)) <= 40


def test_numbers_of_numpy_are_those_of_python() -> None:
    """Symptom: a script that counts epochs with them cannot save a state."""
    whole = with_checksum({"epoch": np.int64(3), "seed": 4})
    assert whole["loader_checksum"] == with_checksum({"epoch": 3, "seed": 4})["loader_checksum"]
    assert type(whole["epoch"]) is int
    assert checked(whole) == ({"epoch": 3, "seed": 4}, None)


def test_data_sets_that_make_their_samples_take_any_epoch() -> None:
    state = {"epoch": -1, "seed": 3, "items": [0, 23, 4, True]}
    assert checked(with_checksum(state)) == (state, None)


def test_a_state_of_an_earlier_version_has_a_note() -> None:
    earlier = {**OF_ITEMS, "items": [5, 23, 4]}
    for state in (BETWEEN, earlier, NATIVE, {"epoch": 0, "seed": None}):
        own, note = checked({**state, "_of_a_framework": 1})
        assert own == state
        assert note is not None and "of an earlier version" in note
    # The native loader has a checksum over these, or warns that they have none.
    alone = {k: v for k, v in NATIVE.items() if k != "seeds_drawn"}
    for state in (alone, {**NATIVE, "version": 1}):
        assert checked(state) == (state, None)


def test_what_no_earlier_version_wrote_is_refused() -> None:
    for state in (OF_ITEMS, OF_SAMPLERS, {**BETWEEN, "loader_checksun": "ab" * 8}):
        with pytest.raises(StateError, match="`loader_checksum` is missing"):
            checked(state)


@pytest.mark.parametrize(
    "state",
    [
        None,
        [],
        {},
        {"seed": 3},
        {"epoch": -1, "seed": 3},
        {"epoch": 2**32 - 1, "seed": 3},
        {"epoch": True, "seed": 3},
        {"epoch": 1.0, "seed": 3},
        {"epoch": 1, "seed": "3"},
        {"epoch": 1, "seed": 3, 4: 5},
        {"epoch": 1, "seed": object()},
    ],
)
def test_what_no_loader_can_save_is_refused(state: Any) -> None:
    with pytest.raises(StateError, match="give what that returned"):
        checked(state)
