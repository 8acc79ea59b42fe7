"""States of `bothends.torch.DataLoader` that are saved and loaded in less common places: at module
level, before the first iteration, between epochs, and again before the resumed run goes on."""

from __future__ import annotations

import copy
import io
import json
import pickle
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("torchvision", reason="torchvision is not installed")

import torch.utils.data as theirs
import torchvision.transforms as v1
from bothends import StateError
from bothends.torch import DataLoader

from loaders import DEVICE, EVAL, TRAIN, numbered, older, order, quiet, stream

N = 23
N_BATCHES = 6


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS"):
        monkeypatch.delenv(variable, raising=False)


class Numbered(theirs.Dataset):  # type: ignore[misc]
    """A data set that makes its own samples: sample i is one black pixel and i."""

    def __len__(self) -> int:
        return N

    def __getitem__(self, i: int) -> Any:
        return torch.zeros(1), i


DATA: dict[str, Callable[[Path], Any]] = {
    "read by bothends": lambda small: numbered(small, TRAIN),
    "with __getitem__": lambda _: Numbered(),
}
WORKERS = {
    "no workers": {},
    "workers": {"num_workers": 2},
    "kept workers": {"num_workers": 2, "persistent_workers": True},
}


def again(state: dict[str, Any]) -> dict[str, Any]:
    """The state as a file holds it."""
    loaded: dict[str, Any] = json.loads(json.dumps(state))
    return loaded


# ---- what was changed ---------------------------------------------------------------------


def places(made: DataLoader) -> list[dict[str, Any]]:
    """The states before an epoch, in it, after its last batch, and after its end."""
    found = [made.state_dict()]
    batches = iter(made)
    next(batches)
    found.append(made.state_dict())
    for _ in range(N_BATCHES - 1):
        next(batches)
    found.append(made.state_dict())
    assert next(batches, None) is None
    return [*found, made.state_dict()]


def otherwise(value: Any) -> Any:
    """Another value of the same type."""
    if isinstance(value, list):
        return [*value, 1]
    if isinstance(value, dict):
        return {**value, "more": 1}
    if isinstance(value, str):
        # One bit of the first character.
        return chr(ord(value[0]) ^ 1) + value[1:] if value else "x"
    return not value if isinstance(value, bool) else (value or 0) + 1


@pytest.mark.parametrize("kind", DATA)
def test_every_change_of_a_state_is_refused(small: Path, kind: str) -> None:
    """Symptom: only what the native loader saves has a checksum; with another value of the other keys
    the stream is another one."""
    for state in places(weighted(DATA[kind](small), seed=3)):
        resumed = weighted(DATA[kind](small))
        before = resumed.state_dict()
        for key, value in state.items():
            changed = {**state, key: otherwise(value)}
            renamed = {chr(ord(k[0]) ^ 1) + k[1:] if k == key else k: v for k, v in state.items()}
            without = {k: v for k, v in state.items() if k != key}
            # Without its checksum, it may be one of an earlier version.
            broken = [changed, renamed, *([] if key == "loader_checksum" else [without])]
            for bad in broken:
                with warnings.catch_warnings(), pytest.raises(StateError):
                    warnings.simplefilter("ignore")
                    resumed.load_state_dict(bad)
        with pytest.raises(StateError, match="`loader_checksum` is not .*; use an older checkpoint"):
            resumed.load_state_dict({**state, "given_all": "given_all" not in state})
        assert resumed.state_dict() == before


def saved_by_torch(state: dict[str, Any]) -> Any:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


ROUNDS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "json": again,
    "pickle": lambda state: pickle.loads(pickle.dumps(state)),
    "torch.save": saved_by_torch,
    # Accelerate's wrapper adds the first, torchdata's loaders the second.
    "frameworks": lambda state: {**state, "_iterator_finished": False, "_num_yielded": 1},
    "turned round": lambda state: dict(reversed(state.items())),
}


@pytest.mark.parametrize("way", ROUNDS)
@pytest.mark.parametrize("kind", DATA)
def test_a_state_may_be_written_in_any_way(small: Path, kind: str, way: str) -> None:
    made = weighted(DATA[kind](small), seed=3)
    whole = order(made) + order(made)
    states = places(weighted(DATA[kind](small), seed=3))
    for n, state in zip((0, 1, N_BATCHES, N_BATCHES), states, strict=True):
        resumed = weighted(DATA[kind](small))
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            resumed.load_state_dict(ROUNDS[way](state))
        rest = order(resumed)
        assert rest == whole[n : n + len(rest)]


