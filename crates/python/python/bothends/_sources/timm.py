"""timm's `ImageDataset` over a folder or over tar files."""

from __future__ import annotations

import os
from typing import Any

from .code import getitem, home, refuse_batched
from .fields import paired
from .marks import Marks
from .records import Listing, Source, Unknown, exact_labels, listing

_READERS = "timm.data.readers."
_FOLDER = f"{_READERS}reader_image_folder.ReaderImageFolder.__getitem__"
_TAR = f"{_READERS}reader_image_in_tar.ReaderImageInTar.__getitem__"
_HUGGING_FACE = f"{_READERS}reader_hfds.ReaderHfds.__getitem__"
_BROKEN = (
    "timm replaces an image that cannot be read with the next one; bothends does what `on_bad` says"
)


def timm_source(dataset: Any, code: str) -> Source | None:
    """The source, if the data set is timm's `ImageDataset`.

    Raises:
        Unknown: its reader or its options are unknown.
    """
    if code != "timm.data.dataset.ImageDataset.__getitem__":
        return None
    refuse_batched(dataset)
    if home(type(dataset).__len__) != "timm.data.dataset.ImageDataset.__len__":
        raise Unknown(f"the {type(dataset).__name__} overrides `__len__`")
    if dataset.load_bytes:
        line = "the ImageDataset gives bytes instead of images (load_bytes)"
        raise Unknown(line, "leave load_bytes out")
    if dataset.input_img_mode != "RGB":
        line = f"the ImageDataset converts to {dataset.input_img_mode!r}, not to RGB"
        raise Unknown(line, "leave input_img_mode out")
    reader = dataset.reader
    files, targets = _records(reader)
    labels = exact_labels(targets)
    to_target = dataset.target_transform
    records = Listing(files.root, files.paths, files.extents, None if to_target else labels)
    marks = Marks().of(dataset).data(dataset, "reader", "load_bytes", "input_img_mode")
    return Source(
        name=f"ImageDataset, {len(files)} files",
        records=records,
        n_samples=len(files),
        transform=dataset.transform,
        fields=paired(targets, labels, to_target),
        notes=(_BROKEN,),
        marks=marks.data(reader, "samples").transforms(
            dataset, "transform", "target_transform"
        ),
    )


def _records(reader: Any) -> tuple[Listing, list[Any]]:
    code = getitem(reader)
    if code == _FOLDER:
        samples = reader.samples
        files = listing([file for file, _ in samples], reader.root)
        return files, [target for _, target in samples]
    if code == _TAR:
        return _members(reader), list(reader.targets)
    if code == _HUGGING_FACE:
        raise Unknown(
            "timm's reader of Hugging Face data sets is not known",
            "give bothends.torch.HuggingFaceImages(datasets.load_dataset(...), transform)",
        )
    raise Unknown(f"the reader {type(reader).__name__} of the ImageDataset is not known")


def _members(reader: Any) -> Listing:
    """Members of tar files, and of tar files inside these: parts of the outer file."""
    files: list[str] = []
    extents: list[tuple[int, int]] = []
    for member, outer, inner in reader.samples:
        if member.sparse is not None or not member.isreg():
            raise Unknown(f"the member {member.name} of a tar file is not a regular file")
        start = 0 if inner is None else inner.offset_data
        files.append(os.path.join(reader.root, outer) if outer else reader.root)
        extents.append((start + member.offset_data, member.size))
    return listing(files, extents=extents)
