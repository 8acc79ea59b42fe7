"""Batches that end in a GPU's memory, and in pinned memory: over a stub of NVIDIA's driver.

Everything between a loader and the driver's calls is the real thing: loading the library, calls,
streams and events by their handles, capsules. Tests that need PyTorch with CUDA are skipped where there is none;
`scripts/check-gpu` does more on a GPU.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import bothends
import pytest
from bothends._device import named

import children
import gpu_stub
from streams import loader


@pytest.fixture(scope="module")
def stub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return gpu_stub.built(tmp_path_factory.mktemp("stub"))


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return gpu_stub.kernels(tmp_path_factory.mktemp("kernels"))


# ---- what is delivered --------------------------------------------------------------------

SAME = """
options = eval(sys.argv[3])
here = list(loader(Path(sys.argv[2]), framework="dlpack", last="pad", **options).batches())
there = loader(Path(sys.argv[2]), framework="dlpack", last="pad", device="cuda", **options)
n = 0
for host, gpu in zip(here, there.batches(), strict=True):
    for ours, theirs in zip(host.images, gpu.images, strict=True):
        assert theirs.device == "cuda:0" and theirs.__dlpack_device__() == (2, 0)
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        assert ours.data_ptr != theirs.data_ptr
        theirs.__dlpack__(stream=1)
        assert content(ours) == content(theirs), (host.index, ours.dtype)
    for name in ("labels", "mask", "sample_ids"):
        assert getattr(gpu, name).device == "cpu", "labels are on the host with framework='dlpack'"
    assert content(host.labels) == content(gpu.labels)
    assert (host.index, host.n_valid) == (gpu.index, gpu.n_valid)
    n += 1
    del gpu, theirs
assert n == 6
print(there.stats()["path"])
"""


@pytest.mark.parametrize("options", [{}, {"csds": ["sim:ideal,rate=2000"]}], ids=["host", "csd"])
def test_bytes_on_the_gpu_are_those_on_the_host(
    stub: Path, small: Path, options: dict[str, Any]
) -> None:
    path = gpu_stub.run(stub, SAME, small, options)
    assert path.startswith("pinned (not p2p: "), path


@pytest.mark.parametrize("output", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_the_gpus_kernels_finish_as_the_host_does(
    stub: Path, kernels: Path, small: Path, output: str, layout: str
) -> None:
    """The kernels are the GPU's own sources, compiled for the CPU."""
    options = {"recipe": "cifar10-train", "output": output, "layout": layout}
    gpu_stub.run(stub, SAME, small, options, BOTHENDS_STUB_KERNELS=str(kernels))


def test_a_state_counts_what_was_handed_over(stub: Path, small: Path) -> None:
    """One batch is uploaded ahead of the loop, and does not count."""
    code = """
def states(**options):
    batches = loader(Path(sys.argv[2]), framework="dlpack", **options)
    return [(b.index, batches.state_dict()) for b in batches.batches()]

assert states(device="cuda:0") == states()
going = loader(Path(sys.argv[2]), framework="dlpack", device="cuda:0")
first = iter(going.batches())
next(first), next(first)
rest = [content(b.sample_ids) for b in first]
assert len(rest) == 3
going = loader(Path(sys.argv[2]), framework="dlpack", device="cuda:0")
first = iter(going.batches())
next(first), next(first)
for options in ({"device": "cuda:0"}, {}, {"pin_memory": True}):
    resumed = loader(Path(sys.argv[2]), framework="dlpack", **options)
    resumed.load_state_dict(going.state_dict())
    assert [content(b.sample_ids) for b in resumed.batches()] == rest, options
"""
    gpu_stub.run(stub, code, small)


# ---- streams ------------------------------------------------------------------------------