@pytest.mark.parametrize("kind", DATA)
def test_a_state_of_an_earlier_version_is_read_with_a_warning(small: Path, kind: str) -> None:
    made = weighted(DATA[kind](small), seed=3)
    whole = order(made) + order(made)
    states = places(weighted(DATA[kind](small), seed=3))
    for n, state in zip((0, 1, N_BATCHES, N_BATCHES), states, strict=True):
        resumed = weighted(DATA[kind](small))
        with pytest.warns(UserWarning, match="of an earlier version") as said:
            resumed.load_state_dict(older(state))
        told = [each.filename for each in said if "earlier version" in str(each.message)]
        assert told == [__file__]
        rest = order(resumed)
        assert rest == whole[n : n + len(rest)]


# ---- where it is loaded -------------------------------------------------------------------

SCRIPT = """
import warnings
warnings.simplefilter("ignore")
import torch
from bothends.torch import DataLoader

class Numbered(torch.utils.data.Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, i):
        return i

first = DataLoader(Numbered(), batch_size=4, shuffle=True)
batches = iter(first)
next(batches), next(batches)
state = first.state_dict()
assert state["given_all"]
resumed = DataLoader(Numbered(), batch_size=4, shuffle=True)
resumed.load_state_dict(state)
print(len(list(resumed)), len(list(resumed)))
"""


def test_a_script_loads_the_end_of_an_epoch_at_module_level(tmp_path: Path) -> None:
    """Symptom: ValueError: call stack is not deep enough."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=100)
    assert done.stdout.split() == ["0", "2"], done.stderr


# ---- a generator of the sampler's own -----------------------------------------------------


def weighted(dataset: Any, **options: Any) -> DataLoader:
    generator = torch.Generator().manual_seed(4)
    sampler = theirs.WeightedRandomSampler(torch.ones(N), N, generator=generator)
    return quiet(dataset, sampler=sampler, **options)


def states_of(made: DataLoader, n_epochs: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """The state at each place where a script can save one, and the number of batches before it."""
    n = 0
    for _ in range(n_epochs):
        batches = iter(made)
        yield n, made.state_dict()
        for _batch in batches:
            n += 1
            yield n, made.state_dict()
        yield n, made.state_dict()


@pytest.mark.parametrize("n_loaded", [1, 2])
@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("kind", DATA)
def test_a_samplers_generator_continues_from_any_state(
    small: Path, kind: str, workers: str, n_loaded: int
) -> None:
    """Symptom: the epoch after the one that a state ends gets that one's order; or does if the
    state is loaded and saved before."""
    options = WORKERS[workers]
    made = weighted(DATA[kind](small), seed=3, **options)
    whole = sum((order(made) for _ in range(5)), [])
    assert len({str(whole[n : n + N_BATCHES]) for n in range(0, len(whole), N_BATCHES)}) == 5
    made = weighted(DATA[kind](small), seed=3, **options)
    for place, (n, state) in enumerate(states_of(made, 3)):
        # With worker processes, only where something differs: round the ends of epochs.
        if options and n % N_BATCHES not in (0, 1, N_BATCHES - 1):
            continue
        for _ in range(n_loaded):
            resumed = weighted(DATA[kind](small), **options)
            resumed.load_state_dict(again(state))
            state = resumed.state_dict()
        rest = order(resumed) + order(resumed)
        assert rest == whole[n : n + len(rest)], place
        assert len(rest) > N_BATCHES - 1


@pytest.mark.parametrize("kind", DATA)
def test_a_copy_goes_on_with_the_samplers_generator(small: Path, kind: str) -> None:
    """Symptom: a loader in another process gets an earlier epoch's order."""
    made = weighted(DATA[kind](small), seed=3)
    order(made), order(made)
    other = copy.deepcopy(made)
    assert order(other) == order(made)


