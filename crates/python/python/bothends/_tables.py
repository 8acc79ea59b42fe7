"""Whether the ranks that share an epoch have listed the same samples.

Each rank lists the data set itself and takes its part of a common order by sample number. If something
is added to the data or removed between two listings, a number stands for another sample on another rank:
some samples come twice and others never, or one rank has a batch more than the others and waits for
them forever. So the first rank that begins an epoch of a loader notes the number and the hash of its
samples in the store of the rendezvous, and every other rank compares its own with them. A rank whose
samples differ notes that and raises an error; the others look for such a note while they take batches.

Nothing waits, and there is no collective: a loader that only some ranks have is compared among these.
Ranks meet by numbers that each counts alone: of the process group, of the loader and of its epoch.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

from ._errors import DataError
from ._ranks import Ranks, of_group, rendezvous

T = TypeVar("T")


class Table(NamedTuple):
    """The samples of a loader, as this rank has listed them.

    Attributes:
        loader: a text that is the same for this loader on all ranks, whatever they have listed.
        data: the name of the data set, for messages.
        n_samples: how many there are.
        hash: of the table with their names, lengths and labels; "" if this rank has no table, as without a
            batch, so that only numbers are compared.
    """

    loader: str
    data: str
    n_samples: int
    hash: str


class Tables:
    """What a loader has listed, next to what the same loader of other ranks has.

    Args:
        alone: the option that a loader needs which one rank uses alone.
    """

    def __init__(self, alone: str) -> None:
        self._alone = alone
        self._entry: _Entry | None = None
        # Its numbers, by the group and what it is called there.
        self._numbers: dict[tuple[int, str], int] = {}
        self._begun: _Begun | None = None

    def compare(self, ranks: Ranks, epoch: int, describe: Callable[[], Table]) -> None:
        """Compares them at the beginning of an epoch that these ranks share, if they are those of the
        process group: ranks of one machine alone may have data of their own. Otherwise nothing is
        compared, and `describe` is not called.

        Args:
            epoch: its number, by which ranks know that they share it.

        Raises:
            DataError: another rank has listed other samples.
        """
        is_compared = ranks.world_size > 1 and ranks == of_group()
        store = rendezvous() if is_compared else None
        if store is None:
            self._entry = None
            return
        table = describe()
        self._entry = _Entry(store, self._key(store, ranks, epoch, table), table, ranks.rank)
        self._entry.compare(self._alone)

    def _key(self, store: Any, ranks: Ranks, epoch: int, table: Table) -> str:
        """Of the epoch that begins."""
        group = _groups.of(store)
        text = f"{ranks.world_size} {table.loader}"
        kind = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
        if (group.number, kind) not in self._numbers:
            self._numbers[group.number, kind] = group.n_loaders[kind]
            group.n_loaders[kind] += 1
        begun = (self._begun or _Begun(0, epoch, 0, table)).next(epoch, table)
        self._begun = begun
        place = f"{begun.n_returns}/{begun.epoch}/{begun.n_again}"
        return f"bothends/table/{group.number}/{kind}/{self._numbers[group.number, kind]}/{place}"

    def follow(
        self, batches: Iterator[T], raised: Callable[[DataError], Exception] | None = None
    ) -> Iterator[T]:
        """The batches of the epoch that was compared, which end with the error if another rank has other
        samples; `raised` makes what is raised of it."""
        entry = self._entry
        if entry is None:
            return batches
        return _Followed(batches, lambda: entry.check(self._alone), raised or (lambda error: error))


class _Begun(NamedTuple):
    """The epoch of a loader that was begun last.

    It does not count what ranks begin, since one may look at a batch alone and tell its loader the epoch
    again. Nor do its numbers depend on what a rank has listed, except in an epoch that is begun again.

    Attributes:
        n_returns: how many times an earlier epoch was chosen: the samples may have changed since.
        epoch: its number.
        n_again: how many times it was begun again with other samples.
        table: with which it was begun last.
    """

    n_returns: int
    epoch: int
    n_again: int
    table: Table

    def next(self, epoch: int, table: Table) -> _Begun:
        if epoch != self.epoch:
            return _Begun(self.n_returns + (epoch < self.epoch), epoch, 0, table)
        return self._replace(n_again=self.n_again + (table != self.table), table=table)


class _Listed(NamedTuple):
    """What the store says of a rank."""

    n_samples: int
    hash: str
    rank: int

    def differs(self, other: _Listed) -> bool:
        has_hashes = self.hash != "" and other.hash != ""
        return self.n_samples != other.n_samples or (has_hashes and self.hash != other.hash)

    @property
    def words(self) -> str:
        digest = f" (hash {self.hash})" if self.hash else ""
        return f"rank {self.rank} has {self.n_samples:,}{digest}"


def _read(text: bytes) -> _Listed | None:
    """Not every store keeps what it is given: the one of PyTorch's `fake` backend says nothing."""
    try:
        n_samples, digest, rank = json.loads(text)
    except (TypeError, ValueError):
        return None
    return _Listed(n_samples, digest, rank)


