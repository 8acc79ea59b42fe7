"""Workers: results in order, memory that is used again, errors at their place, and an end to
every process."""

from __future__ import annotations

import gc
import multiprocessing
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import bothends
import numpy as np
import pytest
from bothends._workers import parcels as _parcels
from bothends._workers import Setting, Task, Workers, numbers_kept, seed_for

import children

# Less than what workers do here that is not waited for, and enough for a busy machine.
SOON = 45.0
THREADS = Setting(method="threads")
BOTH = [pytest.param(Setting(method="fork"), id="fork"), pytest.param(THREADS, id="threads")]


def tasks(n: int, side: int = 64, extra: Any = None) -> Iterator[Task]:
    """Task i is of images full of i."""
    for i in range(n):
        yield Task([np.full((4, side, side, 3), i, np.uint8)], (i,), extra)


def add_one(task: Task) -> tuple[Any, tuple[int, ...]]:
    return task.images[0] + 1, task.keys


def check(results: list[Any], n: int) -> None:
    assert [keys for _, keys in results] == [(i,) for i in range(n)]
    for i, (images, _) in enumerate(results):
        assert images.shape == (4, 64, 64, 3)
        assert (images == i + 1).all()


@pytest.fixture
def pool() -> Iterator[Callable[..., Workers]]:
    """Makes workers that end with the test."""
    made: list[Workers] = []

    def make(n: int, work: Callable[[Task], Any], **options: Any) -> Workers:
        made.append(Workers(n, work, **options))
        return made[-1]

    yield make
    for workers in made:
        workers.close()


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch", reason="torch is not installed")


# ---- order and room -----------------------------------------------------------------------


@pytest.mark.parametrize("setting", BOTH)
def test_results_come_in_the_order_of_the_tasks(pool: Any, setting: Setting) -> None:
    def work(task: Task) -> Any:
        time.sleep(random.Random(task.keys[0]).random() / 50)
        return add_one(task)

    workers = pool(3, work, setting=setting)
    check(list(workers.map(tasks(20))), 20)
    check(list(workers.map(tasks(7))), 7)
    assert list(workers.map(iter(()))) == []


def test_workers_take_turns(pool: Any) -> None:
    """Symptom: a generator of the script's own draws other numbers for a batch in every run."""

    def work(task: Task) -> int:
        time.sleep(task.extra)
        return os.getpid()

    workers = pool(3, work)
    for _ in range(2):
        # The first task is slow, so that the other workers would have time for its next one.
        pauses = [0.3, *[0.0] * 8]
        pids = list(workers.map(Task([], (), pause) for pause in pauses))
        assert pids == workers.pids * 3


@pytest.mark.parametrize("setting", BOTH)
def test_a_task_is_taken_only_when_there_is_room(pool: Any, setting: Setting) -> None:
    taken = 0

    def counted() -> Iterator[Task]:
        nonlocal taken
        for task in tasks(40):
            taken += 1
            yield task

    workers = pool(2, add_one, ahead=3, setting=setting)
    for done, _ in enumerate(workers.map(counted()), 1):
        time.sleep(0.005)
        assert done <= taken <= done + 6
    assert taken == 40


def test_the_first_result_does_not_wait_for_all_the_room(pool: Any) -> None:
    taken = 0

    def slow() -> Iterator[Task]:
        nonlocal taken
        for task in tasks(600):
            taken += 1
            yield task
            time.sleep(0.1)

    # To fill the room would take a minute.
    feed = pool(1, add_one, ahead=600).map(slow())
    next(feed)
    assert taken < 400


@pytest.mark.parametrize("setting", BOTH)
def test_iterators_do_not_disturb_each_other(pool: Any, setting: Setting) -> None:
    workers = pool(2, add_one, setting=setting)
    first, second = workers.map(tasks(9)), workers.map(tasks(9))
    pairs = list(zip(first, second, strict=True))
    check([a for a, _ in pairs], 9)
    check([b for _, b in pairs], 9)