@pytest.mark.parametrize("kind", DATA)
def test_a_generator_may_be_seeded_for_each_epoch(small: Path, kind: str) -> None:
    """Symptom: a script that seeds the sampler's generator itself resumes in a later order."""
    made = weighted(DATA[kind](small), seed=3)
    whole, states = [], []
    for epoch in range(3):
        made.sampler.generator.manual_seed(7)
        states.append(made.state_dict())
        whole.append(order(made))
        states.append(made.state_dict())
    assert whole[0] == whole[1] == whole[2]
    for place, state in enumerate(states):
        resumed = weighted(DATA[kind](small))
        resumed.load_state_dict(again(state))
        resumed.sampler.generator.manual_seed(7)
        assert order(resumed) == whole[0], place


@pytest.mark.parametrize("kind", DATA)
def test_a_script_may_seed_the_generator_after_it_has_loaded_a_state(small: Path, kind: str) -> None:
    """Symptom: what the state knew of the generator was forgotten."""
    made = weighted(DATA[kind](small), seed=3)
    order(made)
    batches = iter(made)
    next(batches)
    state = made.state_dict()
    rest = len(list(batches))
    other = weighted(DATA[kind](small), seed=3)
    order(other)
    resumed = weighted(DATA[kind](small))
    resumed.load_state_dict(again(state))
    resumed.sampler.generator.manual_seed(4)
    assert order(resumed) == order(other)[-rest:]


@pytest.mark.parametrize("kind", DATA)
def test_the_states_of_earlier_versions_are_loaded_as_before(small: Path, kind: str) -> None:
    """They count the epochs before the newest one, also if that one has ended."""
    made = weighted(DATA[kind](small), seed=3)
    whole = [order(made) for _ in range(3)]
    made = weighted(DATA[kind](small), seed=3)
    order(made)
    batches = iter(made)
    next(batches)
    middle = again(made.state_dict())
    assert middle["sampler_drawn"] == [4, 1]
    resumed = weighted(DATA[kind](small))
    resumed.load_state_dict(middle)
    assert order(resumed) == whole[1][1:] and order(resumed) == whole[2]
    list(batches)
    ended = again(made.state_dict())
    assert ended["sampler_drawn"] == [4, 2]
    resumed = weighted(DATA[kind](small))
    del ended["sampler_before"]
    resumed.load_state_dict({**older(ended), "sampler_drawn": [4, 1]})
    assert order(resumed) == whole[1]


# ---- a generator that the sampler is not alone with ---------------------------------------


class Permuted(theirs.Sampler[int]):  # type: ignore[misc]
    """A sampler of a script's own."""

    def __init__(self, generator: torch.Generator) -> None:
        self.generator = generator

    def __len__(self) -> int:
        return N

    def __iter__(self) -> Iterator[int]:
        return iter(torch.randperm(N, generator=self.generator).tolist())


SHARED: dict[str, Callable[[torch.Generator], dict[str, Any]]] = {
    "with replacement": lambda generator: {
        "sampler": theirs.RandomSampler(range(N), replacement=True, generator=generator)
    },
    "weighted": lambda generator: {
        "sampler": theirs.WeightedRandomSampler(torch.ones(N), N, generator=generator)
    },
    "batches": lambda generator: {
        "batch_sampler": theirs.BatchSampler(Permuted(generator), 4, False), "batch_size": 1
    },
}


def sharing(cls: Any, dataset: Any, how: str, **options: Any) -> Any:
    """A loader whose sampler draws from the loader's generator."""
    generator = torch.Generator().manual_seed(4)
    options = {"batch_size": 4, "generator": generator, **SHARED[how](generator), **options}
    return cls(dataset, **options)


@pytest.mark.parametrize("seed", [None, 3])
@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("how", SHARED)
@pytest.mark.parametrize("kind", DATA)
def test_a_generator_of_loader_and_sampler_gives_pytorchs_order(
    small: Path, kind: str, how: str, workers: str, seed: int | None
) -> None:
    """Symptom: from the second epoch on the order is another one, since PyTorch's loader draws from
    its generator as each epoch begins, or as it starts workers that it keeps."""
    made = sharing(quiet, DATA[kind](small), how, seed=seed, **WORKERS[workers])
    plain = sharing(theirs.DataLoader, DATA[kind](small), how, **WORKERS[workers])
    assert [order(made) for _ in range(3)] == [order(plain) for _ in range(3)]


