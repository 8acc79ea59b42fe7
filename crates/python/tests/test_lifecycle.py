"""What a script does to a loader: break off, ask for epochs, press Ctrl-C, fork, spawn."""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import pickle
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import bothends
import numpy as np
import pytest

import children
from streams import ids, loader, step, steps, taken

# ---- epochs -------------------------------------------------------------------------------


def epochs(data: Path, n: int, **options: Any) -> list[list[Any]]:
    """What each epoch holds, asked for by name."""
    made = loader(data, **options)
    streams = []
    for epoch in range(n):
        made.set_epoch(epoch)
        streams.append(steps(made))
    return streams


def test_epochs_follow_one_another(small: Path) -> None:
    expected = epochs(small, 3)
    assert expected[0] != expected[1] != expected[2]
    batches = loader(small)
    for epoch in range(3):
        assert batches.epoch == epoch
        assert steps(batches) == expected[epoch]
    assert batches.epoch == 3
    batches.set_epoch(1)
    assert batches.epoch == 1
    assert steps(batches) == expected[1]
    assert steps(batches) == expected[2]


def test_an_epoch_holds_every_sample_once(small: Path) -> None:
    for stream in epochs(small, 2, last="pad"):
        assert sorted(ids(stream)) == list(range(23))


def test_without_shuffle_it_is_the_datas_order(small: Path) -> None:
    assert ids(steps(loader(small, shuffle=False))) == list(range(20))


def test_breaking_off_begins_the_next_epoch(small: Path) -> None:
    expected = epochs(small, 2)
    batches = loader(small)
    for batch in batches.batches():
        assert step(batch) == expected[0][0]
        break
    assert steps(batches) == expected[1]


def test_an_epoch_of_which_nothing_was_taken_begins_again(small: Path) -> None:
    batches = loader(small)
    iter(batches)
    iter(batches)
    assert batches.epoch == 0
    assert steps(batches) == epochs(small, 1)[0]


def test_a_new_iterator_ends_the_old_one(small: Path) -> None:
    batches = loader(small)
    first, second = batches.batches(), batches.batches()
    for _ in range(2):
        with pytest.raises(bothends.OptionsError, match="ended by a newer one"):
            next(first)
    assert [step(batch) for batch in second] == epochs(small, 1)[0]


def test_an_iterator_is_over_once(small: Path) -> None:
    feed = iter(loader(small))
    assert len(list(feed)) == 5
    assert list(feed) == []
    with pytest.raises(StopIteration):
        next(feed)


@pytest.mark.parametrize(("last", "n"), [("drop", 5), ("pad", 6), ("wrap", 6), ("even", 6)])
def test_len_is_what_comes(small: Path, last: str, n: int) -> None:
    batches = loader(small, last=last)
    assert len(batches) == n == len(list(batches))
    assert batches.drop_last == (last == "drop")


def test_what_frameworks_ask(small: Path) -> None:
    batches = loader(small)
    assert batches.sampler is batches and batches.batch_size == 4
    assert batches.classes == [f"class{n}" for n in range(5)]
    batches.sampler.set_epoch(7)
    assert batches.epoch == 7
    assert "batch_size=4 rank 0 of 1" in repr(batches)


def test_close(small: Path) -> None:
    with loader(small) as batches:
        first, _ = next(iter(batches))
        content = first.copy()
    assert np.array_equal(first, content)
    for use in (iter, len, bothends.Loader.state_dict, bothends.Loader.stats):
        with pytest.raises(bothends.OptionsError, match="closed"):
            use(batches)
    batches.close()


def test_after_its_last_batch_an_epoch_has_its_end_left(small: Path) -> None:
    """What a script does at an epoch's end is done by the one that goes on, too."""
    batches = loader(small)
    feed = iter(batches)
    for _ in range(len(batches)):
        next(feed)
    state = batches.state_dict()
    again = loader(small)
    again.load_state_dict(state)
    assert again.epoch == 0 and list(again) == [] and again.epoch == 1
    assert next(feed, None) is None
    again.load_state_dict(batches.state_dict())
    assert again.epoch == 1 and len(list(again)) == 5