@pytest.mark.parametrize("setting", BOTH)
def test_an_iterator_that_is_left_is_forgotten(pool: Any, setting: Setting) -> None:
    workers = pool(2, add_one, setting=setting)
    for _ in range(5):
        feed = workers.map(tasks(9))
        next(feed)
        del feed
    check(list(workers.map(tasks(9))), 9)


@pytest.mark.parametrize("setting", BOTH)
def test_init_is_called_once_in_each_worker(pool: Any, setting: Setting) -> None:
    here, meet = threading.local(), threading.Barrier(2)

    def init(number: int) -> None:
        here.numbers = [*getattr(here, "numbers", []), number]

    def work(task: Task) -> Any:
        # Processes take turns. Threads take tasks from one queue, and a quick one would take them all.
        if setting.method == "threads":
            meet.wait(SOON)
        return here.numbers

    seen = list(pool(2, work, init=init, setting=setting).map(tasks(12)))
    assert {tuple(numbers) for numbers in seen} == {(0,), (1,)}


def test_arguments_that_make_no_sense() -> None:
    with pytest.raises(bothends.OptionsError, match="n is 0; it must be at least 1"):
        Workers(0, add_one)
    with pytest.raises(bothends.OptionsError, match="ahead is 0"):
        Workers(1, add_one, ahead=0)


def test_spawned_workers_get_what_they_run_by_pickling(pool: Any) -> None:
    spawn = Setting(method="spawn")
    check(list(pool(1, add_one, setting=spawn).map(tasks(3))), 3)
    with pytest.raises(bothends.OptionsError, match="pickling.*top level"):
        Workers(1, lambda task: task, setting=spawn)
    assert children.eventually(SOON, lambda: len(multiprocessing.active_children()) == 1)


# ---- what travels -------------------------------------------------------------------------


def through(pool: Any, thing: Any) -> Any:
    """The thing, from a worker."""
    (result,) = pool(1, lambda task: thing).map(tasks(1))
    return result


@pytest.mark.parametrize("n", [0, 1, 5000])
@pytest.mark.parametrize("kind", ["u1", "f4", "f8", "c16", "?", "M8[s]", ">i4", "U3"])
def test_arrays_travel(pool: Any, n: int, kind: str) -> None:
    array = np.arange(3 * n).reshape(n, 3).astype(kind)
    for layout in (array, array.T, array[::2], np.asfortranarray(array)):
        back = through(pool, {"a": [layout]})["a"][0]
        assert back.dtype == layout.dtype
        assert back.flags.writeable
        np.testing.assert_array_equal(back, layout)


def test_an_empty_tensor_keeps_its_class(pool: Any, torch: Any) -> None:
    """Symptom: an image without boxes has a plain tensor instead of `BoundingBoxes`."""
    tv_tensors = pytest.importorskip("torchvision.tv_tensors")
    boxes = tv_tensors.BoundingBoxes(torch.ones(0, 4), format="XYXY", canvas_size=(10, 20))
    got = through(pool, boxes)
    assert type(got) is type(boxes) and got.shape == (0, 4) and got.dtype == boxes.dtype
    assert (got.format, got.canvas_size) == (boxes.format, boxes.canvas_size)


def test_anything_that_can_be_pickled_travels(pool: Any) -> None:
    things = {
        "objects": np.array([None, "a" * 50_000, {1}], object),
        "text": ["row"] * 50_000,
        "many": [np.full(5000, i, np.int32) for i in range(300)],
        "same": [(array := np.ones(9000)), array],
    }
    back = through(pool, things)
    assert (back["objects"] == things["objects"]).all()
    assert back["text"] == things["text"]
    assert all((array == i).all() for i, array in enumerate(back["many"]))
    assert back["same"][0] is back["same"][1]


