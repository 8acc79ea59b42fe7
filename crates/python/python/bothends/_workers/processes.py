"""Worker processes.

How a worker ends:
1. `close`, the garbage collector and the interpreter's exit close its socket. It sees the end of
the stream after its current task; a worker that has not ended after `GRACE_S` is killed.
2. The death of the parent also closes the socket. No other process holds that end, because
`_forsake` closes it in every fork. If the kernel can, it kills the worker at once.
3. The death of a worker raises an `Error` in the parent that names the process and the signal.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import random
import select
import signal
import socket
import sys
import threading
import time
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from .._errors import Error, OptionsError
from .parcels import SMALL_BYTES, Arena, Channel, Parcel
from .tasks import GRACE_S, Failure, Job, Method, Task, begun, outcome_of

# Seconds between checks whether the workers are still alive.
POLL_S = 0.5
# Results whose memory a script may keep; any more are copies.
KEPT_REGIONS = 8


@dataclass
class _Worker:
    """A worker process, as the parent sees it."""

    number: int
    process: Any
    channel: Channel


class Processes:
    """A set of worker processes."""

    def __init__(self, job: Job, method: Method) -> None:
        self.lock = threading.RLock()
        self.forgotten: deque[int] = deque()
        self._arrived: dict[int, Parcel] = {}
        self._next = 0
        self._workers: list[_Worker] = []
        self._end = weakref.finalize(self, _end, os.getpid(), self._workers)
        self._poll = select.poll()
        self._by_fd: dict[int, _Worker] = {}
        try:
            for number in range(job.n_workers):
                worker = _start(job, number, method)
                self._workers.append(worker)
                self._by_fd[worker.channel.fileno()] = worker
                self._poll.register(worker.channel.fileno(), select.POLLIN)
        except BaseException:
            self.close()
            raise

    @property
    def closed(self) -> bool:
        return not self._end.alive

    def pids(self) -> list[int]:
        return [] if self.closed else [worker.process.pid for worker in self._workers]

    def submit(self, task: Task, place: int) -> int:
        """Gives the task at this place of an iterator to a worker, in turn, as PyTorch's loader
        does: a generator of the script's own, of which each process has a copy, then draws the
        same numbers for it in every run."""
        number = self._next
        self._next += 1
        with self._whole():
            worker = self._workers[place % len(self._workers)]
            message, fds = worker.channel.packed(number, task)
            while not self._sent(worker, message, fds):
                worker.channel.wait_writable(POLL_S)
                self._look(worker)
        return number

    def turn(self, seconds: float) -> None:
        """Receives what has arrived, waiting at most this long."""
        with self._whole():
            self._forget()
            ready = self._poll.poll(seconds * 1000)
            for fd, _ in ready:
                self._receive(self._by_fd[fd])
            if seconds and not ready:
                for worker in self._workers:
                    self._look(worker)

    def has(self, number: int) -> bool:
        return number in self._arrived

    def take(self, number: int) -> Any:
        """A task's result, in its region, or as a copy if many are kept."""
        parcel = self._arrived.pop(number)
        kept = sum(len(worker.channel.kept) for worker in self._workers)
        return parcel.views() if kept < KEPT_REGIONS else parcel.copies()

    def close(self) -> None:
        # Fails in a fork by doing nothing: `_end` knows its process.
        self._end()

    @contextlib.contextmanager
    def _whole(self) -> Iterator[None]:
        """Receiving must not be interrupted: after a Ctrl-C, it is unknown which messages were
        read."""
        if self.closed:
            raise Error("the workers have ended; start new ones")
        try:
            yield
        except Exception as error:
            # If a task cannot be pickled, that is reported before anything is sent.
            if isinstance(error, (Error, OSError)):
                self.close()
            raise
        except BaseException:
            self.close()
            raise

    def _sent(self, worker: _Worker, message: bytes, fds: list[int]) -> bool:
        try:
            return worker.channel.send(message, fds)
        except (BrokenPipeError, ConnectionResetError):
            raise _death(worker) from None

    def _receive(self, worker: _Worker) -> None:
        """Everything that a worker has sent so far."""
        while True:
            try:
                parcel = worker.channel.receive()
            except BlockingIOError:
                return
            except ConnectionResetError:
                parcel = None
            if parcel is None:
                raise _death(worker)
            self._arrived[parcel.number] = parcel

    def _forget(self) -> None:
        """Drops results that will not be requested; those still to come are dropped when they
        arrive."""
        for _ in range(len(self.forgotten)):
            number = self.forgotten.popleft()
            parcel = self._arrived.pop(number, None)
            if parcel is not None:
                parcel.drop()
            else:
                self.forgotten.append(number)

    def _look(self, worker: _Worker) -> None:
        if worker.process.exitcode is not None:
            raise _death(worker)


def _death(worker: _Worker) -> Error:
    """Describes how a worker ended."""
    worker.process.join(GRACE_S)
    code = worker.process.exitcode
    who = f"worker {worker.number} (process {worker.process.pid})"
    if code is None or code >= 0:
        how = "" if code is None else f" with exit code {code}"
        return Error(f"{who} has ended{how} while working; its own output says why")
    name = signal.Signals(-code).name if -code in set(signal.Signals) else "no name"
    line = f"{who} was killed by signal {-code} ({name})"
    if -code == signal.SIGKILL:
        line += "; the kernel does so where memory runs out: use fewer workers, or smaller batches"
    return Error(line)


