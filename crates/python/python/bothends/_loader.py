"""`Loader`: the Python half. It names the options, shares arrays with a framework, and follows
the protocols of training scripts. The native half does the work."""

from __future__ import annotations

import contextlib
import difflib
import inspect
import json
import operator
import os
import signal
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

from . import _native
from ._callers import counts_batches, stacklevel_of_caller
from ._device import named, ordinal_of
from ._errors import OptionsError
from ._frameworks import sharing
from ._mix import Mix
from ._pillow import as_png
from ._pool import Pool
from ._progress import Shown
from ._ranks import ALONE, Ranks, current, given, known, parent_of_ranks
from ._tables import Table, Tables
from ._waits import Waits

T = TypeVar("T")


class Ragged(NamedTuple):
    """Values of different lengths, one after the other: row `i` is
    `values[offsets[i]:offsets[i + 1]]`."""

    values: Any
    """One dimension, all rows."""
    offsets: Any
    """int64, one more than rows. Always in host memory."""


class Batch(NamedTuple):
    """A batch with everything that is known about it, from `Loader.batches`."""

    images: list[Any]
    """One tensor per view of a sample, shaped as in `Loader`."""
    labels: Any
    """int64, one per row, -1 in masked rows; float32 rows x classes if the recipe mixes. On the
    device where the images are."""
    mask: Any
    """bool, one per row: whether it holds a sample. On the device where the images are."""
    sample_ids: Any
    """int64, one per row, -1 in masked rows. Always in host memory."""
    n_valid: int
    """The number of rows that hold a sample; they come before the masked ones."""
    index: int  # type: ignore[assignment]  # a tuple's own `index` is of no use here
    """Its position in this rank's epoch, from 0."""
    prong: str
    """Who made it: "host", or "csd0", "csd1", ... by the position in `csds`."""
    source: Any
    """int64, one per row: the data set of a `Mix` that the sample is from, by its position in
    `Loader.sources`; 0 without a mix, and -1 in masked rows. Always in host memory."""
    fields: dict[str, Any]
    """The further fields that `fields` of the loader names: a tensor, rows x the shape of each value, where
    all samples of the data have the same; `Ragged` where numbers differ in how many there are; a list
    of str or of bytes. Masked rows have zeros, or nothing."""


class _Epoch(Iterator[T]):
    """The batches of an epoch, and an action after the last one. Several threads may take from it
    at once, which neither a generator nor `itertools.chain` allows: the chain frees an iterator
    that another thread is still using."""

    def __init__(self, batches: Iterator[T], loader: Loader) -> None:
        self._batches, self._loader = batches, loader

    def __next__(self) -> T:
        try:
            return next(self._batches)
        except StopIteration:
            self._loader._ended()
            raise


# Pinned batches that copies may still be reading, in addition to those held by the script.
_IN_FLIGHT = 2


@runtime_checkable
class Members(Protocol):
    """Devices that come and go by themselves: a `bothends.ray.Pool`."""

    def options_for(self, loader: Loader) -> dict[str, Any]:
        """Options with which that loader finds them."""


Devices = Sequence[str | Pool] | str | Pool | Members | None


def _devices(csds: Devices) -> list[str]:
    """One device is a list of one, and None is none; `Members` name themselves later."""
    if isinstance(csds, (str, Pool)):
        return [str(csds)]
    if csds is None or isinstance(csds, Members):
        return []
    return [str(device) if isinstance(device, Pool) else device for device in csds]


# Options that name files.
_FILES = ("key_file", "tls_ca", "tls_cert", "tls_key", "cache")


def _path(file: str | os.PathLike[str] | None) -> str | None:
    return None if file is None else os.fspath(file)