def test_the_consumers_stream_waits_and_is_waited_for(stub: Path, small: Path) -> None:
    """The stream that a consumer gives waits for the batch before the capsule is made, and its place is
    recorded when the batch is let go of, on the legacy default stream for a per-thread one."""
    code = """
batches = iter(loader(Path(sys.argv[2]), framework="dlpack", device="cuda").batches())
theirs = new_stream()
kinds = [(None, 0, 0), (0, 0, 0), (1, 1, 1), (2, 2, 0), (theirs, theirs, theirs)]
for given, stream, end in kinds:
    batch = next(batches)
    (images,) = batch.images
    before = waits(stream)
    capsule = images.__dlpack__(stream=given)
    assert waits(stream) == before + 1, given
    again = images.__dlpack__(stream=given, max_version=(1, 0))
    before = records(end)
    del batch, images, capsule
    gc.collect()
    assert records(end) == before, f"{given}: a capsule is left"
    del again
    gc.collect()
    assert records(end) == before + 1, given
"""
    gpu_stub.run(stub, code, small)


def test_a_consumer_may_want_no_stream_to_wait(stub: Path, small: Path) -> None:
    """-1: the batch is complete when the capsule is made, and its memory waits for all streams."""
    code = """
batches = loader(Path(sys.argv[2]), framework="dlpack", device="cuda")
before = sum(map(waits, (0, 1, 2)))
for n, (images, labels) in enumerate(batches, 1):
    capsule = images.__dlpack__(stream=-1)
    del images, capsule
    gc.collect()
assert n == 5 and sum(map(waits, (0, 1, 2))) == before
assert cuda.stub_context_records(0) > 0
"""
    gpu_stub.run(stub, code, small)


def test_what_makes_no_sense_is_refused(stub: Path, small: Path) -> None:
    code = """
(images, _), *_ = loader(Path(sys.argv[2]), framework="dlpack", device="cuda", limit=4)
def refused(kind, part, **how):
    try:
        images.__dlpack__(**how)
    except kind as error:
        assert part in str(error), error
    else:
        raise AssertionError(how)
refused(ValueError, "stream is -2", stream=-2)
refused(bothends.DeviceError, "cuda:0: ", stream=0x123450)
refused(BufferError, "on a GPU", stream=1, dl_device=(1, 0))
refused(BufferError, "on a GPU", stream=1, copy=True)
refused(TypeError, "", stream="main")
assert images.__dlpack__(stream=1, dl_device=(2, 0), copy=False) is not None
try:
    images.__array_interface__
except AttributeError as error:
    assert "NumPy cannot read" in str(error)
else:
    raise AssertionError
assert not hasattr(images, "__array_interface__")
"""
    gpu_stub.run(stub, code, small)


CAPSULE = """
class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device", ctypes.c_int32 * 2), ("ndim", ctypes.c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64)]
DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
class Versioned(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32 * 2), ("context", ctypes.c_void_p), ("deleter", DELETER),
                ("flags", ctypes.c_uint64), ("tensor", Tensor)]
class Unversioned(ctypes.Structure):
    _fields_ = [("tensor", Tensor), ("context", ctypes.c_void_p), ("deleter", DELETER)]
python = ctypes.pythonapi
python.PyCapsule_GetPointer.restype = ctypes.c_void_p
python.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
python.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]

batches = loader(Path(sys.argv[2]), framework="dlpack", device="cuda")
nth = 0
for images, _ in batches:  # enumerate() would keep the last of them
    nth += 1
    is_versioned = nth % 2 == 1
    kind, name = (Versioned, b"dltensor_versioned") if is_versioned else (Unversioned, b"dltensor")
    capsule = images.__dlpack__(stream=1, max_version=(1, 3) if is_versioned else None)
    address = python.PyCapsule_GetPointer(capsule, name)
    managed = kind.from_address(address)
    tensor = managed.tensor
    assert list(tensor.device) == [2, 0] and tensor.data == images.data_ptr
    assert (tensor.ndim, tensor.code, tensor.bits, tensor.lanes) == (4, 1, 8, 1)
    assert tensor.shape[:4] == [4, 32, 32, 3] and tensor.strides[:4] == [3072, 96, 3, 1]
    assert tensor.byte_offset == 0
    if is_versioned:
        assert list(managed.version) == [1, 1] and managed.flags == 0
    # As a consumer does it: take it over, and give it back some time, from another thread.
    python.PyCapsule_SetName(capsule, b"used_" + name)
    del capsule, images
    gc.collect()
    before = records(1)
    import threading
    thread = threading.Thread(target=managed.deleter, args=(address,))
    thread.start(), thread.join()
    assert records(1) == before + 1
assert nth == 5
"""


