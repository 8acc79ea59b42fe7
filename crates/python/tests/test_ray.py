"""`bothends.ray` with real Ray, whose nodes are processes of this machine (scripts/check-ray)."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import bothends
import pytest

import children
from streams import SMALL, Step, loader, step

ray = pytest.importorskip("ray", reason="ray is not installed")
cluster_utils = pytest.importorskip("ray.cluster_utils", reason="ray is not installed")

import bothends.ray  # noqa: E402

# Seconds for what Ray has to do: it notices a lost node after some 17.
PATIENCE = 60
NODE = {"object_store_memory": 80 << 20, "num_cpus": 2}


class Nodes:
    """A head with loaders, and nodes with data."""

    def __init__(self) -> None:
        self.cluster = cluster_utils.Cluster(
            initialize_head=True, head_node_args={**NODE, "include_dashboard": False}
        )
        self.storage = [self.add(), self.add()]
        ray.init(address=self.cluster.address, log_to_driver=False)

    def add(self) -> Any:
        return self.cluster.add_node(**NODE, resources={"storage": 2})

    def replace(self) -> None:
        """One is lost without a word, and another one comes."""
        self.cluster.remove_node(self.storage.pop(), allow_graceful=False)
        self.storage.append(self.add())


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    nodes = Nodes()
    yield nodes
    ray.shutdown()
    nodes.cluster.shutdown()


@pytest.fixture
def pool(nodes: Nodes, many: Path) -> Iterator[bothends.ray.Pool]:
    with bothends.ray.Pool(2, many, resources={"storage": 1}) as pool:
        pool.wait(PATIENCE)
        yield pool
    eventually(lambda: agents_below(many) == [])


def agents_below(data: Path) -> list[int]:
    """Process ids of agents that serve this data set."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            line = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
            if str(data).encode() in line and any(b"bothends-agent" in word for word in line):
                found.append(int(entry.name))
    return found