def test_numbers_of_numpy_and_one_device(small: Path) -> None:
    plain = steps(loader(small))
    of_numpy = loader(small, batch_size=np.int64(4), seed=np.uint8(5), csds="sim:ideal")
    of_numpy.set_epoch(np.int32(0))
    assert steps(of_numpy) == plain and type(of_numpy.batch_size) is int
    for epoch in (-1, 1.5, 2**40):
        with pytest.raises(bothends.OptionsError, match="no epoch"):
            of_numpy.set_epoch(epoch)
    with pytest.raises(bothends.OptionsError, match="is of type object"):
        loader(small, seed=object())


def test_stats_count_the_epochs_that_are_over(small: Path) -> None:
    batches = loader(small, csds=["sim:ideal,rate=2000"])
    assert batches.stats()["front_batches"] == 0
    steps(batches)
    stats = batches.stats()
    made = stats["front_batches"] + sum(device["batches"] for device in stats["back"])
    assert made == 5 and stats["back"][0]["device"] == "sim:ideal,rate=2000"
    assert stats["storage_read_bytes"] > 0 and stats["skipped"] == []


# ---- Ctrl-C -------------------------------------------------------------------------------

# A batch takes more than an hour there: only a signal ends a wait for one.
NEVER = 'strategy="csd", csds=["sim:ideal,rate=0.001"]'

WAITS = f"""
import sys
from streams import loader
batches = loader(sys.argv[1], {NEVER})
feed = iter(batches)
try:
    print("waits", flush=True)
    next(feed)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    raise
print("a batch", flush=True)
"""


def device_of(child: subprocess.Popen[str]) -> int:
    """Its only one."""
    assert children.eventually(60, lambda: len(children.children_of(child.pid)) == 1)
    (device,) = children.children_of(child.pid)
    return device


def test_ctrl_c_ends_a_wait(small: Path) -> None:
    child = children.start(WAITS, small)
    assert children.line(child) == "waits"
    device = device_of(child)
    assert child.poll() is None
    child.send_signal(signal.SIGINT)
    assert children.line(child) == "interrupted"
    assert child.wait(60) != 0
    assert "KeyboardInterrupt" in child.communicate()[1]
    assert children.eventually(60, lambda: not children.runs(device))


HANDLES = f"""
import os, signal, sys
from streams import loader
def handler(number, frame):
    print("handled", flush=True)
    os._exit(7)
signal.signal(signal.SIGTERM, handler)
batches = loader(sys.argv[1], {NEVER})
feed = iter(batches)
print("waits", flush=True)
next(feed)
print("a batch", flush=True)
"""


def test_a_handler_runs_while_the_loader_waits(small: Path) -> None:
    child = children.start(HANDLES, small)
    assert children.line(child) == "waits"
    device = device_of(child)
    assert child.poll() is None
    child.send_signal(signal.SIGTERM)
    assert children.line(child) == "handled"
    assert child.wait(60) == 7
    assert children.eventually(60, lambda: not children.runs(device))


# ---- stopping early -----------------------------------------------------------------------


def test_a_stopped_loader_gives_no_batch_and_knows_where_it_is(small: Path) -> None:
    (expected,) = epochs(small, 1)
    batches = loader(small)
    feed = batches.batches()
    assert taken(feed, 2) == expected[:2] and not batches.is_stopped
    batches.stop()
    for _ in range(2):
        with pytest.raises(bothends.Stopped, match="save its state_dict"):
            next(feed)
    assert batches.is_stopped
    # A script that begins another epoch all the same is told again.
    state = batches.state_dict()
    with pytest.raises(bothends.Stopped):
        next(iter(batches))
    again = loader(small)
    again.load_state_dict(state)
    assert steps(again) == expected[2:]


PREEMPTED = f"""
import json, signal, sys
import bothends
from streams import loader, step
before = signal.getsignal(signal.SIGTERM)
batches = loader(sys.argv[1], **json.loads(sys.argv[2]))
with batches.stop_on(signal.SIGTERM, signal.SIGUSR1):
    print("waits", flush=True)
    try:
        while True:
            for batch in batches.batches():
                pass
    except bothends.Stopped:
        print(json.dumps(batches.state_dict()), flush=True)
assert signal.getsignal(signal.SIGTERM) == before
sys.exit(3)
"""