def test_capsules_say_where_a_batch_is(stub: Path, small: Path) -> None:
    gpu_stub.run(stub, CAPSULE, small)


def test_memory_comes_back_and_keeping_all_of_it_is_told(stub: Path, small: Path) -> None:
    code = """
batches = loader(Path(sys.argv[2]), framework="dlpack", device="cuda", held_batches=1, repeat=4)
addresses = {images.data_ptr for images, _ in batches}
assert 1 < len(addresses) <= 3, "slots are used again"
kept = []
try:
    for images, _ in batches:
        kept.append(images)
except bothends.StarvedError as error:
    print(len(kept), error)
else:
    raise AssertionError("it cannot hold them all")
kept.clear()
batches.close()
"""
    said = gpu_stub.run(stub, code, small)
    assert said.startswith(("1 ", "2 ", "3 ")), said


def test_cupy_may_destroy_its_stream_before_the_array(stub: Path, small: Path) -> None:
    """Symptom: an event is recorded on a stream that is gone, as an array of CuPy's is freed."""
    code = """
import types
class Stream:
    ptr = 0
current = Stream()
taken = []
def from_dlpack(array):
    taken.append(array.__dlpack__(stream=current.ptr or 1))
    return array
cupy = types.ModuleType("cupy")
cupy.from_dlpack, cupy.asarray = from_dlpack, lambda array: array
cupy.cuda = types.SimpleNamespace(get_current_stream=lambda: current)
class Device:
    def __init__(self, gpu): pass
    def __enter__(self): pass
    def __exit__(self, *_): pass
cupy.cuda.Device = Device
sys.modules["cupy"] = cupy
batches = iter(loader(Path(sys.argv[2]), framework="cupy", device="cuda"))
def ends(ptr):
    'How many ends of work are recorded on a stream, and of all work, as its batch is freed.'
    current.ptr = ptr
    images, _ = next(batches)
    before = records(ptr or 1), cuda.stub_context_records(0)
    del images
    taken.clear()
    on_stream = records(ptr or 1) - before[0]
    next(batches)
    return on_stream, cuda.stub_context_records(0) - before[1]
on_default, of_all = ends(0)
assert on_default == 1 and of_all == 0, (on_default, of_all)
on_own, of_all = ends(new_stream())
assert on_own == 0 and of_all > 0, (on_own, of_all)
"""
    gpu_stub.run(stub, code, small)


def test_batches_for_all_streams_are_taken_while_a_graph_is_captured(stub: Path, small: Path) -> None:
    """Symptom: the capture is void, and the error says to update the driver, which is new enough."""
    code = """
batches = iter(loader(Path(sys.argv[2]), framework="dlpack", device="cuda"))
images, _ = next(batches)
cuda.stub_capture(1)
images.release_when_idle()
assert cuda.stub_capture(1) == 1, "the capture is void"
del images
# Now it is, since it is checked whether that batch comes back; the next one is there all the same.
images, _ = next(batches)
images.release_when_idle()
cuda.stub_capture(0)
del images
assert len(list(batches)) == 3
"""
    gpu_stub.run(stub, code, small)


@pytest.mark.parametrize("options", [{"device": "cuda"}, {"pin_memory": True}], ids=["device", "pinned"])
def test_a_closed_loader_keeps_no_memory(
    stub: Path, small: Path, options: dict[str, Any]
) -> None:
    """Pinned memory would slow down every fork of the process, and the GPU's is needed."""
    code = """
batches = loader(Path(sys.argv[2]), framework="dlpack", **eval(sys.argv[3]))
for batch in batches.batches():
    pass
MEMORY, REGISTERED = 0, 1
assert cuda.stub_alive(MEMORY) + cuda.stub_alive(REGISTERED) > 0
del batch
batches.close()
assert (cuda.stub_alive(MEMORY), cuda.stub_alive(REGISTERED)) == (0, 0)
"""
    gpu_stub.run(stub, code, small, options)