def _start(job: Job, number: int, method: Method) -> _Worker:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    _ends.add(ours)
    # The kernel's signal at a parent's death comes at the death of the *thread* that forked.
    is_main = threading.current_thread() is threading.main_thread()
    watched = os.getpid() if is_main and method == "fork" else None
    process = multiprocessing.get_context(method).Process(  # type: ignore[attr-defined]
        target=_serve,
        args=(theirs, job, number, watched),
        name=f"bothends-worker-{number}",
        daemon=True,
    )
    try:
        with warnings.catch_warnings():
            # Python warns about forking with threads running. The child touches none of their
            # state.
            warnings.simplefilter("ignore", DeprecationWarning)
            process.start()
    except Exception as error:
        ours.close()
        if method == "fork":
            raise
        line = f"workers that are not forked receive their code by pickling: {error}; "
        raise OptionsError(line + "move it to the top level of a module, or use fork") from error
    finally:
        theirs.close()
    ours.setblocking(False)
    return _Worker(number, process, Channel(ours))


def _end(owner: int, workers: list[_Worker]) -> None:
    """Ends the processes; see 1. in the module's docstring."""
    if os.getpid() != owner:
        return
    for worker in workers:
        worker.channel.close()
    end = time.monotonic() + GRACE_S
    for worker in workers:
        worker.process.join(max(0.0, end - time.monotonic()))
        if worker.process.exitcode is None:
            worker.process.kill()
    for worker in workers:
        worker.process.join()


# The parent's ends of all sockets. Any other process that held one would keep workers alive.
_ends: weakref.WeakSet[socket.socket] = weakref.WeakSet()


def _forsake() -> None:
    for end in list(_ends):
        end.close()
    _ends.clear()


os.register_at_fork(after_in_child=_forsake)


# ---- in a worker process ------------------------------------------------------------------


def _serve(end: socket.socket, job: Job, number: int, watched: int | None) -> None:
    """The main loop of a worker."""
    channel = Channel(end)
    _settle(watched)
    if "torch" in sys.modules:
        _settle_torch(job, number, channel.arena)
    work = begun(job, number)
    while (parcel := channel.receive()) is not None:
        # Tasks sent before the end are no longer wanted.
        if channel.is_alone() or not _answer(channel, parcel, work, number):
            return


def _answer(
    channel: Channel, parcel: Parcel, work: Callable[[Task], Any], number: int
) -> bool:
    """Works on one task; False if the parent is gone. Nothing from the task outlives the call."""
    try:
        packed = channel.packed(parcel.number, outcome_of(work, _task(channel, parcel), number))
    except Exception:
        # The result cannot be pickled or unpickled; a failure always can.
        packed = channel.packed(parcel.number, Failure.now(number))
    try:
        return channel.send(*packed)
    except (BrokenPipeError, ConnectionResetError):
        return False


def _task(channel: Channel, parcel: Parcel) -> Task:
    task: Task = parcel.views() if len(channel.kept) < KEPT_REGIONS else parcel.copies()
    return task


def _settle(watched: int | None) -> None:
    """Turns a process into a worker: Ctrl-C and signal handlers are left to its parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    # The parent's garbage is never collected here: none of its finalizers run in this process, and
    # its pages stay shared.
    gc.freeze()
    if watched is None:
        return
    import ctypes

    set_parent_death_signal = 1
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != watched:
        os._exit(1)


def _settle_torch(job: Job, number: int, arena: Arena) -> None:
    """Makes it look like a worker of `torch.utils.data`, for code that asks."""
    import torch.utils.data
    from torch.utils.data._utils import collate, worker

    # As in PyTorch: its threads do not survive a fork, and the workers already run in parallel.
    torch.set_num_threads(1)
    seed = job.setting.seed + number
    random.seed(seed)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(seed % 2**32)
    torch.default_generator.manual_seed(seed % 2**63)
    worker._worker_info = worker.WorkerInfo(
        id=number, num_workers=job.n_workers, seed=seed, dataset=job.setting.dataset
    )
    known = collate.default_collate_fn_map
    if known.get(torch.Tensor) is collate.collate_tensor_fn:
        known[torch.Tensor] = _stacker(arena)


def _stacker(arena: Arena) -> Callable[..., Any]:
    """How `default_collate` stacks in a worker: directly into memory that the parent maps.
    PyTorch's own would make a file in /dev/shm for each batch."""
    import torch
    from torch.utils.data._utils.collate import collate_tensor_fn

    def stack(batch: Any, *, collate_fn_map: Any = None) -> torch.Tensor:
        first = batch[0]
        if first.is_nested or first.layout is not torch.strided:
            refused: torch.Tensor = collate_tensor_fn(batch, collate_fn_map=collate_fn_map)
            return refused
        out = None
        n_bytes = len(batch) * first.numel() * first.element_size()
        if n_bytes >= SMALL_BYTES and all(_is_alike(row, first) for row in batch):
            memory = torch.from_numpy(arena.room(n_bytes))
            out = memory.view(first.dtype).view(len(batch), *first.shape)
        return torch.stack(tuple(batch), 0, out=out)

    return stack


def _is_alike(row: Any, first: Any) -> bool:
    """Whether two tensors can be stacked into existing memory."""
    import torch

    return (
        type(row) is torch.Tensor
        and row.shape == first.shape
        and row.dtype == first.dtype
        and row.device.type == "cpu"
        and not row.requires_grad
    )
