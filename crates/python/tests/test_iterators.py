"""Several iterators of one loader: each is independent, as PyTorch's are; those of
`bothends.Loader`, which has one epoch at a time, say that they are over."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("torchvision", reason="torchvision is not installed")

import bothends
import torch.utils.data as theirs
import torchvision.transforms as v1
from bothends.torch import DataLoader
from torchvision.datasets import ImageFolder

import streams
from loaders import EVAL, TRAIN, numbered, order, ours, quiet, stream

N = 23


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS"):
        monkeypatch.delenv(variable, raising=False)


def in_python(image: Any) -> Any:
    """A transform that nobody knows."""
    return image + torch.rand(())


PYTHON = v1.Compose([*TRAIN.transforms, v1.Lambda(in_python)])

# Each way in which batches are made.
MODES: dict[str, tuple[Any, dict[str, Any]]] = {
    "native": (TRAIN, {}),
    "a sampler": (TRAIN, {"sampler": list(range(N))[::-1]}),
    "in Python": (PYTHON, {}),
    "in workers": (PYTHON, {"num_workers": 2}),
}


@pytest.fixture(params=MODES)
def loader(request: pytest.FixtureRequest, small: Path) -> Iterator[DataLoader]:
    transform, options = MODES[request.param]
    shuffle = {} if "sampler" in options else {"shuffle": True}
    made = quiet(numbered(small, transform), seed=3, **shuffle, **options)
    yield made
    made.close()


def whole(batches: list[list[int]]) -> bool:
    """Whether an epoch holds every sample once."""
    return sorted(sum(batches, [])) == list(range(N))


def labels(pair: Any) -> list[int]:
    return pair[1].tolist()  # type: ignore[no-any-return]


# ---- two at once --------------------------------------------------------------------------


def test_zip_of_a_loader_with_itself(loader: DataLoader) -> None:
    """Symptom: zip(loader, loader) gave no batch, or each batch twice."""
    pairs = list(zip(loader, loader, strict=True))
    assert whole([labels(a) for a, _ in pairs]) and whole([labels(b) for _, b in pairs])
    assert not any(torch.equal(a[0], b[0]) for a, b in pairs)


def test_nested_loops(small: Path) -> None:
    """Symptom: the outer loop ran 3 times of 10, and ended without a word."""
    made = ours(numbered(small, TRAIN), shuffle=True, batch_size=8)
    outer = []
    for _, of_outer in made:
        outer.append(of_outer.tolist())
        assert whole(order(made))
    assert whole(outer)


def test_two_threads_each_iterate(loader: DataLoader) -> None:
    """Symptom: of two threads one got everything and the other nothing."""
    with ThreadPoolExecutor(2) as pool:
        for of_thread in pool.map(lambda _: order(loader), range(2)):
            assert whole(of_thread)


def test_many_threads_begin_at_once(small: Path) -> None:
    """Symptom: as above, or a loader of a thread's is taken by another."""
    made = ours(numbered(small, EVAL), batch_size=2)
    expected = stream(made)
    with ThreadPoolExecutor(4) as pool:
        for of_thread in pool.map(lambda _: [stream(made) for _ in range(3)], range(4)):
            assert of_thread == [expected] * 3


def test_one_iterator_for_two_threads(small: Path) -> None:
    """Symptom: threads that share an iterator get a batch twice, or lose one."""
    made = ours(numbered(small, TRAIN), shuffle=True, batch_size=1)
    feed = iter(made)
    with ThreadPoolExecutor(3) as pool:
        taken = list(pool.map(lambda _: order(feed), range(3)))
    assert whole(sum(taken, []))


def test_one_iterator_for_many_threads(loader: DataLoader) -> None:
    """Symptom: `generator already executing`, or an error of workers that have ended."""
    batches = iter(loader)
    seen: list[list[int]] = []

    def take(_: int) -> None:
        seen.extend(map(labels, batches))

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(take, range(4)))
    assert whole(seen)
    assert list(batches) == []


def test_an_iterator_is_kept_while_another_begins(loader: DataLoader) -> None:
    """Symptom: an older iterator ends, or gives the newer one's batches."""
    first = iter(loader)
    before = labels(next(first))
    second = iter(loader)
    head = labels(next(second))
    rest = [labels(pair) for pair in first]
    assert whole([before, *rest]) and whole([head, *(labels(pair) for pair in second)])


