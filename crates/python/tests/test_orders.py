"""Orders that samplers give: each is followed to the sample, with a device and without, and can
be resumed after every batch."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("torchvision", reason="torchvision is not installed")

import bothends
import numpy as np
import torch.utils.data as theirs
from bothends.torch import DataLoader

from loaders import DEVICE, EVAL, TRAIN, numbered, order, ours, pictures, stream

N = 23
WEIGHTS = [float(n % 5 + 1) for n in range(N)]


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS"):
        monkeypatch.delenv(variable, raising=False)


class Says(theirs.Sampler[Any]):  # type: ignore[misc]
    """A sampler that gives what a function does."""

    def __init__(self, give: Callable[[], Any], n: int = N) -> None:
        self.give = give
        self.n = n

    def __iter__(self) -> Iterator[Any]:
        return iter(self.give())

    def __len__(self) -> int:
        return self.n


class RepeatedAugmentation(theirs.Sampler[int]):  # type: ignore[misc]
    """Each sample several times, dealt in turn to the ranks, as DeiT's and torchvision's do."""

    def __init__(self, n: int, ranks: int, rank: int, repeats: int = 3) -> None:
        self.n, self.ranks, self.rank, self.repeats = n, ranks, rank, repeats
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self._all()[self.rank :: self.ranks])

    def __iter__(self) -> Iterator[int]:
        return iter(self._all()[self.rank :: self.ranks])

    def _all(self) -> list[int]:
        generator = torch.Generator().manual_seed(self.epoch)
        mixed = torch.randperm(self.n, generator=generator).tolist()
        return [sample for sample in mixed for _ in range(self.repeats)]


def with_python() -> list[int]:
    return random.sample(range(N), N)


def with_numpy() -> list[int]:
    return list(np.random.permutation(N))


UNEVEN = [[3], [1, 2, 5, 8], [22, 0], [7, 7, 7], [4, 6, 9, 10, 11]]

# Options of a loader by the kind of its order; no seed is given to any.
KINDS: dict[str, Callable[[], dict[str, Any]]] = {
    "sequential": lambda: {},
    "shuffled": lambda: {"shuffle": True},
    "weighted": lambda: {"sampler": theirs.WeightedRandomSampler(WEIGHTS, N)},
    "of a subset": lambda: {"sampler": theirs.SubsetRandomSampler(range(3, 20))},
    "with replacement": lambda: {"sampler": theirs.RandomSampler(range(N), replacement=True)},
    "distributed": lambda: {"sampler": theirs.DistributedSampler(range(N), 2, 1)},
    "repeated": lambda: {"sampler": RepeatedAugmentation(N, 2, 1)},
    "Python's numbers": lambda: {"sampler": Says(with_python)},
    "NumPy's numbers": lambda: {"sampler": Says(with_numpy)},
    "batches": lambda: {"batch_sampler": Says(lambda: UNEVEN, len(UNEVEN)), "batch_size": 1},
    "a BatchSampler": lambda: {
        "batch_sampler": theirs.BatchSampler(Says(with_python), 5, False),
        "batch_size": 1,
    },
}


def of_kind(root: Path, kind: str, transform: Any = TRAIN, **options: Any) -> DataLoader:
    return ours(numbered(root, transform), **{**KINDS[kind](), **options})


# ---- an order is followed -----------------------------------------------------------------


def test_a_sampler_is_followed_to_the_sample(small: Path) -> None:
    """Symptom: a sampler's samples came in another order, or others came."""
    given = [5, 5, 0, 22, 13, 1, 5, 2]
    made = ours(numbered(small), sampler=Says(lambda: given, len(given)), batch_size=3)
    assert order(made) == [given[:3], given[3:6], given[6:]] and len(made) == 3
    assert made.stats()["loader"] == "bothends"