class Loader:
    """Feeds a training loop with preprocessed batches, from both ends of an epoch.

    Iterating yields `(images, labels)` for each batch of the epoch:

    * images: `batch_size` x channels x height x width with `layout="nchw"`, `batch_size` x height
      x width x channels with "nhwc"; of type `output`. A recipe with several views (multi_crop,
      five_crop) yields a list with one tensor per view.
    * labels: int64, `batch_size`; float32, `batch_size` x classes, if the recipe mixes samples.
    * with the recipe "raw" over image files, images are a `Ragged` of the files' bytes.
    * with `fields` also a dict of them, the last of the tuple, as `Batch.fields`.
    * with `last="pad"` and `last="even"` also a mask: bool, `batch_size`. Rows where it is False
      are black images with label -1 that only fill the last step; leave them out of metrics.

    The tensors share the loader's host memory without a copy. They may be kept and written to:
    the memory is reused when the last of them is gone. A script that holds more than
    `held_batches` batches gets copies.

    With `device="cuda"` they are in that GPU's memory, copied there ahead of the loop. Work that is
    enqueued on the stream current at the handover sees the batch complete. The memory is
    reused once that stream has finished what was enqueued before the last tensor was gone. A batch
    used on another stream must be kept until that stream has finished with it. A script that holds
    more than `held_batches` batches gets a `StarvedError`.

    The stream depends only on data, recipe, seed, epoch and batch size, and not on workers,
    devices or the number of ranks. The loader is safe under `spawn` (it is created again in the
    child); after a fork every use raises `ForkError`. Waiting releases the GIL, and a signal such
    as Ctrl-C ends it.

    Args:
        data: class folders, shards (WebDataset, MDS, TFRecord, Parquet, Arrow, LitData, datadings, HDF5, FFCV),
            CIFAR-10 folder, packed store, or .jsonl list; a path or a URL (s3://bucket/prefix). Or a `Mix`
            of several.
        recipe: name of a built-in recipe, a recipe file, or the recipe itself as a dict.
        batch_size: samples per batch of this rank.
        seed: seed of order and augmentation; the same on all ranks.
        shuffle: whether every epoch has its own order, rather than that of the data.
        workers: host threads that preprocess; "auto" is one per core, divided by the ranks
            that torchrun, Slurm or MPI run on this machine.
        csds: devices for the second prong, for example ["tcp+noise://nas:7070"] (with `key_file`) or
            "sim:newport"; or devices that come and go, as a `bothends.Pool` or a `bothends.ray.Pool`.
        require_devices: whether a device that is missing at the start is an error. Otherwise a
            warning and `stats()` say why it is missing, and it is retried until it is there.
        key_file: key that devices and this host share, for `tcp+noise://`.
        tls_ca, tls_cert, tls_key: PEM files for `tls://`: the authorities, this host's certificate
            and its private key.
        insecure: True lets `tcp://`, which is not encrypted, leave this machine, with a key, if the
            device allows it too.
        job: name of the training job, for agents that several jobs share; its ranks give the same one.
        priority: of the job, -4 to 4: each step doubles its part of an agent.
        share: of the job, 1 to 100: its part of an agent, relative to the shares of other jobs.
        strategy: "ordered", "relaxed", "mte", "wrr", "cpu" or "csd".
        objective: "throughput", "energy" or "host-cpu-cap=P".
        output: "u8", "f32", "f16" or "bf16".
        layout: "nchw" or "nhwc".
        rank, world_size: this process and the number of processes; by default from
            torch.distributed, JAX, Ray Train, torchrun, MPI or Slurm.
        last: what to do with samples that do not fill a step of all ranks: "drop" leaves them
            out; "pad" adds masked rows; "wrap" adds the first samples of the epoch; "even" gives
            every rank the same number, repeats at most one per rank, and masks the other rows.
        on_bad: what to do with a sample that cannot be preprocessed: "raise", "skip",
            "replace", "zero".
        audit: percentage of the devices' batches of which the host redoes rows and compares them;
            100 compares all rows of all batches.
        memory: MiB that waiting batches may take.
        held_batches: batches that the script may hold before it gets copies.
        device: where batches are delivered: None or "cpu" for host memory; "cuda:N" or N for a
            GPU; "cuda" for PyTorch's current GPU or this rank's GPU on its machine.
        pin_memory: whether batches in host memory are pinned, so that
            `tensor.to("cuda", non_blocking=True)` overlaps; without a GPU there is one warning.
        fields: names of further fields of the samples, such as ["caption", "boxes"]; `bothends inspect` lists
            them. "name:text" and "name:bytes" say what the bytes of a field are taken for.
        limit, repeat: only the first samples of the data; how often they are repeated per epoch.
        num_classes: columns of mixed labels, if the data do not name their classes.
        reader, side_index, page_cache: see `bothends run --help`.
        cache_size: most bytes of JPEGs that are transcoded while the host is idle, such as "50G";
            "auto" transcodes data on other machines only; "off".
        fetch_requests, fetch_reorder: of remote data, the most requests in flight, and the most
            bytes requested and not yet with the workers, such as "256M".
        fetch_patience: seconds for which a store that has answered before may be gone before the run ends.
        cache: directory in which records fetched from a remote store are kept for later epochs and runs.
        framework: "torch", "numpy", "jax", "cupy" or "dlpack" (objects with `__dlpack__`); "auto"
            is PyTorch if it is installed, otherwise NumPy, or on a GPU JAX or CuPy.
        sharding: a `jax.sharding.Sharding`, for `framework="jax"`: batches are global arrays
            of which every process holds its rows. `Ragged` rows are this process's, as NumPy arrays.
        progress: whether iterating shows on standard error how far the epoch has come, from its
            third second on: with tqdm if it is installed, otherwise in plain lines.

    Raises:
        OptionsError: an option is invalid.
        DataError: the data cannot be opened.
        DeviceError: there is no such GPU; or a device in `csds` has another key, or is missing with
            `require_devices`.
    """

    _members: Members | None = None

    def __init__(
        self,
        data: str | os.PathLike[str] | Mix,
        recipe: str | os.PathLike[str] | dict[str, Any],
        *,
        batch_size: int = 64,
        seed: int = 0,
        shuffle: bool = True,
        workers: int | str = "auto",
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
        strategy: str = "ordered",
        objective: str = "throughput",
        output: str = "f32",
        layout: str = "nchw",
        rank: int | None = None,
        world_size: int | None = None,
        last: str = "drop",
        on_bad: str = "raise",
        audit: int = 1,
        memory: int | None = None,
        held_batches: int = 2,
        device: Any = None,
        pin_memory: bool = False,
        fields: Sequence[str] | str = (),
        limit: int | None = None,
        repeat: int = 1,
        num_classes: int | None = None,
        reader: str = "auto",
        side_index: str = "auto",
        page_cache: str = "auto",
        cache_size: int | str = "auto",
        fetch_requests: int | None = None,
        fetch_reorder: int | str | None = None,
        fetch_patience: int | None = None,
        cache: str | os.PathLike[str] | None = None,
        framework: str = "auto",
        sharding: Any = None,
        progress: bool = False,
        **unknown: Any,
    ) -> None:
        _refuse(unknown, data, recipe)
        self._options: dict[str, Any] = {
            "data": data.options if isinstance(data, Mix) else os.fspath(data),
            "recipe": recipe if isinstance(recipe, dict) else os.fspath(recipe),
            "batch_size": batch_size,
            "seed": seed,
            "shuffle": shuffle,
            "workers": workers,
            "csds": _devices(csds),
            "require_devices": require_devices,
            "key_file": _path(key_file),
            "tls_ca": _path(tls_ca),
            "tls_cert": _path(tls_cert),
            "tls_key": _path(tls_key),
            "insecure": insecure,
            "job": job,
            "priority": priority,
            "share": share,
            "strategy": strategy,
            "objective": objective,
            "output": output,
            "layout": layout,
            "rank": rank,
            "world_size": world_size,
            "last": last,
            "on_bad": on_bad,
            "audit": audit,
            "memory": memory,
            "held_batches": held_batches,
            "device": device,
            "pin_memory": pin_memory,
            "fields": [fields] if isinstance(fields, str) else list(fields),
            "limit": limit,
            "repeat": repeat,
            "reader": reader,
            "side_index": side_index,
            "page_cache": page_cache,
            "cache_size": cache_size,
            "fetch_requests": fetch_requests,
            "fetch_reorder": fetch_reorder,
            "fetch_patience": fetch_patience,
            "cache": _path(cache),
        }
        self._take_members(csds)
        self._num_classes = num_classes
        self._framework = framework
        self._sharding = sharding
        self._progress = progress
        self._samples: _native.Samples | None = None
        self._redecode: Callable[[bytes], bytes] | None = None
        self._open()

    def _take_members(self, csds: Devices) -> None:
        if isinstance(csds, Members):
            if self._options["key_file"] is not None:
                raise OptionsError(f"a {type(csds).__name__} has its own key: leave out key_file")
            self._options.update(csds.options_for(self))
            self._members = csds  # keeps alive what they are found by

    def _open(self) -> None:
        self._waits = Waits()
        # The bad samples of which a warning has told.
        self._told_bad: set[int] = set()
        self._tables = Tables("rank=0, world_size=1")
        options = dict(self._options)
        ranks = given(options["rank"], options["world_size"]) or known() or ALONE
        options["rank"], options["world_size"] = self._ranks = ranks
        self._options["device"] = named(options["device"])
        gpu = ordinal_of(self._options["device"])
        options["device"] = None if gpu is None else f"cuda:{gpu}"
        if options["pin_memory"]:
            options["pin_memory"] = f"cuda:{ordinal_of('cuda')}"
            # A slot is returned once the GPU has finished everything enqueued before the next
            # batch.
            options["held_batches"] += _IN_FLIGHT
        how = (self._framework, options["output"], gpu, self._sharding)
        if gpu is None:
            self._sharing = sharing(*how)
        text = json.dumps(options, default=_plain)
        parent = parent_of_ranks()
        self._native = _native.Loader(text, self._samples, self._redecode, parent)
        if gpu is not None:
            # After the native half, which reports what the machine lacks.
            self._sharing = sharing(*how)
        self._tell_notes()
        self._pads = options["last"] in ("pad", "even")
        self._mixes = self._native.mixes
        if self._num_classes is None:
            self._num_classes = len(self._native.class_names)
        if self._mixes and not self._num_classes:
            line = "the recipe mixes labels and the data name no classes: give num_classes"
            raise OptionsError(line)
        self.batch_size = int(options["batch_size"])
        self.dataset = _Length(self._native.n_samples)

    @classmethod
    def _of_samples(cls, samples: _native.Samples | None, **options: Any) -> Loader:
        """A loader of samples that Python lists; `data` is the root of their files, or their name.
        Pillow decodes what the native decoders refuse."""
        loader = cls.__new__(cls)
        defaults = inspect.signature(cls).parameters.items()
        names = {name: p.default for name, p in defaults if p.kind is p.KEYWORD_ONLY}
        own = {**names, **options}
        loader._num_classes = own.pop("num_classes")
        loader._framework = own.pop("framework")
        loader._sharding = own.pop("sharding")
        loader._progress = own.pop("progress")
        csds = own["csds"]
        own["csds"] = _devices(csds)
        own.update({name: _path(own[name]) for name in _FILES})
        loader._options = own
        loader._take_members(csds)
        loader._samples = samples
        loader._redecode = as_png
        loader._open()
        return loader

    def _take_rank(self, ranks: Ranks) -> None:
        """Determines the rank: it is known when an iteration begins, not when the loader is
        made."""
        if ranks != self._ranks:
            self._native.set_rank(*ranks)
            self._ranks = ranks

    def _table(self) -> Table:
        # The table depends on nothing else.
        options = [self._options[name] for name in ("data", "recipe", "fields", "limit", "repeat")]
        loader = json.dumps(["Loader", *options], sort_keys=True, default=_plain)
        native = self._native
        return Table(loader, self._data_name, native.n_samples, native.table_hash)

    @property
    def _data_name(self) -> str:
        """For messages."""
        data = self._options["data"]
        if isinstance(data, dict):
            return " + ".join(_native.without_secrets(each["data"]) for each in data["sources"])
        return _native.without_secrets(data)

    def _known_rank(self) -> None:
        fixed = given(self._options["rank"], self._options["world_size"])
        self._take_rank(fixed or known() or self._ranks)

    # ---- a training loop ----------------------------------------------------------------

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """Begins the next epoch. An earlier one is cancelled: its iterator raises an `OptionsError`
        when it is used again."""
        (consumer,) = self._begin_shared(1)
        return self._shown(self._followed(map(self._tensors, consumer)))

    def __len__(self) -> int:
        """The number of batches of this rank in a whole epoch."""
        self._known_rank()
        return self._native.n_batches(1)

    def batches(self) -> Iterator[Batch]:
        """Begins the next epoch, as iterating does, and yields each batch as a `Batch`."""
        (consumer,) = self._begin_shared(1)
        return self._shown(self._followed(map(self._batch, consumer)))

    def _shown(self, batches: Iterator[T]) -> Iterator[T]:
        if not self._progress:
            return batches
        # Batches that the epoch delivered before it was resumed.
        state = self._state()
        done = state["position"] // (self.batch_size * self._ranks[1])
        done += sum(end - start for start, end in state["done"])
        return Shown(batches, self._native.n_batches(1), done, self.epoch)

    def consumers(self, n: int) -> list[Iterator[tuple[Any, ...]]]:
        """Begins the next epoch for `n` consumers in this process, one thread each. They share the
        batches round-robin: each gets the same number, and together they get the epoch once. A
        consumer that does not take its batch holds up the others."""
        consumers = self._begin_shared(n)
        return [self._followed(map(self._tensors, consumer)) for consumer in consumers]

    def _begin_shared(self, n: int) -> list[Iterator[Any]]:
        """Begins an epoch that ranks may share, which must have listed the same samples then."""
        self._take_rank(current(self._options["rank"], self._options["world_size"]))
        consumers = self._begin(n)
        # Only now the number of the epoch is known.
        self._tables.compare(self._ranks, self.epoch, self._table)
        return consumers

    def _begin(self, n: int) -> list[Iterator[Any]]:
        return self._waits.timed(self._native.begin(n))

    def set_epoch(self, epoch: int) -> None:
        """Chooses the next epoch; by default it is the one after the last. A position that was
        loaded is kept if it is in this epoch, and dropped otherwise."""
        try:
            self._native.set_epoch(operator.index(epoch))
        except (OverflowError, TypeError):
            raise OptionsError(f"no epoch {epoch!r}: they are counted from 0") from None

    @property
    def epoch(self) -> int:
        """The current epoch; the next one after its end."""
        return self._native.epoch

    # ---- saving and resuming ------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """The position of the training loop, exact after any batch: numbers and short texts, at
        most 1 kB as JSON (with strategy "ordered"). Prefetched batches do not count. After the
        last batch of an epoch, before iterating has ended, it is the end of that epoch: a resumed
        loop gets no more batches of it and still does what it does at the end of an epoch.

        Raises:
            StateError: consumers have taken different numbers of batches.
        """
        self._known_rank()
        return self._state()

    def _state(self) -> dict[str, Any]:
        state: dict[str, Any] = json.loads(self._native.state())
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Makes the next iteration continue from a state, with any number of workers, devices and
        ranks.

        A state saved by an older release has no checksum and is read with a warning. If Lightning
        loads the end of an epoch, the next epoch follows.

        Raises:
            StateError: the state is damaged, or belongs to another run.
        """
        self._known_rank()
        load_native(self._native, state)
        if counts_batches() and self._n_left() == 0:
            self.set_epoch(self.epoch + 1)

    def _n_left(self) -> int:
        """The number of batches that this rank still gets of the current epoch."""
        state = self._state()
        # The position counts samples of all ranks, `done` the batches after it.
        n_samples = self._native.n_samples - state["position"]
        step = self.batch_size * self._ranks[1]
        n_batches: int = n_samples // step if self.drop_last else -(-n_samples // step)
        n_done: int = sum(end - start for start, end in state["done"])
        return n_batches - n_done

    def stats(self) -> dict[str, Any]:
        """Counters: batches by prong, and for completed epochs the seconds waited by cause, samples
        to which a policy was applied, bytes read, CPU seconds, and peak memory in bytes."""
        stats: dict[str, Any] = json.loads(self._native.stats())
        return stats

    @property
    def note(self) -> str | None:
        """One line about how the data were read, if that may be surprising."""
        return self._native.note

    # ---- stopping early -----------------------------------------------------------------

    def stop(self) -> None:
        """From now on, asking or waiting for a batch raises `Stopped`, also in later epochs. This
        only sets a flag, so any thread and any signal handler may call it. `state_dict()` then
        says where the loop is."""
        self._native.stop()

    @property
    def is_stopped(self) -> bool:
        """Whether `stop()` was called."""
        return self._native.is_stopped

    @contextlib.contextmanager
    def stop_on(self, *signals: int) -> Iterator["Loader"]:
        """Within this block each of these signals (SIGTERM by default) calls `stop()`, and then its
        previous handler if that is a Python function. At the end of the block the previous handlers
        are restored. Enter it in the main thread, where Python handles signals.

        Raises:
            ValueError: in another thread, or for a signal that cannot be handled.
        """
        before: dict[int, Any] = {}

        def handle(number: int, frame: Any) -> None:
            self.stop()
            previous = before.get(number)
            # SIGINT's default handler raises KeyboardInterrupt, which this replaces.
            if callable(previous) and previous is not signal.default_int_handler:
                previous(number, frame)

        try:
            for number in signals or (signal.SIGTERM,):
                before[number] = signal.getsignal(number)
                signal.signal(number, handle)
            yield self
        finally:
            for number, previous in before.items():
                # None: the handler was not installed by Python and cannot be restored.
                if previous is not None:
                    signal.signal(number, previous)

    def close(self) -> None:
        """Ends threads and devices and waits for them. Delivered tensors stay valid; using the
        loader afterwards raises an `OptionsError`. `with` does this at its end, and otherwise it
        happens when the last reference to the loader is gone."""
        self._native.close()

    def __enter__(self) -> "Loader":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        options = self._options
        if self._members is not None:
            # They are found through a file of this process.
            options = {**options, "csds": [], "key_file": None}
        arguments = (options, self._num_classes, self._framework, self._sharding)
        return _again, (*arguments, self._progress, self.state_dict(), self._members)

    # ---- what frameworks ask a loader ---------------------------------------------------

    @property
    def classes(self) -> list[str]:
        """Class names by label; empty if the data have none."""
        return self._native.class_names

    @property
    def sources(self) -> list[str]:
        """Names of the data sets of a `Mix`; empty without one."""
        return self._native.sources

    @property
    def sampler(self) -> "Loader":
        """The loader itself, for callers that look for `sampler.set_epoch`."""
        return self

    @property
    def drop_last(self) -> bool:
        """Whether samples that do not fill a step are left out."""
        return bool(self._options["last"] == "drop")

    def __repr__(self) -> str:
        options = self._options
        recipe = options["recipe"]
        name = recipe if isinstance(recipe, str) else recipe.get("name", "a recipe of its own")
        return (
            f"<bothends.Loader {self._data_name} {name} batch_size={self.batch_size} "
            f"rank {self._ranks[0]} of {self._ranks[1]}>"
        )

    # ---- one batch ----------------------------------------------------------------------

    def _followed(self, batches: Iterator[T]) -> Iterator[T]:
        """The same batches, for a script that iterates over this loader itself."""
        return self._tables.follow(self._to_the_end(batches))

    def _to_the_end(self, batches: Iterator[T]) -> Iterator[T]:
        """The same batches, then whatever the epoch has to report."""
        return _Epoch(batches, self)

    def _ended(self) -> None:
        # Asking for it ends an epoch of which nothing is left.
        _ = self._native.epoch
        self._tell_notes()
        if self._options["on_bad"] != "raise":
            self._tell_bad()

    def _tell_bad(self) -> None:
        """Warns of the samples to which `on_bad` was applied for the first time."""
        listed = {bad["sample"]: bad for bad in self.stats()["skipped"]}
        fresh = [bad for sample, bad in listed.items() if sample not in self._told_bad]
        if fresh:
            self._told_bad.update(listed)
            line = bad_words(fresh, self._native.n_samples)
            warnings.warn(f"bothends: {line}", stacklevel=stacklevel_of_caller())

    def _tell_notes(self) -> None:
        """Warns of what has happened since the last call: a device is missing, was lost or has
        returned, or samples are damaged."""
        for note in self._native.notes():
            warnings.warn(f"bothends: {note}", stacklevel=stacklevel_of_caller())

    def _tensors(self, batch: Any) -> tuple[Any, ...]:
        self._tell_notes()
        images = self._images(batch)
        first = images[0] if len(images) == 1 else images
        tensors: tuple[Any, ...] = (first, self._labels(batch))
        if self._pads:
            tensors = (*tensors, self._sharing.targets(batch.mask))
        if self._options["fields"]:
            tensors = (*tensors, self._fields(batch))
        return tensors

    def _images(self, batch: Any) -> list[Any]:
        if batch.row_starts is not None:
            return [self._ragged(batch.views[0], batch.row_starts, self._sharing.images)]
        return [self._sharing.images(view) for view in batch.views]

    def _ragged(self, values: Any, offsets: Any, share: Callable[[Any], Any]) -> Ragged:
        plain = self._sharing.ragged
        return Ragged((plain or share)(values), (plain or self._sharing.ids)(offsets))

    def _fields(self, batch: Any) -> dict[str, Any]:
        return {name: self._field(value) for name, value in batch.fields}

    def _field(self, value: Any) -> Any:
        if isinstance(value, list):
            return value
        if isinstance(value, tuple):
            values, offsets = value
            return self._ragged(values, offsets, self._sharing.targets)
        return self._sharing.targets(value)

    def _batch(self, batch: Any) -> Batch:
        self._tell_notes()
        return Batch(
            self._images(batch),
            self._labels(batch),
            self._sharing.targets(batch.mask),
            self._sharing.ids(batch.sample_ids),
            batch.n_valid,
            batch.index,
            batch.prong,
            self._sharing.ids(batch.sources),
            self._fields(batch),
        )

    def _labels(self, batch: Any) -> Any:
        if self._mixes:
            return self._sharing.targets(batch.soft_labels(self._num_classes))
        return self._sharing.targets(batch.labels)


