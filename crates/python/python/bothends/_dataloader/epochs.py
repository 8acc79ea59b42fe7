"""The epochs of one `bothends.torch.DataLoader`: which native loader runs which of them, and the
iterator that a training loop holds.

A native loader has one epoch at a time. A second iterator next to a live one gets a native loader
of its own, so neither ends the other. A native loader is opened when the first iteration begins,
and again when what it was opened for has changed.

Reading order: `Opening` says what a native loader is opened for; `Feeds` keeps them; `Epoch` is the
iterator, `Finishing` what happens to a batch on its way, and `Python` and `Pool` do that work.

Two kinds of exceptions reach the training loop. If Python code fails on a batch, only that batch is
lost: the loop may catch the exception and gets the next batch, as with PyTorch's loader. `NoBatch`
means that no batch was taken, since the native loader or the workers failed.
"""

from __future__ import annotations

import resource
import threading
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from .. import _native
from .._errors import BadSampleError, Error
from .._loader import Batch, Loader
from .orders import Given, Own
from .prepared import Finish, Prepared, Whole, data_name, native_labels
from .._sources import Fetched, Listing, Path
from .._workers import Setting, Task, Workers


@dataclass(frozen=True, eq=False)
class Opening:
    """What a native loader is opened for. If any of it differs, another one is opened.

    Attributes:
        prepared: the data set, and what becomes of its transforms.
        options: keyword arguments of `bothends.Loader`, except data and recipe.
        fills_truncated: whether Pillow was told to fill in what truncated images lack.
        asks_elsewhere: whether only other processes ask for what belongs to a sample besides its
            image.
    """

    prepared: Prepared
    options: dict[str, Any]
    fills_truncated: bool
    asks_elsewhere: bool

    def is_like(self, other: Opening) -> bool:
        return self.prepared is other.prepared and self._rest == other._rest

    @property
    def _rest(self) -> tuple[Any, ...]:
        return self.options, self.fills_truncated, self.asks_elsewhere

    @property
    def recipe(self) -> dict[str, Any]:
        """What becomes of the transforms, and of truncated images."""
        recipe = self.prepared.translation.recipe
        return filling(recipe) if self.fills_truncated else recipe

    def open(self) -> tuple[Loader, Fetch | None]:
        """Opens a native loader, and returns what fetches its records if Python does. Blocks on the
        file system and on devices."""
        source, recipe, options = self.prepared.source, self.recipe, self.options
        if (options["framework"], options["output"]) == ("numpy", "bf16"):
            # NumPy has no such type. Workers get PyTorch's, as `_sent` says.
            options = {**options, "framework": "torch"}
        records = source.records
        if isinstance(records, Path):
            return Loader(records.data, recipe, **options), None
        fetch = None
        if isinstance(records, Fetched):
            fetch = Fetch(records.keeping_nothing if self.asks_elsewhere else records.fetch)
        samples = _samples(records, native_labels(source), fetch)
        name = data_name(records)
        return Loader._of_samples(samples, data=name, recipe=recipe, **options), fetch


def filling(recipe: dict[str, Any]) -> dict[str, Any]:
    """The same recipe, filling in the missing part of truncated images."""
    ops = recipe["ops"]
    ops = [{**op, "truncated": "fill"} if op["op"] == "decode" else op for op in ops]
    return {**recipe, "ops": ops}


def _samples(
    records: Listing | Fetched, labels: list[int], fetch: Fetch | None
) -> _native.Samples:
    if isinstance(records, Listing):
        return _native.Samples.files(records.root, records.paths, records.extents, labels)
    assert fetch is not None
    return _native.Samples.fetched(records.name, labels, fetch)


# Exceptions of a program that is wrong, rather than of a record that cannot be read.
_OF_PROGRAMS = (
    AssertionError,
    AttributeError,
    ImportError,
    NameError,
    NotImplementedError,
    SyntaxError,
    TypeError,
)
# Exceptions that are kept. The first of them ends the epoch, unless `on_bad` applies to it; other
# threads raise some more by then.
_KEPT_ERRORS = 256