def test_images_are_the_workers_own(pool: Any) -> None:
    images = np.zeros((4, 64, 64, 3), np.uint8)
    images.flags.writeable = False

    def spoil(task: Task) -> Any:
        task.images[0][:] = 9
        return task.images[0]

    for result in pool(2, spoil).map(Task([images], (), None) for _ in range(9)):
        assert (result == 9).all()
    assert (images == 0).all()


def test_long_messages_in_both_directions_do_not_wait_for_each_other(pool: Any) -> None:
    words = [str(i) for i in range(30_000)]
    workers = pool(2, lambda task: task.extra, ahead=20)
    assert all(result == words for result in workers.map(tasks(40, 8, words)))


# ---- memory -------------------------------------------------------------------------------


def n_mapped() -> int:
    with open("/proc/self/maps") as maps:
        return sum("memfd:bothends" in line for line in maps)


def test_memory_is_used_again(pool: Any) -> None:
    gc.collect()
    before = n_mapped()
    workers = pool(2, add_one)
    seen = []
    for i, (images, _) in enumerate(workers.map(tasks(200))):
        assert (images == (i + 1) % 256).all()
        seen.append(n_mapped() - before)
    # In each direction: what is under way, what was just let go, and one to fill.
    assert max(seen) <= 2 * (4 + 4 + 4)


def test_a_worker_fills_the_same_regions_again(
    pool: Any, torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    region = _parcels._Region

    def counted(*arguments: Any) -> Any:
        made.append(arguments)
        return region(*arguments)

    monkeypatch.setattr(_parcels, "_Region", counted)
    rows = [torch.ones(90, 90)] * 8

    def work(_: Task) -> Any:
        return torch.utils.data.default_collate(rows), len(made)

    counts = [count for _, count in pool(1, work).map(tasks(50))]
    # Two tasks ahead, the result in the loop's variable, and what is on its way back.
    assert max(counts) <= 6


def test_any_number_of_results_can_be_kept(pool: Any) -> None:
    workers = pool(2, add_one)
    kept = list(workers.map(tasks(100)))
    check(kept, 100)
    assert n_mapped() < 40
    again = list(workers.map(tasks(30)))
    check(kept, 100)
    check(again, 30)
    workers.close()
    check(kept, 100)


def test_results_of_growing_size(pool: Any) -> None:
    def work(task: Task) -> Any:
        return np.full(int(1.4 ** task.keys[0]) * 1000, task.keys[0])

    for i, result in enumerate(pool(2, work).map(tasks(24, 8))):
        assert len(result) == int(1.4**i) * 1000
        assert (result == i).all()


def test_what_a_worker_keeps_stays_as_it_is(pool: Any) -> None:
    kept: list[Any] = []

    def work(task: Task) -> Any:
        kept.append((task.images[0], np.full(9000, task.keys[0])))
        for i, (images, own) in enumerate(kept):
            assert (images == i).all()
            assert (own == i).all()
        return kept[-1][1]

    for i, result in enumerate(pool(1, work).map(tasks(30))):
        assert (result == i).all()


def test_an_array_keeps_its_memory_through_its_views(pool: Any) -> None:
    workers = pool(1, add_one, ahead=1)
    views = [images[1, 2:, ::3] for images, _ in workers.map(tasks(6))]
    gc.collect()
    list(workers.map(tasks(20)))
    assert all((view == i + 1).all() for i, view in enumerate(views))


def test_nothing_of_it_has_a_name(pool: Any) -> None:
    before = set(os.listdir("/dev/shm"))
    workers = pool(2, add_one)
    kept = list(workers.map(tasks(20)))
    assert set(os.listdir("/dev/shm")) <= before
    check(kept, 20)


# ---- errors -------------------------------------------------------------------------------


class OneOfTwo(Exception):
    def __init__(self, first: str, second: str) -> None:
        super().__init__(first, second)


class Fixed(Exception):
    def __init__(self, _: object) -> None:
        super().__init__("always this")


def failing(error: BaseException) -> Callable[[Task], Any]:
    def work(task: Task) -> Any:
        if task.keys[0] == 3:
            raise error
        return add_one(task)

    return work


class Local:
    @staticmethod
    def error() -> Exception:
        class Here(ValueError):
            pass

        return Here("broken")


@pytest.mark.parametrize("setting", BOTH)
@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (ValueError("broken"), ValueError),
        (KeyError("broken"), KeyError),
        (StopIteration("broken"), RuntimeError),
        (OneOfTwo("broken", "b"), RuntimeError),
        (UnicodeDecodeError("utf8", b"broken", 0, 1, "broken"), RuntimeError),
        (Local.error(), RuntimeError),
        (bothends.DataError("broken"), bothends.DataError),
    ],
)
def test_an_error_is_raised_at_its_place(
    pool: Any, setting: Setting, error: Exception, raised: type[Exception]
) -> None:
    feed = pool(2, failing(error), setting=setting).map(tasks(6))
    for i in range(3):
        assert next(feed)[1] == (i,)
    line = rf"^{type(error).__name__} in worker \d \(process \d+\). Original Traceback"
    with pytest.raises(raised, match=line) as caught:
        next(feed)
    assert type(caught.value) is raised
    assert "in work\n" in str(caught.value)
    assert "broken" in str(caught.value)
    assert [keys for _, keys in feed] == [(4,), (5,)]


