"""PyTorch: `DataLoader` takes the place of `torch.utils.data.DataLoader` in one line.

    from bothends.torch import DataLoader
    loader = DataLoader(ImageFolder(root, transform), batch_size=256, shuffle=True, num_workers=8)

A data set that is recognised is read by bothends; its transforms are translated to a recipe as
far as they are known, and from the first unknown one on they run in Python, on each sample, in
their order. What cannot be translated at all runs as it did, in PyTorch's own loader. Either
way there is one warning, which says what it is and what it costs.
"""

import inspect
import os
import pickle
import random
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.utils.data

from ._errors import DataError, OptionsError
from ._loader import Batch, Loader
from ._transforms import Translation, translate

__all__ = ["DataLoader", "Dataset"]


class DataLoader:
    """Loads a torchvision data set with bothends: the arguments of `torch.utils.data.DataLoader`,
    and those of `bothends.Loader` behind them.

    Recognised are `torchvision.datasets.ImageFolder` (with its default loader and extensions)
    and `CIFAR10`. `words` says what became of each transform; `recipe` is the recipe.

    Differences from PyTorch's: `num_workers` are threads (0 is one per core), so nothing is
    pickled and no process is started; an epoch's order is a function of (seed, epoch), where
    the seed is a `DistributedSampler`'s, else that of `generator`, else `torch.initial_seed()`;
    ranks take a step's samples in runs, not in turns (as many of them, in as many batches, as
    with the sampler); `state_dict` is exact at any batch.

    Args:
        dataset: the data set; what is not recognised is loaded by PyTorch's own loader.
        batch_size, shuffle, drop_last: as there.
        sampler: None, a `DistributedSampler`, `RandomSampler` or `SequentialSampler`.
        num_workers: host threads that preprocess; 0 is one per core.
        collate_fn: called with the list of samples of a batch, as there, in Python.
        pin_memory: copies batches to page-locked memory, where CUDA is available.
        generator: its seed is the loader's.
        options: any of `bothends.Loader`, for example csds=["tcp://nas:7070"].
        others: accepted for PyTorch's sake; they mean nothing for threads.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Any = None,
        batch_sampler: Any = None,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: torch.Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        **options: Any,
    ) -> None:
        self.dataset = dataset
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.num_workers = num_workers
        self.collate_fn = collate_fn
        self.pin_memory = pin_memory
        self.generator = generator
        self.batch_sampler = batch_sampler
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.multiprocessing_context = multiprocessing_context
        self.prefetch_factor = prefetch_factor
        self.persistent_workers = persistent_workers
        self.pin_memory_device = pin_memory_device
        self.in_order = in_order
        self._sampler = sampler
        self._theirs: torch.utils.data.DataLoader[Any] | None = None
        theirs = {
            "batch_size": batch_size,
            "shuffle": shuffle,
            "sampler": sampler,
            "batch_sampler": batch_sampler,
            "num_workers": num_workers,
            "collate_fn": collate_fn,
            "pin_memory": pin_memory,
            "drop_last": drop_last,
            "timeout": timeout,
            "worker_init_fn": worker_init_fn,
            "multiprocessing_context": multiprocessing_context,
            "generator": generator,
            "prefetch_factor": prefetch_factor,
            "persistent_workers": persistent_workers,
            "pin_memory_device": pin_memory_device,
            "in_order": in_order,
        }
        if sampler is not None and shuffle:
            raise ValueError("a sampler chooses the order: leave shuffle out")
        unknown_names = set(options) - set(inspect.signature(Loader).parameters)
        if unknown_names:
            raise TypeError(f"no option of bothends.Loader: {', '.join(sorted(unknown_names))}")
        try:
            _refuse(dataset, batch_size, sampler, batch_sampler)
            self._open(bool(shuffle), options)
        except (_Unknown, DataError) as unknown:
            warnings.warn(
                f"bothends: {unknown}; PyTorch's own DataLoader runs instead, "
                "and nothing is faster",
                stacklevel=2,
            )
            self._theirs = torch.utils.data.DataLoader(dataset, **theirs)

    def _open(self, shuffle: bool, options: dict[str, Any]) -> None:
        found = _recognise(self.dataset)
        translation = translate(self.dataset.transform, image_size=found.image_size)
        if not translation.has_fixed_size:
            raise _Unknown(translation.warning or "its samples have no common size")
        ranks = _ranks(self._sampler, shuffle, self.generator)
        defaults: dict[str, Any] = {
            "workers": self.num_workers or "auto",
            "output": translation.output,
            "layout": translation.layout,
            "held_batches": 3,
        }
        last = _last(len(self.dataset), self.batch_size or 1, self._sampler, self.drop_last)
        ours = {"batch_size": self.batch_size, "framework": "torch"}
        settings = {**defaults, **ranks, "last": last, **options, **ours}
        loader = Loader(found.data, translation.recipe, **settings)
        _compare(loader, self.dataset)
        self._loader = loader
        self.recipe = translation.recipe
        self.words = translation.words
        self._finish = _finisher(self.dataset, translation, self.collate_fn)
        self._seed = settings["seed"]
        if translation.warning:
            warnings.warn(f"bothends: {translation.warning}", stacklevel=3)

    def __iter__(self) -> Iterator[Any]:
        if self._theirs is not None:
            return iter(self._theirs)
        epoch = getattr(self._sampler, "epoch", None)
        if epoch is not None:
            self._loader.set_epoch(epoch)
        return self._batches()

    def _batches(self) -> Iterator[Any]:
        consumer = self._loader.batches()
        seeds = (self._seed, self._loader.epoch)
        return map(lambda batch: self._delivered(batch, seeds), consumer)

    def _delivered(self, batch: Batch, seeds: tuple[int, int]) -> Any:
        images, labels = _valid(batch)
        if self._finish is not None:
            return self._pinned(self._finish(images, labels, batch, seeds))
        return self._pinned([images, labels])

    def _pinned(self, batch: Any) -> Any:
        if self.pin_memory and torch.cuda.is_available():
            pin: Callable[[Any], Any] = torch.utils.data._utils.pin_memory.pin_memory
            return pin(batch)
        return batch

    def __len__(self) -> int:
        return len(self._theirs if self._theirs is not None else self._loader)

    @property
    def sampler(self) -> Any:
        """The sampler that was given; else what an epoch can be set at."""
        if self._sampler is not None:
            return self._sampler
        return self._theirs.sampler if self._theirs is not None else self._loader

    def set_epoch(self, epoch: int) -> None:
        """The next epoch shall be this one, also the sampler's."""
        if hasattr(self._sampler, "set_epoch"):
            self._sampler.set_epoch(epoch)
        if self._theirs is None:
            self._loader.set_epoch(epoch)

    def close(self) -> None:
        """Ends the threads and devices of bothends, as `Loader.close` does."""
        if self._theirs is None:
            self._loader.close()

    def __enter__(self) -> "DataLoader":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        """`state_dict`, `load_state_dict` and `stats`, as `Loader` has them: they are not there
        where PyTorch's own loader runs, which has no state."""
        loader = self.__dict__.get("_loader")
        if loader is not None and name == "load_state_dict":
            return self._go_on
        if loader is not None and name in ("state_dict", "stats"):
            return getattr(loader, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _go_on(self, state: dict[str, Any]) -> None:
        self._loader.load_state_dict(state)
        if hasattr(self._sampler, "set_epoch"):
            self._sampler.set_epoch(self._loader.epoch)


class Dataset(torch.utils.data.IterableDataset[Any]):
    """A `bothends.Loader` for programs that insist on a `torch.utils.data.DataLoader`: give that
    `batch_size=None, num_workers=0`. With worker processes every one would load all of it, so
    that raises an `OptionsError`.
    """

    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def __iter__(self) -> Iterator[Any]:
        if torch.utils.data.get_worker_info() is not None:
            line = "num_workers must be 0: bothends preprocesses in threads of its own"
            raise OptionsError(line)
        return iter(self.loader)

    def __len__(self) -> int:
        """Batches of an epoch."""
        return len(self.loader)

    def state_dict(self) -> dict[str, Any]:
        """As `Loader.state_dict`."""
        return self.loader.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """As `Loader.load_state_dict`."""
        self.loader.load_state_dict(state)


class _Unknown(Exception):
    """Why a data set is left to PyTorch's own loader."""


class _Found:
    """A data set that was recognised: its path, and its images' size where all have one."""

    def __init__(self, data: str, image_size: tuple[int, int] | None) -> None:
        self.data = data
        self.image_size = image_size


def _refuse(dataset: Any, batch_size: int | None, sampler: Any, batch_sampler: Any) -> None:
    """What only PyTorch's own loader does."""
    if batch_sampler is not None:
        raise _Unknown("a batch_sampler chooses the samples")
    if batch_size is None:
        raise _Unknown("batch_size is None")
    known = (
        torch.utils.data.DistributedSampler,
        torch.utils.data.RandomSampler,
        torch.utils.data.SequentialSampler,
    )
    if sampler is not None and type(sampler) not in known:
        raise _Unknown(f"the sampler {type(sampler).__name__} chooses the samples")
    if isinstance(sampler, torch.utils.data.RandomSampler) and sampler.replacement:
        raise _Unknown("the sampler draws with replacement")
    is_ranked = isinstance(sampler, torch.utils.data.DistributedSampler)
    if sampler is not None and not is_ranked and len(sampler) != len(dataset):
        raise _Unknown("the sampler chooses some of the samples")
    source = getattr(sampler, "dataset" if is_ranked else "data_source", dataset)
    if source is not dataset:
        raise _Unknown("the sampler is of another data set")


def _recognise(dataset: Any) -> _Found:
    name = f"{type(dataset).__module__}.{type(dataset).__qualname__}"
    if name == "torchvision.datasets.folder.ImageFolder":
        from torchvision.datasets.folder import (  # type: ignore[import-untyped]
            default_loader,
        )

        if dataset.loader is not default_loader:
            raise _Unknown("the ImageFolder has a loader of its own")
        return _Found(dataset.root, None)
    if name == "torchvision.datasets.cifar.CIFAR10":
        return _Found(_cifar10(dataset), (32, 32))
    raise _Unknown(f"the data set {name} is not known")


def _cifar10(dataset: Any) -> str:
    """The folder of the pickled batches that torchvision downloads."""
    folder: str = os.path.join(dataset.root, dataset.base_folder)
    files = dataset.train_list if dataset.train else dataset.test_list
    if len(files) == 1:
        return os.path.join(folder, files[0][0])
    return folder


def _ranks(
    sampler: Any, shuffle: bool, generator: torch.Generator | None
) -> dict[str, Any]:
    """Order, seed and shard, as the sampler or the arguments say."""
    if isinstance(sampler, torch.utils.data.DistributedSampler):
        return {
            "rank": sampler.rank,
            "world_size": sampler.num_replicas,
            "shuffle": sampler.shuffle,
            "seed": sampler.seed,
        }
    if sampler is not None:
        shuffle = isinstance(sampler, torch.utils.data.RandomSampler)
        generator = getattr(sampler, "generator", None) or generator
    seed = torch.initial_seed() if generator is None else generator.initial_seed()
    return {
        "rank": 0,
        "world_size": 1,
        "shuffle": shuffle,
        "seed": seed % 2**63,
    }


def _last(n: int, batch_size: int, sampler: Any, drop_last: bool) -> str:
    """What becomes of samples that fill no step: as many rows on every rank as the sampler gives.

    Raises:
        _Unknown: there is no batch at all, which is no error there.
    """
    is_ranked = isinstance(sampler, torch.utils.data.DistributedSampler)
    world = sampler.num_replicas if is_ranked else 1
    if n < batch_size or (drop_last and n < batch_size * world):
        raise _Unknown(f"{n} samples are less than a step of {world} x {batch_size}")
    n_of_rank = n // world if is_ranked and sampler.drop_last else -(-n // world)
    if n_of_rank % batch_size == 0:
        # Whole batches; the sampler may have filled up the last one.
        return "even" if n_of_rank * world >= n else "drop"
    return "drop" if drop_last else "even"


def _compare(loader: Loader, dataset: Any) -> None:
    """Makes sure that sample i of the loader is sample i of the data set.

    Raises:
        _Unknown: it is not: the data set was filtered or changed.
    """
    n = len(dataset)
    if len(loader.dataset) != n:
        line = f"the data set lists {n} samples and its folder has {len(loader.dataset)}"
        raise _Unknown(line)
    # An ImageFolder gives the labels of its samples, whatever its targets say.
    samples = getattr(dataset, "samples", None)
    if samples is None:
        _compare_images(dataset)
        samples = [("", int(label)) for label in dataset.targets]
    differs = loader._native.first_difference(samples)
    if differs is not None:
        file, label = loader._native.sample(differs) or ("nothing", -1)
        raise _Unknown(f"sample {differs} of the data set is not {file} with label {label}")


def _compare_images(dataset: Any) -> None:
    """Makes sure that a CIFAR10's images are those of its first file.

    Raises:
        _Unknown: they were changed.
    """
    files = dataset.train_list if dataset.train else dataset.test_list
    with open(os.path.join(dataset.root, dataset.base_folder, files[0][0]), "rb") as file:
        # As torchvision has read it, after checking its sum.
        pixels = pickle.load(file, encoding="latin1")["data"]
    images = pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    own = dataset.data[: len(images)]
    if own.shape != images.shape or not (own == images).all():
        raise _Unknown("the data set's images were changed")


def _valid(batch: Batch) -> tuple[Any, torch.Tensor]:
    """Without the masked rows that fill a last batch up: PyTorch's is shorter."""
    n = batch.n_valid
    views = batch.images
    if n < len(batch.labels):
        views = [view[:n] for view in views]
    return (views[0] if len(views) == 1 else views), batch.labels[:n]


def _finisher(
    dataset: Any, translation: Translation, collate_fn: Callable[[list[Any]], Any] | None
) -> Callable[..., Any] | None:
    """What Python does to each batch; None where there is nothing to do."""
    rest = translation.rest
    to_target = dataset.target_transform
    if rest is None and to_target is None and collate_fn is None:
        return None
    collate = collate_fn or torch.utils.data.default_collate
    prepare = _inputs[translation.rest_input]

    def finish(images: Any, labels: Any, batch: Batch, seeds: tuple[int, int]) -> Any:
        samples = []
        n = batch.n_valid
        # Several views of a sample are several images of one row.
        rows = list(zip(*images, strict=True)) if isinstance(images, list) else images
        keys = batch.sample_ids[:n].tolist()
        with _numbers_kept():
            for image, label, sample in zip(rows, labels.tolist(), keys, strict=True):
                if rest is not None:
                    _seed_for(*seeds, sample)
                    image = rest(prepare(image))
                label = label if to_target is None else to_target(label)
                samples.append((image, label))
        return collate(samples)

    return finish


def _pil(image: torch.Tensor) -> Any:
    from PIL import Image

    pixels = image.numpy()
    return Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)


_inputs: dict[str, Callable[[torch.Tensor], Any]] = {
    "pil": _pil,
    "tensor": torch.Tensor.clone,
    "none": torch.Tensor.clone,
}


class _numbers_kept:
    """Python's and PyTorch's random numbers after it are those before it."""

    def __enter__(self) -> None:
        self._state = random.getstate(), torch.get_rng_state()

    def __exit__(self, *_: object) -> None:
        random.setstate(self._state[0])
        torch.set_rng_state(self._state[1])


def _seed_for(seed: int, epoch: int, sample: int) -> None:
    """A sample's own random numbers, whatever batch or resumed run it is in."""
    key = hash((seed, epoch, sample)) % 2**63
    random.seed(key)
    # Not `torch.manual_seed`, which seeds the generators of accelerators, too.
    torch.default_generator.manual_seed(key)