def test_the_older_iterators_batches_are_those_of_its_epoch(small: Path) -> None:
    """Symptom: a second iterator changes what the first one gives."""
    alone_ = ours(numbered(small, TRAIN), shuffle=True, seed=3)
    expected = stream(alone_)
    made = ours(numbered(small, TRAIN), shuffle=True, seed=3)
    feed = iter(made)
    head = stream([next(feed)])
    next(iter(made))
    assert head + stream(feed) == expected


# ---- one after the other ------------------------------------------------------------------


def test_the_first_batch_again_and_again(loader: DataLoader) -> None:
    """Symptom: next(iter(loader)) hangs, or repeats a batch, after some times."""
    seen = [stream([next(iter(loader))])[0][1] for _ in range(6)]
    assert len(set(seen)) == 6


def test_breaking_off_again_and_again(loader: DataLoader) -> None:
    """Symptom: after a break an epoch is short, or continues with the previous one."""
    for after in (1, 3, 1):
        for n, _ in enumerate(loader, 1):
            if n == after:
                break
        assert whole(order(loader))


def test_an_epoch_that_was_broken_off_is_over(small: Path) -> None:
    """Symptom: a break repeats the epoch, or skips one."""
    steady = ours(numbered(small, TRAIN), shuffle=True, seed=3)
    expected = [stream(steady) for _ in range(2)]
    made = ours(numbered(small, TRAIN), shuffle=True, seed=3)
    for _ in made:
        break
    assert stream(made) == expected[1]


def test_an_iterator_of_which_nothing_was_taken_is_no_epoch(small: Path) -> None:
    """Symptom: making an iterator and dropping it skips an epoch."""
    expected = stream(ours(numbered(small, TRAIN), shuffle=True, seed=3))
    made = ours(numbered(small, TRAIN), shuffle=True, seed=3)
    for _ in range(2):
        iter(made)
    assert stream(made) == expected


def test_an_iterator_is_over_once(loader: DataLoader) -> None:
    """Symptom: an iterator at its end begins again."""
    feed = iter(loader)
    assert len(feed) == len(loader) == 6  # type: ignore[arg-type]
    assert whole([labels(pair) for pair in feed])
    for _ in range(2):
        with pytest.raises(StopIteration):
            next(feed)


def test_an_epoch_that_has_its_end_left_is_over(loader: DataLoader) -> None:
    """Symptom: a loop that counts batches, as Lightning's, has two native loaders, in turn, and
    no epoch of it is in stats()."""
    feed = iter(loader)
    for n in range(1, 4):
        assert whole([labels(next(feed)) for _ in range(6)])
        old, feed = feed, iter(loader)
        assert next(old, None) is None
        assert loader.stats()["front_batches"] == 6 * n
    assert len(loader._feeds._feeds) == 1


def test_what_iterators_side_by_side_needed_is_closed(loader: DataLoader) -> None:
    """Symptom: the native loaders of epochs that ran side by side stay open until the end."""
    for n in range(1, 4):
        feeds = [iter(loader) for _ in range(3)]
        assert all(whole([labels(pair) for pair in feed]) for feed in feeds)
        used = [feed.loader for feed in loader._feeds._feeds]
        assert len(used) == 3 and loader.stats()["front_batches"] == 18 * n
        if n > 1:
            assert all(any(one is other for other in before) for one in used), "none opened again"
        before = used
    for n in range(1, 4):
        assert whole(order(loader))
        assert loader.stats()["front_batches"] == 54 + 6 * n
    assert len(loader._feeds._feeds) == 1
    assert [next(feed, None) for feed in feeds] == [None] * 3


def test_an_iterator_outlives_the_loaders_name(small: Path) -> None:
    """Symptom: `for batch in DataLoader(...)` ends early, for nobody holds the loader."""
    feed = iter(ours(numbered(small), batch_size=2))
    gc.collect()
    assert whole(order(feed))


def test_kept_batches_stay_as_they_are(small: Path) -> None:
    """Symptom: list(loader) holds batches that later ones have overwritten."""
    made = ours(numbered(small, EVAL), batch_size=2)
    kept = list(made)
    assert stream(kept) == stream(made)


# ---- after an exception -------------------------------------------------------------------


