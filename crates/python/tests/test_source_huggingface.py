"""Data sets of Hugging Face's: the images' bytes where they are on disk."""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import pytest

hf = pytest.importorskip("datasets", reason="datasets is not installed")

import bothends
from bothends._sources import (
    Fetched,
    HuggingFaceImages,
    Listing,
    Source,
    Unknown,
    recognise,
)
from PIL import Image

from images import photo

N = 30


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    hf.disable_progress_bars()


def encoded(n: int, kind: str = "JPEG") -> bytes:
    file = io.BytesIO()
    photo(n, 30 + n % 7, 40).save(file, kind)
    return file.getvalue()


def rows(kind: str = "JPEG") -> Any:
    features = hf.Features(
        {"image": hf.Image(), "label": hf.ClassLabel(names=list("abc")), "text": hf.Value("string")}
    )
    columns = {
        "image": [{"bytes": encoded(n, kind), "path": f"{n}.jpg"} for n in range(N)],
        "label": [n % 3 for n in range(N)],
        "text": [f"text {n}" for n in range(N)],
    }
    return hf.Dataset.from_dict(columns, features=features)


@pytest.fixture
def mapped(tmp_path: Path) -> Any:
    """In memory maps of two files, as what was downloaded is."""
    rows().save_to_disk(tmp_path / "rows", num_shards=2)
    return hf.load_from_disk(str(tmp_path / "rows"))


def content(source: Source, i: int) -> bytes:
    records = source.records
    if isinstance(records, Fetched):
        return records.fetch(i)
    assert isinstance(records, Listing)
    whole = (Path(records.root) / records.paths[i]).read_bytes()
    if records.extents is None:
        return whole
    offset, length = records.extents[i]
    return whole[offset : offset + length]


def assert_same(dataset: HuggingFaceImages) -> Source:
    source = recognise(dataset)
    assert source.n_samples == len(dataset)
    assert source.changed(dataset) is None
    copied = pickle.loads(pickle.dumps(dataset))
    fields = pickle.loads(pickle.dumps(source.fields))
    for i in range(len(dataset)):
        image = Image.open(io.BytesIO(content(source, i))).convert("RGB")
        made = source.fields.put_together(image, i)
        assert made == dataset[i] == copied[i] == fields.put_together(image, i)
        if source.fields.labels is not None:
            assert made == (image, source.fields.labels[i])
    return source


def test_memory_maps_are_pieces_of_files(mapped: Any) -> None:
    source = assert_same(HuggingFaceImages(mapped))
    assert isinstance(source.records, Listing) and source.records.extents is not None
    assert len(set(source.records.paths)) == 2
    assert all(path.endswith(".arrow") for path in source.records.paths)
    assert source.fields.labels == [n % 3 for n in range(N)]


def test_chosen_rows(mapped: Any) -> None:
    for chosen in (
        mapped.select([5, 3, 3, 29]),
        mapped.shuffle(seed=3),
        mapped.filter(lambda row: row["label"] == 1),
        mapped.train_test_split(0.3, seed=1)["test"],
        mapped.select(range(10, 20)),
        mapped.sort("text").select([4, 0]),
        hf.concatenate_datasets([mapped, mapped.select([1])]),
        mapped.with_format("torch"),
        mapped.with_transform(lambda batch: batch),
    ):
        records = assert_same(HuggingFaceImages(chosen)).records
        assert isinstance(records, Listing)


def test_a_table_in_memory_is_fetched() -> None:
    source = assert_same(HuggingFaceImages(rows("PNG").shuffle(seed=1)))
    assert isinstance(source.records, Fetched)
    assert source.records.labels == source.fields.labels


def test_files_of_their_own(small: Path, mapped: Any) -> None:
    files = sorted(map(str, small.rglob("*.jpg")))
    paths = hf.Dataset.from_dict({"image": files, "label": list(range(len(files)))})
    source = assert_same(HuggingFaceImages(paths.select([3, 1])))
    assert isinstance(source.records, Listing) and source.records.extents is None
    images = paths.cast_column("image", hf.Image())
    assert isinstance(assert_same(HuggingFaceImages(images)).records, Listing)
    mixed = hf.concatenate_datasets([images.cast_column("label", mapped.features["label"]), mapped])
    if "text" in mixed.column_names:
        mixed = mixed.remove_columns("text")
    assert isinstance(assert_same(HuggingFaceImages(mixed)).records, Fetched)