def test_tensors_outlive_their_loader(stub: Path, small: Path) -> None:
    code = """
batches = loader(Path(sys.argv[2]), framework="dlpack", device="cuda", held_batches=5)
kept = [images for images, _ in batches]
before = [content(images) for images in kept]
batches.close()
gc.collect()
assert [content(images) for images in kept] == before
again = loader(Path(sys.argv[2]), framework="dlpack", device="cuda", held_batches=5)
assert [content(images) for images, _ in again] == before
assert [content(images) for images in kept] == before
assert kept[0].__dlpack__(stream=1) is not None
"""
    gpu_stub.run(stub, code, small)


def test_a_fork_is_told_so(stub: Path, small: Path) -> None:
    code = """
import os
batches = iter(loader(Path(sys.argv[2]), framework="dlpack", device="cuda").batches())
batch = next(batches)
(images,) = batch.images
child = os.fork()
if child == 0:
    try:
        images.__dlpack__(stream=1)
    except bothends.Error as error:
        del images, batch
        gc.collect()
        os._exit(0 if "fork" in str(error) else 3)
    os._exit(4)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert images.__dlpack__(stream=1) is not None and sum(1 for _ in batches) == 4
"""
    gpu_stub.run(stub, code, small)


def test_a_fork_is_told_so_without_asking_the_driver(stub: Path, small: Path) -> None:
    """Symptom: a forked process hangs as it asks for a batch, since a thread of its parent's was inside
    the driver."""
    code = """
import os, signal
batches = iter(loader(Path(sys.argv[2]), pin_memory=True).batches())
batch = next(batches)
# The device may still read it, which the driver is asked about.
del batch
cuda.stub_hold(1)
child = os.fork()
if child == 0:
    signal.alarm(20)
    try:
        next(batches)
    except bothends.Error as error:
        os._exit(0 if "fork" in str(error) else 3)
    os._exit(4)
cuda.stub_hold(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert sum(1 for _ in batches) == 4
"""
    gpu_stub.run(stub, code, small)


# ---- pinned memory ---------------------------------------------------------------------------


def test_page_locked_batches_need_no_second_copy(stub: Path, small: Path) -> None:
    """And a slot is used again only when all work is over that was enqueued when it was let go of."""
    code = """
import numpy
plain = [image.copy() for image, _ in loader(Path(sys.argv[2]))]
batches = loader(Path(sys.argv[2]), pin_memory=True)
assert batches.stats()["path"].startswith("pinned (not p2p: ")
for _ in range(3):
    for nth, (images, labels) in enumerate(batches):
        address = images.__array_interface__["data"][0]
        assert cuda.stub_is_registered(address) == 1, nth
        assert cuda.stub_is_registered(labels.__array_interface__["data"][0]) == 0
        before = cuda.stub_context_records(0)
        assert numpy.array_equal(images, plain[nth]) or _ > 0
        del images
assert cuda.stub_context_records(0) > before
host = loader(Path(sys.argv[2]), framework="dlpack", pin_memory=True)
images, _ = next(iter(host))
assert images.__dlpack_device__() == (1, 0), "PyTorch refuses kDLCUDAHost and asks the driver"
"""
    gpu_stub.run(stub, code, small)


def test_page_locked_batches_that_are_kept_become_copies(stub: Path, small: Path) -> None:
    code = """
batches = loader(Path(sys.argv[2]), framework="dlpack", pin_memory=True, held_batches=1, repeat=2)
kept = [images for images, _ in batches]
locked = [cuda.stub_is_registered(images.data_ptr) for images in kept]
assert len(locked) == 11 and 1 <= sum(locked) < 11 and locked[0] == 1, locked
"""
    gpu_stub.run(stub, code, small)