@pytest.mark.parametrize("workers", ["no workers", "kept workers"])
@pytest.mark.parametrize("how", ["with replacement", "weighted"])
@pytest.mark.parametrize("kind", DATA)
def test_a_generator_of_loader_and_sampler_continues_from_any_state(
    small: Path, kind: str, how: str, workers: str
) -> None:
    """Symptom: a resumed epoch has another order: the seed that the loader draws is left out."""
    options = WORKERS[workers]
    made = sharing(quiet, DATA[kind](small), how, **options)
    whole = sum((order(made) for _ in range(5)), [])
    made = sharing(quiet, DATA[kind](small), how, **options)
    for place, (n, state) in enumerate(states_of(made, 3)):
        if options and n % N_BATCHES not in (0, 1, N_BATCHES - 1):
            continue
        # The state knows which seeds were drawn, whatever workers there are now.
        resumed = sharing(quiet, DATA[kind](small), how)
        resumed.load_state_dict(again(state))
        rest = order(resumed) + order(resumed)
        assert rest == whole[n : n + len(rest)] and len(rest) > N_BATCHES - 1, place


@pytest.mark.parametrize("kind", DATA)
def test_a_samplers_own_code_may_share_the_loaders_generator(small: Path, kind: str) -> None:
    """Symptom: the first epoch cannot be resumed, although the generator is as at its beginning."""
    made = sharing(quiet, DATA[kind](small), "batches")
    batches = iter(made)
    next(batches), next(batches)
    state = again(made.state_dict())
    rest = [labels.tolist() for _, labels in batches]
    resumed = sharing(quiet, DATA[kind](small), "batches")
    resumed.load_state_dict(state)
    assert order(resumed) == rest


@pytest.mark.parametrize("kind", DATA)
def test_a_shared_generators_states_of_earlier_versions_are_loaded_as_before(
    small: Path, kind: str
) -> None:
    """They are of runs whose epochs drew no seed from the generator."""
    generator = torch.Generator().manual_seed(4)
    alone = SHARED["weighted"](generator)["sampler"]
    whole = [list(theirs.BatchSampler(alone, 4, False)) for _ in range(3)]
    resumed = sharing(quiet, DATA[kind](small), "weighted")
    resumed.load_state_dict({"epoch": 1, "seed": 3, "sampler_drawn": [4, 1]})
    assert [order(resumed), order(resumed)] == whole[1:]


def parted(dataset: Any, **options: Any) -> DataLoader:
    """A loader of a random part, which the sampler's generator has chosen."""
    generator = torch.Generator().manual_seed(4)
    part, _ = theirs.random_split(dataset, [14, N - 14], generator=generator)
    sampler = theirs.WeightedRandomSampler(torch.ones(14), 14, generator=generator)
    return quiet(part, sampler=sampler, **options)


@pytest.mark.parametrize("n_loaded", [1, 2])
@pytest.mark.parametrize("kind", DATA)
def test_a_script_may_draw_from_the_samplers_generator_first(
    small: Path, kind: str, n_loaded: int
) -> None:
    """Symptom: a resumed epoch has the order of a generator from which nothing was drawn before."""
    made = parted(DATA[kind](small), seed=3)
    whole = sum((order(made) for _ in range(5)), [])
    made = parted(DATA[kind](small), seed=3)
    states = list(states_of(made, 3))
    for place, (n, state) in enumerate(states):
        for _ in range(n_loaded):
            resumed = parted(DATA[kind](small))
            resumed.load_state_dict(again(state))
            state = resumed.state_dict()
        rest = order(resumed) + order(resumed)
        assert rest == whole[n : n + len(rest)] and len(rest) > 3, place
    # Also in the run itself, as a script does that goes back to the best epoch so far.
    for place, (n, state) in enumerate(states):
        made.load_state_dict(again(state))
        rest = order(made)
        assert rest == whole[n : n + len(rest)], place
        assert len(json.dumps(state)) < 1000


@pytest.mark.parametrize("kind", DATA)
def test_a_generator_that_was_used_otherwise_is_refused(small: Path, kind: str) -> None:
    """Symptom: the resumed epoch has samples twice."""
    made = parted(DATA[kind](small), seed=3)
    next(iter(made))
    state = again(made.state_dict())
    resumed = parted(DATA[kind](small), seed=5)
    torch.rand(1, generator=resumed.sampler.generator)
    before = resumed.state_dict()
    with pytest.raises(StateError, match="drawn other numbers from the sampler's generator"):
        resumed.load_state_dict(state)
    assert resumed.state_dict() == before


