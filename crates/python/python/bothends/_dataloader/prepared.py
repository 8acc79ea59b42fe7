"""What bothends makes of a data set and its transforms, decided before anything is opened.

`prepare` asks `_sources` what the data set is and `_transforms` what its transforms become. `Left`
says why something is left to PyTorch's own loader. Reading order: `Prepared` is the product;
`finisher` describes what Python still does to a batch, and where.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.utils.data

from .rows import ImageRow, is_default_collate, rows
from .._sources import Fetched, Listing, Path, Source, Unknown, recognise
from .._transforms import Translation, translate
from .._workers import Task, numbers_kept, seed_for


class Left(Exception):
    """Why bothends does not read a data set.

    Args:
        why: what is unknown about the data set, the sampler or a transform.
        remedy: what to change so that bothends can load it; None if nothing helps.
    """

    def __init__(self, why: str, remedy: str | None = None) -> None:
        super().__init__(why if remedy is None else f"{why}; {remedy}")
        self.why = why
        self.remedy = remedy


@dataclass(frozen=True)
class Prepared:
    """A data set as bothends loads it.

    Attributes:
        source: where its records are.
        translation: what its transforms become.
    """

    source: Source
    translation: Translation

    @property
    def lines(self) -> list[str]:
        """What became of it, in plain words."""
        source, translation = self.source, self.translation
        lines = [f"data set: {source.name}", *(f"  note: {note}" for note in source.notes)]
        lines += [f"transform: {line}" for line in translation.words or ["none"]]
        return lines

    @property
    def labels_are_native(self) -> bool:
        """Whether the native loader knows the labels, which are the targets."""
        labels = self.source.fields.labels
        return labels is not None and (
            isinstance(self.source.records, Path) or _fit_natively(labels)
        )


def prepare(dataset: Any) -> Prepared:
    """Recognises a data set and translates its transforms; opens nothing.

    Raises:
        Left: something about it is unknown.
    """
    try:
        source = recognise(dataset)
    except Unknown as unknown:
        raise Left(unknown.why, unknown.remedy) from unknown
    translation = translate(source.transform, image_size=source.image_size)
    if not translation.has_fixed_size:
        remedy = next(iter(translation.remedies), None)
        why = (translation.warning or "its samples have no common size").removesuffix(".")
        # A warning has the remedy at its end.
        raise Left(why if remedy is None else why.removesuffix(f"; {remedy}"), remedy)
    return Prepared(source, translation)


def native_labels(source: Source) -> list[int]:
    """Labels for the table of samples; zeros if they are not class labels."""
    labels = source.fields.labels
    n = source.n_samples
    return labels if labels is not None and _fit_natively(labels) else [0] * n


def data_name(records: Listing | Fetched) -> str:
    """The root of the files, or the name of the records in messages."""
    return records.root if isinstance(records, Listing) else records.name


def _fit_natively(labels: list[int]) -> bool:
    return not labels or (min(labels) >= 0 and max(labels) < 2**32)


# ---- what Python does to a batch ------------------------------------------------------------


@dataclass(frozen=True)
class Whole:
    """A batch as the native loader delivers it, for Python to finish.

    Attributes:
        images: one tensor or array per view, rows that hold a sample only.
        labels: of those rows.
        samples: indices of the data set.
        keys: the keys of the rows' random numbers: (seed, epoch) and each row's sample id.
    """

    images: list[Any]
    labels: Any
    samples: list[int]
    keys: tuple[int, int, list[int]]


# The random numbers of batches come after those of all samples.
_OF_BATCHES = 2**63


class Finish:
    """The work in Python that makes a batch what PyTorch's loader would give.

    Attributes:
        runs_transforms: whether transforms remain, which run in workers; the rest is done in the
            thread that asks for the batch.
    """

    def __init__(self, prepared: Prepared, collate_fn: Callable[[list[Any]], Any]) -> None:
        self._prepared = prepared
        self._fields = prepared.source.fields
        self._rest = prepared.translation.rest
        self._result = prepared.translation.result
        self._input = _INPUTS[prepared.translation.rest_input]
        self._collate = collate_fn
        self._is_default = is_default_collate(collate_fn)
        self._native_labels = prepared.labels_are_native
        self.runs_transforms = self._rest is not None
        # Whether code of the script sees single samples.
        self._draws = self.runs_transforms or not self._native_labels and self._fields.may_draw
        # Whether the images go through as they are.
        self._is_whole = self._is_default and not self.runs_transforms

    def is_of(self, prepared: Prepared, collate_fn: Callable[[list[Any]], Any]) -> bool:
        return self._prepared is prepared and self._collate is collate_fn

    @property
    def is_nothing(self) -> bool:
        """Whether a batch needs no further work once it is delivered."""
        return self._is_whole and self._native_labels

    @property
    def needs_labels(self) -> bool:
        """Whether it reads the native labels."""
        return self._native_labels

    def here(self, batch: Whole) -> Any:
        """Finishes a batch in the calling thread."""
        if self.is_nothing:
            return [_one_or_views(batch.images), batch.labels]
        if self._is_whole and not self._draws:
            return self._finished(batch)
        with numbers_kept():
            return self._finished(batch)

    def in_worker(self, task: Task) -> Any:
        """Finishes a batch in a worker, whose arrays are its own."""
        samples, labels, keys = task.extra
        return self._finished(Whole(task.images, labels, samples, keys))

    def _finished(self, batch: Whole) -> Any:
        if not batch.samples and self._is_default:
            # `default_collate` refuses the empty list; what it would return is known from a sample.
            return emptied(self._finished(_stand_in(batch)))
        return self._collated(self._samples(batch), batch)

    def _samples(self, batch: Whole) -> list[Any]:
        """What `collate_fn` gets."""
        images = _one_or_views(batch.images)
        if self._is_whole:
            # The images are not touched: default_collate takes them as they are.
            whole = [ImageRow(images, row) for row in range(len(batch.samples))]
            return self._put_together(whole, batch, _same)
        show = self._transformed if self.runs_transforms else self._shown(batch.images[0])
        if self._native_labels and show in (_same, _image):
            return rows(images, batch.labels, show=show)
        return self._put_together(_each_row(batch.images), batch, show)

    def _transformed(self, image: Any) -> Any:
        assert self._rest is not None
        return self._rest(self._input(image))

    def _shown(self, images: Any) -> Callable[[Any], Any]:
        """What makes of a row of these images what the data set has in a sample."""
        if self._result == "image":
            return _image
        # Not if `output` or `layout` asks for something else.
        is_pil = images.dtype is torch.uint8 and images.shape[-1] in (1, 3)
        return _pil if self._result == "pil" and is_pil else _same

    def _collated(self, samples: list[Any], batch: Whole) -> Any:
        """The result of `collate_fn`; its random numbers are keyed by the batch (mixup)."""
        seed, epoch, ids = batch.keys
        if self._draws or not self._is_default:
            seed_for(seed, epoch, _OF_BATCHES + (ids[0] if ids else 0))
        return self._collate(samples)

    def _put_together(
        self, images: list[Any], batch: Whole, show: Callable[[Any], Any]
    ) -> list[Any]:
        """The samples. Each draws its own random numbers, in its transforms and then in what the
        data set does to its target."""
        seed, epoch, ids = batch.keys
        put: Callable[[Any, int], Any] = self._fields.put_together
        others = batch.samples
        if self._native_labels:
            put = _labelled
            others = batch.labels if isinstance(batch.labels, list) else batch.labels.tolist()
        made = []
        for image, other, number in zip(images, others, ids, strict=True):
            if self._draws:
                seed_for(seed, epoch, number)
            made.append(put(show(image), other))
        return made


def _stand_in(batch: Whole) -> Whole:
    """A batch of one black sample, of the same form as an empty one."""
    seed, epoch, _ = batch.keys
    return Whole([_black(view) for view in batch.images], [0], [0], (seed, epoch, [0]))


def _black(view: Any) -> Any:
    shape = (1, *view.shape[1:])
    if isinstance(view, torch.Tensor):
        return view.new_zeros(shape)
    import numpy

    return numpy.zeros(shape, view.dtype)


def emptied(batch: Any) -> Any:
    """What `default_collate` made of one sample, without that sample."""
    if isinstance(batch, torch.Tensor):
        return batch[:0]
    kind: Any = type(batch)
    if isinstance(batch, MutableMapping):
        # Not every such class can be made of a mapping alone.
        made = copy.copy(batch)
        made.update({name: emptied(value) for name, value in batch.items()})
        return made
    if isinstance(batch, Mapping):
        return kind({name: emptied(value) for name, value in batch.items()})
    is_leaf = all(isinstance(value, (str, bytes)) for value in batch)
    fields = [] if is_leaf else [emptied(value) for value in batch]
    return kind(*fields) if hasattr(batch, "_fields") else kind(fields)


def _one_or_views(views: list[Any]) -> Any:
    return views[0] if len(views) == 1 else views


def _each_row(views: list[Any]) -> list[Any]:
    """Each sample's image, or the tuple of its views."""
    return list(views[0]) if len(views) == 1 else list(zip(*views, strict=True))


def _labelled(image: Any, label: int) -> tuple[Any, int]:
    return image, label


def _same(image: Any) -> Any:
    return image


def _image(image: Any) -> Any:
    from torchvision import tv_tensors  # type: ignore[import-untyped]

    return tuple(map(_image, image)) if isinstance(image, tuple) else tv_tensors.Image(image)


def _pil(image: Any) -> Any:
    from PIL import Image

    pixels = image.numpy() if isinstance(image, torch.Tensor) else image
    return Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)


def _tensor(image: Any) -> torch.Tensor:
    """A tensor that the transform may write into: a worker already has its own array."""
    if isinstance(image, torch.Tensor):
        return image.clone()
    tensor = torch.from_numpy(image)
    # The only 16-bit integers here are bfloat16, which NumPy does not have.
    return tensor.view(torch.bfloat16) if tensor.dtype is torch.int16 else tensor


_INPUTS: dict[str, Callable[[Any], Any]] = {"pil": _pil, "tensor": _tensor, "none": _tensor}
