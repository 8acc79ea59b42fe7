"""Ranks that list different samples are told, and nothing else is: no rank waits for another.

The ranks here are loaders of one process, over a store that does what PyTorch's does. `test_ranks.py`
has the same with real processes.
"""

from __future__ import annotations

import itertools
import shutil
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bothends
import pytest
from bothends import _tables
from bothends._ranks import Ranks
from bothends._tables import Table, Tables

from streams import ids, loader, step, steps

DIFFERENT = "the ranks have listed different samples of "


class Store:
    """One process's end of the store of a rendezvous, with the methods that do not wait."""

    def __init__(self, kept: dict[str, bytes]) -> None:
        self._kept = kept

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        if self._kept.get(key, b"") == expected.encode():
            self._kept[key] = desired.encode()
        return self._kept[key]

    def set(self, key: str, value: str) -> None:
        self._kept[key] = value.encode()

    def check(self, keys: list[str]) -> bool:
        return all(key in self._kept for key in keys)

    def get(self, key: str) -> bytes:
        assert key in self._kept, f"a real store would wait for {key}"
        return self._kept[key]


class Gone(Store):
    """Of a process that has ended."""

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        raise RuntimeError("Connection reset by peer")

    def check(self, keys: list[str]) -> bool:
        raise RuntimeError("Connection reset by peer")


class Silent(Store):
    """What PyTorch's backend `fake` has."""

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        return b""

    def check(self, keys: list[str]) -> bool:
        return True

    def get(self, key: str) -> bytes:
        return b""


class Job:
    """The ranks of a process group, of which this process is one after the other."""

    def __init__(self, patch: pytest.MonkeyPatch, world: int, kind: type[Store] = Store) -> None:
        self._kept: dict[str, bytes] = {}
        self._kind = kind
        self._patch = patch
        # What each process knows of the groups that it was in.
        self._groups = [_tables.Groups() for _ in range(world)]
        self.join()

    def join(self) -> None:
        """All ranks leave their process group, and meet in another one at the same server."""
        self._stores = [self._kind(self._kept) for _ in self._groups]

    def become(self, rank: int) -> None:
        stores = self._stores
        self._patch.setattr(_tables, "_groups", self._groups[rank])
        c10d = types.SimpleNamespace(_get_default_store=lambda: stores[rank])
        distributed = types.SimpleNamespace(
            is_available=lambda: True,
            is_initialized=lambda: True,
            get_rank=lambda: rank,
            get_world_size=lambda: len(stores),
            distributed_c10d=c10d,
        )
        self._patch.setitem(sys.modules, "torch.distributed", distributed)

    def opened(self, rank: int, data: Path, /, **options: Any) -> bothends.Loader:
        self.become(rank)
        return loader(data, **{"rank": None, "world_size": None, "batch_size": 2, **options})

    def begun(self, rank: int, batches: bothends.Loader) -> Iterator[bothends.Batch]:
        self.become(rank)
        return batches.batches()


class Listing:
    """What one loader has listed on each rank of a job, for tables that a `Loader` never has."""

    def __init__(self, job: Job, world: int) -> None:
        self._job = job
        self._tables = [Tables("ranks='replicate'") for _ in range(world)]

    def compare(self, rank: int, n_samples: int, digest: str = "", epoch: int = 0) -> Iterator[int]:
        """Begins an epoch of three batches."""
        self._job.become(rank)
        tables = self._tables[rank]
        table = Table("loader", "data", n_samples, digest)
        tables.compare(Ranks(rank, len(self._tables)), epoch, lambda: table)
        return tables.follow(iter(range(3)))


@pytest.fixture
def growing(small: Path, tmp_path: Path) -> Path:
    """23 images, to which a test adds."""
    shutil.copytree(small, tmp_path / "data")
    return tmp_path / "data"


def add(data: Path) -> None:
    folder = data / "class0"
    shutil.copy(min(folder.iterdir()), folder / f"added{len(list(folder.iterdir()))}.jpg")


