"""Runs a script as one process or as several ranks, with a deadline, and leaves nothing behind."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass

from cases import ENVIRONMENT, TORCHRUN

# A rank that hangs prints its stack first, its launcher then ends; only then is it killed.
GRACE_S = 20


@dataclass
class Ran:
    """A run that is over."""

    code: int
    seconds: float
    output: str
    left_behind: list[str]


def run(case, command, environment, deadline_s):
    """Runs `command`, a script with its arguments, in the ranks of `case`."""
    mark = f"MATRIX_RUN={uuid.uuid4().hex}"
    name, value = mark.split("=")
    environment = environment | {name: value, "MATRIX_DEADLINE_S": str(deadline_s)}
    shared_before = _shared_memory()
    start = time.monotonic()
    processes = [
        subprocess.Popen(
            line, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=cwd
        )
        for line, env, cwd in _ranks(case, command, environment)
    ]
    outputs, code = [], 0
    for process in processes:
        left_s = max(1, start + deadline_s + GRACE_S - time.monotonic())
        try:
            output, _ = process.communicate(timeout=left_s)
        except subprocess.TimeoutExpired:
            _kill(_marked(mark))
            output, _ = process.communicate()
            output += f"\nstill running after {deadline_s} s"
        outputs.append(output)
        code = code or process.returncode
    seconds = time.monotonic() - start
    left = [f"process {pid} ({_line(pid)})" for pid in _ended(mark)]
    _kill(_marked(mark))
    unused = _unused(_shared_memory() - shared_before)
    # Somebody else's, who was about to remove it, is gone by now.
    left += [f"/dev/shm/{name}" for name in sorted(unused & _shared_memory())]
    return Ran(code, seconds, "".join(outputs), left)


def _ranks(case, command, environment):
    """Command line, environment and folder of each process that is to be started."""
    port = free_port()
    environment = environment | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    folder = os.path.dirname(command[0])
    if case.launcher == TORCHRUN:
        launcher = ["-m", "torch.distributed.run", "--nnodes", "1"]
        launcher += ["--nproc-per-node", str(case.ranks)]
        launcher += ["--master-addr", "127.0.0.1", "--master-port", str(port)]
        return [([sys.executable, *launcher, *command], environment, folder)]
    line = [sys.executable, *command]
    if case.launcher == ENVIRONMENT:
        names = ("MATRIX_RANK", "MATRIX_RANKS")
        ranks = [dict(zip(names, (str(r), str(case.ranks)))) for r in range(case.ranks)]
        return [(line, environment | rank, folder) for rank in ranks]
    return [(line, environment, folder)]


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


# ---- what is left behind --------------------------------------------------------------------


def _marked(mark):
    """Processes that have the mark of a run in their environment: the run started them."""
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{entry}/environ", "rb") as file:
                if mark.encode() in file.read():
                    yield int(entry)


def _ended(mark, wait_s=5):
    """The processes of a run that have not ended by themselves some seconds after it."""
    limit = time.monotonic() + wait_s
    while (left := list(_marked(mark))) and time.monotonic() < limit:
        time.sleep(0.1)
    return left


def _kill(pids):
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _line(pid):
    with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
        return file.read().replace(b"\0", b" ").decode(errors="replace").strip()[:80]
    return "ended"


def _shared_memory():
    return set(os.listdir("/dev/shm"))


def _unused(names):
    """Names in /dev/shm that no process has open or mapped: nobody will remove them."""
    used = set()
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{entry}/maps", encoding="utf-8") as file:
            used |= {line.split("/dev/shm/")[1].strip() for line in file if "/dev/shm/" in line}
        with contextlib.suppress(OSError):
            for descriptor in os.listdir(f"/proc/{entry}/fd"):
                with contextlib.suppress(OSError):
                    used.add(os.readlink(f"/proc/{entry}/fd/{descriptor}").rpartition("/")[2])
    return names - used