def test_an_error_that_says_nothing_gets_a_note(pool: Any) -> None:
    feed = pool(1, failing(Fixed(0))).map(tasks(4))
    with pytest.raises(Fixed) as caught:
        list(feed)
    assert "in worker 0" in caught.value.__notes__[0]


def test_an_error_of_the_tasks_comes_behind_their_results(pool: Any) -> None:
    def broken() -> Iterator[Task]:
        yield from tasks(3)
        raise bothends.BadSampleError("sample 7")

    feed = pool(2, add_one).map(broken())
    assert [next(feed)[1] for _ in range(3)] == [(0,), (1,), (2,)]
    with pytest.raises(bothends.BadSampleError, match="sample 7"):
        next(feed)
    assert list(feed) == []


def test_what_cannot_be_pickled(pool: Any) -> None:
    def work(task: Task) -> Any:
        return (lambda: 0) if task.keys[0] == 1 else add_one(task)

    feed = pool(1, work).map(tasks(3))
    next(feed)
    with pytest.raises(Exception, match=r"(?s)in worker 0.*(?i:pickle)"):
        next(feed)
    assert next(feed)[1] == (2,)
    feed = pool(1, add_one).map(tasks(1, 8, lambda: 0))
    with pytest.raises(Exception, match=r"(?i)pickle"):
        next(feed)


@pytest.mark.parametrize("setting", BOTH)
def test_an_init_that_fails(pool: Any, setting: Setting) -> None:
    def init(number: int) -> None:
        raise LookupError(f"no {number}")

    feed = pool(1, add_one, init=init, setting=setting).map(tasks(2))
    with pytest.raises(LookupError, match="(?s)in worker 0.*no 0"):
        next(feed)


@pytest.mark.parametrize(
    ("end", "said"),
    [
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "killed by signal 9 .SIGKILL.; .*memory"),
        (lambda: os.kill(os.getpid(), signal.SIGTERM), "killed by signal 15 .SIGTERM."),
        (lambda: os._exit(7), "ended with exit code 7"),
    ],
)
def test_the_death_of_a_worker_is_an_error(pool: Any, end: Any, said: str) -> None:
    workers = pool(2, lambda task: end() if task.keys[0] == 3 else add_one(task))
    pids = workers.pids
    begin = time.monotonic()
    with pytest.raises(bothends.Error, match=rf"worker \d \(process \d+\) .*{said}"):
        list(workers.map(tasks(9)))
    assert time.monotonic() - begin < SOON
    assert workers.closed
    assert not any(children.runs(pid) for pid in pids)
    with pytest.raises(bothends.Error, match="the workers have ended; start new ones"):
        next(workers.map(tasks(1)))


