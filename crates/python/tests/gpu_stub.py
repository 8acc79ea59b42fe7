"""A stub of NVIDIA's driver for machines without a GPU, its "device memory" being the host's: the same
that the tests of `crates/gpu` use. It takes a C compiler; where it shall run kernels, a C++ one.

Programs with `PREAMBLE` in front see the stub's own functions as `cuda`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

import children

GPU = Path(__file__).parents[2] / "gpu"

# What makes the kernels' C++ mean what CUDA means; without optimising, which takes longest.
_FLAGS = "-std=c++17 -O0 -fwrapv -ffp-contract=off -fno-strict-aliasing -fPIC -shared -DBOTHENDS_CPU"

PREAMBLE = """
import ctypes, gc, sys
from pathlib import Path
cuda = ctypes.CDLL("libcuda.so")
cuda.stub_noted.argtypes = [ctypes.c_size_t, ctypes.c_int]
cuda.stub_is_registered.argtypes = [ctypes.c_size_t]
sys.path.insert(0, sys.argv[1])
import bothends
from streams import loader

def waits(stream):
    return cuda.stub_noted(stream, 0)

def records(stream):
    return cuda.stub_noted(stream, 1)

def content(array):
    'What is in the "device memory" of an array that is dense.'
    sizes = {"uint8": 1, "float16": 2, "bfloat16": 2, "float32": 4, "int64": 8}
    n = sizes[array.dtype]
    for length in array.shape:
        n *= length
    return ctypes.string_at(array.data_ptr, n)

def new_stream():
    'A stream as another library makes it, in the primary context.'
    context, before, stream = (ctypes.c_void_p() for _ in range(3))
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 7) == 0
    assert cuda.cuCtxGetCurrent(ctypes.byref(before)) == 0
    assert cuda.cuCtxSetCurrent(context) == 0
    assert cuda.cuStreamCreate(ctypes.byref(stream), 1) == 0
    assert cuda.cuCtxSetCurrent(before) == 0
    return stream.value
"""


def built(folder: Path) -> Path:
    """The folder with the stub as `libcuda.so`; the test is skipped without a C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("the stub of NVIDIA's driver needs a C compiler (cc)")
    library = folder / "libcuda.so"
    line = [compiler, "-shared", "-fPIC", "-pthread", "-o", library]
    subprocess.run([*line, GPU / "tests" / "stub" / "cuda.c", "-ldl"], check=True)
    return folder


def kernels(folder: Path) -> Path:
    """The kernels as a library of the CPU; the test is skipped without a C++ compiler."""
    compiler = os.environ.get("CXX") or shutil.which("c++")
    if compiler is None:
        pytest.skip("the kernels need a C++ compiler (c++) to run without a GPU")
    library = folder / "kernels.so"
    source = GPU / "kernels" / "cpu" / "library.cpp"
    subprocess.run([compiler, *_FLAGS.split(), source, "-o", library], check=True)
    return library


def run(stub: Path, code: str, *arguments: object, **variables: str) -> str:
    """What the code prints when it runs with the stub; it must succeed."""
    path = f"{stub}:{os.environ.get('LD_LIBRARY_PATH', '')}"
    said = {"LD_LIBRARY_PATH": path, "CUDA_VISIBLE_DEVICES": "", **variables}
    return children.run(PREAMBLE + code, Path(__file__).parent, *arguments, **said)
