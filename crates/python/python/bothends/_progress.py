"""How far an epoch has come, on standard error: with tqdm where it can be imported and somebody
looks (a terminal, a notebook), else in plain lines."""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Iterator
from typing import Any, TypeVar

T = TypeVar("T")

# Seconds before anything is shown: what is over by then needs no bar.
DELAY = 2.0
# Seconds from one line to the next: on a terminal, where it stands in one place, and elsewhere.
EVERY_TERMINAL, EVERY_LINE = 0.5, 10.0


class Shown(Iterator[T]):
    """The batches of an epoch of `n`, of which `done` were delivered before, and how far it is.
    No generator, for several threads may take from it at once."""

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
        """Ends the bar, also of a loop that was left early. It does so once."""
        bar, self._bar = self._bar, _Closed()
        bar.close()

    def __del__(self) -> None:
        self.close()


class _Closed:
    """No bar any more."""

    def update(self, n: int) -> None:
        pass

    def close(self) -> None:
        pass


def _bar(n: int, done: int, name: str) -> Any:
    """A bar after tqdm's protocol: `update(n)` and `close()`."""
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