def test_a_death_that_is_noticed_while_a_task_is_sent_says_why(pool: Any) -> None:
    workers = pool(1, lambda task: time.sleep(60))
    (pid,) = workers.pids

    def ends_the_worker() -> Iterator[Task]:
        first, second = tasks(2)
        yield first
        os.kill(pid, signal.SIGKILL)
        assert children.eventually(SOON, lambda: workers._crew._workers[0].process.exitcode is not None)
        yield second

    with pytest.raises(bothends.Error, match="killed by signal 9 .SIGKILL.; .*memory"):
        list(workers.map(ends_the_worker()))


def test_a_worker_that_dies_idle_is_noticed(pool: Any) -> None:
    workers = pool(2, add_one)
    list(workers.map(tasks(4)))
    os.kill(workers.pids[1], signal.SIGKILL)
    with pytest.raises(bothends.Error, match="worker 1 .*SIGKILL"):
        list(workers.map(tasks(400)))


# ---- the end ------------------------------------------------------------------------------


def test_close_leaves_no_process(pool: Any) -> None:
    workers = pool(3, add_one)
    feed = workers.map(tasks(9))
    next(feed)
    pids = workers.pids
    assert len(pids) == 3
    workers.close()
    workers.close()
    assert not {*pids} & {*children.children_of(os.getpid())}, "not even a zombie"
    assert workers.pids == []
    with pytest.raises(bothends.Error, match="have ended"):
        list(feed)


def test_close_does_not_wait_for_long_work(pool: Any) -> None:
    workers = pool(2, lambda task: time.sleep(100))
    feed = workers.map(tasks(2))
    feed._pull()  # type: ignore[attr-defined]
    begin = time.monotonic()
    workers.close()
    assert time.monotonic() - begin < SOON


def test_workers_that_are_left_end() -> None:
    workers = Workers(2, add_one)
    pids = workers.pids
    list(workers.map(tasks(3)))
    del workers
    gc.collect()
    assert not any(children.runs(pid) for pid in pids)


def test_a_fork_of_the_parent_neither_uses_nor_ends_them(pool: Any) -> None:
    workers = pool(1, add_one)
    kept = list(workers.map(tasks(3)))
    child = os.fork()
    if child == 0:
        try:
            workers.map(tasks(1))
        except bothends.ForkError:
            workers.close()
            del workers
            check(kept, 3)
            os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    check(list(workers.map(tasks(5))), 5)


PARENT = """
import itertools, os, sys, time
import numpy as np
from bothends._workers import Setting, Task, Workers

def work(task):
    time.sleep(float(sys.argv[1]))
    return task.images[0]

workers = Workers(2, work)
more = Workers(1, work)
if os.fork() == 0:  # a child that holds what it inherits
    time.sleep(60)
feed = workers.map(itertools.repeat(Task([np.zeros((4, 9))], (), None)))
try:
    print(*workers.pids, *more.pids, flush=True)
    while True:
        next(feed)
except KeyboardInterrupt:
    pids = workers.pids
    print("interrupted", workers.closed, flush=True)
"""


@pytest.mark.parametrize("seconds", [0, 100])
def test_the_parents_death_ends_the_workers(seconds: int) -> None:
    parent = children.start(PARENT, seconds)
    pids = [int(pid) for pid in children.line(parent).split()]
    assert len(pids) == 3
    time.sleep(0.2)
    parent.kill()
    assert children.eventually(SOON, lambda: not any(children.runs(pid) for pid in pids))
    os.killpg(parent.pid, signal.SIGKILL)
    parent.communicate()


