"""How a data set's sample is assembled: the image that bothends has made, and the rest."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


class Fields:
    """What `dataset[i]` holds besides the image.

    It is picklable if the data set is, and reads nothing until asked.

    Attributes:
        labels: set if `dataset[i]` is exactly (image, labels[i]) with an `int`. The native loader
            then delivers the labels, and nothing in this class is called.
    """

    labels: list[int] | None = None

    @property
    def may_draw(self) -> bool:
        """Whether code of the script makes a sample's target, which may draw random numbers."""
        return True

    def target(self, i: int) -> Any:
        """The rest of sample i besides its image, as the data set gives it."""
        raise NotImplementedError

    def put_together(self, image: Any, i: int) -> Any:
        """What `dataset[i]` returns, with this image."""
        return image, self.target(i)


@dataclass(frozen=True)
class Labelled(Fields):
    """(image, label)."""

    labels: list[int]

    @property
    def may_draw(self) -> bool:
        return False

    def target(self, i: int) -> int:
        return self.labels[i]


@dataclass(frozen=True)
class Paired(Fields):
    """(image, target).

    Attributes:
        targets: a sequence of them, or a function that reads one by number.
        change: the data set's `target_transform`.
    """

    targets: Sequence[Any] | Callable[[int], Any]
    change: Callable[[Any], Any] | None = None

    @property
    def may_draw(self) -> bool:
        return self.change is not None or callable(self.targets)

    def target(self, i: int) -> Any:
        target = self.targets(i) if callable(self.targets) else self.targets[i]
        return target if self.change is None else self.change(target)


@dataclass(frozen=True)
class Bare(Fields):
    """Only the image."""

    @property
    def may_draw(self) -> bool:
        return False

    def target(self, i: int) -> None:
        return None

    def put_together(self, image: Any, i: int) -> Any:
        return image


@dataclass(frozen=True)
class Named(Fields):
    """A dictionary with the image under a name.

    Attributes:
        read: gives the dictionary of sample i, with anything as the image.
        image: the image's name.
    """

    read: Callable[[int], Mapping[str, Any]]
    image: str = "image"

    def target(self, i: int) -> dict[str, Any]:
        return {name: value for name, value in self.read(i).items() if name != self.image}

    def put_together(self, image: Any, i: int) -> dict[str, Any]:
        return {**self.read(i), self.image: image}


@dataclass(frozen=True)
class Chosen(Fields):
    """The fields of a subset: sample i is sample `rows[i]` of the data set below."""

    below: Fields
    rows: list[int]

    @property
    def may_draw(self) -> bool:
        return self.below.may_draw

    def target(self, i: int) -> Any:
        return self.below.target(self.rows[i])

    def put_together(self, image: Any, i: int) -> Any:
        return self.below.put_together(image, self.rows[i])


@dataclass(frozen=True)
class Joined(Fields):
    """The fields of concatenated data sets.

    Attributes:
        parts: their fields.
        ends: one more than the number of each one's last sample.
    """

    parts: list[Fields]
    ends: list[int]

    @property
    def may_draw(self) -> bool:
        return any(part.may_draw for part in self.parts)

    def target(self, i: int) -> Any:
        part, i = self._place(i)
        return part.target(i)

    def put_together(self, image: Any, i: int) -> Any:
        part, i = self._place(i)
        return part.put_together(image, i)

    def _place(self, i: int) -> tuple[Fields, int]:
        n = bisect.bisect_right(self.ends, i)
        return self.parts[n], i - (self.ends[n - 1] if n else 0)


def paired(
    targets: Sequence[Any] | Callable[[int], Any],
    labels: list[int] | None,
    change: Callable[[Any], Any] | None,
) -> Fields:
    """(image, target), natively if the targets are labels that nothing changes."""
    if labels is not None:
        return Labelled(labels) if change is None else Paired(labels, change)
    return Paired(targets, change)