@pytest.mark.parametrize("kind", KINDS)
def test_every_order_is_what_pytorchs_loader_gives(small: Path, kind: str) -> None:
    """Symptom: evaluation metrics differ from those with PyTorch's loader, for samples or
    pixels were others. Both ask the sampler once, with the same random numbers."""
    given: list[Any] = []

    class Noted(theirs.BatchSampler):  # type: ignore[misc]
        def __init__(self, below: Any) -> None:
            self.below = below

        def __len__(self) -> int:
            return len(self.below)

        def __iter__(self) -> Iterator[Any]:
            for batch in self.below:
                given.append(list(map(int, batch)))
                yield batch

    dataset = numbered(small)
    plain = theirs.DataLoader(dataset, **{"batch_size": 4, **KINDS[kind]()})
    made = ours(dataset, batch_sampler=Noted(plain.batch_sampler), batch_size=1)
    loaded = list(made)
    assert [labels.tolist() for _, labels in loaded] == given
    fixed = theirs.DataLoader(dataset, batch_sampler=given)
    for (images, _), (others, _) in zip(loaded, fixed, strict=True):
        assert torch.equal(images, others)


def test_uneven_batches_come_as_they_are(small: Path) -> None:
    """Symptom: batches of a batch sampler were cut to one size."""
    assert order(of_kind(small, "batches", EVAL)) == UNEVEN


def test_a_subset_comes_in_random_order(small: Path) -> None:
    """Symptom: SubsetRandomSampler gave samples outside of its subset."""
    made = of_kind(small, "of a subset")
    first, second = (sum(order(made), []) for _ in range(2))
    assert sorted(first) == sorted(second) == list(range(3, 20)) and first != second


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("shuffle", [False, True])
def test_distributed_samplers_are_followed(small: Path, shuffle: bool, drop_last: bool) -> None:
    """Symptom: evaluation on 3 ranks counted 103 samples of 100; with drop_last none dropped."""
    dataset = numbered(small)
    for rank in range(3):
        options = {"shuffle": shuffle, "drop_last": drop_last, "seed": 4}
        sampler = theirs.DistributedSampler(dataset, 3, rank, **options)
        made = ours(dataset, sampler=sampler)
        for epoch in range(2):
            sampler.set_epoch(epoch)
            assert sum(order(made), []) == list(sampler)
            assert len(list(sampler)) == (7 if drop_last else 8)


@pytest.mark.parametrize("kind", KINDS)
def test_with_a_device_it_is_the_same_stream(small: Path, kind: str) -> None:
    """Symptom: the second prong gives other samples than the host, or in another order."""
    plain, device = (of_kind(small, kind, seed=7, **more) for more in ({}, DEVICE))
    assert stream(device) == stream(plain)
    stats = device.stats()
    made = stats["front_batches"] + sum(back["batches"] for back in stats["back"])
    assert made == len([batch for batch in order(device)]) and len(stats["back"]) == 1


# ---- repeated samples ---------------------------------------------------------------------


def one_sample(root: Path, sampler: Any, **options: Any) -> DataLoader:
    return ours(numbered(root, TRAIN), sampler=sampler, **options)


def test_a_sample_that_comes_again_is_augmented_anew(small: Path) -> None:
    """Symptom: a weighted sampler's repeated samples are copies of each other."""
    made = one_sample(small, Says(lambda: [6] * 12, 12))
    images = pictures(made)
    assert len({image.numpy().tobytes() for image in images}) == 12
    assert order(one_sample(small, Says(lambda: [6] * 12, 12))) == [[6] * 4] * 3


def test_weighted_samples_that_repeat_differ(small: Path) -> None:
    """Symptom: as above, with PyTorch's own sampler."""
    weights = [1.0, 0.0, 3.0] + [0.0] * 20
    made = one_sample(small, theirs.WeightedRandomSampler(weights, 40))
    seen = [pixels.numpy().tobytes() for images, _ in made for pixels in images]
    drawn = set(sum(order(made), []))
    assert drawn == {0, 2} and len(set(seen)) == 40