def test_copies_that_never_end_cost_memory_and_stop_nothing(stub: Path, small: Path) -> None:
    """A slot that a GPU may still read is not used again, however long that takes."""
    code = """
batches = loader(Path(sys.argv[2]), framework="dlpack", pin_memory=True, held_batches=1, repeat=3)
seen = []
for images, _ in batches:
    seen.append((images.data_ptr, cuda.stub_is_registered(images.data_ptr)))
    del images
locked = [address for address, is_locked in seen if is_locked]
assert len(seen) == 17 and len(locked) == len(set(locked)) == 3, seen
"""
    gpu_stub.run(stub, code, small, BOTHENDS_STUB="never_reached")


def test_without_a_gpu_batches_lie_in_plain_memory(small: Path, tmp_path: Path) -> None:
    code = """
import sys, warnings
from pathlib import Path
from streams import loader
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    batches = loader(Path(sys.argv[1]), pin_memory=True)
    assert len(list(batches)) == 5 and len(list(batches)) == 5
print(*(str(w.message) for w in said), sep="\\n")
"""
    line, *more = children.run(code, small, LD_LIBRARY_PATH=str(tmp_path)).splitlines()
    if not line:
        pytest.skip("this machine has a GPU")
    assert line.startswith("bothends: host memory is not pinned: ") and not more


# ---- what `device` says -------------------------------------------------------------------


class Device:
    """As a `torch.device`."""

    def __init__(self, type: str, index: int | None = None) -> None:
        self.type, self.index = type, index


@pytest.mark.parametrize(
    ("device", "name"),
    [
        (None, None),
        ("cpu", None),
        (Device("cpu"), None),
        ("cuda", "cuda"),
        (Device("cuda"), "cuda"),
        ("cuda:1", "cuda:1"),
        (Device("cuda", 3), "cuda:3"),
        (0, "cuda:0"),
        (2, "cuda:2"),
    ],
)
def test_devices_by_their_names(device: Any, name: str | None) -> None:
    assert named(device) == name


@pytest.mark.parametrize("device", ["gpu", "cuda:", "cuda:-1", -1, True, "mps", Device("xpu", 0), 1.5])
def test_other_devices_are_refused(device: Any, small: Path) -> None:
    with pytest.raises(bothends.OptionsError, match=r"`device` is .*it must be 'cpu', 'cuda'"):
        loader(small, device=device)


@pytest.mark.parametrize(
    ("variables", "ordinal"),
    [
        ({}, 0),
        ({"LOCAL_RANK": "3"}, 3),
        ({"OMPI_COMM_WORLD_LOCAL_RANK": "2"}, 2),
        ({"LOCAL_RANK": "3", "CUDA_VISIBLE_DEVICES": "0,1,2,3"}, 3),
        ({"LOCAL_RANK": "3", "CUDA_VISIBLE_DEVICES": "3"}, 0),
    ],
)
def test_cuda_alone_is_this_ranks_gpu(variables: dict[str, str], ordinal: int) -> None:
    code = "from bothends._device import ordinal_of; print(ordinal_of('cuda'), ordinal_of('cuda:5'))"
    said = children.run(code, **{"CUDA_VISIBLE_DEVICES": "", **variables})
    assert said.split() == [str(ordinal), "5"]


def test_pytorchs_current_gpu_is_taken_where_one_was_set() -> None:
    code = """
import sys, types
cuda = types.SimpleNamespace(is_initialized=lambda: True, current_device=lambda: 2)
sys.modules["torch"] = types.SimpleNamespace(cuda=cuda)
from bothends._device import ordinal_of
print(ordinal_of("cuda"), ordinal_of("cuda:1"), ordinal_of(None))
"""
    assert children.run(code, LOCAL_RANK="1").split() == ["2", "1", "None"]


