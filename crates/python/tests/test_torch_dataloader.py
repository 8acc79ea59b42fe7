"""`bothends.torch.DataLoader` instead of PyTorch's: what it recognises, what it warns of, and that
a training script sees the same as before."""

from __future__ import annotations

import shutil
import re
import warnings
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
torchvision = pytest.importorskip("torchvision", reason="torchvision is not installed")

import bothends
import numpy as np
import torch.utils.data as theirs
import torchvision.transforms as v1
from bothends.torch import DataLoader
from PIL import Image
from torchvision.datasets import CIFAR10, FakeData, ImageFolder

from images import write_cifar10

EVAL = v1.Compose([v1.Resize(36), v1.CenterCrop(32), v1.ToTensor()])
TRAIN = v1.Compose([v1.RandomResizedCrop(32), v1.RandomHorizontalFlip(), v1.ToTensor()])


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS"):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture
def root(small: Path, tmp_path: Path) -> Path:
    """A copy: a loader leaves its side index next to the data."""
    return Path(shutil.copytree(small, tmp_path / "root"))


@pytest.fixture
def cifar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_cifar10(tmp_path / "cifar")
    # The records are not those of the checksums.
    monkeypatch.setattr("torchvision.datasets.cifar.check_integrity", lambda *_: True)
    return tmp_path / "cifar"


def ours(dataset: Any, **options: Any) -> DataLoader:
    """A loader that must not fall back, and has nothing to warn of."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return DataLoader(dataset, **options)


def warned(dataset: Any, **options: Any) -> tuple[DataLoader, str]:
    """A loader that warns just once."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        made = DataLoader(dataset, **options)
        batches = list(made)
        assert batches
    lines = [str(line.message) for line in said if "bothends" in str(line.message)]
    assert len(lines) == 1 and said[0].filename == __file__, said
    return made, lines[0]


def everything(loader: Any) -> tuple[Any, Any]:
    images, labels = zip(*loader, strict=True)
    return torch.cat(images), torch.cat(labels)


# ---- recognised ---------------------------------------------------------------------------


@pytest.mark.parametrize("drop_last", [False, True])
def test_without_shuffle_all_is_as_it_was(root: Path, drop_last: bool) -> None:
    dataset = ImageFolder(root, EVAL)
    options = {"batch_size": 4, "drop_last": drop_last}
    made = ours(dataset, **options)
    before = theirs.DataLoader(dataset, **options)
    assert len(made) == len(before) == (5 if drop_last else 6)
    for mine, other in zip(made, before, strict=True):
        assert isinstance(mine, list) and mine[0].dtype == other[0].dtype
        assert torch.equal(mine[1], other[1]) and mine[1].dtype == other[1].dtype
        assert mine[0].shape == other[0].shape
        assert (mine[0] - other[0]).abs().max() < 1.5 / 255
    assert made.recipe["ops"] and made.words


def test_shuffled_epochs_hold_all_and_differ(root: Path) -> None:
    made = ours(ImageFolder(root, TRAIN), batch_size=4, shuffle=True, num_workers=2)
    epochs = [everything(made) for _ in range(3)]
    labels = sorted(ImageFolder(root).targets)
    for images, seen in epochs:
        assert sorted(seen.tolist()) == labels and images.shape == (23, 3, 32, 32)
    assert not torch.equal(epochs[0][1], epochs[1][1])


def test_the_generators_seed_is_the_seed(root: Path) -> None:
    def first(seed: int | None) -> Any:
        generator = None if seed is None else torch.Generator().manual_seed(seed)
        dataset = ImageFolder(root, TRAIN)
        return everything(ours(dataset, batch_size=4, shuffle=True, generator=generator))[0]

    assert torch.equal(first(3), first(3)) and not torch.equal(first(3), first(4))
    torch.manual_seed(9)
    of_torch = first(None)
    torch.manual_seed(9)
    assert torch.equal(first(None), of_torch) and torch.equal(first(9), of_torch)
    state = torch.get_rng_state()
    first(3)
    assert torch.equal(torch.get_rng_state(), state), "nobody's random numbers are drawn"


