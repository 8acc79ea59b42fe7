"""The protocol for everybody's own data sets: what is read of them, and what is refused."""

from __future__ import annotations

import os
import pickle
import signal
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from bothends import _sources as sources
from bothends._sources import Unknown, recognise


class Own:
    """A data set of a function, and nothing else."""

    def __init__(self, files: list[Path], of: Callable[[int, Path], Any]) -> None:
        self.files = files
        self.of = of
        self.n_calls = 0

    def __len__(self) -> int:
        return len(self.files)

    def sample(self, i: int) -> Any:
        self.n_calls += 1
        return self.of(i, self.files[i])


class Indexed(Own, sources.Samples):
    """The same, to be indexed by PyTorch's own loader, too."""


@pytest.fixture
def files(small: Path) -> list[Path]:
    return sorted(small.rglob("*.jpg"))


def as_path(i: int, file: Path) -> Any:
    return file


def as_text(i: int, file: Path) -> Any:
    return str(file), i % 5


def as_piece(i: int, file: Path) -> Any:
    return (str(file), 0, file.stat().st_size), i


def as_either(i: int, file: Path) -> Any:
    return as_piece(i, file) if i % 2 else as_text(i, file)


def as_named(i: int, file: Path) -> Any:
    return {"boxes": [[i, 2, 3, 4]], "image": file, "text": file.name}


def as_bytes(i: int, file: Path) -> Any:
    return file.read_bytes()


def as_bytes_and_target(i: int, file: Path) -> Any:
    return memoryview(file.read_bytes()), {"boxes": i}


def as_named_bytes(i: int, file: Path) -> Any:
    return {"image": file.read_bytes(), "label": i}


def content(source: sources.Source, i: int) -> bytes:
    records = source.records
    if isinstance(records, sources.Fetched):
        return records.fetch(i)
    assert isinstance(records, sources.Listing)
    whole = (Path(records.root) / records.paths[i]).read_bytes()
    offset, length = records.extents[i] if records.extents else (0, len(whole))
    return whole[offset : offset + length]


@pytest.mark.parametrize("of", [as_path, as_text, as_piece, as_either, as_named])
def test_files_are_listed_once(of: Callable[..., Any], files: list[Path]) -> None:
    dataset = Indexed(files, of)
    source = recognise(dataset)
    assert isinstance(source.records, sources.Listing)
    assert source.n_samples == len(files) == dataset.n_calls
    assert source.records.labels == source.fields.labels
    assert (source.fields.labels is not None) == (of in (as_text, as_piece, as_either))
    for i, file in enumerate(files):
        assert content(source, i) == file.read_bytes()
        made = source.fields.put_together("image", i)
        own = dataset[i]
        if isinstance(own, dict):
            assert list(made) == list(own) and made == {**own, "image": "image"}
        else:
            assert made == ("image" if of is as_path else ("image", own[1]))


@pytest.mark.parametrize("of", [as_bytes, as_bytes_and_target, as_named_bytes])
def test_bytes_are_asked_for_once(of: Callable[..., Any], files: list[Path]) -> None:
    dataset = Own(files, of)
    source = recognise(dataset)
    assert isinstance(source.records, sources.Fetched)
    assert (source.records.n, source.records.name) == (23, "Own")
    # The first sample, to see what it is of.
    assert dataset.n_calls == 1
    for i in (3, 1, 4):
        fetched = content(source, i)
        assert type(fetched) is bytes and fetched == files[i].read_bytes()
    made = [source.fields.put_together("image", i) for i in (1, 3, 4)]
    expected = {
        as_bytes: "image",
        as_bytes_and_target: ("image", {"boxes": 4}),
        as_named_bytes: {"image": "image", "label": 4},
    }
    assert made[2] == expected[of]
    assert dataset.n_calls == 4
    # Another process has not fetched it.
    copied = pickle.loads(pickle.dumps(source.fields))
    assert copied.put_together("image", 4) == expected[of]


