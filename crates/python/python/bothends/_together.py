"""Batches for ranks that step together: samples of nearly equal work in each step."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from ._errors import OptionsError
from ._native import together


class StepSampler:
    """A batch sampler that gives the ranks of each step samples of nearly equal work, so that no
    step waits for the rank with the largest (coordinated reads).

        sampler = bothends.StepSampler(lengths, batch_size=16, rank=rank, world_size=world)
        loader = DataLoader(dataset, batch_sampler=sampler)
        for epoch in range(90):
            sampler.set_epoch(epoch)

    The epoch is shuffled by seed and epoch, the same on all ranks, and then arranged in windows.
    Each sample comes at most once over all ranks; those that do not fill a step are left out.

    Args:
        work: of each sample, in any unit: the length of its text, say.
        batch_size: samples of a batch of one rank.
        rank: this process.
        world_size: the number of ranks.
        window: steps that are arranged together. More of them make steps more equal, and the
            samples of a batch more similar.
        seed: of the shuffle, the same on all ranks.

    Raises:
        OptionsError: a number is out of range, or there are too few samples for one step.
    """

    def __init__(
        self,
        work: Sequence[int],
        *,
        batch_size: int,
        rank: int,
        world_size: int,
        window: int = 64,
        seed: int = 0,
    ) -> None:
        if min(batch_size, world_size, window) < 1 or not 0 <= rank < world_size:
            raise OptionsError(
                f"batch_size={batch_size}, world_size={world_size} and window={window} must be 1 "
                f"or more, and rank={rank} from 0 to below world_size"
            )
        if len(work) < batch_size * world_size:
            raise OptionsError(
                f"{len(work)} samples do not fill a step of {world_size} ranks with batches of "
                f"{batch_size}: give a smaller batch_size"
            )
        self.work = work
        self.batch_size = batch_size
        self.rank = rank
        # PyTorch's name, by which bothends' loader knows that the ranks share the epoch.
        self.num_replicas = world_size
        self.window = window
        self.seed = seed
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next iteration."""
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self.work) // (self.batch_size * self.num_replicas)

    def __iter__(self) -> Iterator[list[int]]:
        n_step = self.batch_size * self.num_replicas
        samples = list(range(len(self.work)))
        random.Random(f"{self.seed} {self.epoch}").shuffle(samples)
        del samples[len(self) * n_step :]
        first = self.rank * self.batch_size
        for at in range(0, len(samples), n_step * self.window):
            window = samples[at : at + n_step * self.window]
            order = together(
                [self.work[sample] for sample in window],
                ranks=self.num_replicas,
                batch_size=self.batch_size,
                # Any number that is determined by these three.
                key=(self.seed * 1_000_003 + self.epoch) * 1_000_003 + at & 2**64 - 1,
            )
            for step in range(first, len(window), n_step):
                yield [window[i] for i in order[step : step + self.batch_size]]