def test_samplers(root: Path) -> None:
    dataset = ImageFolder(root, EVAL)
    sequential = ours(dataset, batch_size=4, sampler=theirs.SequentialSampler(dataset))
    assert everything(sequential)[1].tolist() == dataset.targets
    shuffled = theirs.RandomSampler(dataset, generator=torch.Generator().manual_seed(3))
    of_sampler = ours(dataset, batch_size=4, sampler=shuffled)
    generator = torch.Generator().manual_seed(3)
    same = ours(dataset, batch_size=4, shuffle=True, generator=generator)
    assert torch.equal(everything(of_sampler)[1], everything(same)[1])
    assert of_sampler.sampler is shuffled


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("drops", [(False, False), (False, True), (True, False), (True, True)])
def test_distributed_sampler(root: Path, shuffle: bool, drops: tuple[bool, bool]) -> None:
    """Each rank gets the sampler's samples in the sampler's order: as many batches of as many
    samples as PyTorch gives, with what it gives twice and without what it drops."""
    dataset = ImageFolder(root, EVAL)
    by_bytes = {image.numpy().tobytes(): n for n, (image, _) in enumerate(ours_in_order(dataset))}
    for world, batch_size in ((3, 2), (2, 4), (2, 6), (4, 3), (5, 1)):
        for rank in range(world):
            sampler = theirs.DistributedSampler(
                dataset, world, rank, shuffle=shuffle, seed=5, drop_last=drops[0]
            )
            common = {"batch_size": batch_size, "sampler": sampler, "drop_last": drops[1]}
            made, before = ours(dataset, **common), theirs.DataLoader(dataset, **common)
            lengths = [len(labels) for _, labels in made]
            assert lengths == [len(labels) for _, labels in before]
            assert len(made) == len(lengths) == len(before)
            sampler.set_epoch(1)
            seen = [by_bytes[image.numpy().tobytes()] for image in everything(made)[0]]
            assert seen == list(sampler)[: sum(lengths)]


def test_less_than_a_batch_is_no_error(root: Path) -> None:
    """As PyTorch's loader: one short batch, or none where the last one is dropped."""
    dataset = ImageFolder(root, EVAL)
    options: list[dict[str, Any]] = [{"batch_size": 24}, {"batch_size": 24, "drop_last": True}]
    for drop_last in (False, True):
        sampler = theirs.DistributedSampler(dataset, 2, 0)
        options.append({"batch_size": 13, "sampler": sampler, "drop_last": drop_last})
    for option in options:
        made, before = ours(dataset, **option), theirs.DataLoader(dataset, **option)
        lengths = [[len(labels) for _, labels in loader] for loader in (made, before)]
        assert lengths[0] == lengths[1] and len(made) == len(before) == len(lengths[0])


def test_pytorchs_attributes_are_there(root: Path) -> None:
    dataset = ImageFolder(root, EVAL)
    before = theirs.DataLoader(dataset, batch_size=4)
    made = ours(dataset, batch_size=4)
    for name in vars(before):
        if not name.startswith("_"):
            assert hasattr(made, name), name


def test_a_closed_loader_says_so(root: Path) -> None:
    dataset = ImageFolder(root, EVAL)
    with ours(dataset, batch_size=4) as made:
        batches = iter(made)
        images, _ = next(batches)
    assert images.shape == (4, 3, 32, 32)
    with pytest.raises(bothends.OptionsError, match="closed"):
        iter(made)
    left, _ = warned(Mine(), batch_size=2)
    with left:
        pass
    with pytest.raises(bothends.OptionsError, match="closed"):
        iter(left)


def ours_in_order(dataset: Any) -> list[tuple[Any, int]]:
    images, labels = everything(ours(dataset, batch_size=4))
    return list(zip(images, labels.tolist(), strict=True))


def test_the_samplers_epoch_is_the_epoch(root: Path) -> None:
    dataset = ImageFolder(root, TRAIN)
    sampler = theirs.DistributedSampler(dataset, 1, 0, seed=5)
    made = ours(dataset, batch_size=4, sampler=sampler)
    epochs = []
    for epoch in (0, 1, 0):
        sampler.set_epoch(epoch)
        epochs.append(everything(made)[0])
    assert torch.equal(epochs[0], epochs[2]) and not torch.equal(epochs[0], epochs[1])


@pytest.mark.parametrize("train", [True, False])
def test_cifar10(cifar: Path, train: bool) -> None:
    dataset = CIFAR10(cifar, train=train, transform=v1.ToTensor())
    made = ours(dataset, batch_size=8)
    before = theirs.DataLoader(dataset, batch_size=8)
    assert len(made) == len(before)
    assert torch.equal(everything(made)[1], everything(before)[1])
    assert torch.equal(everything(made)[0], everything(before)[0])
    crop = v1.Compose([v1.RandomCrop(32, padding=4), v1.RandomHorizontalFlip(), v1.ToTensor()])
    shuffled = ours(CIFAR10(cifar, train=train, transform=crop), batch_size=8, shuffle=True)
    assert sorted(everything(shuffled)[1].tolist()) == sorted(dataset.targets)


