"""Data sets whose own `__getitem__` makes the samples: in workers, in any order, with numbers that
follow from the seed, and resumed at any batch."""

from __future__ import annotations

import copy
import itertools
import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import bothends
import numpy as np
import pytest
from bothends._ranks import Ranks

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("torchvision", reason="torchvision is not installed")

from bothends._dataloader.items import dealt
from bothends._dataloader.orders import Own
from loaders import older, quiet

theirs = torch.utils.data
N = 23


class Drawn(theirs.Dataset):  # type: ignore[misc]
    """Sample i is its number, and what the three global generators draw for it."""

    def __len__(self) -> int:
        return N

    def __getitem__(self, i: int) -> Any:
        return i, random.random(), float(np.random.rand()), torch.rand(3)


class AtOnce(Drawn):
    def __getitems__(self, samples: list[int]) -> list[Any]:
        return [self[i] for i in samples]


class Who(Drawn):
    def __getitem__(self, i: int) -> Any:
        return i, os.getpid()


class Fails(Drawn):
    def __getitem__(self, i: int) -> Any:
        if i == 5:
            raise KeyError("no such sample")
        return i


class Hangs(Drawn):
    def __getitem__(self, i: int) -> Any:
        time.sleep(60)


class Odd(Drawn):
    """Samples of all that people return."""

    def __getitem__(self, i: int) -> Any:
        return {
            "image": torch.full((2, 64, 64), i, dtype=torch.bfloat16),
            "boxes": [torch.zeros(i % 3, 4), (i, f"name {i}")],
            "none": None,
            "array": np.full((70, 70), i, np.int16),
        }


def flat(batch: Any) -> list[Any]:
    """A batch as something that can be compared."""
    return [part.tolist() if isinstance(part, torch.Tensor) else part for part in batch]


def stream(loader: Any) -> list[Any]:
    return [flat(batch) for batch in loader]


def numbers(loader: Any) -> list[int]:
    return [i for batch in loader for i in batch[0].tolist()]


def first(samples: list[Any]) -> Any:
    return samples


@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("drop_last", [False, True])
def test_an_epoch_is_every_sample_once(workers: int, drop_last: bool) -> None:
    """Symptom: samples are lost or come twice."""
    loader = quiet(Drawn(), shuffle=True, num_workers=workers, drop_last=drop_last)
    epochs = [numbers(loader) for _ in range(2)]
    for epoch in epochs:
        assert len(set(epoch)) == len(epoch) == (20 if drop_last else N)
    assert epochs[0] != epochs[1]
    assert len(loader) == (5 if drop_last else 6)
    assert numbers(quiet(Drawn(), num_workers=workers)) == list(range(N))


@pytest.mark.parametrize("make", [Drawn, AtOnce])
def test_the_numbers_are_the_same_however_many_workers(make: Any) -> None:
    """Symptom: a different number of workers trains another model, and a resumed run differs."""
    streams = [
        stream(quiet(make(), shuffle=True, seed=7, num_workers=n, **more))
        for n, more in ((0, {}), (1, {}), (3, {}), (2, {"multiprocessing_context": "spawn"}))
    ]
    assert all(other == streams[0] for other in streams[1:])
    assert stream(quiet(make(), shuffle=True, seed=8)) != streams[0]


def test_the_callers_generators_are_left_alone() -> None:
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    stream(quiet(Drawn(), seed=1))
    assert torch.rand(1) == expected


def test_the_seed_is_pytorchs() -> None:
    """Symptom: `torch.manual_seed` does nothing, or two loaders draw the same."""
    streams = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        streams += [stream(quiet(Drawn(), shuffle=True)) for _ in range(2)]
    assert streams[:2] == streams[2:4] != streams[4:]
    assert streams[0] != streams[1]


def test_a_sample_that_comes_again_is_augmented_anew() -> None:
    """Symptom: sampling with replacement trains on identical copies."""
    [batch] = list(quiet(Drawn(), batch_sampler=[[4, 4, 4]], batch_size=1))
    assert batch[0].tolist() == [4, 4, 4] and len(set(batch[1].tolist())) == 3


