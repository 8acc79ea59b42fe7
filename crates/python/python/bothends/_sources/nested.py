"""Data sets made of others: `Subset`, what `random_split` gives, and `ConcatDataset`."""

from __future__ import annotations

import bisect
import os
from collections.abc import Callable
from itertools import accumulate
from operator import index
from typing import Any

from .code import home
from .fields import Chosen, Fields, Joined, Labelled
from .marks import Marks, frozen
from .records import Fetched, Listing, Path, Records, Source, Unknown, joined

_HERE = "torch.utils.data.dataset."
# How many parts of a ConcatDataset are named.
_NAMED = 4
_SEPARATE = "make a loader of each"


def nested_source(
    dataset: Any, code: str, recognise: Callable[[Any], Source]
) -> Source | None:
    """The source, if the data set is a part of another one or a concatenation.

    Raises:
        Unknown: one of the underlying data sets is unknown, or they cannot be combined.
    """
    if code == f"{_HERE}Subset.__getitem__":
        return _subset(dataset, recognise)
    if code == f"{_HERE}ConcatDataset.__getitem__":
        return _concatenation(dataset, recognise)
    return None


def _subset(dataset: Any, recognise: Callable[[Any], Source]) -> Source:
    for name in ("__len__", "__getitems__"):
        method = getattr(type(dataset), name, None)
        if method is not None and home(method) != f"{_HERE}Subset.{name}":
            raise Unknown(f"the {type(dataset).__name__} overrides `{name}`", _REMOVE)
    below = recognise(dataset.dataset)
    rows = _rows(dataset.indices, below.n_samples)
    is_fast = below.fields.labels is not None
    records, of_path = below.records, None
    if isinstance(records, Path):
        of_path = rows if below.rows is None else [below.rows[row] for row in rows]
    else:
        records = _chosen(records, rows)
    return Source(
        name=f"{len(rows)} samples of {below.name}",
        records=records,
        n_samples=len(rows),
        transform=below.transform,
        fields=_labelled(below.fields, rows) if is_fast else Chosen(below.fields, rows),
        image_size=below.image_size,
        rows=of_path,
        notes=below.notes,
        marks=Marks().of(dataset).data(dataset, "dataset", "indices").all_of(below.marks),
    )


_REMOVE = "remove the method, if it does the same as that of torch.utils.data.Subset"


def _labelled(fields: Fields, rows: list[int]) -> Fields:
    labels = fields.labels or []
    return Labelled([labels[row] for row in rows])


def _rows(indices: Any, n: int) -> list[int]:
    """The numbers of the samples below, from 0, as indexing understands them.

    Raises:
        Unknown: one of them is not the number of a sample.
    """
    rows = indices.tolist() if hasattr(indices, "tolist") else list(indices)
    if not rows:
        return []
    kinds = set(map(type, rows))
    if kinds != {int}:
        if bool in kinds:
            raise Unknown("the Subset's indices are booleans", "give it numbers of samples")
        try:
            rows = [index(row) for row in rows]
        except TypeError:
            line = "the Subset's indices are not all numbers"
            raise Unknown(line, "give it numbers of samples") from None
    lowest, highest = min(rows), max(rows)
    if lowest < -n or highest >= n:
        wrong = highest if highest >= n else lowest
        raise Unknown(f"the Subset asks for sample {wrong} of {n}", "correct its indices")
    return [row + n if row < 0 else row for row in rows] if lowest < 0 else rows


def _chosen(records: Listing | Fetched, rows: list[int]) -> Records:
    if isinstance(records, Listing):
        return records.chosen(rows)
    labels = records.labels
    return Fetched(
        fetch=_FetchedRows(records.fetch, rows),
        n=len(rows),
        name=records.name,
        labels=None if labels is None else [labels[row] for row in rows],
        fetch_alone=_FetchedRows(records.keeping_nothing, rows),
    )


class _FetchedRows:
    def __init__(self, fetch: Callable[[int], bytes], rows: list[int]) -> None:
        self.fetch = fetch
        self.rows = rows

    def __call__(self, i: int) -> bytes:
        return self.fetch(self.rows[i])


