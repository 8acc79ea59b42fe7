"""PyTorch: `DataLoader` replaces `torch.utils.data.DataLoader` in one line.

    from bothends.torch import DataLoader
    loader = DataLoader(ImageFolder(root, transform), batch_size=256, shuffle=True, num_workers=8)

bothends reads every data set that it recognises and translates its transforms to a recipe. From
the first unknown transform on they run in Python, in worker processes, on decoded and cropped
samples. A map-style data set that is not recognised makes its samples itself, in these workers.
Iterable data sets run in PyTorch's own loader, of which this class is a subclass. In each of these
cases there is one warning, and `explain()` says what to change.
"""

from __future__ import annotations

import inspect
import itertools
import json
import os
import warnings
from array import array
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import torch
import torch.utils.data

from ._callers import counts_batches, stacklevel_of_caller
from ._dataloader import orders as _orders
from ._dataloader import rebuilt as _rebuilt
from ._dataloader.course import ELSEWHERE, OTHER_ORDER, Course, Drawn
from ._dataloader.delivery import NO_GPU, gpu_of, on_gpu, pinned
from ._dataloader.epochs import (
    Epoch,
    Feeds,
    Finishing,
    Loaded,
    NativeProgress,
    NoBatch,
    Opening,
    Pool,
    Progress,
    Python,
    begun,
    filling,
    n_left,
    nothing_yet,
    summed,
)
from ._dataloader.items import Before, Items, ItemsProgress, dealt, resumed, tasks
from ._dataloader.prepared import Finish, Left, Prepared, prepare
from ._dataloader.states import BESIDES, N_EPOCHS, checked, with_checksum
from ._dataloader.together import Shared
from ._dataloader.words import explained, refuse_unknown
from ._device import named
from ._errors import OptionsError, StateError
from ._loader import Devices, Loader, load_native
from ._options import (
    Layout,
    OnBad,
    Output,
    PageCache,
    RanksOption,
    Reader,
    SideIndex,
    Strategy,
    refuse_values,
    refusing,
)
from ._pillow import fills_truncated
from ._ranks import ALONE, Ranks, current, known, parent_of_ranks
from ._sources import HuggingFaceImages, SampleProtocol, Samples
from ._tables import Table, Tables
from ._workers import Setting, Task, usual_method

__all__ = ["DataLoader", "Dataset", "HuggingFaceImages", "SampleProtocol", "Samples"]

# Scripts may replace that name with our class; this one is always PyTorch's.
_TorchLoader = torch.utils.data.DataLoader

# Options with the same name in the native loader.
_NATIVE = (
    "csds",
    "require_devices",
    "key_file",
    "tls_ca",
    "tls_cert",
    "tls_key",
    "insecure",
    "job",
    "priority",
    "share",
    "strategy",
    "objective",
    "output",
    "layout",
    "on_bad",
    "audit",
    "memory",
    "held_batches",
    "reader",
    "side_index",
    "page_cache",
    "cache_size",
    "fetch_requests",
    "fetch_reorder",
    "fetch_patience",
    "cache",
)
_made = itertools.count()


if TYPE_CHECKING:
    from typing_extensions import TypeVar as _TypeVar

    # Data sets that are not PyTorch's do not say what their samples are.
    T_co = _TypeVar("T_co", covariant=True, default=Any)
else:
    T_co = TypeVar("T_co", covariant=True)


