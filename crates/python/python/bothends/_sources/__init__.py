"""From a data set to what bothends reads: files, parts of files, or bytes from a call.

Nothing is opened here except CIFAR-10's pickled batches, to compare them, and a few images in an
Arrow file. Data sets are recognised by the code that runs when they are indexed (`code`), so only
libraries that the data set has already imported are used.
"""

from __future__ import annotations

import os
from typing import Any

from .code import getitem, is_a
from .fields import Fields
from .huggingface import HuggingFaceImages, huggingface_source
from .nested import nested_source
from .records import Fetched, Listing, Path, Records, Source, Unknown
from .samples import SampleProtocol, Samples, decoded, has_sample, samples_source
from .timm import timm_source
from .torchvision import torchvision_source

__all__ = [
    "Fetched",
    "Fields",
    "HuggingFaceImages",
    "Listing",
    "Path",
    "Records",
    "SampleProtocol",
    "Samples",
    "Source",
    "Unknown",
    "decoded",
    "is_in_memory",
    "recognise",
]

_ADD_SAMPLE = (
    "give it a method sample(i) that returns the image's path or bytes and the target: "
    "bothends.torch.Samples"
)


def recognise(dataset: Any) -> Source:
    """What bothends reads instead of `dataset[i]`.

    Raises:
        Unknown: `dataset[i]` could be anything: it is left to PyTorch's own loader.
    """
    source = _recognised(dataset)
    if source.n_samples == 0:
        raise Unknown("the data set has no samples")
    return source


def _recognised(dataset: Any) -> Source:
    try:
        return _of_a_library(dataset)
    except Unknown:
        # A data set that is known but refused may still say where its images are.
        if has_sample(dataset):
            return samples_source(dataset)
        raise


def _of_a_library(dataset: Any) -> Source:
    if isinstance(dataset, (str, os.PathLike)):
        raise Unknown(
            f"the data set is the path {os.fspath(dataset)!r}",
            "give torchvision.datasets.ImageFolder(path, transform), or use bothends.Loader",
        )
    code = getitem(dataset)
    found = (
        huggingface_source(dataset, code)
        or torchvision_source(dataset, code)
        or nested_source(dataset, code, _recognised)
        or timm_source(dataset, code)
    )
    if found is not None:
        return found
    if is_a(dataset, "torch.utils.data.dataset.IterableDataset"):
        line = f"the {type(dataset).__name__} is a stream, which cannot be indexed"
        raise Unknown(line, _ADD_SAMPLE)
    if is_in_memory(dataset):
        line = f"the samples of a {type(dataset).__name__} are in memory, without images to read"
        raise Unknown(line)
    raise Unknown(f"the data set {_name(dataset)} is not known", _ADD_SAMPLE)


def is_in_memory(dataset: Any) -> bool:
    """Whether it holds its samples as they are, so that nothing is read or decoded."""
    kinds = ("torch.utils.data.dataset.TensorDataset", "numpy.ndarray", "torch.Tensor")
    return type(dataset) in (list, tuple, range, dict) or _name(dataset) in kinds


def _name(dataset: Any) -> str:
    return f"{type(dataset).__module__}.{type(dataset).__qualname__}"
