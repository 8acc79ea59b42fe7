"""The protocol for your own data sets: `sample(i)` says where the bytes of an image are."""

from __future__ import annotations

import contextlib
import inspect
import io
import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

from .code import getitem
from .fields import Bare, Fields, Labelled, Named, Paired
from .marks import Marks
from .records import Fetched, Listing, Source, Unknown, exact_labels, listing, whole

Extent: TypeAlias = tuple[str | os.PathLike[str], int, int]
Record: TypeAlias = str | os.PathLike[str] | bytes | Extent
Sample: TypeAlias = Record | tuple[Record, Any] | Mapping[str, Any]

# Calls of `sample` while a loader is being made that are worth a note.
_MANY = 100_000
# Targets kept for samples whose bytes were fetched: more than are ever in flight.
_KEPT = 1 << 16
# Indexing methods that do exactly what `sample` says, or do not exist.
_INDEXED = frozenset(
    {"", f"{__name__}.Samples.__getitem__", "torch.utils.data.dataset.Dataset.__getitem__"}
)
_FORMS = "a path, bytes, (path, offset, length), (one of these, target) or {'image': one of these}"


@runtime_checkable
class SampleProtocol(Protocol):
    """A data set that says where the bytes of its images are, and lets bothends read and decode.

        class Birds:
            def __init__(self, table, transform=None):
                self.table, self.transform = table, transform
            def __len__(self):
                return len(self.table)
            def sample(self, i):
                row = self.table[i]
                return row.path, row.species

    `sample(i)` returns the image's record: a path; the encoded image as bytes; or (path, offset,
    length) for a part of a file. In addition, whatever belongs to the sample:

    * the record alone: `dataset[i]` and the loader give the image alone;
    * (record, target): they give (image, target);
    * a dictionary with the record under "image": they give the dictionary, with the image in
      the record's place. Boxes, masks, text and anything else go through as they are.

    All samples must have the same form, and either all or none are bytes. For paths and parts of
    files, `sample` is called once for each when the loader is created, and bothends' threads and
    devices read the files. Targets of type `int` cost nothing; for other targets `sample` is called
    again when they are needed. For bytes, `sample` is called for each sample as it is read, from a
    thread of the loader.

    An attribute `transform` is called with the image, as in torchvision's data sets; bothends
    translates it if possible. Images are converted to RGB, and an orientation in a photograph's
    metadata is not applied.

    `Samples` is a base class that adds `__getitem__`, for PyTorch's own loader.
    """

    def __len__(self) -> int: ...

    def sample(self, i: int) -> Sample:
        """Where sample i is, and what belongs to it."""
        ...


class Samples:
    """A base class for data sets with `SampleProtocol` that can also be indexed.

    Define `__len__` and `sample`, and set `transform` if there is one.
    """

    transform: Callable[[Any], Any] | None = None

    def __len__(self) -> int:
        raise NotImplementedError

    def sample(self, i: int) -> Sample:
        """As `SampleProtocol.sample`."""
        raise NotImplementedError

    def __getitem__(self, i: int) -> Any:
        if not -len(self) <= i < len(self):
            raise IndexError(f"sample {i} of {len(self)}")
        parts = _Parts(self.sample(i % len(self)), self, i)
        image = decoded(parts.bytes())
        if self.transform is not None:
            image = self.transform(image)
        if parts.form == "named":
            return {**parts.value, "image": image}
        return (image, parts.value[1]) if parts.form == "pair" else image


def decoded(content: bytes) -> Any:
    """An encoded image as an RGB image of PIL."""
    from PIL import Image

    return Image.open(io.BytesIO(content)).convert("RGB")


def has_sample(dataset: Any) -> bool:
    """Whether its class has a `sample` that can be called with just a number.

    A wrapper that only forwards attributes of another data set does not count, because it may do
    more than that data set.
    """
    if not callable(getattr(type(dataset), "sample", None)) or not hasattr(dataset, "__len__"):
        return False
    try:
        parameters = list(inspect.signature(dataset.sample).parameters.values())
    except (TypeError, ValueError):
        return False
    required = [p for p in parameters if p.default is p.empty and p.kind < p.VAR_POSITIONAL]
    return len(required) == 1


def samples_source(dataset: Any) -> Source:
    """The source of a data set that has `sample`.

    Raises:
        Unknown: the form of its samples is unknown, or varies.
    """
    _refuse_overridden(dataset)
    name, n = type(dataset).__name__, len(dataset)
    notes = list(_notes(dataset, n))
    if n == 0:
        return Source(name, listing([]), 0, None, Bare())
    first = _sample(dataset, 0)
    if first.kind == "bytes":
        fetch = _Fetch(dataset)
        records: Listing | Fetched = Fetched(fetch.bytes, n, name, fetch_alone=fetch.bytes_alone)
        fields = _fields(first, fetch.rest)
    else:
        records, fields = _listed(dataset, n, first)
        if n > _MANY:
            notes.append(f"`sample` of {name} was called {n} times to list the files")
    return Source(
        name=f"{name}, {n} samples",
        records=records,
        n_samples=n,
        transform=getattr(dataset, "transform", None),
        fields=fields,
        notes=tuple(notes),
        marks=Marks().of(dataset).transforms(dataset, "transform"),
    )


def _refuse_overridden(dataset: Any) -> None:
    """Refuses a class that adds indexing to one that has `sample`, since its samples would differ.

    Raises:
        Unknown: the data set's class is such.
    """
    if getitem(dataset) in _INDEXED:
        return
    for kind in type(dataset).__mro__:
        if "sample" in vars(kind):
            return
        if "__getitem__" in vars(kind):
            line = f"{kind.__name__} overrides `__getitem__`, and not `sample`"
            raise Unknown(line, "override `sample`, to say that it gives the same")