class DataLoader(_TorchLoader[T_co], Generic[T_co]):
    """Loads images with bothends. It takes the arguments of `torch.utils.data.DataLoader`, of which
    it is a subclass, followed by those of `bothends.Loader`.

    It recognises torchvision's `ImageFolder`, `DatasetFolder`, `CIFAR10` and other file-based data
    sets, timm's `ImageDataset`, `HuggingFaceImages`, any object with `__len__` and `sample(i)`
    (`SampleProtocol`), and `Subset` and `ConcatDataset` of these. It follows any sampler or batch
    sampler. `explain()` says what became of the data set and its transforms.

    Differences from PyTorch's:

    * `num_workers` host threads decode (0 means one per core). Worker processes are started only
      if transforms remain in Python; with 0 these run in the calling thread.
    * The seed is drawn from `generator`, or from PyTorch's global one, when the first iteration
      begins; a state saved before that fixes it, without drawing. Every random number follows
      from (seed, epoch, sample), so `state_dict` is exact after any batch.
    * A shuffled loader without a sampler shards the epoch among the ranks of `torch.distributed`,
      with one warning. A sequential one is read completely by each rank, also with one warning.

    Args:
        dataset: the data set; one that is not recognised makes its samples itself, in worker processes
            at PyTorch's speed. An iterable one runs in PyTorch's own loader.
        seed: replaces the seed that is drawn.
        ranks: "auto", as above; "shard" also shards a sequential epoch; "replicate" gives every
            rank all of it. A sampler that is passed takes precedence.
        strict: raises an `OptionsError` if the data set would make its samples itself, PyTorch's own
            loader would run, or a transform would remain in Python.
        device: where batches are delivered, labels included: None or "cpu" for host memory;
            "cuda:N" or N for a GPU; "cuda" for PyTorch's current GPU or this rank's GPU on its
            machine. A transform or `collate_fn` in Python sees host memory, as in PyTorch.
        csds, require_devices, key_file, tls_ca, tls_cert, tls_key, insecure, job, priority, share,
            strategy, objective, output, layout, on_bad, audit, memory, held_batches, reader, side_index,
            page_cache, cache_size, fetch_requests, fetch_reorder, fetch_patience, cache: as in `bothends.Loader`.
        others: as in `torch.utils.data.DataLoader`.

    Raises:
        OptionsError: an option is invalid, or because of `strict`.
    """

    OPTIONS = (*_NATIVE, "device", "seed", "ranks", "strict")
    """Names of the arguments that PyTorch's loader does not have."""

    # Those that the class itself reads.
    csds: Devices
    device: str | None
    layout: str | None
    output: str | None
    ranks: str
    seed: int | None
    strict: bool

    @refusing(refuse_unknown)
    def __init__(
        self,
        dataset: torch.utils.data.Dataset[T_co] | Any,
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
        seed: int | None = None,
        ranks: RanksOption = "auto",
        strict: bool = False,
        device: Any = None,
        csds: Devices = (),
        require_devices: bool = False,
        key_file: str | os.PathLike[str] | None = None,
        tls_ca: str | os.PathLike[str] | None = None,
        tls_cert: str | os.PathLike[str] | None = None,
        tls_key: str | os.PathLike[str] | None = None,
        insecure: bool = False,
        job: str | None = None,
        priority: int | None = None,
        share: int | None = None,
        strategy: Strategy = "ordered",
        objective: str = "throughput",
        output: Output | None = None,
        layout: Layout | None = None,
        on_bad: OnBad = "raise",
        audit: int = 1,
        memory: int | None = None,
        held_batches: int = 3,
        reader: Reader = "auto",
        side_index: SideIndex = "auto",
        page_cache: PageCache = "auto",
        cache_size: int | str = "auto",
        fetch_requests: int | None = None,
        fetch_reorder: int | str | None = None,
        fetch_patience: int | None = None,
        cache: str | os.PathLike[str] | None = None,
    ) -> None:
        given = {name: value for name, value in locals().items() if name in self.OPTIONS}
        refuse_values(given)
        _refuse(dataset)
        given["device"] = named(device)
        # As public attributes: frameworks that make a loader again read its arguments there.
        for name, value in {**given, **_rebuilt.inherited(self)}.items():
            setattr(self, name, value)
        own_seed: _orders.Seed = vars(self).get("shared_seed", _orders.Seed(self.seed))
        self.shared_seed = own_seed
        self.course: Course = vars(self).get("course", Course())
        self._begin_state()
        super().__init__(
            dataset,
            batch_size,
            shuffle,
            sampler,
            batch_sampler,
            num_workers,
            collate_fn,
            pin_memory,
            drop_last,
            timeout,
            worker_init_fn,
            multiprocessing_context,
            generator,
            prefetch_factor=prefetch_factor,
            persistent_workers=persistent_workers,
            pin_memory_device=pin_memory_device,
            in_order=in_order,
        )
        self._look()
        _rebuilt.watch(self)

    def _begin_state(self) -> None:
        self.made_nth = next(_made)
        self.prepared: Prepared | None = None
        self.left: Left | None = None
        self.own_items: Items | None = None
        self._pool = Pool()
        self._finish: Finish | None = None
        self._said: set[str] = set()
        self._most_rows = 0
        self._is_closed = False
        self._forget_iterations()

    def _forget_iterations(self) -> None:
        self._feeds = Feeds()
        self._tables = Tables("ranks='replicate'")
        self._is_resuming = self._resumes_at_end = self._resumes_inside = False
        # The epoch of the state that was loaded.
        self._resumed_epoch = 0
        # If bothends reads the data set: that state.
        self._loaded: Loaded | None = None
        # If the data set makes its samples: what the resumed run had already taken.
        self._before = Before()

    # ---- what is loaded ------------------------------------------------------------------

    def _look(self) -> None:
        """Inspects the data set and its transforms as they are now."""
        self.prepared = self.left = self.own_items = None
        try:
            self._refuse_modes()
        except Left as left:
            self._leave(left)
            return
        try:
            self.prepared = prepare(self.dataset)
        except Left as left:
            has_length = hasattr(self.dataset, "__len__")
            self._leave(left, Items(self.dataset, self.collate_fn) if has_length else None)
            return
        translation = self.prepared.translation
        if translation.warning and self.strict:
            raise OptionsError(f"strict=True: {translation.warning}")
        if translation.warning:
            self._warn(f"bothends: {translation.warning}")

    def _refuse_modes(self) -> None:
        if self._dataset_kind != 0:
            raise Left(
                "the data set is iterable, so its samples cannot be indexed",
                "give a map-style data set, with __getitem__ and __len__",
            )
        if self.batch_sampler is None:
            raise Left("batch_size is None, so there are no batches", "give a batch_size")

    def _leave(self, left: Left, items: Items | None = None) -> None:
        """The data set makes its samples itself; without `items`, in PyTorch's own loader."""
        self.prepared, self.left, self.own_items = None, left, items
        if self.strict:
            raise OptionsError(f"strict=True: {left}") from left
        who = "PyTorch's own DataLoader runs instead"
        if items is not None:
            who = "The data set's own code runs instead"
        self._warn(f"bothends: {left}. {who}, and nothing is faster")
        if self.idle_options:
            names = ", ".join(self.idle_options)
            line = "a data set makes its samples itself"
            self._warn(f"bothends: {line}, so that these options have no effect: {names}")

    @property
    def idle_options(self) -> list[str]:
        """The options that were given and have no effect, since a data set makes its samples
        itself; none if bothends makes them."""
        if self.left is None:
            return []
        defaults = inspect.signature(DataLoader.__init__).parameters
        return [name for name in _NATIVE if _differ(getattr(self, name), defaults[name].default)]

    def _warn(self, line: str) -> None:
        if line not in self._said:
            self._said.add(line)
            warnings.warn(line, stacklevel=stacklevel_of_caller())

    def _look_again(self) -> None:
        """At the start of an epoch: a data set that has changed is recognised again."""
        if self.prepared is None:
            return
        changed = self.prepared.source.changed(self.dataset)
        if changed is not None:
            self._look()

    # ---- iterating -----------------------------------------------------------------------

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        if self._is_closed:
            raise OptionsError("the loader is closed; make another one")
        with self._feeds.lock:
            self._look_again()
            generators = _orders.generator_states(self)
            try:
                if self.prepared is not None:
                    return self._begin(self.prepared)
                if self.own_items is not None:
                    return self._begin_items(self.own_items)
            except _orders.NoOrder as why:
                # PyTorch's loader asks the samplers again.
                for generator, state in generators:
                    generator.set_state(state)
                left = Left(str(why), why.remedy)
                if self._is_resuming and self._resumes_inside:
                    line = "PyTorch's own DataLoader would run, which cannot resume within an epoch"
                    raise StateError(f"{left}: {line}") from why
                self._leave(left)
        batches = super().__iter__()
        return batches if self.device is None else map(self._delivered, batches)

    def _begin(self, prepared: Prepared) -> Iterator[Any]:
        self._warn_of_no_gpu()
        epoch = self._take_epoch()
        order = self._order(epoch)
        if prepared.source.rows is not None and isinstance(order, _orders.Own):
            if order.ranks.world_size > 1:
                line = f"{prepared.source.name} is not dealt to ranks"
                raise _orders.NoOrder(line, "give a DistributedSampler")
            order = self._asked(order.ranks, epoch)
        if self._n_batches(order) == 0:
            self._compare(order, epoch, None)
            self.course.choose(epoch + 1)
            return iter(())
        finish = self._finish_of(prepared)
        feed = self._feeds.free(self._opening(prepared, order, finish))
        self._compare(order, epoch, feed.loader)
        self._resume_on(feed.loader)
        if not self._is_resuming:
            feed.loader.set_epoch(epoch)
        batches = begun(feed, order, prepared.source.rows)
        self._is_resuming, self._loaded = False, None
        progress = NativeProgress(epoch, n_left(feed.loader, order), loader=feed.loader)
        finished = self._finished(progress, batches, finish)
        iterator = Epoch(progress, self._all_delivered(finished, progress, order.ranks))
        feed.run(progress, iterator)
        self.course.begin(progress, iterator)
        return iterator

    def _resume_on(self, loader: Loader) -> None:
        """A native loader that was opened after the state was loaded, because something has
        changed, continues from it, too.

        Raises:
            StateError: it cannot, and the state is inside an epoch.
        """
        loaded = self._loaded
        if not self._is_resuming or loaded is None or loaded.loader is loader:
            return
        if not self._resumes_inside:
            # An epoch begins, as it is now.
            self._is_resuming = False
            return
        try:
            load_native(loader._native, loaded.state)
        except StateError as error:
            line = "something was changed after a state inside an epoch had been loaded"
            raise StateError(f"{line}: {error}") from error
        self._loaded = Loaded(loader, loaded.state)

    def _finish_of(self, prepared: Prepared) -> Finish:
        """Returns the same object as long as it would do the same, since workers persist for it."""
        if self._finish is None or not self._finish.is_of(prepared, self.collate_fn):
            self._finish = Finish(prepared, self.collate_fn)
        return self._finish

    def _finished(
        self, progress: NativeProgress, batches: Iterator[Any], finish: Finish
    ) -> Iterator[Any]:
        assert self.prepared is not None and self._seed is not None
        finishing = Finishing(self.prepared, self._seed)
        if self.num_workers == 0 or not finish.runs_transforms:
            return finishing.here(progress.loader, batches, finish)
        given, progress.ahead = finishing.tasks(progress.loader, batches, finish)
        return self._pool.map(self._python(finish.in_worker), given)

    def _begin_items(self, items: Items) -> Iterator[Any]:
        self._warn_of_no_gpu()
        if not items.fits(self.dataset, self.collate_fn):
            self.own_items = items = Items(self.dataset, self.collate_fn)
        epoch = self._take_epoch()
        self._refuse_own_inside()
        order = self._order(epoch)
        self._compare(order, epoch, None)
        shares, n_ranks = ALONE, _orders.n_parts(self)
        n_dealt: int | None = None
        if isinstance(order, _orders.Own):
            assert self.batch_size is not None and self._seed is not None
            shares, n_ranks, n_dealt = order.ranks, order.ranks.world_size, self._n_samples
            sizes = (n_dealt, self.batch_size)
            order = dealt(order, sizes, (self._seed, epoch), drop_last=self.drop_last)
        assert self._seed is not None
        before = self._before.on(n_ranks, order, n_dealt) if self._is_resuming else 0
        self._is_resuming, self._loaded = False, None
        n_batches = max(0, len(order.ends) - order.skip) - before
        if n_batches < 0:
            raise StateError(f"the state records {before} batches, more than the epoch has")
        progress = ItemsProgress(
            epoch, n_batches, items=items, seed=self._seed, shape=self._shape, before=before
        )
        progress.skipped, progress.n_ranks = order.skip, n_ranks
        made = tasks(order, (self._seed, epoch), order.skip + before)
        batches: Iterator[Any] = map(items.here, made)
        if self.num_workers > 0:
            batches = self._pool.map(self._python(items.in_worker), made)
        iterator = Epoch(progress, self._all_delivered(batches, progress, shares))
        self.course.begin(progress, iterator)
        return iterator

    def _refuse_own_inside(self) -> None:
        """Refuses to run the data set's own code in the rest of an epoch that bothends began: its
        random numbers would be others, and nothing says which batches are left."""
        if self._loaded is not None and self._is_resuming and self._resumes_inside:
            line = "the data set or its transform was changed after a state inside an epoch had been"
            raise StateError(f"{line} loaded, so that its own code would run: {self.left}")

    def _all_delivered(
        self, batches: Iterator[Any], progress: Progress, shares: Ranks
    ) -> Iterator[Any]:
        """The batches of an epoch, which these ranks share. What a batch sampler deals to them has
        no batches of its own, and so nobody is told to have left those."""
        delivered = self._tables.follow(map(self._delivered, batches), NoBatch)
        if shares.world_size == 1 or self.batch_size is None:
            return delivered
        assert self._seed is not None
        loader = _orders.mixed(self._seed, self._n_samples, self.batch_size)
        return Shared(loader, progress.number, progress.n_batches).follow(delivered)

    def _compare(
        self, order: _orders.Own | _orders.Given, epoch: int, native: Loader | None
    ) -> None:
        """Ranks that share an epoch, by an order of bothends' own or by a sampler that deals it to
        them, must have listed the same samples. `native` is the loader that has their table.

        Raises:
            DataError: they have not.
        """
        ranks = order.ranks
        if isinstance(order, _orders.Given):
            # Without a place, it may as well be another data set's loader.
            has_place = self.prepared is not None and self.prepared.source.place != ""
            is_dealt = _orders.n_parts(self) == ranks.world_size
            is_compared = is_dealt and has_place and self.ranks != "replicate"
            ranks = ranks if is_compared else ALONE
        self._tables.compare(ranks, epoch, lambda: self._table(order, native))

    def _table(self, order: _orders.Own | _orders.Given, native: Loader | None) -> Table:
        name = type(self.dataset).__qualname__
        place = "" if self.prepared is None else self.prepared.source.place
        loader: list[Any] = ["DataLoader", self._seed, self.batch_size, self.drop_last]
        # A seed on which ranks have agreed for an order of bothends' own is of one loader only.
        if self.seed is not None or isinstance(order, _orders.Given):
            found = _orders.samplers(self)
            samplers = [(type(s).__qualname__, getattr(s, "shuffle", None)) for s in found]
            loader += [name, place, self.recipe, samplers]
        text = json.dumps(loader, sort_keys=True, default=str)
        digest = "" if native is None else native._native.table_hash
        return Table(text, f"{name} {place}".rstrip(), self._n_samples, digest)

    def _python(self, work: Callable[[Task], Any]) -> Python:
        """Workers as described by the arguments of PyTorch's loader."""
        assert self._seed is not None
        context = self.multiprocessing_context
        method = None if context is None else context.get_start_method()
        return Python(
            work=work,
            workers=self.num_workers,
            setting=Setting(method=method, seed=self._seed, dataset=self.dataset),
            init=self.worker_init_fn,
            ahead=max(1, self.prefetch_factor or 2),
            persist=self.persistent_workers,
            timeout=self.timeout,
        )

    def _order(self, epoch: int) -> _orders.Own | _orders.Given:
        if not _orders.is_default(self):
            return self._asked(known() or ALONE, epoch)
        ranks = current()
        own = _orders.own(self, ranks)
        self._draw_seed(own.ranks)
        # What cannot be shared, such as a remainder, is meant to be read by every rank.
        if self.ranks == "auto" and 1 < ranks.world_size <= self._n_samples:
            self._warn(_unsharded(own, ranks, self._n_samples))
        return own

    def _asked(self, ranks: Ranks, epoch: int) -> _orders.Given:
        """The order that the samplers give."""
        is_default = _orders.is_default(self)
        self._draw_seed(ALONE if is_default or not _orders.is_dealt(self) else ranks)
        assert self._seed is not None
        key = (self._seed, epoch)
        is_inside = self._is_resuming and self._resumes_inside
        epochs = self.course.drawn.begin(
            _orders.generators(self), self._draws_seeds, is_inside=is_inside, warn=self._warn
        )
        for nth in epochs:
            if self._draws_seeds == "each" or (self._draws_seeds == "once" and nth == 0):
                # As PyTorch's loader does: the samplers may have the same generator.
                _orders.drawn_seed(self.generator)
            order = _orders.given(self, ranks, key)
        return order

    @property
    def _draws_seeds(self) -> str:
        """For which epochs a seed is drawn from the `generator`, if samplers are asked."""
        if self.generator is None or not self._asks:
            return "none"
        is_kept = self.persistent_workers and self.num_workers > 0
        return self.course.drawn.seeds or ("once" if is_kept else "each")

    @property
    def _asks(self) -> bool:
        """Whether bothends reads the data set or runs its code in the order of the samplers, rather
        than in an order of its own."""
        needs_order = self.prepared is not None and self.prepared.source.rows is not None
        return needs_order or not _orders.is_default(self)

    def _n_batches(self, order: _orders.Own | _orders.Given) -> int:
        if isinstance(order, _orders.Given):
            return max(0, len(order.ends) - order.skip)
        assert self.batch_size is not None
        return order.n_batches(self._n_samples, self.batch_size, drop_last=self.drop_last)

    def _opening(
        self, prepared: Prepared, order: _orders.Own | _orders.Given, finish: Finish
    ) -> Opening:
        translation = prepared.translation
        is_own = isinstance(order, _orders.Own)
        in_numpy = finish.runs_transforms and self.num_workers > 0
        options = {
            **{name: getattr(self, name) for name in _NATIVE},
            "output": self.output or translation.output,
            "layout": self.layout or translation.layout,
            "batch_size": self._batch_rows(order),
            "workers": self._n_threads(finish),
            "shuffle": order.shuffle if isinstance(order, _orders.Own) else "supplied",
            "last": "drop" if self.drop_last and is_own else "even",
            "seed": self._seed,
            "rank": 0,
            "world_size": 1,
            "framework": "numpy" if in_numpy else "torch",
            # Batches that Python has yet to finish are copied there afterwards, from pinned memory.
            "device": self.device if finish.is_nothing else None,
            "pin_memory": self._pins and not in_numpy and not self._is_on_gpu(finish),
        }
        asks_elsewhere = in_numpy and self._has_processes
        return Opening(prepared, options, fills_truncated(), asks_elsewhere)

    @property
    def _has_processes(self) -> bool:
        """Whether workers are processes, rather than threads."""
        return self.multiprocessing_context is not None or usual_method() != "threads"

    def _is_on_gpu(self, finish: Finish) -> bool:
        """Whether batches come from the native loader unchanged, and on a GPU."""
        return self.device is not None and finish.is_nothing

    @property
    def _pins(self) -> bool:
        """Whether batches, or what is copied to a GPU, should and can be pinned."""
        is_wanted = self.pin_memory or self.device is not None
        return is_wanted and torch.cuda.is_available()

    def _n_threads(self, finish: Finish) -> int | str:
        """Host threads that decode. Next to worker processes, at most one per core: the processes
        are the limit, and more threads would take their cores."""
        if finish.runs_transforms and self.num_workers > 0:
            return min(self.num_workers, len(os.sched_getaffinity(0)))
        return self.num_workers or "auto"

    def _batch_rows(self, order: _orders.Own | _orders.Given) -> int:
        """The most samples in a batch."""
        if isinstance(order, _orders.Own):
            assert self.batch_size is not None
            return min(self.batch_size, self._n_samples)
        size = self.batch_size or getattr(self.batch_sampler, "batch_size", None)
        size = size if isinstance(size, int) else 0
        self._most_rows = max(size, order.longest, self._most_rows)
        return self._most_rows

    @property
    def _n_samples(self) -> int:
        return len(self.dataset)  # type: ignore[arg-type]

    def _delivered(self, batch: Any) -> Any:
        device = gpu_of(self.device)
        if device is not None:
            return on_gpu(batch, device)
        # Memory that the native loader has already pinned is not copied.
        return pinned(batch) if self.pin_memory and torch.cuda.is_available() else batch

    def _warn_of_no_gpu(self) -> None:
        """Warns once, as PyTorch's own loader does."""
        if self.pin_memory and self.device is None and not torch.cuda.is_available():
            self._warn(NO_GPU)

    def _draw_seed(self, ranks: Ranks) -> None:
        """Draws the seed of a loader that has none yet; ranks that share an epoch agree on one."""
        if self._seed is not None:
            return
        generator = self._seeded_from
        # What is drawn next from a generator that the samplers may have is for them.
        is_theirs = generator is not None and self._asks
        seed = (_orders.next_seed if is_theirs else _orders.drawn_seed)(generator)
        if ranks.world_size > 1:
            agree = _orders.agreed_seed if _orders.is_default(self) else _orders.common_seed
            seed = agree(seed, ranks)
        self._seed = seed

    def _seed_beforehand(self) -> int:
        """A seed for a state that is saved before the first iteration, which is then that of this
        run. Nothing is drawn: a script's other random numbers should not depend on whether it saves
        a state."""
        # Loaders whose states are saved before any of them begins differ.
        return _orders.mixed(_orders.next_seed(self._seeded_from), self.made_nth)

    @property
    def _seeded_from(self) -> torch.Generator | None:
        generator = self.generator
        if generator is None and _orders.is_default(self):
            generator = getattr(self.sampler, "generator", None)
        return generator  # type: ignore[no-any-return]

    @property
    def _agrees_on_seed(self) -> bool:
        """Whether this may be one of several ranks that agree on a seed as they begin."""
        try:
            ranks = current()
        except OptionsError:
            return True
        if ranks.world_size == 1:
            # A child of another process may not know its rank yet.
            return parent_of_ranks() is not None
        if _orders.is_default(self):
            return _orders.own(self, ranks).ranks.world_size > 1
        return _orders.is_dealt(self)

    @property
    def _seed(self) -> int | None:
        return self.shared_seed.value

    @_seed.setter
    def _seed(self, seed: int | None) -> None:
        self.shared_seed.value = seed

    def __len__(self) -> int:
        is_ours = self.prepared is not None or self.own_items is not None
        if not is_ours or not _orders.is_default(self):
            return super().__len__()
        return self._n_batches(_orders.own(self, _known()))

    # ---- epochs --------------------------------------------------------------------------

    def set_epoch(self, epoch: int) -> None:
        """Chooses the next epoch, also for the samplers. A position that was loaded is kept if it
        is in this epoch, and dropped otherwise."""
        self._is_resuming = self._is_resuming and epoch == self.course.next_epoch
        self._resumes_at_end = self._resumes_at_end and self._is_resuming
        self.course.choose(epoch)
        self._tell_samplers(epoch)

    def _tell_samplers(self, epoch: int) -> None:
        for sampler in _orders.samplers(self):
            if hasattr(sampler, "set_epoch"):
                sampler.set_epoch(epoch)
                self.course.sampler_epoch = epoch

    def _take_epoch(self) -> int:
        """The number of the epoch that begins: the sampler's if it was set since, otherwise the one
        after the last epoch in use."""
        self._is_resuming = self._still_resumes
        self.course.advance()
        of_samplers = [getattr(s, "epoch", None) for s in _orders.samplers(self)]
        told = next((e for e in of_samplers if isinstance(e, int)), None)
        if told is not None and told != (self.course.sampler_epoch or 0):
            self._is_resuming = self._is_resuming and told == self.course.next_epoch
            self.course.next_epoch = told
        self.course.sampler_epoch = told
        return self.course.next_epoch

    @property
    def _still_resumes(self) -> bool:
        """Whether no other loader of this course has begun an epoch since a state was loaded."""
        is_next = self.course.progress is None and self.course.next_epoch == self._resumed_epoch
        return self._is_resuming and is_next

    # ---- state ---------------------------------------------------------------------------

    if TYPE_CHECKING:

        def state_dict(self) -> dict[str, Any]:
            """As `_save`."""
            return self._save()

        def load_state_dict(self, state: dict[str, Any]) -> None:
            """As `_load`."""
            self._load(state)

    else:

        def __getattr__(self, name: str) -> Any:
            """`state_dict` and `load_state_dict` are absent if PyTorch's own loader runs, which has
            no state."""
            ours = self.__dict__.get("prepared") or self.__dict__.get("own_items")
            if name in ("state_dict", "load_state_dict") and ours is not None:
                return self._save if name == "state_dict" else self._load
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _save(self) -> dict[str, Any]:
        """The position of the training loop and the seed, exact after any batch, at most 1 kB as
        JSON. Loading it adopts the seed."""
        if self._seed is None and not self._agrees_on_seed:
            self._seed = self._seed_beforehand()
        return with_checksum(self._position())

    def _position(self) -> dict[str, Any]:
        # Not the loader's own if a script never calls the sampler's `set_epoch`.
        sampler_epoch, progress = self.course.sampler_epoch, self.course.progress
        told = {} if sampler_epoch is None else {"sampler_epoch": sampler_epoch}
        is_all = self._resumes_at_end if progress is None else progress.has_given_all
        given = {"given_all": True} if is_all else {}
        state = {**self._place(), **told, **given}
        seeds = self._draws_seeds
        if self._asks:
            is_within = progress is not None and not progress.has_ended
            generators, drawn = _orders.generators(self), self.course.drawn
            state |= drawn.saved(generators, is_within=is_within)
            seeds = drawn.seeds_saved(seeds, generators, is_within=is_within)
        return state if seeds == "none" else {**state, "seeds_drawn": seeds}

    def _place(self) -> dict[str, Any]:
        progress = self.course.progress
        if isinstance(progress, NativeProgress) and progress.loader is not self._feeds.current:
            # Of a loader that skips batches of this one: only its end is a place in this one, too.
            if progress.has_ended:
                return {"epoch": progress.number + 1, "seed": self._seed}
        if progress is not None:
            return self._with_shape(progress.state)
        loaded = self._loaded if self._still_resumes else None
        if loaded is not None and (self._resumes_inside or self.own_items is None):
            is_there = loaded.loader is self._feeds.current
            return loaded.loader._state() if is_there else dict(loaded.state)
        place = {"epoch": self.course.next_epoch, "seed": self._seed}
        if self.own_items is not None and self._still_resumes:
            place |= self._before.saved(self._shape)
        return self._with_shape(place)

    def _with_shape(self, place: dict[str, Any]) -> dict[str, Any]:
        """A place, and also between epochs what another run must have in common, if the data set
        makes its samples itself."""
        if self.own_items is None or "items" in place or "version" in place:
            return place
        return {**place, **Before().saved(self._shape)}

    def _load(self, state: dict[str, Any]) -> None:
        """Makes the next iteration continue from a state, with the seed of that run. A state saved
        by an older release is read with a warning.

        Raises:
            StateError: the state is damaged, or belongs to another run.
        """
        position, note = checked(state)
        if note is not None:
            self._warn(f"bothends: {note}")
        self._restore(position)

    def _restore(self, state: dict[str, Any]) -> None:
        """The same for what `_position` returned."""
        with self._feeds.lock:
            self._look_again()
        before, saved = self._seed, state.get("seed")
        # None: it was saved before there was one.
        self._seed = before if saved is None else saved
        place = {name: value for name, value in state.items() if name not in BESIDES}
        if state.get("given_all") and counts_batches():
            place = {"epoch": state["epoch"] + 1, "seed": self._seed}
        generators = _orders.generators(self) if self._asks else []
        follows = self.course.drawn.can_follow(generators, state)
        try:
            if not follows and _is_within(place):
                raise StateError(ELSEWHERE)
            self._is_resuming = self._load_place(place)
        except StateError:
            self._seed = before
            raise
        self._resumes_at_end = self._is_resuming and bool(state.get("given_all"))
        self._resumes_inside = _is_within(place)
        n_later = place["epoch"] - state["epoch"]
        self._resumed_epoch = place["epoch"]
        self.course.choose(place["epoch"])
        told = state.get("sampler_epoch")
        self._tell_samplers((told if isinstance(told, int) else state["epoch"]) + n_later)
        if not follows:
            self._warn(OTHER_ORDER)
            self.course.drawn = Drawn()
            return
        drawn = self.course.drawn
        # The runs of earlier versions drew a single one, before the first epoch.
        drawn.seeds = state.get("seeds_drawn", "none") if self._asks else None
        if "sampler_drawn" in state and generators:
            drawn.load(generators, state, n_later)
        elif not generators:
            drawn.n_epochs = 0

    def _load_place(self, place: dict[str, Any]) -> bool:
        """Loads a position, and returns whether it is within an epoch."""
        if self.own_items is not None:
            _, skipped = _orders.skipping(self.batch_sampler)
            self._before = resumed(place, self._shape, skipped)
            self._loaded = None
            return self._before.n > 0
        if "items" in place and (_is_within(place) or not 0 <= place["epoch"] < N_EPOCHS):
            line = "the state is for a data set that made its samples itself; bothends reads this one"
            raise StateError(line)
        if self.prepared is None:
            raise StateError(f"{self.left}: PyTorch's own DataLoader runs, which has no state")
        if "version" in place:
            self._load_natively(place)
        else:
            self._loaded = None
        self._before = Before()
        return "version" in place

    @property
    def _shape(self) -> list[int | None]:
        """Samples of the data set and of a batch, and whether a smaller batch at the end is dropped.
        None is what a batch sampler decides."""
        drops = None if self.batch_size is None else bool(self.drop_last)
        return [self._n_samples, self.batch_size, drops]

    def _load_natively(self, state: dict[str, Any]) -> None:
        assert self.prepared is not None
        order: _orders.Own | _orders.Given
        if _orders.is_default(self) and self.prepared.source.rows is None:
            order = _orders.own(self, _known())
        else:
            rows = state.get("batch_size")
            longest = rows if isinstance(rows, int) else 1
            order = _orders.Given(array("q"), array("Q"), longest, ALONE, "same")
        finish = self._finish_of(self.prepared)
        feed = self._feeds.free(self._opening(self.prepared, order, finish))
        load_native(feed.loader._native, state)
        self._loaded = Loaded(feed.loader, state)

    # ---- what it says of itself ----------------------------------------------------------

    @property
    def recipe(self) -> dict[str, Any] | None:
        """The recipe made from the transforms; None if bothends does not read the data set."""
        if self.prepared is None:
            return None
        recipe = self.prepared.translation.recipe
        return filling(recipe) if fills_truncated() else recipe

    @property
    def words(self) -> list[str]:
        """What became of data set, sampler and each transform, one line each."""
        return explained(self)

    def explain(self) -> None:
        """Prints what became of data set, sampler and each transform, and what to change to load
        faster."""
        print("\n".join(explained(self)))

    def stats(self) -> dict[str, Any]:
        """Counters, as in `bothends.Loader.stats`; "loader" says who makes the samples: "bothends",
        the data set's own "python" in workers of bothends, or "pytorch"."""
        if self.prepared is None:
            items = self.own_items
            who, n = ("pytorch", 0) if items is None else ("python", items.n_taken)
            return {"loader": who, **nothing_yet(self._epoch_now, n)}
        stats = self._feeds.stats()
        if not stats:
            return {"loader": "bothends", **nothing_yet(self._epoch_now, 0)}
        return {"loader": "bothends", **summed(stats)}

    @property
    def _epoch_now(self) -> int:
        """The current epoch, or the next one."""
        progress = self.course.progress
        if progress is None:
            return self.course.next_epoch
        return progress.number + progress.has_ended

    def __getstate__(self) -> dict[str, Any]:
        """For another process or a copy: the arguments and the position of the training loop."""
        saved = self._position() if hasattr(self, "state_dict") else None
        state = {**vars(self), "_saved": saved, "course": self.course.copied()}
        for name in ("_feeds", "_tables", "_loaded", "_pool", "_finish", "_iterator"):
            state.pop(name, None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        saved = state.pop("_saved")
        # Earlier versions had none.
        state.setdefault("course", Course())
        vars(self).update(state, _iterator=None, _pool=Pool(), _finish=None)
        self._forget_iterations()
        if saved is not None:
            self._restore(saved)
        _rebuilt.watch(self)

    def __repr__(self) -> str:
        who = "bothends"
        if self.prepared is None:
            who = "PyTorch's own loader" if self.own_items is None else "the data set's own code"
        name = type(self.dataset).__name__
        return f"<bothends.torch.DataLoader {name} batch_size={self.batch_size}, loaded by {who}>"

    def check_worker_number_rationality(self) -> None:
        """PyTorch's warning about more worker processes than cores, where they are started."""
        if self.__dict__.get("left") is not None:
            super().check_worker_number_rationality()

    def close(self) -> None:
        """Ends the threads and devices, as `Loader.close` does."""
        self._is_closed = True
        self._feeds.close()
        self._pool.close()

    def __enter__(self) -> DataLoader[T_co]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _refuse(dataset: Any) -> None:
    if isinstance(dataset, (str, os.PathLike)):
        raise OptionsError(
            f"`dataset` is the path {os.fspath(dataset)!r}; give a data set, such as "
            "torchvision.datasets.ImageFolder(path, transform), or use bothends.Loader"
        )


def _differ(value: Any, default: Any) -> bool:
    """Whether an option was given; an empty list of devices says nothing."""
    is_empty = isinstance(value, (list, tuple, str)) and not value
    return not is_empty and value != default


def _is_within(place: dict[str, Any]) -> bool:
    """Whether a position is after one of the batches of its epoch."""
    if "version" in place:
        # Without an order, the batches done are no position.
        return bool(place.get("position", 1) or place.get("done"))
    items = place.get("items")
    return isinstance(items, list) and items[:1] != [0]


def _known() -> Ranks:
    try:
        return current()
    except OptionsError:
        return ALONE


def _unsharded(order: _orders.Own, ranks: Ranks, n: int) -> str:
    if order.ranks.world_size > 1:
        return (
            f"bothends: {ranks.world_size} ranks and no sampler: each rank gets a part of the "
            "shuffled epoch. Give sampler=DistributedSampler(dataset), or ranks='replicate' to "
            "load all of it on every rank"
        )
    return (
        f"bothends: {ranks.world_size} ranks and no sampler: every rank loads all {n} samples, as "
        "PyTorch's loader does. Give sampler=DistributedSampler(dataset, shuffle=False), or "
        "ranks='shard', to share them; ranks='replicate' says that this is meant"
    )


class Dataset(torch.utils.data.IterableDataset[Any]):
    """A `bothends.Loader` for programs that require a `torch.utils.data.DataLoader`: pass that
    class `batch_size=None, num_workers=0`. With worker processes each one would load everything,
    so that raises an `OptionsError`.
    """

    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def __iter__(self) -> Iterator[Any]:
        if torch.utils.data.get_worker_info() is not None:
            line = "num_workers must be 0: bothends preprocesses in threads of its own"
            raise OptionsError(line)
        return iter(self.loader)

    def __len__(self) -> int:
        """The number of batches of an epoch."""
        return len(self.loader)

    def state_dict(self) -> dict[str, Any]:
        """As `Loader.state_dict`."""
        return self.loader.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """As `Loader.load_state_dict`."""
        self.loader.load_state_dict(state)