def of_cifar10(cls: Any, root: Path, how: str) -> Any:
    """A shuffled part of CIFAR-10, in which the label of a sample is its index."""
    dataset = CIFAR10(root, transform=v1.ToTensor())
    dataset.targets = list(range(len(dataset)))
    part = theirs.Subset(dataset, range(1, len(dataset), 3))
    generator = torch.Generator().manual_seed(4)
    if how == "of the sampler":
        sampler = theirs.RandomSampler(part, generator=generator)
        return cls(part, batch_size=6, sampler=sampler)
    return cls(part, batch_size=6, shuffle=True, generator=generator)


@pytest.mark.parametrize("how", ["of the sampler", "of the loader"])
def test_a_part_of_cifar10_resumes_with_its_generator(cifar: Path, how: str) -> None:
    """Symptom: a resumed epoch has another order, as the state knows nothing of the generator."""
    made = of_cifar10(ours, cifar, how)
    plain = of_cifar10(theirs.DataLoader, cifar, how)
    whole, states = [], []
    for _ in range(3):
        for _, labels in made:
            states.append((len(whole), made.state_dict()))
            whole.append(labels.tolist())
    whole += [labels.tolist() for _ in range(2) for _, labels in made]
    assert whole == [labels.tolist() for _ in range(5) for _, labels in plain]
    for n, state in states:
        resumed = of_cifar10(ours, cifar, how)
        resumed.load_state_dict(state)
        rest = [labels.tolist() for _ in range(2) for _, labels in resumed]
        assert rest == whole[n + 1 :][: len(rest)], n


def test_a_cifar10_with_other_images_is_pytorchs(cifar: Path) -> None:
    dataset = CIFAR10(cifar, transform=v1.ToTensor())
    dataset.data = 255 - dataset.data
    made, line = warned(dataset, batch_size=8)
    assert "not those of its files" in line
    assert torch.equal(everything(made)[0], everything(theirs.DataLoader(dataset, 8))[0])


def test_a_cifar10_with_other_labels_has_them(cifar: Path) -> None:
    dataset = CIFAR10(cifar, transform=v1.ToTensor())
    dataset.targets = dataset.targets[::-1]
    images, labels = everything(ours(dataset, batch_size=8))
    before = everything(theirs.DataLoader(dataset, batch_size=8))
    assert torch.equal(images, before[0]) and torch.equal(labels, before[1])
    assert labels.tolist() == dataset.targets


def test_views_come_as_a_list(root: Path) -> None:
    five = v1.Compose([v1.Resize(40), v1.FiveCrop(32)])
    floats = v1.Compose([v1.CenterCrop(40), v1.ToTensor(), v1.FiveCrop(32)])
    dataset = ImageFolder(root, floats)
    pairs = zip(ours(dataset, batch_size=4), theirs.DataLoader(dataset, batch_size=4), strict=True)
    for (views, _), (others, _) in pairs:
        assert isinstance(views, list) and len(views) == len(others) == 5
        assert all(torch.equal(a, b) for a, b in zip(views, others, strict=True))
    stack = v1.Lambda(lambda crops: torch.stack([v1.ToTensor()(crop) for crop in crops]))
    batch = next(iter(warned(ImageFolder(root, v1.Compose([five, stack])), batch_size=4)[0]))
    assert batch[0].shape == (4, 5, 3, 32, 32)


def test_the_data_set_works_after_a_run(root: Path) -> None:
    before = ImageFolder(root, EVAL).samples
    for _ in range(2):
        everything(ours(ImageFolder(root, EVAL), batch_size=4))
    assert ImageFolder(root, EVAL).samples == before
    assert len(everything(theirs.DataLoader(ImageFolder(root, EVAL), batch_size=4))[1]) == 23


