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
from typing import Any

import torch

from .._errors import StateError
from .._sources import is_in_memory
from .._workers import Task, numbers_kept, seed_for
from .epochs import Progress
from .orders import Given, Own, mixed

# Ranks have their random numbers one after the other; batches after those of all samples.
_OF_RANKS = 2**40
_OF_BATCHES = 2**63


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


@dataclass
class ItemsProgress(Progress):
    """The progress of an epoch.

    Attributes:
        items: who makes its batches.
        seed: of the loader.
        shape: the number of samples in the data set and the most in a batch, as far as known.
        before: batches of the epoch that the resumed run had already taken.
        skipped: batches that come before those, since Accelerate skips them.
    """

    items: Items = field(kw_only=True)
    seed: int = field(kw_only=True)
    shape: list[int | None] = field(kw_only=True)
    before: int = 0
    skipped: int = 0

    @property
    def state(self) -> dict[str, Any]:
        if self.has_ended:
            return {"epoch": self.number + 1, "seed": self.seed}
        n = self.before + self.n_taken
        place = {"epoch": self.number, "seed": self.seed, "items": [n, *self.shape]}
        return {**place, "items_skipped": self.skipped} if self.skipped else place

    def take(self) -> None:
        super().take()
        self.items.n_taken += 1


def resumed(state: dict[str, Any], shape: list[int | None], skipped: int) -> int:
    """The number of batches taken, according to a state, of those that come after the skipped ones.

    Raises:
        StateError: it is damaged, or is for a different data set or batch size.
    """
    if "version" in state:
        line = "the state is for a data set that bothends reads, and it does not read this one"
        raise StateError(f"{line}; explain() says why")
    items = state.get("items", [0, *shape])
    n = items[0] if isinstance(items, list) and len(items) == 3 else None
    if not isinstance(n, int) or n < 0:
        raise StateError("the state was not made by state_dict()")
    # Earlier versions did not say how many were skipped.
    if n > 0 and state.get("items_skipped", skipped) != skipped:
        line = f"the state belongs to a loader that skips the first {state['items_skipped']} batches"
        raise StateError(f"{line} of an epoch; this one skips {skipped}")
    for name, before, now in zip(("samples", "samples per batch"), items[1:], shape, strict=True):
        if before != now:
            raise StateError(f"the state belongs to a run with {before} {name}; here are {now}")
    return n