@pytest.mark.parametrize("workers", ["no workers", "kept workers"])
@pytest.mark.parametrize("kind", DATA)
def test_a_later_epoch_of_a_samplers_own_code_resumes(small: Path, kind: str, workers: str) -> None:
    """Symptom: the resumed epoch has another order, since a seed is drawn that workers which are kept
    had drawn for epoch 0."""
    options = WORKERS[workers]
    made = sharing(quiet, DATA[kind](small), "batches", **options)
    begun, states, rests = [made.generator.get_state()], [], []
    for _ in range(2):
        batches = iter(made)
        next(batches)
        states.append(again(made.state_dict()))
        rests.append([labels.tolist() for _, labels in batches])
        begun.append(made.generator.get_state())
    # Also in the run itself, which has drawn the seed.
    for resumed in (sharing(quiet, DATA[kind](small), "batches", **options), made):
        for n in (1, 0):
            resumed.generator.set_state(begun[n])
            resumed.load_state_dict(states[n])
            assert order(resumed) == rests[n], n


@pytest.mark.parametrize("workers", ["no workers", "kept workers"])
@pytest.mark.parametrize("kind", DATA)
def test_a_shared_generator_may_be_seeded_for_each_epoch(
    small: Path, kind: str, workers: str
) -> None:
    """Symptom: with workers that are kept, a seed is drawn in each epoch; PyTorch's loader draws
    one."""
    options = WORKERS[workers]
    made = sharing(quiet, DATA[kind](small), "weighted", **options)
    plain = sharing(theirs.DataLoader, DATA[kind](small), "weighted", **options)
    whole, states = [], []
    for epoch in range(3):
        plain.generator.manual_seed(100 + epoch)
        whole.append(order(plain))
        states.append((epoch, 0, made.state_dict()))
        made.generator.manual_seed(100 + epoch)
        states.append((epoch, 0, made.state_dict()))
        batches = iter(made)
        assert next(batches)[1].tolist() == whole[epoch][0]
        states.append((epoch, 1, made.state_dict()))
        assert [labels.tolist() for _, labels in batches] == whole[epoch][1:]
    for epoch, n, state in states:
        resumed = sharing(quiet, DATA[kind](small), "weighted", **options)
        resumed.load_state_dict(again(state))
        for later in range(epoch, 3):
            resumed.generator.manual_seed(100 + later)
            assert order(resumed) == whole[later][n if later == epoch else 0:], (epoch, n, later)
        resumed.close()


@pytest.mark.parametrize("kind", DATA)
def test_a_sampler_may_have_the_global_generator(small: Path, kind: str) -> None:
    """Symptom: StateError, since the script has drawn from it for its model."""

    def globally(n_drawn: int) -> DataLoader:
        torch.rand(n_drawn)
        sampler = theirs.WeightedRandomSampler(torch.ones(N), N, generator=torch.default_generator)
        return quiet(DATA[kind](small), sampler=sampler)

    made = globally(3)
    batches = iter(made)
    next(batches)
    state = again(made.state_dict())
    rest = [labels.tolist() for _, labels in batches]
    resumed = globally(1)
    before = torch.get_rng_state()
    resumed.load_state_dict(state)
    assert order(resumed) == rest and order(resumed) == order(made)
    assert torch.equal(torch.get_rng_state(), before)


def a_pair(dataset: Any) -> tuple[DataLoader, DataLoader]:
    """A loader for training and one for validation, which have a generator in common."""
    generator = torch.Generator().manual_seed(4)

    def of(n: int) -> DataLoader:
        sampler = theirs.RandomSampler(range(N), num_samples=n, generator=generator)
        return quiet(dataset, sampler=sampler, generator=generator)

    return of(N), of(10)


