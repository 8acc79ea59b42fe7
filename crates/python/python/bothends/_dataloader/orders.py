"""The order of an epoch for `bothends.torch.DataLoader`: bothends' own in place of PyTorch's
default samplers, otherwise that of the given sampler.

Reading order: `Own` and `Given` are the two orders; `order_of` chooses; `drawn_seed` and
`agreed_seed` determine a loader's seed. Nothing here knows data sets or batches.
"""

from __future__ import annotations

import datetime
import hashlib
import itertools
import operator
import random
import sys
import warnings
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.utils.data

from .._errors import Error, OptionsError
from .._ranks import ALONE, Ranks, rendezvous
from .rows import is_default_collate

# Seconds that a rank waits for rank 0 to name the seed.
_PATIENCE = datetime.timedelta(seconds=300)
# The same if it can do without.
_SHORT_PATIENCE = datetime.timedelta(seconds=60)

class NoOrder(Exception):
    """Why bothends cannot follow a sampler's order, as PyTorch's own loader can.

    Args:
        why: what is unknown about the sampler.
        remedy: what to change for bothends to follow it.
    """

    def __init__(self, why: str, remedy: str) -> None:
        super().__init__(why)
        self.remedy = remedy


@dataclass(frozen=True)
class Own:
    """An order that bothends computes from seed and epoch.

    Attributes:
        shuffle: whether it is a permutation rather than the data set's order.
        ranks: the rank whose part this process delivers.
    """

    shuffle: bool
    ranks: Ranks

    def n_batches(self, n_samples: int, batch_size: int, *, drop_last: bool) -> int:
        """Batches of each rank."""
        step = batch_size * self.ranks.world_size
        return n_samples // step if drop_last else -(-n_samples // step)


@dataclass(frozen=True)
class Given:
    """The batches that a sampler gives this process for one epoch.

    Attributes:
        samples: indices of the data set, one after the other.
        ends: the end of each batch among them.
        longest: samples of the longest batch.
        ranks: the ranks, and this one among them.
        repeats: "same" if the ranks share an epoch; "each" if a sample that comes on two ranks is to
            be augmented differently on each.
        skip: batches at the beginning that a resumed script has already had.
    """

    samples: array[int]
    ends: array[int]
    longest: int
    ranks: Ranks
    repeats: str
    skip: int = 0


# ---- which order it is ----------------------------------------------------------------------


def is_default(loader: Any) -> bool:
    """Whether the loader's samplers are those that PyTorch makes from `shuffle` and `batch_size`,
    or equivalent ones."""
    sampler, batches = loader.sampler, loader.batch_sampler
    if type(batches) is not torch.utils.data.BatchSampler or batches.sampler is not sampler:
        return False
    if type(sampler) is torch.utils.data.SequentialSampler:
        return _source_len(sampler) == len(loader.dataset)
    return (
        type(sampler) is torch.utils.data.RandomSampler
        and not sampler.replacement
        and sampler._num_samples is None
        and _source_len(sampler) == len(loader.dataset)
    )


def own(loader: Any, ranks: Ranks) -> Own:
    """The order that replaces PyTorch's default samplers. A shuffled epoch is shared by the
    ranks, a sequential one is read by each as a whole, unless `loader.ranks` says otherwise."""
    is_shuffled = type(loader.sampler) is torch.utils.data.RandomSampler
    is_shared = loader.ranks == "shard" or (loader.ranks == "auto" and is_shuffled)
    return Own(is_shuffled, ranks if is_shared else ALONE)


def given(loader: Any, ranks: Ranks, key: tuple[int, int]) -> Given:
    """Asks the samplers for an epoch. Those that draw from Python's, NumPy's or PyTorch's own
    generators draw numbers that follow from `key`, (seed, epoch), so that an epoch can be
    resumed; the generators are then as they were.

    Raises:
        NoOrder: the sampler gives something other than indices, or never ends; or an empty batch,
            which the native loader does not have, and which goes to a `collate_fn` of the script's.
        OptionsError: it gives an empty batch, which `default_collate` refuses, or an index of no
            sample.
    """
    samples, ends = array("q"), array("Q")
    longest = 0
    # The skipped samples have come before, and count as repetitions.
    batches, skip = skipping(loader.batch_sampler)
    with _keyed(key):
        for batch in _bounded(batches):
            n = _extend(samples, batch)
            if n == 0 and loader.own_items is None:
                raise _empty(loader, batches, len(ends))
            ends.append(len(samples))
            longest = max(longest, n)
    samples = _from_zero(samples, len(loader.dataset))
    if loader.prepared is not None:
        plain = type(batches) is torch.utils.data.BatchSampler
        _refuse_outside(samples, len(loader.dataset), _name(batches.sampler if plain else batches))
    repeats = "each" if ranks.world_size > 1 and not _shares(batches) else "same"
    return Given(samples, ends, longest, ranks, repeats, skip)


