"""Records a data set's attributes, to notice at the beginning of an epoch that they have
changed."""

from __future__ import annotations

import enum
import functools
import types
import zlib
from collections.abc import Callable
from typing import Any

# Transforms of these libraries are compared by what they hold, others by identity.
_LIBRARIES = frozenset({"torchvision", "timm", "torch"})
# The user's own wrappers are also searched, since recipes are found in them.
_INSIDE = ("transform", "transforms")
# Deeper than any transform; a cycle ends here.
_DEPTH = 16
# Of larger arrays a checksum would delay every epoch noticeably. For CIFAR-10's 154 MB, zlib's takes
# 82 ms in the order in which they are stored; sums of words and a checksum of them take 29 ms.
_LARGEST_SUM = 1 << 24
# Of larger ones, such as memory maps, even that would: 1 GiB takes 0.2 s.
_LARGEST_ADDED = 1 << 30
# Words that are added up, so far apart that they are of different samples. A prime number: samples
# that change places are not likely to be in one sum.
_ADDED = 13
# Means and deviations fit; a whitening matrix is compared as one object.
_LARGEST_TENSOR = 64
_PLAIN = (bool, int, complex, str, bytes, enum.Enum, type, type(None))


class Marks:
    """Attributes of objects, and their values at the time."""

    def __init__(self) -> None:
        self._dataset: Any = None
        # By owner, name and what is looked at; parts of one data set have its marks in common.
        self._seen: dict[tuple[int, str, Callable[[Any], Any]], tuple[Any, Any]] = {}

    def of(self, dataset: Any) -> Marks:
        """The marks of that data set."""
        self._dataset = dataset
        return self

    def data(self, owner: Any, *names: str) -> Marks:
        """Marks attributes that hold samples."""
        return self._add(owner, names, _seen)

    def transforms(self, owner: Any, *names: str) -> Marks:
        """Marks attributes that are called."""
        return self._add(owner, names, frozen)

    def all_of(self, other: Marks) -> Marks:
        """Adds all marks of the other one."""
        for key, seen in other._seen.items():
            self._seen.setdefault(key, seen)
        return self

    def change(self, dataset: Any) -> str | None:
        """The first attribute that has changed, in plain words."""
        if dataset is not self._dataset:
            return "it is a different data set"
        for (_, name, look), (owner, before) in self._seen.items():
            now = look(getattr(owner, name, None))
            if not _equal(now, before):
                return f"`{name}` of the {type(owner).__name__} was changed"
        return None

    def _add(self, owner: Any, names: tuple[str, ...], look: Callable[[Any], Any]) -> Marks:
        for name in names:
            seen = look(getattr(owner, name, None))
            # A list is compared with a copy of what it was.
            copy = list(seen) if isinstance(seen, list) else seen
            self._seen[id(owner), name, look] = owner, copy
        return self


class _Same:
    """Equal only to itself. It keeps the object alive, since its address could otherwise be
    reused."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def frozen(value: Any, depth: int = 0) -> Any:
    """A value that is equal for two transforms that do the same, as far as that is known.

    Transforms of libraries are compared by what they hold; functions and the user's own classes by
    identity, with the transforms inside them.
    """
    if isinstance(value, _PLAIN):
        return type(value), value
    if isinstance(value, float):
        return float, value.hex()
    if depth > _DEPTH:
        return _Same(value)
    if isinstance(value, (list, tuple)):
        return type(value), tuple(frozen(item, depth + 1) for item in value)
    if isinstance(value, dict):
        return dict, tuple((key, frozen(item, depth + 1)) for key, item in value.items())
    if isinstance(value, (set, frozenset)):
        return type(value), frozenset(frozen(item, depth + 1) for item in value)
    if isinstance(value, functools.partial):
        parts = [value.func, value.args, value.keywords]
        return functools.partial, frozen(parts, depth + 1)
    if isinstance(value, types.MethodType):
        # Each access creates a new bound method.
        return _Same(value.__func__), _Same(value.__self__)
    if hasattr(value, "data_ptr"):
        return _frozen_tensor(value)
    attributes = getattr(value, "__dict__", None)
    if attributes is None:
        return _Same(value)
    if type(value).__module__.partition(".")[0] in _LIBRARIES:
        return type(value), frozen(attributes, depth + 1)
    inside = {name: attributes[name] for name in _INSIDE if name in attributes}
    return _Same(value), frozen(inside, depth + 1)


def _frozen_tensor(value: Any) -> Any:
    if value.numel() > _LARGEST_TENSOR or value.device.type != "cpu":
        return _seen(value)
    return type(value), str(value.dtype), repr(value.tolist())


def _seen(value: Any) -> Any:
    """A list as it is, the version of a tensor, or a checksum of an array."""
    if isinstance(value, list):
        return value
    if isinstance(value, _PLAIN + (float, range)):
        return value
    if hasattr(value, "data_ptr"):
        # PyTorch counts what is written to a tensor.
        return _Same(value), value._version
    if hasattr(value, "tobytes") and getattr(value, "nbytes", _LARGEST_SUM) < _LARGEST_SUM:
        return _Same(value), zlib.crc32(value.tobytes())
    if hasattr(value, "tobytes") and hasattr(value, "strides"):
        return _Same(value), _sums(value)
    return _Same(value), len(value) if hasattr(value, "__len__") else None


def _sums(value: Any) -> Any:
    """A checksum of a large array of NumPy's, at little more than the cost of reading it. It tells
    changes apart unless they cancel out."""
    import numpy

    array = numpy.asarray(value)
    # In the order in which it is stored, which CIFAR-10's images are not in.
    stored = array.transpose(sorted(range(array.ndim), key=lambda axis: -array.strides[axis]))
    is_small = array.nbytes <= _LARGEST_ADDED
    if array.dtype.hasobject or not stored.flags.c_contiguous or not is_small:
        return array.shape
    content = stored.reshape(-1).view(numpy.uint8)
    n = content.size // (8 * _ADDED) * (8 * _ADDED)
    sums = content[:n].view(numpy.uint64).reshape(_ADDED, -1).sum(0)
    return array.shape, zlib.crc32(sums.tobytes()), zlib.crc32(content[n:].tobytes())


def _equal(now: Any, before: Any) -> bool:
    try:
        return bool(now == before)
    except Exception:
        # Comparisons of arrays have no single truth value.
        return False