def test_state_and_epochs(root: Path) -> None:
    def made() -> DataLoader:
        generator = torch.Generator().manual_seed(1)
        dataset = ImageFolder(root, TRAIN)
        return ours(dataset, batch_size=4, shuffle=True, generator=generator)

    loader = made()
    loader.set_epoch(2)
    feed = iter(loader)
    for _ in range(2):
        next(feed)
    state = loader.state_dict()
    rest = [images for images, _ in feed]
    again = made()
    again.load_state_dict(state)
    assert all(torch.equal(a, b) for (a, _), b in zip(again, rest, strict=True))
    assert loader.stats()["storage_read_bytes"] > 0


# ---- what remains in Python ---------------------------------------------------------------


class Inverted:
    """A transform that nobody knows."""

    def __call__(self, image: Any) -> Any:
        return 1 - image


def noisy(image: Any) -> Any:
    return image + torch.rand(())


def test_from_an_unknown_transform_on_python_goes_on(root: Path) -> None:
    known = [v1.Resize(36), v1.CenterCrop(32), v1.ToTensor()]
    dataset = ImageFolder(root, v1.Compose([*known, Inverted(), v1.Normalize(0.5, 0.5)]))
    made, line = warned(dataset, batch_size=4)
    assert "Inverted" in line
    before, labels = everything(theirs.DataLoader(dataset, batch_size=4))
    images, seen = everything(made)
    assert torch.equal(seen, labels) and (images - before).abs().max() < 3.5 / 255


def test_what_remains_is_deterministic(root: Path) -> None:
    def images(workers: int, after: int) -> Any:
        torch.manual_seed(77)
        known = [v1.RandomResizedCrop(32), v1.ToTensor()]
        dataset = ImageFolder(root, v1.Compose([*known, v1.Lambda(noisy)]))
        generator = torch.Generator().manual_seed(1)
        options = {"batch_size": 4, "shuffle": True, "num_workers": workers}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = DataLoader(dataset, generator=generator, **options)
        feed = iter(made)
        for _ in range(after):
            next(feed)
        state = made.state_dict()
        made.load_state_dict(state)
        return torch.cat([images for images, _ in made])

    assert torch.equal(images(1, 0), images(3, 0))
    assert torch.equal(images(1, 0)[8:], images(2, 2))


def test_python_keeps_its_random_numbers(root: Path) -> None:
    dataset = ImageFolder(root, v1.Compose([v1.Resize((32, 32)), v1.ToTensor(), noisy]))
    made, _ = warned(dataset, batch_size=4)
    torch.manual_seed(4)
    expected = torch.rand(2)
    torch.manual_seed(4)
    list(made)
    assert torch.equal(torch.rand(2), expected)


def test_collate_fn_and_target_transform(root: Path) -> None:
    dataset = ImageFolder(root, EVAL, target_transform=lambda label: label * 10)
    images, labels = everything(ours(dataset, batch_size=4))
    assert labels.tolist() == [10 * n for n in ImageFolder(root).targets]
    calls = []

    def collate(samples: list[tuple[Any, int]]) -> Any:
        calls.append(len(samples))
        assert all(image.shape == (3, 32, 32) and isinstance(n, int) for image, n in samples)
        return {"x": torch.stack([image for image, _ in samples])}

    batches = list(ours(ImageFolder(root, EVAL), batch_size=4, collate_fn=collate))
    assert calls == [4, 4, 4, 4, 4, 3]
    assert torch.equal(torch.cat([batch["x"] for batch in batches]), images)


# ---- left to PyTorch ----------------------------------------------------------------------


class Mine(theirs.Dataset):  # type: ignore[misc]
    def __len__(self) -> int:
        return 6

    def __getitem__(self, n: int) -> tuple[Any, int]:
        return torch.full((3,), n), n


def left(root: Path) -> dict[str, tuple[Any, dict[str, Any], str]]:
    folder = ImageFolder(root, EVAL)
    loads = ImageFolder(root, EVAL, loader=lambda path: Image.open(path).convert("RGB"))
    return {
        "an unknown data set": (Mine(), {}, "Mine"),
        "a made-up one": (FakeData(6, (3, 8, 8), transform=v1.ToTensor()), {}, "FakeData"),
        "a loader of its own": (loads, {}, "loader of its own"),
        "no batches": (folder, {"batch_size": None}, "batch_size is None"),
        "all sizes": (ImageFolder(root, v1.ToTensor()), {"batch_size": 1}, "size"),
    }


LEFT = ["an unknown data set", "a made-up one", "a loader of its own", "no batches", "all sizes"]


# ---- anything but a plain folder in plain order ---------------------------------------------


