"""From torchvision's transforms to a recipe.

`translate` walks a list of transforms from the front and turns each into ops of a recipe for as
long as there is one that gives the same; what remains is left to Python, in its original order.
Reading order: `Translation` is the result, `translate` the walk; `_transform_ops` has the table
of classes, `_transform_parameters` what is known of a sample on the way.

Nothing here reads a pixel or draws a number, and torch and torchvision are not imported:
transforms are known by the names of their classes. A subclass may do anything, so it is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from ._transform_ops import TRANSLATORS
from ._transform_parameters import (
    POSITIVE,
    Op,
    Sample,
    Size,
    Stays,
    Step,
    Translator,
    make_op,
    numbers,
    probability,
    within,
)


@dataclass(frozen=True)
class Translation:
    """What became of a transform: a recipe for bothends, and what remains for Python.

    Attributes:
        recipe: a recipe as a JSON object; it begins with `decode`.
        output: "u8" or "f32", what the recipe's end delivers.
        layout: "nchw" once a transform has made a tensor, else "nhwc".
        rest: what remains for Python, or None. It takes what the transform would have at that
            point, of one sample, and returns what the whole transform would have returned. It
            may write into what it is given.
        rest_input: what `rest` takes: "pil" (a PIL image), "tensor" (channels × rows × columns,
            of type `output`), or "none" where nothing remains.
        has_fixed_size: whether the recipe's samples all have one size. If not, nothing can be
            prepared by bothends: the recipe only decodes, and `rest` is everything.
        words: a line for each transform: what it became, or why it stays in Python.
        warning: where something remains, one text that names the first transform that does and
            what that costs; else None.
    """

    recipe: dict[str, Any]
    output: str
    layout: str
    rest: Callable[[Any], Any] | None
    rest_input: str
    has_fixed_size: bool
    words: list[str]
    warning: str | None


def translate(transform: Any, *, image_size: Size | None = None) -> Translation:
    """Translates a torchvision transform, v1 or v2, as far as recipes reach.

    Args:
        transform: what a data set of RGB images calls on each image; None for nothing.
        image_size: rows and columns of the images, where all have the same.
    """
    transforms = list(_flat([] if transform is None else [transform]))
    steps, obstacle = _steps(transforms, Sample(size=image_size))
    taken = [Step(sample=Sample(size=image_size)), *steps]
    ends = [n for n, step in enumerate(taken) if _may_end(step.sample, n == len(transforms))]
    n_taken = ends[-1] if ends else 0
    end = taken[n_taken].sample
    rest = transforms[n_taken:]
    if n_taken < len(steps) or not (ends or rest):
        obstacle = _size_obstacle(rest, len(steps) - n_taken, obstacle)
    return Translation(
        recipe=_recipe(steps[:n_taken], end),
        output="f32" if end.is_float else "u8",
        layout="nhwc" if end.values == "pil" else "nchw",
        rest=_Rest(tuple(rest), end.is_image) if rest else None,
        rest_input=("pil" if end.values == "pil" else "tensor") if rest else "none",
        has_fixed_size=bool(ends),
        words=_words(transforms, steps[:n_taken], obstacle),
        warning=_warning(transforms, n_taken, obstacle),
    )


# ---- the walk -------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Rest:
    """What remains for Python, one transform after the other."""

    transforms: tuple[Callable[[Any], Any], ...]
    as_image: bool

    def __call__(self, sample: Any) -> Any:
        if self.as_image:
            from torchvision import tv_tensors  # type: ignore[import-untyped]

            sample = tv_tensors.Image(sample)
        for transform in self.transforms:
            sample = transform(sample)
        return sample


_SEQUENTIAL = ("torch.nn.modules.container", "Sequential")

# A recipe holds 256 ops, and decode and those at the feed are among them.
_MOST_OPS = 240
_DEEPEST = 8


def _flat(transforms: Iterable[Any]) -> Iterator[Any]:
    """The transforms one by one, out of whatever only holds them one behind the other."""
    for transform in transforms:
        cls = type(transform)
        if cls.__qualname__ == "Compose" and _is_torchvision(transform):
            yield from _flat(transform.transforms)
        elif (cls.__module__, cls.__qualname__) == _SEQUENTIAL and _is_as_made(transform):
            yield from _flat(transform)
        else:
            yield transform


def _steps(transforms: list[Any], sample: Sample) -> tuple[list[Step], str]:
    """Steps up to the first transform that stays, and why it does."""
    steps: list[Step] = []
    n_ops = 0
    for transform in transforms:
        try:
            step = _step(transform, sample)
            n_ops += _count(step.ops)
            if n_ops > _MOST_OPS:
                raise Stays("a recipe cannot hold that many ops")
        except Stays as why:
            return steps, str(why)
        steps.append(step)
        sample = step.sample
    return steps, ""


def _step(transform: Any, sample: Sample) -> Step:
    """What one transform becomes behind all those that gave `sample`."""
    translator = _KNOWN.get(type(transform).__qualname__)
    if translator is None or not _is_torchvision(transform):
        raise Stays(_why_unknown(transform))
    if sample.n_views > 1:
        raise Stays("it comes after a transform that makes several images of one")
    try:
        return translator(transform, sample)
    except (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError) as error:
        # Somebody has changed it after torchvision checked it, or it is of another version.
        raise Stays(f"its parameters are not understood ({error})") from error


def _may_end(sample: Sample, is_last: bool) -> bool:
    """Whether a recipe may end here: a batch is a block of equal samples, and what goes on in
    Python has one image."""
    return sample.size is not None and (sample.n_views == 1 or is_last)


def _count(ops: list[Op]) -> int:
    return sum(1 + _count(op.get("transforms", [])) for op in ops)


def _depth(ops: list[Op]) -> int:
    return max((1 + _depth(op.get("transforms", [])) for op in ops), default=0)


def _recipe(steps: list[Step], end: Sample) -> dict[str, Any]:
    feed = [op for step in steps for op in step.feed]
    if end.is_float:
        feed.append(make_op("to_dtype", dtype="f32", scale=True))
    if end.values != "pil":
        feed.append(make_op("layout", layout="nchw"))
    # Erasing comes last, whatever came between; all others commute with it.
    feed.sort(key=lambda op: op["op"] == "random_erasing")
    ops = [make_op("decode"), *(op for step in steps for op in step.ops), *feed]
    return {"version": 1, "name": "torchvision", "numerics": "exact", "ops": ops}


# ---- which transform it is ------------------------------------------------------------------


def _in_torchvision(cls: type) -> bool:
    return cls.__module__.split(".")[:2] == ["torchvision", "transforms"]


def _is_torchvision(transform: Any) -> bool:
    """Whether it is of torchvision's own class, v1 or v2, no subclass, and as it was made."""
    return _in_torchvision(type(transform)) and _is_as_made(transform)