def test_without_the_kernels_signal_the_socket_is_enough() -> None:
    # The thread that forks is not the main one, so that its end shall not be the workers'.
    code = PARENT.replace("more = Workers(1, work)", "pass").replace(
        "workers = Workers(2, work)",
        """import threading
made = []
thread = threading.Thread(target=lambda: made.append(Workers(2, work)))
thread.start()
thread.join()
workers = more = made[0]""",
    )
    parent = children.start(code, 0.05)
    pids = {int(pid) for pid in children.line(parent).split()}
    time.sleep(0.3)
    assert all(children.runs(pid) for pid in pids), "the thread's end is not theirs"
    parent.kill()
    assert children.eventually(SOON, lambda: not any(children.runs(pid) for pid in pids))
    os.killpg(parent.pid, signal.SIGKILL)
    parent.communicate()


def test_ctrl_c_is_the_parents() -> None:
    parent = children.start(PARENT, 100)
    pids = [int(pid) for pid in children.line(parent).split()]
    group = (*pids, parent.pid)
    # The workers with their tasks or for one, and the parent for a result.
    assert children.eventually(SOON, lambda: all(map(children.sleeps, group)))
    # As a terminal does: to all of the group.
    for pid in group:
        os.kill(pid, signal.SIGINT)
    assert children.line(parent) == "interrupted True"
    assert children.eventually(SOON, lambda: not any(children.runs(pid) for pid in pids))
    os.killpg(parent.pid, signal.SIGKILL)
    parent.communicate()


# ---- random numbers -----------------------------------------------------------------------


def drawn() -> list[float]:
    return [random.random(), random.gauss(0, 1), np.random.rand(), np.random.randn()]


def test_a_samples_numbers_are_its_own(pool: Any) -> None:
    def work(task: Task) -> Any:
        drawn()
        seed_for(5, 1, task.keys[0])
        return drawn()

    one = list(pool(1, work).map(tasks(9, 8)))
    three = list(pool(3, work).map(tasks(9, 8)))
    assert one == three
    with numbers_kept():
        here = [work(task) for task in tasks(9, 8)]
    assert here == one
    assert len({row[0] for row in one}) == 9
    assert not pool(1, work).shares_generators
    assert pool(1, work, setting=THREADS).shares_generators


def test_numbers_differ_with_seed_epoch_and_sample() -> None:
    firsts = set()
    with numbers_kept():
        for key in [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (-1, 0, 0), (2**63, 0, 0)]:
            seed_for(*key)
            firsts.add(tuple(drawn()))
            seed_for(*key)
            firsts.add(tuple(drawn()))
    assert len(firsts) == 6


def test_numbers_are_those_of_every_other_run() -> None:
    with numbers_kept():
        seed_for(1, 2, 3)
        assert [round(number, 6) for number in drawn()] == NUMBERS_OF_1_2_3


NUMBERS_OF_1_2_3 = [0.529465, -0.388406, 0.928586, 1.11235]


def test_numbers_are_kept() -> None:
    random.seed(3)
    np.random.seed(3)
    expected = drawn(), drawn()
    random.seed(3)
    np.random.seed(3)
    first = drawn()
    with pytest.raises(ZeroDivisionError), numbers_kept():
        seed_for(0, 0, 0)
        drawn()
        raise ZeroDivisionError
    assert (first, drawn()) == expected


# ---- PyTorch ------------------------------------------------------------------------------


def test_tensors_travel(pool: Any, torch: Any) -> None:
    base = torch.arange(2 * 3 * 40 * 50).reshape(2, 3, 40, 50)
    kinds = ["uint8", "int16", "int64", "float16", "bfloat16", "float32", "float64", "bool"]
    kinds += ["complex64", "uint16", "float8_e4m3fn"]
    things = [base.to(getattr(torch, kind)) for kind in kinds if hasattr(torch, kind)]
    things += [
        base.to(memory_format=torch.channels_last),
        base.transpose(1, 3),
        base[:, :, ::2],
        base[0, 0, 0, 0],
        base[:0],
        base[0].expand(4, 3, 40, 50),
        torch.tensor([1, 2]),
        torch.ones(3, 3, requires_grad=True),
        torch.ones(5000).to_sparse(),
        torch.ones(5000, dtype=torch.complex64).conj(),
        torch.nn.Parameter(torch.ones(3)),
    ]
    for back, thing in zip(through(pool, things), things, strict=True):
        assert type(back) is type(thing)
        assert back.dtype == thing.dtype
        assert back.requires_grad == thing.requires_grad
        if thing.layout is torch.strided:
            assert torch.equal(back, thing) or "float8" in str(thing.dtype)
    for layout in things[-11:-9]:
        assert through(pool, layout).stride() == layout.stride(), "no memory is turned round"


