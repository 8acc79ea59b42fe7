"""What bothends raises. Every class is a `bothends.Error`; its text names the thing, the place
and the remedy."""

__all__ = [
    "BadSampleError",
    "DataError",
    "DeviceError",
    "Error",
    "ForkError",
    "OptionsError",
    "StarvedError",
    "StateError",
    "Stopped",
]


class Error(RuntimeError):
    """Any error of bothends."""


class OptionsError(Error, ValueError):
    """An option, a recipe or a plan that makes no sense."""


class DataError(Error, OSError):
    """The data set cannot be opened, listed or read."""


class BadSampleError(Error):
    """A sample that cannot be preprocessed, with `on_bad="raise"`.

    Attributes:
        sample: its id (int).
        file: its file, relative to the data set (str).
        why: what the reader or decoder said (str).
        prong: who met it first: `the host`, or a device by its name (str).
    """

    sample: int
    file: str
    why: str
    prong: str


class DeviceError(Error):
    """A device that cannot be started or reached, or is not to be trusted.

    Attributes:
        device: as given in `csds` (str).
    """

    device: str


class StateError(Error, ValueError):
    """A state that is damaged, belongs to another run, or cannot be saved now."""


class ForkError(Error):
    """The loader was made in another process, of which this one is a fork."""


class StarvedError(Error):
    """Nothing can go on, because the consumer keeps every slot."""


class Stopped(Error):
    """Raised instead of a batch after `Loader.stop()`: nothing is wrong. `state_dict()` says where
    the training loop is."""