def skipping(batches: Any) -> tuple[Any, int]:
    """The batch sampler of which Accelerate's `skip_first_batches` skips batches, and how many."""
    is_skipping = _name(batches) == "SkipBatchSampler"
    return (batches.batch_sampler, batches.skip_batches) if is_skipping else (batches, 0)


def _empty(loader: Any, batches: Any, n: int) -> Exception:
    line = f"batch {n} of the {_name(batches)} has no sample"
    if not is_default_collate(loader.collate_fn):
        return NoOrder(line, "leave it out of the epoch")
    return OptionsError(f"{line}, and default_collate refuses it; leave it out of the epoch")


def _source_len(sampler: Any) -> int:
    return len(sampler.data_source)


def _bounded(batches: Any) -> Iterator[Any]:
    try:
        most = 4 * len(batches) + 1000
    except TypeError:
        line = f"{_name(batches)} has no length, so it may never end"
        raise NoOrder(line, "give a sampler that ends, with __len__") from None
    for n, batch in enumerate(batches):
        if n >= most:
            line = f"{_name(batches)} gives many times more batches than its length says"
            raise NoOrder(line, "let it end where its __len__ says")
        yield batch


def _extend(samples: array[int], batch: Any) -> int:
    before = len(samples)
    try:
        samples.extend(batch)
    except TypeError:
        # Indices taken before the first one that is not an int are taken again.
        del samples[before:]
        try:
            samples.extend(map(operator.index, batch))
        except TypeError:
            line = f"a sampler gives {_shown(batch)}, which is not a list of indices"
            raise NoOrder(line, "give a sampler whose items are indices") from None
    return len(samples) - before


def _from_zero(samples: array[int], n: int) -> array[int]:
    """Negative indices count from the end, as in a list."""
    if not samples or min(samples) >= 0:
        return samples
    return array("q", (i + n if -n <= i < 0 else i for i in samples))


def _refuse_outside(samples: array[int], n: int, name: str) -> None:
    if not samples or (min(samples) >= 0 and max(samples) < n):
        return
    place = next(k for k, i in enumerate(samples) if not 0 <= i < n)
    raise OptionsError(
        f"the sampler ({name}) gives index {samples[place]} as its number {place}, and the data set "
        f"has {n} samples: their indices are 0 to {n - 1}"
    )


def _shown(batch: Any) -> str:
    text = repr(batch)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _name(sampler: Any) -> str:
    return type(sampler).__qualname__


def samplers(loader: Any) -> list[Any]:
    """The samplers of a loader, from the outside in."""
    return within(loader.batch_sampler, loader.sampler)


def within(*outer: Any) -> list[Any]:
    """These samplers and the ones they draw from, from the outside in."""
    found: list[Any] = []
    level = list(outer)
    while level and len(found) < 16:
        inner = [s for s in level if s is not None and all(s is not f for f in found)]
        found += inner
        names = ("batch_sampler", "sampler", "base_sampler", "_sampler")
        level = [getattr(s, name, None) for s in inner for name in names]
        level = [s for s in level if hasattr(s, "__iter__")]
    return found


def generators(loader: Any) -> list[torch.Generator]:
    """The generators of PyTorch's own samplers, which continue from epoch to epoch. The global one
    is seeded for each epoch instead."""
    own = [s for s in samplers(loader) if type(s).__module__.startswith("torch.utils.data")]
    found = [getattr(sampler, "generator", None) for sampler in own]
    return [g for g in found if isinstance(g, torch.Generator) and g is not torch.default_generator]


def generator_states(loader: Any) -> list[tuple[torch.Generator, torch.Tensor]]:
    """The generators that an epoch's order may be drawn from, and their states: PyTorch's global
    one, the loader's, and those of its samplers."""
    held = (value for s in samplers(loader) for value in getattr(s, "__dict__", {}).values())
    known = [torch.default_generator, loader.generator, *held]
    return [(g, g.get_state()) for g in known if isinstance(g, torch.Generator)]


def _shares(batches: Any) -> bool:
    """Whether the ranks share one epoch, with each sample on exactly one of them."""
    return any(
        isinstance(sampler, torch.utils.data.DistributedSampler)
        or _name(sampler) in ("BatchSamplerShard", "IterableDatasetShard", "StepSampler")
        for sampler in within(batches)
    )


