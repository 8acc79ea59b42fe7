from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

__version__: str

def own_gpu() -> int: ...
def run_program(name: str, args: list[str]) -> NoReturn: ...
def without_secrets(data: str) -> str: ...
def wanted_agents(
    needs: Sequence[tuple[float, float]],
    agent_rate: float | None,
    *,
    margin: float = 0.1,
    least: int = 0,
    most: int = 4_294_967_295,
) -> int:
    """The number of agents that jobs need together, from measured rates: the sum of
    `consumer * (1 + margin) - host` over the jobs, divided by `agent_rate` and rounded up.

    Args:
        needs: for each job, what its consumer takes per second when it does not wait, and what its host
            makes.
        agent_rate: what one agent makes; None if that is not yet known, which requests one agent.
        margin: what is made beyond what consumers take.
        least: the fewest agents.
        most: the most agents.
    """

def together(work: Sequence[int], *, ranks: int, batch_size: int, key: int = 0) -> list[int]:
    """Arranges samples so that the ranks of each step have nearly the same work (coordinated
    reads): a permutation of `range(len(work))`, in steps of `ranks * batch_size` samples, in each of
    which the first `batch_size` are those of rank 0.

    Args:
        work: of each sample, in any unit.
        ranks: how many ranks step together.
        batch_size: samples of a batch of one rank.
        key: decides the order of the steps; mix seed, epoch and window.
    """

class PoolSize:
    """The number of agents that a pool should have, over time: it grows as soon as the average need
    exceeds it, and shrinks once less has sufficed for a while.

        size = bothends.PoolSize(most=64)
        while True:
            pool.scale(size.observe(needs(), agent_rate(), time.monotonic()))
            time.sleep(1)
    """

    def __init__(
        self,
        most: int,
        *,
        least: int = 0,
        margin: float = 0.1,
        keep_seconds: float = 60.0,
        now: int = 0,
    ) -> None:
        """
        Args:
            most: the most agents.
            least: the fewest agents, even if nothing waits.
            margin: what is made beyond what consumers take.
            keep_seconds: how long fewer agents must have sufficed before any are stopped.
            now: the number of agents that run already.
        """

    def observe(
        self, needs: Sequence[tuple[float, float]], agent_rate: float | None, seconds: float
    ) -> int:
        """The number of agents from now on. Call it about once a second; `needs` and `agent_rate` are those
        of `wanted_agents`, and `seconds` is any monotonic clock."""

    @property
    def size(self) -> int:
        """The most recent decision."""


class Array:
    """A tensor of the loader, in host memory or on a GPU, shared through `__dlpack__`; in host
    memory also through `numpy.asarray`."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> str: ...
    @property
    def device(self) -> str: ...
    @property
    def data_ptr(self) -> int: ...
    @property
    def __array_interface__(self) -> dict[str, Any]: ...
    def __len__(self) -> int: ...
    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
    def release_when_idle(self) -> None: ...

class Batch:
    @property
    def views(self) -> list[Array]: ...
    @property
    def row_starts(self) -> Array | None: ...
    @property
    def fields(self) -> list[tuple[str, Any]]: ...
    @property
    def labels(self) -> Array: ...
    @property
    def sample_ids(self) -> Array: ...
    @property
    def sources(self) -> Array: ...
    @property
    def mask(self) -> Array: ...
    @property
    def n_valid(self) -> int: ...
    @property
    def index(self) -> int: ...
    @property
    def prong(self) -> str: ...
    def soft_labels(self, n_classes: int) -> Array: ...
    def __len__(self) -> int: ...

class Consumer:
    def __iter__(self) -> Iterator[Batch]: ...
    def __next__(self) -> Batch: ...

class Samples:
    """Samples listed by Python, for `Loader`."""

    @staticmethod
    def files(
        root: str,
        paths: Sequence[str],
        extents: Sequence[tuple[int, int]] | None,
        labels: Sequence[int],
    ) -> Samples: ...
    @staticmethod
    def fetched(
        name: str, labels: Sequence[int], function: Callable[[int], bytes]
    ) -> Samples: ...
    def __len__(self) -> int: ...

class Loader:
    def __init__(
        self,
        options: str,
        samples: Samples | None = None,
        redecode: Callable[[bytes], bytes] | None = None,
        parent: int | None = None,
    ) -> None: ...
    def begin_order(
        self, batches: tuple[bytes, bytes], part: tuple[int, int, int], repeats: str
    ) -> Consumer: ...
    def set_rank(self, rank: int, world: int) -> None: ...
    def begin(self, consumers: int) -> list[Consumer]: ...
    def set_epoch(self, epoch: int) -> None: ...
    def state(self) -> str: ...
    def load_state(self, json: str) -> str | None: ...
    def n_batches(self, consumers: int) -> int: ...
    def sample(self, sample: int) -> tuple[str, int] | None: ...
    def first_difference(self, samples: list[tuple[str, int]]) -> int | None: ...
    def stop(self) -> None: ...
    def close(self) -> None: ...
    def stats(self) -> str: ...
    def notes(self) -> list[str]: ...
    @property
    def is_stopped(self) -> bool: ...
    @property
    def epoch(self) -> int: ...
    @property
    def n_samples(self) -> int: ...
    @property
    def table_hash(self) -> str: ...
    @property
    def class_names(self) -> list[str]: ...
    @property
    def sources(self) -> list[str]: ...
    @property
    def mixes(self) -> bool: ...
    @property
    def note(self) -> str | None: ...
    @property
    def view_shapes(self) -> list[tuple[int, int, int]]: ...
    @property
    def output(self) -> str: ...
    @property
    def layout(self) -> str: ...