def test_a_machine_without_a_gpu_is_told_so(small: Path) -> None:
    code = """
import sys
import bothends
from pathlib import Path
from streams import loader
try:
    loader(Path(sys.argv[1]), framework="dlpack", device="cuda:0")
except bothends.DeviceError as error:
    assert error.device == "cuda:0"
    print(error)
"""
    line, *more = [*children.run(code, small).splitlines(), ""]
    if not line:
        pytest.skip("this machine has a GPU")
    assert line.startswith("cuda:0: no usable GPU: ") and more == [""], line
    assert line.endswith('; without one, deliver batches in host memory (device "cpu")'), line


def test_a_gpu_that_is_not_there_is_told_so(stub: Path, small: Path) -> None:
    code = """
for mode in ("cuda:4", 1):
    try:
        loader(Path(sys.argv[2]), framework="dlpack", device=mode)
    except bothends.DeviceError as error:
        print(error)
"""
    lines = gpu_stub.run(stub, code, small).splitlines()
    assert [line.split(":")[1] for line in lines] == ["4", "1"]
    assert all("there is no device" in line and "CUDA_VISIBLE_DEVICES" in line for line in lines)


def test_a_framework_without_gpus_is_refused(stub: Path, small: Path) -> None:
    code = """
for options in ({"framework": "numpy"}, {"framework": "jax", "sharding": object()}):
    try:
        loader(Path(sys.argv[2]), device="cuda", **options)
    except bothends.OptionsError as error:
        print(error)
"""
    numpy, sharding = gpu_stub.run(stub, code, small).splitlines()
    assert "NumPy arrays are in host memory" in numpy and "`sharding` places" in sharding
    with pytest.raises(bothends.OptionsError, match="give device='cuda'"):
        loader(small, framework="cupy")


def test_it_can_be_pickled(stub: Path, small: Path) -> None:
    code = """
import pickle
batches = loader(Path(sys.argv[2]), framework="dlpack", device="cuda")
next(iter(batches))
again = pickle.loads(pickle.dumps(batches))
assert again._options["device"] == "cuda" and len(list(again)) == 4
"""
    gpu_stub.run(stub, code, small)


# ---- with PyTorch -------------------------------------------------------------------------


def cuda_of_torch() -> Any:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if not torch.cuda.is_available():
        pytest.skip("PyTorch has no CUDA device here")
    return torch


def test_pytorch_gets_tensors_of_cuda(small: Path) -> None:
    torch = cuda_of_torch()
    plain = list(loader(small, framework="torch", output="f32"))
    for (a, b), (c, d) in zip(
        plain, loader(small, framework="torch", output="f32", device="cuda"), strict=True
    ):
        assert c.is_cuda and d.is_cuda and torch.equal(a, c.cpu()) and torch.equal(b, d.cpu())
    for images, _ in loader(small, framework="torch", pin_memory=True):
        assert images.is_pinned()


def test_pytorchs_dataloader_moves_what_python_has_finished() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    from collections import namedtuple

    from bothends._dataloader.delivery import moved

    Pair = namedtuple("Pair", "a b")
    ones = torch.ones(2)
    batch = {"x": [ones, (ones, "text")], "y": Pair(ones, None), "z": b"bytes", "n": 3}
    twice = moved(batch, lambda tensor: tensor * 2)
    assert torch.equal(twice["x"][0], 2 * ones) and torch.equal(twice["x"][1][0], 2 * ones)
    assert twice["x"][1][1] == "text" and isinstance(twice["y"], Pair) and twice["y"].b is None
    assert (twice["z"], twice["n"]) == (b"bytes", 3) and torch.equal(ones, torch.ones(2))


def test_pytorchs_dataloader_warns_once_of_no_gpu(small: Path) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("torchvision", reason="torchvision is not installed")
    if torch.cuda.is_available():
        pytest.skip("there is CUDA here")
    from loaders import numbered, ours

    made = ours(numbered(small), pin_memory=True)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert len(list(made)) == len(list(made)) == 6
    (warning,) = said
    assert "no GPU here" in str(warning.message) and not next(iter(made))[0].is_pinned()
