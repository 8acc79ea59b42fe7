"""What users are told about their transforms: what each became, why one stays in Python, what that
costs, and what can be done about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .parameters import Stays, Step


@dataclass(frozen=True)
class Outcome:
    """What became of a list of transforms.

    Attributes:
        transforms: all of them.
        taken: a step for each that bothends does.
        obstacle: why the first of the others stays, or, if none does, why the samples do not form a
            batch. None if all is well.
        later: for each transform that stays, from the second on, why it would stay by itself; None
            if only because it comes after another.
    """

    transforms: list[Any]
    taken: list[Step]
    obstacle: Stays | None
    later: list[Stays | None]

    @property
    def rest(self) -> list[Any]:
        return self.transforms[len(self.taken) :]

    def words(self) -> list[str]:
        """A line for each transform."""
        words = [_became(*pair) for pair in zip(self.transforms, self.taken, strict=False)]
        if not self.rest:
            return words
        first = name_of(self.rest[0])
        words.append(f"{first} stays in Python: {self.obstacle}")
        after = (f"{name_of(t)} stays in Python: it comes after {first}" for t in self.rest[1:])
        return [*words, *after]

    def remedies(self) -> list[str]:
        """A line for each transform that stays and need not, if something is changed."""
        if not self.rest:
            remedy = "" if self.obstacle is None else self.obstacle.remedy
            return [remedy] if remedy else []
        pairs = zip(self.rest, [self.obstacle, *self.later], strict=True)
        return [f"{name_of(t)}: {why.remedy}" for t, why in pairs if why is not None and why.remedy]

    def warning(self) -> str | None:
        """One text that names the first transform that stays and what that costs."""
        if not self.rest:
            return None if self.obstacle is None else _with_remedy(self.obstacle)
        after = " and all after it stay" if len(self.rest) > 1 else " stays"
        n_taken, n = len(self.taken), len(self.transforms)
        before = f"What comes before ({n_taken} of {n}) is" if n_taken else "Nothing is"
        return (
            f"{name_of(self.rest[0])}{after} in Python: {self.obstacle}. That costs what it costs "
            f"in PyTorch's loader, in as many workers. {before} prepared by bothends."
        )


def _with_remedy(obstacle: Stays) -> str:
    return f"{obstacle}; {obstacle.remedy}" if obstacle.remedy else str(obstacle)


def _became(transform: Any, step: Step) -> str:
    ops = ", ".join(op["op"] for op in step.ops + step.feed)
    note = f" ({step.note})" if ops and step.note else ""
    return f"{name_of(transform)} → {ops or step.note or 'nothing'}{note}"


def name_of(transform: Any) -> str:
    """The name that users know."""
    name = getattr(transform, "__name__", None) if callable(transform) else None
    return name if isinstance(name, str) else type(transform).__qualname__


def no_common_size(rest: list[Any], n_known: int, obstacle: Stays | None, cut: str) -> Stays:
    """Why transforms that have ops stay: at that point, samples do not form a batch.

    Args:
        rest: what stays; the first `n_known` of them have ops.
        obstacle: why the one after them stays.
        cut: the name of a later transform that would give samples one size.
    """
    sized = "a crop, or Resize((rows, columns)),"
    if n_known >= len(rest):
        why = "at the end, samples would not all be one image of one size"
        return Stays(why, f"{sized} before that lets bothends prepare the samples")
    name = name_of(rest[n_known])
    why = (
        f"before {name}, which stays in Python ({obstacle}), samples would not all be one image "
        "of one size"
    )
    if obstacle is not None and obstacle.remedy:
        return Stays(why)  # it has its own line
    if cut:
        return Stays(why, f"put {name} after {cut}, which bothends then does")
    return Stays(why, f"put {sized} before {name}; bothends prepares the samples up to there")
