"""The parts of `bothends.ray` other than its pool: two kinds of actors, and the files that a
process with loaders reads."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from typing import Any

from ._demand import Demand
from ._errors import DeviceError, OptionsError

# Seconds between an agent's announcements; without them, it is forgotten when its lease expires.
RENEWAL = 1.0
LEASE = 5.0
# Seconds an agent may take to start, and to end before it is killed.
_START = 20.0
END = 5.0

# What becomes the agent: the kernel kills it when its actor dies, and exec keeps that promise. The
# actor may have died just before, so its process id is compared afterwards.
_EXEC = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""


def ray_module() -> Any:
    try:
        return importlib.import_module("ray")
    except ImportError:
        raise OptionsError("bothends.ray needs Ray: pip install ray") from None


class Registry:
    """Knows which agents serve. The actor may be lost: its successor gives no answer until agents
    have had time to announce themselves again."""

    def __init__(self) -> None:
        self._silent_until = time.monotonic() + 2 * RENEWAL
        self._agents: dict[int, tuple[str, float]] = {}
        self._demands: dict[str, tuple[Demand, float]] = {}
        # Set, and replaced, when an agent comes or goes.
        self._news = asyncio.Event()

    def begin(self) -> None:
        """Says that this is the first registry, with no predecessor."""
        self._silent_until = 0.0

    def announce(self, place: int, address: str) -> None:
        before, _ = self._agents.get(place, (None, 0.0))
        self._agents[place] = (address, time.monotonic())
        if address != before:
            self._tell()

    def withdraw(self, place: int) -> None:
        self._agents.pop(place, None)
        self._tell()

    def _tell(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    def addresses(self) -> list[str] | None:
        if time.monotonic() < self._silent_until:
            return None
        return _current(self._agents)

    async def changed(self, seen: list[str] | None, seconds: float) -> list[str] | None:
        """The addresses as soon as they are others than these, and after so many seconds in any case:
        a batch may take less time than there is between two questions."""
        ends = time.monotonic() + seconds
        while (now := self.addresses()) is None or now == seen:
            left = ends - time.monotonic()
            if left <= 0:
                break
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._news.wait(), left)
        return now

    def demand(self, loader: str, demand: Demand) -> None:
        self._demands[loader] = (demand, time.monotonic())

    def demands(self) -> list[Demand]:
        return _current(self._demands)


def _current(renewed: dict[Any, tuple[Any, float]]) -> list[Any]:
    now = time.monotonic()
    for key in [key for key, (_, at) in renewed.items() if now - at > LEASE]:
        del renewed[key]
    return [renewed[key][0] for key in sorted(renewed)]


class Agent:
    """An actor that lives as long as its agent, so that Ray restarts both."""

    def __init__(self, place: int, registry: str, command: list[str], key: bytes) -> None:
        self._place, self._registry, self._ends = place, registry, False
        self._folder = tempfile.mkdtemp(prefix="bothends-agent-")
        host = ray_module().util.get_node_ip_address()
        listen = f"tcp+noise://[{host}]:0" if ":" in host else f"tcp+noise://{host}:0"
        line = [*command, "--listen", listen, "--key-file", key_file(self._folder, key)]
        line = [sys.executable, "-S", "-c", _EXEC, str(os.getpid()), *line]
        self._process = subprocess.Popen(line, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
        self._address = self._first_line().removeprefix("listening on ").strip()
        threading.Thread(target=self._renew, daemon=True).start()

    def _first_line(self) -> str:
        assert self._process.stdout is not None
        timer = threading.Timer(_START, self._process.kill)
        timer.start()
        line = self._process.stdout.readline().decode()
        timer.cancel()
        if not line:
            status = self._process.wait()
            where = f"the agent did not start on {os.uname().nodename}"
            raise DeviceError(f"{where}: it ended with {status}; the log of this actor says why")
        return line

    def _tell(self, what: str, *arguments: Any) -> Any:
        registry = ray_module().get_actor(self._registry)
        return getattr(registry, what).remote(self._place, *arguments)

    def _renew(self) -> None:
        while self._process.poll() is None:
            with contextlib.suppress(Exception):  # the registry is being restarted
                self._tell("announce", self._address)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(RENEWAL)
        if not self._ends:
            os._exit(1)  # Ray starts another actor, which starts another agent

    def serve(self) -> None:
        """Returns once hosts can find the agent."""
        ray_module().get(self._tell("announce", self._address), timeout=_START)

    def end(self) -> None:
        self._ends = True
        with contextlib.suppress(Exception):  # the registry is being restarted
            self._tell("withdraw")
        self._process.terminate()
        try:
            self._process.wait(END)
        except subprocess.TimeoutExpired:
            self._process.kill()
        shutil.rmtree(self._folder, ignore_errors=True)


def key_file(folder: str, key: bytes) -> str:
    path = os.path.join(folder, "key")
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(key)
    return path


def write(folder: str, addresses: list[str]) -> None:
    """Replaces the whole list if it has changed."""
    path = os.path.join(folder, "agents")
    text = "".join(f"{address}\n" for address in addresses)
    with contextlib.suppress(FileNotFoundError), open(path) as file:
        if file.read() == text:
            return
    with open(path + ".new", "w") as file:
        file.write(text)
    os.replace(path + ".new", path)


def program() -> str:
    """The agent in this package, even if the environment is not activated."""
    beside = os.path.join(sysconfig.get_path("scripts"), "bothends-agent")
    found = beside if os.access(beside, os.X_OK) else shutil.which("bothends-agent")
    if found is None:
        raise OptionsError("bothends-agent is not installed here: pip install bothends provides it")
    return found


def new_key() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "key")
        subprocess.run([program(), "keygen", path], check=True, stdout=subprocess.DEVNULL)
        with open(path, "rb") as file:
            return file.read()