def test_a_subclass_of_tensors_stays_what_it_is(pool: Any, torch: Any) -> None:
    tv_tensors = pytest.importorskip("torchvision.tv_tensors", reason="no torchvision")
    boxes = torch.rand(5000, 4)
    thing = tv_tensors.BoundingBoxes(boxes, format="XYXY", canvas_size=(7, 9))
    back = through(pool, thing)
    assert type(back) is type(thing)
    assert back.canvas_size == (7, 9)
    assert back.format == thing.format
    assert torch.equal(back.as_subclass(torch.Tensor), boxes)


def test_the_default_collate_stacks_into_the_memory_of_both(
    pool: Any, torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = []
    whole = _parcels.Arena.room

    def counted(arena: Any, n_bytes: int) -> Any:
        copied.append(n_bytes)
        return whole(arena, n_bytes)

    monkeypatch.setattr(_parcels.Arena, "room", counted)

    def work(task: Task) -> Any:
        copied.clear()
        rows = [(torch.full((3, 50, 50), float(i)), i) for i in range(8)]
        batch = torch.utils.data.default_collate(rows)
        if task.extra is not None:
            batch[0] = batch[0] + 1
        return [*batch, copied]

    workers = pool(1, work)
    for images, labels, rooms in workers.map(tasks(5, 8)):
        assert images[:, 0, 0, 0].tolist() == labels.tolist() == list(range(8))
        assert rooms == [8 * 3 * 50 * 50 * 4], "there is one copy of each row"
        images += 1
    for images, labels, _ in workers.map(tasks(5, 8, "changed")):
        assert images[:, 1, 2, 3].tolist() == [label + 1 for label in labels.tolist()]


def test_batches_keep_their_memory(pool: Any, torch: Any) -> None:
    def work(task: Task) -> Any:
        return torch.from_numpy(task.images[0]).float()

    workers = pool(2, work)
    rows = [batch[2] for batch in workers.map(tasks(60))]
    list(workers.map(tasks(60)))
    assert all((row == i).all() for i, row in enumerate(rows))


def test_a_worker_is_one_of_pytorchs(pool: Any, torch: Any) -> None:
    def work(task: Task) -> Any:
        info = torch.utils.data.get_worker_info()
        seen = (info.id, info.num_workers, info.seed, info.dataset, torch.get_num_threads())
        assert torch.initial_seed() == info.seed
        time.sleep(0.02)
        return str(seen)

    workers = pool(2, work, setting=Setting(method="fork", seed=40, dataset=[1, 2]))
    seen = set(workers.map(tasks(8, 8)))
    assert seen == {"(0, 2, 40, [1, 2], 1)", "(1, 2, 41, [1, 2], 1)"}
    assert torch.utils.data.get_worker_info() is None


def test_a_samples_numbers_are_pytorchs_too(pool: Any, torch: Any) -> None:
    def work(task: Task) -> Any:
        seed_for(5, 1, task.keys[0])
        return torch.rand(2).tolist()

    with numbers_kept():
        here = [work(task) for task in tasks(5, 8)]
    state = torch.get_rng_state()
    with numbers_kept():
        seed_for(0, 0, 0)
    assert torch.equal(state, torch.get_rng_state())
    assert list(pool(2, work).map(tasks(5, 8))) == here
