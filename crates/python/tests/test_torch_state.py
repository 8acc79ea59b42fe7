"""States of `bothends.torch.DataLoader` that are saved and loaded in less common places: at module
level, before the first iteration, between epochs, and again before the resumed run goes on."""

from __future__ import annotations

import copy
import json
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
from bothends.torch import DataLoader

from loaders import TRAIN, numbered, order, quiet, stream

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
    resumed.load_state_dict({**ended, "sampler_drawn": [4, 1]})
    assert order(resumed) == whole[1]


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
