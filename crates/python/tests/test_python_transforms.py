"""Transforms, targets and collate functions in Python: they run on decoded and cropped samples,
in workers, with random numbers that follow from the sample; and data sets of everybody's own."""

from __future__ import annotations

import random
import traceback
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("torchvision", reason="torchvision is not installed")

import numpy as np
import torch.utils.data as theirs
import torchvision.transforms as v1
from bothends._dataloader.prepared import emptied
from bothends.torch import DataLoader, Samples
from PIL import Image, ImageOps
from torchvision.transforms import v2

from loaders import DEVICE, EVAL, TRAIN, numbered, order, ours, pictures, quiet, stream

N = 23
CROP = [v1.Resize(36), v1.CenterCrop(32)]
RANDOM_CROP = [v1.RandomResizedCrop(32), v1.RandomHorizontalFlip()]
WORKERS = [0, 1, 2, 3]


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS"):
        monkeypatch.delenv(variable, raising=False)


class Solarized:
    """A class of the user's own, on PIL images."""

    def __call__(self, image: Any) -> Any:
        assert isinstance(image, Image.Image) and image.mode == "RGB"
        return ImageOps.solarize(image, 100)


def noisy_numpy(image: Any) -> Any:
    """As many scripts have it: NumPy's own generator."""
    noise = np.random.randint(-9, 9, (image.height, image.width, 3))
    return Image.fromarray((np.asarray(image) + noise).clip(0, 255).astype(np.uint8))


def sometimes_mirrored(image: Any) -> Any:
    return ImageOps.mirror(image) if random.random() < 0.5 else image


def noisy_torch(image: Any) -> Any:
    return image + torch.rand_like(image) / 9


LAMBDA = v1.Lambda(lambda image: ImageOps.posterize(image, 3))
FIXED = v1.Compose([*CROP, LAMBDA, Solarized(), v1.ToTensor(), lambda image: image * 2 - 1])
NOISY = v1.Compose(
    [*RANDOM_CROP, noisy_numpy, sometimes_mirrored, v1.ToTensor(), v1.Lambda(noisy_torch)]
)


# ---- what they are given, and in which order the batches come -----------------------------


@pytest.mark.parametrize("workers", WORKERS)
def test_they_get_what_they_get_in_pytorchs_loader(small: Path, workers: int) -> None:
    """Symptom: a PIL lambda gets a tensor, another mode, or a different size; batches are mixed up."""
    dataset = numbered(small, FIXED)
    made = quiet(dataset, num_workers=workers)
    assert stream(made) == stream(theirs.DataLoader(dataset, 4))
    assert made.stats()["loader"] == "bothends" and made.stats()["front_batches"] == 6


def test_batches_count_when_the_script_has_them(small: Path) -> None:
    """Symptom: front_batches also counts those that wait for workers, or were dropped there."""
    made = quiet(numbered(small, FIXED), num_workers=2, **DEVICE)

    def counted() -> int:
        stats = made.stats()
        (device,) = stats["back"]
        assert min(stats["front_batches"], device["batches"]) >= 0
        return int(stats["front_batches"] + device["batches"])

    batches = iter(made)
    for n in range(1, 4):
        next(batches)
        assert counted() == n
    del batches
    assert counted() == 3
    assert len(order(made)) == 6 and counted() == 9


@pytest.mark.parametrize("workers", [0, 2])
def test_an_order_of_the_scripts_own_is_kept(small: Path, workers: int) -> None:
    """Symptom: batches come in the order in which workers finish them."""
    batches = [[5], [1, 2, 3, 4], [0, 22], [7] * 9, [9, 8]]
    made = quiet(numbered(small, FIXED), batch_sampler=batches, batch_size=1, num_workers=workers)
    assert order(made) == batches and order(made) == batches


def test_a_transform_from_the_first_on(small: Path) -> None:
    """Symptom: a lambda before the crop makes the whole data set unknown, or is left out."""
    first = v1.Compose([v1.Lambda(ImageOps.invert), *CROP, v1.ToTensor()])
    dataset = numbered(small, first)
    images = pictures(quiet(dataset, num_workers=1))
    assert torch.equal(images, pictures(theirs.DataLoader(dataset, 4)))