@pytest.mark.parametrize("kind", DATA)
def test_loaders_with_one_generator_resume_between_epochs(small: Path, kind: str) -> None:
    """Symptom: StateError, since the one began after the other had drawn."""
    pair = a_pair(DATA[kind](small))
    whole = [[order(made) for made in pair] for _ in range(2)]
    states = [again(made.state_dict()) for made in pair]
    resumed = a_pair(DATA[kind](small))
    resumed[0].load_state_dict(states[0])
    with pytest.warns(UserWarning, match="had drawn other numbers from the sampler's generator"):
        resumed[1].load_state_dict(states[1])
    with pytest.warns(UserWarning, match="the orders are not those of that run"):
        third = order(resumed[0])
    for made, epoch in ((resumed[0], third), (resumed[1], order(resumed[1]))):
        assert all(epoch != first for pair in whole for first in pair)
        assert made.state_dict()["epoch"] == 3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(order(resumed[0])) == N_BATCHES


@pytest.mark.parametrize("n_taken", [0, 1])
@pytest.mark.parametrize("kind", DATA)
def test_loaders_with_one_generator_do_not_resume_within_an_epoch(
    small: Path, kind: str, n_taken: int
) -> None:
    """Symptom: if the data set's own code runs, the rest of the epoch has samples twice."""
    pair = a_pair(DATA[kind](small))
    order(pair[0]), order(pair[1])
    states = []
    for made in pair:
        batches = iter(made)
        for _ in range(n_taken):
            next(batches)
        states.append(again(made.state_dict()))
    resumed = a_pair(DATA[kind](small))
    resumed[0].load_state_dict(states[0])
    if n_taken == 0:
        with pytest.warns(UserWarning, match="the orders are not those of that run"):
            assert len(order(resumed[0])) == N_BATCHES
        with pytest.warns(UserWarning, match="the orders are not those of that run"):
            resumed[1].load_state_dict(states[1])
        assert len(order(resumed[1])) == 3
        return
    # It does not begin at the second attempt, either.
    for _ in range(2):
        with pytest.raises(StateError, match="had drawn other numbers from the sampler's generator"):
            iter(resumed[0])
    with pytest.raises(StateError, match="had drawn other numbers from the sampler's generator"):
        a_pair(DATA[kind](small))[1].load_state_dict(states[1])


@pytest.mark.parametrize("kind", DATA)
def test_a_generator_that_is_replaced_after_a_state_was_loaded(small: Path, kind: str) -> None:
    """Symptom: an order of another generator."""
    made = weighted(DATA[kind](small), seed=3)
    order(made)
    next(iter(made))
    resumed = weighted(DATA[kind](small))
    resumed.load_state_dict(again(made.state_dict()))
    resumed.sampler.generator = None
    with pytest.raises(StateError, match="0 generators of their own, and had 1"):
        iter(resumed)


# ---- an order that only PyTorch's own loader follows --------------------------------------


class WithAnEmptyBatch(theirs.Sampler[list[int]]):  # type: ignore[misc]
    """Batches in random order, and at the end one without samples."""

    def __init__(self, generator: torch.Generator, n_empty: int = 1) -> None:
        self.drawn_from = generator
        self.n_empty = n_empty

    def __len__(self) -> int:
        return N_BATCHES + self.n_empty

    def __iter__(self) -> Iterator[list[int]]:
        samples = torch.randperm(N, generator=self.drawn_from).tolist()
        yield from (samples[i : i + 4] for i in range(0, N, 4))
        yield from ([] for _ in range(self.n_empty))


def with_an_empty_batch(cls: Any, dataset: Any, **options: Any) -> Any:
    def collate(batch: list[Any]) -> Any:
        return None, torch.tensor([label for _, label in batch])

    generator = torch.Generator().manual_seed(4)
    sampler = WithAnEmptyBatch(generator, **options)
    return cls(dataset, batch_sampler=sampler, batch_size=1, collate_fn=collate)


def test_pytorchs_loader_has_the_generators_as_they_were(small: Path) -> None:
    """Symptom: its order is another one, as if an epoch had gone before."""
    plain = order(with_an_empty_batch(theirs.DataLoader, numbered(small)))
    torch.manual_seed(1)
    before = torch.get_rng_state()
    made = with_an_empty_batch(quiet, numbered(small))
    with pytest.warns(UserWarning, match="PyTorch's own DataLoader runs instead"):
        assert order(made) == plain and plain[-1] == []
    after = torch.get_rng_state()
    torch.set_rng_state(before)
    order(with_an_empty_batch(theirs.DataLoader, numbered(small)))
    assert torch.equal(torch.get_rng_state(), after)


