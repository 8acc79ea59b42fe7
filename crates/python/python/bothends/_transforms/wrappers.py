"""Classes in training scripts whose code is known: those that only hold transforms, those that make
several images of one, and a few that call Pillow.

Such classes are copied from script to script, so their names and modules say nothing. Instead, the
code that would run is compared. Each shape below is a small function, compiled by the same
interpreter. A class matches only if its method has the same instructions, reads its attributes in
the same places, and finds the same modules under the same names. Anything else is left alone, since
it could do anything.

Reading order: `shape_of` and what it returns, then the shapes, then `_same`, the comparison.
Nothing here imports torch, torchvision or Pillow.
"""

from __future__ import annotations

import builtins
import dis
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from math import ceil
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

from .parameters import POSITIVE, Op, Sample, Stays, Step, bounds, make_op, within

if TYPE_CHECKING:
    import random

    from PIL import ImageFilter, ImageOps


@dataclass(frozen=True)
class Holds:
    """A class that passes an image on to one transform, and nothing else.

    Attributes:
        transform: what it holds.
        converts: whether it first converts the image to RGB.
    """

    transform: Any
    converts: bool = False


@dataclass(frozen=True)
class Views:
    """A class that makes a list or a tuple of images of one, applying each transform a given number
    of times."""

    views: list[tuple[Any, int]]
    is_list: bool


@dataclass(frozen=True)
class Sometimes:
    """A class that applies a transform with probability p."""

    p: float
    transform: Any


@dataclass(frozen=True)
class PillowBlur:
    """A class that blurs a PIL image with probability p by a radius from a range."""

    p: float
    radius: tuple[float, float]


@dataclass(frozen=True)
class PillowSolarize:
    """A class that solarizes a PIL image with probability p."""

    p: float


@dataclass(frozen=True)
class ToRGB:
    """Converts a PIL image to RGB, as functions and methods of this shape do."""

    def __call__(self, image: Any) -> Any:
        return image.convert("RGB")


Shape = Holds | Views | Sometimes | PillowBlur | PillowSolarize | ToRGB


def shape_of(transform: Any) -> Shape | None:
    """What a function, or a transform of the user's own class, is known to do."""
    if type(transform) is ToRGB:
        return transform
    if isinstance(transform, FunctionType):
        is_bare = transform.__closure__ is None and not transform.__dict__
        return ToRGB() if is_bare and _matches(transform, _to_rgb) is not None else None
    method = _method(transform)
    if method is None:
        return None
    for pattern, make in _SHAPES:
        names = _matches(method, pattern)
        if names is not None:
            try:
                values = {ours: _own(transform, theirs) for ours, theirs in names.items()}
                return make(values)
            except (AttributeError, IndexError, TypeError, ValueError):
                return None
    return None


def _method(transform: Any) -> FunctionType | None:
    """The function that runs when an object is called; None if that cannot be determined."""
    cls = type(transform)
    if any("__getattribute__" in vars(base) for base in cls.__mro__[:-1]):
        return None
    method = getattr(cls, "__call__", None)
    module = sys.modules.get("torch.nn")
    if module is not None and method is module.Module.__call__:
        method = getattr(cls, "forward", None)
    return method if isinstance(method, FunctionType) and not method.__closure__ else None


def _own(transform: Any, name: str) -> Any:
    """An attribute of the object itself that its class does not hide.

    Raises:
        AttributeError: it is computed, or its class's.
    """
    of_classes = (vars(cls)[name] for cls in type(transform).__mro__ if name in vars(cls))
    if any(hasattr(type(value), "__get__") for value in of_classes):
        raise AttributeError(name)
    own = vars(transform)
    places = (own, own.get("_modules", {}))  # PyTorch keeps modules in a dictionary of their own
    for place in places:
        if name in place:
            return place[name]
    raise AttributeError(name)


# ---- shapes ---------------------------------------------------------------------------------

