"""A batch: shapes, types and layouts; memory that is shared without a copy; slots that go back."""

from __future__ import annotations

import gc
import json
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import bothends
import numpy as np
import pytest
import xxhash

from streams import SMALL, loader, step, steps

TYPES = {"u8": "uint8", "f32": "float32", "f16": "float16", "bf16": "bfloat16"}


def address(array: Any) -> int:
    """Of a NumPy array."""
    return array.__array_interface__["data"][0]


@pytest.mark.parametrize("layout", ["nhwc", "nchw"])
@pytest.mark.parametrize("output", ["u8", "f32", "f16"])
def test_arrays_have_the_shape_and_type_that_was_asked_for(
    small: Path, output: str, layout: str
) -> None:
    batches = loader(small, output=output, layout=layout)
    assert len(batches) == 5 and len(batches.dataset) == 23
    seen = 0
    for images, labels in batches:
        assert images.shape == ((4, 32, 32, 3) if layout == "nhwc" else (4, 3, 32, 32))
        assert images.dtype == TYPES[output] and labels.dtype == np.int64
        assert labels.shape == (4,) and 0 <= labels.min() and labels.max() <= 4
        assert images.flags.writeable and address(images) % 64 == 0
        seen += 1
    assert seen == 5


def test_the_layouts_hold_the_same_pixels(small: Path) -> None:
    pairs = zip(loader(small), loader(small, layout="nchw"), strict=True)
    for (nhwc, _), (nchw, _) in pairs:
        assert np.array_equal(nhwc, nchw.transpose(0, 2, 3, 1)) and nhwc.std() > 1


def test_a_batch_knows_its_rows(small: Path) -> None:
    batches = loader(small, last="pad")
    files = {n: batches._native.sample(n) for n in range(23)}
    made = list(batches.batches())
    assert [batch.index for batch in made] == list(range(6))
    assert {batch.prong for batch in made} == {"host"}
    assert [batch.n_valid for batch in made] == [4] * 5 + [3]
    for batch in made:
        n = batch.n_valid
        assert batch.mask.tolist() == [True] * n + [False] * (4 - n)
        assert [files[i][1] for i in batch.sample_ids[:n].tolist()] == batch.labels[:n].tolist()
    assert made[-1].labels[3] == -1 and made[-1].sample_ids[3] == -1
    assert not made[-1].images[0][3].any() and made[-1].images[0][2].any()


def test_small_arrays_are_made_once(small: Path) -> None:
    """However often they are asked for: frameworks ask for labels several times a step."""
    batches = loader(small, last="pad")
    for batch in batches._native.begin(1)[0]:
        for name in ("labels", "sample_ids", "mask"):
            assert getattr(batch, name) is getattr(batch, name)
    assert batch.labels.data_ptr != batch.sample_ids.data_ptr


def test_views_and_mixed_labels(small: Path) -> None:
    crop = {"op": "random_resized_crop", "scale": [0.3, 1.0], "ratio": [0.75, 1.33]}
    views = [[{**crop, "size": 32}], [{**crop, "size": 16}]]
    decode = {"op": "decode"}
    several = {**SMALL, "ops": [decode, {"op": "multi_crop", "views": [{"ops": v} for v in views]}]}
    try:
        (images, _), *_ = loader(small, recipe=several)
    except bothends.OptionsError:
        (images, _), *_ = loader(small, recipe="dino", output="u8")
    assert isinstance(images, list) and len(images) > 1
    assert all(view.shape[0] == 4 for view in images)
    (_, labels), *_ = loader(small, recipe="deit", output="f32", batch_size=8)
    assert labels.shape == (8, 5) and labels.dtype == np.float32
    assert np.allclose(labels.sum(axis=1), 1)


@pytest.mark.parametrize("workers", [1, 3])
def test_the_stream_is_that_of_the_command(small: Path, workers: int, tmp_path: Path) -> None:
    """XXH3 of ids, labels and bytes, as `bothends run --digest` prints it."""
    ours = xxhash.xxh3_128()
    options = {"recipe": "imagenet-train", "output": "f32", "layout": "nchw"}
    batches = loader(small, workers=workers, **options)
    for batch in batches.batches():
        rows = zip(batch.sample_ids, batch.labels, batch.images[0], strict=True)
        for sample, label, pixels in rows:
            ours.update(np.array([sample, label]).tobytes())
            ours.update(np.ascontiguousarray(pixels).tobytes())
    command = Path(sysconfig.get_path("scripts")) / "bothends"
    program = str(command) if command.exists() else shutil.which("bothends")
    if program is None:
        pytest.skip("the command is not installed")
    arguments = "--recipe imagenet-train --batch-size 4 --seed 5 --workers 1 --last drop"
    arguments += " --output f32 --layout nchw --side-index off --digest --json"
    result = tmp_path / "result.json"
    line = [program, "run", "--data", small, *arguments.split(), result]
    subprocess.run(line, check=True, capture_output=True)
    (epoch,) = json.loads(result.read_text())["epochs"]
    assert epoch["stream_digest"] == ours.hexdigest()


def test_who_works_does_not_change_the_stream(small: Path) -> None:
    alone = steps(loader(small))
    assert steps(loader(small, workers=1)) == alone == steps(loader(small, workers=5))
    with_device = loader(small, csds=["sim:ideal,rate=2000"])
    assert steps(with_device) == alone
    assert steps(loader(small, seed=6)) != alone


