"""What workers receive and return: tasks, jobs, failures.

See `_workers` for the workers themselves.
"""

from __future__ import annotations

import os
import pickle
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

Method = Literal["fork", "spawn", "forkserver", "threads"]

# Seconds that a worker may still spend on its current task when it has been told to end.
GRACE_S = 1.0


class Task(NamedTuple):
    """A batch to work on.

    Attributes:
        images: arrays with one row per sample, one array per view. A worker has its own copy.
        keys: identifies the samples; small.
        extra: anything else that can be pickled.
    """

    images: Any
    keys: tuple[Any, ...]
    extra: Any


@dataclass(frozen=True)
class Setting:
    """How workers run.

    Attributes:
        method: "fork" needs no pickling, "spawn" and "forkserver" pickle `work`, "threads" copies
            nothing; None means threads if the interpreter has no GIL, otherwise fork if available.
        seed: `get_worker_info().seed` of worker 0; worker i has seed + i.
        dataset: `get_worker_info().dataset`.
    """

    method: Method | None = None
    seed: int = 0
    dataset: Any = None


class Job(NamedTuple):
    """The work of every worker."""

    work: Callable[[Task], Any]
    init: Callable[[int], None] | None
    n_workers: int
    setting: Setting


class Crew(Protocol):
    """A set of workers of any kind. Numbers refer to tasks."""

    lock: threading.RLock
    forgotten: deque[int]

    @property
    def closed(self) -> bool: ...
    def submit(self, task: Task, place: int) -> int: ...
    def turn(self, seconds: float) -> None: ...
    def has(self, number: int) -> bool: ...
    def take(self, number: int) -> Any: ...
    def pids(self) -> list[int]: ...
    def close(self) -> None: ...


def begun(job: Job, number: int) -> Callable[[Task], Any]:
    """Calls `init`. If it raises, that is the outcome of every task."""
    if job.init is None:
        return job.work
    try:
        job.init(number)
    except Exception:
        failure = Failure.now(number)
        return lambda _: failure
    return job.work


def outcome_of(work: Callable[[Task], Any], task: Task, number: int) -> Any:
    try:
        return work(task)
    except Exception:
        return Failure.now(number)


@dataclass(frozen=True)
class Failure:
    """An exception in a worker, as far as it can be transferred."""

    kind: type[Exception] | None
    line: str

    @staticmethod
    def now(number: int) -> Failure:
        """The exception being handled in this worker."""
        error = sys.exception()
        assert error is not None, "only called while an exception is being handled"
        text = "".join(traceback.format_exception(error))
        name = type(error).__name__
        line = f"{name} in worker {number} (process {os.getpid()}). Original {text}"
        return Failure(_travels(type(error)), line)

    def result(self) -> Any:
        """Raises it: as its own type if that accepts a text, otherwise as a RuntimeError."""
        raise self._rebuilt()

    def _rebuilt(self) -> Exception:
        # A StopIteration would silently end the loop over the batches.
        if self.kind is None or issubclass(self.kind, StopIteration):
            return RuntimeError(self.line)
        try:
            error = self.kind(_Lines(self.line))
        except Exception:
            return RuntimeError(self.line)
        if self.line not in str(error):
            error.add_note(self.line)
        return error


class _Lines(str):
    """A text that a KeyError shows unquoted."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _travels(kind: type[BaseException]) -> type[Exception] | None:
    """The type, if the parent can find it by name."""
    if not issubclass(kind, Exception):
        return None
    try:
        pickle.dumps(kind)
    except Exception:
        return None
    return kind
