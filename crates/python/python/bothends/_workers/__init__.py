"""Workers: where Python code runs on samples that bothends has decoded and cropped.

A batch goes to a worker as a `Task` and comes back as whatever `work` made of it. This module
neither decodes nor decides what runs where. `processes` and `threads` are the workers; `parcels`
carries arrays there and back.
"""

from __future__ import annotations

import contextlib
import hashlib
import multiprocessing
import os
import random
import struct
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from .._errors import Error, ForkError, OptionsError
from .tasks import Crew, Failure, Job, Method, Setting, Task
from .processes import POLL_S, Processes
from .threads import Threads

__all__ = ["Setting", "Task", "Workers", "numbers_kept", "seed_for", "usual_method"]


class Workers:
    """A pool of workers that start at once and live until `close`.

    Memory: for every task that waits or is worked on there is a region for its images and one
    for its result, each as large as the largest so far (untouched parts cost nothing). A result's
    arrays are views of the region, which is reused when the last of them is gone. A script may keep
    `KEPT_REGIONS` of them; further results are copies, so that any number can be kept. The memory
    is anonymous: it has no name, is not a file, and does not count against /dev/shm.

    Random numbers: a worker process has its own generators, so `seed_for` makes a sample's
    numbers a function of the sample. Threads share theirs: there, `seed_for` does not control what
    other threads draw in between. Work that draws from global generators and must be reproducible belongs in processes (`Setting(method="fork")`); `shares_generators` says which it is. Threads do not have a `torch.utils.data.get_worker_info()` either.

    Args:
        n: workers.
        work: called with each `Task` in a worker. With fork it may be anything, such as a lambda or
            a closure over a data set: it is never pickled, but its results are.
        init: called with the number of the worker, once in each.
        ahead: tasks waiting or in progress, per worker.
        setting: see there.

    Raises:
        OptionsError: an argument is invalid, or cannot be pickled although it must be.
    """

    def __init__(
        self,
        n: int,
        work: Callable[[Task], Any],
        *,
        init: Callable[[int], None] | None = None,
        ahead: int = 2,
        setting: Setting | None = None,
    ) -> None:
        for name, value in (("n", n), ("ahead", ahead)):
            if value < 1:
                raise OptionsError(f"{name} is {value}; it must be at least 1")
        setting = setting or Setting()
        method = setting.method or usual_method()
        job = Job(work, init, n, setting)
        self._crew: Crew = Threads(job) if method == "threads" else Processes(job, method)
        self._room = n * ahead
        self._owner = os.getpid()
        self.shares_generators = method == "threads"

    def map(self, tasks: Iterable[Task], timeout: float = 0) -> Iterator[Any]:
        """The results, in the order of the tasks; each within `timeout` seconds, if not 0.

        A task is taken only when there is room for it: of one iterator, at most n x ahead tasks
        wait, are worked on, or have a result that nobody has asked for. An exception of `work` or
        of `tasks` is raised in its turn, and the iterator can continue after it. Several iterators
        do not disturb each other.

        Raises:
            Error: a worker died, the workers are closed, or a result has not arrived in time.
            ForkError: they belong to a different process.
        """
        if os.getpid() != self._owner:
            line = "the workers belong to the process that started them; start new ones in this process"
            raise ForkError(line)
        return _Results(self._crew, iter(tasks), (self._room, timeout))

    @property
    def pids(self) -> list[int]:
        """The worker processes; none where they are threads, or closed."""
        return self._crew.pids()

    @property
    def closed(self) -> bool:
        """Whether they have ended: through `close`, the death of one of them, or Ctrl-C."""
        return self._crew.closed

    def close(self) -> None:
        """Ends the workers; none of their processes remains. It may be called more than once."""
        self._crew.close()


def usual_method() -> Method:
    """What workers are if nothing else is asked for."""
    has_lock: Callable[[], bool] = getattr(sys, "_is_gil_enabled", lambda: True)
    if not has_lock():
        return "threads"
    return "fork" if "fork" in multiprocessing.get_all_start_methods() else "spawn"