def test_torch_shares_the_memory(small: Path) -> None:
    torch = pytest.importorskip("torch")
    for output in TYPES:
        batches = loader(small, output=output, framework="dlpack")
        for images, labels in batches:
            tensor = torch.from_dlpack(images)
            assert tensor.data_ptr() == images.data_ptr and images.data_ptr % 64 == 0
            assert str(tensor.dtype) == f"torch.{TYPES[output]}"
            assert torch.from_dlpack(labels).data_ptr() == labels.data_ptr
            if output != "bf16":
                assert address(np.asarray(images)) == images.data_ptr
                assert address(np.from_dlpack(images)) == images.data_ptr
                tensor.flatten()[7] = 3
                assert np.asarray(images).flatten()[7] == 3


def test_torch_numpy_and_dlpack_hold_the_same(small: Path) -> None:
    pytest.importorskip("torch")
    of_torch = [(a.numpy().copy(), b.numpy()) for a, b in loader(small, framework="torch")]
    for (a, b), (c, d) in zip(of_torch, loader(small), strict=True):
        assert np.array_equal(a, c) and np.array_equal(b, d)


def test_jax_shares_the_memory(small: Path) -> None:
    jax = pytest.importorskip("jax")
    for images, _ in loader(small, output="f32", framework="dlpack"):
        array = jax.dlpack.from_dlpack(images)
        assert array.unsafe_buffer_pointer() == images.data_ptr
        assert np.array_equal(np.asarray(array), np.asarray(images))
    (images, labels), *_ = loader(small, output="f32", framework="jax")
    assert isinstance(images, jax.Array) and images.shape == (4, 32, 32, 3)
    assert labels.shape == (4,)


def test_both_capsules(small: Path) -> None:
    (images, _), *_ = loader(small, framework="dlpack")
    assert images.__dlpack_device__() == (1, 0)
    assert '"dltensor"' in repr(images.__dlpack__())
    assert '"dltensor"' in repr(images.__dlpack__(max_version=(0, 8)))
    assert '"dltensor_versioned"' in repr(images.__dlpack__(max_version=(1, 0)))
    assert '"dltensor_versioned"' in repr(images.__dlpack__(max_version=(7, 0), stream=None))
    assert images.__dlpack__(dl_device=(1, 0)) is not None
    with pytest.raises(BufferError, match="host memory"):
        images.__dlpack__(dl_device=(2, 0))


class Old:
    """A producer that knows nothing of versions, as DLPack's first ones."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, stream: Any = None) -> Any:
        return self.array.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


def test_numpy_takes_both_capsules_and_copies(small: Path) -> None:
    (images, _), *_ = loader(small, framework="dlpack")
    assert address(np.from_dlpack(Old(images))) == images.data_ptr
    copy = np.from_dlpack(images, copy=True)
    assert address(copy) != images.data_ptr and np.array_equal(copy, np.asarray(images))
    copy[:] = 0
    assert np.asarray(images).any()


def test_bfloat16_is_not_numpys(small: Path) -> None:
    with pytest.raises(bothends.OptionsError, match="bfloat16"):
        loader(small, output="bf16")
    (images, _), *_ = loader(small, output="bf16", framework="dlpack")
    with pytest.raises(AttributeError, match="bfloat16"):
        images.__array_interface__


PAGE = 4096


def is_slot(place: int) -> bool:
    """Slots begin with a page. Hardly one copy in 64 does."""
    return place % PAGE == 0


def places(batches: bothends.Loader) -> set[int]:
    """Addresses in an epoch of which no batch is held, not even while the next one comes."""
    found = set()
    for images, _ in batches:
        found.add(address(images))
        del images
    return found


def test_slots_go_back_when_the_last_view_dies(small: Path) -> None:
    batches = loader(small, held_batches=1)
    for _ in range(30):
        for images, _ in batches:
            assert is_slot(address(images))
            view = images[1:][:, 2:5]  # a view of a view, in the end all that is left
            del images
            kept = view.copy()
            assert np.array_equal(view, kept)
            del view
    gc.collect()
    assert all(map(is_slot, places(batches)))


def test_a_held_view_keeps_its_slot(small: Path) -> None:
    batches = loader(small, held_batches=1)
    slots = set().union(*(places(batches) for _ in range(9)))
    reference = [images.copy() for images, _ in loader(small)]
    batches.set_epoch(0)
    feed = iter(batches)
    view = next(feed)[0][2:][1:]
    before, place = view.copy(), address(view)
    assert is_slot(place - 3 * reference[0][0].nbytes)
    for n, (images, _) in enumerate(feed, start=1):
        assert address(images) not in slots, "the slot is held: what follows are copies"
        assert np.array_equal(images, reference[n])
        del images
    assert np.array_equal(view, before)
    del view
    assert all(map(is_slot, places(batches)))


@pytest.mark.parametrize("held", [1, 3])
def test_a_list_of_all_batches_has_copies_with_the_right_bytes(small: Path, held: int) -> None:
    reference = [(images.copy(), labels.copy()) for images, labels in loader(small)]
    batches = loader(small, held_batches=held)
    kept = list(batches)
    assert len({address(images) for images, _ in kept}) == len(kept) == 5
    for (images, labels), (other, label) in zip(kept, reference, strict=True):
        assert np.array_equal(images, other) and np.array_equal(labels, label)
    del kept, images
    assert len(list(batches)) == 5


def test_capsules_that_nobody_takes_are_freed(small: Path) -> None:
    batches = loader(small, held_batches=1, framework="dlpack")
    for _ in range(10):
        for images, _ in batches:
            assert is_slot(images.data_ptr)
            for version in (None, (1, 0)):
                assert images.__dlpack__(max_version=version) is not None
            del images


def test_a_tensor_outlives_its_loader(small: Path) -> None:
    reference = step(next(loader(small).batches()))
    batches = loader(small)
    batch = next(batches.batches())
    del batches
    gc.collect()
    assert step(batch) == reference
