"""Random numbers as people expect them of PyTorch's loader: a seed is drawn from PyTorch's
generator when the first iteration begins, and everything else follows from it.

What is drawn: one number of 64 bits, from `generator`, else from the sampler's generator, else
from PyTorch's own on the CPU. Nothing is ever drawn from Python's and NumPy's, and nothing in
later epochs.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("torchvision", reason="torchvision is not installed")

import numpy as np
import torch.utils.data as theirs
import torchvision.transforms as v1
from bothends.torch import DataLoader

from loaders import EVAL, TRAIN, numbered, order, ours, pictures, quiet, stream

N = 23

SAMPLERS: dict[str, Callable[[], dict[str, Any]]] = {
    "shuffled": lambda: {"shuffle": True},
    "sequential": lambda: {},
    "distributed": lambda: {"sampler": theirs.DistributedSampler(range(N), 2, 0)},
    "weighted": lambda: {"sampler": theirs.WeightedRandomSampler([1.0] * N, N)},
}


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS"):
        monkeypatch.delenv(variable, raising=False)


def made(root: Path, kind: str = "shuffled", transform: Any = TRAIN, **options: Any) -> DataLoader:
    return ours(numbered(root, transform), **{**SAMPLERS[kind](), **options})


# ---- where the seed comes from ------------------------------------------------------------


@pytest.mark.parametrize("kind", SAMPLERS)
def test_a_loader_made_anew_each_epoch_differs(small: Path, kind: str) -> None:
    """Symptom: a script that makes its loader in the loop over epochs trains on epoch 0 for
    ever."""
    torch.manual_seed(0)
    epochs = [stream(made(small, kind)) for _ in range(3)]
    assert epochs[0] != epochs[1] != epochs[2] != epochs[0]
    if kind in ("shuffled", "weighted"):
        orders = [[samples for samples, _ in epoch] for epoch in epochs]
        assert orders[0] != orders[1] != orders[2]


@pytest.mark.parametrize("kind", SAMPLERS)
def test_two_loaders_differ(small: Path, kind: str) -> None:
    """Symptom: two loaders over one data set (labelled and not, say) give the same crops."""
    one, two = made(small, kind), made(small, kind)
    assert all(a != b for (_, a), (_, b) in zip(stream(one), stream(two), strict=True))


@pytest.mark.parametrize("kind", SAMPLERS)
def test_manual_seed_rules(small: Path, kind: str) -> None:
    """Symptom: torch.manual_seed(0) and (1) give the same augmentation under DDP; or the same
    seed gives another stream."""

    def seeded(seed: int) -> list[list[tuple[list[int], bytes]]]:
        torch.manual_seed(seed)
        loader = made(small, kind)
        return [stream(loader), stream(loader)]

    assert seeded(0) == seeded(0)
    zero, one = seeded(0), seeded(1)
    assert zero[0] != one[0] and zero[1] != one[1]


def test_the_seed_counts_where_iterating_begins(small: Path) -> None:
    """Symptom: a script that seeds after it has made its loaders is not reproducible."""
    streams = []
    for _ in range(2):
        loader = made(small)
        torch.manual_seed(6)
        streams.append(stream(loader))
    assert streams[0] == streams[1]


def test_a_generator_that_was_given_is_drawn_from(small: Path) -> None:
    """Symptom: `generator` is ignored, or PyTorch's own is also drawn from."""
    before = torch.get_rng_state()
    for give in (lambda g: {"shuffle": True, "generator": g}, of_sampler):
        first, again, other = (
            stream(ours(numbered(small, TRAIN), **give(torch.Generator().manual_seed(seed))))
            for seed in (4, 4, 5)
        )
        assert first == again != other
    assert torch.equal(torch.get_rng_state(), before)


def of_sampler(generator: Any) -> dict[str, Any]:
    return {"sampler": theirs.RandomSampler(range(N), generator=generator)}


def test_a_seed_that_was_given_is_the_seed(small: Path) -> None:
    """Symptom: `seed` does not fix the stream."""
    streams = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed + len(streams))
        streams.append(stream(made(small, seed=seed)))
    assert streams[0] == streams[1] != streams[2]


# ---- what a loader draws ------------------------------------------------------------------


def numbers() -> tuple[Any, ...]:
    """The next numbers of the generators, which stay as they are."""
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    drawn = (random.random(), float(np.random.rand()), float(torch.rand(())))
    random.setstate(states[0]), np.random.set_state(states[1]), torch.set_rng_state(states[2])
    return drawn


@pytest.mark.parametrize("kind", SAMPLERS)
@pytest.mark.parametrize("rest", [[], [v1.Lambda(lambda image: image + torch.rand(()))]])
def test_one_number_is_drawn_and_no_more(small: Path, kind: str, rest: list[Any]) -> None:
    """Symptom: dropout and initial weights depend on how long the loader has run, or NumPy's
    and Python's numbers do."""
    loader = quiet(numbered(small, v1.Compose([*TRAIN.transforms, *rest])), **SAMPLERS[kind]())
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    python, numpy, _ = numbers()
    torch.empty((), dtype=torch.int64).random_()
    expected = (python, numpy, float(numbers()[2]))
    torch.manual_seed(1)
    for _ in range(2):
        list(loader)
        assert numbers() == expected