class _Group:
    """A process group whose ranks compare loaders.

    Attributes:
        number: how many there were before. All ranks begin and leave them together, and a store may still
            have what an earlier one noted: under torchrun, all of them have one server.
        n_loaders: of each kind that were compared: the n-th of one rank matches the n-th of another.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.n_loaders: Counter[str] = Counter()


class Groups:
    """The process groups in which this process has compared loaders."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._of: weakref.WeakKeyDictionary[Any, _Group] = weakref.WeakKeyDictionary()

    def of(self, store: Any) -> _Group:
        """That of this store, which is another object for each."""
        group = self._of.get(store)
        if group is None:
            group = self._of[store] = _Group(next(self._numbers))
        return group


_groups = Groups()


class _Entry:
    """Where the ranks compare the tables with which they begin an epoch."""

    def __init__(self, store: Any, key: str, table: Table, rank: int) -> None:
        # The store must end with its process group, since it holds a port.
        self._store = weakref.ref(store)
        self._key = key
        self._data = table.data
        self._own = _Listed(table.n_samples, table.hash, rank)

    def compare(self, alone: str) -> None:
        """With the first rank's. Raises a `DataError` if they differ."""
        first = self._first()
        if first is not None and first.differs(self._own):
            self._note()
            raise self._error(first, alone)
        self.check(alone)

    def check(self, alone: str) -> None:
        """Raises a `DataError` if another rank has noted that its samples differ."""
        other = self._other()
        if other is not None and other.differs(self._own):
            raise self._error(other, alone)

    # A store whose process has ended has nothing to say.

    def _first(self) -> _Listed | None:
        """What the rank noted that was there first; this one, if there was none. One without a hash gives
        way to one that has it."""
        store, own = self._store(), json.dumps(self._own)
        with contextlib.suppress(RuntimeError):
            if store is None:
                return None
            first = _read(store.compare_set(self._key, "", own))
            if first is not None and first.hash == "" and not first.differs(self._own):
                first = _read(store.compare_set(self._key, json.dumps(first), own))
            return first
        return None

    def _note(self) -> None:
        store = self._store()
        with contextlib.suppress(RuntimeError):
            if store is not None:
                store.set(f"{self._key}/other", json.dumps(self._own))

    def _other(self) -> _Listed | None:
        store, key = self._store(), f"{self._key}/other"
        with contextlib.suppress(RuntimeError):
            if store is not None and store.check([key]):
                return _read(store.get(key))
        return None

    def _error(self, other: _Listed, alone: str) -> DataError:
        each = sorted((other, self._own), key=lambda listed: listed.rank)
        return DataError(
            f"the ranks have listed different samples of {self._data}: "
            f"{' and '.join(listed.words for listed in each)}, so some samples would come twice and "
            "others never. Give every rank the same list of samples (a .jsonl file, written once), or "
            "see to it that nothing is added or removed while a job starts; `bothends inspect` shows "
            f"number and hash. A loader that one rank uses alone needs {alone}"
        )


class _Followed(Iterator[T]):
    """The batches of a compared epoch. Not a generator: several threads may share the iterator."""

    def __init__(
        self,
        batches: Iterator[T],
        check: Callable[[], None],
        raised: Callable[[DataError], Exception],
    ) -> None:
        self._batches = batches
        self._check = check
        self._raised = raised
        self._n_taken = 0

    def __next__(self) -> T:
        batch = next(self._batches, _END)
        self._n_taken += 1
        n = self._n_taken
        # Ranks that train in step take their second batch once all of them have begun. Where steps are
        # queued on a GPU, they may begin later.
        if batch is _END or (n > 1 and n.bit_count() == 1):
            self._ask()
        if batch is _END:
            raise StopIteration
        return batch  # type: ignore[return-value]

    def _ask(self) -> None:
        try:
            self._check()
        except DataError as error:
            raise self._raised(error) from None


_END = object()
