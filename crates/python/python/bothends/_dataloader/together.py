"""Whether the ranks that share an epoch go through it together.

bothends computes the part of each rank from seed and epoch, and no rank waits for another. So a
rank that looks at a batch alone would be an epoch ahead of the others from then on, and some
samples would come twice and others never. A rank that begins another epoch therefore notes in the
store of the rendezvous which one it gave up, and after how many batches; one that takes more
batches of that epoch raises an error. The store is asked at the second batch, which ranks that
train in step take once all of them have begun, and at the end. Nothing waits.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator
from typing import Any

from .._errors import OptionsError
from .._ranks import rendezvous
from .epochs import NoBatch

# At this batch the store is asked, and at the end.
_ASKED_AT = 2


class Shared:
    """An epoch that ranks share, on this rank. It holds nothing of the loader.

    Args:
        loader: a number that is the same on all ranks, of the loader's seed and data.
        epoch: its number.
        n_batches: that each rank gets.
    """

    def __init__(self, loader: int, epoch: int, n_batches: int) -> None:
        self._loader = loader
        self._epoch = epoch
        self._n_batches = n_batches
        self._key = f"bothends/given_up/{loader}/{epoch}"
        self._batches: weakref.ref[Iterator[Any]] | None = None
        self.n_taken = 0
        self.has_ended = False

    def follow(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Begins it, and gives its batches."""
        global _newest
        before, _newest = _newest, self
        watched = _Watched(batches, self)
        self._batches = weakref.ref(watched)
        store = rendezvous()
        # A store whose process has ended has nothing to say.
        with contextlib.suppress(RuntimeError):
            if store is not None and self._key in _noted:
                _noted.discard(self._key)
                store.delete_key(self._key)
            if store is not None and before is not None and before._is_given_up_for(self):
                _noted.add(before._key)
                store.set(before._key, str(before.n_taken))
        return watched

    def _is_given_up_for(self, other: Shared) -> bool:
        """Whether the loop left it unfinished for that one, which is another epoch."""
        if self.has_ended or self.n_taken in (0, self._n_batches) or self._key == other._key:
            return False
        is_referenced = self._batches is not None and self._batches() is not None
        return self._loader == other._loader or not is_referenced

    def check(self) -> None:
        """Raises a `NoBatch` if another rank gave it up after fewer batches than this one took."""
        n = self._n_of_another()
        if n is None or n >= self.n_taken:
            return
        line = (
            f"the ranks share epoch {self._epoch} of this loader, and another rank has left it after "
            f"{n} of {self._n_batches} batches and begun another epoch: from then on, samples would "
            "come twice or never. Do the same with the loader on every rank, or call "
            "loader.set_epoch(epoch) on every rank before each epoch; give ranks='replicate' to a "
            "loader of which only one rank takes batches"
        )
        raise NoBatch(OptionsError(line))

    def _n_of_another(self) -> int | None:
        store = rendezvous()
        with contextlib.suppress(RuntimeError):
            if store is not None and self._key not in _noted and store.check([self._key]):
                return int(store.get(self._key))
        return None


# The newest epoch of this process that ranks share, and the keys that it has set.
_newest: Shared | None = None
_noted: set[str] = set()


class _Watched(Iterator[Any]):
    """The batches of a shared epoch. Not a generator: several threads may share the iterator."""

    def __init__(self, batches: Iterator[Any], shared: Shared) -> None:
        self._batches = batches
        self._shared = shared

    def __next__(self) -> Any:
        shared = self._shared
        try:
            batch = next(self._batches)
        except StopIteration:
            shared.has_ended = True
            shared.check()
            raise
        except NoBatch:
            raise
        except Exception:
            shared.n_taken += 1
            raise
        shared.n_taken += 1
        if shared.n_taken == _ASKED_AT:
            shared.check()
        return batch
