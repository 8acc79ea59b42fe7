"""Many ranks: who this process is, real data-parallel training, exact metrics, and threads."""

from __future__ import annotations

import json
import re
import shutil
import sys
import threading
import types
from pathlib import Path
from typing import Any

import bothends
import numpy as np
import pytest

import children
from streams import Step, ids, loader, step, steps

LAUNCHERS = [
    {"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1"},
    {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4"},
    {"PMI_RANK": "1", "PMI_SIZE": "4"},
    {"MV2_COMM_WORLD_RANK": "1", "MV2_COMM_WORLD_SIZE": "4"},
    {"SLURM_PROCID": "1", "SLURM_NTASKS": "4", "SLURM_STEP_ID": "0"},
]


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in (v for launcher in LAUNCHERS for v in launcher):
        monkeypatch.delenv(variable, raising=False)


def who(data: Path, **options: Any) -> str:
    return repr(loader(data, **{"rank": None, "world_size": None, **options}))


@pytest.mark.parametrize("launcher", LAUNCHERS, ids=lambda launcher: next(iter(launcher)))
def test_the_environment_says_who_we_are(
    small: Path, launcher: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "rank 0 of 1" in who(small)
    for variable, value in launcher.items():
        monkeypatch.setenv(variable, value)
    assert "rank 1 of 4" in who(small)
    assert "rank 3 of 5" in who(small, rank=3, world_size=5), "arguments come first"
    rank = next(iter(launcher))
    monkeypatch.setenv(rank, "one")
    with pytest.raises(bothends.OptionsError, match=f"{rank}='one'"):
        who(small)
    monkeypatch.delenv(rank)
    assert "rank 0 of 1" in who(small), "half a launcher is none"


def test_ray_train_says_who_we_are(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def driver() -> Any:
        raise RuntimeError("`get_context` cannot be used outside of a training function")

    said: dict[str, Any] = {"get_world_rank": lambda: 2, "get_world_size": lambda: 3}
    for context, expected in [
        (driver, "rank 0 of 1"),
        (lambda: types.SimpleNamespace(**said), "rank 2 of 3"),
        (lambda: types.SimpleNamespace(**dict.fromkeys(said, lambda: None)), "rank 0 of 1"),
    ]:
        monkeypatch.setitem(sys.modules, "ray.train", types.SimpleNamespace(get_context=context))
        assert expected in who(small)


def test_a_batch_script_of_slurm_is_one_process(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_PROCID", "0")
    monkeypatch.setenv("SLURM_NTASKS", "4")
    assert "rank 0 of 1" in who(small)


def test_torchrun_comes_before_slurm(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, value in {**LAUNCHERS[0], "SLURM_PROCID": "0", "SLURM_NTASKS": "1"}.items():
        monkeypatch.setenv(variable, value)
    assert "rank 1 of 4" in who(small)


def test_ranks_are_those_when_iterating_begins(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Symptom: a loader made before the process knows its rank delivers the whole epoch."""
    batches = loader(small, rank=None, world_size=None, last="pad", batch_size=2)
    whole = len(batches)
    for variable, value in LAUNCHERS[0].items():
        monkeypatch.setenv(variable, value)
    assert len(batches) == 3 < whole == 12
    assert sorted(ids(steps(batches))) != list(range(23))
    assert "rank 1 of 4" in repr(batches)


def test_a_world_without_a_rank_is_no_world_of_one(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Symptom: Lightning's children, which have no RANK, each load the whole epoch."""
    batches = loader(small, rank=None, world_size=None)
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_RANK", "1")
    for begin in (iter, bothends.Loader.batches, lambda made: made.consumers(1)):
        with pytest.raises(bothends.OptionsError, match="init_process_group, or give rank"):
            begin(batches)
    assert len(steps(loader(small, rank=0, world_size=1))) == 5


def of_ranks(data: Path, world: int, **options: Any) -> list[list[Step]]:
    return [steps(loader(data, rank=r, world_size=world, **options)) for r in range(world)]


@pytest.mark.parametrize("world", [2, 3, 4])
def test_ranks_share_an_epoch(small: Path, world: int) -> None:
    for last in ("drop", "pad", "wrap", "even"):
        ranks = of_ranks(small, world, last=last, batch_size=2)
        seen = [i for rank in ranks for i in ids(rank)]
        assert len({len(rank) for rank in ranks}) == 1
        if last == "drop":
            assert len(seen) == len(set(seen)) == 23 // (2 * world) * 2 * world
        elif last == "pad":
            assert sorted(seen) == list(range(23))
        elif last == "even":
            assert set(seen) == set(range(23))
            assert [len(ids(rank)) for rank in ranks] == [-(-23 // world)] * world
        else:
            assert set(seen) == set(range(23)) and len(seen) % (2 * world) == 0
            assert len(seen) - 23 < 2 * world


def test_consumers_are_a_permutation(many: Path) -> None:
    """A thread for each of four consumers in one process."""
    batches = loader(many, last="pad", batch_size=8)
    seen: list[list[tuple[bytes, list[int]]]] = [[], [], [], []]

    def train(mine: list[Any], feed: Any) -> None:
        for images, labels, mask in feed:
            mine.append((images.tobytes(), labels[mask].tolist()))

    for epoch in range(2):
        for consumer in seen:
            consumer.clear()
        feeds = batches.consumers(4)
        threads = [
            threading.Thread(target=train, args=pair) for pair in zip(seen, feeds, strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
        assert {len(consumer) for consumer in seen} == {16}
        # In turn they got what one alone gets.
        in_turn = [batch for turn in zip(*seen, strict=True) for batch in turn]
        alone = loader(many, last="pad", batch_size=8)
        alone.set_epoch(epoch)
        expected = [(x.tobytes(), y[mask].tolist()) for x, y, mask in alone]
        assert in_turn[: len(expected)] == expected
        assert not any(labels for _, labels in in_turn[len(expected) :])


def test_an_error_reaches_every_consumer(small: Path, tmp_path: Path) -> None:
    shutil.copytree(small, tmp_path, dirs_exist_ok=True)
    (tmp_path / "class0/000.jpg").write_bytes(b"")
    feeds = loader(tmp_path, last="pad", batch_size=2).consumers(2)
    said = []

    def train(feed: Any) -> None:
        try:
            list(feed)
        except bothends.Error as error:
            said.append(error)

    threads = [threading.Thread(target=train, args=(feed,)) for feed in feeds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert len(said) == 2
    assert sum(isinstance(error, bothends.BadSampleError) for error in said) == 1


DDP = """
import json, os, sys, time, datetime
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from streams import loader
import bothends
torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
rank, world = dist.get_rank(), dist.get_world_size()
for variable in ("RANK", "WORLD_SIZE"):
    del os.environ[variable]  # what torch.distributed says is enough
said = {}
for last in ("drop", "pad", "wrap", "even"):
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(32 * 32 * 3, 5))
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    batches = loader(
        sys.argv[1], last=last, batch_size=2, workers=1, output="f32",
        rank=None, world_size=None, framework="torch",
    )
    assert f"rank {rank} of {world}" in repr(batches)
    samples, steps = [], 0
    for batch in batches.batches():
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(
            model(batch.images[0].flatten(1)), batch.labels, ignore_index=-1, reduction="sum"
        )
        loss.backward()
        optimizer.step()
        samples += batch.sample_ids[batch.mask].tolist()
        steps += 1
    weights = [torch.zeros(5) for _ in range(world)]
    dist.all_gather(weights, model.module.bias.detach())
    assert all(torch.equal(w, weights[0]) for w in weights)
    # A metric over the whole data set, exact with pad: the sum over all ranks, masked.
    value = torch.zeros(2, dtype=torch.int64)
    if last == "pad":
        for images, labels, mask in batches:
            brightest = images.flatten(1).double().mean(1) > 0.5
            value += torch.stack([(brightest & mask).sum(), mask.sum()])
        dist.all_reduce(value)
    said[last] = {"samples": samples, "steps": steps, "value": value.tolist()}
print(json.dumps(said), flush=True)
# To be killed: PyTorch 2.15 ends now and then with "terminate called" when groups are destroyed.
time.sleep(3600)
"""


@pytest.mark.parametrize("world", [2, 4])
def test_data_parallel_training(small: Path, world: int) -> None:
    """Real processes with gloo, and 23 samples, which no number of ranks divides."""
    pytest.importorskip("torch")
    said = of_processes(DDP, small, world)
    for last in ("drop", "pad", "wrap", "even"):
        seen = [i for rank in said for i in rank[last]["samples"]]
        assert len({rank[last]["steps"] for rank in said}) == 1
        if last in ("wrap", "even"):
            assert set(seen) == set(range(23))
        else:
            n = 23 if last == "pad" else 23 // (2 * world) * 2 * world
            assert len(seen) == len(set(seen)) == n
    alone = loader(small, last="pad", batch_size=23, output="f32")
    alone.set_epoch(1)
    ((images, _, _),) = alone
    bright = int((images.reshape(23, -1).astype(np.float64).mean(1) > 0.5).sum())
    assert [rank["pad"]["value"] for rank in said] == [[bright, 23]] * world
    assert 0 < bright < 23, "the metric tells samples apart"


def of_processes(code: str, data: Path, world: int, *arguments: str) -> list[Any]:
    """What each rank of as many processes says, a line of JSON."""
    port = str(children.free_port())
    ranks = [
        children.start(
            code,
            data,
            *arguments,
            RANK=str(r),
            WORLD_SIZE=str(world),
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=port,
            OMP_NUM_THREADS="1",
        )
        for r in range(world)
    ]
    stuck = threading.Timer(110, lambda: [rank.kill() for rank in ranks])
    stuck.start()
    try:
        return [json.loads(last_word(rank)) for rank in ranks]
    finally:
        stuck.cancel()
        for rank in ranks:
            rank.kill()
            rank.communicate()


def last_word(rank: Any) -> str:
    """Its line of JSON; others come before it."""
    while not (line := children.line(rank)).startswith("{"):
        pass
    return line


def test_a_step_is_the_same_for_any_number_of_ranks(small: Path) -> None:
    """Batches of 2 on two ranks are the batches of 4 on one, in pieces."""
    whole = loader(small, batch_size=4, last="pad")
    two = [loader(small, batch_size=2, last="pad", rank=r, world_size=2) for r in range(2)]
    for batch, *parts in zip(whole.batches(), *(rank.batches() for rank in two), strict=True):
        both = np.concatenate([part.images[0] for part in parts])
        assert sorted(ids([step(batch)])) == sorted(ids(map(step, parts)))
        order = [
            np.concatenate([p.sample_ids for p in parts]).tolist().index(i)
            for i in batch.sample_ids.tolist()
            if i >= 0
        ]
        assert np.array_equal(both[order], batch.images[0][: len(order)])


# ---- bothends.torch.DataLoader ------------------------------------------------------------

LOADERS = """
import datetime, json, os, sys, time, warnings
import torch, torch.distributed as dist
from loaders import TRAIN, numbered, order, stream
from bothends.torch import DataLoader
data = numbered(sys.argv[1], TRAIN)
def made(**options):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        loader = DataLoader(data, batch_size=4, **options)
        epochs = [sum(order(loader), []) for _ in range(2)]
    lines = [str(w.message) for w in said if "ranks" in str(w.message)]
    return {"len": len(loader), "epochs": epochs, "said": lines}
early = DataLoader(data, batch_size=4, shuffle=True, ranks="shard")
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
torch.manual_seed(dist.get_rank())
said = {
    "shuffled": made(shuffle=True),
    "sequential": made(),
    "shard": made(ranks="shard"),
    "replicate": made(shuffle=True, ranks="replicate"),
    "sampler": made(sampler=torch.utils.data.DistributedSampler(data)),
    "dropped": made(shuffle=True, drop_last=True, ranks="shard"),
    "early": {"epochs": [sum(order(early), [])], "len": len(early)},
}
resumed = DataLoader(data, batch_size=4, shuffle=True, ranks="shard")
dealt = torch.utils.data.BatchSampler(torch.utils.data.DistributedSampler(data), 4, False)
said["batches"] = sum(order(DataLoader(data, batch_sampler=dealt)), [])
feed = iter(early)
head = next(feed)
resumed.load_state_dict(early.state_dict())
said["resumes"] = stream(resumed) == stream(feed)
print(json.dumps(said), flush=True)
time.sleep(3600)
"""


def test_ranks_without_a_sampler(small: Path) -> None:
    """Symptom: under torchrun, Lightning and Accelerate every rank loads the whole epoch, and
    nothing is said. Each rank has another seed here, as scripts have."""
    pytest.importorskip("torchvision")
    said = of_processes(LOADERS, small, 2)
    assert all(rank["resumes"] for rank in said)
    # Symptom: an AssertionError at the first batch.
    assert sorted(set(said[0]["batches"] + said[1]["batches"])) == list(range(23))
    for case in ("shuffled", "shard", "early", "sampler"):
        for epochs in zip(*(rank[case]["epochs"] for rank in said), strict=True):
            assert [len(epoch) for epoch in epochs] == [12, 12]
            assert {*epochs[0], *epochs[1]} == set(range(23))
        assert {rank[case]["len"] for rank in said} == {3}
    assert all(a != b for rank in said for a, b in [rank["shuffled"]["epochs"]])
    for rank in said:
        assert rank["sequential"]["epochs"] == [list(range(23))] * 2
        assert [sorted(epoch) for epoch in rank["replicate"]["epochs"]] == [list(range(23))] * 2
        assert len(rank["shuffled"]["said"]) == len(rank["sequential"]["said"]) == 1
        assert "gets a part of the shuffled epoch" in rank["shuffled"]["said"][0]
        assert "every rank loads all 23 samples" in rank["sequential"]["said"][0]
        for case in ("shard", "replicate", "sampler"):
            assert rank[case]["said"] == []
    dropped = [rank["dropped"]["epochs"][0] for rank in said]
    assert len(dropped[0]) == len(dropped[1]) == 8 and not {*dropped[0]} & {*dropped[1]}


PEEKING = """
import datetime, json, os, sys, time
import torch, torch.distributed as dist
from loaders import TRAIN, numbered, order, quiet
import bothends
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
rank = dist.get_rank()
torch.manual_seed(rank)
data = numbered(sys.argv[1], TRAIN)
def made(**options):
    return quiet(data, batch_size=2, shuffle=True, **options)
def train(loader):
    # In step, as gradients are averaged.
    seen = []
    try:
        for _, labels in loader:
            dist.monitored_barrier(timeout=datetime.timedelta(seconds=4))
            seen += labels.tolist()
    except (bothends.OptionsError, RuntimeError) as error:
        return type(error).__name__, str(error), len(seen)
    return seen
def peek(loader):
    if rank == 0:
        next(iter(loader))
    dist.barrier()
said, case = {}, sys.argv[2]
if case == "replicate":
    peek(made(ranks="replicate"))
    loader = made()
elif case == "another":
    peek(made())
    loader = made()
else:
    loader = made(**({"seed": 7} if case == "seed" else {}))
    if case == "together":
        next(iter(loader))
    else:
        peek(loader)
epochs = []
for epoch in range(2):
    if case == "set_epoch":
        loader.set_epoch(epoch)
    epochs.append(train(loader))
    if isinstance(epochs[-1], tuple):
        break
print(json.dumps({"epochs": epochs}), flush=True)
time.sleep(3600)
"""


@pytest.mark.parametrize("case", ["same", "seed", "another"])
def test_a_rank_that_looks_at_a_batch_alone_is_noticed(small: Path, case: str) -> None:
    """Symptom: rank 0 shows a batch, and from then on each epoch has samples twice and never."""
    pytest.importorskip("torchvision")
    _, other = of_processes(PEEKING, small, 2, case)
    name, said, n_trained = other["epochs"][0]
    assert name == "OptionsError" and "has left it after 1 of 6 batches" in said
    assert "loader.set_epoch(epoch) on every rank" in said
    assert n_trained == 2, "one batch, before which nobody could know"


@pytest.mark.parametrize("case", ["set_epoch", "replicate", "together"])
def test_ranks_may_look_at_a_batch_if_they_stay_together(small: Path, case: str) -> None:
    pytest.importorskip("torchvision")
    said = of_processes(PEEKING, small, 2, case)
    for epochs in zip(*(rank["epochs"] for rank in said), strict=True):
        assert [len(epoch) for epoch in epochs] == [12, 12]
        assert {*epochs[0], *epochs[1]} == set(range(23))


LISTING = """
import datetime, json, shutil, sys, time
from pathlib import Path
import torch, torch.distributed as dist
from torch.utils.data import DistributedSampler
from loaders import TRAIN, numbered, quiet
from streams import loader as native
import bothends
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
rank = dist.get_rank()
torch.manual_seed(rank)
root, case, added = Path(sys.argv[1]), sys.argv[2], sys.argv[3] == "added"
class Own(torch.utils.data.Dataset):
    # Nobody recognises it: it makes its samples itself.
    def __init__(self, images):
        self.images = images
    def __len__(self):
        return len(self.images)
    def __getitem__(self, i):
        return self.images[i]
def made():
    if case == "native":
        return native(root, rank=None, world_size=None, batch_size=2, framework="torch")
    data = numbered(root, TRAIN)
    if case == "sampler":
        return quiet(data, batch_size=2, sampler=DistributedSampler(data))
    if case == "items":
        data = Own(data)
    return quiet(data, batch_size=2, shuffle=True, **({"seed": 7} if case == "seed" else {}))
# Rank 0 validates alone, before and after, and waits for nobody.
def validate():
    if rank == 0:
        loaders = [native(root, batch_size=2), quiet(numbered(root), batch_size=2, ranks="replicate")]
        assert all(len(list(loader)) > 0 for loader in loaders)
validate()
store = dist.distributed_c10d._get_default_store()
said, n = "", 0
try:
    if rank == 0:
        batches = iter(made())
        n += len(next(batches)[1])
        store.set("begun", "0")
        # As a step in which gradients are averaged.
        store.wait(["tried"])
    else:
        store.wait(["begun"])
        if added:
            shutil.copy(root / "class0/000.jpg", root / "class4/zzz.jpg")
        batches = iter(made())
    store.set("tried", "1")
    n += sum(len(labels) for _, labels in batches)
    validate()
except bothends.Error as error:
    said = f"{type(error).__name__}: {error}"
    store.set("tried", "1")
print(json.dumps({"said": said, "n": n}), flush=True)
time.sleep(3600)
"""


@pytest.mark.parametrize("case", ["native", "agreed", "seed", "sampler", "items"])
def test_ranks_with_different_samples_are_told(small: Path, tmp_path: Path, case: str) -> None:
    """Symptom: an object that is added while a job starts makes samples come twice and never."""
    pytest.importorskip("torchvision")
    said = of_processes(LISTING, small, 2, case, "same")
    assert said == [{"said": "", "n": 10 if case == "native" else 12}] * 2
    data = shutil.copytree(small, tmp_path / "data")
    said = of_processes(LISTING, data, 2, case, "added")
    # Rank 0 has trained on the batch before which nobody could know.
    assert [rank["n"] for rank in said] == [2, 0]
    for rank in said:
        assert rank["said"].startswith("DataError: the ranks have listed different samples of ")
        assert "rank 0 has 23" in rank["said"] and "rank 1 has 24" in rank["said"]
        assert rank["said"].count("(hash ") == (0 if case == "items" else 2)


def test_ranks_that_cannot_agree_are_told(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: ranks that shuffle by different seeds share an epoch with samples twice or never."""
    pytest.importorskip("torchvision")
    from loaders import numbered, order, quiet

    for variable, value in LAUNCHERS[0].items():
        monkeypatch.setenv(variable, value)
    with pytest.raises(bothends.OptionsError, match="give seed="):
        iter(quiet(numbered(small), shuffle=True))
    seen = []
    for rank in range(4):
        monkeypatch.setenv("RANK", str(rank))
        seen += sum(order(quiet(numbered(small), shuffle=True, seed=1, ranks="shard")), [])
    assert len(seen) == 24 and set(seen) == set(range(23))


COUNTED = """
import multiprocessing, os, sys, tempfile
from streams import loader

def rank(data, meet, part, out):
    meet.wait(60)
    batches = loader(data, workers="auto")
    # Nobody leaves before all have been counted.
    meet.wait(60)
    out.put((part, batches.note or ""))
    batches.close()

if __name__ == "__main__":
    context = multiprocessing.get_context("fork")
    meet, out = context.Barrier(3), context.Queue()
    started = [
        context.Process(target=rank, args=(sys.argv[1], meet, part, out)) for part in range(3)
    ]
    for process in started:
        process.start()
    for _ in started:
        print(out.get(timeout=60)[1])
    for process in started:
        process.join(60)
    left = [name for name in os.listdir(os.environ["TMPDIR"]) if name.startswith("bothends")]
    assert left == [], left
"""


@pytest.mark.parametrize("meets", [{}, {"MASTER_ADDR": "node1", "MASTER_PORT": "29500"}])
def test_spawned_ranks_divide_a_machine(
    small: Path, tmp_path: Path, meets: dict[str, str]
) -> None:
    """`torch.multiprocessing.spawn` sets no variable that says how many there are."""
    runtime = {"XDG_RUNTIME_DIR": "", "TMPDIR": str(tmp_path)}
    line = "3 ranks share this machine (processes that registered)"
    for _ in range(8):
        said = children.run(COUNTED, small, **runtime, **meets)
        counted = {int(n) for n in re.findall(r"(\d+) ranks share this machine", said)}
        assert counted <= {2, 3}, said
        # One that the system stops for longer than they wait for each other is not counted by all.
        if said.count(line) == 3:
            return
    pytest.fail(said)


RANK_OF_ELASTIC_JOB = """
import json, pathlib, sys, time
import bothends, streams

data, state, n = sys.argv[1], pathlib.Path(sys.argv[2]), int(sys.argv[3])
batches = streams.loader(data, rank=None, world_size=None, last="pad", workers=1)
if state.exists():
    batches.load_state_dict(json.loads(state.read_text()))
feed = batches.batches()
for step in streams.taken(feed, n) if n else map(streams.step, feed):
    print(json.dumps([i for i, counts in zip(step.ids, step.mask) if counts]), flush=True)
print(json.dumps(batches.state_dict()), flush=True)
if n:
    # Steps behind the checkpoint: the job dies in them, and they are trained again.
    streams.taken(feed, 2)
    print("dies", flush=True)
    time.sleep(600)

"""


def test_an_elastic_job_takes_every_sample_once(many: Path, tmp_path: Path) -> None:
    """3, then 2, then 4 processes, as torchrun restarts them: killed in mid-epoch, each time in
    batches that come after the checkpoint."""
    checkpoint = tmp_path / "state.json"
    seen: list[int] = []
    for world, n in [(3, 7), (2, 11), (4, 0)]:
        ranks = [
            children.start(
                RANK_OF_ELASTIC_JOB,
                many,
                checkpoint,
                n,
                RANK=str(rank),
                WORLD_SIZE=str(world),
                LOCAL_RANK=str(rank),
            )
            for rank in range(world)
        ]
        states, counts = set(), set()
        for rank in ranks:
            lines = []
            while not (lines and lines[-1].startswith("{")):
                lines.append(children.line(rank))
            if n:
                assert children.line(rank) == "dies"
                assert len(lines) == n + 1
            counts.add(len(lines))
            seen += [sample for line in lines[:-1] for sample in json.loads(line)]
            states.add(lines[-1])
        for rank in ranks:
            rank.kill()
            rank.communicate()
        assert len(states) == 1, "one state is that of all"
        assert len(counts) == 1, "ranks take equal numbers of steps"
        checkpoint.write_text(states.pop())
    assert sorted(seen) == list(range(500))
