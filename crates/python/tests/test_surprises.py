"""What would surprise who changed one import: a fallback unseen, a change unseen, a broken image
let through, a file of ours among theirs."""

from __future__ import annotations

import copy
import io
import multiprocessing
import os
import pickle
import shutil
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
torchvision = pytest.importorskip("torchvision", reason="torchvision is not installed")

import bothends
import torch.utils.data as theirs
import torchvision.transforms as v1
from bothends.torch import DataLoader
from PIL import Image, ImageFile
from torchvision.datasets import FakeData
from torchvision.transforms import v2

import children
from images import photo
from loaders import EVAL, TRAIN, numbered, order, ours, pictures, quiet, stream

N = 23


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS"):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture
def root(small: Path, tmp_path: Path) -> Path:
    """A copy, to be changed."""
    return Path(shutil.copytree(small, tmp_path / "root"))


class Inverted:
    """A transform that nobody knows."""

    def __call__(self, image: Any) -> Any:
        return 1 - image


UNKNOWN = v1.Compose([*EVAL.transforms, Inverted()])


class Mine(theirs.Dataset):  # type: ignore[misc]
    """A data set that nobody knows."""

    def __len__(self) -> int:
        return N

    def __getitem__(self, i: int) -> Any:
        return torch.full((3, 8, 8), float(i)), i


class Stream(theirs.IterableDataset):  # type: ignore[misc]
    def __iter__(self) -> Iterator[Any]:
        return iter((torch.zeros(3), i) for i in range(N))


def endless() -> Any:
    class Endless(theirs.Sampler):  # type: ignore[misc]
        def __iter__(self) -> Iterator[int]:
            while True:
                yield 0

    return Endless()


PAIR = [[3], [1, 2]]

# A loader for each way in which batches come to be, and who loads.
MODES: dict[str, tuple[Callable[[Path], DataLoader], str]] = {
    "native": (lambda root: quiet(numbered(root)), "bothends"),
    "a sampler": (lambda root: quiet(numbered(root), sampler=[3, 1, 2]), "bothends"),
    "batches": (lambda root: quiet(numbered(root), batch_size=1, batch_sampler=PAIR), "bothends"),
    "in Python": (lambda root: quiet(numbered(root, UNKNOWN)), "bothends"),
    "in workers": (lambda root: quiet(numbered(root, UNKNOWN), num_workers=2), "bothends"),
    "collate_fn": (lambda root: quiet(numbered(root), collate_fn=first_two), "bothends"),
    "a data set": (lambda root: quiet(Mine()), "python"),
    "made up": (
        lambda root: quiet(FakeData(8, (3, 8, 8), transform=v1.ToTensor()), num_workers=2),
        "python",
    ),
    "a stream": (lambda root: quiet(Stream()), "pytorch"),
    "no batches": (lambda root: quiet(numbered(root), batch_size=None), "pytorch"),
    "all sizes": (lambda root: quiet(numbered(root, v1.ToTensor()), batch_size=1), "python"),
}


NAMES = {
    "bothends": "bothends",
    "python": "the data set's own code",
    "pytorch": "PyTorch's own loader",
}


def first_two(samples: list[Any]) -> Any:
    return torch.stack([image for image, _ in samples]), torch.tensor([n for _, n in samples])


# ---- strict -------------------------------------------------------------------------------

