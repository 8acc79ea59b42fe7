"""How a batch's arrays become tensors of a framework: without a copy, in host memory or on a GPU."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from typing import Any, NamedTuple

from ._errors import OptionsError

FRAMEWORKS = ("auto", "torch", "numpy", "jax", "cupy", "dlpack")

_SHARE = {
    "torch": ("torch", "from_dlpack"),
    "numpy": ("numpy", "asarray"),
    "jax": ("jax.dlpack", "from_dlpack"),
    "cupy": ("cupy", "from_dlpack"),
}

# What "auto" takes where batches are on a GPU.
_ON_GPU = ("torch", "jax", "cupy")

# CUDA's handles of the legacy default stream and of a thread's own.
_DEFAULT_STREAMS = (0, 1, 2)

Share = Callable[[Any], Any]


class Sharing(NamedTuple):
    """How a loader's arrays reach the script."""

    images: Share
    """For the samples, wherever they are."""
    targets: Share
    """For labels and mask, which are made on the host; on the GPU if the images are."""
    ids: Share
    """For sample ids, which stay on the host."""
    ragged: Share | None = None
    """For rows of different lengths (values and offsets), if they are shared differently."""


def sharing(framework: str, output: str, gpu: int | None = None, sharding: Any = None) -> Sharing:
    """How arrays are shared with `framework`, with batches on the GPU of that number or in host
    memory. "auto" is PyTorch if it is installed, otherwise NumPy, or on a GPU JAX or CuPy. A JAX
    `sharding` gives global arrays of which this process holds its part.

    Raises:
        OptionsError: the framework is unknown or not installed, or lacks that type or device.
    """
    if framework not in FRAMEWORKS:
        line = f"`framework` is {framework!r}; it must be one of {', '.join(FRAMEWORKS)}"
        raise OptionsError(line)
    if sharding is not None and framework != "jax":
        raise OptionsError(f"`sharding` is for framework='jax', and framework is {framework!r}")
    if gpu is not None:
        return _on_gpu(framework, gpu, sharding)
    if framework == "cupy":
        raise OptionsError("CuPy arrays are on a GPU; give device='cuda', or framework='numpy'")
    if framework == "auto":
        framework = _installed()
    if framework == "numpy" and output == "bf16":
        raise OptionsError("NumPy has no bfloat16; use output='f16' or 'f32'")
    share = _same if framework == "dlpack" else _imported(framework)
    if sharding is None:
        return Sharing(share, share, share)
    share = _global(sharding)
    # Neither the number of values nor that of offsets can be divided among devices as rows can.
    return Sharing(share, share, share, importlib.import_module("numpy").asarray)


def _on_gpu(framework: str, gpu: int, sharding: Any) -> Sharing:
    if sharding is not None:
        line = "`sharding` places arrays itself; leave `device` out, or give each process its GPU"
        raise OptionsError(line)
    if framework == "auto":
        found = [name for name in _ON_GPU if importlib.util.find_spec(name)]
        if not found:
            line = "batches on a GPU need PyTorch, JAX or CuPy, and none is installed; install one"
            raise OptionsError(f"{line}, or use framework='dlpack'")
        framework = found[0]
    if framework == "numpy":
        line = "NumPy arrays are in host memory; use another framework, or leave `device` out"
        raise OptionsError(line)
    if framework == "dlpack":
        return Sharing(_same, _same, _same)
    # It has a stream wait for the array: in PyTorch, the thread's current one.
    images = _imported(framework)
    on_gpu = {"torch": _in_torch, "jax": _in_jax, "cupy": _in_cupy}
    return on_gpu[framework](images, gpu)


def _in_torch(images: Share, gpu: int) -> Sharing:
    torch = importlib.import_module("torch")
    device = torch.device("cuda", gpu)

    def to_device(array: Any) -> Any:
        # Small: the driver copies it before this returns, so nothing waits.
        return images(array).to(device, non_blocking=True)

    return Sharing(images, to_device, images)


def _in_cupy(images: Share, gpu: int) -> Sharing:
    cupy, numpy = importlib.import_module("cupy"), importlib.import_module("numpy")

    def share(array: Any) -> Any:
        # CuPy destroys a stream with its object, and arrays may outlive it. The default ones stay.
        if cupy.cuda.get_current_stream().ptr not in _DEFAULT_STREAMS:
            array.release_when_idle()
        return images(array)

    def to_device(array: Any) -> Any:
        with cupy.cuda.Device(gpu):
            return cupy.asarray(numpy.asarray(array))

    return Sharing(share, to_device, numpy.asarray)


def _in_jax(images: Share, gpu: int) -> Sharing:
    jax, numpy = importlib.import_module("jax"), importlib.import_module("numpy")
    here = {device.local_hardware_id: device for device in jax.local_devices()}
    device = here.get(gpu)
    if device is None or device.platform not in ("gpu", "cuda"):
        raise OptionsError(
            f"JAX has no GPU {gpu} in this process; install jax[cuda13], or leave `device` out"
        )

    def share(array: Any) -> Any:
        # JAX waits on one stream but computes on others, and may release memory while it does.
        array.release_when_idle()
        return images(array)

    def to_device(array: Any) -> Any:
        return jax.device_put(numpy.array(array), device)

    return Sharing(share, to_device, numpy.asarray)


def _installed() -> str:
    for framework in ("torch", "numpy"):
        if importlib.util.find_spec(framework):
            return framework
    raise OptionsError(
        "neither PyTorch nor NumPy is installed here to give batches to; `pip install numpy` (or torch),"
        " or pass framework='dlpack'"
    )


def _imported(framework: str) -> Share:
    module, name = _SHARE[framework]
    try:
        share: Share = getattr(importlib.import_module(module), name)
    except ImportError as error:
        others = "framework='numpy'" if framework != "numpy" else "framework='dlpack'"
        line = f"framework={framework!r} cannot be imported ({error}); `pip install {framework}`, or use {others}"
        raise OptionsError(line) from error
    return share


def _global(sharding: Any) -> Share:
    """Global arrays in JAX's sense, split along the batch: every process contributes its rows."""
    jax = importlib.import_module("jax")
    numpy = importlib.import_module("numpy")

    def share(array: Any) -> Any:
        # A copy, since JAX's CPU devices would hold on to the slot's memory.
        return jax.make_array_from_process_local_data(sharding, numpy.array(array))

    return share


def _same(array: Any) -> Any:
    return array