def _is_as_made(transform: Any) -> bool:
    """Whether nobody has put hooks or methods on it."""
    own = vars(transform) if hasattr(transform, "__dict__") else {}
    has_hooks = any(own.get(name) for name in ("_forward_hooks", "_forward_pre_hooks"))
    return not has_hooks and not any(callable(getattr(type(transform), n, None)) for n in own)


def _name(transform: Any) -> str:
    """What people call it."""
    is_function = callable(transform) and not isinstance(transform, type)
    name = getattr(transform, "__name__", None) if is_function else None
    return name if isinstance(name, str) else type(transform).__qualname__


def _why_unknown(transform: Any) -> str:
    if _in_torchvision(type(transform)):
        if type(transform).__qualname__ in _KNOWN:
            return "it has hooks or methods of its own"
        return "bothends has no op for it"
    for base in type(transform).__mro__[1:]:
        if _in_torchvision(base) and base.__qualname__ in _KNOWN:
            return f"it is a subclass of torchvision's {base.__qualname__} and may do anything"
    return "it is not one of torchvision's transforms"


# ---- transforms of transforms ---------------------------------------------------------------


def _random_apply(t: Any, sample: Sample) -> Step:
    p = probability(t)
    ops, done, note = _inside(t.transforms, sample)
    if not ops or p == 0:
        return Step(sample)
    after = done if p == 1 else _either(sample, done)
    return _nested(make_op("random_apply", p=p, transforms=ops), after, note)


def _random_choice(t: Any, sample: Sample) -> Step:
    transforms = list(t.transforms)
    weights = [1.0] * len(transforms) if t.p is None else numbers(t.p)
    if len(weights) != len(transforms):
        raise Stays("it has not one p for each transform")
    # What has no weight is never done.
    pairs = [pair for pair in zip(transforms, weights, strict=True) if pair[1] != 0]
    total = sum(within("p", p, 0, 1e300) for _, p in pairs)
    within("the sum of p", total, POSITIVE, 1e300)
    p = [weight for _, weight in pairs]
    branches = [_inside([transform], sample) for transform, _ in pairs]
    op = make_op(
        "random_choice",
        transforms=[_as_one(ops) for ops, _, _ in branches],
        p=None if len(set(p)) == 1 else p,
    )
    return _nested(op, reduce(_either, (done for _, done, _ in branches)), _first(branches))