def test_repeated_augmentation_differs_on_each_rank(small: Path) -> None:
    """Symptom: the three copies of a sample, dealt to three ranks, had one augmentation."""
    seen: dict[int, set[bytes]] = {}
    for rank in range(2):
        made = ours(
            numbered(small, TRAIN), seed=5, sampler=RepeatedAugmentation(N, 2, rank), batch_size=4
        )
        with as_rank(rank, 2):
            for images, labels in made:
                for image, sample in zip(images, labels.tolist(), strict=True):
                    seen.setdefault(sample, set()).add(image.numpy().tobytes())
    assert set(seen) == set(range(N)) and all(len(copies) == 3 for copies in seen.values())


def test_ranks_that_share_an_epoch_augment_a_sample_alike(small: Path) -> None:
    """Symptom: what a sample looks like depends on the number of ranks."""
    whole = dict(by_sample(ours(numbered(small, TRAIN), seed=5)))
    for rank in range(2):
        dataset = numbered(small, TRAIN)
        sampler = theirs.DistributedSampler(dataset, 2, rank, shuffle=False, drop_last=True)
        with as_rank(rank, 2):
            for sample, pixels in by_sample(ours(dataset, seed=5, sampler=sampler)):
                assert whole[sample] == pixels


def by_sample(loader: DataLoader) -> list[tuple[int, bytes]]:
    return [
        (sample, image.numpy().tobytes())
        for images, labels in loader
        for image, sample in zip(images, labels.tolist(), strict=True)
    ]


class as_rank:
    """Inside, the launcher's environment says that this process is one of several."""

    def __init__(self, rank: int, world: int) -> None:
        self.variables = {"RANK": str(rank), "WORLD_SIZE": str(world)}

    def __enter__(self) -> None:
        self.patch = pytest.MonkeyPatch()
        for name, value in self.variables.items():
            self.patch.setenv(name, value)

    def __exit__(self, *_: object) -> None:
        self.patch.undo()


# ---- what a sampler may give --------------------------------------------------------------


NUMBERS: dict[str, Callable[[], Any]] = {
    "tensors": lambda: torch.arange(6),
    "NumPy's": lambda: list(np.arange(6, dtype=np.int32)),
    "unsigned": lambda: list(np.arange(6, dtype=np.uint64)),
    "a range": lambda: range(6),
    "mixed": lambda: [0, np.int64(1), torch.tensor(2), 3, True + 3, 5],
}


@pytest.mark.parametrize("kind", NUMBERS)
def test_numbers_of_any_kind(small: Path, kind: str) -> None:
    """Symptom: a sampler that yields tensors or NumPy's integers falls back, or crashes."""
    made = ours(numbered(small), sampler=Says(NUMBERS[kind], 6))
    assert order(made) == [[0, 1, 2, 3], [4, 5]]


def test_batches_that_are_tensors(small: Path) -> None:
    """Symptom: as above, of a batch sampler."""
    batches = Says(lambda: [torch.tensor([4, 2]), np.array([1]), (0, 3)], 3)
    made = ours(numbered(small), batch_sampler=batches, batch_size=1)
    assert order(made) == [[4, 2], [1], [0, 3]]


def test_negative_indices_count_from_the_end(small: Path) -> None:
    """Symptom: index -1 is refused, or another sample than a list's."""
    dataset = numbered(small)
    options = {"sampler": Says(lambda: [-1, 0, -23], 3)}
    assert order(ours(dataset, **options)) == order(theirs.DataLoader(dataset, 4, **options))


@pytest.mark.parametrize("wrong", [23, 1000, -24, 2**40])
def test_an_index_that_is_no_samples_is_named(small: Path, wrong: int) -> None:
    """Symptom: an index after the last sample ends in a crash or another sample."""
    made = ours(numbered(small), sampler=Says(lambda: [0, 1, wrong], 3))
    with pytest.raises((IndexError, bothends.Error), match=str(wrong)):
        list(made)


class Pairs(theirs.Dataset):  # type: ignore[misc]
    """A folder that may be asked for a sample and a size, and lists its files."""

    def __init__(self, root: Path) -> None:
        self.folder = numbered(root)

    def __len__(self) -> int:
        return N

    def sample(self, i: int) -> Any:
        return self.folder.samples[i]

    def __getitem__(self, asked: Any) -> Any:
        return self.folder[asked[0]] if isinstance(asked, tuple) else self.folder[asked]


