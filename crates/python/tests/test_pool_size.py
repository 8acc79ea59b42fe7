"""How many agents a pool needs, and samples for ranks that step together, as Python sees them."""

from __future__ import annotations

import bothends
import pytest


def test_the_number_is_the_need_divided_by_the_rate_of_an_agent() -> None:
    # (7144 * 1.1 - 2000) / 500 is 11.7.
    assert bothends.wanted_agents([(7144, 2000)], 500) == 12
    assert bothends.wanted_agents([(7144, 2000)] * 2, 500) == 24
    assert bothends.wanted_agents([(7144, 2000)], None) == 1
    assert bothends.wanted_agents([(1000, 0)], 100, margin=0) == 10
    assert bothends.wanted_agents([], 100) == 0
    assert bothends.wanted_agents([], 100, least=2) == 2
    assert bothends.wanted_agents([(1e9, 0)], 1, most=64) == 64
    assert bothends.wanted_agents([(float("nan"), -1)], 100) == 0


def test_a_pool_grows_at_once_and_shrinks_to_nothing_when_nobody_waits() -> None:
    size = bothends.PoolSize(64, keep_seconds=30)
    assert size.observe([(1000, 0)], None, 0) == 1
    sizes = [size.observe([(1000, 0)], 100, second) for second in range(1, 60)]
    assert max(sizes) == sizes[-1] == size.size == 11
    sizes = [size.observe([], None, second) for second in range(60, 120)]
    assert sizes[0] == 11 and sizes[-1] == 0


def test_a_time_that_is_none_is_refused() -> None:
    size = bothends.PoolSize(4)
    with pytest.raises(ValueError, match="`seconds` is -1; it must be 0 or more"):
        size.observe([], None, -1)
    with pytest.raises(ValueError, match="`keep_seconds` is NaN"):
        bothends.PoolSize(4, keep_seconds=float("nan"))


def test_ranks_of_a_step_get_the_same_work() -> None:
    work = [i * 7919 % 1000 for i in range(640)]
    order = bothends.together(work, ranks=8, batch_size=4, key=3)
    assert sorted(order) == list(range(640))
    assert order == bothends.together(work, ranks=8, batch_size=4, key=3)

    def slowest(order: list[int]) -> int:
        batches = [sum(work[i] for i in order[at : at + 4]) for at in range(0, 640, 4)]
        return sum(max(batches[at : at + 8]) for at in range(0, 160, 8))

    assert slowest(order) < 0.7 * slowest(list(range(640)))
    with pytest.raises(ValueError, match="must be 1 or more"):
        bothends.together(work, ranks=0, batch_size=4)


def epoch_of(world: int, epoch: int, **options: int) -> list[list[list[int]]]:
    """The batches of each rank."""
    ranks = []
    for rank in range(world):
        sampler = bothends.StepSampler(WORK, batch_size=4, rank=rank, world_size=world, **options)
        sampler.set_epoch(epoch)
        ranks.append(list(sampler))
        assert len(ranks[-1]) == len(sampler) == len(WORK) // (4 * world)
    return ranks


WORK = [i * 7919 % 1000 for i in range(1003)]


def test_steps_of_a_sampler_are_equal_and_share_an_epoch() -> None:
    ranks = epoch_of(5, 2, window=10)
    assert ranks == epoch_of(5, 2, window=10), "the same however often it is asked"
    assert ranks != epoch_of(5, 3, window=10)
    seen = [sample for rank in ranks for batch in rank for sample in batch]
    assert len(set(seen)) == len(seen) == 1000, "each sample once, those left over not"
    steps = [[sum(WORK[i] for i in batch) for batch in step] for step in zip(*ranks, strict=True)]
    assert max(max(step) - min(step) for step in steps) < 250
    alone = epoch_of(5, 2, window=1)
    spread = sum(max(step) for step in steps)
    plain = [[sum(WORK[i] for i in batch) for batch in step] for step in zip(*alone, strict=True)]
    assert spread <= sum(max(step) for step in plain)


def test_a_sampler_that_is_none_is_refused() -> None:
    with pytest.raises(bothends.OptionsError, match="rank=5 from 0 to below"):
        bothends.StepSampler(WORK, batch_size=4, rank=5, world_size=5)
    with pytest.raises(bothends.OptionsError, match="3 samples do not fill a step of 2 ranks"):
        bothends.StepSampler([1, 2, 3], batch_size=4, rank=0, world_size=2)