# ---- seeds ----------------------------------------------------------------------------------


def drawn_seed(generator: torch.Generator | None) -> int:
    """A loader's seed, drawn as in PyTorch's loader: from the given generator, otherwise from
    PyTorch's global one."""
    device = None if generator is None else generator.device
    drawn = torch.empty((), dtype=torch.int64, device=device).random_(generator=generator)
    return int(drawn.item()) % 2**63


def next_seed(generator: torch.Generator | None) -> int:
    """The seed that `drawn_seed` would draw; nothing is drawn."""
    generator = generator or torch.default_generator
    copy = torch.Generator(generator.device)
    copy.set_state(generator.get_state())
    return drawn_seed(copy)


@dataclass
class Seed:
    """A loader's seed, shared with the loaders that a framework makes to replace it; None until the
    first of them begins."""

    value: int | None


# Counts the loaders of this process whose ranks agree on a seed: the n-th loader of one rank
# matches the n-th of another.
_agreed = {"order": itertools.count(), "sampler": itertools.count()}


def agreed_seed(seed: int, ranks: Ranks) -> int:
    """Rank 0's seed, for ranks that share an order of bothends' own: every rank calls this at
    the same one of its loaders. It goes through the store of their rendezvous; nothing waits for a
    collective.

    Raises:
        OptionsError: the ranks have no store; give `seed` to the loader.
        Error: rank 0 has not named a seed within five minutes.
    """
    store = rendezvous()
    if store is None:
        raise OptionsError(
            f"{ranks.world_size} ranks share this loader's order, and torch.distributed, through "
            "which they would agree on a seed, is not initialised: give seed=..."
        )
    agreed = _agree(store, "order", (seed, ranks.rank), _PATIENCE)
    if agreed is None:
        raise Error(
            f"rank {ranks.rank} waited {_PATIENCE.seconds} s for rank 0 to begin the same loader; "
            "do all ranks iterate over it? If not, give it ranks='replicate'"
        )
    return agreed


def common_seed(seed: int, ranks: Ranks) -> int:
    """Rank 0's seed, for ranks to which a sampler deals an epoch: then a state that one rank
    saves is right for all. A rank that has not heard of one within a minute takes its own."""
    store = rendezvous()
    if store is None:
        return seed
    agreed = _agree(store, "sampler", (seed, ranks.rank), _SHORT_PATIENCE)
    if agreed is not None:
        return agreed
    warnings.warn(
        f"bothends: rank {ranks.rank} waited {_SHORT_PATIENCE.seconds} s for rank 0 to begin the "
        "same loader, and now uses its own seed: a state saved by another rank is not exact for "
        "it; give seed=... on all ranks",
        stacklevel=2,
    )
    return seed


def is_dealt(loader: Any) -> bool:
    """Whether a sampler divides the epoch among ranks, each of which iterates over its part."""
    found = samplers(loader)
    return any(hasattr(s, "num_replicas") or hasattr(s, "num_processes") for s in found)


def n_parts(loader: Any) -> int:
    """Into how many parts a sampler divides the epoch, one for each rank; 1 if none does."""
    names = ("num_replicas", "num_processes")
    counts = (getattr(s, name, None) for s in samplers(loader) for name in names)
    return next((n for n in counts if isinstance(n, int)), 1)


def _agree(
    store: Any, kind: str, own: tuple[int, int], patience: datetime.timedelta
) -> int | None:
    seed, rank = own
    name = f"bothends/{kind}/{next(_agreed[kind])}"
    if rank == 0:
        store.set(name, str(seed))
        return seed
    try:
        store.wait([name], patience)
    except RuntimeError:
        return None
    return int(store.get(name))


def mixed(*numbers: int) -> int:
    """A 63-bit number that depends on these values alone."""
    text = ",".join(map(str, numbers)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") % 2**63


@contextmanager
def _keyed(key: tuple[int, int]) -> Iterator[None]:
    """Inside, Python's, NumPy's and PyTorch's generators are seeded from `key`; afterwards they are
    restored."""
    numpy = sys.modules.get("numpy")
    own = random.getstate(), torch.get_rng_state(), numpy and numpy.random.get_state()
    seed = mixed(*key)
    random.seed(seed)
    # Not `torch.manual_seed`, which seeds the generators of accelerators, too.
    torch.default_generator.manual_seed(seed)
    if numpy:
        numpy.random.seed(seed % 2**32)
    try:
        yield
    finally:
        random.setstate(own[0])
        torch.set_rng_state(own[1])
        if numpy:
            numpy.random.set_state(own[2])
