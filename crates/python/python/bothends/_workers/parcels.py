"""Messages between a worker process and its parent, and the memory that both map.

A message goes through a socket; its arrays and tensors, and anything else that is long, are in
regions. A region belongs to the end that fills it. It is lent to the other end with a message and
comes back when the last array in it is gone there. The memory is anonymous: it has no name, is not
a file, and does not count against /dev/shm.
"""

from __future__ import annotations

import array
import io
import mmap
import os
import pickle
import select
import socket
import struct
import sys
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

# Smaller arrays are cheaper in the message, and keep no region from being reused.
SMALL_BYTES = 4096
# A longer message goes through a region, so that a send never waits for its receiver.
INLINE_BYTES = 8192
# More than the regions and numbers of an envelope ever need.
MESSAGE_BYTES = 1 << 16
N_DESCRIPTORS = 64
REGION_BYTES = 1 << 20
ALIGNMENT = 64


class _Part(NamedTuple):
    """Bytes of a message that are in a region."""

    region: int
    offset: int
    n_bytes: int


class _Envelope(NamedTuple):
    """What a socket carries: everything in a message except its long parts."""

    number: int
    # The table of parts followed by the pickled object; or their location.
    body: bytes | _Part
    n_parts: int
    # The regions that the message is in, and those among them that are new, by number and size:
    # their descriptors come along.
    lent: list[int]
    fresh: list[tuple[int, int]]
    # Regions of the sender that it will not use again, and of the receiver whose arrays are gone.
    dropped: list[int]
    freed: list[int]


class Channel:
    """One end of a connection: objects in messages, their arrays in regions.

    Each end fills its own regions, lends them to the other with a message, and learns from a later
    message which of them are free again.
    """

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self.arena = Arena()
        # Regions of the other end: all, those whose arrays live here, those whose are gone.
        self._mapped: dict[int, mmap.mmap] = {}
        self.kept: set[int] = set()
        self._freed: deque[int] = deque()

    def fileno(self) -> int:
        return self._end.fileno()

    def close(self) -> None:
        self._end.close()

    def is_alone(self) -> bool:
        """Whether the other end has closed."""
        poll = select.poll()
        poll.register(self._end, 0)
        return bool(poll.poll(0))

    def wait_writable(self, seconds: float) -> None:
        poll = select.poll()
        poll.register(self._end, select.POLLOUT)
        poll.poll(seconds * 1000)

    def packed(self, number: int, thing: Any) -> tuple[bytes, list[int]]:
        """A message and the file descriptors that go with it.

        Raises:
            Exception: the object cannot be pickled; then nothing has changed.
        """
        parts: list[_Part] = []
        stream = io.BytesIO()
        self.arena.reset()
        try:
            _Pickler(stream, self.arena, parts).dump(thing)
        except BaseException:
            self.arena.undo()
            raise
        table = array.array("q", [word for part in parts for word in part]).tobytes()
        whole = table + stream.getbuffer()
        is_long = len(whole) > INLINE_BYTES
        body = self.arena.placed(memoryview(whole)) if is_long else whole
        lent, fresh, dropped = self.arena.lend()
        freed = [self._freed.popleft() for _ in range(len(self._freed))]
        sizes = [(region.number, region.size) for region in fresh]
        envelope = _Envelope(number, body, len(parts), lent, sizes, dropped, freed)
        return pickle.dumps(envelope), [region.fd for region in fresh]

    def send(self, message: bytes, fds: list[int]) -> bool:
        """Sends a whole message; False if that would block and this end must not."""
        try:
            socket.send_fds(self._end, [message], fds, socket.MSG_NOSIGNAL)
        except BlockingIOError:
            return False
        for fd in fds:
            os.close(fd)
        return True

    def receive(self) -> Parcel | None:
        """The next message; None at the end.

        Raises:
            BlockingIOError: there is none, and this end must not block.
        """
        flags = socket.MSG_CMSG_CLOEXEC
        try:
            message, fds, *_ = socket.recv_fds(self._end, MESSAGE_BYTES, N_DESCRIPTORS, flags)
        except ConnectionResetError:
            return None
        if not message:
            return None
        envelope: _Envelope = pickle.loads(message)
        for (number, size), fd in zip(envelope.fresh, fds, strict=True):
            self._mapped[number] = mmap.mmap(fd, size)
            os.close(fd)
        for number in envelope.dropped:
            del self._mapped[number]
        self.arena.take_back(envelope.freed)
        return Parcel(self, envelope)

    def memory(self, region: int) -> memoryview:
        return memoryview(self._mapped[region])

    def owner(self, region: int) -> Any:
        """An array over a whole region. Once everything in it is gone, so is the array, and the
        region is free."""
        import numpy

        owner = numpy.frombuffer(self._mapped[region], numpy.uint8)
        self.kept.add(region)
        gone = weakref.finalize(owner, _gone, region, self.kept, self._freed)
        gone.atexit = False
        return owner

    def free(self, region: int) -> None:
        self._freed.append(region)


def _gone(region: int, kept: set[int], freed: deque[int]) -> None:
    # From the garbage collector, hence in any thread and at any moment: no lock here.
    kept.discard(region)
    freed.append(region)


