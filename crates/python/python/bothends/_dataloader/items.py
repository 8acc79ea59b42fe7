"""Batches made by a data set's own `__getitem__`, for map-style data sets that bothends does not
read. It runs in workers, or in the calling thread with `num_workers=0`. Its random numbers follow
from (seed, epoch, position in the epoch), so that an epoch can be resumed at any batch.

Reading order: `dealt` is the order if no sampler was given; `Items` makes a batch; `ItemsProgress`
is the position of a training loop.
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from .._errors import StateError
from .._sources import is_in_memory
from .._workers import Task, numbers_kept, seed_for
from .epochs import Progress
from .orders import Given, Own, mixed

# Ranks have their random numbers one after the other; batches after those of all samples.
_OF_RANKS = 2**40
_OF_BATCHES = 2**63

# How a run and a state may differ in what is known of the epoch's shape, in this order.
_SHAPE = (
    "{} samples; here are {}",
    "{} samples per batch; here are {}",
    "drop_last={}; here it is {}",
)


def dealt(own: Own, sizes: tuple[int, int], key: tuple[int, int], *, drop_last: bool) -> Given:
    """This rank's batches of an epoch: all positions are cut into steps of one batch per rank, and
    each rank takes its part of every step. Samples that do not fill a step are dropped or dealt
    evenly, in which case a few of the first samples may come again.

    Args:
        own: the order.
        sizes: samples of the data set, and of a batch.
        key: (seed, epoch).
    """
    n_samples, batch_size = sizes
    order = torch.arange(n_samples)
    if own.shuffle:
        generator = torch.Generator().manual_seed(mixed(*key))
        order = torch.randperm(n_samples, generator=generator)
    rank, world = own.ranks.rank, own.ranks.world_size
    n_steps, left = divmod(n_samples, batch_size * world)
    steps, rest = order[: n_samples - left], order[n_samples - left :]
    parts = [steps.view(n_steps, world, batch_size)[:, rank].reshape(-1)]
    ends = array("Q", range(batch_size, (n_steps + 1) * batch_size, batch_size))
    if left and not drop_last:
        n = -(-left // world)
        again = torch.arange(n * world - left) % n_samples
        parts.append(torch.cat((rest, order[again]))[rank * n : (rank + 1) * n])
        ends.append(n_steps * batch_size + n)
    samples = array("q", torch.cat(parts).numpy().tobytes())
    return Given(samples, ends, batch_size, own.ranks, "same")


class Items:
    """Makes batches as PyTorch's loader does: items of the data set, and `collate_fn` of them.

    Attributes:
        n_taken: batches that training loops have got, or whose exceptions they have got.
    """

    def __init__(self, dataset: Any, collate_fn: Callable[[list[Any]], Any]) -> None:
        self.n_taken = 0
        self.dataset = dataset
        self.collate_fn = collate_fn
        # Indexing it draws no numbers. Seeding three generators takes longer than that.
        self._draws = not is_in_memory(dataset)

    def fits(self, dataset: Any, collate_fn: Callable[[list[Any]], Any]) -> bool:
        return self.dataset is dataset and self.collate_fn is collate_fn

    def in_worker(self, task: Task) -> Any:
        """Makes a batch in a worker, which has its own generators."""
        return self._made(*task.extra)

    def here(self, task: Task) -> Any:
        """Makes a batch in the calling thread."""
        with numbers_kept():
            return self._made(*task.extra)

    def _made(self, samples: list[int], key: tuple[int, int, int]) -> Any:
        seed, epoch, first = key
        if getattr(self.dataset, "__getitems__", None):
            # It draws for all of them, in any order.
            seed_for(seed, epoch, _OF_BATCHES + first)
            return self.collate_fn(self.dataset.__getitems__(samples))
        items = []
        for place, sample in enumerate(samples, first):
            if self._draws:
                seed_for(seed, epoch, place)
            items.append(self.dataset[sample])
        seed_for(seed, epoch, _OF_BATCHES + first)
        return self.collate_fn(items)


def tasks(order: Given, key: tuple[int, int], skip: int) -> Iterator[Task]:
    """The batches of an order after the first `skip`. Random numbers are keyed by position and
    rank, so that a repeated sample gets different ones."""

    def task(start: int, end: int) -> Task:
        first = order.ranks.rank * _OF_RANKS + start
        return Task((), (), (order.samples[start:end].tolist(), (*key, first)))

    # Not a generator: several threads may share the iterator.
    starts = itertools.chain((0,), order.ends)
    return map(task, itertools.islice(starts, skip, None), order.ends[skip:])


class Before(NamedTuple):
    """What a resumed run had already taken of an epoch.

    Attributes:
        n: batches that each rank had taken.
        n_ranks: the ranks that shared the epoch; None if the state does not say.
    """

    n: int = 0
    n_ranks: int | None = None

    def saved(self, shape: list[int | None]) -> dict[str, Any]:
        """The part of a state that `resumed` reads."""
        told = {} if self.n_ranks is None else {"items_ranks": self.n_ranks}
        return {"items": [self.n, *shape], **told}

    def on(self, n_ranks: int, order: Given, n_dealt: int | None) -> int:
        """The same as a number of batches of this order, of which every one of `n_ranks` has one.

        Args:
            n_dealt: the number of samples, if `dealt` deals them; None if a sampler does.

        Raises:
            StateError: with so many ranks, samples would be left out or come again.
        """
        then = self.n_ranks
        if self.n == 0 or then is None or then == n_ranks:
            return self.n
        if n_dealt is None:
            line = f"the state belongs to an epoch that a sampler divided among {then} ranks"
            line = f"{line}; here are {n_ranks}"
            raise StateError(f"{line}: resume it with {then}, or start it over")
        # Whatever their number, the ranks take samples from the front of the order, in steps.
        n_steps, left = divmod(self.n * then, n_ranks)
        if self.n * then * order.longest >= n_dealt:
            # Its last step may have been a short one.
            return len(order.ends)
        if left == 0:
            return n_steps
        line = f"{then} ranks had taken {self.n} batches each, which are no whole steps of {n_ranks}"
        raise StateError(f"{line} ranks: resume the epoch with {then}, or start it over")


@dataclass
class ItemsProgress(Progress):
    """The progress of an epoch.

    Attributes:
        items: who makes its batches.
        seed: of the loader.
        shape: the number of samples in the data set, the most in a batch, and whether a smaller
            batch at the end is dropped, as far as known.
        before: batches of the epoch that the resumed run had already taken.
        skipped: batches that come before those, since Accelerate skips them.
        n_ranks: the ranks that share the epoch.
    """

    items: Items = field(kw_only=True)
    seed: int = field(kw_only=True)
    shape: list[int | None] = field(kw_only=True)
    before: int = 0
    skipped: int = 0
    n_ranks: int = 1

    @property
    def state(self) -> dict[str, Any]:
        if self.has_ended:
            return {"epoch": self.number + 1, "seed": self.seed}
        taken = Before(self.before + self.n_taken, self.n_ranks)
        place = {"epoch": self.number, "seed": self.seed, **taken.saved(self.shape)}
        return {**place, "items_skipped": self.skipped} if self.skipped else place

    def take(self) -> None:
        super().take()
        self.items.n_taken += 1


def resumed(state: dict[str, Any], shape: list[int | None], skipped: int) -> Before:
    """What was taken, according to a state, of the batches that come after the skipped ones.

    Raises:
        StateError: it is damaged, or is for a different data set or batch size.
    """
    if "version" in state:
        line = "the state is for a data set that bothends reads, and it does not read this one"
        raise StateError(f"{line}; explain() says why")
    items = state.get("items", [0, *shape])
    # Earlier versions did not say whether the rest is dropped.
    n = items[0] if isinstance(items, list) and len(items) in (3, 4) else None
    # Earlier versions did not say how many ranks there were.
    n_ranks = state.get("items_ranks")
    is_number = n_ranks is None or (isinstance(n_ranks, int) and n_ranks > 0)
    if not isinstance(n, int) or n < 0 or not is_number:
        raise StateError("the state was not made by state_dict()")
    # Earlier versions did not say how many were skipped.
    if n > 0 and state.get("items_skipped", skipped) != skipped:
        line = f"the state belongs to a loader that skips the first {state['items_skipped']} batches"
        raise StateError(f"{line} of an epoch; this one skips {skipped}")
    for nth, (words, before, now) in enumerate(zip(_SHAPE, items[1:], shape, strict=False)):
        # Between epochs, a data set may have grown, or be another rank's part, and a loader may be
        # one that Accelerate has made from the other.
        is_compared = n > 0 or (nth > 0 and before is not None and now is not None)
        if is_compared and before != now:
            line = f"the state belongs to a run with {words.format(before, now)}"
            raise StateError(f"{line}; give the same, or start without load_state_dict")
    return Before(n, n_ranks)
