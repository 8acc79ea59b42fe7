"""`Pool`: agents that Ray places next to the data and restarts, as the devices of loaders.

    with bothends.ray.Pool(4, "/data/train", resources={"storage": 1}) as pool:
        TorchTrainer(train, train_loop_config={"pool": pool}, ...).fit()
        # in train(config): bothends.Loader("/data/train", "imagenet-train", csds=config["pool"])

Ray only places and restarts processes. The list of agents is soft state: agents renew their entries
in a registry, each process with a loader keeps its last copy of the list, and each loader's own
ledger decides who makes which batch.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
import tempfile
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ._actors import (
    END,
    LEASE,
    RENEWAL,
    Agent,
    Registry,
    key_file,
    new_key,
    program,
    ray_module,
    write,
)
from ._demand import Demand, Meter, by_need
from ._errors import DeviceError, OptionsError
from ._loader import Loader
from ._native import PoolSize

__all__ = ["Demand", "Pool", "dataset"]


class _Member:
    """A pool in a process with loaders: a file of addresses, kept up to date."""

    def __init__(self, registry: str, key: bytes) -> None:
        self._registry, self._key = registry, key
        self._lock = threading.Lock()
        self._folder: str | None = None
        self._loaders: weakref.WeakSet[Loader] = weakref.WeakSet()
        self._closed = threading.Event()

    def options_for(self, loader: Loader) -> dict[str, Any]:
        """The options of a loader that is given the pool as `csds`."""
        with self._lock:
            if self._folder is None:
                self._folder = self._begin()
        self._loaders.add(loader)
        source = f"pool+file://{self._folder}/agents"
        return {"csds": [source], "key_file": os.path.join(self._folder, "key")}

    def _begin(self) -> str:
        """The folder with the file, and a thread that keeps it up to date."""
        folder = tempfile.mkdtemp(prefix="bothends-pool-")
        remove = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        try:
            key_file(folder, self._key)
            write(folder, self.addresses())
            arguments = (weakref.ref(self), folder)
            threading.Thread(target=_follow, args=arguments, daemon=True).start()
        except BaseException:
            remove()
            raise
        return folder

    def addresses(self) -> list[str]:
        """Where agents serve now; empty while the registry is being restarted."""
        return self._ask("addresses") or []

    def _ask(self, what: str) -> Any:
        return _asked(self._registry, what)

    def __reduce__(self) -> tuple[Any, ...]:
        return _Member, (self._registry, self._key)


def _asked(registry: str, what: str, *arguments: Any) -> Any:
    actor = ray_module().get_actor(registry)
    return ray_module().get(getattr(actor, what).remote(*arguments), timeout=LEASE)


def _follow(member: weakref.ref[_Member], folder: str) -> None:
    """Keeps the file up to date, and reports what the loaders of this process need. If the registry
    is unreachable, the last list stays."""
    meters: weakref.WeakKeyDictionary[Loader, Meter] = weakref.WeakKeyDictionary()
    seen: list[str] | None = None
    while (pool := member()) is not None and not pool._closed.is_set():
        registry, closed = pool._registry, pool._closed
        with contextlib.suppress(Exception):  # as below
            _tell(pool, meters)
        del pool  # it may be the last, and is not held while the registry has no news
        try:
            now = _asked(registry, "changed", seen, RENEWAL / 2)
            if now is not None and now != seen:
                write(folder, now)
                seen = now
        except Exception:  # it is being restarted, or Ray is being shut down
            closed.wait(RENEWAL / 2)


def _tell(pool: _Member, meters: weakref.WeakKeyDictionary[Loader, Meter]) -> None:
    """Reports once. It is a separate function so that no local variable keeps a loader, and with it
    the pool, alive between updates."""
    here = f"{os.uname().nodename}-{os.getpid()}"
    registry = ray_module().get_actor(pool._registry)
    for loader in list(pool._loaders):
        try:
            demand = meters.setdefault(loader, Meter()).look(loader)
            registry.demand.remote(f"{here}-{id(loader)}", demand)
        except OptionsError:  # it was closed
            pool._loaders.discard(loader)


class Pool(_Member):
    """Agents in a Ray cluster, for `Loader(csds=pool)` in this process and in others that are given
    the pool, for instance in `train_loop_config`. They have their own key, which Ray carries to
    them and to loaders and which encrypts their connections.

    Args:
        n: the number of agents at the start.
        data_root: the folder with the data, on the nodes where agents run.
        resources: what a node must have for one agent, such as {"storage": 1}.
        nodes: ids of the nodes for agents, in turn; by default Ray spreads them.
        cores: worker threads of an agent, and CPUs that Ray counts for it.
        arguments: further arguments of `bothends-agent`.

    Raises:
        OptionsError: Ray or the agent's program is missing, or Ray has not been initialised.
    """

    def __init__(
        self,
        n: int,
        data_root: str | os.PathLike[str],
        *,
        resources: dict[str, float] | None = None,
        nodes: Sequence[str] = (),
        cores: int = 1,
        arguments: Sequence[str] = (),
    ) -> None:
        ray = ray_module()
        if not ray.is_initialized():
            raise OptionsError("Ray is not initialised: call ray.init() before bothends.ray.Pool")
        command = [program(), "--data-root", os.fspath(data_root), "--cores", str(cores)]
        self._command = [*command, *arguments]
        self._resources = resources or {}
        self._options = {"num_cpus": cores, "resources": self._resources, "max_restarts": -1}
        self._nodes = list(nodes)
        self._agents: list[Any] = []
        self._scaling = threading.Lock()
        name = f"bothends-{uuid.uuid4().hex}"
        super().__init__(name, new_key())
        where = _on(ray.get_runtime_context().get_node_id(), soft=True)
        options = {"num_cpus": 0, "max_restarts": -1, "name": name, "scheduling_strategy": where}
        self._actor = ray.remote(**options)(Registry).remote()
        ray.get(self._actor.begin.remote())
        self.scale(n)

    def scale(self, n: int) -> None:
        """Starts agents, or ends the newest ones, until there are `n`. It does not wait for them to
        start. Work in progress on an agent that ends is redone by others."""
        if n < 0:
            raise OptionsError(f"a pool of {n} agents; give 0 or more")
        with self._scaling:
            ended, self._agents = self._agents[n:], self._agents[:n]
            self._agents += [self._start(place) for place in range(len(self._agents), n)]
            self._end(ended)

    def __len__(self) -> int:
        """The number of agents requested."""
        return len(self._agents)

    def wait(self, seconds: float = 60.0) -> None:
        """Waits until all agents serve. Loaders need not wait for this.

        Raises:
            DeviceError: not all of them serve in time, or one cannot start.
        """
        ray, ends = ray_module(), time.monotonic() + seconds
        for n, agent in enumerate(self._agents):
            while True:
                try:
                    left = max(0.0, ends - time.monotonic())
                    ray.get(agent.serve.remote(), timeout=left)
                    break
                except ray.exceptions.ActorUnavailableError:  # Ray is restarting it
                    if time.monotonic() >= ends:
                        raise self._not_all(n, seconds) from None
                    time.sleep(RENEWAL / 4)
                except ray.exceptions.GetTimeoutError:
                    raise self._not_all(n, seconds) from None
                except ray.exceptions.RayError as error:
                    raise DeviceError(f"an agent cannot serve: {error}") from None

    @contextlib.contextmanager
    def autoscale(
        self,
        at_least: int,
        at_most: int,
        *,
        every: float = 1.0,
        size: Callable[[Sequence[Demand]], int] | None = None,
    ) -> Iterator[Pool]:
        """Within this block the number of agents follows the loaders' needs, checked at this
        interval in seconds. The number is that of `bothends.PoolSize`, or what `size` returns for
        the loaders' demands."""
        ends = threading.Event()
        needed = PoolSize(at_most, least=at_least, now=len(self))
        decides = size or by_need(needed, lambda: len(self.addresses()))

        def follow() -> None:
            while not ends.wait(every):
                with contextlib.suppress(Exception):  # the registry is being restarted
                    n = decides(self._ask("demands"))
                    self.scale(min(max(n, at_least), at_most))

        thread = threading.Thread(target=follow, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            ends.set()
            thread.join()

    def close(self) -> None:
        """Ends the agents and waits for them. Loaders continue without them."""
        self._closed.set()
        self.scale(0)
        with contextlib.suppress(Exception):  # Ray has been shut down, which has ended everything
            ray_module().kill(self._actor)

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _not_all(self, n: int, seconds: float) -> DeviceError:
        each = {"CPU": self._options["num_cpus"], **self._resources}
        line = f"{n} of {len(self)} agents serve after {seconds:g} s"
        return DeviceError(f"{line}: has the cluster {each} for each?")

    def _start(self, place: int) -> Any:
        nodes = self._nodes
        where = _on(nodes[place % len(nodes)], soft=False) if nodes else "SPREAD"
        actor = ray_module().remote(**self._options, scheduling_strategy=where)(Agent)
        return actor.remote(place, self._registry, self._command, self._key)

    def _end(self, agents: list[Any]) -> None:
        with contextlib.suppress(Exception):  # an agent that does not end is killed
            ray_module().get([agent.end.remote() for agent in agents], timeout=END + 1)
        for agent in agents:
            with contextlib.suppress(Exception):
                ray_module().kill(agent, no_restart=True)


def _on(node: str, *, soft: bool) -> Any:
    strategies = importlib.import_module("ray.util.scheduling_strategies")
    return strategies.NodeAffinitySchedulingStrategy(node, soft=soft)


def dataset(n: int, *arguments: Any, **options: Any) -> Any:
    """An epoch as a `ray.data.Dataset` with the columns "image", "label" and "sample_id", made by `n`
    loaders that are its ranks. Further arguments are those of `Loader`, which gives NumPy arrays
    here.

    Ray Data copies the batches into blocks, which `iter_batches` cuts as told. The rows of a rank
    keep their order.
    """
    ray_module()

    def batches(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
        own = {**options, "rank": int(row["id"][0]), "world_size": n, "framework": "numpy"}
        with Loader(*arguments, **own) as loader:
            for batch in loader.batches():
                columns = {"image": batch.images[0], "label": batch.labels}
                columns["sample_id"] = batch.sample_ids
                # Copies, since the memory is reused.
                yield {name: rows[: batch.n_valid].copy() for name, rows in columns.items()}

    ranks = importlib.import_module("ray.data").range(n, override_num_blocks=n)
    return ranks.map_batches(batches, batch_size=1)