class Parcel:
    """A message that has arrived. Exactly one of its methods must be called, once."""

    def __init__(self, channel: Channel, envelope: _Envelope) -> None:
        self.number = envelope.number
        self._channel = channel
        self._envelope = envelope

    def views(self) -> Any:
        """The object, with its arrays in the regions."""
        owners = {region: self._channel.owner(region) for region in self._envelope.lent}
        return self._loaded({region: memoryview(owner) for region, owner in owners.items()}, _same)

    def copies(self) -> Any:
        """The object, with its arrays in their own memory."""
        lent = self._envelope.lent
        try:
            return self._loaded({n: self._channel.memory(n) for n in lent}, bytearray)
        finally:
            self.drop()

    def drop(self) -> None:
        """Discards it."""
        for region in self._envelope.lent:
            self._channel.free(region)

    def _loaded(
        self, regions: dict[int, memoryview], held: Callable[[memoryview], Any]
    ) -> Any:
        body = self._envelope.body
        whole = memoryview(body) if isinstance(body, bytes) else _cut(regions, body)
        n_table = self._envelope.n_parts * 24
        words = struct.unpack(f"<{n_table // 8}q", whole[:n_table])
        parts = [_Part(*words[at : at + 3]) for at in range(0, len(words), 3)]
        return pickle.loads(whole[n_table:], buffers=[held(_cut(regions, part)) for part in parts])


def _same(memory: memoryview) -> memoryview:
    return memory


def _cut(regions: dict[int, memoryview], part: _Part) -> memoryview:
    return regions[part.region][part.offset : part.offset + part.n_bytes]


# ---- what is in a message -----------------------------------------------------------------


class _Pickler(pickle.Pickler):
    """Puts arrays and tensors into an arena, and everything else into the stream."""

    def __init__(self, stream: io.BytesIO, arena: Arena, parts: list[_Part]) -> None:
        # Not a method: that would be a cycle that keeps everything pickled alive.
        super().__init__(stream, protocol=5, buffer_callback=lambda b: _stays(b, arena, parts))
        self._arena = arena

    def reducer_override(self, thing: Any) -> Any:
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(thing, torch.Tensor):
            return _reduced_tensor(thing)
        numpy = sys.modules.get("numpy")
        if numpy is not None and type(thing) is numpy.ndarray:
            return _reduced_array(thing, self._arena)
        return NotImplemented


def _stays(buffer: pickle.PickleBuffer, arena: Arena, parts: list[_Part]) -> bool:
    """Whether a buffer stays in the stream rather than becoming one of the parts."""
    try:
        raw = buffer.raw()
    except BufferError:
        return True
    if raw.nbytes < SMALL_BYTES:
        return True
    parts.append(arena.placed(raw))
    return False


def _reduced_array(thing: Any, arena: Arena) -> Any:
    """NumPy reduces arrays without a copy if they are contiguous. It passes on that an array is
    read-only, of which PyTorch would warn in the worker; but the worker's is a copy."""
    flags = thing.flags
    is_good = flags.writeable and (flags.c_contiguous or flags.f_contiguous)
    if is_good or thing.dtype.hasobject or thing.nbytes < SMALL_BYTES:
        return NotImplemented
    copy = arena.room(thing.nbytes).view(thing.dtype).reshape(thing.shape)
    copy[...] = thing
    return copy.__reduce_ex__(5)


def _reduced_tensor(tensor: Any) -> Any:
    """A tensor as its bytes, in memory order. Tensors that are not plain blocks of numbers on the
    CPU are pickled as usual."""
    if not _is_plain(tensor):
        return NotImplemented
    import torch

    kind, plain = type(tensor), tensor.detach().as_subclass(torch.Tensor)
    order = sorted(range(plain.dim()), key=plain.stride, reverse=True)
    flat = plain.permute(order)
    if not flat.is_contiguous():
        plain = flat = plain.contiguous()
    memory = pickle.PickleBuffer(flat.reshape(-1).view(torch.uint8).numpy())
    layout = (plain.dtype, tuple(plain.shape), plain.stride())
    state = (None, None) if kind is torch.Tensor else (kind, dict(tensor.__dict__))
    return _tensor, (memory, layout, *state)


def _is_plain(tensor: Any) -> bool:
    import torch

    kind = type(tensor)
    return (
        tensor.device.type == "cpu"
        and tensor.layout is torch.strided
        and not (tensor.requires_grad or tensor.is_quantized or tensor.is_nested)
        and not (tensor.is_conj() or tensor.is_neg())
        and (kind is torch.Tensor or not _names(kind) & {"__reduce_ex__", "__torch_dispatch__"})
    )


def _names(kind: Any) -> set[str]:
    """The names that a subclass of tensors and the classes in between define."""
    import torch

    between = (base for base in kind.__mro__ if not issubclass(torch.Tensor, base))
    return {name for base in between for name in vars(base)}


