"""From the transforms of a training script to a recipe.

`translate` walks a list of transforms from the front and turns each into ops of a recipe, as long
as there are ops that give the same result. The rest is left to Python, in its original order.
Reading order: `Translation` is the result, `translate` the walk; `ops` has the table of
torchvision's classes, `timm` that of timm's, and `wrappers` the classes that scripts copy from each
other. `parameters` is what is known of a sample on the way; `words` holds the texts shown to users.

Nothing here reads a pixel or draws a number, and torch and torchvision are not imported:
library transforms are recognised by the names of their classes, those of scripts by their code. A
subclass may do anything, so it is treated as unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from .ops import TRANSLATORS
from .parameters import (
    POSITIVE,
    RESIZES,
    Op,
    Sample,
    Size,
    Stays,
    Step,
    Translator,
    exact_version,
    make_op,
    numbers,
    probability,
    within,
)
from .timm import TIMM
from .words import Outcome, name_of, no_common_size
from .wrappers import (
    Holds,
    PillowBlur,
    PillowSolarize,
    Shape,
    Sometimes,
    ToRGB,
    Views,
    pillow_step,
    shape_of,
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
        result: what one sample is to the user where nothing remains: "pil", "tensor", "image" (a
            `tv_tensors.Image`) or "numpy"; "rest" where `rest` makes it.
        views: "list" or "tuple" where one sample is several images in such a thing, else "".
        has_fixed_size: whether the recipe's samples all have one size. If not, nothing can be
            prepared by bothends: the recipe only decodes, and `rest` is everything.
        words: a line for each transform: what it became, or why it stays in Python.
        remedies: a line for each transform that stays and need not, if something is changed:
            "Name: what to do".
        warning: where something remains, one text that names the first transform that does and
            what that costs; else None.
    """

    recipe: dict[str, Any]
    output: str
    layout: str
    rest: Callable[[Any], Any] | None
    rest_input: str
    result: str
    views: str
    has_fixed_size: bool
    words: list[str]
    remedies: list[str]
    warning: str | None


def translate(transform: Any, *, image_size: Size | None = None) -> Translation:
    """Translates a transform of torchvision, timm or a script, as far as recipes reach.

    Args:
        transform: what a data set of RGB images calls on each image; None for nothing. A list
            or a tuple is its transforms in order, as timm's `separate=True` gives.
        image_size: rows and columns of the images, where all have the same.
    """
    given = list(transform) if isinstance(transform, (list, tuple)) else [transform]
    transforms = list(_flat([] if transform is None else given))
    start = Sample(size=image_size)
    walk = _Walk(transforms, start, *_steps(transforms, start))
    end = walk.sample(walk.n_taken)
    outcome = walk.outcome()
    rest = outcome.rest
    return Translation(
        recipe=_recipe(start, outcome.taken),
        output="f32" if end.is_float else "u8",
        layout="nhwc" if end.values == "pil" else "nchw",
        rest=_Rest(tuple(rest), end.is_image) if rest else None,
        rest_input=("pil" if end.values == "pil" else "tensor") if rest else "none",
        result="rest" if rest else _result(end),
        views=("list" if end.is_list else "tuple") if end.n_views > 1 else "",
        has_fixed_size=bool(walk.ends),
        words=outcome.words(),
        remedies=outcome.remedies(),
        warning=outcome.warning(),
    )


# ---- the walk -------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Rest:
    """The rest, which Python runs one transform after the other."""

    transforms: tuple[Callable[[Any], Any], ...]
    as_image: bool

    def __call__(self, sample: Any) -> Any:
        if self.as_image:
            from torchvision import tv_tensors  # type: ignore[import-untyped]

            sample = tv_tensors.Image(sample)
        for transform in self.transforms:
            sample = transform(sample)
        return sample


def _result(end: Sample) -> str:
    if end.values in ("pil", "numpy"):
        return end.values
    return "image" if end.is_image else "tensor"


_SEQUENTIAL = ("torch.nn.modules.container", "Sequential")

# A recipe holds 256 ops, including decode and those at the feed.
_MOST_OPS = 240
_DEEPEST = 8


def _flat(transforms: Iterable[Any]) -> Iterator[Any]:
    """The individual transforms, unwrapped from anything that only applies them in order."""
    for transform in transforms:
        cls = type(transform)
        if not _is_as_made(transform):
            yield transform
        elif _is_compose(transform):
            yield from _flat(transform.transforms)
        elif (cls.__module__, cls.__qualname__) == _SEQUENTIAL:
            yield from _flat(transform)
        elif isinstance(shape := _own_shape(transform), Holds):
            yield from _flat([ToRGB()] if shape.converts else [])
            yield from _flat([shape.transform])
        else:
            yield transform