def test_samples_with_names(mapped: Any) -> None:
    names = {"label": "labels", "image": "pixel_values", "text": "text"}
    dataset = HuggingFaceImages(mapped.shuffle(seed=2), names=names)
    source = assert_same(dataset)
    assert source.fields.labels is None
    assert list(dataset[0]) == ["labels", "pixel_values", "text"]
    assert set(source.fields.target(3)) == {"labels", "text"}
    alone = HuggingFaceImages(mapped, names={"image": "x"})
    assert list(assert_same(alone).fields.put_together("image", 3)) == ["x"]
    texts = HuggingFaceImages(mapped, label="text")
    assert assert_same(texts).fields.target(4) == "text 4"


def test_changes_are_seen(mapped: Any) -> None:
    dataset = HuggingFaceImages(mapped, str)
    source = recognise(dataset)
    dataset.transform = repr
    assert "`transform`" in (source.changed(dataset) or "")
    dataset.transform = str
    dataset.rows = mapped.shuffle(seed=1)
    assert "`rows`" in (source.changed(dataset) or "")


def test_a_file_that_was_replaced_is_not_read(mapped: Any) -> None:
    for cached in mapped.cache_files:
        file = Path(cached["filename"])
        other = bytes(len(file.read_bytes()))
        file.unlink()
        file.write_bytes(other)
    assert isinstance(recognise(HuggingFaceImages(mapped)).records, Fetched)


def test_rows_that_are_no_images(mapped: Any) -> None:
    with pytest.raises(Unknown, match="has a format that is not read"):
        recognise(HuggingFaceImages(save(mapped, rows("TGA"))))
    empty = hf.Dataset.from_dict({"image": [None, None], "label": [1, 2]})
    with pytest.raises(Unknown, match="no image"):
        recognise(HuggingFaceImages(empty.cast_column("image", hf.Image())))
    remote = hf.Dataset.from_dict({"image": ["https://example.org/a.jpg"], "label": [1]})
    with pytest.raises(Unknown, match="not in a local file"):
        recognise(HuggingFaceImages(remote))
    with pytest.raises(Unknown, match="no samples"):
        recognise(HuggingFaceImages(mapped.select([])))


def save(mapped: Any, other: Any) -> Any:
    """A memory map of another data set, next to the first one's files."""
    folder = Path(mapped.cache_files[0]["filename"]).parent / "other"
    other.save_to_disk(folder)
    return hf.load_from_disk(str(folder))


def test_the_rows_themselves_name_the_remedy(mapped: Any) -> None:
    with pytest.raises(Unknown, match=r"HuggingFaceImages\(rows, transform\)"):
        recognise(mapped.with_transform(lambda batch: batch))
    with pytest.raises(Unknown, match="image='picture'"):
        recognise(mapped.rename_column("image", "picture"))
    with pytest.raises(Unknown, match=r"dataset\['train'\]"):
        recognise(hf.DatasetDict({"train": mapped}))
    with pytest.raises(Unknown, match="streaming=False"):
        recognise(mapped.to_iterable_dataset())


def test_wrong_arguments(mapped: Any) -> None:
    for arguments, said in (
        ({"image": "img"}, "no column 'img'.*did you mean 'image'"),
        ({"label": "lable"}, "did you mean 'label'"),
        ({"names": {"label": "labels"}}, "no 'image'"),
    ):
        with pytest.raises(bothends.OptionsError, match=said):
            HuggingFaceImages(mapped, **arguments)
    with pytest.raises(bothends.OptionsError, match="'train'"):
        HuggingFaceImages(hf.DatasetDict({"train": mapped}))
    with pytest.raises(bothends.OptionsError, match="type list"):
        HuggingFaceImages([1])
    with pytest.raises(bothends.OptionsError, match="stream"):
        HuggingFaceImages(mapped.to_iterable_dataset())