def test_pytorchs_loader_does_not_take_over_within_an_epoch(small: Path) -> None:
    """Symptom: the epoch begins again, without a word."""
    made = with_an_empty_batch(quiet, numbered(small), n_empty=0)
    next(iter(made))
    resumed = with_an_empty_batch(quiet, numbered(small))
    resumed.load_state_dict(again(made.state_dict()))
    for _ in range(2):
        with pytest.raises(StateError, match="has no sample; .* cannot resume within an epoch"):
            iter(resumed)


# ---- the end of a resumed epoch -----------------------------------------------------------

WITHIN: dict[str, Callable[[], dict[str, Any]]] = {
    "shuffled": lambda: {"shuffle": True},
    "sequential, whole batches": lambda: {"drop_last": True},
    "weighted": lambda: {"sampler": theirs.WeightedRandomSampler(torch.ones(N), N)},
    "uneven": lambda: {
        "batch_sampler": [[1], [2, 3, 4, 5], [6, 7], [8], [9, 10, 11], [0]], "batch_size": 1
    },
    "out of order": lambda: {"shuffle": True, "strategy": "mte", **DEVICE},
}


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("how", WITHIN)
@pytest.mark.parametrize("kind", DATA)
def test_a_resumed_epoch_knows_its_end(small: Path, kind: str, how: str, workers: str) -> None:
    """Symptom: Lightning loses an epoch where it resumes for the second time: a state from after the
    last batch of a resumed epoch does not say so."""
    options = {**WORKERS[workers], "seed": 3}

    def resumed(state: dict[str, Any]) -> DataLoader:
        made = quiet(DATA[kind](small), **WITHIN[how](), **options)
        made.load_state_dict(again(state))
        return made

    whole = resumed({"epoch": 0, "seed": 3})
    expected = [sorted(sum(order(whole), [])) for _ in range(2)]
    n, state, seen = len(whole), {"epoch": 0, "seed": 3}, []
    # The last one is at the end of the epoch.
    for n_taken in (1, 2, n - 3, 0):
        made = resumed(state)
        batches = iter(made)
        assert len(batches) == n and len(made) == len(whole)  # type: ignore[arg-type]
        seen += sum((next(batches)[1].tolist() for _ in range(n_taken)), [])
        n, state = n - n_taken, made.state_dict()
        assert ("given_all" in state) == (n == 0)
    assert next(batches, None) is None
    assert sorted(seen) == expected[0] and sorted(sum(order(made), [])) == expected[1]


# ---- before the first iteration -----------------------------------------------------------

ORDERS: dict[str, Callable[[], dict[str, Any]]] = {
    "shuffled": lambda: {"shuffle": True},
    "sequential": dict,
    "with a generator": lambda: {"shuffle": True, "generator": torch.Generator().manual_seed(4)},
    "weighted": lambda: {"sampler": theirs.WeightedRandomSampler(torch.ones(N), N)},
}


@pytest.mark.parametrize("how", ORDERS)
@pytest.mark.parametrize("kind", DATA)
def test_a_state_from_before_the_first_epoch_is_that_of_the_run(
    small: Path, kind: str, how: str
) -> None:
    """Symptom: {"epoch": 0, "seed": None}; the resumed run is another one."""
    first = quiet(DATA[kind](small), **ORDERS[how]())
    state = again(first.state_dict())
    assert first.state_dict() == state
    # A script draws for its model in between.
    torch.rand(3)
    whole = [stream(first), stream(first)]
    resumed = quiet(DATA[kind](small), **ORDERS[how]())
    resumed.load_state_dict(state)
    assert [stream(resumed), stream(resumed)] == whole


def test_loaders_saved_before_they_begin_differ(small: Path) -> None:
    """Symptom: two loaders have the same order, since both look at the same generator."""
    one, two = quiet(Numbered(), shuffle=True), quiet(Numbered(), shuffle=True)
    assert one.state_dict()["seed"] != two.state_dict()["seed"]
    assert order(one) != order(two)


def test_a_copy_made_before_the_first_epoch_has_a_seed_of_its_own() -> None:
    """Symptom: copying a loader fixes its seed."""
    torch.manual_seed(1)
    expected = order(quiet(Numbered(), shuffle=True))
    made = quiet(Numbered(), shuffle=True)
    copy.deepcopy(made)
    torch.manual_seed(1)
    assert order(made) == expected


