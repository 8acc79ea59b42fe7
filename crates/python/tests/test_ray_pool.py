"""`bothends.ray.Pool` with a stand-in for Ray whose actors live in this process; test_ray.py has the real one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import bothends
import bothends.ray
import pytest

import children
from bothends.ray import Demand, Pool

DATA = "/data/train"


class Agent:
    """What an actor with an agent does for the pool, without an agent."""

    def __init__(self, place: int, registry: str, command: list[str], key: bytes) -> None:
        self.place, self.registry, self.command, self.key = place, registry, command, key
        self.ended = False
        self.serve()

    def serve(self) -> None:
        STAND_IN[0].actors[self.registry].announce(self.place, f"tcp+noise://agent{self.place}:7070")

    def end(self) -> None:
        self.ended = True
        STAND_IN[0].actors[self.registry].withdraw(self.place)


class Handle:
    """An actor: its methods run where they are called, and what they raise is kept for `get`."""

    def __init__(self, actor: Any, options: dict[str, Any]) -> None:
        self._own, self._options, self._killed = actor, options, False

    def __getattr__(self, name: str) -> Any:
        def remote(*arguments: Any) -> Callable[[], Any]:
            if STAND_IN[0].faults:
                fault = STAND_IN[0].faults.pop(0)
                return lambda: raised(fault)
            result = getattr(self._own, name)(*arguments)
            return lambda: result

        return SimpleNamespace(remote=remote)


def raised(fault: Exception) -> None:
    raise fault


class Error(Exception):
    pass


class Unavailable(Error):
    pass


class Late(Error):
    pass


class Ray:
    """As much of Ray as a pool uses."""

    exceptions = SimpleNamespace(
        RayError=Error, ActorUnavailableError=Unavailable, GetTimeoutError=Late
    )

    def __init__(self) -> None:
        self.actors: dict[str, Any] = {}
        self.handles: list[Handle] = []
        self.killed: list[Any] = []
        # What the next calls fail with, one each.
        self.faults: list[Exception] = []
        self.initialised = True

    def is_initialized(self) -> bool:
        return self.initialised

    def get_runtime_context(self) -> Any:
        return SimpleNamespace(get_node_id=lambda: "here")

    def remote(self, **options: Any) -> Callable[[type], Any]:
        def actors_of(kind: type) -> Any:
            def remote(*arguments: Any) -> Handle:
                handle = Handle(kind(*arguments), options)
                self.handles.append(handle)
                if "name" in options:
                    self.actors[options["name"]] = handle._own
                return handle

            return SimpleNamespace(remote=remote)

        return actors_of

    def get_actor(self, name: str) -> Handle:
        return Handle(self.actors[name], {})

    def get(self, what: Any, timeout: float | None = None) -> Any:
        return [it() for it in what] if isinstance(what, list) else what()

    def kill(self, handle: Handle, no_restart: bool = True) -> None:
        self.killed.append(handle._own)

    def agents(self) -> list[Handle]:
        return [it for it in self.handles if isinstance(it._own, Agent)]


# Where actors find Ray, as modules are found.
STAND_IN: list[Ray] = []


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ray]:
    ray = Ray()
    STAND_IN[:] = [ray]
    monkeypatch.setattr(bothends.ray, "ray_module", lambda: ray)
    monkeypatch.setattr(bothends.ray, "Agent", Agent)
    monkeypatch.setattr(bothends.ray, "program", lambda: "bothends-agent")
    monkeypatch.setattr(bothends.ray, "new_key", lambda: b"key")
    monkeypatch.setattr(bothends.ray, "_on", lambda node, soft: (node, soft))
    monkeypatch.setattr(bothends.ray, "RENEWAL", 0.02)
    yield ray
    STAND_IN.clear()


def test_a_pool_asks_ray_for_restarted_agents_where_the_data_are(ray: Ray) -> None:
    pool = Pool(2, DATA, resources={"storage": 1}, cores=3, arguments=["--cache", "off"])
    line = ["bothends-agent", "--data-root", DATA, "--cores", "3", "--cache", "off"]
    for place, agent in enumerate(ray.agents()):
        assert (agent._own.place, agent._own.command, agent._own.key) == (place, line, b"key")
        assert agent._options == {
            "num_cpus": 3,
            "resources": {"storage": 1},
            "max_restarts": -1,
            "scheduling_strategy": "SPREAD",
        }
    registry = ray.handles[0]
    assert registry._options["num_cpus"] == 0 and registry._options["max_restarts"] == -1
    assert registry._options["scheduling_strategy"] == ("here", True), "it dies with its driver"
    assert pool.addresses() == [f"tcp+noise://agent{place}:7070" for place in range(2)]
    pool.close()


def test_agents_are_placed_on_named_nodes_in_turn(ray: Ray) -> None:
    with Pool(3, DATA, nodes=["a", "b"]):
        where = [agent._options["scheduling_strategy"] for agent in ray.agents()]
    assert where == [("a", False), ("b", False), ("a", False)]


def test_a_pool_that_shrinks_ends_the_latest_agents(ray: Ray) -> None:
    with Pool(3, DATA) as pool:
        first, second, third = (agent._own for agent in ray.agents())
        pool.scale(1)
        assert (first.ended, second.ended, third.ended) == (False, True, True)
        assert ray.killed == [second, third], "what does not end by itself is killed"
        assert len(pool) == 1 and pool.addresses() == ["tcp+noise://agent0:7070"]
        pool.scale(2)
        assert len(pool.addresses()) == 2, "a place is used again"
        with pytest.raises(bothends.OptionsError, match="a pool of -1"):
            pool.scale(-1)
    assert all(agent._own.ended for agent in ray.agents())
    assert ray.killed[-1] is ray.handles[0]._own, "the registry goes last"


def test_agents_that_do_not_answer_their_end_are_killed(ray: Ray) -> None:
    pool = Pool(2, DATA)
    ray.faults = [Unavailable("it is being restarted")]
    pool.scale(0)
    assert len(ray.killed) == 2


def test_waiting_outlasts_a_restart_and_ends_in_time(ray: Ray) -> None:
    with Pool(2, DATA, resources={"gold": 1}) as pool:
        ray.faults = [Unavailable("restarted"), Unavailable("and again")]
        pool.wait(60)
        assert not ray.faults
        ray.faults = [Late("no node has gold")]
        with pytest.raises(bothends.DeviceError, match=r"0 of 2 agents .* 'gold': 1"):
            pool.wait(60)
        ray.faults = [Unavailable("for ever")]
        with pytest.raises(bothends.DeviceError, match="0 of 2 agents serve after 0 s"):
            pool.wait(0)
        ray.faults = [Error("there is no such folder")]
        with pytest.raises(bothends.DeviceError, match="cannot serve: there is no such folder"):
            pool.wait(60)


def test_the_size_follows_the_demands_within_its_bounds(ray: Ray) -> None:
    sizes: list[int] = []

    def size(demands: Any) -> int:
        sizes.append(len(demands))
        if len(sizes) == 2:
            raise RuntimeError("the registry is being restarted")
        return 9

    with Pool(1, DATA) as pool:
        pool._actor.demand.remote("a loader", Demand(consumer=9.0, host=1.0, agents=0.0))
        with pool.autoscale(1, 4, every=0.01, size=size):
            assert children.eventually(20, lambda: len(pool) == 4 and len(sizes) > 3)
        assert set(sizes) == {1}
        with pool.autoscale(0, 2, every=0.01, size=lambda _: -5):
            assert children.eventually(20, lambda: len(pool) == 0)


def test_a_pool_travels_as_its_registry_and_key(ray: Ray) -> None:
    with Pool(1, DATA) as pool:
        kind, (registry, key) = pool.__reduce__()
        member = kind(registry, key)
        assert not isinstance(member, Pool), "another process cannot end the agents"
        assert member.addresses() == pool.addresses()


def test_without_ray_there_is_no_pool(ray: Ray) -> None:
    ray.initialised = False
    with pytest.raises(bothends.OptionsError, match=r"call ray.init\(\)"):
        Pool(1, DATA)
    assert not ray.handles