def _steps(transforms: list[Any], sample: Sample) -> tuple[list[Step], Stays | None]:
    """Steps up to the first transform that stays in Python, and why it does."""
    steps: list[Step] = []
    n_ops = 0
    for transform in transforms:
        try:
            step = _step(transform, sample)
            n_ops += _count(step.ops)
            if n_ops > _MOST_OPS:
                raise Stays("a recipe cannot hold that many ops")
        except Stays as why:
            return steps, why
        steps.append(step)
        sample = step.sample
    return steps, None


def _step(transform: Any, sample: Sample) -> Step:
    """What one transform becomes after those that gave `sample`."""
    translator = _translator(transform)
    if translator is None:
        raise _unknown(transform)
    if sample.n_views > 1:
        raise Stays("it comes after a transform that makes several images of one")
    if sample.values == "numpy":
        raise Stays("it comes after a NumPy array is made")
    try:
        return translator(transform, sample)
    except (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError) as error:
        # It was changed after its own check, or is from a different version.
        raise Stays(f"its parameters are not understood ({error})") from error


def _may_end(sample: Sample, is_last: bool) -> bool:
    """Whether a recipe may end here: a batch is a block of samples of equal size, and whatever
    continues in Python takes one image."""
    return sample.size is not None and (_is_one_image(sample) or is_last)


def _is_one_image(sample: Sample) -> bool:
    return sample.n_views == 1 and sample.values != "numpy"


def _inner(op: Op) -> list[Op]:
    return [*op.get("transforms", []), *(o for view in op.get("views", []) for o in view["ops"])]


def _count(ops: list[Op]) -> int:
    return sum(1 + _count(_inner(op)) for op in ops)


def _depth(ops: list[Op]) -> int:
    return max((1 + _depth(_inner(op)) for op in ops), default=0)


def _resizes_pil(start: Sample, steps: list[Step]) -> bool:
    """Whether a PIL image is resized anywhere: tensors are resized by torch, rows first."""
    befores = [start, *(step.sample for step in steps)]
    pairs = zip(befores, steps, strict=False)
    return any(before.values == "pil" and _resizes(step.ops) for before, step in pairs)


def _resizes(ops: list[Op]) -> bool:
    return any(op["op"] in RESIZES or _resizes(_inner(op)) for op in ops)


def _recipe(start: Sample, steps: list[Step]) -> dict[str, Any]:
    end = steps[-1].sample if steps else start
    feed = [op for step in steps for op in step.feed]
    if end.is_float:
        feed.append(make_op("to_dtype", dtype="f32", scale=True))
    if end.values != "pil":
        feed.append(make_op("layout", layout="nchw"))
    # Erasing comes last, whatever comes between; all other ops commute with it.
    feed.sort(key=lambda op: op["op"] == "random_erasing")
    ops = [make_op("decode"), *(op for step in steps for op in step.ops), *feed]
    version = exact_version() if _resizes_pil(start, steps) else 1
    return {"version": version, "name": "torchvision", "numerics": "exact", "ops": ops}


# ---- what remains ---------------------------------------------------------------------------


@dataclass(frozen=True)
class _Walk:
    """A list of transforms with a step for each up to the first that stays, and why it does."""

    transforms: list[Any]
    start: Sample
    steps: list[Step]
    obstacle: Stays | None

    def sample(self, n: int) -> Sample:
        """The sample after that many transforms."""
        return self.steps[n - 1].sample if n else self.start

    @property
    def ends(self) -> list[int]:
        """The numbers of transforms after which a recipe may end."""
        n = len(self.transforms)
        return [k for k in range(len(self.steps) + 1) if _may_end(self.sample(k), k == n)]

    @property
    def n_taken(self) -> int:
        return self.ends[-1] if self.ends else 0

    def outcome(self) -> Outcome:
        rest = self.transforms[self.n_taken :]
        n_steps = len(self.steps)
        n_lost = n_steps - self.n_taken
        by_itself, cut = _behind(self.transforms[n_steps + 1 :], self.sample(n_steps))
        first = self.obstacle
        later: list[Stays | None] = []
        if n_lost or not (self.ends or rest):
            first = no_common_size(rest, n_lost, self.obstacle, cut)
            later = [*([None] * (n_lost - 1)), self.obstacle]
        elif first is not None and not self.ends and cut and not first.remedy:
            first = Stays(str(first), f"put it after {cut}, which bothends then does")
        later = [*later, *by_itself][: max(0, len(rest) - 1)]
        return Outcome(self.transforms, self.steps[: self.n_taken], first, later)


