"""How far the epochs of a `bothends.torch.DataLoader` have come: which of them is next, and what
the samplers' own generators have drawn for those before it.

A loader that Accelerate makes to skip the first batches of another one has that one's course, so
that the epochs of the two follow one another. Nothing here knows data sets or batches.
"""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from .._errors import StateError
from .epochs import Epoch, Progress
from .orders import drawn_seed

Generators = Sequence[torch.Generator]


@dataclass
class Course:
    """The epochs of a loader.

    Attributes:
        next_epoch: the number of the epoch that begins next, unless the newest one was in use.
        sampler_epoch: the number that the samplers were told last, or had; None without one.
        progress: that of the newest epoch; None if `next_epoch` was chosen since.
        newest: the iterator of the newest epoch.
        drawn: what the samplers' own generators have drawn.
    """

    next_epoch: int = 0
    sampler_epoch: int | None = None
    progress: Progress | None = None
    newest: weakref.ref[Epoch] | None = None
    drawn: Drawn = field(default_factory=lambda: Drawn())

    def choose(self, epoch: int) -> None:
        """Makes this the next epoch."""
        self.next_epoch, self.progress = epoch, None

    def begin(self, progress: Progress, iterator: Epoch) -> None:
        """An epoch has begun."""
        self.progress, self.newest = progress, weakref.ref(iterator)

    def advance(self) -> None:
        """Chooses the epoch after the newest one, if that one was in use."""
        if self.progress is not None:
            was_used = self.progress.n_taken > 0 or self.progress.has_ended or self._is_running
            self.next_epoch = self.progress.number + was_used

    @property
    def _is_running(self) -> bool:
        """Whether the newest iterator is still referenced and not finished."""
        newest = None if self.newest is None else self.newest()
        return newest is not None and not newest.is_over

    def copied(self) -> Course:
        """The same for a copy of the loader, in which no epoch has begun."""
        return replace(self, progress=None, newest=None, drawn=replace(self.drawn))


@dataclass
class Drawn:
    """What the own generators of PyTorch's samplers have drawn, so that a resumed run draws it
    again. A state has room for their seed and the number of epochs, not for their own states.

    Attributes:
        n_epochs: epochs that they have drawn for since `origin`.
        origin: their states before the first of these; None before it.
        must_repeat: whether these are epochs of the resumed run, for which they are yet to draw.
        seeds: the epochs of the resumed run for which a seed was drawn before, from the loader's
            `generator`: "each", "once" or "none"; None in a run that was not resumed.
    """

    n_epochs: int = 0
    origin: list[torch.Tensor] | None = None
    must_repeat: bool = False
    seeds: str | None = None

    def begin(self, generators: Generators, *, is_inside: bool) -> range:
        """An epoch begins; returns those for which the samplers are to be asked, this one last,
        counted from `origin`.

        Args:
            is_inside: whether it is resumed after one of its batches.
        """
        n_again = 0
        if self.must_repeat and (is_inside or not is_fresh(generators)):
            n_again = self.n_epochs
            if not is_fresh(generators):
                self._return(generators)
        elif is_fresh(generators):
            # Also if the script has seeded them since. A state inside an epoch counts from then.
            self.n_epochs = 0
        if n_again == self.n_epochs:
            # Nothing was drawn since, except by the script before its first epoch.
            self.origin = _states(generators)
        self.must_repeat = False
        self.n_epochs += 1
        return range(self.n_epochs - 1 - n_again, self.n_epochs)

    def n_before(self, generators: Generators, *, is_within: bool) -> int:
        """The number of epochs for which they draw before the next iteration of a run that resumes
        here.

        Args:
            is_within: whether that iteration continues the newest epoch.
        """
        if is_within:
            return self.n_epochs - 1
        return 0 if is_fresh(generators) else self.n_epochs

    def saved(self, generators: Generators, *, is_within: bool) -> dict[str, Any]:
        """The part of a state that `load` reads."""
        if not generators:
            return {}
        n = self.n_before(generators, is_within=is_within)
        state: dict[str, Any] = {"sampler_drawn": [generators[0].initial_seed(), n]}
        begun = self.origin if is_within or n > 0 else None
        origin = _states(generators) if begun is None else begun
        if not _are_equal(origin, _seeded(generators)):
            # The script has drawn from them, in `random_split` for example.
            state["sampler_origin"] = _digest(origin)
        return state

    def refuse(self, generators: Generators, state: dict[str, Any]) -> None:
        """Refuses a state that the generators cannot follow.

        Raises:
            StateError: the script has drawn other numbers from them than it had in that run.
        """
        digest = state.get("sampler_origin")
        if digest is not None and self._of(digest, generators) is None:
            raise StateError(
                "before its first epoch, the run that saved the state had drawn other numbers from "
                "the sampler's generator than this one; seed the generator and draw from it as there"
            )

    def load(self, generators: Generators, state: dict[str, Any], n_later: int) -> None:
        """Puts the generators where they are in the run that saved this.

        Args:
            n_later: further epochs to draw for.
        """
        seed, n_epochs = state["sampler_drawn"]
        digest = state.get("sampler_origin")
        if digest is None:
            for generator in generators:
                generator.manual_seed(seed)
            self.origin = _states(generators)
        else:
            self.origin = self._of(digest, generators)
            self._return(generators)
        self.n_epochs, self.must_repeat = n_epochs + n_later, True
        if self.n_epochs > 0:
            for generator in generators:
                # So that it is fresh again only if the script seeds it again.
                drawn_seed(generator)

    def _of(self, digest: str, generators: Generators) -> list[torch.Tensor] | None:
        """The states of this digest: those of now, or those before the first epoch."""
        known = [_states(generators), *([] if self.origin is None else [self.origin])]
        return next((states for states in known if _digest(states) == digest), None)

    def _return(self, generators: Generators) -> None:
        for generator, state in zip(generators, self.origin or (), strict=False):
            generator.set_state(state)


def is_fresh(generators: Generators) -> bool:
    """Whether there are any, and nothing has been drawn from them since they were seeded."""
    return bool(generators) and _are_equal(_states(generators), _seeded(generators))


def _states(generators: Generators) -> list[torch.Tensor]:
    return [generator.get_state() for generator in generators]


def _seeded(generators: Generators) -> list[torch.Tensor]:
    """Their states right after they were seeded."""
    return [torch.Generator(g.device).manual_seed(g.initial_seed()).get_state() for g in generators]


def _are_equal(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return len(one) == len(other) and all(map(torch.equal, one, other))


def _digest(states: list[torch.Tensor]) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for state in states:
        digest.update(state.numpy().tobytes())
    return digest.hexdigest()