def followed(root: Path) -> dict[str, tuple[Any, dict[str, Any]]]:
    folder = ImageFolder(root, EVAL)
    filtered = ImageFolder(root, EVAL)
    filtered.samples = filtered.samples[3:]
    filtered.imgs, filtered.targets = filtered.samples, filtered.targets[3:]
    reordered = ImageFolder(root, EVAL)
    reordered.samples[7], reordered.samples[8] = reordered.samples[8], reordered.samples[7]
    swapped = ImageFolder(root, EVAL)
    swapped.samples = [(path, 4 - label) for path, label in swapped.samples]
    loads = ImageFolder(root, EVAL, loader=torchvision.datasets.folder.pil_loader)
    generator = torch.Generator()
    weighted = theirs.WeightedRandomSampler([1.0] * 23, 23, generator=generator)
    batches = theirs.BatchSampler(theirs.SequentialSampler(folder), 5, False)
    few = theirs.RandomSampler(folder, num_samples=4, generator=generator)
    others = theirs.SequentialSampler(ImageFolder(root, EVAL))
    return {
        "a subset": (theirs.Subset(folder, [1, 2, 3]), {}),
        "filtered": (filtered, {}),
        "another order": (reordered, {}),
        "other labels": (swapped, {}),
        "torchvision's own loader": (loads, {}),
        "a weighted sampler": (folder, {"sampler": weighted}),
        "a batch sampler": (folder, {"batch_sampler": batches, "batch_size": 1}),
        "some of the samples": (folder, {"sampler": few}),
        "a sampler of another data set": (folder, {"sampler": others}),
    }


FOLLOWED = [
    "a subset",
    "filtered",
    "another order",
    "other labels",
    "torchvision's own loader",
    "a weighted sampler",
    "a batch sampler",
    "some of the samples",
    "a sampler of another data set",
]


def seed_of(loader: Any) -> None:
    """Its sampler draws the same numbers again."""
    generator = getattr(loader.sampler, "generator", None)
    if generator is not None:
        generator.manual_seed(3)


@pytest.mark.parametrize("case", FOLLOWED)
def test_what_was_chosen_comes_as_from_pytorch(root: Path, case: str) -> None:
    """Just these samples, in this order, with these labels, in these batches."""
    dataset, options = followed(root)[case]
    options = {"batch_size": 2, **options}
    # With a seed given, it draws none from the sampler's generator.
    made, before = ours(dataset, seed=1, **options), theirs.DataLoader(dataset, **options)
    loaded = []
    for loader in (made, before):
        seed_of(loader)
        loaded.append(list(loader))
    assert len(made) == len(before) == len(loaded[0]) == len(loaded[1])
    for (images, labels), (others, numbers) in zip(*loaded, strict=True):
        assert torch.equal(labels, numbers) and torch.equal(images, others)
    assert made.stats()["loader"] == "bothends"


def test_labels_are_those_of_the_samples(root: Path) -> None:
    dataset = ImageFolder(root, EVAL)
    dataset.samples = [(path, 0) for path, _ in dataset.samples]
    labels = [labels for _, labels in ours(dataset, batch_size=2)]
    assert len(labels) == 12 and all((some == 0).all() for some in labels)


def test_an_epoch_that_is_set_is_the_samplers_too(root: Path) -> None:
    dataset = ImageFolder(root, EVAL)
    sampler = theirs.DistributedSampler(dataset, num_replicas=2, rank=1)
    made = ours(dataset, batch_size=2, sampler=sampler)
    made.set_epoch(3)
    batches = iter(made)
    next(batches)
    state = made.state_dict()
    expected = [labels.tolist() for _, labels in batches]
    assert sampler.epoch == state["epoch"] == 3
    fresh = theirs.DistributedSampler(dataset, num_replicas=2, rank=1)
    again = ours(dataset, batch_size=2, sampler=fresh)
    again.load_state_dict(state)
    assert [labels.tolist() for _, labels in again] == expected


def test_views_of_a_sample_stay_with_its_label(root: Path) -> None:
    crops = v1.Compose([v1.Resize(40), v1.CenterCrop(36), v1.ToTensor(), v1.FiveCrop(32)])
    dataset = ImageFolder(root, crops, target_transform=lambda label: label + 10)
    views, labels = next(iter(ours(dataset, batch_size=3)))
    plain, numbers = next(iter(ours(ImageFolder(root, crops), batch_size=3)))
    assert len(views) == 5 and labels.tolist() == [n + 10 for n in numbers.tolist()]
    assert all(torch.equal(a, b) for a, b in zip(views, plain, strict=True))


