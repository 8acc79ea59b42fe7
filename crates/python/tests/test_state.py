"""Saving and resuming: exact after any batch, small, and free of how many work on it."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import bothends
import pytest

from streams import Step, ids, loader, state_len, step, steps, taken

DEVICE = {"csds": ["sim:ideal,rate=2000"]}


def resumed(data: Path, state: dict[str, Any], **options: Any) -> bothends.Loader:
    batches = loader(data, **options)
    batches.load_state_dict(json.loads(json.dumps(state)))
    return batches


@pytest.mark.parametrize("last", ["drop", "pad", "wrap", "even"])
@pytest.mark.parametrize("device", [{}, DEVICE], ids=["host", "device"])
def test_it_is_exact_after_every_batch(small: Path, last: str, device: dict[str, Any]) -> None:
    batches = loader(small, last=last)
    first, second = steps(batches), steps(batches)
    for n in range(len(first) + 1):
        batches = loader(small, last=last, **device)
        feed = batches.batches()
        assert taken(feed, n) == first[:n]
        state = batches.state_dict()
        assert state_len(batches) <= 1000
        # Other numbers of workers, and the device here or there.
        other = {} if device else DEVICE
        goes_on = resumed(small, state, last=last, workers=3, **other)
        assert steps(goes_on) == first[n:]
        assert steps(goes_on) == second


def test_the_end_of_an_epoch_is_the_beginning_of_the_next(small: Path) -> None:
    batches = loader(small)
    assert len(steps(batches)) == 5
    state = batches.state_dict()
    assert steps(resumed(small, state)) == steps(batches)


def test_len_and_epoch_after_loading(small: Path) -> None:
    batches = loader(small)
    batches.set_epoch(3)
    taken(batches.batches(), 2)
    goes_on = resumed(small, batches.state_dict())
    assert goes_on.epoch == 3 and len(goes_on) == 5
    goes_on.set_epoch(3)  # as training loops do: it leaves the place alone
    assert len(steps(goes_on)) == 3
    again = resumed(small, batches.state_dict())
    again.set_epoch(4)
    assert len(steps(again)) == 5


def test_a_state_speaks_of_what_was_taken(small: Path) -> None:
    batches = loader(small)
    feed = batches.batches()
    taken(feed, 1)
    state = batches.state_dict()
    for _ in range(3):
        assert batches.state_dict() == state, "what lies ready does not count"
    taken(feed, 1)
    assert batches.state_dict() != state


def after(data: Path, world: int, n: int, **options: Any) -> tuple[list[Step], dict[str, Any]]:
    """What all ranks take in n steps, and the state that each of them then has."""
    seen, states = [], []
    for rank in range(world):
        batches = loader(data, rank=rank, world_size=world, **options)
        seen += taken(batches.batches(), n)
        states.append(batches.state_dict())
    assert all(state == states[0] for state in states), "one state is that of all"
    return seen, states[0]


@pytest.mark.parametrize(("data", "n"), [("small", 23), ("many", 500)])
@pytest.mark.parametrize("before", [1, 2, 4])
@pytest.mark.parametrize("then", [1, 2, 4])
def test_ranks_may_change(
    data: str, n: int, before: int, then: int, request: pytest.FixtureRequest
) -> None:
    folder = request.getfixturevalue(data)
    options = {"last": "pad", "workers": 1, "batch_size": 4 if n == 500 else 2}
    seen, state = after(folder, before, 1 if n == 23 else 9, **options)
    rests = []
    for rank in range(then):
        batches = resumed(folder, state, rank=rank, world_size=then, **options)
        rests.append(steps(batches))
    assert len({len(rest) for rest in rests}) == 1, "ranks take equal numbers of steps"
    assert sorted(ids(seen) + [i for rest in rests for i in ids(rest)]) == list(range(n))


@pytest.mark.parametrize("options", [{}, {"strategy": "relaxed", **DEVICE}], ids=["", "relaxed"])
@pytest.mark.parametrize("last", ["drop", "pad", "wrap", "even"])
def test_it_knows_how_many_batches_are_left(
    small: Path, last: str, options: dict[str, Any]
) -> None:
    """Lightning, which counts batches, continues with the next epoch where none is."""
    options = {**options, "last": last, "repeat": 2}
    n_batches = len(loader(small, **options))
    for n in range(n_batches + 1):
        batches = loader(small, **options)
        feed = batches.batches()
        taken(feed, n)
        goes_on = resumed(small, batches.state_dict(), **options)
        assert goes_on._n_left() == n_batches - n == len(steps(goes_on))
    if not options.get("strategy"):
        for then in (1, 2, 4):
            _, state = after(small, 2, 2, last=last)
            goes_on = resumed(small, state, last=last, rank=0, world_size=then)
            assert goes_on._n_left() == len(steps(goes_on))


def test_torch_saves_it(small: Path) -> None:
    torch = pytest.importorskip("torch")
    batches = loader(small)
    feed = batches.batches()
    taken(feed, 3)
    file = io.BytesIO()
    torch.save({"loader": batches.state_dict(), "model": torch.zeros(3)}, file)
    file.seek(0)
    state = torch.load(file, weights_only=True)["loader"]
    assert steps(resumed(small, state)) == [step(batch) for batch in feed]


OTHERS = [
    ({"seed": 6}, "seed"),
    ({"batch_size": 3}, "batch"),
    ({"recipe": "imagenet-eval", "output": "f32"}, "recipe"),
    ({"shuffle": False}, "shuffle"),
    ({"last": "pad"}, "last"),
    ({"limit": 20}, "20"),
]


@pytest.mark.parametrize(("options", "key"), OTHERS)
def test_a_state_of_another_run_is_refused(small: Path, options: dict[str, Any], key: str) -> None:
    batches = loader(small)
    taken(batches.batches(), 2)
    other = loader(small, **options)
    with pytest.raises(bothends.StateError, match=key) as refused:
        other.load_state_dict(batches.state_dict())
    assert str(refused.value).endswith(" or start without load_state_dict")
    assert len(steps(other)) == len(other), "it goes on as if nobody had asked"


def test_a_damaged_state_is_refused(small: Path) -> None:
    batches = loader(small)
    state = batches.state_dict()
    for broken in ({}, {**state, "format": 99}, {k: v for k, v in list(state.items())[1:]}):
        with pytest.raises(bothends.StateError):
            batches.load_state_dict(broken)
    with pytest.raises(bothends.StateError, match="give what state_dict wrote"):
        batches.load_state_dict({})
    number = next(k for k, v in state.items() if isinstance(v, int))
    with pytest.raises(bothends.StateError):
        batches.load_state_dict({**state, number: -1})


def test_whatever_is_changed_in_a_state_is_refused(small: Path) -> None:
    batches = loader(small)
    taken(batches.batches(), 2)
    state = batches.state_dict()
    changes = {"position": 3, "epoch": 1, "done": [[4, 5]], "n_delivered": 1, "seed": 5 + 2**40}
    for key, value in changes.items():
        assert state[key] != value
        with pytest.raises(bothends.StateError):
            loader(small).load_state_dict({**state, key: value})
    # Frameworks write dictionaries as they like.
    otherwise = json.loads(json.dumps(dict(reversed(state.items())), indent=2))
    assert len(steps(resumed(small, otherwise))) == 3


def test_a_state_of_version_1_is_read_with_a_warning(small: Path) -> None:
    batches = loader(small)
    first = taken(batches.batches(), 2)
    state = batches.state_dict()
    old = {k: v for k, v in state.items() if k not in ("checksum", "plan")} | {"version": 1}
    goes_on = loader(small)
    with pytest.warns(UserWarning, match="version 1, which has no checksum") as said:
        goes_on.load_state_dict(old)
    assert said[0].filename == __file__
    assert first + steps(goes_on) == steps(loader(small))


def test_relaxed_states_hold_what_was_taken(small: Path) -> None:
    options = {"strategy": "relaxed", "last": "pad", **DEVICE}
    batches = loader(small, **options)
    first = taken(batches.batches(), 3)
    rest = steps(resumed(small, batches.state_dict(), **options))
    assert sorted(ids(first) + ids(rest)) == list(range(23))


def test_uneven_consumers_have_no_state(small: Path) -> None:
    batches = loader(small, batch_size=2, framework="numpy")
    one, two = batches.consumers(2)
    next(one)
    with pytest.raises(bothends.StateError, match="different numbers of batches"):
        batches.state_dict()
    next(two)
    goes_on = resumed(small, batches.state_dict(), batch_size=2)
    assert len(steps(goes_on)) == 23 // 2 - 2
