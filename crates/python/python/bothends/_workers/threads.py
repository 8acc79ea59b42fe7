"""Worker threads, for a free-threaded interpreter: nothing is pickled, and only the images are
copied."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
import weakref
from collections import deque
from typing import Any

from .._errors import Error
from .tasks import GRACE_S, Failure, Job, Task, begun, outcome_of


class Threads:
    """A set of threads: nothing is pickled, and only the images are copied."""

    def __init__(self, job: Job) -> None:
        self.lock = threading.RLock()
        self.forgotten: deque[int] = deque()
        self._tasks: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._outcomes: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
        self._arrived: dict[int, Any] = {}
        self._next = 0
        queues = self._tasks, self._outcomes
        self._threads = [
            threading.Thread(
                target=_work, args=(job, n, *queues), name=f"bothends-worker-{n}", daemon=True
            )
            for n in range(job.n_workers)
        ]
        self._end = weakref.finalize(self, _end_threads, os.getpid(), self._threads, self._tasks)
        for thread in self._threads:
            thread.start()

    @property
    def closed(self) -> bool:
        return not self._end.alive

    def pids(self) -> list[int]:
        return []

    def submit(self, task: Task, place: int) -> int:
        """Gives a task to whichever thread is free: they share what they would draw from."""
        import numpy

        if self.closed:
            raise Error("the workers have ended; start new ones")
        number = self._next
        self._next += 1
        images = [numpy.array(view) for view in task.images]
        self._tasks.put((number, task._replace(images=images)))
        return number

    def turn(self, seconds: float) -> None:
        if self.closed:
            raise Error("the workers have ended; start new ones")
        with contextlib.suppress(queue.Empty):
            number, outcome = self._outcomes.get(seconds > 0, seconds)
            self._arrived[number] = outcome
            while True:
                number, outcome = self._outcomes.get_nowait()
                self._arrived[number] = outcome
        for _ in range(len(self.forgotten)):
            number = self.forgotten.popleft()
            if number in self._arrived:
                del self._arrived[number]
            else:
                self.forgotten.append(number)

    def has(self, number: int) -> bool:
        return number in self._arrived

    def take(self, number: int) -> Any:
        return self._arrived.pop(number)

    def close(self) -> None:
        self._end()


def _work(job: Job, number: int, tasks: Any, outcomes: Any) -> None:
    """The main loop of a thread."""
    work = begun(job, number)
    while (given := tasks.get()) is not None:
        try:
            outcome = outcome_of(work, given[1], number)
        except BaseException:
            # Otherwise this thread's end would go unnoticed.
            outcome = Failure.now(number)
        outcomes.put((given[0], outcome))
        del given, outcome


def _end_threads(owner: int, threads: list[threading.Thread], tasks: Any) -> None:
    """Ends the threads. One that is still working after `GRACE_S` ends when its task does."""
    if os.getpid() != owner:
        return
    with contextlib.suppress(queue.Empty):
        while True:
            tasks.get_nowait()
    for _ in threads:
        tasks.put(None)
    end = time.monotonic() + GRACE_S
    for thread in threads:
        if thread is not threading.current_thread():
            thread.join(max(0.0, end - time.monotonic()))