ORDERS: dict[str, Any] = {
    "sequential": lambda: {},
    "shuffled": lambda: {"shuffle": True},
    "with replacement": lambda: {
        "sampler": theirs.RandomSampler(range(N), replacement=True, num_samples=17)
    },
    "dealt": lambda: {"sampler": theirs.DistributedSampler(Drawn(), num_replicas=2, rank=1)},
    "batches": lambda: {"batch_sampler": [[1], [2, 3], [4, 4, 4]], "batch_size": 1},
}


@pytest.mark.parametrize("kind", ORDERS)
@pytest.mark.parametrize("workers", [0, 2])
def test_resumed_at_any_batch(kind: str, workers: int) -> None:
    """Symptom: a resumed run trains on other samples than the run would have continued with."""
    made = quiet(Drawn(), num_workers=workers, **ORDERS[kind]())
    whole, states = [], []
    for _ in range(3):
        batches = iter(made)
        for batch in batches:
            whole.append(flat(batch))
            states.append(made.state_dict())
    for n, state in enumerate(states[: 2 * len(states) // 3]):
        assert len(repr(state)) <= 1000
        again = quiet(Drawn(), num_workers=workers, **ORDERS[kind]())
        again.load_state_dict(state)
        assert again.state_dict() == state
        rest = stream(again) or stream(again)
        assert rest == whole[n + 1 : n + 1 + len(rest)], n


@pytest.mark.filterwarnings("ignore:bothends")
def test_a_state_of_another_run_is_refused() -> None:
    made = quiet(Drawn(), seed=1)
    next(iter(made))
    state = made.state_dict()
    with pytest.raises(bothends.StateError, match="4 samples per batch; here are 5"):
        quiet(Drawn(), batch_size=5).load_state_dict(state)
    state = older(state)
    for broken in ({**state, "items": [-1, N, 4]}, {**state, "items": "no"}, {}, {"epoch": "one"}):
        with pytest.raises(bothends.StateError):
            quiet(Drawn()).load_state_dict(broken)
    beyond = quiet(Drawn())
    beyond.load_state_dict({**state, "items": [7, N, 4]})
    with pytest.raises(bothends.StateError, match="7 batches, more than the epoch has"):
        iter(beyond)
    with pytest.raises(bothends.StateError, match="bothends reads"):
        quiet(Drawn()).load_state_dict({**state, "version": 2})


@pytest.mark.parametrize("n_asked", [None, 0, 1, 5, 6])
def test_a_state_of_an_epoch_of_another_shape_is_refused(n_asked: int | None) -> None:
    """Symptom: only the middle of an epoch knew it, and not whether its last batch is dropped."""
    made = quiet(Drawn(), drop_last=True, seed=1)
    if n_asked is not None:
        # The sixth is its end.
        assert len(list(itertools.islice(made, n_asked))) == min(n_asked, 5)
    state = made.state_dict()
    longer = theirs.ConcatDataset([Drawn(), Drawn()])
    others = {
        "with 4 samples per batch; here are 5": (Drawn(), {"batch_size": 5}),
        "with drop_last=True; here it is False": (Drawn(), {"drop_last": False}),
    }
    for line, (data, options) in others.items():
        other = quiet(data, **{"drop_last": True, **options})
        with pytest.raises(bothends.StateError, match=f"{line}; give the same, or start"):
            other.load_state_dict(state)
    quiet(Drawn(), drop_last=True).load_state_dict(state)
    other = quiet(longer, drop_last=True)
    if n_asked in (1, 5):
        with pytest.raises(bothends.StateError, match="with 23 samples; here are 46; give"):
            other.load_state_dict(state)
    else:
        # Between epochs, a data set may grow, and each rank may have a part of its own.
        other.load_state_dict(state)
        assert len(list(other)) == 11


def test_a_data_set_may_grow_before_a_loader_is_copied() -> None:
    """Symptom: the copy refuses the place of its own original."""
    data = [torch.tensor([i]) for i in range(8)]
    made = quiet(data, seed=1)
    assert len(list(made)) == 2
    data += data
    assert len(list(copy.deepcopy(made))) == 4


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("n", [1, 7, 24, 25])
def test_ranks_share_an_epoch(shuffle: bool, n: int) -> None:
    """Symptom: each rank trains on the whole epoch, or one ends before the others."""
    for world in (1, 2, 3):
        parts = [
            dealt(Own(shuffle, Ranks(rank, world)), (n, 4), (1, 2), drop_last=False)
            for rank in range(world)
        ]
        counts = Counter(i for part in parts for i in part.samples)
        assert set(counts) == set(range(n)) and sum(counts.values()) - n < world
        assert len({len(part.samples) for part in parts}) == 1
        assert len({len(part.ends) for part in parts}) == 1
        own = Own(shuffle, Ranks(0, world))
        assert len(parts[0].ends) == own.n_batches(n, 4, drop_last=False)
        dropped = dealt(own, (n, 4), (1, 2), drop_last=True)
        assert len(dropped.ends) == own.n_batches(n, 4, drop_last=True)
        assert len(dropped.samples) == 4 * len(dropped.ends)


def of_ranks(
    world: int, state: Any, most: int, patch: pytest.MonkeyPatch
) -> tuple[list[int], Any]:
    """The samples that this many ranks take after a state, `most` batches each, and the state then."""
    taken = []
    for rank in range(world):
        patch.setenv("RANK", str(rank))
        patch.setenv("WORLD_SIZE", str(world))
        made = quiet(Drawn(), shuffle=True, batch_size=2, seed=9)
        if state is not None:
            made.load_state_dict(state)
        for batch in itertools.islice(made, most):
            taken += batch[0].tolist()
        saved = made.state_dict()
    return taken, saved


@pytest.mark.filterwarnings("ignore:bothends")
@pytest.mark.parametrize(("then", "n", "now"), [(4, 2, 2), (2, 2, 4), (1, 6, 3), (3, 2, 2), (2, 6, 3)])
def test_resumed_with_another_number_of_ranks(
    then: int, n: int, now: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Symptom: samples are lost or come twice. (Two ranks have the epoch in six batches each.)"""
    first, state = of_ranks(then, None, n, monkeypatch)
    rest, _ = of_ranks(now, state, 100, monkeypatch)
    counts = Counter(first + rest)
    assert set(counts) == set(range(N)) and sum(counts.values()) - N < max(then, now)


@pytest.mark.filterwarnings("ignore:bothends")
def test_steps_that_another_number_of_ranks_cannot_resume(monkeypatch: pytest.MonkeyPatch) -> None:
    _, state = of_ranks(2, None, 1, monkeypatch)
    with pytest.raises(bothends.StateError, match="no whole steps of 4 ranks"):
        of_ranks(4, state, 100, monkeypatch)
    # Earlier versions did not say how many there were.
    state = older(state)
    del state["items_ranks"]
    rest, _ = of_ranks(4, state, 100, monkeypatch)
    assert len(rest) > 0


def test_what_a_sampler_deals_needs_the_same_number_of_ranks() -> None:
    def dealt_to(world: int) -> Any:
        sampler = theirs.DistributedSampler(Drawn(), num_replicas=world, rank=1)
        return quiet(Drawn(), sampler=sampler, seed=9)

    made = dealt_to(2)
    before = made.state_dict()
    batches = iter(made)
    next(batches)
    other = dealt_to(3)
    other.load_state_dict(made.state_dict())
    with pytest.raises(bothends.StateError, match="divided among 2 ranks; here are 3"):
        iter(other)
    other.load_state_dict(before)
    assert len(numbers(other)) == 8


def pids(loader: Any) -> set[int]:
    return {pid for batch in loader for pid in batch[1].tolist()}


def test_workers_persist_where_they_are_told_to() -> None:
    """Symptom: a data set that opens a large file in each worker opens it in every epoch."""
    kept = quiet(Who(), num_workers=2, persistent_workers=True)
    assert pids(kept) == pids(kept)
    assert os.getpid() not in pids(kept)
    kept.close()
    new = quiet(Who(), num_workers=2)
    assert not pids(new) & pids(new)


def test_two_iterators_share_persistent_workers() -> None:
    made = quiet(Drawn(), num_workers=2, persistent_workers=True, seed=5)
    expected = [stream(made), stream(made)]
    made.set_epoch(0)
    one = iter(made)
    got = [flat(next(one))]
    other = iter(made)
    second = [flat(next(other))]
    got += [flat(batch) for batch in one]
    second += [flat(batch) for batch in other]
    assert [got, second] == expected


def test_the_initialiser_is_called_in_each_worker() -> None:
    def init(number: int) -> None:
        os.environ["OF_WORKER"] = str(number)

    class Reads(Drawn):
        def __getitem__(self, i: int) -> Any:
            info = theirs.get_worker_info()
            assert info.dataset is not None and info.num_workers == 2
            return i, int(os.environ["OF_WORKER"]), info.id

    for _, of_init, of_torch in quiet(Reads(), num_workers=2, worker_init_fn=init):
        assert of_init.tolist() == of_torch.tolist()


@pytest.mark.parametrize("workers", [0, 2])
def test_an_exception_comes_at_its_batch(workers: int) -> None:
    """Symptom: a hang, or an exception that does not say where it is from."""
    batches = iter(quiet(Fails(), num_workers=workers))
    assert next(batches).tolist() == [0, 1, 2, 3]
    with pytest.raises(KeyError, match="no such sample"):
        next(batches)


@pytest.mark.parametrize("workers", [0, 2])
def test_an_empty_batch_of_a_batch_sampler_is_a_batch(workers: int) -> None:
    """Symptom: it is left out, and the batches after it come too early."""
    batches = [[1], [], [2, 3], []]
    made = quiet(Drawn(), batch_size=1, batch_sampler=batches, collate_fn=len, num_workers=workers)
    first = iter(made)
    assert [next(first), next(first)] == [1, 0]
    state = made.state_dict()
    assert list(first) == [2, 0]
    made.load_state_dict(state)
    assert list(made) == [2, 0]


def test_a_timeout_takes_no_batch() -> None:
    """Symptom: the state after a timeout is past the batch that was late."""
    made = quiet(Hangs(), num_workers=1, timeout=0.5)
    batches = iter(made)
    before = made.state_dict()
    with pytest.raises(bothends.Error, match="timeout"):
        next(batches)
    assert made.state_dict() == before


def test_a_batch_that_takes_too_long_is_an_error() -> None:
    batches = iter(quiet(Hangs(), num_workers=1, timeout=0.5))
    begun = time.monotonic()
    with pytest.raises(bothends.Error, match="timeout=0.5 s"):
        next(batches)
    assert time.monotonic() - begun < 30


@pytest.mark.parametrize("workers", [0, 2])
def test_anything_may_be_a_sample(workers: int) -> None:
    """Symptom: what PyTorch's loader passes on is refused, or comes changed."""
    made = list(quiet(Odd(), num_workers=workers, collate_fn=first))
    expected = list(theirs.DataLoader(Odd(), batch_size=4, collate_fn=first))
    for mine, other in zip(made, expected, strict=True):
        for a, b in zip(mine, other, strict=True):
            assert torch.equal(a["image"], b["image"]) and a["image"].dtype == torch.bfloat16
            assert a["boxes"][1] == b["boxes"][1] and a["none"] is None
            assert a["boxes"][0].shape == b["boxes"][0].shape
            assert (a["array"] == b["array"]).all()


def test_a_data_set_without_a_length_is_pytorchs() -> None:
    class Endless(theirs.Dataset):  # type: ignore[misc]
        def __getitem__(self, i: int) -> Any:
            return i

    made = quiet(Endless(), sampler=[3, 1])
    assert [batch.tolist() for batch in made] == [[3, 1]]
    assert made.stats()["loader"] == "pytorch"


def test_collate_fn_may_be_exchanged() -> None:
    def drawn(samples: list[Any]) -> Iterator[Any]:
        return [len(samples), random.random()]

    made = quiet(Drawn(), seed=3, collate_fn=drawn, batch_size=10)
    assert [n for n, _ in made] == [10, 10, 3]
    again = quiet(Drawn(), seed=3, collate_fn=drawn, batch_size=10, num_workers=2)
    made.set_epoch(0)
    assert stream(made) == stream(again)