def _behind(transforms: list[Any], sample: Sample) -> tuple[list[Stays | None], str]:
    """Why each transform would stay if those before it that stay were absent, and the name of the
    first that would give samples one size, if they do not have one yet."""
    reasons: list[Stays | None] = []
    cut = ""
    for transform in transforms:
        try:
            step = _step(transform, sample)
        except Stays as why:
            reasons.append(why)
            continue
        reasons.append(None)
        if sample.size is None and step.sample.size is not None:
            cut = cut or name_of(transform)
        sample = step.sample
    return reasons, cut


# ---- which transform it is ------------------------------------------------------------------


def _translator(transform: Any) -> Translator | None:
    if not _is_as_made(transform):
        return None
    cls = _plain_class(type(transform))
    if _in_torchvision(cls):
        return _KNOWN.get(cls.__qualname__)
    place = (cls.__module__, cls.__qualname__)
    if place in _OTHERS:
        return _OTHERS[place]
    shape = shape_of(transform)
    return None if shape is None else lambda _, sample: _of_shape(shape, sample)


def _in_torchvision(cls: type) -> bool:
    return cls.__module__.split(".")[:2] == ["torchvision", "transforms"]


def _has_translator(cls: type) -> bool:
    if _in_torchvision(cls):
        return cls.__qualname__ in _KNOWN
    return (cls.__module__, cls.__qualname__) in _OTHERS


# Attributes that a class may define and still do what its base class does.
_HARMLESS = {
    "__annotate__",
    "__annotate_func__",
    "__annotations__",
    "__annotations_cache__",
    "__doc__",
    "__firstlineno__",
    "__init__",
    "__module__",
    "__qualname__",
    "__repr__",
    "__static_attributes__",
    "extra_repr",
}


def _plain_class(cls: type) -> type:
    """The class that defines what a transform does, rather than one that only gives it
    parameters."""
    while not _in_torchvision(cls) and len(cls.__bases__) == 1:
        base = cls.__bases__[0]
        own = vars(cls).keys() - _HARMLESS
        if base is object or any(getattr(base, n, own) is not getattr(cls, n) for n in own):
            break
        cls = base
    return cls


def _is_as_made(transform: Any) -> bool:
    """Whether no hooks or methods have been added to it."""
    own = vars(transform) if hasattr(transform, "__dict__") else {}
    has_hooks = any(own.get(name) for name in ("_forward_hooks", "_forward_pre_hooks"))
    return not has_hooks and not any(callable(getattr(type(transform), n, None)) for n in own)


def _own_shape(transform: Any) -> Shape | None:
    """The shape of a transform that belongs to no library."""
    cls = _plain_class(type(transform))
    is_librarys = _in_torchvision(cls) or _has_translator(cls)
    return None if is_librarys else shape_of(transform)


def _unknown(transform: Any) -> Stays:
    """Why a transform has no translator."""
    cls = type(transform)
    if isinstance(transform, type):
        return Stays("it is a class", f"give an object of it: {transform.__name__}(...)")
    if _has_translator(cls):
        return Stays("it has its own hooks or methods", "use it without them")
    if _in_torchvision(cls):
        return Stays("bothends has no op for it")
    for base in cls.__mro__[1:]:
        if _has_translator(base):
            library, name = base.__module__.split(".")[0], base.__qualname__
            why = f"it is a subclass of {library}'s {name} and may do anything"
            return Stays(why, f"use {name} itself, or override nothing but __init__")
    held = [name for name, value in _attributes(transform).items() if _is_compose(value)]
    if len(held) == 1:
        why = "its code is unknown, and may do more than its transforms"
        return Stays(why, f"if it does no more, give the data set its .{held[0]}")
    if cls.__qualname__ in TRANSLATORS:
        remedy = f"use torchvision.transforms.v2.{cls.__qualname__}, if that does the same"
        return Stays("it is not one of torchvision's transforms", remedy)
    return Stays("it is not one of torchvision's transforms, and its code is unknown")


def _is_compose(value: Any) -> bool:
    return type(value).__qualname__ == "Compose" and _in_torchvision(type(value))


def _attributes(transform: Any) -> dict[str, Any]:
    own = vars(transform) if hasattr(transform, "__dict__") else {}
    return {**own, **own.get("_modules", {})}


# ---- transforms of transforms ---------------------------------------------------------------


def _random_apply(t: Any, sample: Sample) -> Step:
    return _sometimes(probability(t), t.transforms, sample)


def _sometimes(p: float, transforms: Iterable[Any], sample: Sample) -> Step:
    ops, done, note = _inside(transforms, sample)
    if not ops or p == 0:
        return Step(sample)
    after = done if p == 1 else _either(sample, done)
    return _nested(make_op("random_apply", p=p, transforms=ops), after, note)


