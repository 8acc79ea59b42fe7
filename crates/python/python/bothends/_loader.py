"""`Loader`: the Python half. It names the options, shares arrays with a framework, and speaks
the protocols of training scripts; what a loader does is the native half's."""

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
from typing import Any, NamedTuple, TypeVar

from . import _native
from ._callers import stacklevel_of_caller
from ._device import named, ordinal_of
from ._errors import OptionsError
from ._frameworks import sharing
from ._pillow import as_png
from ._progress import shown
from ._ranks import ALONE, Ranks, current, given, known, parent_of_ranks

T = TypeVar("T")


class Batch(NamedTuple):
    """A batch with all that is known of it, from `Loader.batches`."""

    images: list[Any]
    """One tensor for each view of a sample, shaped as in `Loader`."""
    labels: Any
    """int64, one per row, -1 in masked rows; float32 rows x classes where the recipe mixes. On
    the device where the images are."""
    mask: Any
    """bool, one per row: whether it holds a sample. On the device where the images are."""
    sample_ids: Any
    """int64, one per row, -1 in masked rows. Always in host memory."""
    n_valid: int
    """Rows that hold a sample; they come before the masked ones."""
    index: int  # type: ignore[assignment]  # a tuple's own `index` is of no use here
    """Its place in this rank's epoch, from 0."""
    prong: str
    """Who made it: "host", or "csd0", "csd1", ... by the place in `csds`."""


# Page-locked batches beyond those that a script holds which copies may still be reading.
_IN_FLIGHT = 2


def _devices(csds: Sequence[str] | str | None) -> list[str]:
    """One device is a list of one, and None is none."""
    if csds is None:
        return []
    return [csds] if isinstance(csds, str) else list(csds)