def falls_back(made: DataLoader, why: str) -> list[Any]:
    """What comes, from PyTorch's own loader, with one warning that says why."""
    with pytest.warns(UserWarning, match=why) as said:
        feed = iter(made)
    assert len([w for w in said if "PyTorch's own DataLoader runs" in str(w.message)]) == 1
    assert made.stats()["loader"] == "pytorch"
    return [next(feed)]


def test_a_sampler_of_tuples_is_pytorchs(small: Path) -> None:
    """Symptom: samplers that say more than an index end in a TypeError."""
    dataset = Pairs(small)
    dataset.transform = EVAL  # type: ignore[attr-defined]
    made = DataLoader(dataset, 2, sampler=Says(lambda: [(0, 224), (3, 160)], 2))
    ((_, labels),) = falls_back(made, r"\(0, 224\).*not a list of indices")
    assert labels.tolist() == [0, 3]


class Endless(theirs.Sampler[int]):  # type: ignore[misc]
    """As many training recipes for a number of steps have it."""

    def __iter__(self) -> Iterator[int]:
        return (n % N for n in count())


class Understated(Endless):
    def __len__(self) -> int:
        return 4


@pytest.mark.parametrize("sampler", [Endless, Understated])
def test_a_sampler_that_never_ends_is_pytorchs(small: Path, sampler: Any) -> None:
    """Symptom: the loader hangs, or eats the memory, before the first batch."""
    made = DataLoader(numbered(small), 4, sampler=sampler())
    ((_, labels),) = falls_back(made, "may never end|many times more batches")
    assert labels.tolist() == [0, 1, 2, 3]


def test_a_batch_sampler_that_never_ends_is_pytorchs(small: Path) -> None:
    """Symptom: as above."""

    class Batches:
        def __iter__(self) -> Iterator[list[int]]:
            return iter([n % N, (n + 1) % N] for n in count())

    made = DataLoader(numbered(small), batch_sampler=Batches())
    ((_, labels),) = falls_back(made, "has no length")
    assert labels.tolist() == [0, 1]


def test_a_sampler_that_raises_is_heard(small: Path) -> None:
    """Symptom: an error in a user's sampler is taken for an order that is not known."""

    def broken() -> Iterator[int]:
        yield 0
        raise RuntimeError("no more samples")

    with pytest.raises(RuntimeError, match="no more samples"):
        list(ours(numbered(small), sampler=Says(broken)))


def test_a_sampler_may_give_nothing(small: Path) -> None:
    """Symptom: an empty epoch is an error."""
    made = ours(numbered(small), sampler=Says(list, 0))
    assert list(made) == [] and len(made) == 0
    assert list(made) == []


def test_an_empty_batch_is_named(small: Path) -> None:
    """Symptom: it is left out, and the batches after it come too early; PyTorch's loader raises
    `list index out of range`."""
    batches = Says(lambda: [[3], [1, 2], [], [4]], 4)
    made = ours(numbered(small), batch_sampler=batches, batch_size=1)
    with pytest.raises(bothends.OptionsError, match="batch 2 of the Says has no sample") as raised:
        iter(made)
    assert "leave it out" in str(raised.value)


def test_an_empty_batch_goes_to_a_collate_fn_of_the_scripts(small: Path) -> None:
    """Symptom: as above; PyTorch's loader calls the function with the empty list."""
    options: dict[str, Any] = {"batch_sampler": [[3], [], [4, 5]], "collate_fn": len}
    made = DataLoader(numbered(small), **options)
    assert falls_back(made, "batch 1 of the list has no sample; leave it out") == [1]
    assert list(made) == list(theirs.DataLoader(numbered(small), **options)) == [1, 0, 2]


# ---- resuming -----------------------------------------------------------------------------


def resumed(made: DataLoader, state: dict[str, Any]) -> list[tuple[list[int], bytes]]:
    made.load_state_dict(state)
    return stream(made)


