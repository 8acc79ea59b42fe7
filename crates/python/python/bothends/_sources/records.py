"""The types that describe a data set: where its records are, or why it is not read.

A `Source` is made by `_sources.recognise`; nothing here opens a file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from .fields import Fields
from .marks import Marks

AnyPath: TypeAlias = "str | bytes | os.PathLike[str]"


class Unknown(Exception):
    """A data set that bothends does not read.

    Args:
        why: what is unknown about it.
        remedy: what to change so that bothends can read it; None if nothing helps.
    """

    def __init__(self, why: str, remedy: str | None = None) -> None:
        super().__init__(why if remedy is None else f"{why}; {remedy}")
        self.why = why
        self.remedy = remedy


@dataclass(frozen=True)
class Path:
    """A data set that the native loader lists itself.

    Attributes:
        data: the folder or file: CIFAR-10's folder of pickled batches, or one of them.
    """

    data: str


@dataclass(frozen=True)
class Listing:
    """Files, or parts of files, one per sample; a file may occur several times.

    Attributes:
        root: an absolute folder.
        paths: of the samples' files, below `root`, without `..` and in UTF-8.
        extents: offset and length of each sample in its file; None if samples are whole files.
        labels: as `Fields.labels`.
    """

    root: str
    paths: list[str]
    extents: list[tuple[int, int]] | None = None
    labels: list[int] | None = None

    def __len__(self) -> int:
        return len(self.paths)

    def chosen(self, rows: Sequence[int]) -> Listing:
        """The samples with these numbers, in this order."""
        return Listing(
            self.root,
            [self.paths[row] for row in rows],
            None if self.extents is None else [self.extents[row] for row in rows],
            None if self.labels is None else [self.labels[row] for row in rows],
        )


@dataclass(frozen=True)
class Fetched:
    """Records whose bytes come from a Python call.

    Attributes:
        fetch: gives the bytes of sample i; called from one thread at a time, but not always the
            same one.
        n: the number of samples.
        name: the name of the data set, for messages.
        labels: as `Fields.labels`.
        fetch_alone: the same if `fetch` keeps what else belongs to the sample, and this does not:
            for when only other processes ask for that.
    """

    fetch: Callable[[int], bytes]
    n: int
    name: str
    labels: list[int] | None = None
    fetch_alone: Callable[[int], bytes] | None = None

    def __len__(self) -> int:
        return self.n

    @property
    def keeping_nothing(self) -> Callable[[int], bytes]:
        """What gives the bytes if only other processes ask for the rest."""
        return self.fetch_alone or self.fetch


Records: TypeAlias = Path | Listing | Fetched


@dataclass(frozen=True)
class Source:
    """A data set as bothends reads it.

    Attributes:
        name: a readable description.
        records: what the native loader opens.
        n_samples: as many as `len(dataset)`.
        image_size: rows and columns, if they are the same for all images.
        transform: what the data set calls with each PIL image; None for nothing.
        fields: how `dataset[i]` is assembled from the transformed image.
        rows: for a `Path`, the record number of each sample, if it differs from the sample's own.
        notes: notes for the user, one sentence each.
        marks: the recorded attributes of the data set, to notice changes.
    """

    name: str
    records: Records
    n_samples: int
    transform: Any
    fields: Fields
    image_size: tuple[int, int] | None = None
    rows: list[int] | None = None
    notes: tuple[str, ...] = ()
    marks: Marks = field(default_factory=Marks, repr=False, compare=False)

    @property
    def place(self) -> str:
        """The folder or file where the records are; "" for those that come from Python calls."""
        match self.records:
            case Path(data):
                return data
            case Listing(root):
                return root
            case Fetched():
                return ""

    def changed(self, dataset: Any) -> str | None:
        """What has changed since the data set was recognised; None if nothing has.

        It is cheap enough for the beginning of an epoch: lists are compared by the identities of
        their elements. Changes inside the user's own functions and classes are not noticed.
        """
        return self.marks.change(dataset)


def listing(
    paths: Iterable[AnyPath],
    root: AnyPath | None = None,
    extents: list[tuple[int, int]] | None = None,
    labels: list[int] | None = None,
) -> Listing:
    """A listing of files, relative to `root` if they are all below it, otherwise to their common
    folder.

    Raises:
        Unknown: a path cannot be written relative to a root, or a file's format is not supported.
    """
    names = [path if type(path) is str else os.fsdecode(path) for path in paths]
    if not names:
        return Listing(os.getcwd(), [], extents, labels)
    names, prefix = _placed(names, root)
    cut = len(prefix)
    below = [name[cut:] for name in names]
    if any(path[:1] == "/" for path in below):
        below = [path.lstrip("/") for path in below]
    _refuse_paths(below)
    absolute = os.path.join(os.getcwd(), prefix)
    return Listing(absolute.rstrip("/") or "/", below, extents, labels)


def joined(parts: Sequence[Listing]) -> Listing:
    """Concatenates listings."""
    roots = {part.root for part in parts}
    root = roots.pop() if len(roots) == 1 else os.path.commonpath([p.root for p in parts])
    paths: list[str] = []
    for part in parts:
        prefix = part.root[len(root) :].strip("/")
        _refuse_paths([prefix] if prefix else [])
        paths += [f"{prefix}/{path}" for path in part.paths] if prefix else part.paths
    return Listing(root, paths, _extents(parts), _labels(parts))


def whole(path: str) -> tuple[int, int]:
    """A whole file, for a listing in which others are parts of files."""
    return 0, os.path.getsize(path)


def exact_labels(targets: Sequence[Any]) -> list[int] | None:
    """The targets, if all are Python integers that fit into 64 bits; otherwise None.

    NumPy's and PyTorch's numbers do not count, since a batch of them may have a different type.
    """
    labels = targets if type(targets) is list else list(targets)
    if not labels or set(map(type, labels)) != {int}:
        return None
    return labels if -(2**63) <= min(labels) and max(labels) < 2**63 else None


def _placed(names: list[str], root: AnyPath | None) -> tuple[list[str], str]:
    """The names, and their common prefix, which ends in a slash or is empty."""
    if root is not None:
        prefix = os.fsdecode(root).rstrip("/") + "/"
        if all(name.startswith(prefix) for name in names):
            return names, prefix
    if any(name[:1] != "/" for name in names):
        here = os.getcwd()
        names = [os.path.join(here, name) for name in names]
    common = os.path.commonprefix([min(names), max(names)])
    return names, common[: common.rfind("/") + 1]


def _refuse_paths(paths: list[str]) -> None:
    # Of a million names, only a few remain to be checked closely.
    odd = [path for path in paths if ".." in path or not path or not path.isascii()]
    for path in odd:
        if ".." in path.split("/"):
            raise Unknown(
                f"the file {path!r} is reached through `..`",
                "give the data set a root without `..`, as os.path.realpath returns it",
            )
        if not _is_utf8(path):
            raise Unknown(f"the file name {path!r} is not UTF-8", "rename the file")
        if not path:
            raise Unknown("a folder is listed as a sample")


def _is_utf8(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _extents(parts: Sequence[Listing]) -> list[tuple[int, int]] | None:
    if all(part.extents is None for part in parts):
        return None
    extents: list[tuple[int, int]] = []
    for part in parts:
        files = (os.path.join(part.root, path) for path in part.paths)
        extents += map(whole, files) if part.extents is None else part.extents
    return extents


def _labels(parts: Sequence[Listing]) -> list[int] | None:
    labels: list[int] = []
    for part in parts:
        if part.labels is None:
            return None
        labels += part.labels
    return labels