WAITING: dict[str, Any] = {"strategy": "csd", "csds": ["sim:ideal,rate=0.001"]}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
@pytest.mark.parametrize("options", [WAITING, {}], ids=["waiting", "training"])
def test_a_preempted_job_saves_its_state(
    small: Path, number: int, options: dict[str, Any]
) -> None:
    child = children.start(PREEMPTED, small, json.dumps(options))
    assert children.line(child) == "waits"
    if options:
        device_of(child)
    child.send_signal(number)
    state = json.loads(children.line(child))
    assert child.wait(60) == 3, child.communicate()[1]
    quick = {**options, "csds": ["sim:ideal,rate=2000"]} if options else {}
    again = loader(small, **quick)
    again.load_state_dict(state)
    assert len(steps(again)) <= 5


def test_stopping_on_a_signal_calls_who_handled_it(small: Path) -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, _: seen.append(number))
    try:
        batches = loader(small)
        with batches.stop_on(signal.SIGUSR1) as itself:
            assert itself is batches
            signal.raise_signal(signal.SIGUSR1)
        assert seen == [signal.SIGUSR1] and batches.is_stopped
        signal.raise_signal(signal.SIGUSR1)
        assert len(seen) == 2
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_terminals_ctrl_c_reaches_python_and_not_its_devices(small: Path) -> None:
    code = """
import signal, sys, time
from streams import loader
batches = loader(sys.argv[1], csds=["sim:ideal,rate=2000"])
pressed = []
signal.signal(signal.SIGINT, lambda *_: pressed.append(True))
print("waits", flush=True)
while not pressed:
    time.sleep(0.01)
print(len(list(batches)), batches.stats()["back"][0]["failure"], flush=True)
"""
    child = children.start(code, small)
    assert children.line(child) == "waits"
    os.killpg(child.pid, signal.SIGINT)
    assert children.line(child).endswith("None")
    assert child.wait(60) == 0


# ---- fork ---------------------------------------------------------------------------------

FORKS = """
import gc, os, sys
import bothends
from streams import loader, step, steps
expected = steps(loader(sys.argv[1]))
batches = loader(sys.argv[1], csds=["sim:ideal,rate=2000"] if sys.argv[2] == "device" else [])
feed = batches.batches()
first = next(feed)
seen = [step(first)]
child = os.fork()
if child == 0:
    said = 0
    for use in (
        lambda: next(feed), lambda: iter(batches), batches.state_dict, lambda: len(batches),
        lambda: batches.set_epoch(1), lambda: batches.epoch, batches.stats,
        lambda: batches.load_state_dict({}),
    ):
        try:
            use()
        except bothends.ForkError as error:
            said += "after the fork" in str(error)
    assert said == 8, said
    if sys.argv[3] == "drops":
        view = first.images[0][1:]
        del first, feed, batches, view
        gc.collect()
    if sys.argv[3] == "leaves":
        os._exit(0)
    sys.exit(0)
_, status = os.waitpid(child, 0)
assert status == 0, status
assert step(first) == seen[0]
seen += [step(batch) for batch in feed]
assert seen == expected, (seen, expected)
print("goes on")
"""


@pytest.mark.parametrize("ends", ["exits", "drops", "leaves"])
@pytest.mark.parametrize("device", ["host", "device"])
def test_a_fork_is_told_and_the_parent_goes_on(small: Path, device: str, ends: str) -> None:
    assert children.run(FORKS, small, device, ends) == "goes on\n"


MANY_FORKS = """
import gc, os, sys, time
from streams import loader, step
batches = loader(sys.argv[1], repeat=400, held_batches=3, csds=["sim:ideal,rate=2000"])
children, held = [], []
for n, batch in enumerate(batches.batches()):
    held = [*held[-2:], batch]
    if n % 20 == 0:
        child = os.fork()
        if child == 0:
            del batch, held, batches
            gc.collect()
            sys.exit(0)
        children.append(child)
print(n + 1, len(children), [os.waitpid(child, 0)[1] for child in children] == [0] * len(children))
"""


