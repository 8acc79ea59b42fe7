"""What a loader needs of a pool, measured from its counters."""

from __future__ import annotations

import time
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


class Meter:
    """A loader's `Demand` from one look to the next."""

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
        # A host that others help, or that is ahead, makes less than it could.
        self._host = max(front / seconds, 0.98 * self._host)
        busy = max(seconds - waited, seconds / 20)
        return Demand((front + back) / busy, self._host, back / seconds)
