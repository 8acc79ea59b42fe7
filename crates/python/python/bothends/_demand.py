"""What a loader needs from a pool, measured from its counters, and the size that a pool should
have."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ._loader import Loader
from ._native import PoolSize

# The margin above what loaders consume, as in `PoolSize`.
_MARGIN = 0.1
# A loader waits if it could consume this many times what it gets.
_WAITS = 1.05


class Demand(NamedTuple):
    """What a loader received, and could have consumed, over the last seconds, in samples per
    second."""

    consumer: float
    """What its training loop would consume if it never waited."""
    host: float
    """What its own workers make."""
    agents: float
    """What all agents together make for it."""


class Meter:
    """Measures a loader's `Demand` between two readings."""

    def __init__(self) -> None:
        self._before: tuple[float, float, int, int] | None = None
        self._host = 0.0

    def look(self, loader: Loader) -> Demand:
        stats, now = loader.stats(), time.monotonic()
        front = stats["front_batches"] * loader.batch_size
        back = sum(device["batches"] for device in stats["back"]) * loader.batch_size
        waited = loader._waits.seconds()
        before = self._before or (now - 1.0, waited, front, back)
        self._before = (now, waited, front, back)
        seconds, waited, front, back = (a - b for a, b in zip(self._before, before))
        # A host that is helped, or that is ahead, makes less than it could.
        self._host = max(front / seconds, 0.98 * self._host)
        busy = max(seconds - waited, seconds / 20)
        return Demand((front + back) / busy, self._host, back / seconds)


def by_need(
    size: PoolSize, serving: Callable[[], int], clock: Callable[[], float] = time.monotonic
) -> Callable[[Sequence[Demand]], int]:
    """An agent's capacity shows only while a loader waits. Otherwise agents make what is consumed,
    and those that serve are enough: each can make at least its part of the need."""
    best: float | None = None

    def of(demands: Sequence[Demand]) -> int:
        nonlocal best
        agents, n_serving = sum(it.agents for it in demands), serving()
        if agents and n_serving:
            need = sum(max(0.0, (1 + _MARGIN) * it.consumer - it.host) for it in demands)
            waits = any(it.consumer > _WAITS * (it.host + it.agents) for it in demands)
            fed = max(best or 0.0, agents / n_serving, need / n_serving)
            best = agents / n_serving if waits else fed
        needs = [(it.consumer, it.host) for it in demands]
        return size.observe(needs, best, clock())

    return of