def test_no_transform_of_tensors_writes_into_others_samples(small: Path) -> None:
    """Symptom: a transform in place changes a batch that was delivered before."""

    def clears(image: Any) -> Any:
        return image.mul_(0.5)

    dataset = numbered(small, v1.Compose([*EVAL.transforms, clears]))
    expected = pictures(theirs.DataLoader(dataset, 4))
    for workers in (0, 2):
        made = quiet(dataset, num_workers=workers)
        assert torch.equal(pictures(made), expected) and torch.equal(pictures(made), expected)


# ---- random numbers -----------------------------------------------------------------------


def noisy(root: Path, workers: int, **options: Any) -> DataLoader:
    return quiet(numbered(root, NOISY), **{"num_workers": workers, "seed": 4, **options})


@pytest.mark.parametrize("workers", WORKERS[1:])
def test_workers_do_not_change_the_numbers(small: Path, workers: int) -> None:
    """Symptom: another num_workers is another augmentation; or each worker's NumPy repeats."""
    expected = noisy(small, 0, shuffle=True)
    made = noisy(small, workers, shuffle=True)
    for _ in range(2):
        assert stream(made) == stream(expected)


class Jittered:
    """Has a generator of its own, as `albumentations.Compose(seed=...)` has."""

    def __init__(self) -> None:
        self.generator = np.random.default_rng(7)

    def __call__(self, image: Any) -> Any:
        return image * float(self.generator.random())


def test_a_generator_of_the_scripts_own_repeats(small: Path) -> None:
    """Symptom: with two workers, runs of the same script differ; those with PyTorch's do not."""
    transform = v1.Compose([v1.Resize((8, 8)), v1.ToTensor(), Jittered()])
    epochs = [stream(quiet(numbered(small, transform), num_workers=2, seed=1)) for _ in range(4)]
    assert all(epoch == epochs[0] for epoch in epochs)


def test_every_sample_and_epoch_has_its_own(small: Path) -> None:
    """Symptom: all samples of a batch, or all epochs, get the same noise."""

    def only_noise(image: Any) -> Any:
        drawn = (np.random.rand(), random.random(), float(torch.rand(())))
        return torch.tensor(drawn, dtype=torch.float64)

    dataset = numbered(small, v1.Compose([*CROP, only_noise]))
    for workers in (0, 2):
        made = quiet(dataset, num_workers=workers)
        drawn = torch.cat([pictures(made), pictures(made)])
        for column in drawn.unbind(1):
            assert len(set(column.tolist())) == 2 * N


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("sampler", [None, theirs.WeightedRandomSampler([1.0] * N, N)])
def test_they_resume_after_every_batch(small: Path, workers: int, sampler: Any) -> None:
    """Symptom: workers run ahead, and the state is that of their place, not of the script's."""

    def made(n: int) -> DataLoader:
        order_ = {"shuffle": True} if sampler is None else {"sampler": sampler}
        return quiet(numbered(small, NOISY), num_workers=n, **order_)

    whole = made(workers)
    feed = iter(whole)
    states, expected = [whole.state_dict()], []
    for pair in feed:
        expected += stream([pair])
        states.append(whole.state_dict())
    for n, state in enumerate(states):
        again = made(2 if n == 3 else 0)
        again.load_state_dict(state)
        assert stream(again) == expected[n:], n


def test_a_device_changes_nothing(small: Path) -> None:
    """Symptom: samples of the second prong get other random numbers in Python."""
    assert stream(noisy(small, 2, **DEVICE)) == stream(noisy(small, 0))


def test_the_scripts_own_numbers_are_kept(small: Path) -> None:
    """Symptom: with num_workers=0 the transforms' seeds become the script's."""
    made = noisy(small, 0)
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    expected = random.random(), np.random.rand(), float(torch.rand(()))
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    list(made)
    assert (random.random(), np.random.rand(), float(torch.rand(()))) == expected


# ---- errors -------------------------------------------------------------------------------


class Fails:
    """A transform that fails at one sample."""

    def __call__(self, image: Any) -> Any:
        return self.deeper(image)

    def deeper(self, image: Any) -> Any:
        raise KeyError("the transform's own words")


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_an_exception_is_the_transforms(small: Path, workers: int) -> None:
    """Symptom: a failing transform ends in a dead worker, or says not where it failed."""
    made = quiet(numbered(small, v1.Compose([*CROP, Fails()])), num_workers=workers)
    with pytest.raises(KeyError) as raised:
        list(made)
    told = "".join(traceback.format_exception(raised.value)) + str(raised.value)
    for part in ("the transform's own words", "deeper", Path(__file__).name):
        assert part in told, told


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_before_the_error_come(small: Path, workers: int) -> None:
    """Symptom: an error of batch 5 is raised in batch 1, by workers that run ahead."""

    def fails(label: int) -> int:
        if label == 17:
            raise ValueError("label 17")
        return label

    dataset = numbered(small, FIXED)
    dataset.target_transform = fails
    feed = iter(quiet(dataset, num_workers=workers))
    assert [next(feed)[1][0].item() for _ in range(4)] == [0, 4, 8, 12]
    with pytest.raises(ValueError, match="label 17"):
        next(feed)