class _FetchedParts:
    def __init__(self, parts: list[Callable[[int], bytes]], ends: list[int]) -> None:
        self.parts = parts
        self.ends = ends

    def __call__(self, i: int) -> bytes:
        n = bisect.bisect_right(self.ends, i)
        return self.parts[n](i - (self.ends[n - 1] if n else 0))


def _concatenation(dataset: Any, recognise: Callable[[Any], Source]) -> Source:
    if home(type(dataset).__len__) != f"{_HERE}ConcatDataset.__len__":
        raise Unknown(f"the {type(dataset).__name__} overrides `__len__`")
    if hasattr(dataset, "__getitems__"):
        raise Unknown(f"the {type(dataset).__name__} has `__getitems__`")
    sources = [recognise(part) for part in dataset.datasets]
    ends = list(accumulate(source.n_samples for source in sources))
    if ends != list(dataset.cumulative_sizes):
        line = "a part of the ConcatDataset has changed in length since it was made"
        raise Unknown(line, "create the ConcatDataset again")
    parts = [source for source in sources if source.n_samples] or sources[:1]
    first = parts[0]
    _refuse_other_transforms(parts)
    records, rows = _joined_records(parts)
    marks = Marks().of(dataset).data(dataset, "datasets", "cumulative_sizes")
    for source in sources:
        marks.all_of(source.marks)
    sizes = {part.image_size for part in parts}
    return Source(
        name=_joined_name(parts, ends[-1]),
        records=records,
        n_samples=ends[-1],
        transform=first.transform,
        fields=_joined_fields(parts),
        image_size=first.image_size if len(sizes) == 1 else None,
        rows=rows,
        notes=tuple(dict.fromkeys(note for part in parts for note in part.notes)),
        marks=marks,
    )


def _joined_name(parts: list[Source], n: int) -> str:
    if len(parts) > _NAMED:
        return f"{len(parts)} data sets, {n} samples"
    return " + ".join(part.name for part in parts)


def _refuse_other_transforms(parts: list[Source]) -> None:
    transform = parts[0].transform
    looks = None
    for part in parts[1:]:
        if part.transform is transform:
            continue
        looks = looks or frozen(transform)
        if frozen(part.transform) != looks:
            raise Unknown(
                "the parts of the ConcatDataset have different transforms",
                "give all of them the same transform, or " + _SEPARATE,
            )


def _joined_fields(parts: list[Source]) -> Fields:
    labels: list[int] = []
    for part in parts:
        if part.fields.labels is None:
            ends = list(accumulate(part.n_samples for part in parts))
            return Joined([part.fields for part in parts], ends)
        labels += part.fields.labels
    return Labelled(labels)


def _joined_records(parts: list[Source]) -> tuple[Records, list[int] | None]:
    """The records of all of them, and for a `Path` the record numbers."""
    records = [part.records for part in parts]
    if len(records) == 1:
        return records[0], parts[0].rows
    listings = [one for one in records if isinstance(one, Listing)]
    if len(listings) == len(records):
        return joined(listings), None
    fetched = [one for one in records if isinstance(one, Fetched)]
    if len(fetched) == len(records):
        return _joined_fetched(fetched), None
    paths = {os.path.normpath(one.data) for one in records if isinstance(one, Path)}
    if len(paths) == 1 and not listings and not fetched:
        rows: list[int] = []
        for part in parts:
            rows += part.rows if part.rows is not None else range(part.n_samples)
        return records[0], rows
    raise Unknown(
        "the parts of the ConcatDataset are of kinds that cannot be read together",
        _SEPARATE,
    )


def _joined_fetched(parts: list[Fetched]) -> Fetched:
    labels: list[int] | None = []
    for part in parts:
        labels = None if labels is None or part.labels is None else labels + part.labels
    names = " + ".join(dict.fromkeys(part.name for part in parts))
    ends = list(accumulate(part.n for part in parts))
    fetch = _FetchedParts([part.fetch for part in parts], ends)
    alone = _FetchedParts([part.keeping_nothing for part in parts], ends)
    return Fetched(fetch, ends[-1], names, labels, fetch_alone=alone)
