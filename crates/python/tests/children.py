"""Child processes with Python programs, and what is left of them."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent

# Variables of launchers, which may be those of a test run in a cluster.
LAUNCHERS = ("RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "OMPI_", "PMI_", "MV2_", "SLURM_")


def start(code: str, *arguments: Any, **variables: str) -> subprocess.Popen[str]:
    """A Python that runs the code, with the tests' modules to import, in a group of its own."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(LAUNCHERS)}
    environment |= {"PYTHONPATH": str(HERE), "PYTHONUNBUFFERED": "1", **variables}
    return subprocess.Popen(
        # A shell's background job ignores SIGINT, and so would all its children.
        ["env", "--default-signal", sys.executable, "-c", code, *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )


def run(code: str, *arguments: Any, **variables: str) -> str:
    """What the code prints; it must end well."""
    child = start(code, *arguments, **variables)
    try:
        out, err = child.communicate(timeout=100)
    finally:
        # Also what it forked, where that hangs.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
    assert child.returncode == 0, f"{child.returncode}: {err}"
    return out


def line(child: subprocess.Popen[str]) -> str:
    """Its next line."""
    assert child.stdout is not None
    text = child.stdout.readline().strip()
    if not text:
        child.kill()
        raise AssertionError(child.communicate()[1])
    return text


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def eventually(seconds: float, holds: Callable[[], bool]) -> bool:
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def runs(process: int) -> bool:
    """Whether a process still does something."""
    return (stat := _stat(process)) is not None and stat[0] != "Z"


def sleeps(process: int) -> bool:
    """Whether its main thread waits for something."""
    return (stat := _stat(process)) is not None and stat[0] == "S"


def children_of(process: int) -> list[int]:
    """The processes that it started, and those that these started."""
    found = []
    parents = {int(p.name): _stat(int(p.name)) for p in Path("/proc").iterdir() if p.name.isdigit()}
    for child, stat in parents.items():
        if stat is not None and stat[1] == process:
            found += [child, *children_of(child)]
    return found


def _stat(process: int) -> tuple[str, int] | None:
    """State and parent."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return fields[0], int(fields[1])