class Fetch:
    """A function that several threads may call but that runs in only one of them at a time, since
    data sets are rarely written for threads. It keeps the exceptions, of which the native loader
    knows only the text.

    Attributes:
        fault: the first exception that says that the function itself is wrong. `on_bad` is not
            meant for it: it would leave out every sample.
    """

    def __init__(self, function: Callable[[int], bytes]) -> None:
        self._function = function
        self._lock = threading.Lock()
        self._errors: dict[int, Exception] = {}
        self.fault: Exception | None = None

    def __call__(self, sample: int) -> bytes:
        with self._lock:
            try:
                return self._function(sample)
            except Exception as error:
                if len(self._errors) < _KEPT_ERRORS:
                    self._errors[sample] = error
                if isinstance(error, _OF_PROGRAMS) and self.fault is None:
                    self.fault = error
                raise

    def error_of(self, sample: int) -> Exception | None:
        """What fetching this sample raised."""
        with self._lock:
            return self._errors.get(sample)


@dataclass
class Feed:
    """A native loader, and the iterator that it runs for.

    Attributes:
        opening: what it was opened for.
        loader: the native loader.
        fetch: what fetches its records, if Python does.
        runs_for: the iterator.
        progress: of the iterator's epoch.
        n_passed_over: epochs that began on others since the last one on this, while it was free.
        left: batches of earlier epochs, by prong, that were taken ahead and never delivered.
    """

    opening: Opening
    loader: Loader
    fetch: Fetch | None = None
    runs_for: weakref.ref[Epoch] | None = None
    progress: NativeProgress | None = None
    n_passed_over: int = 0
    left: Counter[str] = field(default_factory=Counter)

    def run(self, progress: NativeProgress, epoch: Epoch) -> None:
        """An epoch has begun on it."""
        if self.progress is not None:
            self.left += self.progress.waiting
        self.progress, self.runs_for = progress, weakref.ref(epoch)

    def stats(self) -> dict[str, Any]:
        """The native loader's figures, in which a batch counts once the training loop has it."""
        stats = self.loader.stats()
        left = self.left + (Counter() if self.progress is None else self.progress.waiting)
        stats["front_batches"] -= left["host"]
        for n, device in enumerate(stats["back"]):
            device["batches"] -= left[f"csd{n}"]
        return stats

    @property
    def epoch(self) -> Epoch | None:
        """The iterator, if it is still referenced."""
        return None if self.runs_for is None else self.runs_for()

    @property
    def is_free(self) -> bool:
        epoch = self.epoch
        return epoch is None or epoch.is_over

    def fits(self, opening: Opening) -> bool:
        """Whether it may run an epoch of this opening. One that ended with an error is opened
        again, since files may have been repaired."""
        has_failed = self.progress is not None and self.progress.has_failed
        return not has_failed and self.opening.is_like(opening)


class Loaded(NamedTuple):
    """A state that was loaded.

    Attributes:
        loader: the native loader that continues from it.
        state: as it was given.
    """

    loader: Loader
    state: dict[str, Any]


