"""The rows of a batch, for a `collate_fn`.

A batch is whole tensors; a user's `collate_fn` wants the list of its samples. `rows` and
`named_rows` make that list, of views. Its items are tuples and dicts as a data set gives them,
except that `torch.utils.data.default_collate` gives the whole tensors back, without a copy, when
it gets all rows of a batch in their order, unchanged. Anything else it treats like any tuples and
dicts.

The views share the batch's memory: a change that a `collate_fn` makes in place, to a row or to the
whole, shows in both. Only the first `default_collate` of the same rows gives the whole; a second
one gives a copy, as PyTorch's results share nothing with each other.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, SupportsIndex

import torch
import torch.utils.data
from torch.utils.data._utils.collate import collate, default_collate_fn_map

__all__ = ["ImageRow", "is_default_collate", "named_rows", "rows"]

Show = Callable[[torch.Tensor], torch.Tensor]


def is_default_collate(fn: Callable[[list[Any]], Any] | None) -> bool:
    """Whether a `collate_fn` is PyTorch's, so that whole batches need no rows."""
    return fn is None or fn is torch.utils.data.default_collate


def rows(images: Any, *targets: Any, show: Show | None = None) -> list[Any]:
    """The samples of a batch, as tuples.

    Args:
        images: a tensor, or a list or tuple of one tensor per view, which every sample's views
            are then a list or tuple of.
        targets: each a tensor, or a sequence of one object per sample. A tensor of int64, one per
            sample, gives Python's integers.
        show: makes what a sample holds of a row of the images: a tensor of the same memory.
    """
    whole = _Whole([_images(images, show), *map(_targets, targets)])
    made = list(map(_Row, zip(*(column.items for column in whole.columns), strict=True)))
    _join(made, whole)
    return made


def named_rows(fields: Mapping[str, Any], images: Collection[str] = ("image",)) -> list[Any]:
    """The samples of a batch, as dicts.

    Args:
        fields: the columns by their names; those in `images` as `images` of `rows`, the others
            as `targets` there.
    """
    kinds = [_images if name in images else _targets for name in fields]
    whole = _Whole([kind(field) for kind, field in zip(kinds, fields.values(), strict=True)])
    names = tuple(fields)
    made = [
        _NamedRow(zip(names, values, strict=True))
        for values in zip(*(column.items for column in whole.columns), strict=True)
    ]
    _join(made, whole)
    return made


class ImageRow:
    """Stands for a sample's image anywhere in a sample, if only `default_collate` looks at it. All
    rows of a batch in order give its images, without a copy.

    Args:
        images: the batch: a tensor, or a list of one tensor per view.
        row: the number of the sample in the batch.
    """

    __slots__ = ("images", "row")

    def __init__(self, images: Any, row: int) -> None:
        self.images = images
        self.row = row

    @property
    def image(self) -> Any:
        """The image itself, or the list of its views."""
        if isinstance(self.images, torch.Tensor):
            return self.images[self.row]
        return [view[self.row] for view in self.images]

    def is_at(self, place: int, images: Any) -> bool:
        """Whether it is this row of this batch."""
        return self.images is images and self.row == place

    @property
    def n_rows(self) -> int:
        """Rows of the batch."""
        return len(self.images if isinstance(self.images, torch.Tensor) else self.images[0])


class _Column:
    """One field of all samples: what the rows hold, and the whole if there is one."""

    def __init__(self, items: Sequence[Any], whole: Any = None) -> None:
        self.items = items
        self.whole = whole

    def is_unchanged(self, items: Sequence[Any]) -> bool:
        """Whether these are its items, in order and unchanged."""
        return all(map(operator.is_, items, self.items))

    def collated(self, items: Sequence[Any], fns: Any) -> Any:
        return collate(items, collate_fn_map=fns) if self.whole is None else self.whole


class _Views(_Column):
    """Tensors of one row per sample."""

    def __init__(self, whole: torch.Tensor, show: Show | None = None) -> None:
        views = whole.unbind()
        super().__init__(views if show is None else tuple(map(show, views)), whole)

    def is_unchanged(self, items: Sequence[Any]) -> bool:
        # The same objects may have changed shape or type, or joined a graph, in place.
        return super().is_unchanged(items) and all(map(_is_same, items, self.whole.unbind()))


def _is_same(view: torch.Tensor, row: torch.Tensor) -> bool:
    return view.dtype is row.dtype and not view.requires_grad and view.is_set_to(row)


