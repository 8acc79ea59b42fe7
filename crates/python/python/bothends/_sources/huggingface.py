"""Hugging Face `datasets` with a column of images.

Their tables are memory-mapped Arrow files, so the bytes of an image are part of a file. That part
is read directly, and nothing is copied through Python. Tables in memory are read through a call.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Mapping
from typing import Any

from .._errors import OptionsError
from .arrow import Pieces, column_pieces
from .code import is_a
from .fields import Fields, Named, Paired, paired
from .marks import Marks
from .records import Fetched, Listing, Source, Unknown, exact_labels, listing
from .samples import decoded

_DATASET = "datasets.arrow_dataset.Dataset"
_STREAM = "datasets.iterable_dataset.IterableDataset"
_DICT = "datasets.dataset_dict.DatasetDict"
_ORIENTATION = (
    "the orientation in a photograph's metadata is not applied, "
    "as it is when the datasets.Dataset itself is indexed"
)


class HuggingFaceImages:
    """A data set of the images of a `datasets.Dataset`, with a transform for each.

        rows = datasets.load_dataset("food101", split="train")
        dataset = HuggingFaceImages(rows, transform)
        loader = DataLoader(dataset, batch_size=256, shuffle=True)

    It replaces `rows.with_transform(function)`. The transform is called with one RGB image, as in
    torchvision's data sets, so bothends can translate it and read the encoded images directly.
    `select`, `shuffle`, `filter` and `train_test_split` before it are respected. A format or a
    transform that is set on `rows` is not applied, nor is an orientation in the metadata of a
    photograph.

    Args:
        rows: a `datasets.Dataset`: one split, not a stream.
        transform: called with each image; None for nothing.
        image: the column of images (of the feature `Image`), of bytes or of paths.
        label: the column of targets; `dataset[i]` is (image, target).
        names: columns and their names in a sample, which is then a dictionary:
            {"image": "pixel_values", "label": "labels"}. It replaces `label`.

    Raises:
        OptionsError: an argument does not fit.
    """

    def __init__(
        self,
        rows: Any,
        transform: Callable[[Any], Any] | None = None,
        image: str = "image",
        label: str = "label",
        names: Mapping[str, str] | None = None,
    ) -> None:
        _refuse_other(rows)
        # A function set on the rows is not called, and need not be picklable.
        self.rows = rows.with_format(None)
        self.transform = transform
        self.image = image
        self.label = label
        self.names = None if names is None else dict(names)
        for column in [image, *(self.names or [label])]:
            _refuse_column(rows, column)
        if self.names is not None and image not in self.names:
            line = f"`names` has no {image!r}, the column of images"
            raise OptionsError(f"{line}; add it, or say `image`")
        self._rest: Any = None
        self._column: Any = None

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, i: int) -> Any:
        if not -len(self) <= i < len(self):
            raise IndexError(f"sample {i} of {len(self)}")
        i = i % len(self)
        image = decoded(self.content(i))
        if self.transform is not None:
            image = self.transform(image)
        if self.names is None:
            return image, self.target(i)
        return {**self.named(i), self.names[self.image]: image}

    def content(self, i: int) -> bytes:
        """The encoded image of sample i."""
        if self._column is None:
            self._column = self.rows.data.table.column(self.image)
        value = self._column[_row(self.rows, i)].as_py()
        value = value if isinstance(value, dict) else {"bytes": value, "path": value}
        if isinstance(value.get("bytes"), bytes):
            return value["bytes"]  # type: ignore[no-any-return]
        path = value.get("path")
        if path is None:
            raise OptionsError(f"row {i} has no image in the column {self.image!r}; filter it out")
        with open(path, "rb") as file:
            return file.read()

    def target(self, i: int) -> Any:
        """Sample i in the column of targets."""
        return self._others(i)[self.label]

    def named(self, i: int) -> dict[str, Any]:
        """The named columns of sample i, with None for the image."""
        names = self.names or {}
        others = self._others(i) if len(names) > 1 else {}
        return {name: others.get(column) for column, name in names.items()}

    def _others(self, i: int) -> Any:
        if self._rest is None:
            columns = [column for column in self.names or [self.label] if column != self.image]
            self._rest = self.rows.select_columns(columns)
        return self._rest[i]

    def __getstate__(self) -> dict[str, Any]:
        # Anything derived from a table would carry the table's bytes along.
        return {**self.__dict__, "_rest": None, "_column": None}


def huggingface_source(dataset: Any, code: str) -> Source | None:
    """The source, if the data set is a `HuggingFaceImages`.

    Raises:
        Unknown: it is one of Hugging Face's own data sets, or has no images that can be read.
    """
    if is_a(dataset, _DATASET):
        raise _use_images(dataset)
    if is_a(dataset, _DICT):
        raise Unknown("the DatasetDict holds several splits", "choose one: dataset['train']")
    if is_a(dataset, _STREAM):
        raise Unknown("the data set is a stream", "load it with streaming=False")
    if not isinstance(dataset, HuggingFaceImages):
        return None
    if code != f"{__name__}.HuggingFaceImages.__getitem__":
        line = f"the {type(dataset).__name__} overrides `__getitem__`"
        raise Unknown(line, "give HuggingFaceImages a transform instead")
    n = len(dataset)
    records = _records(dataset)
    return Source(
        name=f"HuggingFaceImages, {n} rows",
        records=records,
        n_samples=n,
        transform=dataset.transform,
        fields=_fields(dataset, records.labels),
        notes=(_ORIENTATION,),
        marks=Marks()
        .of(dataset)
        .data(dataset, "rows", "image", "label", "names")
        .transforms(dataset, "transform"),
    )


def _fields(dataset: HuggingFaceImages, labels: list[int] | None) -> Fields:
    if dataset.names is not None:
        return Named(dataset.named, dataset.names[dataset.image])
    return paired(dataset.target, labels, None)


def _records(dataset: HuggingFaceImages) -> Listing | Fetched:
    if len(dataset) == 0:
        return listing([])
    labels = _labels(dataset) if dataset.names is None else None
    table = dataset.rows.data.table
    column = table.column(dataset.image)
    rows = _indices(dataset.rows)
    pieces = column_pieces(column, rows)
    if pieces is None:
        return Fetched(dataset.content, len(dataset), "HuggingFaceImages", labels)
    if isinstance(pieces, Pieces):
        return listing(pieces.files, extents=pieces.extents, labels=labels)
    _refuse_remote(pieces)
    return listing(pieces, labels=labels)


def _labels(dataset: HuggingFaceImages) -> list[int] | None:
    column = dataset.rows.data.table.column(dataset.label)
    if str(column.type) not in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32"):
        return None
    rows = _indices(dataset.rows)
    return exact_labels((column if rows is None else column.take(rows)).to_pylist())


def _indices(rows: Any) -> Any:
    """The rows of the table in the data set's order; None if that is the table's own order."""
    indices = rows._indices
    return None if indices is None else indices.column(0).combine_chunks()


def _row(rows: Any, i: int) -> int:
    indices = rows._indices
    return i if indices is None else int(indices.column(0)[i].as_py())


def _use_images(rows: Any) -> Unknown:
    column = next(
        (name for name, kind in rows.features.items() if is_a(kind, _IMAGE)), None
    )
    if column is None:
        return Unknown("the datasets.Dataset has no column of images")
    given = "" if column == "image" else f", image={column!r}"
    return Unknown(
        "a datasets.Dataset decodes its images itself, and calls its transform with several rows",
        f"give bothends.torch.HuggingFaceImages(rows, transform{given}), "
        "where transform is called with one image",
    )


_IMAGE = "datasets.features.image.Image"


def _refuse_other(rows: Any) -> None:
    if is_a(rows, _DATASET):
        return
    if is_a(rows, _DICT):
        splits = ", ".join(map(repr, rows))
        raise OptionsError(f"`rows` is a DatasetDict; give one of its splits: {splits}")
    if is_a(rows, _STREAM):
        raise OptionsError("`rows` is a stream; load it with streaming=False")
    raise OptionsError(f"`rows` is of type {type(rows).__name__}; give a datasets.Dataset")


def _refuse_column(rows: Any, column: str) -> None:
    if column in rows.column_names:
        return
    nearest = difflib.get_close_matches(column, rows.column_names, 1, 0.4)
    maybe = f"; did you mean {nearest[0]!r}?" if nearest else ""
    columns = ", ".join(rows.column_names)
    raise OptionsError(f"there is no column {column!r}{maybe} The columns are {columns}")


def _refuse_remote(paths: list[str]) -> None:
    remote = next((path for path in paths if "://" in path), None)
    if remote is not None:
        raise Unknown(f"the image {remote} is not in a local file", "download the images first")