class Feeds:
    """The native loaders of a `DataLoader`.

    Attributes:
        lock: held by the thread that begins an epoch; nothing else here is thread-safe.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._feeds: list[Feed] = []
        self._current: Feed | None = None
        self._stats_of_closed: list[dict[str, Any]] = []

    @property
    def current(self) -> Loader | None:
        """The one that runs, or ran, the newest epoch."""
        return None if self._current is None else self._current.loader

    def free(self, opening: Opening) -> Feed:
        """A native loader for this that no iterator uses."""
        for feed in list(self._feeds):
            epoch = feed.epoch
            if epoch is not None and epoch.has_given_all:
                epoch.end()
            if feed.is_free and not feed.fits(opening):
                self._close(feed)
        # The newest one first.
        free = sorted((f for f in self._feeds if f.is_free), key=lambda f: f is not self._current)
        for other in free[1:]:
            other.n_passed_over += 1
            # Where so many epochs run side by side, each of them needs one of its own.
            if other.n_passed_over >= len(self._feeds):
                self._close(other)
        feed = free[0] if free else Feed(opening, *opening.open())
        feed.n_passed_over = 0
        if not free:
            self._feeds.append(feed)
        self._current = feed
        return feed

    def _close(self, feed: Feed) -> None:
        self._feeds.remove(feed)
        self._stats_of_closed.append(feed.stats())
        feed.loader.close()

    def stats(self) -> list[dict[str, Any]]:
        """The figures of each of them."""
        return [*self._stats_of_closed, *(feed.stats() for feed in self._feeds)]

    def close(self) -> None:
        for feed in self._feeds:
            feed.loader.close()


def begun(feed: Feed, order: Own | Given, rows: list[int] | None) -> Iterator[Batch]:
    """Begins an epoch of a native loader in this order; `rows` are the records of the data set's
    samples if the two are numbered differently."""
    loader = feed.loader
    if isinstance(order, Own):
        loader._take_rank(order.ranks)
        (consumer,) = loader._begin(1)
    else:
        records = order.samples if rows is None else _mapped(order, rows)
        part = (order.ranks.rank, order.ranks.world_size, order.skip)
        own = loader._native.begin_order(
            (records.tobytes(), order.ends.tobytes()), part, order.repeats
        )
        (consumer,) = loader._waits.timed([own])
    return _Native(loader._to_the_end(map(loader._batch, consumer)), feed.fetch)


def n_left(loader: Loader, order: Own | Given) -> int:
    """The number of batches left of the epoch that was begun, which may have been resumed inside."""
    if isinstance(order, Own):
        return loader._n_left()
    state = loader._state()
    # The position counts rows, also those that shorter batches lack; `done` the batches after it.
    n_before: int = -(-state["position"] // loader.batch_size)
    n_done: int = sum(end - start for start, end in state["done"])
    return len(order.ends) - order.skip - n_before - n_done


class NoBatch(Exception):
    """Carries an exception to the iterator before which no batch was taken.

    Args:
        error: what the training loop is to see.
    """

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class _Native(Iterator[Batch]):
    """The batches of a native loader."""

    def __init__(self, batches: Iterator[Batch], fetch: Fetch | None) -> None:
        self._batches = batches
        self._fetch = fetch

    def __next__(self) -> Batch:
        try:
            batch = next(self._batches)
        except StopIteration:
            self._refuse_fault()
            raise
        except BadSampleError as bad:
            # The training loop sees where in the data set's own code it comes from.
            bad.__cause__ = None if self._fetch is None else self._fetch.error_of(bad.sample)
            raise NoBatch(bad) from bad
        except Exception as error:
            raise NoBatch(error) from error
        self._refuse_fault()
        return batch

    def _refuse_fault(self) -> None:
        if self._fetch is not None and self._fetch.fault is not None:
            raise NoBatch(self._fetch.fault) from None


def _mapped(order: Given, rows: list[int]) -> Any:
    return type(order.samples)("q", [rows[sample] for sample in order.samples])


@dataclass
class Progress:
    """The progress of an epoch; it outlives its iterator.

    Attributes:
        number: of the epoch.
        n_batches: that the iterator gives.
        n_taken: batches that the training loop has got, or whose exception it has got.
        has_ended: whether it has got them all.
        has_failed: whether an error has ended it, or left it in an unknown place.
    """

    number: int
    n_batches: int
    n_taken: int = 0
    has_ended: bool = False
    has_failed: bool = False

    @property
    def state(self) -> dict[str, Any]:
        """Where the training loop is."""
        raise NotImplementedError

    @property
    def has_given_all(self) -> bool:
        """Whether only the end is left, which loops that count batches never ask for."""
        return not self.has_ended and self.n_taken == self.n_batches

    def take(self) -> None:
        """The training loop is past a batch."""
        self.n_taken += 1


@dataclass
class NativeProgress(Progress):
    """The progress of an epoch of a native loader.

    Attributes:
        loader: the native loader that runs it.
        ahead: if batches are taken ahead of the training loop, the one that it took last and those
            that wait for it; None if they are not.
    """

    loader: Loader = field(kw_only=True)
    ahead: deque[Taken] | None = None

    @property
    def state(self) -> dict[str, Any]:
        if self.has_ended or not self.ahead:
            return self.loader._state()
        return self.ahead[0].state

    @property
    def waiting(self) -> Counter[str]:
        """The batches that were taken ahead and wait for the training loop, by prong."""
        return Counter(taken.prong for taken in list(self.ahead or ())[1:])

    def take(self) -> None:
        super().take()
        if self.ahead:
            self.ahead.popleft()


class Taken(NamedTuple):
    """A batch that was taken from a native loader.

    Attributes:
        state: of the native loader, after it.
        prong: who made it, as in `Batch`; "" for what stands for the batches before the first.
    """

    state: dict[str, Any]
    prong: str


class Epoch:
    """An iterator over the batches of one epoch.

    Attributes:
        is_over: whether it has reached its end, or was ended by an error.
    """

    def __init__(self, progress: Progress, batches: Iterator[Any]) -> None:
        self._progress = progress
        self._batches = batches
        self.is_over = False

    def __iter__(self) -> Epoch:
        return self

    def __next__(self) -> Any:
        if self.is_over:
            # A loop that catches errors would otherwise get the same one forever, and the native
            # loader may be closed by now.
            raise StopIteration
        try:
            batch = next(self._batches)
        except StopIteration:
            self.is_over = True
            self._progress.has_ended = True
            raise
        except NoBatch as none:
            error = none.error
        except Exception:
            # This batch is lost, and the next one comes after it.
            self._progress.take()
            raise
        except BaseException:
            self._fail()
            raise
        else:
            self._progress.take()
            return batch
        self._fail()
        try:
            # Outside of `except`, so that it keeps its own cause and context.
            raise error
        finally:
            # Its traceback holds this frame, and the two would keep the workers.
            del error

    def _fail(self) -> None:
        self.is_over = self._progress.has_failed = True

    def __len__(self) -> int:
        return self._progress.n_batches

    @property
    def has_given_all(self) -> bool:
        """Whether only its end is left."""
        return not self.is_over and self._progress.has_given_all

    def end(self) -> None:
        """Asks for the end, once nothing else is left."""
        next(self, None)


@dataclass(frozen=True)
class Python:
    """Python's part in an epoch.

    Attributes:
        work: what a worker does.
        workers: how many there are.
        setting: for those workers.
        init: called in each, with its number.
        ahead: batches given to each before the first one is requested.
        persist: whether the workers outlive the epoch.
        timeout: seconds that a batch may take; 0 means no limit.
    """

    work: Callable[[Task], Any]
    workers: int
    setting: Setting
    init: Callable[[int], None] | None
    ahead: int
    persist: bool
    timeout: float

    def is_like(self, other: Python) -> bool:
        """Whether workers started for one of them also suit the other. A data set's own `==` is not
        called."""
        ours, theirs = self.setting, other.setting
        return (
            self.work == other.work
            and (self.workers, self.ahead) == (other.workers, other.ahead)
            and self.init is other.init
            and (ours.method, ours.seed) == (theirs.method, theirs.seed)
            and ours.dataset is theirs.dataset
        )


class Pool:
    """The workers of a `DataLoader`: new ones for each epoch, or those that persist."""

    def __init__(self) -> None:
        self._kept: Workers | None = None
        self._kept_for: Python | None = None

    def map(self, python: Python, tasks: Iterator[Task]) -> Iterator[Any]:
        """The results of the tasks, in their order. Starts the workers at once."""
        if not python.persist:
            return _MadeOnce(_started(python), tasks, python.timeout)
        before = self._kept_for
        if self._kept is None or self._kept.closed or before is None or not python.is_like(before):
            # Iterators of the previous workers may still run; the last of them ends those workers.
            self._kept, self._kept_for = _started(python), python
        return _Made(self._kept, tasks, python.timeout)

    def close(self) -> None:
        if self._kept is not None:
            self._kept.close()
            self._kept = None


def _started(python: Python) -> Workers:
    return Workers(
        python.workers,
        python.work,
        init=python.init,
        ahead=python.ahead,
        setting=python.setting,
    )


class _Made(Iterator[Any]):
    """What workers make of tasks. Not a generator, which an exception would end, and which only one
    thread at a time may run."""

    def __init__(self, workers: Workers, tasks: Iterator[Task], timeout: float) -> None:
        self._workers = workers
        self._results = workers.map(tasks, timeout)

    def __next__(self) -> Any:
        try:
            return next(self._results)
        except (StopIteration, NoBatch):
            raise
        except Exception as error:
            # Of a worker's death or a timeout; code in a worker has exceptions of its own.
            if type(error) is Error or self._workers.closed:
                raise NoBatch(error) from error
            raise


class _MadeOnce(_Made):
    """The same with workers that end when it does."""

    def __init__(self, workers: Workers, tasks: Iterator[Task], timeout: float) -> None:
        super().__init__(workers, tasks, timeout)
        self._has_ended = False

    def __next__(self) -> Any:
        try:
            return super().__next__()
        except StopIteration:
            # In this order, for a thread that finds the workers closed.
            self._has_ended = True
            self._workers.close()
            raise
        except NoBatch as none:
            if self._has_ended:
                raise StopIteration from none
            self._workers.close()
            raise
        except KeyboardInterrupt:
            self._workers.close()
            raise

    def __del__(self) -> None:
        self._workers.close()


class Finishing:
    """From native batches to those that the training loop gets."""

    def __init__(self, prepared: Prepared, seed: int) -> None:
        self._seed = seed
        self._n_records = prepared.source.n_samples
        rows = prepared.source.rows
        self._sample_of = None if rows is None else {row: n for n, row in enumerate(rows)}

    def here(self, loader: Loader, batches: Iterator[Batch], finish: Finish) -> Iterator[Any]:
        """Finishes each batch in the calling thread."""
        keys = (self._seed, loader.epoch)
        n_records = len(loader.dataset)
        # Not a generator: several threads may share the iterator.
        return map(lambda batch: finish.here(self._whole(batch, keys, n_records)), batches)

    def tasks(
        self, loader: Loader, batches: Iterator[Batch], finish: Finish
    ) -> tuple[Iterator[Task], deque[Taken]]:
        """Each batch as a task for a worker, and what was taken so far."""
        keys = (self._seed, loader.epoch)
        n_records = len(loader.dataset)
        ahead = deque([Taken(loader._state(), "")])

        def task(batch: Batch) -> Task:
            ahead.append(Taken(loader._state(), batch.prong))
            whole = self._whole(batch, keys, n_records)
            labels = whole.labels.tolist() if finish.needs_labels else []
            images = [_sent(view) for view in whole.images]
            return Task(images, (), (whole.samples, labels, whole.keys))

        return map(task, batches), ahead

    def _whole(self, batch: Batch, keys: tuple[int, int], n_records: int) -> Whole:
        n = batch.n_valid
        images, labels, ids = batch.images, batch.labels, batch.sample_ids
        if n < len(labels):
            images, labels, ids = [view[:n] for view in images], labels[:n], ids[:n]
        ids = ids.tolist()
        samples = [i % n_records for i in ids]
        if self._sample_of is not None:
            samples = [self._sample_of[i] for i in samples]
        return Whole(images, labels, samples, (*keys, ids))


def _sent(images: Any) -> Any:
    """As an array for a worker: bfloat16 as integers of the same bits."""
    return images.view(torch.int16).numpy() if isinstance(images, torch.Tensor) else images


def _both_damaged(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Merges the lists of two loaders over the same data: what both name counts once, and at most
    1,000 are named."""
    named = {sample["sample"]: sample for sample in [*one["named"], *other["named"]]}
    n_twice = len(one["named"]) + len(other["named"]) - len(named)
    n_samples = one["samples"] + other["samples"] - n_twice
    return {"samples": n_samples, "named": [named[sample] for sample in sorted(named)[:1000]]}