class _ManyViews(_Column):
    """Lists or tuples of several views of a sample."""

    def __init__(self, views: Sequence[torch.Tensor], show: Show | None = None) -> None:
        self._kind: type[list[Any]] | type[tuple[Any, ...]] = (
            tuple if isinstance(views, tuple) else list
        )
        self._columns = [_Views(view, show) for view in views]
        made = zip(*(column.items for column in self._columns), strict=True)
        # As in PyTorch's default_collate: lists and tuples both become a list.
        super().__init__([self._kind(views) for views in made], list(views))

    def is_unchanged(self, items: Sequence[Any]) -> bool:
        n = len(self._columns)
        if not super().is_unchanged(items) or any(len(item) != n for item in items):
            return False
        pairs = zip(self._columns, zip(*items, strict=True), strict=True)
        return all(column.is_unchanged(views) for column, views in pairs)


def _images(images: Any, show: Show | None = None) -> _Column:
    is_one = isinstance(images, torch.Tensor)
    return _Views(images, show) if is_one else _ManyViews(images, show)


def _targets(targets: Any) -> _Column:
    if not isinstance(targets, torch.Tensor):
        return _Column(targets)
    if targets.dim() == 1 and targets.dtype is torch.int64:
        return _Column(targets.tolist(), targets)
    return _Views(targets)


class _Whole:
    """The batch that rows belong to."""

    def __init__(self, columns: list[_Column]) -> None:
        self.columns = columns
        self.is_given = False

    def has_all(self, batch: Sequence[Any]) -> bool:
        """Whether these are all of its rows, in order."""
        kind = type(batch[0])
        return len(batch) == len(self.columns[0].items) and all(
            type(row) is kind and row.whole is self and row.place == place
            for place, row in enumerate(batch)
        )

    def given(self, fields: Sequence[Sequence[Any]], fns: Any) -> list[Any] | None:
        """The columns, the first time, if the rows' fields are unchanged."""
        pairs = list(zip(self.columns, fields, strict=True))
        if self.is_given or not all(column.is_unchanged(field) for column, field in pairs):
            return None
        self.is_given = True
        return [column.collated(field, fns) for column, field in pairs]


class _Row(tuple[Any, ...]):
    """A sample that knows its batch. A copy, a part or a pickle of it is a plain tuple."""

    whole: _Whole | None = None
    place: int = -1

    def __reduce_ex__(self, _: SupportsIndex) -> tuple[Any, ...]:
        return tuple, (list(self),)


class _NamedRow(dict[str, Any]):
    """A sample that knows its batch. A copy, a part or a pickle of it is a plain dict."""

    whole: _Whole | None = None
    place: int = -1

    def __reduce_ex__(self, _: SupportsIndex) -> tuple[Any, ...]:
        return dict, (list(self.items()),)


def _join(made: Sequence[_Row | _NamedRow], whole: _Whole) -> None:
    for place, row in enumerate(made):
        row.whole, row.place = whole, place


def _collate_rows(batch: Sequence[Any], *, collate_fn_map: Any = None) -> Any:
    whole = batch[0].whole
    if whole is not None and whole.has_all(batch):
        fields = list(zip(*batch, strict=True))
        if (columns := whole.given(fields, collate_fn_map)) is not None:
            return columns
    plain = [tuple(row) if type(row) is _Row else row for row in batch]
    return collate(plain, collate_fn_map=collate_fn_map)


def _collate_named_rows(batch: Sequence[Any], *, collate_fn_map: Any = None) -> Any:
    whole, names = batch[0].whole, list(batch[0])
    if whole is not None and whole.has_all(batch) and all(list(row) == names for row in batch):
        fields = [list(field) for field in zip(*(row.values() for row in batch), strict=True)]
        is_whole = len(fields) == len(whole.columns)
        columns = whole.given(fields, collate_fn_map) if is_whole else None
        if columns is not None:
            return dict(zip(names, columns, strict=True))
    plain = [dict(row) if type(row) is _NamedRow else row for row in batch]
    return collate(plain, collate_fn_map=collate_fn_map)


def _collate_images(batch: Sequence[Any], *, collate_fn_map: Any = None) -> Any:
    images = batch[0].images
    if len(batch) == batch[0].n_rows and all(
        type(row) is ImageRow and row.is_at(place, images) for place, row in enumerate(batch)
    ):
        return images if isinstance(images, torch.Tensor) else list(images)
    plain = [row.image if type(row) is ImageRow else row for row in batch]
    return collate(plain, collate_fn_map=collate_fn_map)


# PyTorch's documented way to make types known to `default_collate`.
default_collate_fn_map[ImageRow] = _collate_images
default_collate_fn_map[_Row] = _collate_rows
default_collate_fn_map[_NamedRow] = _collate_named_rows
