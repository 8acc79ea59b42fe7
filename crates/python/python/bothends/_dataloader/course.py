"""How far the epochs of a `bothends.torch.DataLoader` have come: which of them is next, and what
the samplers' own generators have drawn for those before it.

A loader that Accelerate makes to skip the first batches of another one has that one's course, so
that the epochs of the two follow one another. Nothing here knows data sets or batches.
"""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from .._errors import StateError
from .epochs import Epoch, Progress
from .orders import drawn_seed

Generators = Sequence[torch.Generator]

# Why the order of a resumed run is not known.
ELSEWHERE = (
    "the run that saved the state had drawn other numbers from the sampler's generator than this "
    "one, which another loader or the script may do; give the sampler a generator of its own, or "
    "draw from it as there before the state is loaded"
)
OTHER_ORDER = f"bothends: {ELSEWHERE}. From the next epoch on, the orders are not those of that run"


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
            `generator`: "each", "once" or "none"; None where the loader's options say so.
        before: an epoch, counted from `origin`, and a digest of their states before it was drawn:
            the newest one, or one that the resumed run knows; None if that is unknown.
    """

    n_epochs: int = 0
    origin: list[torch.Tensor] | None = None
    must_repeat: bool = False
    seeds: str | None = None
    before: tuple[int, str] | None = None

    def begin(
        self, generators: Generators, seeds: str, *, is_inside: bool, warn: Callable[[str], None]
    ) -> Iterator[int]:
        """An epoch begins; gives those for which the samplers are to be asked, this one last,
        counted from `origin`. The samplers are asked for each before the next one is taken.

        Args:
            seeds: for which epochs a seed is drawn before.
            is_inside: whether it is resumed after one of its batches.
            warn: is told that its order is not that of the resumed run.

        Raises:
            StateError: the same, inside an epoch.
        """
        n_again, repeats = 0, False
        if self.must_repeat and (is_inside or not is_fresh(generators)):
            n_again, repeats = self.n_epochs, True
            if not is_fresh(generators):
                self._return(generators)
        elif is_fresh(generators):
            if self.n_epochs > 0 and seeds == "once":
                self.seeds = "none"
            # Also if the script has seeded them since. A state inside an epoch counts from then.
            self.n_epochs = 0
        if n_again == self.n_epochs:
            # Nothing was drawn since, except by the script before its first epoch.
            self.origin = _states(generators)
        last = self.n_epochs
        for nth in range(last - n_again, last + 1):
            now = (nth, _digest(_states(generators)))
            if repeats and self.before is not None and self.before[0] == nth:
                if self.before != now and is_inside:
                    raise StateError(ELSEWHERE)
                if self.before != now:
                    warn(OTHER_ORDER)
            if nth == last:
                self.n_epochs, self.must_repeat, self.before = nth + 1, False, now
            yield nth

    def n_before(self, generators: Generators, *, is_within: bool) -> int:
        """The number of epochs for which they draw before the next iteration of a run that resumes
        here.

        Args:
            is_within: whether that iteration continues the newest epoch.
        """
        if not generators:
            return 0
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
        before = self.before
        if not is_within and not self.must_repeat:
            before = (n, _digest(_states(generators)))
        if n > 0 and before is not None and before[0] == n:
            state["sampler_before"] = before[1]
        return state

    def seeds_saved(self, seeds: str, generators: Generators, *, is_within: bool) -> str:
        """For which epochs the run that resumes here draws a seed, if this one does for `seeds`. It
        counts only the epochs that its samplers are asked for."""
        is_drawn = self.n_epochs > is_within
        is_repeated = self.n_before(generators, is_within=is_within) > 0
        return "none" if seeds == "once" and is_drawn and not is_repeated else seeds

    def can_follow(self, generators: Generators, state: dict[str, Any]) -> bool:
        """Whether the generators are, or were, where they began in the run that saved the state."""
        digest = state.get("sampler_origin")
        return digest is None or not generators or self._of(digest, generators) is not None

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
        before = state.get("sampler_before")
        if n_epochs == 0 and self.origin is not None:
            before = _digest(self.origin)
        self.before = None if before is None else (n_epochs, before)
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
        origin = self.origin or []
        if len(generators) != len(origin):
            line = f"its samplers have {len(generators)} generators of their own"
            raise StateError(f"{line}, and had {len(origin)} as the state was loaded; load it again")
        for generator, state in zip(generators, origin, strict=True):
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
