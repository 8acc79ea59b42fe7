"""What loaders need of a pool, measured without one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bothends import _waits
from bothends._demand import Meter
from streams import loader


def test_a_loop_that_waits_could_take_more(small: Path) -> None:
    with loader(small) as fed:
        meter = Meter()
        meter.look(fed)
        batches = list(fed.batches())
        fed._waits._epoch = (0.0, [])
        slow = meter.look(fed)
        assert slow.host == pytest.approx(slow.consumer), "it never waited"
        assert slow.agents == 0
        n = sum(batch.n_valid for batch in batches)
        again = Meter()
        again._before = (time.monotonic() - 10.0, 0.0, 0, 0)
        fed._waits._epoch = (7.5, [])  # of ten seconds: the loop was busy for a quarter
        starved = again.look(fed)
        assert starved.host == pytest.approx(n / 10, rel=0.2)
        assert starved.consumer == pytest.approx(4 * starved.host, rel=0.2)


class Clock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now


def test_waits_are_those_of_the_native_half_and_of_one_consumer(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Symptom: a pool is enlarged for a loop that hardly waits, for its consumers' waits are added up,
    and what makes tensors of batches counts as waiting; or a long wait counts only where it ends."""
    clock, waits, seen = Clock(), _waits.Waits(), []
    monkeypatch.setattr(_waits, "time", clock)

    def slow() -> Iterator[None]:
        while True:
            clock.now += 2.0
            seen.append(waits.seconds())
            yield

    (one,) = waits.timed([slow()])
    next(one)
    clock.now += 5.0  # the loop is busy
    assert seen == [2.0] and waits.seconds() == 2.0
    for consumer in waits.timed(slow() for _ in range(4)):
        next(consumer)
    assert waits.seconds() == 2.0 + 2.0
    with loader(small) as fed:
        before = fed._waits.seconds()
        tensors = fed._tensors

        def busy(batch: object) -> object:
            clock.now += 100.0
            return tensors(batch)

        monkeypatch.setattr(fed, "_tensors", busy)
        for feed in fed.consumers(2):
            next(feed)
        assert fed._waits.seconds() == before
