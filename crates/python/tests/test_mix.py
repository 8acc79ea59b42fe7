"""Several data sets in one epoch: each batch has its part of each, and says which is which."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import bothends
import numpy as np
import pytest

from images import write_photos
from streams import SMALL


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """12 small JPEGs in 3 class folders, the first three of the other data set's."""
    folder = tmp_path_factory.mktemp("other")
    write_photos(folder, 12, 3, side=40)
    return folder


def loader(mix: bothends.Mix, **options: Any) -> bothends.Loader:
    plain = {"batch_size": 6, "output": "u8", "layout": "nhwc", "framework": "numpy"}
    return bothends.Loader(mix, SMALL, **{**plain, **options})


def test_every_batch_has_two_to_one(small: Path, other: Path) -> None:
    mixed = loader(bothends.Mix({"a": (small, 2), "b": other}))
    assert mixed.sources == ["a", "b"] and len(mixed) == 5 and len(mixed.dataset) == 30
    seen = []
    for batch in mixed.batches():
        assert batch.source.dtype == np.int64
        assert np.bincount(batch.source).tolist() == [4, 2]
        assert ((batch.sample_ids % 35 >= 23) == (batch.source == 1)).all()
        assert (batch.labels[batch.source == 1] < 3).all()
        seen.extend(batch.sample_ids.tolist())
    assert len(set(seen)) == 30 and max(seen) < 35
    assert mixed.stats()["sources"] == [
        {"name": "a", "samples": 20},
        {"name": "b", "samples": 10},
    ]


def test_a_mix_ends_where_it_says_and_is_resumed(small: Path, other: Path) -> None:
    lengths = {"first": 5, "all": 6, 12: 2}
    for stop, n in lengths.items():
        assert len(loader(bothends.Mix({"a": (small, 2), "b": other}, stop=stop))) == n
    mix = bothends.Mix({"a": (small, 0.5), "b": (other, 0.5)}, stop=60, replacement=True)
    whole = [batch.sample_ids.tolist() for batch in loader(mix).batches()]
    first = loader(mix)
    batches = first.batches()
    for _ in range(4):
        next(batches)
    rest = loader(mix)
    rest.load_state_dict(first.state_dict())
    assert [batch.sample_ids.tolist() for batch in rest.batches()] == whole[4:]
    again = pickle.loads(pickle.dumps(first))
    assert [batch.sample_ids.tolist() for batch in again.batches()] == whole[4:]
    assert "other" in repr(first)
    url = bothends.Mix({"a": "redis://user:secret@host/x"})
    assert repr(url) == "<bothends.Mix a=redis://host/x x 1>"


def test_labels_are_merged_or_kept_apart(small: Path, other: Path) -> None:
    sources = {"a": small, "b": other}
    assert len(loader(bothends.Mix(sources)).classes) == 5
    apart = loader(bothends.Mix(sources, labels="offset"))
    assert len(apart.classes) == 8 and apart.classes[5] == "b/class0"
    assert loader(bothends.Mix({"only": small})).sources == ["only"]


def test_what_is_no_mix_is_refused(small: Path, other: Path) -> None:
    for wrong in ({}, [small], {"a": (small, 1, 2)}, {"a": 3}):
        with pytest.raises(bothends.OptionsError):
            bothends.Mix(wrong)  # type: ignore[arg-type]
    for line, options in {
        "is not an end of an epoch": {"stop": "last"},
        "use merge, keep or offset": {"labels": "merged"},
    }.items():
        with pytest.raises(bothends.OptionsError, match=line):
            loader(bothends.Mix({"a": small, "b": other}, **options))
    with pytest.raises(bothends.OptionsError, match="weight of `b` must be a number above 0"):
        loader(bothends.Mix({"a": small, "b": (other, 0)}))
    with pytest.raises(bothends.DataError, match="data set `b`"):
        loader(bothends.Mix({"a": small, "b": "/nowhere"}))


def test_a_loader_of_one_data_set_has_source_0(small: Path) -> None:
    plain = bothends.Loader(small, SMALL, batch_size=23, last="pad", framework="numpy")
    (batch,) = plain.batches()
    assert plain.sources == [] and (batch.source == 0).all()