# Attributes of `self` in the functions below stand for whatever names a class uses.
_ATTRIBUTES = {"a", "b", "c", "p", "n", "low", "high", "range"}


def _holds(self: Any, image: Any) -> Any:
    return self.a(image)


def _holds_and_names(self: Any, image: Any) -> Any:
    result = self.a(image)
    return result


def _holds_and_renames(self: Any, image: Any) -> Any:
    image = self.a(image)
    return image


def _holds_and_converts(self: Any, image: Any) -> Any:
    return self.a(image.convert("RGB"))


def _pair(self: Any, image: Any) -> Any:
    return [self.a(image), self.b(image)]


def _pair_of_one(self: Any, image: Any) -> Any:
    return [self.a(image), self.a(image)]


def _named_pair(self: Any, image: Any) -> Any:
    first = self.a(image)
    second = self.b(image)
    return [first, second]


def _named_pair_of_one(self: Any, image: Any) -> Any:
    first = self.a(image)
    second = self.a(image)
    return [first, second]


def _tuple(self: Any, image: Any) -> Any:
    return self.a(image), self.b(image)


def _tuple_of_one(self: Any, image: Any) -> Any:
    return self.a(image), self.a(image)


def _named_tuple(self: Any, image: Any) -> Any:
    first = self.a(image)
    second = self.b(image)
    return first, second


def _named_tuple_of_one(self: Any, image: Any) -> Any:
    first = self.a(image)
    second = self.a(image)
    return first, second


def _many(self: Any, image: Any) -> Any:
    return [self.a(image) for _ in range(self.n)]


def _two_and_many(self: Any, image: Any) -> Any:
    views = []
    views.append(self.a(image))
    views.append(self.b(image))
    for _ in range(self.n):
        views.append(self.c(image))
    return views


def _sometimes(self: Any, image: Any) -> Any:
    if random.random() < self.p:
        return self.a(image)
    else:
        return image


def _solarizes_sometimes(self: Any, image: Any) -> Any:
    if random.random() < self.p:
        return ImageOps.solarize(image)
    else:
        return image


def _solarizes(self: Any, image: Any) -> Any:
    return ImageOps.solarize(image)


def _blurs_sometimes(self: Any, image: Any) -> Any:
    is_done = random.random() <= self.p
    if not is_done:
        return image
    return image.filter(ImageFilter.GaussianBlur(radius=random.uniform(self.low, self.high)))


def _blurs_sometimes_and_names(self: Any, image: Any) -> Any:
    is_done = random.random() <= self.p
    if not is_done:
        return image
    image = image.filter(ImageFilter.GaussianBlur(radius=random.uniform(self.low, self.high)))
    return image


def _blurs(self: Any, image: Any) -> Any:
    radius = random.uniform(self.range[0], self.range[1])
    image = image.filter(ImageFilter.GaussianBlur(radius=radius))
    return image


def _to_rgb(image: Any) -> Any:
    return image.convert("RGB")


def _listed(*views: tuple[Any, Any]) -> Views:
    if not all(type(n) is int and n >= 0 for _, n in views):
        raise ValueError("not so many")
    return Views([(transform, n) for transform, n in views if n > 0], is_list=True)


def _grouped(*views: tuple[Any, int]) -> Views:
    return Views(list(views), is_list=False)


def _pair_of_numbers(value: Any) -> tuple[float, float]:
    if type(value) not in (list, tuple):
        raise TypeError("its parts are not its own attributes")
    return value[0], value[1]