def _notes(dataset: Any, n: int) -> list[str]:
    if getitem(dataset) in _INDEXED:
        return []
    name = type(dataset).__name__
    return [f"`sample` of {name} is read; its `__getitem__` is not called"]


class _Parts:
    """One sample taken apart.

    Attributes:
        value: what `sample` returned.
        record: where the image is.
        form: how the value holds it.
        kind: what the record is.
    """

    form: Literal["bare", "pair", "named"]
    kind: Literal["path", "bytes", "extent"]

    def __init__(self, value: Any, dataset: Any, i: int) -> None:
        self.value = value
        self.record, self.form = value, "bare"
        if isinstance(value, Mapping):
            self.record, self.form = value.get("image"), "named"
        elif isinstance(value, tuple) and len(value) == 2:
            self.record, self.form = value[0], "pair"
        kind = _kind(self.record)
        if kind is None:
            line = f"sample({i}) of the {type(dataset).__name__} gives {_described(value)}"
            raise Unknown(line, f"return {_FORMS}")
        self.kind = kind

    @property
    def target(self) -> Any:
        return self.value[1] if self.form == "pair" else None

    def bytes(self) -> bytes:
        """The encoded image, read from its file if it is in one."""
        if self.kind == "bytes":
            return bytes(self.record)
        path, offset, length = self.record if self.kind == "extent" else (self.record, 0, -1)
        with open(path, "rb") as file:
            file.seek(offset)
            return file.read(length)


def _kind(record: Any) -> Literal["path", "bytes", "extent"] | None:
    if isinstance(record, (str, os.PathLike)):
        return "path"
    if isinstance(record, (bytes, bytearray, memoryview)):
        return "bytes"
    if isinstance(record, tuple) and len(record) == 3:
        path, offset, length = record
        numbers = isinstance(offset, int) and isinstance(length, int)
        if isinstance(path, (str, os.PathLike)) and numbers and offset >= 0 and length >= 0:
            return "extent"
    return None


def _described(value: Any) -> str:
    if isinstance(value, tuple):
        return "a tuple of " + ", ".join(type(part).__name__ for part in value)
    if isinstance(value, Mapping):
        return "a dictionary with " + (", ".join(map(repr, value)) or "nothing")
    return f"a value of type {type(value).__name__}"


def _sample(dataset: Any, i: int) -> _Parts:
    try:
        value = dataset.sample(i)
    except Exception as error:
        error.add_note(f"bothends: from sample({i}) of the {type(dataset).__name__}")
        raise
    return _Parts(value, dataset, i)


def _listed(dataset: Any, n: int, first: _Parts) -> tuple[Listing, Fields]:
    paths: list[Any] = []
    extents: list[tuple[int, int] | None] = []
    targets: list[Any] = []
    for i in range(n):
        parts = _sample(dataset, i) if i else first
        if parts.form != first.form or parts.kind == "bytes":
            line = f"sample({i}) of the {type(dataset).__name__} gives {_described(parts.value)}"
            raise Unknown(
                f"{line}, and sample(0) gave {_described(first.value)}",
                "return the same form for every sample",
            )
        path, *extent = parts.record if parts.kind == "extent" else (parts.record,)
        paths.append(path)
        extents.append((int(extent[0]), int(extent[1])) if extent else None)
        # Anything other than a label may be large and is requested again.
        target = parts.target
        targets.append(target if type(target) is int else None)
    labels = exact_labels(targets) if first.form == "pair" else None
    files = listing(paths, extents=_all_extents(paths, extents), labels=labels)
    fields = Labelled(labels) if labels is not None else _fields(first, dataset.sample)
    return files, fields


def _all_extents(
    paths: list[Any], extents: list[tuple[int, int] | None]
) -> list[tuple[int, int]] | None:
    if not any(extents):
        return None
    pairs = zip(paths, extents, strict=True)
    return [whole(os.fspath(path)) if extent is None else extent for path, extent in pairs]


def _fields(first: _Parts, ask: Callable[[int], Any]) -> Fields:
    if first.form == "named":
        return Named(ask)
    return Paired(partial(_second, ask)) if first.form == "pair" else Bare()


def _second(ask: Callable[[int], Any], i: int) -> Any:
    return ask(i)[1]


class _Fetch:
    """Calls `sample` once for the bytes, and keeps the rest until it is needed.

    It has no lock: workers are forked while a thread fetches, and would wait for one forever. Each
    operation on the dictionary is atomic.
    """

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self._rest: dict[int, Any] = {}

    def bytes_alone(self, i: int) -> bytes:
        """The encoded image of sample i, for when only other processes ask for the rest, which they
        cannot have from here."""
        return _sample(self._dataset, i).bytes()

    def bytes(self, i: int) -> bytes:
        """The same, and keeps the rest."""
        parts = _sample(self._dataset, i)
        content = parts.bytes()
        if parts.form != "bare":
            self._rest[i] = _without_bytes(parts)
            if len(self._rest) > _KEPT:
                # Another thread takes one at this moment: the next call removes the oldest.
                with contextlib.suppress(RuntimeError):
                    self._rest.pop(next(iter(self._rest), i), None)
        return content

    def rest(self, i: int) -> Any:
        """Sample i as `sample` returned it, without the bytes."""
        kept = self._rest.pop(i, None)
        return _without_bytes(_sample(self._dataset, i)) if kept is None else kept

    def __getstate__(self) -> Any:
        return self._dataset

    def __setstate__(self, dataset: Any) -> None:
        self.__init__(dataset)  # type: ignore[misc]


def _without_bytes(parts: _Parts) -> Any:
    if parts.form == "named":
        return {**parts.value, "image": None}
    return (None, parts.target)