def _random_order(t: Any, sample: Sample) -> Step:
    branches = []
    for transform in t.transforms:
        branches.append(_inside([transform], sample))
        sample = _either(sample, branches[-1][1])
    ops = [_as_one(ops) for ops, _, _ in branches if ops]
    if not ops:
        return Step(sample)
    return _nested(make_op("random_order", transforms=ops), sample, _first(branches))


_Branch = tuple[list[Op], Sample, str]


def _inside(transforms: Iterable[Any], sample: Sample) -> _Branch:
    """Ops of transforms inside another, the sample behind them, and what is to be said."""
    ops: list[Op] = []
    note, values = "", sample.values
    for transform in _flat(transforms):
        try:
            step = _step(transform, sample)
        except Stays as why:
            raise Stays(f"{_name(transform)} inside it: {why}") from why
        sample = step.sample
        if step.feed or sample.values != values or sample.n_views > 1:
            raise Stays(f"{_name(transform)} inside it would have to stand in the list itself")
        ops += step.ops
        note = note or step.note
    return ops, sample, note


def _nested(op: Op, after: Sample, note: str) -> Step:
    if _depth([op]) > _DEEPEST:
        raise Stays("more transforms are inside each other than a recipe can have")
    return Step(after, [op], note=note)


def _as_one(ops: list[Op]) -> Op:
    """One op that does all of these."""
    if not ops:
        return make_op("random_horizontal_flip", p=0.0)
    return ops[0] if len(ops) == 1 else make_op("random_apply", p=1.0, transforms=ops)


def _either(one: Sample, other: Sample) -> Sample:
    """What is known where chance decides between two."""
    if one.channels != other.channels:
        raise Stays("the channels of a sample would depend on chance")
    if one.size == other.size:
        return one
    if one.size is not None and other.size is not None:
        raise Stays("the size of a sample would depend on chance")
    return replace(one, size=None)


def _first(branches: list[_Branch]) -> str:
    return next((note for _, _, note in branches if note), "")


# Compose and Sequential are only lists (`_flat`).
_KNOWN: dict[str, Translator] = {
    **TRANSLATORS,
    "RandomApply": _random_apply,
    "RandomChoice": _random_choice,
    "RandomOrder": _random_order,
}


# ---- words ----------------------------------------------------------------------------------


def _words(transforms: list[Any], taken: list[Step], obstacle: str) -> list[str]:
    words = [_became(*pair) for pair in zip(transforms, taken, strict=False)]
    rest = transforms[len(taken) :]
    if rest:
        words.append(f"{_name(rest[0])} stays in Python: {obstacle}")
    after = (f"{_name(t)} stays in Python: it comes after {_name(rest[0])}" for t in rest[1:])
    return [*words, *after]


def _became(transform: Any, step: Step) -> str:
    ops = ", ".join(op["op"] for op in step.ops + step.feed)
    note = f" ({step.note})" if ops and step.note else ""
    return f"{_name(transform)} → {ops or step.note or 'nothing'}{note}"


def _size_obstacle(rest: list[Any], n_known: int, obstacle: str) -> str:
    """Why transforms stay that have ops: where they end, samples are no block."""
    remedy = "a crop, or Resize((rows, columns)), before that lets bothends prepare the samples"
    if n_known < len(rest):
        name = _name(rest[n_known])
        behind = f"before {name}, which stays in Python ({obstacle}),"
    else:
        behind = "at the end"
    return f"{behind} samples would not all be one image of one size; {remedy}"


def _warning(transforms: list[Any], n_taken: int, obstacle: str) -> str | None:
    rest = transforms[n_taken:]
    if not rest:
        return obstacle or None
    after = " and all after it stay" if len(rest) > 1 else " stays"
    before = f"What comes before ({n_taken} of {len(transforms)}) is" if n_taken else "Nothing is"
    return (
        f"{_name(rest[0])}{after} in Python: {obstacle}. Each sample waits there for the "
        f"interpreter, one at a time in a process. {before} prepared by bothends."
    )
