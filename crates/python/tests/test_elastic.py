"""Ranks of a job that is restarted with a different number of them, in mid-epoch: processes which a stand-in for torchrun
starts with its environment, and kills. Real torchrun is in test_cluster_examples.py."""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

# Takes so many steps, keeps their samples and the state as a checkpoint has them, and is killed some steps later;
# without a number of steps it takes all that are left.
RANK = """
import json, os, signal, sys
import bothends
from streams import loader

data, state, out, steps = sys.argv[1:]
# Nobody says which rank this is, but the environment.
own = {"batch_size": 10, "repeat": 2, "last": "pad", "rank": None, "world_size": None}
with loader(data, **own) as part:
    if os.path.exists(state):
        part.load_state_dict(json.load(open(state)))
    epoch, taken, saved = part.epoch, [], None
    batches = part.batches()
    for batch in batches:
        taken.append([int(id) for id in batch.sample_ids[: batch.n_valid]])
        if len(taken) == int(steps):
            saved = part.state_dict()
            break
    with open(out, "w") as file:
        json.dump({"epoch": epoch, "taken": taken, "state": saved}, file)
    if saved is not None:
        # What was begun after the checkpoint is done again by the next ranks.
        next(batches), next(batches)
        os.kill(os.getpid(), signal.SIGKILL)
"""

ALL = 10**6


def world(ranks: int, data: Path, folder: Path, steps: int) -> list[list[int]]:
    """What so many ranks took before their checkpoint, step by step; they leave it for the next."""
    state, started = folder / "state.json", []
    for rank in range(ranks):
        out = folder / f"{ranks}-{rank}.json"
        line = [sys.executable, "-c", RANK, str(data), str(state), str(out), str(steps)]
        # What torchrun tells each of its processes.
        says = {"RANK": rank, "WORLD_SIZE": ranks, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": ranks}
        env = {**os.environ, **{name: str(value) for name, value in says.items()}}
        env["PYTHONPATH"] = str(Path(__file__).parent)
        started.append((subprocess.Popen(line, env=env), out))
    told = []
    for process, out in started:
        ended = process.wait(190)
        assert ended == (-signal.SIGKILL if steps != ALL else 0)
        told.append(json.loads(out.read_text()))
    assert {it["epoch"] for it in told} == {0}
    first = told[0]["state"]
    assert all(it["state"] == first for it in told), "any rank's state is right"
    if first is not None:
        state.write_text(json.dumps(first))
    taken = [it["taken"] for it in told]
    return [[id for ids in step for id in ids] for step in zip(*taken, strict=True)]


def test_every_sample_is_taken_once_over_all_restarts(many: Path, tmp_path: Path) -> None:
    # Nine processes, on a machine that may be busy.
    faulthandler.dump_traceback_later(600, exit=True)
    three, two = world(3, many, tmp_path, 9), world(2, many, tmp_path, 9)
    four = world(4, many, tmp_path, ALL)
    assert sorted(id for step in three + two + four for id in step) == list(range(1000))
    # A rank's batch stays as it is, and only the last step may have fewer samples.
    assert {len(step) for step in three} == {30} and {len(step) for step in two} == {20}
    assert {len(step) for step in four[:-1]} == {40}
