"""How long a training loop has waited for batches; it can be read from any thread during a wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any


class _Waited:
    """Seconds that one consumer has waited, by the thread that takes from it. Each thread writes
    only its own entry, so there is no lock, which a fork could leave locked."""

    def __init__(self) -> None:
        self.done: dict[int, float] = {}
        self.since: dict[int, float] = {}

    def seconds(self, now: float) -> float:
        since = list(self.since.values())
        n_threads = max(len(self.done), len(since), 1)
        under_way = sum(max(now - began, 0.0) for began in since)
        return (sum(list(self.done.values())) + under_way) / n_threads


class _Timed(Iterator[Any]):
    """The batches of a consumer, timed."""

    def __init__(self, batches: Iterator[Any], waited: _Waited) -> None:
        self._batches, self._waited = batches, waited

    def __next__(self) -> Any:
        thread, began = threading.get_ident(), time.monotonic()
        waited = self._waited
        waited.since[thread] = began
        try:
            return next(self._batches)
        finally:
            waited.since.pop(thread, None)
            done = waited.done.get(thread, 0.0)
            waited.done[thread] = done + time.monotonic() - began


class Waits:
    """Seconds that the consumers of a loader have waited, on average, in all epochs."""

    def __init__(self) -> None:
        # Replaced in one assignment, since other threads read it.
        self._epoch: tuple[float, list[_Waited]] = (0.0, [])

    def timed(self, consumers: Iterable[Iterator[Any]]) -> list[Iterator[Any]]:
        """The consumers of a new epoch, with their waits counted from now on."""
        batches = list(consumers)
        waited = [_Waited() for _ in batches]
        self._epoch = (self.seconds(), waited)
        return [_Timed(each, own) for each, own in zip(batches, waited)]

    def seconds(self) -> float:
        """Up to now, including a wait in progress."""
        (before, consumers), now = self._epoch, time.monotonic()
        return before + sum(each.seconds(now) for each in consumers) / max(len(consumers), 1)
