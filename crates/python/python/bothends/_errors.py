"""The exceptions of bothends. Every class is a `bothends.Error`; its text names the thing, the
place and the remedy."""

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
    """An option, a recipe or a plan is invalid."""


class DataError(Error, OSError):
    """The data set cannot be opened, listed or read."""


class BadSampleError(Error):
    """A sample cannot be preprocessed, with `on_bad="raise"`.

    Attributes:
        sample: its id (int).
        file: its file, relative to the data set (str).
        why: what the reader or decoder said (str).
        prong: who found it first: `the host`, or the name of a device (str).
    """

    sample: int
    file: str
    why: str
    prong: str


class DeviceError(Error):
    """A device cannot be started or reached, or must not be trusted.

    Attributes:
        device: as given in `csds` (str).
    """

    device: str


class StateError(Error, ValueError):
    """A state is damaged, belongs to another run, or cannot be saved now."""


class ForkError(Error):
    """The loader was created in a parent process, before a fork."""


class StarvedError(Error):
    """The loader cannot continue, because the consumer holds every slot of memory."""


class Stopped(Error):
    """Raised instead of a batch after `Loader.stop()`; this is not a failure. `state_dict()` says
    where the training loop is."""
