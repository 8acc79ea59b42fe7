"""What loaders need of a pool, measured without one."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from bothends._demand import Meter
from streams import loader


def test_a_loop_that_waits_could_take_more(small: Path) -> None:
    with loader(small) as fed:
        meter = Meter()
        meter.look(fed)
        batches = list(fed.batches())
        fed._waited_s = 0.0
        slow = meter.look(fed)
        assert slow.host == pytest.approx(slow.consumer), "it never waited"
        assert slow.agents == 0
        n = sum(batch.n_valid for batch in batches)
        again = Meter()
        again._before = (time.monotonic() - 10.0, 0.0, 0, 0)
        fed._waited_s = 7.5  # of ten seconds: the loop was busy for a quarter
        starved = again.look(fed)
        assert starved.host == pytest.approx(n / 10, rel=0.2)
        assert starved.consumer == pytest.approx(4 * starved.host, rel=0.2)
