"""What processes with loaders do for a pool of `bothends.ray`, with a stand-in for Ray, and what they hear of
the registry."""

from __future__ import annotations

import asyncio
import gc
import os
import time
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import bothends
import bothends.ray
import pytest

import children
from bothends import _actors
from bothends._demand import by_need
from bothends.ray import Demand, _Member


class Registry:
    """Answers as the actor does, at once."""

    def __init__(self) -> None:
        self.looked, self.failed, self.fails = 0, 0, False
        self.agents = ["tcp://a:7070"]
        self.addresses = SimpleNamespace(remote=self.told)
        self.changed = SimpleNamespace(remote=self.told_later)
        self.demand = SimpleNamespace(remote=lambda *_: None)

    def told(self) -> list[str]:
        if self.fails:
            self.failed += 1
            raise RuntimeError("the registry is being restarted")
        self.looked += 1
        return self.agents

    def told_later(self, _seen: list[str] | None, seconds: float) -> list[str]:
        time.sleep(seconds)
        return self.told()


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Registry:
    registry = Registry()
    module = SimpleNamespace(get_actor=lambda _: registry, get=lambda it, timeout: it)
    monkeypatch.setattr(bothends.ray, "ray_module", lambda: module)
    monkeypatch.setattr(bothends.ray, "RENEWAL", 0.2)
    return registry


class Fed:
    """As much of a loader as a pool looks at."""

    batch_size, _waited_s = 10, 0.0

    def __init__(self, pool: Any) -> None:
        self.options = pool.options_for(self)
        self.pool = pool

    def stats(self) -> dict[str, Any]:
        return {"front_batches": 1, "back": []}


def eventually(condition: Any) -> None:
    assert children.eventually(20, condition)


def test_a_loader_that_nobody_closes_is_freed_with_its_pool(registry: Registry) -> None:
    loader = Fed(_Member("a registry", b"key"))
    folder = Path(loader.options["key_file"]).parent
    eventually(lambda: registry.looked > 2)
    known = weakref.ref(loader)
    del loader
    gc.collect()
    # The thread may be in the middle of a look.
    eventually(lambda: gc.collect() >= 0 and known() is None)
    eventually(lambda: not folder.exists())


def test_a_pool_that_could_not_be_asked_at_first_is_asked_again(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bothends.ray.tempfile, "tempdir", str(tmp_path))
    registry.fails = True
    member = _Member("a registry", b"key")
    with pytest.raises(RuntimeError, match="being restarted"):
        member.options_for(Fed.__new__(Fed))
    assert os.listdir(tmp_path) == [], "what was begun is removed"
    registry.fails = False
    loader = Fed(member)
    source = Path(loader.options["csds"][0].removeprefix("pool+file://"))
    assert source.read_text() == "tcp://a:7070\n"
    member._closed.set()


def test_the_last_list_stays_while_the_registry_is_gone(registry: Registry) -> None:
    loader = Fed(_Member("a registry", b"key"))
    source = Path(loader.options["csds"][0].removeprefix("pool+file://"))
    registry.agents = ["tcp://b:7070"]
    eventually(lambda: source.read_text() == "tcp://b:7070\n")
    registry.fails, registry.agents = True, []
    eventually(lambda: registry.failed > 2)
    assert source.read_text() == "tcp://b:7070\n"
    loader.pool._closed.set()


def test_a_registry_tells_of_an_agent_when_it_comes_and_when_it_goes() -> None:
    async def follow() -> None:
        registry = _actors.Registry()
        registry.begin()
        first, second = "tcp://a:7070", "tcp://b:7070"
        for happens, then in (
            (lambda: registry.announce(0, first), [first]),
            (lambda: registry.announce(1, second), [first, second]),
            (lambda: registry.withdraw(0), [second]),
        ):
            told = asyncio.create_task(registry.changed(registry.addresses(), 60))
            await asyncio.sleep(0)
            happens()
            assert await asyncio.wait_for(told, 20) == then
        told = asyncio.create_task(registry.changed([second], 60))
        for _ in range(20):
            await asyncio.sleep(0)
            registry.announce(1, second)
        assert not told.done(), "it was known"
        told.cancel()

    asyncio.run(follow())


def test_the_successor_of_a_registry_says_nothing_until_agents_had_time() -> None:
    registry = _actors.Registry()
    registry.announce(0, "tcp://a:7070")
    assert asyncio.run(registry.changed(None, 0.1)) is None
    registry.begin()
    assert asyncio.run(registry.changed(None, 0.1)) == ["tcp://a:7070"]


def sizes(demands: list[Demand], agents: list[int], size: int = 2) -> list[int]:
    """The sizes of a pool over so many seconds, of which so many agents serve."""
    now = iter(range(len(demands)))
    serve = iter(agents)
    pool = bothends.PoolSize(64, now=size)
    of = by_need(pool, lambda: next(serve), lambda: float(next(now)))
    return [of([demand]) for demand in demands]


def test_a_pool_that_feeds_its_loaders_does_not_grow() -> None:
    fed = Demand(consumer=1000.0, host=200.0, agents=800.0)
    assert set(sizes([fed] * 300, [2] * 300)) == {2}
    # Nor while further agents are starting.
    assert max(sizes([fed] * 300, [2] * 300, size=4)) == 4
    assert max(sizes([fed] * 300, [2] * 10 + [3] * 290)) == 2


def test_a_pool_grows_to_what_its_loaders_need_and_stays_there() -> None:
    size, serving = 2, 2
    pool = bothends.PoolSize(64, now=size)
    second = 0.0
    of = by_need(pool, lambda: serving, lambda: second)
    seen = []
    for _ in range(300):
        # An agent makes 100 a second, and one that is asked for serves a second later.
        made = min(100.0 * serving, 800.0)
        size = of([Demand(consumer=1000.0, host=200.0, agents=made)])
        seen.append(size)
        serving, second = size, second + 1
    # (1000 * 1.1 - 200) / 100 is 9; 8 feed it.
    assert seen[-1] == max(seen) and seen[-1] in (8, 9), seen