def test_samples_of_several_sizes_are_told(small: Path) -> None:
    """Symptom: default_collate's error is hidden."""

    def cut(image: Any) -> Any:
        return image[:, : 20 + int(torch.randint(5, ()))]

    made = quiet(numbered(small, v1.Compose([*EVAL.transforms, cut])), num_workers=2)
    with pytest.raises(RuntimeError, match="equal size"):
        list(made)


# ---- targets of any kind ------------------------------------------------------------------


TARGETS: dict[str, Callable[[int], Any]] = {
    "dict": lambda i: {"label": i, "name": f"n{i}", "area": i / 2},
    "tuple": lambda i: (i, float(i), [i, i + 1]),
    "boxes": lambda i: torch.arange(4.0) + i,
    "NumPy": lambda i: np.full((2, 3), i, dtype=np.float32),
    "text": lambda i: f"a caption of {i}",
    "float": lambda i: i / 3,
    "negative": lambda i: -i,
    "huge": lambda i: 2**40 + i,
    "bool": lambda i: i % 2 == 0,
}


def equal(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return list(one) == list(other) and all(equal(one[name], other[name]) for name in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(equal, one, other))
    return bool(one == other)


@pytest.mark.parametrize("kind", TARGETS)
@pytest.mark.parametrize("transform", [EVAL, FIXED], ids=["native", "in Python"])
def test_targets_of_any_kind(small: Path, kind: str, transform: Any) -> None:
    """Symptom: targets that are no class labels are refused, cut to int64, or mixed up."""
    dataset = numbered(small, transform)
    dataset.target_transform = TARGETS[kind]
    for workers in (0, 2):
        made = list(quiet(dataset, num_workers=workers))
        assert equal(made, list(theirs.DataLoader(dataset, 4)))


def test_targets_follow_a_sampler(small: Path) -> None:
    """Symptom: targets are those of the places, not of the samples."""
    dataset = numbered(small)
    dataset.target_transform = lambda i: f"sample {i}"
    options = {"sampler": [4, 4, 22, 0, 7]}
    assert equal(list(ours(dataset, **options)), list(theirs.DataLoader(dataset, 4, **options)))


def by_column(samples: list[Any]) -> Any:
    images, targets = zip(*samples, strict=True)
    return torch.stack(images), list(zip(*targets, strict=True))


def drawn(label: int) -> tuple[int, float, float, float]:
    return label, random.random(), float(np.random.rand()), torch.rand(()).item()


@pytest.mark.parametrize("transform", [EVAL, NOISY], ids=["native", "in Python"])
@pytest.mark.parametrize("collate", [None, by_column], ids=["default", "its own"])
def test_random_targets_follow_from_the_sample(small: Path, transform: Any, collate: Any) -> None:
    """Symptom: a random target_transform gives other numbers in a resumed run, or with other
    workers or another batch size."""
    dataset = numbered(small, transform)
    dataset.target_transform = drawn

    def made(**options: Any) -> DataLoader:
        options = {"shuffle": True, "seed": 3, "collate_fn": collate, **options}
        return quiet(dataset, **options)

    def targets(batches: Any) -> list[Any]:
        return [
            tuple(float(value) for value in target)
            for _, fields in batches
            for target in zip(*fields, strict=True)
        ]

    whole = made()
    before = random.getstate(), np.random.get_state()[2], torch.get_rng_state()
    expected = targets(whole)
    assert (random.getstate(), np.random.get_state()[2]) == before[:2]
    assert torch.equal(torch.get_rng_state(), before[2])
    assert len({numbers[1:] for numbers in expected}) == N
    assert targets(whole) != expected
    for options in ({"num_workers": 2}, {"batch_size": 7}):
        random.seed(5), np.random.seed(5), torch.manual_seed(5)
        assert targets(made(**options)) == expected
    first = made()
    batches = iter(first)
    next(batches), next(batches)
    resumed = made(num_workers=2)
    resumed.load_state_dict(first.state_dict())
    assert targets(resumed) == expected[8:]


# ---- collate functions --------------------------------------------------------------------


def as_dict(samples: list[Any]) -> Any:
    return {"x": torch.stack([image for image, _ in samples]), "y": [label for _, label in samples]}


def ragged(samples: list[Any]) -> Any:
    return tuple(zip(*samples, strict=True))


@pytest.mark.parametrize("collate", [None, theirs.default_collate, as_dict, ragged])
@pytest.mark.parametrize("transform", [EVAL, FIXED], ids=["native", "in Python"])
@pytest.mark.parametrize("workers", [0, 2])
def test_collate_functions(small: Path, collate: Any, transform: Any, workers: int) -> None:
    """Symptom: collate_fn gets something else than a list of samples, or is not called."""
    dataset = numbered(small, transform)
    made = quiet(dataset, collate_fn=collate, num_workers=workers)
    assert equal(list(made), list(theirs.DataLoader(dataset, 4, collate_fn=collate)))


def kinds(samples: list[Any]) -> Any:
    """The types of the images, and what they hold."""
    views = [image if isinstance(image, (list, tuple)) else [image] for image, _ in samples]
    shown = [[(type(view).__name__, pixels(view)) for view in row] for row in views]
    return shown, [label for _, label in samples]


def pixels(image: Any) -> bytes:
    values = np.asarray(image)
    # Fractions of 255 may differ in their last bit.
    return (np.rint(values * 255) if values.dtype == np.float32 else values).tobytes()


class Twice:
    """Two views, as scripts have them."""

    def __init__(self, transform: Any) -> None:
        self.transform = transform

    def __call__(self, image: Any) -> Any:
        return [self.transform(image), self.transform(image)]


AS_IT_IS = {
    "a PIL image": v1.Compose(CROP),
    "an Image of v2": v2.Compose([*CROP, v2.ToImage()]),
    "two of them": Twice(v2.Compose([v2.Resize(36), v2.CenterCrop(32), v2.ToImage()])),
    "a tensor": v2.Compose([*CROP, v2.PILToTensor()]),
    "floats": v2.Compose([*CROP, v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]),
}


@pytest.mark.parametrize("kind", AS_IT_IS)
@pytest.mark.parametrize("labels", ["its own", "the data set's"])
def test_collate_functions_get_what_the_transforms_end_with(
    small: Path, kind: str, labels: str
) -> None:
    """Symptom: without ToTensor, collate_fn gets tensors of bytes in place of PIL images."""
    dataset = numbered(small, AS_IT_IS[kind])
    if labels == "the data set's":
        dataset.target_transform = str
    for workers in (0, 2):
        made = ours(dataset, collate_fn=kinds, num_workers=workers)
        assert list(made) == list(theirs.DataLoader(dataset, 4, collate_fn=kinds))


def test_a_collate_function_gets_the_tensors_it_asks_for(small: Path) -> None:
    """Symptom: `output` and `layout` are ignored, or no PIL image can be made of them."""
    for options in ({"output": "f32"}, {"layout": "nchw"}):
        made = ours(numbered(small, v1.Compose(CROP)), collate_fn=kinds, **options)
        assert {name for shown, _ in made for (name, _), *_ in shown} == {"Tensor"}


def test_the_default_collate_of_images_of_v2_copies_nothing(small: Path) -> None:
    """Symptom: mixup in collate_fn first stacks the rows of a whole batch."""
    seen: list[Any] = []

    def collate(samples: list[Any]) -> Any:
        batch = theirs.default_collate(samples)
        seen.append((type(batch[0]), batch[0].data_ptr() == samples[0][0].data_ptr()))
        return batch

    list(ours(numbered(small, v2.Compose([*CROP, v2.ToImage()])), collate_fn=collate))
    assert set(seen) == {(torch.Tensor, True)}


def test_the_default_collate_in_a_lambda_is_mixup(small: Path) -> None:
    """Symptom: torchvision's own recipe, mixup in collate_fn, is wrong or falls back."""
    mix = v2.MixUp(num_classes=N)
    made = ours(numbered(small), collate_fn=lambda samples: mix(*theirs.default_collate(samples)))
    for images, labels in made:
        assert images.shape[1:] == (3, 32, 32) and labels.dtype == torch.float32
        assert labels.shape == (len(images), N)
        assert torch.allclose(labels.sum(1), torch.ones(len(labels)))


def test_mixup_mixes_the_images_of_its_labels(small: Path) -> None:
    """Symptom: images and labels are mixed by different partners, for rows share memory."""

    def mixed(samples: list[Any]) -> Any:
        images, labels = theirs.default_collate(samples)
        targets = torch.nn.functional.one_hot(labels, N).float()
        mixed_targets = 0.75 * targets + 0.25 * targets.roll(1, 0)
        return images.mul_(0.75).add_(images.roll(1, 0) / 3), mixed_targets

    dataset = numbered(small)
    before = theirs.DataLoader(dataset, 4, collate_fn=mixed)
    assert equal(list(ours(dataset, collate_fn=mixed)), list(before))


def test_a_collate_function_may_change_its_samples(small: Path) -> None:
    """Symptom: what collate_fn writes into a sample turns up in a later batch."""

    def cleared(samples: list[Any]) -> Any:
        before = theirs.default_collate(samples)[0].clone()
        for image, _ in samples:
            image.zero_()
        return before

    dataset = numbered(small)
    made = ours(dataset, collate_fn=cleared, batch_size=2)
    expected = torch.cat(list(theirs.DataLoader(dataset, 2, collate_fn=cleared)))
    for _ in range(2):
        assert torch.equal(torch.cat(list(made)), expected)


def test_an_exception_of_the_collate_function(small: Path) -> None:
    """Symptom: as of transforms."""

    def fails(samples: list[Any]) -> Any:
        raise LookupError("collate's own words")

    for transform in (EVAL, FIXED):
        made = quiet(numbered(small, transform), collate_fn=fails, num_workers=2)
        with pytest.raises(LookupError, match="collate's own words"):
            list(made)


# ---- data sets of everybody's own ---------------------------------------------------------


class Own(Samples):
    """Says where sample i is; how is a function of the test."""

    def __init__(self, files: list[str], say: Callable[[str, int], Any], transform: Any) -> None:
        self.files, self.say, self.transform = files, say, transform

    def __len__(self) -> int:
        return len(self.files)

    def sample(self, i: int) -> Any:
        return self.say(self.files[i], i)


def content(path: str) -> bytes:
    return Path(path).read_bytes()


def extent(path: str) -> tuple[str, int, int]:
    return path, 0, Path(path).stat().st_size


FORMS: dict[str, Callable[[str, int], Any]] = {
    "path": lambda path, i: path,
    "Path": lambda path, i: Path(path),
    "bytes": lambda path, i: content(path),
    "extent": lambda path, i: extent(path),
    "path and label": lambda path, i: (path, i),
    "path and text": lambda path, i: (path, f"text {i}"),
    "bytes and label": lambda path, i: (content(path), i),
    "extent and boxes": lambda path, i: (extent(path), torch.full((4,), i)),
    "named path": lambda path, i: {"image": path, "label": i, "name": f"n{i}"},
    "named bytes": lambda path, i: {"id": i, "image": content(path), "boxes": np.full(4, i)},
    "named extent": lambda path, i: {"image": extent(path), "mask": torch.full((2, 2), i)},
}


def own(small: Path, form: str, transform: Any = EVAL) -> Own:
    return Own([path for path, _ in numbered(small).samples], FORMS[form], transform)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("transform", [EVAL, FIXED], ids=["native", "in Python"])
def test_a_data_set_that_says_where_its_images_are(small: Path, form: str, transform: Any) -> None:
    """Symptom: one's own data set is slow, or its fields are lost, or another sample's."""
    dataset = own(small, form, transform)
    for options in ({}, {"num_workers": 2}, {"sampler": [3, 22, 3, 0, 5]}):
        made = quiet(dataset, **options)
        assert equal(list(made), list(theirs.DataLoader(dataset, 4, **options)))
        assert made.stats()["loader"] == "bothends"


@pytest.mark.parametrize("form", ["named path", "named bytes", "bytes and label"])
def test_its_shuffled_epochs_keep_fields_and_images_together(small: Path, form: str) -> None:
    """Symptom: as above, where the order is bothends' own."""
    dataset = own(small, form)
    alone_ = {}
    for i in range(N):
        sample = dataset[i]
        image = sample["image"] if isinstance(sample, dict) else sample[0]
        alone_[image.numpy().tobytes()] = i
    made = ours(dataset, shuffle=True)
    for batch in made:
        is_named = isinstance(batch, dict)
        images = batch["image"] if is_named else batch[0]
        numbers = (batch["label"] if "label" in batch else batch["id"]) if is_named else batch[1]
        assert [alone_[image.numpy().tobytes()] for image in images] == numbers.tolist()


@pytest.mark.parametrize("form", ["bytes and label", "named path", "path and text"])
def test_it_resumes_after_every_batch(small: Path, form: str) -> None:
    """Symptom: a data set of one's own cannot be resumed."""

    def taken(loader: DataLoader, n: int | None = None) -> list[bytes]:
        feed = iter(loader)
        batches = list(feed) if n is None else [next(feed) for _ in range(n)]
        images = (b["image"] if isinstance(b, dict) else b[0] for b in batches)
        return [image.numpy().tobytes() for image in images]

    expected = taken(ours(own(small, form, TRAIN), shuffle=True, seed=2))
    for n in range(len(expected) + 1):
        first, again = (ours(own(small, form, TRAIN), shuffle=True) for _ in range(2))
        first._seed = 2
        assert taken(first, n) == expected[:n]
        again.load_state_dict({**first.state_dict()} if n else {"epoch": 0, "seed": 2})
        assert taken(again) == expected[n:]


def test_parts_of_ones_own_data_set(small: Path) -> None:
    """Symptom: a Subset of it is unknown, or has the fields of other samples."""
    part = theirs.Subset(own(small, "named bytes"), [7, 0, 7, 21])
    both = theirs.ConcatDataset([part, own(small, "named bytes")])
    for dataset in (part, both):
        assert equal(list(ours(dataset)), list(theirs.DataLoader(dataset, 4)))


@pytest.mark.parametrize(
    "form", ["path and label", "path and text", "named path", "extent and boxes"]
)
@pytest.mark.parametrize("workers", [0, 2])
def test_a_batch_of_bad_images_is_empty(
    small: Path, tmp_path: Path, form: str, workers: int
) -> None:
    """Symptom: where Python code remains, a batch that is skipped as a whole is an IndexError."""
    bad = tmp_path / "bad.jpg"
    bad.write_bytes(b"no image")
    for transform in (EVAL, FIXED):
        dataset = own(small, form, transform)
        dataset.files = [dataset.files[0], str(bad), dataset.files[2]]
        options: dict[str, Any] = {"batch_size": 1, "on_bad": "skip", "num_workers": workers}
        first, empty, last = quiet(dataset, **options)
        assert equal(first, next(iter(theirs.DataLoader(dataset))))
        assert type(empty) is type(first) is type(last)
        values, others = (
            list(batch.values()) if isinstance(batch, dict) else batch for batch in (empty, first)
        )
        for value, other in zip(values, others, strict=True):
            assert type(value) is type(other) and len(value) == 0
            if isinstance(value, torch.Tensor):
                assert (value.shape[1:], value.dtype) == (other.shape[1:], other.dtype)
        assert [len(b) for b in quiet(dataset, **options, collate_fn=list)] == [1, 0, 1]


@pytest.mark.parametrize("workers", [0, 2])
def test_bfloat16_reaches_the_transforms(small: Path, workers: int) -> None:
    """Symptom: with workers, `NumPy has no bfloat16`."""
    transform = v1.Compose([*EVAL.transforms, torch.neg])
    made = quiet(numbered(small, transform), output="bf16", num_workers=workers)
    expected = pictures(ours(numbered(small), output="bf16"))
    assert expected.dtype == torch.bfloat16
    assert torch.equal(pictures(made), -expected)


def test_a_sample_that_raises_is_heard(small: Path) -> None:
    """Symptom: an error of one's own code is a broken image, without its words."""

    def fails(path: str, i: int) -> Any:
        if i == 9:
            raise ConnectionError("no such bucket")
        return content(path), i

    dataset = own(small, "bytes")
    dataset.say = fails
    with pytest.raises(Exception, match="no such bucket") as raised:
        list(ours(dataset))
    assert "9" in str(raised.value) or isinstance(raised.value, ConnectionError)


def test_what_is_emptied_keeps_its_class() -> None:
    """Symptom: a `defaultdict` cannot be made of a mapping alone."""
    full = defaultdict(list, image=torch.ones(1, 3), names=["a"])
    empty = emptied(full)
    assert type(empty) is defaultdict and empty.default_factory is list
    assert empty["image"].shape == (0, 3) and empty["names"] == []
    assert full["names"] == ["a"]