# Names of the same option in other libraries.
_ELSEWHERE = {
    "num_workers": "workers",
    "dtype": "output",
    "memory_format": "layout",
    "drop_last": "last",
    "num_replicas": "world_size",
    "num_shards": "world_size",
    "shard_id": "rank",
    "path": "data",
    "root": "data",
    "transform": "recipe",
}


def _refuse(unknown: dict[str, Any], data: Any, recipe: Any) -> None:
    """Arguments that belong elsewhere.

    Raises:
        OptionsError: each says what to give instead.
    """
    names = [name for name in inspect.signature(Loader).parameters if name != "unknown"]
    for name in unknown:
        near = _ELSEWHERE.get(name) or next(iter(difflib.get_close_matches(name, names, 1)), None)
        hint = f"; did you mean `{near}`?" if near else ""
        raise OptionsError(f"`{name}` is not an option of bothends.Loader{hint}")
    if not isinstance(data, (str, os.PathLike, Mix)):
        root = getattr(data, "root", None)
        folder = f" ({os.fspath(root)!r})" if isinstance(root, (str, os.PathLike)) else ""
        raise OptionsError(
            f"`data` is of type {type(data).__name__}; give the path of the data{folder}, or use "
            "bothends.torch.DataLoader, which takes data sets"
        )
    if not isinstance(recipe, (str, os.PathLike, dict)):
        raise OptionsError(
            f"`recipe` is of type {type(recipe).__name__}; give a recipe's name, file or dict, or "
            "use bothends.torch.DataLoader, which translates transforms"
        )