def test_making_one_draws_nothing(small: Path) -> None:
    """Symptom: as above, of a loader that is made and not used."""
    before = numbers()
    loader = made(small)
    len(loader), repr(loader), loader.words, loader.recipe, loader.stats(), loader.state_dict()
    assert numbers() == before


def test_a_seed_that_was_given_draws_nothing(small: Path) -> None:
    """Symptom: as above."""
    before = numbers()
    list(made(small, seed=3)), list(made(small, "weighted", seed=3))
    assert numbers() == before


# ---- the state carries the seed -----------------------------------------------------------


@pytest.mark.parametrize("kind", SAMPLERS)
@pytest.mark.parametrize("n", [0, 2])
def test_a_state_brings_its_seed(small: Path, kind: str, n: int) -> None:
    """Symptom: the checkpoint of an unseeded script cannot be resumed: "seed ..."."""
    first = made(small, kind)
    feed = iter(first)
    for _ in range(n):
        next(feed)
    state = first.state_dict()
    assert isinstance(state["seed"], int)
    rest = stream(feed)
    second_epoch = stream(first)
    torch.manual_seed(99)
    again = made(small, kind)
    again.load_state_dict(state)
    assert stream(again) == rest and stream(again) == second_epoch


def test_the_state_between_epochs_brings_it_too(small: Path) -> None:
    """Symptom: a checkpoint at an epoch's end resumes with another seed."""
    first = made(small)
    list(first)
    state = first.state_dict()
    again = made(small)
    again.load_state_dict(state)
    assert stream(again) == stream(first)


def test_a_loaded_state_rules_over_the_script(small: Path) -> None:
    """Symptom: a resumed script whose loader has already run continues with the wrong seed."""
    first = made(small)
    feed = iter(first)
    next(feed)
    state, rest = first.state_dict(), stream(feed)
    used = made(small)
    list(used)
    used.load_state_dict(state)
    assert stream(used) == rest


def test_a_state_before_the_first_epoch_is_loaded(small: Path) -> None:
    """Symptom: saving before training begins breaks. (What it says: test_torch_state.py.)"""
    first = made(small)
    state = first.state_dict()
    again = made(small)
    again.load_state_dict(state)
    assert sorted(sum(order(again), [])) == list(range(N))


# ---- epochs -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", SAMPLERS)
def test_epochs_differ(small: Path, kind: str) -> None:
    """Symptom: every epoch has the same augmentation."""
    loader = made(small, kind)
    epochs = [stream(loader) for _ in range(3)]
    assert epochs[0] != epochs[1] != epochs[2] != epochs[0]


@pytest.mark.parametrize("kind", SAMPLERS)
def test_set_epoch_replays(small: Path, kind: str) -> None:
    """Symptom: an epoch that is asked for by number is another one."""
    loader = made(small, kind)
    epochs = [stream(loader) for _ in range(3)]
    if kind == "distributed":
        # Nobody has told the sampler: its order was epoch 0's in all.
        epochs = [stream_of(loader, epoch) for epoch in range(3)]
    for epoch in (2, 0, 1):
        assert stream_of(loader, epoch) == epochs[epoch]


def stream_of(loader: DataLoader, epoch: int) -> list[tuple[list[int], bytes]]:
    loader.set_epoch(epoch)
    return stream(loader)


def test_a_samplers_epoch_is_the_epoch(small: Path) -> None:
    """Symptom: sampler.set_epoch(n) changes the order and not the augmentation, or is lost."""
    loader = made(small, "distributed")
    epochs = []
    for epoch in (0, 1, 0):
        loader.sampler.set_epoch(epoch)
        epochs.append(stream(loader))
    assert epochs[0] == epochs[2] != epochs[1]
    assert epochs[0][0][0] != epochs[1][0][0]


def test_forgetting_set_epoch_repeats_the_order_as_pytorch_does(small: Path) -> None:
    """Symptom: the samplers of others are set behind the script's back; or a forgotten
    set_epoch repeats the augmentation as well."""
    loader = made(small, "distributed")
    first, second = stream(loader), stream(loader)
    assert [samples for samples, _ in first] == [samples for samples, _ in second]
    assert all(a != b for (_, a), (_, b) in zip(first, second, strict=True))


def test_evaluation_has_no_random_numbers(small: Path) -> None:
    """Symptom: two evaluations differ."""
    loaders = [ours(numbered(small, EVAL)) for _ in range(2)]
    assert torch.equal(pictures(loaders[0]), pictures(loaders[1]))
    assert torch.equal(pictures(loaders[0]), pictures(loaders[0]))