def _random_choice(t: Any, sample: Sample) -> Step:
    transforms = list(t.transforms)
    weights = [1.0] * len(transforms) if t.p is None else numbers(t.p)
    if len(weights) != len(transforms):
        raise Stays("it has not one p for each transform")
    # A transform without weight is never applied.
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
    """Ops of transforms inside another, the sample after them, and what to report."""
    ops: list[Op] = []
    note, values = "", sample.values
    for transform in _flat(transforms):
        try:
            step = _step(transform, sample)
        except Stays as why:
            raise _inside_it(transform, why) from why
        sample = step.sample
        if step.feed or sample.values != values or sample.n_views > 1:
            line = f"{name_of(transform)} inside it would have to stand in the list itself"
            raise Stays(line)
        ops += step.ops
        note = note or step.note
    return ops, sample, note


def _inside_it(transform: Any, why: Stays) -> Stays:
    name = name_of(transform)
    return Stays(f"{name} inside it: {why}", f"{name}: {why.remedy}" if why.remedy else "")


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
    """What is known after a random choice between two."""
    if one.channels != other.channels:
        raise Stays("the number of channels of a sample would be random")
    if one.size == other.size:
        return one
    if one.size is not None and other.size is not None:
        raise Stays("the size of a sample would be random")
    return replace(one, size=None)


def _first(branches: list[_Branch]) -> str:
    return next((note for _, _, note in branches if note), "")


# ---- classes of scripts ---------------------------------------------------------------------


def _of_shape(shape: Shape, sample: Sample) -> Step:
    if isinstance(shape, (PillowBlur, PillowSolarize, ToRGB)):
        return pillow_step(shape, sample)
    if isinstance(shape, Sometimes):
        return _sometimes(within("p", shape.p, 0, 1), [shape.transform], sample)
    if isinstance(shape, Views):
        return _views(shape, sample)
    raise Stays("it only holds another transform")  # `_flat` has taken that out


_MOST_VIEWS = 64


def _views(shape: Views, sample: Sample) -> Step:
    """Several images of one, each on its own path to the same end."""
    n_views = sum(n for _, n in shape.views)
    if not 2 <= n_views <= _MOST_VIEWS:
        raise Stays(f"it makes {n_views} images of one; an op makes 2 to {_MOST_VIEWS}")
    branches = [_branch(transform, sample) for transform, _ in shape.views]
    ends = {replace(end, size=None) for _, _, end, _ in branches}
    feeds = [feed for _, feed, _, _ in branches]
    if len(ends) > 1 or any(feed != feeds[0] for feed in feeds):
        why = "its images end differently: in type, channels, Normalize or RandomErasing"
        raise Stays(why, "end all of them with the same ToTensor and Normalize")
    repeats = (n for _, n in shape.views)
    ways = zip(repeats, branches, strict=True)
    op = make_op("multi_crop", views=[{"repeat": n, "ops": branch[0]} for n, branch in ways])
    notes = dict.fromkeys(note for branch in branches for note in branch[3])
    note = "; ".join([f"{n_views} views", *notes])
    after = replace(branches[0][2], n_views=n_views, is_list=shape.is_list)
    return Step(after, [op], feeds[0], note)


def _branch(transform: Any, sample: Sample) -> tuple[list[Op], list[Op], Sample, list[str]]:
    """Ops before and after the cut on one path, its end, and what to report."""
    transforms = list(_flat([transform]))
    steps, obstacle = _steps(transforms, sample)
    if obstacle is not None:
        raise _inside_it(transforms[len(steps)], obstacle) from obstacle
    end = steps[-1].sample if steps else sample
    if end.size is None or not _is_one_image(end):
        raise Stays("its images would not all have the same size", "give each path a crop")
    if end.values == "pil":
        raise Stays("it makes several PIL images", "end each path with ToTensor")
    ops = [op for step in steps for op in step.ops]
    notes = dict.fromkeys(step.note for step in steps if step.ops and step.note)
    return ops, [op for step in steps for op in step.feed], end, list(notes)


def _lambda(t: Any, sample: Sample) -> Step:
    shape = shape_of(t.lambd)
    if isinstance(shape, ToRGB):
        return pillow_step(shape, sample)
    raise Stays("bothends has no op for it")


def _identity(t: Any, sample: Sample) -> Step:
    return Step(sample)


# By module and name.
_OTHERS: dict[tuple[str, str], Translator] = {
    **TIMM,
    ("torch.nn.modules.linear", "Identity"): _identity,
}

# Of torchvision; Compose and Sequential are only lists (`_flat`).
_KNOWN: dict[str, Translator] = {
    **TRANSLATORS,
    "RandomApply": _random_apply,
    "RandomChoice": _random_choice,
    "RandomOrder": _random_order,
    "Lambda": _lambda,
}