def _plain(value: Any) -> Any:
    """A number from NumPy or a framework as a Python number."""
    try:
        return value.item()
    except (AttributeError, ValueError, RuntimeError):
        kind = type(value).__name__
        line = f"{value!r} in the options is of type {kind}; give a number or a text"
        raise OptionsError(line) from None


# What `on_bad` did to a sample.
_DONE = {
    "skip": ("was left out", "were left out"),
    "replace": ("was replaced by another one", "were replaced by others"),
    "zero": ("became an image of zeros", "became images of zeros"),
}
# Samples that a warning names.
_NAMED = 3


def bad_words(bad: list[dict[str, Any]], n_samples: int) -> str:
    """One line that counts and names the samples to which `on_bad` was applied, of so many."""
    policy = bad[0]["policy"]
    done = _DONE.get(policy, (policy, policy))[len(bad) > 1]
    # A remedy may follow each reason.
    named = ", ".join(f"{each['file']} ({each['why'].split(';')[0]})" for each in bad[:_NAMED])
    more = f", and {len(bad) - _NAMED:,} more" if len(bad) > _NAMED else ""
    line = f"{len(bad):,} of {n_samples:,} samples cannot be read and {done} (on_bad={policy!r})"
    return f"{line}: {named}{more}"


class _Length:
    """The data set as far as frameworks ask for it: its number of samples."""

    def __init__(self, n: int) -> None:
        self._n = n

    def __len__(self) -> int:
        return self._n


def load_native(native: Any, state: dict[str, Any]) -> None:
    """Loads a state. Its checksum covers the canonical text: sorted keys, no spaces."""
    note = native.load_state(json.dumps(state, sort_keys=True, separators=(",", ":")))
    if note is not None:
        warnings.warn(f"bothends: {note}", stacklevel=stacklevel_of_caller())


def _again(
    options: dict[str, Any],
    num_classes: int | None,
    framework: str,
    sharding: Any,
    progress: bool,
    state: dict[str, Any],
    members: Members | None,
) -> Loader:
    """The loader re-created in another process, at the position of the first."""
    loader = Loader.__new__(Loader)
    loader._options = options
    loader._take_members(members)
    loader._num_classes = num_classes
    loader._framework = framework
    loader._sharding = sharding
    loader._progress = progress
    loader._samples = loader._redecode = None
    loader._open()
    loader.load_state_dict(state)
    return loader