def test_forks_while_threads_work(small: Path) -> None:
    """Whatever lock another thread holds in the moment of the fork, the child must not want it."""
    assert children.run(MANY_FORKS, small) == f"{23 * 100} 115 True\n"


def test_a_loader_made_in_a_fork_works(small: Path) -> None:
    code = """
import os, sys
from streams import loader, steps
parent = loader(sys.argv[1])
expected = steps(parent)
child = os.fork()
if child == 0:
    os._exit(0 if steps(loader(sys.argv[1])) == expected else 1)
print(os.waitpid(child, 0)[1])
"""
    assert children.run(code, small) == "0\n"


# ---- spawn --------------------------------------------------------------------------------


def rest_of(batches: bothends.Loader, out: Any) -> None:
    """For a spawned process."""
    out.put((batches.epoch, steps(batches)))


def test_a_spawned_process_goes_on(small: Path) -> None:
    (expected,) = epochs(small, 1)
    batches = loader(small)
    feed = batches.batches()
    assert taken(feed, 2) == expected[:2]
    spawn = multiprocessing.get_context("spawn")
    out = spawn.Queue()
    child = spawn.Process(target=rest_of, args=(batches, out))
    child.start()
    epoch, rest = out.get(timeout=60)
    child.join(20)
    assert child.exitcode == 0
    assert epoch == 0 and [tuple(s) for s in rest] == [tuple(s) for s in expected[2:]]
    # What was given away was a copy.
    assert [step(batch) for batch in feed] == expected[2:]


def test_pickling_keeps_options(small: Path) -> None:
    batches = loader(small, last="pad", num_classes=5)
    again = pickle.loads(pickle.dumps(batches))
    assert repr(again) == repr(batches) and len(again) == len(batches)
    assert steps(again) == steps(batches)


class Members:
    """Devices that are found in a file of the process."""

    folders: list[str] = []

    def options_for(self, loader: bothends.Loader) -> dict[str, Any]:
        self.folders.append(tempfile.mkdtemp())
        Path(self.folders[-1], "agents").touch()
        Path(self.folders[-1], "key").write_bytes(bytes(range(32)))
        named = f"pool+file://{self.folders[-1]}"
        return {"csds": [f"{named}/agents"], "key_file": f"{self.folders[-1]}/key"}


def test_members_are_found_anew_where_a_loader_is_pickled_to(small: Path) -> None:
    """Symptom: on another node a loader looks for the file and the key of the one it is from."""
    pickled = pickle.dumps(loader(small, csds=Members()))
    shutil.rmtree(Members.folders[0])
    again = pickle.loads(pickled)
    assert isinstance(again._members, Members) and len(Members.folders) == 2
    assert again._options["key_file"] == f"{Members.folders[1]}/key"
    assert len(steps(pickle.loads(pickle.dumps(again)))) == len(again)
    for folder in Members.folders[1:]:
        shutil.rmtree(folder)


# ---- the end ------------------------------------------------------------------------------


def test_a_loader_ends_its_threads_and_devices(small: Path) -> None:
    def n_threads() -> int:
        return len(os.listdir("/proc/self/task"))

    before, others = n_threads(), set(children.children_of(os.getpid()))
    for taken_first in (0, 1, 5):
        batches = loader(small, csds=["sim:ideal,rate=2000"])
        feed = batches.batches()
        taken(feed, taken_first)
        devices = set(children.children_of(os.getpid())) - others
        assert devices
        del batches, feed
        gc.collect()
        assert children.eventually(60, lambda: not any(map(children.runs, devices)))
    assert children.eventually(60, lambda: n_threads() <= before)


@pytest.mark.parametrize("progress", [False, True])
def test_many_threads_may_use_one_loader(small: Path, progress: bool) -> None:
    from concurrent.futures import ThreadPoolExecutor

    batches = loader(small, progress=progress)
    feed = batches.batches()

    def take(_: int) -> list[Any]:
        mine = []
        for batch in feed:
            mine.append(step(batch))
            batches.epoch, len(batches), batches.stats()
        return mine

    with ThreadPoolExecutor(4) as pool:
        seen = [s for mine in pool.map(take, range(4)) for s in mine]
    assert sorted(seen) == sorted(epochs(small, 1)[0])