@pytest.mark.parametrize("kind", KINDS)
def test_every_order_resumes_after_every_batch(small: Path, kind: str) -> None:
    """Symptom: after a crash a script sees samples twice or never, or augmented otherwise.
    Fresh loader, fresh sampler, no seed but the state's."""
    whole = of_kind(small, kind)
    feed = iter(whole)
    states, expected = [whole.state_dict()], []
    for images, labels in feed:
        expected.append((labels.tolist(), images.numpy().tobytes()))
        states.append(whole.state_dict())
    for n, state in enumerate(states):
        assert resumed(of_kind(small, kind), state) == expected[n:], n


@pytest.mark.parametrize("kind", KINDS)
def test_every_order_resumes_in_a_later_epoch(small: Path, kind: str) -> None:
    """Symptom: only the first epoch can be resumed; the next one is another."""
    whole = of_kind(small, kind)
    list(whole)
    feed = iter(whole)
    next(feed)
    state = whole.state_dict()
    expected = [(labels.tolist(), images.numpy().tobytes()) for images, labels in feed]
    following = stream(whole)
    made = of_kind(small, kind, num_workers=2)
    assert resumed(made, state) == expected and stream(made) == following


@pytest.mark.parametrize("kind", ["weighted", "batches", "distributed"])
def test_a_device_goes_on_where_the_host_stopped(small: Path, kind: str) -> None:
    """Symptom: resuming with a device is another epoch."""
    whole = of_kind(small, kind)
    feed = iter(whole)
    next(feed)
    state = whole.state_dict()
    expected = [(labels.tolist(), images.numpy().tobytes()) for images, labels in feed]
    assert resumed(of_kind(small, kind, **DEVICE), state) == expected


def test_a_generator_of_the_samplers_own_resumes_in_any_epoch(small: Path) -> None:
    """Symptom: a sampler's own generator, which no state holds, gives another epoch's rest."""

    def made(seed: int = 1) -> DataLoader:
        generator = torch.Generator().manual_seed(seed)
        sampler = theirs.WeightedRandomSampler(WEIGHTS, N, generator=generator)
        return ours(numbered(small, TRAIN), sampler=sampler, seed=3)

    whole = made()
    feed = iter(whole)
    next(feed)
    state = whole.state_dict()
    rest = [(labels.tolist(), images.numpy().tobytes()) for images, labels in feed]
    assert resumed(made(), state) == rest
    list(whole)
    feed = iter(whole)
    next(feed)
    state = whole.state_dict()
    assert state["epoch"] == 2
    rest = [(labels.tolist(), images.numpy().tobytes()) for images, labels in feed]
    assert resumed(made(), state) == rest
    assert resumed(made(seed=2), state) == rest, "the state has the generator's seed"


def taken(made: DataLoader, n: int) -> dict[str, Any]:
    """The state after n batches."""
    feed = iter(made)
    for _ in range(n):
        next(feed)
    return made.state_dict()


OTHERS: dict[str, Callable[[], dict[str, Any]]] = {
    "other samples": lambda: {"sampler": Says(lambda: range(1, N), N - 1)},
    "fewer samples": lambda: {"sampler": Says(lambda: range(12), 12)},
    "another order": lambda: {"sampler": Says(lambda: list(range(N))[::-1])},
    "other batches": lambda: {"sampler": Says(lambda: range(N)), "batch_size": 5},
    "bothends' own": lambda: {"shuffle": True},
}


@pytest.mark.parametrize("other", OTHERS)
def test_a_state_of_another_order_is_refused(small: Path, other: str) -> None:
    """Symptom: a state of another sampler is taken, and goes on at the wrong place."""
    state = taken(ours(numbered(small), sampler=Says(lambda: range(N)), seed=1), 2)
    made = ours(numbered(small), seed=1, **OTHERS[other]())
    with pytest.raises(bothends.StateError):
        resumed(made, state)


def test_a_state_of_our_own_order_is_refused_by_a_sampler(small: Path) -> None:
    """Symptom: as above, the other way round."""
    state = taken(ours(numbered(small), shuffle=True), 2)
    with pytest.raises(bothends.StateError):
        resumed(ours(numbered(small), sampler=Says(lambda: range(N))), state)


