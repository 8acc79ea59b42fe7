"""What the package raises: the class, its attributes, and a line that names the remedy; broken
images under the four policies."""

from __future__ import annotations

import os
import shutil
import sys
import warnings
import zlib
from pathlib import Path
from typing import Any

import bothends
import numpy as np
import pytest

from images import photo
from streams import ids, loader, steps

RAISED: list[tuple[dict[str, Any], type[bothends.Error], str]] = [
    ({"batch_size": 0}, bothends.OptionsError, "`batch_size` is 0"),
    ({"seed": -1}, bothends.OptionsError, "`seed` is -1"),
    ({"workers": "many"}, bothends.OptionsError, "`workers` is"),
    ({"output": "f64"}, bothends.OptionsError, '"u8", "f32", "f16", "bf16"'),
    ({"layout": "chw"}, bothends.OptionsError, "nchw"),
    ({"last": "keep"}, bothends.OptionsError, '"drop", "pad", "wrap", "even"'),
    ({"on_bad": "ignore"}, bothends.OptionsError, "raise, skip, replace or zero"),
    ({"strategy": "best"}, bothends.OptionsError, "ordered"),
    ({"recipe": "imagenet"}, bothends.OptionsError, "imagenet-train"),
    ({"recipe": {"version": 1, "name": "x", "ops": [{"op": "no"}]}}, bothends.OptionsError, "no"),
    ({"framework": "tf"}, bothends.OptionsError, "torch, numpy, jax, cupy, dlpack"),
    ({"rank": 2, "world_size": 2}, bothends.OptionsError, "world_size"),
    ({"rank": 0, "world_size": None}, bothends.OptionsError, "together"),
    ({"batch_size": 24}, bothends.OptionsError, "24"),
    ({"csds": ["sim"]}, bothends.OptionsError, "csds sim"),
]


@pytest.mark.parametrize(("options", "error", "part"), RAISED)
def test_options(
    small: Path, options: dict[str, Any], error: type[bothends.Error], part: str
) -> None:
    with pytest.raises(error) as raised:
        loader(small, **options)
        len(loader(small, **options))
    assert part in str(raised.value), raised.value
    assert "--" not in str(raised.value), "Python has keys, not flags"


UNKNOWN = [("bacth_size", "batch_size"), ("num_workers", "workers"), ("drop_last", "last")]


@pytest.mark.parametrize(("name", "near"), UNKNOWN)
def test_an_unknown_option_names_the_nearest(small: Path, name: str, near: str) -> None:
    with pytest.raises(bothends.OptionsError, match=f"`{name}`.* did you mean `{near}`"):
        bothends.Loader(small, "raw", **{name: 3})


def test_an_unknown_option_like_none_is_named(small: Path) -> None:
    with pytest.raises(bothends.OptionsError, match="`zzz` is not an option of bothends.Loader$"):
        bothends.Loader(small, "raw", zzz=3)


def test_without_a_framework_the_error_names_what_to_install(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)  # as if it were not installed
    monkeypatch.setitem(sys.modules, "numpy", None)
    with pytest.raises(bothends.OptionsError, match=r"`pip install numpy`.*framework='dlpack'"):
        bothends.Loader(small, "imagenet-eval")