_Make = Callable[[dict[str, Any]], Shape]
_SHAPES: list[tuple[Callable[..., Any], _Make]] = [
    (_holds, lambda v: Holds(v["a"])),
    (_holds_and_names, lambda v: Holds(v["a"])),
    (_holds_and_renames, lambda v: Holds(v["a"])),
    (_holds_and_converts, lambda v: Holds(v["a"], converts=True)),
    (_pair, lambda v: _listed((v["a"], 1), (v["b"], 1))),
    (_named_pair, lambda v: _listed((v["a"], 1), (v["b"], 1))),
    (_pair_of_one, lambda v: _listed((v["a"], 2))),
    (_named_pair_of_one, lambda v: _listed((v["a"], 2))),
    (_tuple, lambda v: _grouped((v["a"], 1), (v["b"], 1))),
    (_named_tuple, lambda v: _grouped((v["a"], 1), (v["b"], 1))),
    (_tuple_of_one, lambda v: _grouped((v["a"], 2))),
    (_named_tuple_of_one, lambda v: _grouped((v["a"], 2))),
    (_many, lambda v: _listed((v["a"], v["n"]))),
    (_two_and_many, lambda v: _listed((v["a"], 1), (v["b"], 1), (v["c"], v["n"]))),
    (_sometimes, lambda v: Sometimes(v["p"], v["a"])),
    (_solarizes_sometimes, lambda v: PillowSolarize(v["p"])),
    (_solarizes, lambda v: PillowSolarize(1.0)),
    (_blurs_sometimes, lambda v: PillowBlur(v["p"], (v["low"], v["high"]))),
    (_blurs_sometimes_and_names, lambda v: PillowBlur(v["p"], (v["low"], v["high"]))),
    (_blurs, lambda v: PillowBlur(1.0, _pair_of_numbers(v["range"]))),
]

# ---- what those that call Pillow become -----------------------------------------------------

_OF_PIL = "it takes PIL images"
_BEFORE_TENSORS = "put it before the conversion to a tensor"
_NO_BOXES = "a true Gaussian, on average less than 1 of 255 from Pillow's three box blurs"
# In standard deviations: beyond this, weights vanish in a byte.
_REACH = 5.5


def pillow_step(shape: PillowBlur | PillowSolarize | ToRGB, sample: Sample) -> Step:
    """Ops for a class or function that calls Pillow."""
    if sample.values != "pil":
        raise Stays(_OF_PIL, _BEFORE_TENSORS)
    if isinstance(shape, ToRGB):
        if sample.channels != 3:
            raise Stays(f"it makes 3 channels of {sample.channels}")
        return Step(sample)
    p = within("p", shape.p, 0, 1)
    if isinstance(shape, PillowSolarize):
        return Step(sample, [make_op("random_solarize", threshold=128, p=p)])
    least, most = bounds("radius", shape.radius, POSITIVE, 20)
    kernel = 2 * ceil(_REACH * most) + 1
    op: Op = make_op("gaussian_blur", kernel_size=[kernel, kernel], sigma=[least, most])
    ops = [op] if p == 1 else [make_op("random_apply", p=p, transforms=[op])]
    return Step(sample, ops, note=_NO_BOXES)


# ---- the comparison -------------------------------------------------------------------------

# What a name from the outer scope must be: a module, or a Python builtin of that name.
_MODULES = {"random": "random", "ImageFilter": "PIL.ImageFilter", "ImageOps": "PIL.ImageOps"}

# Instructions that do nothing, or only carry what others show: cells are in the order of their
# names, and are compared where they are used.
_SILENT = {
    "CACHE", "EXTENDED_ARG", "LOAD_CLOSURE", "MAKE_CELL", "NOP", "PRECALL", "PUSH_NULL", "RESUME",
}  # fmt: skip

# A call of `module.function` is compiled in one of two ways, depending on whether the module is
# imported in the same source text or not (in another notebook cell).
_ALIKE = {"LOAD_METHOD": "LOAD_ATTR"}

# Generators, coroutines and variable arguments are not determined by their code alone.
_KINDS = 0x04 | 0x08 | 0x20 | 0x80 | 0x200


def _matches(function: FunctionType, pattern: Callable[..., Any]) -> dict[str, str] | None:
    """A function's names for the attributes of a pattern, if it does the same."""
    names = _Names()
    if not _same(function.__code__, pattern.__code__, names):
        return None
    if not all(_is_as_known(function, name) for name in names.outer):
        return None
    return names.attributes