def _tensor(memory: Any, layout: Any, kind: Any, state: Any) -> Any:
    import torch

    dtype, shape, strides = layout
    if len(memory):
        tensor = torch.frombuffer(memory, dtype=dtype).as_strided(shape, strides)
    else:
        tensor = torch.empty_strided(shape, strides, dtype=dtype, device="cpu")
    if kind is not None:
        tensor = tensor.as_subclass(kind)
        tensor.__dict__.update(state)
    return tensor


# ---- memory -------------------------------------------------------------------------------


class _Region:
    """Memory that both ends map and this end owns. Its pages exist once they are written to."""

    def __init__(self, number: int, size: int) -> None:
        self.number = number
        self.size = size
        self.fd = _anonymous(size)
        self.memory = mmap.mmap(self.fd, size)
        # The array of all of it, while something of this end lies in it.
        self.array: Callable[[], Any] = lambda: None


def _anonymous(size: int) -> int:
    """A file descriptor of anonymous memory."""
    no_execution = 8  # MFD_NOEXEC_SEAL, which some systems ask for and old kernels do not know
    try:
        fd = os.memfd_create("bothends", os.MFD_CLOEXEC | no_execution)
    except OSError:
        fd = os.memfd_create("bothends", os.MFD_CLOEXEC)
    os.ftruncate(fd, size)
    return fd


@dataclass
class _Open:
    """A region that is being filled."""

    region: _Region
    array: Any
    address: int
    used: int = 0
    # Weak references to what was handed out.
    taken: list[Callable[[], Any]] = field(default_factory=list)


class Arena:
    """The regions that one end fills: free, open for the message to come, or lent."""

    def __init__(self) -> None:
        self._free: list[_Region] = []
        self._open: list[_Open] = []
        self._lent: dict[int, _Region] = {}
        self._fresh: list[_Region] = []
        self._dropped: list[int] = []
        self._largest = 0
        self._n = 0

    def room(self, n_bytes: int) -> Any:
        """An array of bytes for the next message."""
        n = -(-n_bytes // ALIGNMENT) * ALIGNMENT
        if not self._open or self._open[-1].used + n > self._open[-1].region.size:
            self._open.append(self._opened(n))
        spot = self._open[-1]
        taken = spot.array[spot.used : spot.used + n_bytes]
        spot.used += n
        spot.taken.append(weakref.ref(taken))
        return taken

    def placed(self, memory: memoryview) -> _Part:
        """The location of the bytes in the arena: where they are, if they are in it, otherwise in a
        copy."""
        import numpy

        raw = numpy.frombuffer(memory, numpy.uint8)
        address = raw.__array_interface__["data"][0]
        for spot in self._open:
            offset = address - spot.address
            if 0 <= offset and offset + raw.nbytes <= spot.used:
                return _Part(spot.region.number, offset, raw.nbytes)
        taken = self.room(raw.nbytes)
        taken[:] = raw
        spot = self._open[-1]
        offset = taken.__array_interface__["data"][0] - spot.address
        return _Part(spot.region.number, offset, raw.nbytes)

    def reset(self) -> None:
        """Reuses room that was requested but is not needed: `mixup(default_collate(rows))`
        leaves nothing of the stacked rows."""
        for spot in self._open:
            if all(taken() is None for taken in spot.taken):
                spot.used = 0

    def lend(self) -> tuple[list[int], list[_Region], list[int]]:
        """Ends a message, and returns its regions, those new to the other end, and those to
        forget."""
        self._largest = max(self._largest, sum(spot.used for spot in self._open))
        lent = [spot.region for spot in self._open]
        self._open.clear()
        self._lent |= {region.number: region for region in lent}
        small = [region for region in self._free if region.size < self._largest]
        self._free = [region for region in self._free if region.size >= self._largest]
        dropped, self._dropped = self._dropped + [region.number for region in small], []
        fresh, self._fresh = self._fresh, []
        return [region.number for region in lent], fresh, dropped

    def undo(self) -> None:
        """Discards the message in progress."""
        regions = [spot.region for spot in self._open]
        self._open.clear()
        for region in regions:
            self._retire(region)

    def take_back(self, regions: list[int]) -> None:
        for number in regions:
            self._retire(self._lent.pop(number))

    def _retire(self, region: _Region) -> None:
        # Code at this end may have kept what was sent; it stays valid there.
        if region.array() is None:
            self._free.append(region)
        else:
            self._dropped.append(region.number)

    def _opened(self, n_bytes: int) -> _Open:
        import numpy

        # The one that came back last certainly has its pages in memory.
        region = next((free for free in reversed(self._free) if free.size >= n_bytes), None)
        if region is not None:
            self._free.remove(region)
        else:
            # Twice the known need: untouched memory costs nothing.
            so_far = sum(spot.used for spot in self._open) + n_bytes
            size = max(REGION_BYTES, 2 * so_far, 2 * self._largest)
            region = _Region(self._n, -(-size // mmap.PAGESIZE) * mmap.PAGESIZE)
            self._n += 1
            self._fresh.append(region)
        whole = numpy.frombuffer(region.memory, numpy.uint8)
        region.array = weakref.ref(whole)
        return _Open(region, whole, whole.__array_interface__["data"][0])