def test_names_that_no_loader_knows_are_refused(root: Path) -> None:
    dataset = ImageFolder(root, EVAL)
    with pytest.raises(bothends.OptionsError, match="`bogus` is not an option of DataLoader"):
        DataLoader(dataset, bogus=1)
    for name, near in (("bacth_size", "batch_size"), ("workers", "num_workers")):
        with pytest.raises(bothends.OptionsError, match=f"`{name}`.* did you mean `{near}`"):
            DataLoader(dataset, **{name: 1})
    with pytest.raises(ValueError, match="mutually exclusive with shuffle"):
        DataLoader(dataset, shuffle=True, sampler=theirs.SequentialSampler(dataset))


@pytest.mark.parametrize("case", LEFT)
def test_what_is_not_read_comes_with_one_warning(root: Path, case: str) -> None:
    dataset, options, part = left(root)[case]
    options = {"batch_size": 2, **options}
    made, line = warned(dataset, **options)
    streams = case == "no batches"
    who = "PyTorch's own DataLoader" if streams else "The data set's own code"
    assert part in line and f"{who} runs" in line
    for mine, other in zip(made, theirs.DataLoader(dataset, **options), strict=True):
        for a, b in zip(mine, other, strict=True):
            assert torch.equal(torch.as_tensor(a), torch.as_tensor(b))
    assert len(made) == len(theirs.DataLoader(dataset, **options))
    assert hasattr(made, "state_dict") == (not streams), "programs ask before they save one"


def test_options_without_effect_are_named() -> None:
    """Symptom: `output="bf16"` gives float32, and nothing is said."""
    options = {"output": "bf16", "layout": "nhwc", "on_bad": "skip", "csds": [], "seed": 3}
    with pytest.warns(UserWarning) as said:
        made = DataLoader(Mine(), batch_size=2, **options)
    named = [str(w.message) for w in said if "no effect" in str(w.message)]
    assert len(named) == 1 and named[0].endswith("no effect: output, layout, on_bad")
    assert "without effect: output, layout, on_bad" in made.words
    left, _ = warned(Mine(), batch_size=2)
    assert not any("without effect" in line for line in left.words)


@pytest.mark.parametrize(
    "option",
    ["output", "layout", "strategy", "objective", "on_bad", "ranks", "reader", "side_index"],
)
def test_values_that_no_option_has_are_refused_at_once(root: Path, option: str) -> None:
    """Symptom: the script runs up to its first batch, and fails then."""
    for dataset in (ImageFolder(root, v1.Resize((8, 8))), Mine()):
        with pytest.raises(bothends.OptionsError, match=f"`{option}` is 'f64'; it must be"):
            DataLoader(dataset, **{option: "f64"})


def test_values_of_options_are_those_of_the_native_loader(root: Path) -> None:
    from bothends import _options

    for option, words in _options._WORDS.items():
        if option != "ranks":
            with pytest.raises(bothends.OptionsError) as raised:
                bothends.Loader(root, "imagenet-eval", **{option: "zzz"})
            known = set(re.findall(r"[\w-]+", str(raised.value).split("; ")[1]))
            # Messages leave out the variants of baselines, and an earlier word.
            left_out = {"ordered-baseline", "mte-with-step", "wrr-by-rates", "uring"}
            rest = set(words) - {None} - left_out - known
            assert not rest, (option, rest)


def test_the_class_takes_a_type() -> None:
    """Symptom: `def train(loader: DataLoader[int])` is a TypeError."""
    assert "DataLoader[int]" in str(DataLoader[int])
    assert issubclass(DataLoader, theirs.DataLoader)


def test_options_of_the_loader(root: Path) -> None:
    dataset = ImageFolder(root, EVAL)
    plain = everything(ours(dataset, batch_size=4))
    device = ours(dataset, batch_size=4, csds=["sim:ideal,rate=2000"], side_index="off")
    assert torch.equal(everything(device)[0], plain[0])
    assert device.stats()["back"][0]["device"].startswith("sim:ideal")
    with pytest.raises(bothends.OptionsError, match="`last`"):
        DataLoader(dataset, batch_size=4, last="keep")
    halves = ours(dataset, batch_size=4, output="f16")
    assert next(iter(halves))[0].dtype == torch.float16
    assert np.isclose(float(next(iter(halves))[0].float().mean()), float(plain[0][:4].mean()), 0.01)