def summed(stats: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures of several native loaders of one `DataLoader`, with counts added up."""
    if not stats:
        raise Error("nothing has been loaded yet")
    total = dict(stats[-1])
    for other in stats[:-1]:
        for name in ("front_batches", "rescued", "backpressure_s", "storage_read_bytes"):
            total[name] += other[name]
        for name in ("skipped", "redecoded"):
            total[name] = [*other[name], *total[name]]
        total["damaged"] = _both_damaged(other["damaged"], total["damaged"])
        total["audits"] = {k: v + other["audits"][k] for k, v in total["audits"].items()}
        total["stall"] = {k: v + other["stall"][k] for k, v in total["stall"].items()}
        total["back"] = [*other["back"], *total["back"]] if other["back"] else total["back"]
    return total


def nothing_yet(epoch: int, n_batches: int) -> dict[str, Any]:
    """The figures where no native loader is open, with all of their keys: it has read and made
    nothing, and so many batches were made without it."""
    causes = ("order", "read", "decode", "device", "finish", "copy", "consumer")
    folder = {"folder": None, "bytes": 0, "limit_bytes": 0}
    counts = ("records", "transcoded", "read", "read_bytes", "damaged")
    why = "no native loader is open"
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "epoch": epoch,
        "front_batches": n_batches,
        "back": [],
        "rescued": 0,
        "skipped": [],
        "redecoded": [],
        "damaged": {"samples": 0, "named": []},
        "audits": {"batches": 0, "samples": 0, "differences": 0, "seconds": 0.0},
        "stall": dict.fromkeys(causes, 0.0),
        "backpressure_s": 0.0,
        "storage_read_bytes": 0,
        "side_index": folder,
        "block_cache": {**folder, **dict.fromkeys(counts, 0), "off": why},
        "record_cache": None,
        "fetches": None,
        "cpu_seconds": used.ru_utime + used.ru_stime,
        # Linux counts it in KiB.
        "peak_rss_bytes": used.ru_maxrss * 1024,
        "path": f"host ({why})",
    }
