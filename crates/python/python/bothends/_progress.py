"""The progress of an epoch on standard error: with tqdm if it is installed and the output is
interactive (a terminal, a notebook), otherwise in plain lines."""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Iterator
from typing import Any, TypeVar

T = TypeVar("T")

# Seconds before anything is shown: an epoch that is over by then needs no bar.
DELAY = 2.0
# Seconds between updates: on a terminal, where the line is redrawn in place, and elsewhere.
EVERY_TERMINAL, EVERY_LINE = 0.5, 10.0


class Shown(Iterator[T]):
    """The batches of an epoch of `n`, of which `done` were delivered before, with their progress
    shown. Not a generator, since several threads may take from it at once."""

    def __init__(self, batches: Iterator[T], n: int, done: int, epoch: int) -> None:
        self._batches = batches
        self._bar = _bar(n, done, f"epoch {epoch}")

    def __next__(self) -> T:
        try:
            batch = next(self._batches)
        except BaseException:
            self.close()
            raise
        self._bar.update(1)
        return batch

    def close(self) -> None:
        """Ends the bar, even if the loop was left early. Further calls do nothing."""
        bar, self._bar = self._bar, _Closed()
        bar.close()

    def __del__(self) -> None:
        self.close()


class _Closed:
    """A bar that has been closed."""

    def update(self, n: int) -> None:
        pass

    def close(self) -> None:
        pass


def _bar(n: int, done: int, name: str) -> Any:
    """A bar with tqdm's protocol: `update(n)` and `close()`."""
    in_notebook = "ipykernel" in sys.modules
    if in_notebook or sys.stderr.isatty():
        try:
            tqdm = importlib.import_module("tqdm.auto").tqdm
        except ImportError:
            return _Lines(n, done, name)
        return tqdm(total=n, initial=done, desc=name, unit="batch", delay=DELAY)
    return _Lines(n, done, name)


class _Lines:
    def __init__(self, n: int, done: int, name: str) -> None:
        self._n, self._first, self._done, self._name = n, done, done, name
        self._began = self._said = time.monotonic()
        self._on_terminal = sys.stderr.isatty()
        self._is_shown = False

    def update(self, n: int) -> None:
        self._done += n
        now = time.monotonic()
        every = EVERY_TERMINAL if self._on_terminal else EVERY_LINE
        due = self._said + every if self._is_shown else self._began + DELAY
        if now < due:
            return
        self._said, self._is_shown = now, True
        rate = (self._done - self._first) / (now - self._began)
        text = f"{self._name}: {self._done}/{self._n} batches, {rate:.1f} batches/s"
        start, end = ("\r", "") if self._on_terminal else ("", "\n")
        print(f"{start}{text}", end=end, file=sys.stderr, flush=True)

    def close(self) -> None:
        if self._is_shown and self._on_terminal:
            print(file=sys.stderr)