class _Names:
    """Names found so far: those of a pattern, and the function's names for them."""

    def __init__(self) -> None:
        self.attributes: dict[str, str] = {}
        self.locals: dict[str, str] = {}
        self.outer: set[str] = set()

    @staticmethod
    def pair(known: dict[str, str], ours: str, theirs: str) -> bool:
        """Whether `theirs` occurs exactly where `ours` does."""
        if ours not in known and theirs in known.values():
            return False
        return known.setdefault(ours, theirs) == theirs


def _is_as_known(function: FunctionType, name: str) -> bool:
    if name in _MODULES:
        module = sys.modules.get(_MODULES[name])
        return module is not None and function.__globals__.get(name) is module
    own = getattr(builtins, name)
    return function.__globals__.get(name, own) is own


@dataclass(frozen=True)
class _Instruction:
    name: str
    kind: str
    value: Any


@cache
def _instructions(code: CodeType) -> tuple[_Instruction, ...]:
    """The instructions of a function, without anything that depends on positions of names or
    lines."""
    kept = [one for one in dis.get_instructions(code) if one.opname not in _SILENT]
    offsets = [one.offset for one in kept]
    found = []
    for one in kept:
        kind, value = _argument(one, code)
        if kind == "jump":
            value = sum(offset < value for offset in offsets)
        found.append(_Instruction(_ALIKE.get(one.opname, one.opname), kind, value))
    return tuple(found)


def _argument(one: dis.Instruction, code: CodeType) -> tuple[str, Any]:
    if one.opcode in dis.hasjrel or one.opcode in dis.hasjabs:
        return "jump", one.argval
    if one.opcode in dis.hasname:
        return ("outer" if "GLOBAL" in one.opname else "attribute"), one.argval
    if isinstance(one.argval, CodeType):
        return "code", one.argval
    texts = one.argval if isinstance(one.argval, tuple) else (one.argval,)
    known = {*code.co_varnames, *code.co_cellvars, *code.co_freevars}
    is_constant = one.opcode in dis.hasconst
    if texts and not is_constant and all(isinstance(t, str) and t in known for t in texts):
        return "local", texts
    return "value", one.argval


def _same(theirs: CodeType, ours: CodeType, names: _Names) -> bool:
    """Whether two functions do the same, apart from their names."""
    for count in ("co_argcount", "co_posonlyargcount", "co_kwonlyargcount"):
        if getattr(theirs, count) != getattr(ours, count):
            return False
    if theirs.co_flags & _KINDS != ours.co_flags & _KINDS:
        return False
    n = ours.co_argcount
    parameters = zip(ours.co_varnames[:n], theirs.co_varnames[:n], strict=True)
    if not all(names.pair(names.locals, *pair) for pair in parameters):
        return False
    pairs = (_instructions(theirs), _instructions(ours))
    if len(pairs[0]) != len(pairs[1]):
        return False
    return all(_same_step(*pair, names) for pair in zip(*pairs, strict=True))


def _same_step(theirs: _Instruction, ours: _Instruction, names: _Names) -> bool:
    if (theirs.name, theirs.kind) != (ours.name, ours.kind):
        return False
    if ours.kind == "code":
        return _same(theirs.value, ours.value, names)
    if ours.kind == "local":
        if len(theirs.value) != len(ours.value):
            return False
        pairs = zip(ours.value, theirs.value, strict=True)
        return all(names.pair(names.locals, *pair) for pair in pairs)
    if ours.kind == "attribute" and ours.value in _ATTRIBUTES:
        return names.pair(names.attributes, ours.value, theirs.value)
    if ours.kind == "outer":
        names.outer.add(ours.value)
    return type(theirs.value) is type(ours.value) and bool(theirs.value == ours.value)