def test_an_object_that_is_added_while_a_job_starts(
    growing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Symptom: rank 1 has 24 samples and rank 0 has 23, so that samples come twice and never."""
    job = Job(monkeypatch, 3)
    first = job.opened(0, growing)
    last = job.opened(2, growing)
    add(growing)
    second = job.opened(1, growing)
    batches = job.begun(0, first)
    next(batches)
    with pytest.raises(bothends.DataError, match=f"^{DIFFERENT}") as told:
        job.begun(1, second)
    assert str(growing) in str(told.value)
    assert "rank 0 has 23 (hash " in str(told.value) and "rank 1 has 24 (hash " in str(told.value)
    assert "Give every rank the same list" in str(told.value)
    hashes = [each.state_dict()["manifest_hash"] for each in (first, second)]
    assert hashes[0] != hashes[1] and all(each in str(told.value) for each in hashes)
    # The ranks that agree learn of it, whether they train already or not.
    job.become(0)
    with pytest.raises(bothends.DataError, match="rank 0 has 23 .* and rank 1 has 24 "):
        next(batches)
    with pytest.raises(bothends.DataError, match="rank 1 has 24 .* and rank 2 has 23 "):
        job.begun(2, last)
    # To try again does not help.
    with pytest.raises(bothends.DataError, match=DIFFERENT):
        job.begun(1, second)


def test_as_many_samples_under_other_names(growing: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(monkeypatch, 2)
    first = job.opened(0, growing)
    file = max((growing / "class0").iterdir())
    file.rename(growing / "class1" / file.name)
    second = job.opened(1, growing)
    job.begun(1, second)
    with pytest.raises(bothends.DataError, match="rank 0 has 23 .* and rank 1 has 23 "):
        list(job.begun(0, first))


def test_it_is_told_at_the_end_where_there_is_one_batch(
    growing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(monkeypatch, 2)
    ranks = [job.opened(0, growing, batch_size=12, last="pad")]
    add(growing)
    ranks.append(job.opened(1, growing, batch_size=12, last="pad"))
    batches = job.begun(0, ranks[0])
    next(batches)
    with pytest.raises(bothends.DataError, match=DIFFERENT):
        job.begun(1, ranks[1])
    job.become(0)
    with pytest.raises(bothends.DataError, match=DIFFERENT):
        next(batches)


@pytest.mark.parametrize("ranks", list(itertools.permutations(range(3))))
def test_a_rank_without_a_batch_has_nothing_to_hash(
    monkeypatch: pytest.MonkeyPatch, ranks: tuple[int, ...]
) -> None:
    """Symptom: where a validation has fewer batches than ranks, all ranks raise an error."""
    job = Job(monkeypatch, 3)
    same = Listing(job, 3)
    feeds = {rank: same.compare(rank, 23, "5c61" if rank < 2 else "") for rank in ranks}
    for rank, feed in feeds.items():
        job.become(rank)
        assert len(list(feed)) == 3
    # The two with a table are compared in any order, and numbers always are.
    other = Listing(job, 3)
    with pytest.raises(bothends.DataError, match=r"rank 0 .*hash 5c61\) and rank 1 .*hash 09ab"):
        for rank in ranks:
            other.compare(rank, 23, ("5c61", "09ab", "")[rank])
    more = Listing(job, 3)
    with pytest.raises(bothends.DataError, match=r"and rank 2 has 24, so"):
        for rank in ranks:
            more.compare(rank, 24 if rank == 2 else 23, "5c61" if rank < 2 else "")


def test_consumers_and_plain_iteration_are_told(
    growing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(monkeypatch, 2)
    ranks = [job.opened(0, growing)]
    add(growing)
    ranks.append(job.opened(1, growing))
    job.become(0)
    (batches,) = ranks[0].consumers(1)
    job.become(1)
    for begin in (iter, lambda it: it.consumers(1)):
        with pytest.raises(bothends.DataError, match=DIFFERENT):
            begin(ranks[1])
    with pytest.raises(bothends.DataError, match=DIFFERENT):
        list(batches)


def test_ranks_with_the_same_samples_share_epochs(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where rank 0 has a copy in another folder, which it does not compare."""
    job = Job(monkeypatch, 2)
    copy = shutil.copytree(small, tmp_path / "copy")
    for folders in [(small, small), (copy, small)]:
        ranks = [job.opened(rank, data, last="pad") for rank, data in enumerate(folders)]
        for _ in range(2):
            feeds = [job.begun(rank, ranks[rank]) for rank in range(2)]
            seen = [i for feed in feeds for i in ids(map(step, feed))]
            assert sorted(seen) == list(range(23))


def test_loaders_that_not_all_ranks_have(
    small: Path, growing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A validation on rank 0 alone neither waits nor is it taken for the loader of the training."""
    job = Job(monkeypatch, 2)
    add(growing)
    for options in ({}, {"rank": 0, "world_size": 1}):
        alone = job.opened(0, growing, **options)
        assert len(list(job.begun(0, alone))) == (12 if options else 6)
    ranks = [job.opened(rank, small) for rank in range(2)]
    for rank in (1, 0):
        assert len(list(job.begun(rank, ranks[rank]))) == 5


def test_machines_that_share_what_each_has(growing: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two machines with two ranks each, and with data of their own in a folder of the same name."""
    job = Job(monkeypatch, 4)
    for rank in range(4):
        if rank == 2:
            add(growing)
        of_machine = {"rank": rank % 2, "world_size": 2}
        assert len(list(job.begun(rank, job.opened(rank, growing, **of_machine)))) in (5, 6)


def test_data_that_grow_between_two_loaders(growing: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every rank opens them again for each round of training."""
    job = Job(monkeypatch, 2)
    for _ in range(3):
        ranks = [job.opened(rank, growing) for rank in range(2)]
        for rank in range(2):
            list(job.begun(rank, ranks[rank]))
        add(growing)
    stale = job.opened(0, growing)
    add(growing)
    fresh = job.opened(1, growing)
    job.begun(1, fresh)
    with pytest.raises(bothends.DataError, match="rank 0 has 26 .* and rank 1 has 27 "):
        job.begun(0, stale)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_change_that_only_some_ranks_see_in_a_later_epoch(
    monkeypatch: pytest.MonkeyPatch, order: tuple[int, int]
) -> None:
    """Symptom: rank 1 looks again and has 24 samples, and is compared with nobody."""
    job = Job(monkeypatch, 2)
    listing = Listing(job, 2)
    for epoch in range(2):
        for rank in order:
            assert len(list(listing.compare(rank, 23, epoch=epoch))) == 3
    first, second = order
    batches = listing.compare(first, 23 + first, epoch=2)
    with pytest.raises(bothends.DataError, match="rank 0 has 23 and rank 1 has 24, so"):
        listing.compare(second, 23 + second, epoch=2)
    job.become(first)
    with pytest.raises(bothends.DataError, match="rank 0 has 23 and rank 1 has 24, so"):
        list(batches)


def test_ranks_that_look_at_a_batch_alone_are_compared_still(
    growing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have begun one epoch more than the others."""
    job = Job(monkeypatch, 2)
    ranks = [job.opened(0, growing)]
    add(growing)
    ranks.append(job.opened(1, growing))
    next(job.begun(0, ranks[0]))
    for rank in ranks:
        rank.set_epoch(1)
    job.begun(1, ranks[1])
    with pytest.raises(bothends.DataError, match="rank 0 has 23 .* and rank 1 has 24 "):
        job.begun(0, ranks[0])


@pytest.mark.parametrize("epochs", [(0, 1, 2), (0, 0, 0), (0, 1, 0, 1, 0, 1)])
def test_data_that_grow_between_two_epochs(
    monkeypatch: pytest.MonkeyPatch, epochs: tuple[int, ...]
) -> None:
    """All ranks look again, whatever epoch they choose next."""
    job = Job(monkeypatch, 2)
    listing = Listing(job, 2)
    for n_added, epoch in enumerate(epochs):
        for rank in range(2):
            assert len(list(listing.compare(rank, 23 + n_added, epoch=epoch))) == 3
    listing.compare(1, 40, epoch=7)
    with pytest.raises(bothends.DataError, match="rank 0 has 41 and rank 1 has 40, so"):
        listing.compare(0, 41, epoch=7)


def test_data_that_grow_between_two_process_groups(
    growing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Symptom: the second stage of a job is compared with the first, since under torchrun the server
    of their stores is the same."""
    job = Job(monkeypatch, 2)
    for _ in range(3):
        ranks = [job.opened(rank, growing) for rank in range(2)]
        feeds = [job.begun(rank, ranks[rank]) for rank in range(2)]
        for rank in range(2):
            job.become(rank)
            assert len(list(feeds[rank])) in (5, 6)
        add(growing)
        job.join()
    stale = job.opened(0, growing)
    add(growing)
    job.begun(1, job.opened(1, growing))
    with pytest.raises(bothends.DataError, match="rank 0 has 26 .* and rank 1 has 27 "):
        job.begun(0, stale)


@pytest.mark.parametrize("kind", [Gone, Silent])
def test_a_store_that_says_nothing_is_no_error(
    growing: Path, monkeypatch: pytest.MonkeyPatch, kind: type[Store]
) -> None:
    job = Job(monkeypatch, 2, kind)
    for rank in range(2):
        assert len(list(job.begun(rank, job.opened(rank, growing)))) in (5, 6)
        add(growing)


def test_without_a_process_group_nothing_is_compared(
    growing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "torch.distributed", raising=False)
    for rank in range(2):
        assert len(steps(loader(growing, rank=rank, world_size=2, batch_size=2))) in (5, 6)
        add(growing)
