"""JAX: batches that are its arrays, global ones for a sharding; ranks that are its processes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

jax = pytest.importorskip("jax", reason="jax is not installed")

import bothends
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import children
from streams import loader

N = 23


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS"):
        monkeypatch.delenv(variable, raising=False)


def sharding() -> Any:
    return NamedSharding(Mesh(np.array(jax.devices()[:1]), ("data",)), PartitionSpec("data"))


def made(small: Path, **options: Any) -> bothends.Loader:
    return loader(small, **{"framework": "jax", "output": "f32", **options})


# ---- one process --------------------------------------------------------------------------


@pytest.mark.parametrize("sharded", [False, True])
def test_batches_are_those_of_numpy(small: Path, sharded: bool) -> None:
    """Symptom: a batch for JAX has other pixels, labels or types."""
    batches = made(small, last="pad", sharding=sharding() if sharded else None)
    others = loader(small, output="f32", last="pad")
    for batch, other in zip(batches, others, strict=True):
        for mine, plain in zip(batch, other, strict=True):
            assert isinstance(mine, jax.Array) and mine.shape == plain.shape
            assert np.array_equal(np.asarray(mine), np.asarray(plain).astype(mine.dtype))


def test_global_arrays_have_the_sharding(small: Path) -> None:
    """Symptom: jit with in_shardings copies, or refuses, every batch."""
    batches = made(small, sharding=sharding())
    for images, labels in batches:
        assert images.sharding == sharding() and labels.sharding == sharding()
        assert images.is_fully_addressable and images.shape == (4, 32, 32, 3)


def test_every_field_of_a_batch_is_global(small: Path) -> None:
    """Symptom: `Loader.batches` gives masks and ids that jit refuses together with the images."""
    for batch in made(small, sharding=sharding(), last="pad").batches():
        for array in (*batch.images, batch.labels, batch.mask, batch.sample_ids):
            assert array.sharding == sharding()


def test_ragged_rows_are_this_process_s() -> None:
    """Symptom: with a sharding over several devices offsets, one more than rows, cannot be divided."""
    shards = Path(__file__).parents[3] / "tests" / "fixtures" / "shards"
    common = {"output": "u8", "last": "drop", "shuffle": False, "sharding": sharding()}
    (batch, *_) = made(shards / "folder", recipe="raw", batch_size=2, **common).batches()
    (images,) = batch.images
    assert isinstance(images.values, np.ndarray) and isinstance(images.offsets, np.ndarray)
    fields = {"fields": ["tags"], "recipe": "imagenet-eval"}
    (batch, *_) = made(shards / "fields-arrow", **common, **fields).batches()
    tags = batch.fields["tags"]
    assert isinstance(tags.values, np.ndarray) and tags.offsets.tolist() == [0, 0, 1, 3, 6]
    assert batch.labels.sharding == sharding()


def test_kept_arrays_stay_as_they_are(small: Path) -> None:
    """Symptom: JAX keeps the memory of a batch, which later ones have overwritten."""
    kept = [np.asarray(images).copy() for images, _ in made(small)]
    for share in (None, sharding()):
        arrays = [images for images, _ in made(small, sharding=share)]
        assert all(np.array_equal(a, b) for a, b in zip(kept, arrays, strict=True))


def test_the_images_train(small: Path) -> None:
    """Symptom: a jitted step does not take the arrays."""
    step = jax.jit(lambda images, labels: (images.mean(), labels.sum()), in_shardings=sharding())
    for images, labels in made(small, sharding=sharding()):
        mean, total = step(images, labels)
        assert 0 < float(mean) < 256 and int(total) == int(np.asarray(labels).sum())


def test_a_sharding_is_jaxs(small: Path) -> None:
    """Symptom: a sharding with another framework is ignored."""
    with pytest.raises(bothends.OptionsError, match="`sharding` is for framework='jax'.*'numpy'"):
        loader(small, framework="numpy", sharding=sharding())


def test_asking_for_ranks_starts_no_backend(small: Path) -> None:
    """Symptom: making a loader takes all memory of the accelerator, for JAX was asked for its
    processes; or jax.distributed cannot be initialized any more."""
    code = """
import sys, jax
from streams import loader
batches = loader(sys.argv[1], rank=None, world_size=None)
list(batches)
from jax._src import xla_bridge
print(xla_bridge.backends_are_initialized())
"""
    assert children.run(code, small) == "False\n"


# ---- two processes ------------------------------------------------------------------------

PROCESS = """
import json, sys, time
import jax, numpy as np
from streams import loader
early = loader(sys.argv[1], rank=None, world_size=None, framework="jax", last="pad", batch_size=2)
jax.distributed.initialize(sys.argv[2], 2, int(sys.argv[3]))
from jax.sharding import Mesh, NamedSharding, PartitionSpec
mesh = Mesh(np.array(jax.devices()), ("data",))
sharding = NamedSharding(mesh, PartitionSpec("data"))
said = {"world": jax.process_count(), "rank": jax.process_index()}
common = {"rank": None, "world_size": None, "framework": "jax", "batch_size": 2}
for last in ("drop", "pad", "even"):
    batches = loader(sys.argv[1], last=last, sharding=sharding, **common)
    said[last] = {"len": len(batches), "samples": [], "shapes": []}
    for batch in batches.batches():
        (images,) = batch.images
        assert images.sharding == sharding and not images.is_fully_addressable
        said[last]["shapes"].append(images.shape)
        for ids, mask in zip(batch.sample_ids.addressable_shards, batch.mask.addressable_shards):
            said[last]["samples"] += np.asarray(ids.data)[np.asarray(mask.data)].tolist()
said["repr"] = repr(batches)
# Made before JAX knew its processes.
said["early"] = [
    int(i) for b in early.batches() for i, m in zip(b.sample_ids.tolist(), b.mask.tolist()) if m
]
print(json.dumps(said), flush=True)
time.sleep(3600)
"""


def of_two_processes(data: Path) -> list[dict[str, Any]]:
    address = f"127.0.0.1:{children.free_port()}"
    started = [children.start(PROCESS, data, address, rank, JAX_PLATFORMS="cpu") for rank in (0, 1)]
    try:
        return [json.loads(children.line(process)) for process in started]
    finally:
        for process in started:
            process.kill()
            process.communicate()


def test_two_processes_share_an_epoch(small: Path) -> None:
    """Symptom: each process of JAX loads the whole epoch, or global arrays hold each half twice."""
    said = of_two_processes(small)
    assert [(s["world"], s["rank"]) for s in said] == [(2, 0), (2, 1)]
    for last, n in (("drop", 20), ("pad", 23), ("even", 24)):
        seen = [s[last]["samples"] for s in said]
        together = sum(seen, [])
        assert len(together) == n and len(set(together)) == min(n, N)
        assert {tuple(shape) for s in said for shape in s[last]["shapes"]} == {(4, 32, 32, 3)}
        assert {s[last]["len"] for s in said} == {len(said[0][last]["shapes"])}
    assert ["rank 0 of 2" in said[0]["repr"], "rank 1 of 2" in said[1]["repr"]] == [True, True]
    assert sorted(said[0]["early"] + said[1]["early"]) == list(range(N))
