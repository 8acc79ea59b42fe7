"""Fields of samples, and files as they are: what real writers wrote (`scripts/golden-shards`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bothends

SHARDS = Path(__file__).parents[3] / "tests" / "fixtures" / "shards"


def caption(nth: int) -> str:
    return f"număr {nth}" * (nth % 3)


def mask(nth: int) -> bytes:
    return bytes([nth]) * (10 * nth + 1)


def loader(name: str, **options: Any) -> bothends.Loader:
    how: dict[str, Any] = {"batch_size": 4, "last": "pad", "framework": "numpy"}
    how["recipe"] = "imagenet-eval"
    return bothends.Loader(SHARDS / name, **{**how, **options})


@pytest.mark.parametrize("name", ["fields-mds", "fields-arrow", "fields-parquet"])
def test_text_and_bytes_are_lists_in_the_order_of_the_rows(name: str) -> None:
    n = 0
    for batch in loader(name, fields=["caption", "mask"], seed=3).batches():
        ids = batch.sample_ids.tolist()
        assert batch.fields["caption"] == [caption(i) if i >= 0 else "" for i in ids]
        assert batch.fields["mask"] == [mask(i) if i >= 0 else b"" for i in ids]
        n += batch.n_valid
    assert n == 7


def test_numbers_are_arrays_where_all_samples_have_the_same_shape() -> None:
    fields = ["small", "score", "is_sharp", "low", "size"]
    for batch in loader("fields-arrow", fields=fields).batches():
        for row, i in enumerate(batch.sample_ids.tolist()):
            got = {name: values[row].tolist() for name, values in batch.fields.items()}
            i, is_row = max(i, 0), i >= 0
            assert got["small"] == is_row * (200 + i)
            assert got["score"] == i / 4
            assert got["is_sharp"] == (i % 3 == 1)
            assert got["low"] == -i
            assert got["size"] == [i, is_row * 3]
        dtypes = [str(values.dtype) for values in batch.fields.values()]
        assert dtypes == ["uint8", "float64", "bool", "int16", "float32"]
        assert batch.fields["size"].shape == (4, 2)


def test_numbers_of_different_counts_are_ragged() -> None:
    (batch, *_) = loader("fields-arrow", fields="tags", shuffle=False).batches()
    tags = batch.fields["tags"]
    assert isinstance(tags, bothends.Ragged) and tags.values.dtype == np.int32
    rows = [tags.values[a:b].tolist() for a, b in zip(tags.offsets, tags.offsets[1:])]
    assert rows == [[], [-1], [-1, 0], [-1, 0, 1]]


def test_iterating_gives_the_fields_last() -> None:
    for images, labels, valid, fields in loader("fields-tar", fields=["txt"]):
        assert len(images) == len(labels) == len(valid) == len(fields["txt"]) == 4


def test_pytorch_gets_tensors() -> None:
    torch = pytest.importorskip("torch")
    options = {"framework": "torch", "last": "drop"}
    for _, _, fields in loader("fields-mds", fields=["score", "size"], **options):
        assert fields["score"].dtype == torch.float32 and fields["score"].shape == (4,)
        assert fields["size"].dtype == torch.int32 and fields["size"].shape == (4, 2, 3)


def test_a_field_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(bothends.DataError, match=r"no field `text`.*txt \(text\)"):
        loader("fields-tar", fields=["text"])


def test_raw_gives_the_files_as_they_are() -> None:
    files = sorted((SHARDS / "folder").rglob("*.jpg"))
    for images, labels in loader("folder", recipe="raw", output="u8", last="drop", shuffle=False):
        assert isinstance(images, bothends.Ragged) and len(images.offsets) == len(labels) + 1
        for row in range(len(labels)):
            data = images.values[images.offsets[row]:images.offsets[row + 1]].tobytes()
            assert data == files[row].read_bytes()
    with pytest.raises(bothends.DataError, match="output `u8`"):
        loader("folder", recipe="raw")


@pytest.mark.parametrize("name", ["compressed-tar", "compressed-parquet", "compressed-mds-zstd"])
def test_compressed_shards_are_decompressed_once(name: str, tmp_path: Path) -> None:
    def rows(data: str, **options: Any) -> list[Any]:
        taken = loader(data, seed=5, cache=tmp_path, **options).batches()
        return [(batch.sample_ids.tolist(), batch.labels.tolist(), batch.images[0].tobytes())
                for batch in taken]

    assert rows(name) == rows("folder")
    (made,) = (tmp_path / "decompressed").iterdir()
    before = (made / "about").stat().st_mtime_ns
    assert rows(name) == rows("folder")
    assert (made / "about").stat().st_mtime_ns == before
    with pytest.raises(bothends.DataError, match="compress"):
        loader(name, cache_size="off")