class FailsOnce:
    """A transform that fails the first time that it is called."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, image: Any) -> Any:
        self.calls += 1
        if self.calls == 6:
            raise RuntimeError("this once")
        return image


def test_iterating_after_an_exception(small: Path) -> None:
    """Symptom: after a transform has failed once, the loader gives nothing, or hangs."""
    made = quiet(numbered(small, v1.Compose([*EVAL.transforms, FailsOnce()])))
    with pytest.raises(RuntimeError, match="this once"):
        list(made)
    assert whole(order(made))


class Plain(theirs.Dataset):  # type: ignore[misc]
    """A data set that makes its samples itself."""

    def __len__(self) -> int:
        return N

    def __getitem__(self, i: int) -> Any:
        return torch.zeros(1), i


def fails_at_9(samples: list[Any]) -> Any:
    images, labels = theirs.default_collate(samples)
    if 9 in labels.tolist():
        raise OSError("a flaky share")
    return images, labels


def drained(batches: Any) -> list[Any]:
    """The first sample of each batch, or that it failed."""
    firsts: list[Any] = []
    while True:
        try:
            firsts.append(labels(next(batches))[0])
        except StopIteration:
            return firsts
        except OSError:
            firsts.append("failed")


CATCHING = {
    "native": (EVAL, {}),
    "in Python": (v1.Compose([*EVAL.transforms, torch.clone]), {}),
    "in workers": (v1.Compose([*EVAL.transforms, torch.clone]), {"num_workers": 2}),
    "in persistent workers": (
        v1.Compose([*EVAL.transforms, torch.clone]),
        {"num_workers": 2, "persistent_workers": True},
    ),
    "its own code": (None, {}),
    "its own code in workers": (None, {"num_workers": 2}),
    "its own code in persistent workers": (None, {"num_workers": 2, "persistent_workers": True}),
}


@pytest.fixture(params=CATCHING)
def failing(request: pytest.FixtureRequest, small: Path) -> Callable[[], DataLoader]:
    """Makes loaders whose third batch raises an OSError."""
    transform, options = CATCHING[request.param]
    dataset = Plain() if transform is None else numbered(small, transform)
    return lambda: quiet(dataset, collate_fn=fails_at_9, seed=3, **options)


def test_a_caught_exception_costs_its_batch_alone(failing: Callable[[], DataLoader]) -> None:
    """Symptom: a script that catches an exception gets nothing of the rest of the epoch."""
    theirs_too = theirs.DataLoader(Plain(), batch_size=4, collate_fn=fails_at_9)
    made = failing()
    for _ in range(2):
        assert drained(iter(made)) == drained(iter(theirs_too)) == [0, 4, "failed", 12, 16, 20]
    assert made.state_dict()["epoch"] == 2


def test_the_state_after_a_caught_exception(failing: Callable[[], DataLoader]) -> None:
    """Symptom: such a state repeats the batch before."""
    made = failing()
    batches = iter(made)
    for _ in range(2):
        next(batches)
    with pytest.raises(OSError, match="a flaky share"):
        next(batches)
    states = [made.state_dict()]
    next(batches)
    states.append(made.state_dict())
    for state, expected in zip(states, [[12, 16, 20], [16, 20]], strict=True):
        resumed = failing()
        resumed.load_state_dict(state)
        assert drained(iter(resumed)) == expected
    assert drained(batches) == [16, 20]


def test_a_new_iterator_after_a_caught_exception(failing: Callable[[], DataLoader]) -> None:
    """Symptom: the old one then says that the loader was closed."""
    made = failing()
    old = iter(made)
    next(old), next(old)
    with pytest.raises(OSError, match="a flaky share"):
        next(old)
    new = iter(made)
    assert labels(next(new))[0] == 0
    assert drained(old) == [12, 16, 20]
    assert drained(new) == [4, "failed", 12, 16, 20]


def test_iterating_after_a_broken_image(small: Path, tmp_path: Path) -> None:
    """Symptom: an epoch after one that a broken image has ended is not whole."""
    dataset = numbered(copied(small, tmp_path))
    broken = Path(dataset.samples[9][0])
    content = broken.read_bytes()
    broken.write_bytes(b"no image")
    made = ours(dataset, shuffle=True)
    with pytest.raises(bothends.BadSampleError, match=broken.name):
        list(made)
    broken.write_bytes(content)
    assert whole(order(made))


def copied(small: Path, place: Path) -> Path:
    import shutil

    return Path(shutil.copytree(small, place / "copy"))


def test_an_exception_in_the_loops_body(loader: DataLoader) -> None:
    """Symptom: an epoch after one that the script's own error has ended is not whole."""
    with pytest.raises(ZeroDivisionError):
        for _ in loader:
            1 / 0  # noqa: B018
    assert whole(order(loader))