def parent_of(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def eventually(condition: Any) -> None:
    assert children.eventually(PATIENCE, condition)


def made(loader: bothends.Loader) -> int:
    """Batches of all agents."""
    return sum(device["batches"] for device in loader.stats()["back"])


def alone(data: Path, **options: Any) -> list[Step]:
    with loader(data, **options) as host:
        return [step(batch) for batch in host.batches()]


LONG = {"repeat": 4, "batch_size": 10}  # 200 batches


def test_agents_make_batches_and_the_stream_is_the_same(
    pool: bothends.ray.Pool, many: Path
) -> None:
    assert len(pool.addresses()) == len(pool) == 2
    with loader(many, csds=pool, **LONG) as fed:
        batches = fed.batches()
        got = takes_part(fed, batches)
        got += [step(batch) for batch in batches]
    assert got == alone(many, **LONG)


def test_an_agent_is_killed_in_mid_epoch_and_ray_starts_another(
    pool: bothends.ray.Pool, many: Path
) -> None:
    pool.scale(1)
    eventually(lambda: len(agents_below(many)) == 1)
    before = pool.addresses()
    with loader(many, csds=pool, **LONG) as fed:
        batches = fed.batches()
        got = [step(next(batches)) for _ in range(50)]
        for agent in agents_below(many):
            os.kill(agent, signal.SIGKILL)
        got += [step(next(batches)) for _ in range(50)]
        eventually(lambda: len(pool.addresses()) == 1 and pool.addresses() != before)
        got += takes_part(fed, batches)
        got += [step(batch) for batch in batches]
    assert got == alone(many, **LONG)


def takes_part(fed: bothends.Loader, batches: Iterator[bothends.Batch]) -> list[Step]:
    """Takes batches, up to thirty of them slowly, until agents have made another one."""
    got: list[Step] = []
    before = made(fed)
    while made(fed) == before and len(got) < 30:
        children.eventually(1, lambda: made(fed) > before)
        got.append(step(next(batches)))
    assert made(fed) > before, fed.stats()
    return got


def test_an_agent_ends_with_its_actor(pool: bothends.ray.Pool, many: Path) -> None:
    agent, other = agents_below(many)
    os.kill(parent_of(agent), signal.SIGKILL)
    eventually(lambda: agent not in agents_below(many))
    eventually(lambda: len(agents_below(many)) == 2)
    assert other in agents_below(many)


def test_a_node_is_lost_in_mid_epoch(
    nodes: Nodes, pool: bothends.ray.Pool, many: Path
) -> None:
    with loader(many, csds=pool, **LONG) as fed:
        batches = fed.batches()
        got = [step(next(batches)) for _ in range(50)]
        nodes.replace()
        got += [step(batch) for batch in batches]
        assert got == alone(many, **LONG)
    pool.wait(PATIENCE)
    with loader(many, csds=pool) as fed:
        assert len([step(batch) for batch in fed.batches()]) == 125


def test_agents_that_join_in_mid_epoch_take_part(
    pool: bothends.ray.Pool, many: Path
) -> None:
    pool.scale(0)
    with loader(many, csds=pool, **LONG) as fed:
        batches = fed.batches()
        got = [step(next(batches)) for _ in range(100)]
        assert made(fed) == 0
        pool.scale(2)
        pool.wait(PATIENCE)
        got += takes_part(fed, batches)
        got += [step(batch) for batch in batches]
    assert got == alone(many, **LONG)


def test_the_registry_is_lost_and_nothing_with_it(
    pool: bothends.ray.Pool, many: Path
) -> None:
    before = pool.addresses()
    with loader(many, csds=pool, **LONG) as fed:
        batches = fed.batches()
        got = [step(next(batches)) for _ in range(50)]
        ray.kill(pool._actor, no_restart=False)
        got += [step(batch) for batch in batches]
        assert got == alone(many, **LONG)
        source = Path(fed._options["csds"][0].removeprefix("pool+file://"))
        assert source.read_text().split() == before, "the last list stays"

    def known_again() -> bool:
        with contextlib.suppress(ray.exceptions.RayError):
            return pool.addresses() == before
        return False

    eventually(known_again)


def test_the_pool_follows_what_is_needed(pool: bothends.ray.Pool) -> None:
    seen: list[int] = []

    def size(demands: Sequence[bothends.ray.Demand]) -> int:
        seen.append(len(pool))
        return {2: 3, 3: 9}.get(len(pool), 1)

    with pool.autoscale(1, 4, every=0.1, size=size):
        eventually(lambda: seen[-2:] == [1, 1])
    assert seen[:3] == [2, 3, 4] and len(pool) == 1, "four is the most"
    pool.scale(0)
    starved = bothends.ray.Demand(consumer=1000.0, host=10.0, agents=0.0)
    with pool.autoscale(0, 2, every=0.1):
        eventually(lambda: pool._actor.demand.remote("a loader", starved) and len(pool) > 0)


def test_ray_train_reads_every_sample_once(
    pool: bothends.ray.Pool, many: Path, tmp_path: Path
) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    train = pytest.importorskip("ray.train.torch", reason="ray[train] is not installed")
    from ray.train import RunConfig, ScalingConfig

    def work(config: dict[str, Any]) -> None:
        own = {"csds": config["pool"], "recipe": SMALL, "batch_size": 10, "framework": "numpy"}
        with bothends.Loader(config["data"], side_index="off", output="u8", **own) as part:
            who = repr(part).split("rank ")[1]
            seen = [int(id) for batch in part.batches() for id in batch.sample_ids]
        (config["out"] / who.replace(" ", "-").strip(">")).write_text(" ".join(map(str, seen)))

    trainer = train.TorchTrainer(
        work,
        train_loop_config={"pool": pool, "data": many, "out": tmp_path},
        scaling_config=ScalingConfig(num_workers=2, use_gpu=False),
        run_config=RunConfig(storage_path=str(tmp_path / "ray")),
    )
    trainer.fit()
    parts = {file.name: file.read_text().split() for file in tmp_path.glob("*-of-2")}
    assert sorted(parts) == ["0-of-2", "1-of-2"]
    assert sorted(int(id) for part in parts.values() for id in part) == list(range(500))


def test_ray_data_gets_the_batches_of_an_epoch(nodes: Nodes, many: Path) -> None:
    pytest.importorskip("ray.data", reason="ray[data] is not installed")
    options = {"batch_size": 10, "seed": 5, "side_index": "off", "output": "u8", "workers": 1}
    data = bothends.ray.dataset(2, many, SMALL, **options)
    got = list(data.iter_batches(batch_size=25))
    assert [batch["image"].shape for batch in got] == [(25, 3, 32, 32)] * 20
    order = [int(id) for batch in got for id in batch["sample_id"]]
    ranks = [alone(many, batch_size=10, rank=rank, world_size=2) for rank in range(2)]
    first, second = ([id for step in rank for id in step.ids] for rank in ranks)
    assert order in (first + second, second + first)


def test_what_cannot_be_is_said(nodes: Nodes, many: Path, tmp_path: Path) -> None:
    with bothends.ray.Pool(1, many, resources={"gold": 1}) as pool:
        with pytest.raises(bothends.DeviceError, match=r"0 of 1 agents .* 'gold': 1"):
            pool.wait(1)
        with pytest.raises(bothends.OptionsError, match="a pool of -1"):
            pool.scale(-1)
        with pytest.raises(bothends.OptionsError, match="leave out key_file"):
            loader(many, csds=pool, key_file="k")
    with bothends.ray.Pool(1, tmp_path / "absent") as pool:
        with pytest.raises(bothends.DeviceError, match="did not start"):
            pool.wait(PATIENCE)
    ray.shutdown()
    try:
        with pytest.raises(bothends.OptionsError, match=r"call ray.init\(\)"):
            bothends.ray.Pool(1, many)
    finally:
        ray.init(address=nodes.cluster.address, log_to_driver=False)
