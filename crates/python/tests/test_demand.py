"""What loaders need of a pool, without one: the measure and the number of agents."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from bothends._demand import Demand, Meter, size_for
from streams import loader


@pytest.mark.parametrize(
    ("demands", "n", "wanted"),
    [
        ([], 4, 0),  # nobody waits
        ([Demand(1000, 1200, 0)], 3, 0),  # the host is enough
        ([Demand(1000, 600, 100)], 1, 3),  # 500 are missing: at most twice as many, and one
        ([Demand(1000, 600, 300)], 3, 5),  # 500 are missing, and each makes 100
        ([Demand(1000, 600, 500)], 5, 5),
        ([Demand(1000, 600, 0)], 2, 3),  # they have made nothing yet
        ([Demand(1000, 600, 100), Demand(500, 550, 100)], 2, 5),  # a second job is fed
    ],
)
def test_the_size_of_a_pool_follows_what_is_missing(
    demands: list[Demand], n: int, wanted: int
) -> None:
    assert size_for(demands, n) == wanted


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