REFUSED: dict[str, tuple[Callable[[Path], Any], dict[str, Any], str]] = {
    "a data set": (lambda root: Mine(), {}, "Mine is not known; give it a method sample"),
    "a stream": (lambda root: Stream(), {}, "iterable"),
    "a transform": (lambda root: numbered(root, UNKNOWN), {}, "Inverted"),
    "no common size": (lambda root: numbered(root, v1.ToTensor()), {}, "size"),
    "no batches": (lambda root: numbered(root), {"batch_size": None}, "give a batch_size"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_strict_raises_instead_of_falling_back(small: Path, case: str) -> None:
    """Symptom: a training run is slow for days, and the warning was on page one of the log."""
    dataset, options, part = REFUSED[case]
    with pytest.raises(bothends.OptionsError, match="strict=True") as raised:
        DataLoader(dataset(small), **{"batch_size": 4, **options}, strict=True)
    assert part in str(raised.value), raised.value


def test_strict_raises_for_a_sampler_when_it_is_asked(small: Path) -> None:
    """Symptom: as above; a sampler is known only once it is asked."""
    made = ours(numbered(small), sampler=endless(), strict=True)
    with pytest.raises(bothends.OptionsError, match="strict=True.*has no length"):
        iter(made)


def test_strict_lets_pass_what_is_ours(small: Path) -> None:
    """Symptom: strict refuses what bothends loads."""
    assert len(order(ours(numbered(small, TRAIN), strict=True, sampler=[3, 3, 1]))) == 1


# ---- what it says of itself ---------------------------------------------------------------


# The keys of docs/python.md, without that of a `Mix`.
STATS = {
    *("loader", "epoch", "front_batches", "back", "rescued", "skipped", "redecoded", "damaged"),
    *("audits", "stall", "backpressure_s", "storage_read_bytes", "side_index", "block_cache"),
    *("record_cache", "fetches", "path", "cpu_seconds", "peak_rss_bytes"),
}


@pytest.mark.parametrize("mode", MODES)
def test_everything_is_there_in_every_mode(small: Path, mode: str) -> None:
    """Symptom: AttributeError on .words, .recipe or .stats after a fallback; repr tells nothing."""
    make, who = MODES[mode]
    made = make(small)
    for n in range(2):
        assert isinstance(made.words, list) and all(isinstance(line, str) for line in made.words)
        assert (made.recipe is None) == (who != "bothends")
        assert type(made.dataset).__name__ in repr(made)
        assert f"batch_size={made.batch_size}" in repr(made)
        assert f"loaded by {NAMES[who]}>" in repr(made)
        stats = made.stats()
        assert set(stats) >= STATS, "before the first batch, and whoever loads"
        # PyTorch's own loader does not count them.
        assert stats["epoch"] == (0 if who == "pytorch" else n)
        assert stats["loader"] == who and stats["skipped"] == [] and stats["back"] == []
        for name in ("words", "recipe", "stats", "explain", "set_epoch", "close", "dataset"):
            assert name in dir(made) and hasattr(made, name)
        assert len(list(made)) > 0
    assert hasattr(made, "state_dict") == (who != "pytorch")
    if who != "pytorch":
        assert made.stats()["front_batches"] == 2 * len(made)


@pytest.mark.parametrize("mode", MODES)
def test_explain_says_who_loads(small: Path, mode: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Symptom: nobody knows why a loader is slow."""
    make, who = MODES[mode]
    made = make(small)
    assert made.explain() is None
    said = capsys.readouterr().out.splitlines()
    assert said == made.words
    assert said[0].split(",")[0] == f"loaded by: {NAMES[who]}"


REMEDIES = {
    "a data set": "to be fast: give it a method sample(i)",
    "a stream": "to be fast: give a map-style data set",
    "no batches": "to be fast: give a batch_size",
    "all sizes": "to be fast: ToTensor: a crop, or Resize((rows, columns))",
    "in Python": "to be faster: ",
    "in workers": "to be faster: ",
}


@pytest.mark.parametrize("mode", REMEDIES)
def test_explain_says_what_to_change(small: Path, mode: str) -> None:
    """Symptom: as above, and what to do about it."""
    words = MODES[mode][0](small).words
    assert any(line.startswith(REMEDIES[mode]) for line in words), words


def test_a_remedy_is_given_once(small: Path) -> None:
    """Symptom: `a crop, or Resize((rows, columns)), before that ...` twice in one warning."""
    with pytest.warns(UserWarning) as told:
        DataLoader(numbered(small, None), collate_fn=list)
    assert str(told[0].message).count("a crop, or Resize((rows, columns))") == 1


@pytest.mark.parametrize("kind", [list, range, theirs.TensorDataset])
def test_data_without_images_need_no_method_sample(kind: Any) -> None:
    """Symptom: a `TensorDataset` is to get a method `sample(i)` that returns an image's path."""
    given = {list: [1, 2], range: range(2), theirs.TensorDataset: theirs.TensorDataset(torch.ones(2))}
    words = quiet(given[kind]).words
    assert f"why: the samples of a {kind.__name__} are in memory, without images to read" in words
    assert not any("sample(i)" in line for line in words)


@pytest.mark.parametrize(("workers", "said"), [(1, "in 1 worker"), (2, "in 2 workers")])
def test_workers_are_counted(small: Path, workers: int, said: str) -> None:
    assert quiet(Mine(), num_workers=workers).words[0].endswith(said)
    last = quiet(numbered(small, UNKNOWN), num_workers=workers).words
    kind = "worker process" if workers == 1 else "worker processes"
    assert f"transforms in Python: in {workers} {kind}" in last


@pytest.mark.parametrize(("indices", "said"), [([1, 23], "23 as its number 1"), ([-24], "-24")])
def test_an_index_outside_of_the_data_set_is_the_samplers(
    small: Path, indices: list[int], said: str
) -> None:
    """Symptom: "the order names sample 23", of which the script knows nothing."""
    made = ours(numbered(small), sampler=indices)
    with pytest.raises(bothends.OptionsError, match=rf"the sampler \(list\) gives index {said}"):
        iter(made)


def test_data_in_memory_are_not_seeded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: a `TensorDataset` takes three times as long as with PyTorch's loader."""
    from bothends._dataloader import items

    seeded: list[int] = []
    monkeypatch.setattr(items, "seed_for", lambda seed, epoch, n: seeded.append(n))
    assert len(list(quiet(theirs.TensorDataset(torch.ones(20)), batch_size=10))) == 2
    assert len(seeded) == 2, "for collate_fn"


@pytest.mark.parametrize("name", ["bfloat16", "float16"])
def test_half_precision_is_an_output(small: Path, name: str) -> None:
    """Symptom: the last transform runs in worker processes, and nothing says that it need not."""
    output = {"bfloat16": "bf16", "float16": "f16"}[name]
    half = v2.Compose(
        [v2.Resize((8, 8)), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
        + [v2.ToDtype(getattr(torch, name))]
    )
    assert any(f'output="{output}"' in line for line in quiet(numbered(small, half)).words)


def test_explain_names_the_parts(small: Path) -> None:
    """Symptom: it is not said which transform or sampler it was."""
    text = "\n".join(MODES["in workers"][0](small).words)
    for part in ("ImageFolder, 23 files", "Resize", "Inverted", "sequential", "2 worker processes"):
        assert part in text, text
    assert "list is followed" in "\n".join(MODES["batches"][0](small).words)
    assert "first_two runs in the thread" in "\n".join(MODES["collate_fn"][0](small).words)


def test_a_fallback_at_an_iteration_is_explained(small: Path) -> None:
    """Symptom: explain() says bothends loads, and PyTorch does."""
    made = ours(numbered(small), sampler=endless())
    with pytest.warns(UserWarning, match="has no length"):
        next(iter(made))
    assert made.words[0] == "loaded by: PyTorch's own loader" and "no length" in made.words[1]
    assert made.words[2] == "to be fast: give a sampler that ends, with __len__"
    assert made.stats()["loader"] == "pytorch"


def test_wrong_arguments_name_themselves(small: Path) -> None:
    """Symptom: a TypeError from the inside for an argument in the wrong place."""
    with pytest.raises(bothends.OptionsError, match="`ranks` is 'all'.*auto, shard, replicate"):
        DataLoader(numbered(small), ranks="all")
    with pytest.raises(bothends.OptionsError, match="`dataset` is the path.*ImageFolder"):
        DataLoader(small)


# ---- changes ------------------------------------------------------------------------------


def test_a_transform_that_is_replaced_is_seen(small: Path) -> None:
    """Symptom: `dataset.transform = ...` after some epochs changes nothing, without a word."""
    dataset = numbered(small, TRAIN)
    made = ours(dataset)
    list(made)
    dataset.transform = EVAL
    before = theirs.DataLoader(dataset, 4)
    assert torch.equal(pictures(made), pictures(before))


def test_a_transform_that_is_changed_is_seen(small: Path) -> None:
    """Symptom: as above, of an attribute of a transform (progressive resizing), or its list."""
    dataset = numbered(small, v1.Compose([v1.Resize(36), v1.CenterCrop(32), v1.ToTensor()]))
    made = ours(dataset)
    assert pictures(made).shape[2:] == (32, 32)
    dataset.transform.transforms[1].size = (24, 20)
    assert pictures(made).shape[2:] == (24, 20)
    dataset.transform.transforms.append(v1.Normalize(0.5, 0.25))
    assert torch.equal(pictures(made), pictures(theirs.DataLoader(dataset, 4)))


def test_a_transform_that_becomes_unknown_is_run(small: Path) -> None:
    """Symptom: as above; strict does not hold for what changes later."""
    dataset, strict = numbered(small), numbered(small)
    made, refuses = ours(dataset), ours(strict, strict=True)
    plain = pictures(made)
    list(refuses)
    dataset.transform = strict.transform = UNKNOWN
    with pytest.warns(UserWarning, match="Inverted"):
        assert torch.equal(pictures(made), 1 - plain)
    with pytest.raises(bothends.OptionsError, match="strict=True.*Inverted"):
        iter(refuses)


def test_samples_that_are_changed_are_seen(small: Path) -> None:
    """Symptom: pseudo-labels that are written to the data set are never seen."""
    dataset = numbered(small)
    made = ours(dataset)
    list(made)
    dataset.samples[2] = (dataset.samples[2][0], 77)
    assert order(made)[0] == [0, 1, 77, 3]
    del dataset.samples[4:]
    dataset.imgs, dataset.targets = dataset.samples, dataset.targets[:4]
    # Its samplers keep the length that they know, in PyTorch's loader as well.
    assert order(ours(dataset)) == [[0, 1, 77, 3]]


def test_a_subsets_indices_that_are_changed_are_seen(small: Path) -> None:
    """Symptom: active learning chooses new samples, and gets the old ones."""
    part = theirs.Subset(numbered(small), [1, 2, 3])
    made = ours(part)
    assert order(made) == [[1, 2, 3]]
    part.indices[:] = [9, 8, 7]
    assert order(made) == [[9, 8, 7]]
    part.indices = [4, 5, 6]
    assert order(made) == [[4, 5, 6]]


def test_the_epoch_under_way_is_not_changed(small: Path) -> None:
    """Symptom: half of an epoch is of the old transform, and half of the new."""
    dataset = numbered(small, TRAIN)
    made = ours(dataset, seed=1)
    expected = stream(ours(numbered(small, TRAIN), seed=1))
    feed = iter(made)
    head = stream([next(feed)])
    dataset.transform = EVAL
    assert head + stream(feed) == expected


# ---- instead of PyTorch's class -----------------------------------------------------------

REPLACED = """
import sys, warnings
warnings.simplefilter("ignore")
import torch, torch.utils.data
import bothends.torch
plain = torch.utils.data.DataLoader
torch.utils.data.DataLoader = bothends.torch.DataLoader
import torchvision.transforms as v1
from torchvision.datasets import FakeData, ImageFolder
to_tensor = v1.Compose([v1.Resize((32, 32)), v1.ToTensor()])
known = ImageFolder(sys.argv[1], to_tensor)
unknown = FakeData(10, (3, 8, 8), transform=v1.ToTensor())
for dataset, who in ((known, "bothends"), (unknown, "python")):
    for workers in (0, 2):
        made = torch.utils.data.DataLoader(dataset, batch_size=4, num_workers=workers)
        batches = list(made)
        assert made.stats()["loader"] == who and isinstance(made, plain)
        others = list(plain(dataset, batch_size=4))
        assert len(batches) == len(others)
        for (images, labels), (x, y) in zip(batches, others):
            assert torch.equal(labels, y) and (images - x).abs().max() < 2 / 255
shuffled = torch.utils.data.DataLoader(unknown, shuffle=True, batch_sampler=None)
assert len(list(shuffled)) == 10
class Own(torch.utils.data.DataLoader):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.extra = 1
own = Own(known, batch_size=4)
assert len(list(own)) == 6 and own.stats()["loader"] == "bothends"
assert len(list(Own(unknown, batch_size=5))) == 2
print("well")
"""


def test_in_the_place_of_pytorchs_class(small: Path) -> None:
    """Symptom: RecursionError in timm's train.py."""
    assert children.run(REPLACED, small) == "well\n"


# ---- copies and other processes -----------------------------------------------------------

COPIES: dict[str, Callable[[Any], Any]] = {
    "pickle": lambda made: pickle.loads(pickle.dumps(made)),
    "deepcopy": copy.deepcopy,
    "copy": copy.copy,
}


@pytest.mark.parametrize("way", COPIES)
@pytest.mark.parametrize("sampler", [None, theirs.RandomSampler(range(N))])
def test_a_copy_goes_on_where_the_loader_is(small: Path, way: str, sampler: Any) -> None:
    """Symptom: a loader that is copied or pickled in an epoch begins again, or breaks."""
    made = ours(numbered(small, TRAIN), sampler=sampler, shuffle=None if sampler else True)
    feed = iter(made)
    next(feed), next(feed)
    again = COPIES[way](made)
    rest = stream(feed)
    assert stream(again) == rest and len(rest) == 4
    assert stream(again) == stream(made)


@pytest.mark.parametrize("mode", ["native", "a data set", "a sampler", "made up"])
def test_a_copy_before_the_first_batch(small: Path, mode: str) -> None:
    """Symptom: a loader cannot be pickled before it has run, or after a fallback."""
    made = MODES[mode][0](small)
    for way in COPIES.values():
        again = way(made)
        assert repr(again) == repr(made) and len(again) == len(made)
        assert order(again) == order(made)


def in_a_child(made: DataLoader, out: Any) -> None:
    """For a spawned process."""
    out.put((made.stats()["loader"], stream(made)))


def test_a_spawned_process_goes_on(small: Path) -> None:
    """Symptom: a loader given to torch.multiprocessing.spawn begins again, or crashes."""
    made = ours(numbered(small, TRAIN), shuffle=True)
    feed = iter(made)
    next(feed)
    spawn = multiprocessing.get_context("spawn")
    out = spawn.Queue()
    child = spawn.Process(target=in_a_child, args=(made, out))
    child.start()
    who, rest = out.get(timeout=60)
    child.join(20)
    assert child.exitcode == 0 and who == "bothends"
    assert rest == stream(feed)


# ---- PyTorch's arguments ------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["native", "in workers"])
def test_arguments_that_say_how_workers_run(small: Path, mode: str) -> None:
    """Symptom: options of a script that PyTorch takes are refused, or change the stream."""
    transform = UNKNOWN if mode == "in workers" else EVAL
    plain = pictures(quiet(numbered(small, transform)))
    options = {"num_workers": 2, "persistent_workers": True, "prefetch_factor": 3, "timeout": 30}
    made = quiet(numbered(small, transform), pin_memory=not torch.cuda.is_available(), **options)
    for _ in range(2):
        assert torch.equal(pictures(made), plain)
    assert made.persistent_workers and made.prefetch_factor == 3 and made.timeout == 30


def test_pin_memory_without_cuda_is_as_pytorchs(small: Path) -> None:
    """Symptom: a script for GPUs cannot be tried on a laptop."""
    if torch.cuda.is_available():
        pytest.skip("there is CUDA here")
    made = quiet(numbered(small), pin_memory=True)
    assert not next(iter(made))[0].is_pinned()


WRONG: list[dict[str, Any]] = [
    {"timeout": -1},
    {"prefetch_factor": 2},
    {"persistent_workers": True},
    {"num_workers": -1},
    {"num_workers": 2, "prefetch_factor": -1},
    {"batch_size": 0},
    {"batch_size": 4, "batch_sampler": [[0]]},
    {"batch_size": None, "drop_last": True},
    {"shuffle": True, "sampler": [0]},
    {"multiprocessing_context": "no such", "num_workers": 1},
]


@pytest.mark.parametrize("options", WRONG, ids=str)
def test_arguments_are_refused_as_pytorch_does(small: Path, options: dict[str, Any]) -> None:
    """Symptom: a mistake that PyTorch finds goes unseen, or is another exception."""
    dataset = numbered(small)
    with pytest.raises((ValueError, TypeError)) as raised:
        theirs.DataLoader(dataset, **options)
    with pytest.raises(type(raised.value)) as mine:
        DataLoader(dataset, **options)
    assert str(mine.value) == str(raised.value)


def test_worker_init_fn_is_called_in_each_worker(small: Path, tmp_path: Path) -> None:
    """Symptom: worker_init_fn is never called, or in the training process."""

    def init(worker: int) -> None:
        (tmp_path / f"{worker}").write_text(str(os.getpid()))

    made = quiet(numbered(small, UNKNOWN), num_workers=2, worker_init_fn=init)
    assert len(order(made)) == 6
    assert sorted(place.name for place in tmp_path.iterdir()) == ["0", "1"]
    assert str(os.getpid()) not in [place.read_text() for place in tmp_path.iterdir()]


def test_no_worker_stays_behind(small: Path) -> None:
    """Symptom: worker processes of an epoch that was broken off live on."""
    made = quiet(numbered(small, UNKNOWN), num_workers=2)
    others = set(children.children_of(os.getpid()))
    for after in (1, 6):
        feed = iter(made)
        for _ in range(after):
            next(feed)
        workers = set(children.children_of(os.getpid())) - others
        assert len(workers) == 2
        del feed
        assert children.eventually(5, lambda: not any(map(children.runs, workers)))


# ---- broken images ------------------------------------------------------------------------


def encoded(form: str, **options: Any) -> bytes:
    file = io.BytesIO()
    photo(5, 160, 150).save(file, format=form, **options)
    return file.getvalue()


WHOLE: dict[str, bytes] = {
    "jpeg": encoded("JPEG", quality=90),
    "progressive": encoded("JPEG", quality=90, progressive=True),
    "png": encoded("PNG"),
}
CUTS = [5, 30, 60, 90, 99]


def with_one(small: Path, tmp_path: Path, content: bytes) -> Path:
    root = Path(shutil.copytree(small, tmp_path / "root"))
    (root / "class0" / "zzz.jpg").write_bytes(content)
    return root


def refuses(loader: Any) -> bool:
    try:
        list(loader)
    except Exception:
        return True
    return False


@pytest.mark.parametrize("percent", CUTS)
@pytest.mark.parametrize("form", WHOLE)
def test_no_image_passes_that_pytorch_refuses(
    small: Path, tmp_path: Path, form: str, percent: int
) -> None:
    """Symptom: a truncated image trains as grey pixels, which torchvision would have refused."""
    content = WHOLE[form][: len(WHOLE[form]) * percent // 100]
    dataset = numbered(with_one(small, tmp_path, content))
    assert refuses(theirs.DataLoader(dataset)), "the case is none"
    made = ours(dataset)
    with pytest.raises(bothends.BadSampleError) as raised:
        list(made)
    assert raised.value.file is not None and raised.value.file.endswith("zzz.jpg")


@pytest.mark.parametrize("missing", [1, 2, 12])
@pytest.mark.parametrize("form", WHOLE)
def test_the_last_bytes_are_missing(small: Path, tmp_path: Path, form: str, missing: int) -> None:
    """Symptom: as above. Pillow lets some of these pass; then we may, with the same pixels."""
    dataset = numbered(with_one(small, tmp_path, WHOLE[form][:-missing]))
    if refuses(theirs.DataLoader(dataset)):
        with pytest.raises(bothends.BadSampleError):
            list(ours(dataset))
    elif not refuses(ours(dataset)):
        assert torch.equal(pictures(ours(dataset)), pictures(theirs.DataLoader(dataset)))


@pytest.mark.parametrize("percent", CUTS)
@pytest.mark.parametrize("form", WHOLE)
def test_pillow_is_told_to_load_truncated_images(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, percent: int
) -> None:
    """Symptom: scripts that say LOAD_TRUNCATED_IMAGES end at the first truncated image."""
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    content = WHOLE[form][: len(WHOLE[form]) * percent // 100]
    dataset = numbered(with_one(small, tmp_path, content))
    if refuses(theirs.DataLoader(dataset)):
        assert refuses(ours(dataset))
    else:
        assert torch.equal(pictures(ours(dataset)), pictures(theirs.DataLoader(dataset)))


def test_pillow_is_told_between_two_epochs(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Symptom: as above, of a loader that was made before the flag was set, or unset."""
    content = WHOLE["jpeg"][: len(WHOLE["jpeg"]) * 6 // 10]
    dataset = numbered(with_one(small, tmp_path, content))
    made = ours(dataset)
    for flag in (False, True, False):
        monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", flag)
        assert refuses(made) == (not flag)


def test_the_recipe_says_what_becomes_of_truncated_images(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Symptom: a device, which has no Pillow, refuses what the host fills in."""
    made = ours(numbered(small))
    for flag, decode in [(False, {"op": "decode"}), (True, {"op": "decode", "truncated": "fill"})]:
        monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", flag)
        assert made.recipe is not None and made.recipe["ops"][0] == decode
        assert not refuses(made)


def test_a_run_that_a_truncated_image_has_ended_goes_on_with_it_filled_in(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Symptom: the state is of another recipe once the flag is set, so the run begins again."""
    content = WHOLE["jpeg"][: len(WHOLE["jpeg"]) * 6 // 10]
    dataset = numbered(with_one(small, tmp_path, content))
    made = ours(dataset, batch_size=4)
    taken = []
    with pytest.raises(bothends.BadSampleError):
        for batch in made:
            taken.append(batch)
    state = made.state_dict()
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    again = ours(dataset, batch_size=4)
    again.load_state_dict(state)
    assert len(taken) + len(list(again)) == len(again)


def test_damaged_images_that_pillow_reads_are_counted_and_named(
    small: Path, tmp_path: Path
) -> None:
    """Symptom: nothing says that photographs are damaged, which libjpeg tells on standard error."""
    whole = WHOLE["jpeg"]
    behind = 4 + int.from_bytes(whole[4:6], "big")
    dataset = numbered(with_one(small, tmp_path, whole[:behind] + b"\0\0" + whole[behind:]))
    made = ours(dataset)
    with pytest.warns(UserWarning, match="1 of .* is damaged and was decoded") as told:
        assert torch.equal(pictures(made), pictures(theirs.DataLoader(dataset)))
    list(made)
    assert len(told) == 1
    damaged = made.stats()["damaged"]
    (named,) = damaged["named"]
    assert damaged["samples"] == 1 and named["file"].endswith("zzz.jpg") and named["what"]
    assert made.stats()["skipped"] == [] and made.stats()["redecoded"] == []


def test_on_bad_goes_on_without_it(small: Path, tmp_path: Path) -> None:
    """Symptom: the remedy that the error names does not work here."""
    dataset = numbered(with_one(small, tmp_path, WHOLE["jpeg"][:900]))
    made = ours(dataset, on_bad="skip", batch_size=24)
    expected = [i for i, (path, _) in enumerate(dataset.samples) if "zzz" not in path]
    with pytest.warns(UserWarning, match=r"1 of 24 samples cannot be read and was left out .*zzz"):
        assert sum(order(made), []) == expected
    (skipped,) = made.stats()["skipped"]
    assert skipped["file"].endswith("zzz.jpg") and skipped["policy"] == "skip"


class Faulty:
    """Its method `sample` raises an exception for all but the first sample."""

    transform = EVAL

    def __init__(self, root: Path, error: Exception) -> None:
        self.files = sorted(root.glob("*/*.jpg"))
        self.error = error

    def __len__(self) -> int:
        return len(self.files)

    def sample(self, i: int) -> Any:
        if i > 0:
            raise self.error
        return self.files[0].read_bytes(), 0


@pytest.mark.parametrize("on_bad", ["skip", "replace", "zero"])
def test_on_bad_is_not_meant_for_faulty_code(small: Path, on_bad: str) -> None:
    """Symptom: with a misspelt attribute in `sample`, a training run sees one sample per epoch."""
    made = ours(Faulty(small, AttributeError("misspelt")), on_bad=on_bad)
    with pytest.raises(AttributeError, match="misspelt") as raised:
        list(made)
    assert any(entry.name == "sample" for entry in raised.traceback)


def test_on_bad_is_meant_for_records_that_cannot_be_read(small: Path) -> None:
    made = ours(Faulty(small, OSError("the drive is gone")), on_bad="skip")
    with pytest.warns(UserWarning, match=r"22 of 23 samples .*the drive is gone"):
        assert sum(order(made), []) == [0]


def test_a_bad_sample_has_the_exception_of_the_data_sets_code(small: Path) -> None:
    """Symptom: the traceback does not lead to the line of `sample` that failed."""
    error = AttributeError("misspelt")
    with pytest.raises(bothends.BadSampleError, match="misspelt") as raised:
        list(ours(Faulty(small, error)))
    assert raised.value.__cause__ is error


def test_the_orientation_of_a_photograph_is_as_with_pytorch(small: Path, tmp_path: Path) -> None:
    """Symptom: pictures of telephones lie on their side here and not there."""
    exif = Image.Exif()
    exif[0x0112] = 6
    dataset = numbered(with_one(small, tmp_path, encoded("JPEG", quality=95, exif=exif)))
    assert torch.equal(pictures(ours(dataset)), pictures(theirs.DataLoader(dataset)))


# ---- the side index -----------------------------------------------------------------------


def files_of(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


def test_nothing_of_ours_appears_among_the_data(root: Path, tmp_path: Path) -> None:
    """Symptom: files of ours in the user's folder: os.walk finds "0.JPEG", 3 GB for ImageNet."""
    before = files_of(root)
    for options in ({}, {"shuffle": True}, {"sampler": [1, 2, 3]}, {"num_workers": 2}):
        made = ours(numbered(root, TRAIN), **options)
        list(made), list(made)
        del made
    list(quiet(theirs.Subset(numbered(root, UNKNOWN), [1, 2]), num_workers=1))
    assert files_of(root) == before


def test_a_loader_of_a_folder_leaves_it_alone(root: Path) -> None:
    """Symptom: as above, of bothends.Loader."""
    before = files_of(root)
    list(bothends.Loader(root, "imagenet-eval", batch_size=4, framework="numpy"))
    assert files_of(root) == before


def test_the_side_index_is_beside_the_data_where_that_is_said(root: Path) -> None:
    """Symptom: who shares a folder over a network indexes it on every machine."""
    before = files_of(root)
    made = ours(numbered(root), side_index="beside")
    list(made)
    index = made.stats()["side_index"]
    added = sorted(set(files_of(root)) - set(before))
    assert added and Path(index["folder"]).is_relative_to(root)
    assert all(str(root / name).startswith(index["folder"]) for name in added)


def test_the_side_index_is_said_and_bounded(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Symptom: a disk fills, and nobody knows with what."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    made = ours(numbered(root))
    list(made)
    index = made.stats()["side_index"]
    assert Path(index["folder"]).is_relative_to(tmp_path / "cache")
    sizes = {file.name: file.stat().st_size for file in Path(index["folder"]).iterdir()}
    segments = sum(size for name, size in sizes.items() if name.startswith(".bothends-index"))
    assert 0 < segments == index["bytes"] <= index["limit_bytes"]
    assert sum(sizes.values()) - segments < 4096, "the folder holds little else"


def test_no_side_index_where_none_is_wanted(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Symptom: "off" writes all the same."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    made = ours(numbered(root), side_index="off")
    list(made)
    assert not made.stats().get("side_index")
    assert not (tmp_path / "cache").exists() or not any((tmp_path / "cache").rglob("*.*"))


# ---- lengths ------------------------------------------------------------------------------


def test_lightnings_questions(small: Path) -> None:
    """Symptom: frameworks find a loader that is not PyTorch's, and change it."""
    made = ours(numbered(small), shuffle=True)
    assert isinstance(made, theirs.DataLoader) and len(made) == 6
    assert isinstance(made.sampler, theirs.RandomSampler)
    assert isinstance(made.batch_sampler, theirs.BatchSampler)
    with pytest.raises(ValueError, match="after DataLoader is initialized"):
        made.batch_size = 3


def test_one_warning_and_at_the_scripts_line(small: Path) -> None:
    """Symptom: warnings point into the package, or come with each epoch."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for made in (DataLoader(Mine(), 4), DataLoader(numbered(small, UNKNOWN), 4)):
            list(made), list(made)
    lines = [line for line in said if "bothends" in str(line.message)]
    assert len(lines) == 2 and all(line.filename == __file__ for line in lines)