def test_a_generator_that_is_closed(loader: DataLoader) -> None:
    """Symptom: a generator over a loader cannot be dropped in its middle."""

    def forever() -> Iterator[Any]:
        while True:
            yield from loader

    batches = forever()
    seen = [labels(next(batches)) for _ in range(13)]
    batches.close()  # type: ignore[attr-defined]
    assert whole(seen[:6]) and whole(seen[6:12]) and whole(order(loader))


# ---- bothends.Loader ----------------------------------------------------------------------


def test_the_older_iterator_of_a_loader_raises(small: Path) -> None:
    """Symptom: the older iterator ended with StopIteration, and a loop without a word."""
    made = streams.loader(small)
    first = iter(made)
    next(first)
    second = iter(made)
    for _ in range(2):
        with pytest.raises(bothends.OptionsError, match="ended by a newer one.*another loader"):
            next(first)
    assert len(list(second)) == 5
    with pytest.raises(bothends.OptionsError, match="ended by a newer one"):
        next(first)


WAYS = [iter, bothends.Loader.batches, lambda made: made.consumers(1)[0]]


@pytest.mark.parametrize("begin", WAYS)
def test_in_each_way_to_iterate(small: Path, begin: Any) -> None:
    """Symptom: as above."""
    made = streams.loader(small)
    first, second = begin(made), begin(made)
    with pytest.raises(bothends.OptionsError, match="ended by a newer one"):
        next(first)
    assert len(list(second)) == 5


def test_an_iterator_at_its_end_stays_there(small: Path) -> None:
    """Symptom: a whole epoch is followed by an error, once the next one begins."""
    made = streams.loader(small)
    first = iter(made)
    assert len(list(first)) == 5
    iter(made)
    assert list(first) == []


def test_zip_of_a_loader_with_itself_raises(small: Path) -> None:
    """Symptom: zip(loader, loader) gave no batch, without a word."""
    made = streams.loader(small)
    with pytest.raises(bothends.OptionsError, match="make another loader to iterate twice"):
        list(zip(made, made, strict=True))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loop_that_catches_every_error_ends(tmp_path: Path, workers: int) -> None:
    """Symptom: after an error of ours, the same one came without end."""
    from PIL import Image

    (tmp_path / "class").mkdir()
    for n in range(6):
        Image.new("RGB", (8, 8)).save(tmp_path / "class" / f"{n}.png")
    (tmp_path / "class" / "3.png").write_bytes(b"no image")
    changes = v1.Compose([v1.Resize((8, 8)), v1.ToTensor(), v1.Lambda(in_python)])
    data = ImageFolder(tmp_path, changes)
    batches = iter(DataLoader(data, batch_size=2, num_workers=workers))
    n_errors = 0
    for _ in range(50):
        try:
            next(batches)
        except StopIteration:
            break
        except bothends.Error:
            n_errors += 1
    else:
        pytest.fail("it never ended")
    assert n_errors == 1


def test_threads_that_share_an_iterator_have_their_own_numbers(tmp_path: Path) -> None:
    """Symptom: with no workers, samples got the numbers of others."""
    from PIL import Image

    (tmp_path / "class").mkdir()
    for n in range(40):
        Image.new("RGB", (8, 8)).save(tmp_path / "class" / f"{n:02}.png")
    changes = v1.Compose([v1.Resize((8, 8)), v1.ToTensor(), v1.Lambda(in_python)])
    data = ImageFolder(tmp_path, changes)

    def made() -> Any:
        return DataLoader(data, batch_size=2, seed=5)

    expected = sorted(image[0, 0, 0, 0].item() for image, _ in made())
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        shared = iter(made())
        with ThreadPoolExecutor(4) as threads:
            taken = threads.map(lambda _: [image[0, 0, 0, 0].item() for image, _ in shared], range(4))
            assert sorted(value for values in taken for value in values) == expected
    finally:
        sys.setswitchinterval(interval)
