"""Several data sets in one epoch, by weight."""

import os
from collections.abc import Mapping
from typing import Any

from . import _native
from ._errors import OptionsError


class Mix:
    """Several data sets that a `Loader` mixes: every batch has samples of each, in proportion to
    the weights.

        mix = bothends.Mix({"a": ("/data/a", 2), "b": "/data/b"})
        loader = bothends.Loader(mix, recipe="imagenet-train", batch_size=96)

    A batch of 96 then has 64 samples of `a` and 32 of `b`. If a weight's part of a batch is not a
    whole number, batches have that number rounded up or down, and over the smallest number of
    batches for which all parts are whole, the numbers are exact.

    Args:
        sources: by name, the data set, or the data set and its weight (1 if not given). Sample ids
            follow this order. Devices look for the files of a data set below a folder with its
            name, or below the data root that they are given for it (`--data-root NAME=DIR`).
        stop: when an epoch ends: "first", before a sample of any data set comes twice; "all", when
            every sample has come at least once; or a number of samples, after which each data set
            continues in the next epoch where it was.
        replacement: whether samples are drawn with replacement. Otherwise a data set that is
            exhausted begins again in another order, with other random numbers.
        labels: "merge": classes with the same name are one class, and the classes of later data
            sets follow those of earlier ones (labels stay as they are if no data set names its
            classes); "keep": every label stays as it is; "offset": every data set has classes of
            its own.
    """

    def __init__(
        self,
        sources: Mapping[str, Any],
        *,
        stop: str | int = "first",
        replacement: bool = False,
        labels: str = "merge",
    ) -> None:
        if not isinstance(sources, Mapping) or not sources:
            raise OptionsError('a mix needs data sets by name: {"a": (path, weight), "b": path}')
        self._options: dict[str, Any] = {
            "sources": [_source(name, source) for name, source in sources.items()],
            "stop": stop,
            "replacement": replacement,
            "labels": labels,
        }

    @property
    def options(self) -> dict[str, Any]:
        """The mix in JSON, as in a loader's option `data`."""
        return self._options

    def __repr__(self) -> str:
        sources = self._options["sources"]
        shown = _native.without_secrets
        parts = [f"{each['name']}={shown(each['data'])} x {each['weight']}" for each in sources]
        return f"<bothends.Mix {', '.join(parts)}>"


def _source(name: str, source: Any) -> dict[str, Any]:
    data, weight = source if isinstance(source, (tuple, list)) and len(source) == 2 else (source, 1)
    if not isinstance(name, str) or not isinstance(data, (str, os.PathLike)):
        raise OptionsError(f"data set {name!r} of the mix is {source!r}; give (path, weight)")
    return {"name": name, "data": os.fspath(data), "weight": weight}
