"""A data loader that feeds training jobs from both ends of an epoch.

    import bothends

    loader = bothends.Loader("/data/train", recipe="imagenet-train", batch_size=256)
    for epoch in range(90):
        loader.set_epoch(epoch)
        for images, labels in loader: ...

`Loader` takes a path and a recipe; `bothends.torch.DataLoader` replaces PyTorch's class in one
line. Importing this package imports no framework.
"""

import os as _os
import sysconfig as _sysconfig

from ._errors import (
    BadSampleError,
    DataError,
    DeviceError,
    Error,
    ForkError,
    OptionsError,
    StarvedError,
    StateError,
    Stopped,
)
from ._loader import Batch, Loader, Ragged
from ._mix import Mix
from ._native import Array, PoolSize, __version__, together, wanted_agents
from ._pool import Pool
from ._together import StepSampler

__all__ = [
    "Array",
    "BadSampleError",
    "Batch",
    "DataError",
    "DeviceError",
    "Error",
    "ForkError",
    "Loader",
    "Mix",
    "OptionsError",
    "Pool",
    "PoolSize",
    "Ragged",
    "StarvedError",
    "StateError",
    "StepSampler",
    "Stopped",
    "__version__",
    "together",
    "wanted_agents",
]


def _name_firmware_sim() -> None:
    """The commands came with this package: emulated devices are started from there, also in
    an environment that is not activated."""
    program = _os.path.join(_sysconfig.get_path("scripts"), "firmware-sim")
    if _os.access(program, _os.X_OK):
        _os.environ.setdefault("BOTHENDS_FIRMWARE_SIM", program)


_name_firmware_sim()
