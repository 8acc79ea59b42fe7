"""What loaders need of a pool: measured from their counters, and turned into a number of agents."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import NamedTuple

from ._loader import Loader


class Demand(NamedTuple):
    """What a loader was fed and could have taken over the last seconds, in samples per second."""

    consumer: float
    """What its training loop would take if it never waited."""
    host: float
    """What its own workers make."""
    agents: float
    """What all agents together make for it."""


def size_for(demands: Sequence[Demand], n: int) -> int:
    """How many agents feed these loaders, where there are `n` now: with a tenth more than is
    needed, and none where the hosts suffice. It grows to twice the number, and one, at a time."""
    missing = sum(max(0.0, 1.1 * it.consumer - it.host) for it in demands)
    made = sum(it.agents for it in demands)
    if missing == 0:
        return 0
    return min(2 * n + 1, math.ceil(missing * n / made) if made else n + 1)


class Meter:
    """A loader's `Demand` from one look to the next."""

    def __init__(self) -> None:
        self._before: tuple[float, float, int, int] | None = None
        self._host = 0.0

    def look(self, loader: Loader) -> Demand:
        stats, now = loader.stats(), time.monotonic()
        front = stats["front_batches"] * loader.batch_size
        back = sum(device["batches"] for device in stats["back"]) * loader.batch_size
        before = self._before or (now - 1.0, loader._waited_s, front, back)
        self._before = (now, loader._waited_s, front, back)
        seconds, waited, front, back = (a - b for a, b in zip(self._before, before))
        # A host that others help, or that is ahead, makes less than it could.
        self._host = max(front / seconds, 0.98 * self._host)
        busy = max(seconds - waited, seconds / 20)
        return Demand((front + back) / busy, self._host, back / seconds)