@pytest.mark.parametrize("kind", DATA)
def test_a_state_without_a_seed_leaves_the_scripts(small: Path, kind: str) -> None:
    """Symptom: a state that an earlier version saved before training discards `seed=7`."""
    expected = stream(quiet(DATA[kind](small), shuffle=True, seed=7))
    made = quiet(DATA[kind](small), shuffle=True, seed=7)
    made.load_state_dict({"epoch": 0, "seed": None})
    assert made.state_dict()["seed"] == 7
    assert stream(made) == expected


def test_ranks_that_agree_on_a_seed_do_so_as_they_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: ranks that have saved their states before training share an epoch in different
    orders."""
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    made = quiet(Numbered(), shuffle=True)
    assert made.state_dict()["seed"] is None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert isinstance(quiet(Numbered()).state_dict()["seed"], int), "each reads all of it"


def test_a_loader_that_an_earlier_version_has_pickled() -> None:
    """Symptom: AttributeError, since it has no course."""
    made = quiet(Numbered(), shuffle=True, seed=3)
    order(made)
    state = made.__getstate__()
    del state["course"]
    other = DataLoader.__new__(DataLoader)
    other.__setstate__(state)
    assert order(other) == order(made)


# ---- something changes after it was loaded ------------------------------------------------


@pytest.mark.parametrize("changes_first", [False, True])
def test_another_transform_takes_effect_after_a_state_between_epochs(
    small: Path, changes_first: bool
) -> None:
    """Symptom: without a word, the first epoch comes again."""
    made = quiet(numbered(small, TRAIN), shuffle=True, seed=3)
    order(made)
    state = again(made.state_dict())
    made.dataset.transform = EVAL
    second = stream(made)
    resumed = quiet(numbered(small, TRAIN), shuffle=True)
    resumed.load_state_dict(state)
    if changes_first:
        resumed.dataset.transform = EVAL
        assert resumed.state_dict() == state
    else:
        resumed.dataset.transform = v1.Compose([v1.Resize(36), v1.CenterCrop(32), v1.ToTensor()])
    assert stream(resumed) == second
    assert resumed.state_dict()["epoch"] == 2


@pytest.mark.parametrize("other", [EVAL, v1.ToTensor()], ids=["read by bothends", "not read"])
def test_another_transform_is_refused_after_a_state_inside_an_epoch(
    small: Path, other: Any
) -> None:
    """Symptom: without a word, the first epoch comes from its beginning."""
    made = quiet(numbered(small, TRAIN), shuffle=True, seed=3)
    order(made)
    batches = iter(made)
    next(batches)
    state = again(made.state_dict())
    rest = [labels.tolist() for _, labels in batches]
    resumed = quiet(numbered(small, TRAIN), shuffle=True)
    resumed.load_state_dict(state)
    resumed.dataset.transform = other
    for _ in range(2):
        with warnings.catch_warnings(), pytest.raises(StateError, match="changed after"):
            warnings.simplefilter("ignore")
            iter(resumed)
        assert resumed.state_dict() == state
    if other is EVAL:
        resumed.dataset.transform = TRAIN
        assert order(resumed) == rest


def test_options_may_change_after_a_state_was_loaded(small: Path) -> None:
    """Symptom: without a word, the first epoch comes from its beginning."""
    made = quiet(numbered(small), shuffle=True, seed=3)
    order(made)
    batches = iter(made)
    next(batches)
    state = again(made.state_dict())
    rest = [labels.tolist() for _, labels in batches]
    resumed = quiet(numbered(small), shuffle=True)
    resumed.load_state_dict(state)
    resumed.output = "f16"
    assert order(resumed) == rest


def test_a_transform_may_be_changed_before_a_state_is_loaded(small: Path) -> None:
    """Symptom: the state is refused, as if it were of another recipe."""
    made = quiet(numbered(small, EVAL), shuffle=True, seed=3)
    batches = iter(made)
    next(batches)
    state = again(made.state_dict())
    rest = [(labels.tolist(), images.numpy().tobytes()) for images, labels in batches]
    resumed = quiet(numbered(small, TRAIN), shuffle=True)
    resumed.dataset.transform = EVAL
    resumed.load_state_dict(state)
    assert stream(resumed) == rest