def test_without_pytorch_batches_are_numpys(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    images, labels = next(iter(bothends.Loader(small, "imagenet-eval", batch_size=4)))
    assert isinstance(images, np.ndarray) and isinstance(labels, np.ndarray)


class Folder:
    """What a data set of torchvision's looks like."""

    root = "/data/train"


def test_a_data_set_or_a_transform_in_the_wrong_place_is_told(small: Path) -> None:
    data: Any = Folder()
    with pytest.raises(bothends.OptionsError, match="`data` is of type Folder.*/data/train"):
        bothends.Loader(data, "raw")
    transform: Any = Folder()
    with pytest.raises(bothends.OptionsError, match="`recipe` is of type Folder.*DataLoader"):
        bothends.Loader(small, transform)


def test_classes() -> None:
    assert issubclass(bothends.OptionsError, ValueError)
    assert issubclass(bothends.StateError, ValueError)
    assert issubclass(bothends.DataError, OSError)
    names = "BadSample Data Device Fork Options Starved State".split()
    assert all(issubclass(getattr(bothends, f"{n}Error"), bothends.Error) for n in names)


def test_no_data(tmp_path: Path) -> None:
    with pytest.raises(bothends.DataError, match="nothere"):
        loader(tmp_path / "nothere")
    with pytest.raises(bothends.DataError, match="empty"):
        loader(tmp_path)


@pytest.mark.parametrize("spec", ["sim:newprot", "unix:///nowhere/socket", "tcp://127.0.0.1:9"])
def test_a_device_that_is_not_there(small: Path, spec: str) -> None:
    with pytest.raises(bothends.DeviceError) as raised:
        loader(small, csds=[spec], require_devices=True)
    assert raised.value.device == spec and spec.split(":")[0] in str(raised.value)


@pytest.mark.parametrize(
    ("spec", "remedy"),
    [
        ("tcp://192.0.2.1:7070", "or `insecure` on both"),
        ("tls://192.0.2.1:7070", "three PEM files: `tls_ca`, `tls_cert` and `tls_key`"),
    ],
)
def test_a_connection_that_lacks_an_option_names_it(small: Path, spec: str, remedy: str) -> None:
    with pytest.raises(bothends.DeviceError) as raised:
        loader(small, csds=[spec])
    assert str(raised.value).endswith(remedy)


def test_a_device_that_is_not_there_may_come_later(small: Path) -> None:
    line = "bothends: device unix:///nowhere/socket: cannot reach a device.* tries again$"
    with pytest.warns(UserWarning, match=line) as said:
        batches = loader(small, csds=["unix:///nowhere/socket"])
    # The script's own line, as far as the tests' helper is one.
    assert [Path(warning.filename).name for warning in said] == ["streams.py"]
    assert "cannot reach a device" in batches.stats()["back"][0]["failure"]
    with warnings.catch_warnings():
        # Once is enough.
        warnings.simplefilter("error")
        assert len(list(batches)) == len(batches)


def test_a_device_that_is_lost_in_mid_epoch_is_warned_of(many: Path) -> None:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        batches = loader(many, batch_size=4, csds=["sim:ideal,rate=2000,fault=die@0%"])
        # An epoch may be over before anybody looks at the device again.
        while not said:
            assert len(list(batches)) == len(batches)
    (warning,) = said
    line = str(warning.message)
    assert line.startswith("bothends: device sim:ideal,rate=2000,fault=die@0%: "), line
    assert line.endswith("the run continues without it"), line
    assert warning.filename == __file__


def test_none_is_no_device(small: Path) -> None:
    assert loader(small, csds=None).stats()["back"] == []


def test_no_such_sample(small: Path) -> None:
    assert loader(small)._native.sample(23) is None
    assert loader(small)._native.sample(22)[0].endswith(".jpg")


# ---- broken images ------------------------------------------------------------------------


def cut(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def empty(file: Path) -> None:
    file.write_bytes(b"")


def text(file: Path) -> None:
    file.write_text("This is no image, whatever its name says.\n")


def header_only(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:20])


def wrong_crc(file: Path) -> None:
    """A PNG (whatever its name says) with one byte of its header's checksum changed."""
    photo(1, 40, 41).save(file, format="PNG")
    data = bytearray(file.read_bytes())
    data[data.index(b"IHDR") + 4 + 13] ^= 1
    file.write_bytes(data)


def wrong_pixels(file: Path) -> None:
    """A PNG whose compressed pixels end too early, with right checksums."""
    photo(1, 40, 41).save(file, format="PNG")
    data = file.read_bytes()
    at = data.index(b"IDAT")
    length = int.from_bytes(data[at - 4 : at])
    chunk = b"IDAT" + data[at + 4 : at + 4 + length // 2]
    new = (len(chunk) - 4).to_bytes(4) + chunk + zlib.crc32(chunk).to_bytes(4)
    file.write_bytes(data[: at - 4] + new + data[at + length + 8 :])


HARM = [cut, empty, text, header_only, wrong_crc, wrong_pixels]
BROKEN = [2, 5, 8, 11, 14, 17]


@pytest.fixture(scope="module")
def broken(small: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[int, str]]:
    """The small images with six broken ones, by id."""
    folder = tmp_path_factory.mktemp("broken") / "data"
    shutil.copytree(small, folder)
    whole = loader(folder)
    files = {sample: whole._native.sample(sample)[0] for sample in BROKEN}
    del whole
    for harm, file in zip(HARM, files.values(), strict=True):
        harm(folder / file)
    return folder, files


@pytest.mark.parametrize("harm", HARM)
def test_raise_names_the_file(small: Path, tmp_path: Path, harm: Any) -> None:
    shutil.copytree(small, tmp_path, dirs_exist_ok=True)
    file = "class1/001.jpg"
    harm(tmp_path / file)
    batches = loader(tmp_path, last="pad")
    with pytest.raises(bothends.BadSampleError) as raised:
        steps(batches)
    error = raised.value
    assert error.file == file and batches._native.sample(error.sample)[0] == file
    assert error.prong == "the host" and error.why
    for part in (file, error.why, f"sample {error.sample}", "on_bad skip, replace or zero"):
        assert part in str(error)


def test_a_device_that_meets_it_is_named(small: Path, tmp_path: Path) -> None:
    shutil.copytree(small, tmp_path, dirs_exist_ok=True)
    text(tmp_path / "class1/001.jpg")
    device = "sim:ideal,rate=2000"
    batches = loader(tmp_path, last="pad", strategy="csd", csds=[device])
    with pytest.raises(bothends.BadSampleError) as raised:
        steps(batches)
    assert raised.value.file == "class1/001.jpg"
    assert raised.value.prong == "the host" or "sim:ideal" in raised.value.prong


@pytest.mark.parametrize("csds", [[], ["sim:ideal,rate=2000"]], ids=["host", "device"])
@pytest.mark.parametrize("on_bad", ["skip", "replace", "zero"])
def test_policies(broken: Any, small: Path, on_bad: str, csds: list[str]) -> None:
    folder, files = broken
    batches = loader(folder, on_bad=on_bad, last="pad", batch_size=23, shuffle=False, csds=csds)
    (batch,) = batches.batches()
    (whole,) = loader(small, last="pad", batch_size=23, shuffle=False).batches()
    rows = batch.sample_ids.tolist()
    good = [n for n in range(23) if n not in files]
    for n in good:
        assert np.array_equal(batch.images[0][rows.index(n)], whole.images[0][n])
    if on_bad == "skip":
        assert sorted(n for n in rows if n >= 0) == good and batch.n_valid == 17
    elif on_bad == "zero":
        assert all(not batch.images[0][n].any() for n in files)
    else:
        assert batch.n_valid == 23 and set(rows) == set(good)
        assert batch.labels.min() >= 0
    listed = {bad["sample"]: bad for bad in batches.stats()["skipped"]}
    assert sorted(listed) == sorted(files)
    for sample, bad in listed.items():
        assert bad["file"] == files[sample] and bad["policy"] == on_bad and bad["why"]


@pytest.mark.parametrize("on_bad", ["skip", "replace", "zero"])
def test_a_warning_counts_what_a_policy_was_applied_to(broken: Any, on_bad: str) -> None:
    """Symptom: most of a data set is left out, and nothing is said."""
    folder, files = broken
    batches = loader(folder, on_bad=on_bad, last="pad", shuffle=False)
    with pytest.warns(UserWarning, match=f"on_bad='{on_bad}'") as told:
        for _ in range(2):
            list(batches)
    (line,) = [str(w.message) for w in told if "on_bad" in str(w.message)]
    done = {"skip": "left out", "replace": "replaced by others", "zero": "images of zeros"}
    assert f"{len(files)} of 23 samples cannot be read" in line and done[on_bad] in line
    assert line.count(".jpg (") == 3 and line.endswith(f"and {len(files) - 3} more")


def test_the_quarantine_lists_each_once(broken: Any) -> None:
    folder, files = broken
    batches = loader(folder, on_bad="skip", last="pad")
    for _ in range(3):
        assert not set(ids(steps(batches))) & set(files)
    assert len(batches.stats()["skipped"]) == len(files)


def test_after_an_error_the_loader_goes_on(broken: Any, small: Path) -> None:
    batches = loader(broken[0], last="pad")
    for _ in range(2):
        feed = batches.batches()
        with pytest.raises(bothends.BadSampleError):
            list(feed)
        with pytest.raises(bothends.Error, match="ended with an error"):
            next(feed)


def test_an_error_is_not_followed_by_an_end(small: Path, tmp_path: Path) -> None:
    """Who catches it and asks again must not take the epoch for a whole one."""
    root = Path(shutil.copytree(small, tmp_path / "root"))
    next(iter(sorted(root.rglob("*.jpg")))).write_bytes(b"no image")
    batches = loader(root, last="pad")
    feed = iter(batches)
    with pytest.raises(bothends.BadSampleError):
        list(feed)
    for _ in range(2):
        with pytest.raises(bothends.Error, match="ended with an error") as raised:
            next(feed)
        assert type(raised.value) is bothends.Error


def test_a_class_without_a_column_is_refused(small: Path) -> None:
    ops: list[dict[str, Any]] = [{"op": "decode"}, {"op": "resize", "size": [32, 32]}]
    ops += [{"op": "normalize", "mean": [0, 0, 0], "std": [1, 1, 1]}, {"op": "mixup", "alpha": 0.2}]
    recipe = {"version": 1, "name": "mix", "ops": ops}
    assert next(iter(loader(small, recipe=recipe, num_classes=9, output="f32")))[1].shape == (4, 9)
    with pytest.raises(bothends.OptionsError, match="is not one of 2 classes; give num_classes"):
        list(loader(small, recipe=recipe, num_classes=2, output="f32"))