class Loader:
    """Feeds a training loop with preprocessed batches, from both ends of an epoch.

    Iterating gives `(images, labels)` for each batch of the epoch:

    * images: `batch_size` x channels x height x width with `layout="nchw"`, `batch_size` x height
      x width x channels with "nhwc"; of type `output`. A recipe with several views (multi_crop,
      five_crop) gives a list, one tensor for each view.
    * labels: int64, `batch_size`; float32, `batch_size` x classes, where the recipe mixes samples.
    * with `last="pad"` and `last="even"` a third one, mask: bool, `batch_size`; rows where it is
      False are black images with label -1 that only fill the last step up, and count for no metric.

    The tensors are host memory of the loader, shared without a copy. They may be kept and
    written to: the memory is used again when the last one of them is gone. A script that keeps
    more than `held_batches` batches gets copies.

    With `device="cuda"` they are in that GPU's memory, copied there ahead of the loop: what the stream
    that is current when a batch is handed over does next sees it complete, and the memory is used again
    when that stream has passed what was enqueued by the time that the last tensor is gone. A batch
    that is used on another stream must be kept until that stream has passed. A script that keeps more than
    `held_batches` batches gets a `StarvedError`.

    The stream depends on data, recipe, seed, epoch and batch size only: not on workers, devices
    or the number of ranks. Safe under `spawn` (it is made again in the child); in a fork every
    use raises `ForkError`. Iterating, waiting and Ctrl-C: waits hold no lock of Python's, and
    a signal ends them.

    Args:
        data: folder of class folders, CIFAR-10 folder, packed store, or .jsonl list.
        recipe: name of a built-in recipe, a recipe file, or the recipe itself as a dict.
        batch_size: samples of a batch of this rank.
        seed: of order and augmentation; the same on all ranks.
        shuffle: whether every epoch has an order of its own, else the data's.
        workers: host threads that preprocess; "auto" is one per core, divided by the ranks
            that torchrun, Slurm or MPI run on this machine.
        csds: devices of the back, for example ["tcp://nas:7070"] or "sim:newport".
        require_devices: whether a device that is missing now is an error; else a warning says why
            it is missing, as does `stats()`, and it is tried again until it is there.
        key_file: shared key for devices on other machines.
        strategy: "ordered", "relaxed", "mte", "wrr", "cpu" or "csd".
        objective: "throughput", "energy" or "host-cpu-cap=P".
        output: "u8", "f32", "f16" or "bf16".
        layout: "nchw" or "nhwc".
        rank, world_size: this process among how many; left out: as torch.distributed,
            torchrun, MPI or Slurm say.
        last: what becomes of the samples that fill no step of all ranks: "drop" leaves them out;
            "pad" delivers them in batches that are filled up with masked rows; "wrap" fills
            up with the epoch's first samples; "even" gives every rank as many of them, a
            few of the first ones again where they do not divide, and masks the other rows.
        on_bad: what becomes of a sample that cannot be preprocessed: "raise", "skip",
            "replace", "zero".
        audit: percent of devices' batches that the host makes again and compares.
        memory: MiB that waiting batches may take.
        held_batches: batches that the script may hold before it gets copies.
        device: where batches are delivered: None or "cpu", host memory; "cuda:N" or N, a GPU's;
            "cuda", PyTorch's current GPU or that of this rank on its machine.
        pin_memory: whether batches in host memory are page-locked, so that
            `tensor.to("cuda", non_blocking=True)` overlaps; without a GPU a warning says so once.
        limit, repeat: only the first samples of the data; times the data are run in an epoch.
        num_classes: columns of mixed labels, where the data do not name their classes.
        reader, side_index, page_cache: as `bothends run --help` says of them.
        framework: "torch", "numpy", "jax", "cupy" or "dlpack" (objects with `__dlpack__`); "auto"
            is PyTorch where it is installed, else NumPy, or on a GPU JAX or CuPy.
        sharding: a `jax.sharding.Sharding`, for `framework="jax"`: batches are global arrays
            of which every process holds its rows.
        progress: whether iterating shows on standard error how far the epoch has come, from its
            third second on: with tqdm where it is installed, else in plain lines.

    Raises:
        OptionsError: an option makes no sense.
        DataError: the data cannot be opened.
        DeviceError: there is no such GPU; a device of the back has another key, or with
            `require_devices` is missing.
    """

    def __init__(
        self,
        data: str | os.PathLike[str],
        recipe: str | os.PathLike[str] | dict[str, Any],
        *,
        batch_size: int = 64,
        seed: int = 0,
        shuffle: bool = True,
        workers: int | str = "auto",
        csds: Sequence[str] | str | None = (),
        require_devices: bool = False,
        key_file: str | os.PathLike[str] | None = None,
        strategy: str = "ordered",
        objective: str = "throughput",
        output: str = "f32",
        layout: str = "nchw",
        rank: int | None = None,
        world_size: int | None = None,
        last: str = "drop",
        on_bad: str = "raise",
        audit: int = 0,
        memory: int | None = None,
        held_batches: int = 2,
        device: Any = None,
        pin_memory: bool = False,
        limit: int | None = None,
        repeat: int = 1,
        num_classes: int | None = None,
        reader: str = "auto",
        side_index: str = "auto",
        page_cache: str = "auto",
        framework: str = "auto",
        sharding: Any = None,
        progress: bool = False,
        **unknown: Any,
    ) -> None:
        _refuse(unknown, data, recipe)
        self._options: dict[str, Any] = {
            "data": os.fspath(data),
            "recipe": recipe if isinstance(recipe, dict) else os.fspath(recipe),
            "batch_size": batch_size,
            "seed": seed,
            "shuffle": shuffle,
            "workers": workers,
            "csds": _devices(csds),
            "require_devices": require_devices,
            "key_file": None if key_file is None else os.fspath(key_file),
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
            "limit": limit,
            "repeat": repeat,
            "reader": reader,
            "side_index": side_index,
            "page_cache": page_cache,
        }
        self._num_classes = num_classes
        self._framework = framework
        self._sharding = sharding
        self._progress = progress
        self._samples: _native.Samples | None = None
        self._redecode: Callable[[bytes], bytes] | None = None
        self._open()

    def _open(self) -> None:
        options = dict(self._options)
        ranks = given(options["rank"], options["world_size"]) or known() or ALONE
        options["rank"], options["world_size"] = self._ranks = ranks
        self._options["device"] = named(options["device"])
        gpu = ordinal_of(self._options["device"])
        options["device"] = None if gpu is None else f"cuda:{gpu}"
        if options["pin_memory"]:
            options["pin_memory"] = f"cuda:{ordinal_of('cuda')}"
            # A slot comes back when the GPU has passed all that was enqueued by the next batch.
            options["held_batches"] += _IN_FLIGHT
        how = (self._framework, options["output"], gpu, self._sharding)
        if gpu is None:
            self._sharing = sharing(*how)
        text = json.dumps(options, default=_plain)
        parent = parent_of_ranks()
        self._native = _native.Loader(text, self._samples, self._redecode, parent)
        if gpu is not None:
            # Behind the native half, which says what a machine lacks.
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
        """A loader of samples that Python lists; `data` is the root of their files, or what they
        are called. Pillow decodes what the native decoders refuse, as it would without them."""
        loader = cls.__new__(cls)
        defaults = inspect.signature(cls).parameters.items()
        names = {name: p.default for name, p in defaults if p.kind is p.KEYWORD_ONLY}
        own = {**names, **options}
        loader._num_classes = own.pop("num_classes")
        loader._framework = own.pop("framework")
        loader._sharding = own.pop("sharding")
        loader._progress = own.pop("progress")
        csds, key_file = own["csds"], own["key_file"]
        own["csds"] = _devices(csds)
        own["key_file"] = None if key_file is None else os.fspath(key_file)
        loader._options = own
        loader._samples = samples
        loader._redecode = as_png
        loader._open()
        return loader

    def _take_rank(self, ranks: Ranks) -> None:
        """Ranks are known when an iteration begins, not when the loader is made."""
        if ranks != self._ranks:
            self._native.set_rank(*ranks)
            self._ranks = ranks

    def _current_rank(self) -> None:
        self._take_rank(current(self._options["rank"], self._options["world_size"]))

    def _known_rank(self) -> None:
        fixed = given(self._options["rank"], self._options["world_size"])
        self._take_rank(fixed or known() or self._ranks)

    # ---- a training loop ----------------------------------------------------------------

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """Begins the next epoch. One that was begun before is cancelled: an iterator of it that
        is asked for more raises an `OptionsError`."""
        self._current_rank()
        (consumer,) = self._native.begin(1)
        return self._shown(map(self._tensors, consumer))

    def __len__(self) -> int:
        """Batches of this rank in a whole epoch."""
        self._known_rank()
        return self._native.n_batches(1)

    def batches(self) -> Iterator[Batch]:
        """Begins the next epoch, as iterating does, and gives each batch as a `Batch`."""
        self._current_rank()
        (consumer,) = self._native.begin(1)
        return self._shown(map(self._batch, consumer))

    def _shown(self, batches: Iterator[T]) -> Iterator[T]:
        if not self._progress:
            return batches
        # Batches that an epoch delivered before it was resumed.
        state = self._state()
        done = state["position"] // (self.batch_size * self._ranks[1])
        done += sum(end - start for start, end in state["done"])
        return shown(batches, self._native.n_batches(1), done, self.epoch)

    def consumers(self, n: int) -> list[Iterator[tuple[Any, ...]]]:
        """Begins the next epoch for `n` consumers in this process, a thread for each: every
        one gets as many batches as the others, and together they get the epoch once. The
        first batch goes to the first, the second to the second, and so on in turn; a
        consumer that does not come for its batch holds up the others."""
        self._current_rank()
        return [map(self._tensors, consumer) for consumer in self._native.begin(n)]

    def set_epoch(self, epoch: int) -> None:
        """The next epoch shall be this one. Left out: the one after the last. A place that was
        loaded is kept if it is in this epoch, else given up."""
        try:
            self._native.set_epoch(operator.index(epoch))
        except (OverflowError, TypeError):
            raise OptionsError(f"no epoch {epoch!r}: they are counted from 0") from None

    @property
    def epoch(self) -> int:
        """The epoch that runs; the next one after its end."""
        return self._native.epoch

    # ---- saving and resuming ------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Where the training loop is: exact after any batch, numbers and short texts, at
        most 1 kB as JSON (with strategy "ordered"). Batches that lie ready do not count. After an
        epoch's last batch, before iterating has ended, it is the end of that epoch: what goes
        on from there gets no batch more, and so does what it does at an epoch's end.

        Raises:
            StateError: consumers have taken different numbers of batches.
        """
        self._known_rank()
        return self._state()

    def _state(self) -> dict[str, Any]:
        state: dict[str, Any] = json.loads(self._native.state())
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The next iteration goes on from there, also with other numbers of workers, devices
        and ranks.

        A state that an older release saved, which has no checksum, is read with a warning.

        Raises:
            StateError: the state is damaged, or belongs to another run.
        """
        self._known_rank()
        load_native(self._native, state)

    def stats(self) -> dict[str, Any]:
        """What the loader has done: batches by prong, and of the epochs that are over seconds
        waited by cause, samples that a policy was applied to, bytes read, processor
        seconds, peak memory in bytes."""
        stats: dict[str, Any] = json.loads(self._native.stats())
        return stats

    @property
    def note(self) -> str | None:
        """One line about how the data were read, where that may surprise."""
        return self._native.note

    # ---- stopping early -----------------------------------------------------------------

    def stop(self) -> None:
        """Whoever asks this loader for a batch from now on gets a `Stopped` instead, also who waits
        for one, and in the epochs that follow. Sets a flag and returns: any thread may call it,
        and a signal's handler. `state_dict()` then says where the loop is."""
        self._native.stop()

    @property
    def is_stopped(self) -> bool:
        """Whether `stop()` was called."""
        return self._native.is_stopped

    @contextlib.contextmanager
    def stop_on(self, *signals: int) -> Iterator["Loader"]:
        """Within this block each of these signals calls `stop()`, and what handled it before if
        that was a function of Python's; at its end they are handled as before. Without a signal
        named, it is SIGTERM. Must be entered in the main thread, where Python handles signals.

        Raises:
            ValueError: in another thread, or for a signal that cannot be handled.
        """
        before: dict[int, Any] = {}

        def handle(number: int, frame: Any) -> None:
            self.stop()
            previous = before.get(number)
            # SIGINT's own one raises KeyboardInterrupt, which is what this is instead of.
            if callable(previous) and previous is not signal.default_int_handler:
                previous(number, frame)

        try:
            for number in signals or (signal.SIGTERM,):
                before[number] = signal.getsignal(number)
                signal.signal(number, handle)
            yield self
        finally:
            for number, previous in before.items():
                # None: what handled it was not of Python's, and cannot be put back.
                if previous is not None:
                    signal.signal(number, previous)

    def close(self) -> None:
        """Ends its threads and devices and waits for them. Tensors that were delivered stay; using
        the loader any more is an `OptionsError`. Done by `with` at its end, else when the last
        reference to the loader goes."""
        self._native.close()

    def __enter__(self) -> "Loader":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        arguments = (self._options, self._num_classes, self._framework, self._sharding)
        return _again, (*arguments, self._progress, self.state_dict())

    # ---- what frameworks ask a loader ---------------------------------------------------

    @property
    def classes(self) -> list[str]:
        """The classes' names by label; empty where the data have none."""
        return self._native.class_names

    @property
    def sampler(self) -> "Loader":
        """Itself: what looks for `sampler.set_epoch` finds it."""
        return self

    @property
    def drop_last(self) -> bool:
        """Whether samples that fill no step are left out."""
        return bool(self._options["last"] == "drop")

    def __repr__(self) -> str:
        options = self._options
        recipe = options["recipe"]
        name = recipe if isinstance(recipe, str) else recipe.get("name", "a recipe of its own")
        return (
            f"<bothends.Loader {options['data']} {name} batch_size={self.batch_size} "
            f"rank {self._ranks[0]} of {self._ranks[1]}>"
        )

    # ---- one batch ----------------------------------------------------------------------

    def _tell_notes(self) -> None:
        """Warns of what has happened to devices since it was looked last: one is missing, was
        lost, or is there again."""
        for note in self._native.notes():
            warnings.warn(f"bothends: {note}", stacklevel=stacklevel_of_caller())

    def _tensors(self, batch: Any) -> tuple[Any, ...]:
        self._tell_notes()
        share, views = self._sharing.images, batch.views
        images = share(views[0]) if len(views) == 1 else [share(view) for view in views]
        if self._pads:
            return images, self._labels(batch), self._sharing.targets(batch.mask)
        return images, self._labels(batch)

    def _batch(self, batch: Any) -> Batch:
        self._tell_notes()
        share = self._sharing.images
        return Batch(
            [share(view) for view in batch.views],
            self._labels(batch),
            self._sharing.targets(batch.mask),
            self._sharing.ids(batch.sample_ids),
            batch.n_valid,
            batch.index,
            batch.prong,
        )

    def _labels(self, batch: Any) -> Any:
        if self._mixes:
            return self._sharing.targets(batch.soft_labels(self._num_classes))
        return self._sharing.targets(batch.labels)


# What people call an option elsewhere.
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
        raise OptionsError(f"`{name}` is no option of bothends.Loader{hint}")
    if not isinstance(data, (str, os.PathLike)):
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
    """A number of NumPy's or a framework's as Python's."""
    try:
        return value.item()
    except (AttributeError, ValueError, RuntimeError):
        kind = type(value).__name__
        line = f"{value!r} in the options is of type {kind}; give a number or a text"
        raise OptionsError(line) from None


class _Length:
    """The data set, as far as frameworks ask for it: how many samples there are."""

    def __init__(self, n: int) -> None:
        self._n = n

    def __len__(self) -> int:
        return self._n


def load_native(native: Any, state: dict[str, Any]) -> None:
    """Loads a state whose checksum is over the one text it has: sorted keys, no spaces."""
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
) -> Loader:
    """A loader made again in another process, where the first one was."""
    loader = Loader.__new__(Loader)
    loader._options = options
    loader._num_classes = num_classes
    loader._framework = framework
    loader._sharding = sharding
    loader._progress = progress
    loader._samples = loader._redecode = None
    loader._open()
    loader.load_state_dict(state)
    return loader