# ---- random numbers -----------------------------------------------------------------------


def seed_for(seed: int, epoch: int, sample: int) -> None:
    """Seeds the global generators of Python, of NumPy and of PyTorch (on the CPU), if these are
    imported, for one sample: the same numbers in whatever batch, worker or resumed run."""
    words = (number % 2**64 for number in (seed, epoch, sample))
    key = hashlib.blake2b(struct.pack("<3Q", *words), digest_size=24, person=b"bothends sample")
    pythons, numpys, torchs = struct.unpack("<3Q", key.digest())
    random.seed(pythons)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(numpys % 2**32)
    if (torch := sys.modules.get("torch")) is not None:
        # Not `torch.manual_seed`, which seeds the generators of accelerators, too.
        torch.default_generator.manual_seed(torchs % 2**63)


# Threads that share an iterator would get each other's numbers.
_numbers = threading.RLock()


def _renew_lock() -> None:
    """Another thread may have held it when the process was forked."""
    global _numbers
    _numbers = threading.RLock()


os.register_at_fork(after_in_child=_renew_lock)


@contextlib.contextmanager
def numbers_kept() -> Iterator[None]:
    """On exit, restores the generators that `seed_for` seeds. One thread at a time."""
    with _numbers, _kept():
        yield


@contextlib.contextmanager
def _kept() -> Iterator[None]:
    pythons = random.getstate()
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    numpys = numpy and numpy.random.get_state()
    torchs = torch and torch.default_generator.get_state()
    try:
        yield
    finally:
        random.setstate(pythons)
        if numpy is not None:
            numpy.random.set_state(numpys)
        if torch is not None:
            torch.default_generator.set_state(torchs)


# ---- the order of results -----------------------------------------------------------------


class _Results:
    """The iterator of `Workers.map`."""

    def __init__(self, crew: Crew, tasks: Iterator[Task], limits: tuple[int, float]) -> None:
        self._crew = crew
        self._tasks: Iterator[Task] | None = tasks
        self._room, self._timeout = limits
        self._numbers: deque[int] = deque()
        self._n_submitted = 0
        # What `tasks` raised; it comes after the results that are still outstanding.
        self._error: Exception | None = None

    def __iter__(self) -> _Results:
        return self

    def __next__(self) -> Any:
        with self._crew.lock:
            self._crew.turn(0)
            # Two for one fills the room while the consumer computes, and does not let it wait
            # for as many tasks as there is room for when it asks for the first result.
            for _ in range(2):
                self._pull()
            asked = time.monotonic()
            while self._numbers and not self._crew.has(self._numbers[0]):
                self._crew.turn(0 if self._pull() else self._patience(asked))
            if self._numbers:
                outcome = self._crew.take(self._numbers.popleft())
                return outcome.result() if isinstance(outcome, Failure) else outcome
        error, self._error = self._error, None
        raise error or StopIteration

    def _patience(self, asked: float) -> float:
        """Seconds to wait before checking again."""
        if not self._timeout:
            return POLL_S
        left = asked + self._timeout - time.monotonic()
        if left <= 0:
            line = f"no batch within timeout={self._timeout:g} s: the workers' code hangs or is slow"
            raise Error(line)
        return min(POLL_S, left)

    def _pull(self) -> bool:
        """Takes a task, if there is one and room for it, and gives it to a worker."""
        if self._tasks is None or self._error is not None or len(self._numbers) >= self._room:
            return False
        try:
            task = next(self._tasks)
            self._numbers.append(self._crew.submit(task, self._n_submitted))
            self._n_submitted += 1
        except StopIteration:
            self._tasks = None
            return False
        except Exception as error:
            # Without workers, no outstanding result will come either: the reason is told now or never.
            if self._crew.closed:
                raise
            self._error = error
            return False
        return True

    def __del__(self) -> None:
        # Called by the garbage collector, hence in any thread and at any time: no lock here.
        self._crew.forgotten.extend(self._numbers)