# ---- parts of data sets, and several in a row ---------------------------------------------


def same_as_pytorch(dataset: Any, **options: Any) -> None:
    made = ours(dataset, **options)
    before = theirs.DataLoader(dataset, **{"batch_size": 4, **options})
    assert len(made) == len(before)
    for (images, labels), (others, numbers) in zip(made, before, strict=True):
        assert torch.equal(labels, numbers) and torch.equal(images, others)
    assert made.stats()["loader"] == "bothends"


def nested(root: Path) -> dict[str, Any]:
    folder = numbered(root)
    halves = theirs.random_split(folder, [0.5, 0.5], torch.Generator().manual_seed(1))
    inner = theirs.Subset(folder, [9, 8, 7, 3, 2])
    return {
        "Subset": theirs.Subset(folder, [4, 4, 22, 0, -1]),
        "random_split": halves[1],
        "Subset of Subset": theirs.Subset(inner, [4, 0, 0, 2]),
        "ConcatDataset": theirs.ConcatDataset([folder, folder]),
        "Concat of Subsets": theirs.ConcatDataset([*halves[::-1], inner]),
        "Subset of Concat": theirs.Subset(theirs.ConcatDataset([inner, folder]), [0, 27, 5, 4]),
        "sum of two": halves[0] + inner,
    }


NESTED = [
    "Subset",
    "random_split",
    "Subset of Subset",
    "ConcatDataset",
    "Concat of Subsets",
    "Subset of Concat",
    "sum of two",
]


@pytest.mark.parametrize("kind", NESTED)
def test_parts_and_rows_of_data_sets(small: Path, kind: str) -> None:
    """Symptom: Subset and ConcatDataset are left to PyTorch, or read the wrong samples."""
    same_as_pytorch(nested(small)[kind])


@pytest.mark.parametrize("kind", NESTED)
def test_their_shuffled_epochs_hold_all_once(small: Path, kind: str) -> None:
    """Symptom: the order is one of the whole data set, not of its part."""
    dataset = nested(small)[kind]
    made = ours(dataset, shuffle=True)
    expected = sorted(int(dataset[i][1]) for i in range(len(dataset)))
    first, second = (sum(order(made), []) for _ in range(2))
    assert sorted(first) == sorted(second) == expected
    assert len(first) < 6 or first != second


@pytest.mark.parametrize("kind", ["random_split", "Concat of Subsets"])
def test_samplers_number_the_parts_samples(small: Path, kind: str) -> None:
    """Symptom: a sampler over a Subset chooses from the whole data set."""
    dataset = nested(small)[kind]
    wanted = [3, 0, len(dataset) - 1, 3]
    same_as_pytorch(dataset, sampler=Says(lambda: wanted, 4))


def test_a_sample_that_a_subset_repeats_is_augmented_anew(small: Path) -> None:
    """Symptom: a Subset that lists a sample twice gives the same crop twice."""
    made = ours(theirs.Subset(numbered(small, TRAIN), [5] * 8))
    assert len({image.numpy().tobytes() for image in pictures(made)}) == 8


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_part_resumes_after_every_batch(small: Path, shuffle: bool) -> None:
    """Symptom: a Subset's epoch cannot be resumed."""

    def made() -> DataLoader:
        half = theirs.Subset(numbered(small, TRAIN), list(range(0, N, 2)))
        return ours(half, shuffle=shuffle)

    whole = made()
    feed = iter(whole)
    states, expected = [whole.state_dict()], []
    for images, labels in feed:
        expected.append((labels.tolist(), images.numpy().tobytes()))
        states.append(whole.state_dict())
    for n, state in enumerate(states):
        assert resumed(made(), state) == expected[n:]


def test_nothing_is_warned_of(small: Path) -> None:
    """Symptom: a followed sampler's epoch warns at each beginning."""
    made = of_kind(small, "weighted")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        list(made), list(made)