class Slow(Mapping[str, Any]):
    """A sample that is not copied before it may be."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.copying, self.may_copy = threading.Event(), threading.Event()

    def __getitem__(self, name: str) -> Any:
        return {"image": self.content, "label": 7}[name]

    def __iter__(self) -> Iterator[str]:
        self.copying.set()
        assert self.may_copy.wait(60)
        return iter(("image", "label"))

    def __len__(self) -> int:
        return 2


def test_a_fork_does_not_wait_for_a_thread_that_fetches(files: list[Path]) -> None:
    """Symptom: a worker hangs, since a thread had a lock while its process was forked."""
    slow = Slow(files[1].read_bytes())
    source = recognise(Own(files, lambda i, file: slow if i == 1 else as_named_bytes(i, file)))
    assert isinstance(source.records, sources.Fetched)
    thread = threading.Thread(target=source.records.fetch, args=(1,))
    thread.start()
    assert slow.copying.wait(60)
    with warnings.catch_warnings():
        # Of forking with threads.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        # The deadline of the tests would print all threads.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(20)
        os._exit(source.fields.put_together("image", 2)["label"])
    slow.may_copy.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
    assert source.fields.put_together("image", 1) == {"image": "image", "label": 7}


def test_what_is_fetched_alone_is_all_that_is_kept(files: list[Path]) -> None:
    """Symptom: the targets of all samples stay in memory, since only worker processes ask for them."""
    theirs = pytest.importorskip("torch.utils.data", reason="PyTorch is not installed")
    dataset = Own(files, as_bytes_and_target)
    parts = theirs.ConcatDataset([theirs.Subset(dataset, range(9)), theirs.Subset(dataset, [9])])
    source = recognise(parts)
    assert isinstance(source.records, sources.Fetched)
    for i in range(10):
        assert source.records.keeping_nothing(i) == source.records.fetch(i) == files[i].read_bytes()
    dataset.n_calls = 0
    for i in range(10):
        source.fields.put_together("image", i)
    assert dataset.n_calls == 0
    source.records.keeping_nothing(3)
    assert source.fields.put_together("image", 3) == ("image", {"boxes": 3})
    assert dataset.n_calls == 2


@pytest.mark.parametrize("workers", [0, 2])
def test_worker_processes_ask_for_targets_themselves(files: list[Path], workers: int) -> None:
    """Symptom: as above."""
    v1 = pytest.importorskip("torchvision.transforms", reason="torchvision is not installed")
    from loaders import TRAIN, quiet

    dataset = Own(files, as_bytes_and_target)
    dataset.transform = v1.Compose([*TRAIN.transforms, flipped])
    loader = quiet(dataset, num_workers=workers)
    n_boxes = [target["boxes"].tolist() for _, target in loader]
    assert sum(n_boxes, []) == list(range(len(files)))
    kept = loader.prepared.source.records.fetch.__self__._rest
    assert kept == {} and loader.left is None
    loader.close()


def flipped(image: Any) -> Any:
    return image.flip(0)


def test_a_transform_and_changes(files: list[Path]) -> None:
    dataset = Indexed(files, as_text)
    assert recognise(dataset).transform is None
    dataset.transform = type
    source = recognise(dataset)
    assert source.transform is type and source.changed(dataset) is None
    assert dataset[-1] == (type(sources.decoded(files[-1].read_bytes())), 2)
    dataset.transform = repr
    assert "`transform` of the Indexed" in (source.changed(dataset) or "")
    with pytest.raises(IndexError, match="sample 23 of 23"):
        dataset[23]


def test_what_is_said_of_other_code(files: list[Path]) -> None:
    class Both(Own):
        def __getitem__(self, i: int) -> Any:
            return "something else"

        def sample(self, i: int) -> Any:
            return super().sample(i)

    assert recognise(Own(files, as_path)).notes == ()
    assert recognise(Indexed(files, as_path)).notes == ()
    assert "`__getitem__` is not called" in recognise(Both(files, as_path)).notes[0]


def test_indexing_that_does_more_is_not_skipped(files: list[Path]) -> None:
    class Numbered(Indexed):
        def __getitem__(self, i: int) -> Any:
            return i, super().__getitem__(i)

    class Wrapper:
        def __init__(self, inner: Any) -> None:
            self.inner = inner

        def __len__(self) -> int:
            return len(self.inner)

        def __getitem__(self, i: int) -> Any:
            return i, self.inner[i]

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inner, name)

    with pytest.raises(Unknown, match="Numbered overrides `__getitem__`, and not `sample`"):
        recognise(Numbered(files, as_path))
    with pytest.raises(Unknown, match="Wrapper is not known"):
        recognise(Wrapper(Own(files, as_path)))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (7, "a value of type int"),
        (("a", "b", "c"), "a tuple of str, str, str"),
        (("a", -1, 5), "a tuple of str, int, int"),
        ((7, "a"), "a tuple of int, str"),
        ({"picture": "a"}, "a dictionary with 'picture'"),
        ({"image": None}, "a dictionary with 'image'"),
        (None, "a value of type NoneType"),
    ],
)
def test_what_is_no_sample(files: list[Path], given: Any, said: str) -> None:
    with pytest.raises(Unknown, match="return a path, bytes") as reason:
        recognise(Own(files, lambda i, file: given))
    assert f"sample(0) of the Own gives {said}" in str(reason.value)


def test_all_samples_have_one_form(files: list[Path]) -> None:
    for other in (as_path, as_bytes, as_named):
        dataset = Own(files, lambda i, file, of=other: (as_text if i < 5 else of)(i, file))
        with pytest.raises(Unknown, match=r"sample\(5\) of the Own gives .* and sample\(0\)"):
            recognise(dataset)


def test_an_error_in_sample_is_the_users(files: list[Path]) -> None:
    def broken(i: int, file: Path) -> Any:
        return {0: file}[i]

    with pytest.raises(KeyError) as error:
        recognise(Own(files, broken))
    assert error.value.__notes__ == ["bothends: from sample(1) of the Own"]


def test_another_sample_is_not_the_protocols() -> None:
    class Buffer:
        def __len__(self) -> int:
            return 3

        def sample(self, n: int = 1, replace: bool = False) -> Any:
            raise AssertionError("it was called")

    class Stream:
        def sample(self, i: int) -> Any:
            raise AssertionError("it was called")

    for dataset in (Buffer(), Stream()):
        with pytest.raises(Unknown, match="is not known; give it a method sample"):
            recognise(dataset)


def test_many_calls_are_worth_a_word(files: list[Path], monkeypatch: Any) -> None:
    monkeypatch.setattr("bothends._sources.samples._MANY", 20)
    assert "was called 23 times" in recognise(Own(files, as_path)).notes[0]


def test_the_protocol_is_what_it_says(files: list[Path]) -> None:
    assert isinstance(Own(files, as_path), sources.SampleProtocol)
    assert not isinstance([], sources.SampleProtocol)
