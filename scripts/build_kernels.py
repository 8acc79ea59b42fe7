"""PTX of the GPU kernels, by NVRTC through its C interface; scripts/build-kernels runs this.

The PTX is a function of the sources and of NVRTC's version, nothing else: the same bytes on
every machine. Its first line says which sources it was made of, so that a test can tell stale PTX
without NVRTC.
"""

import ctypes
import glob
import importlib.util
import pathlib
import sys

KERNELS = pathlib.Path("crates/gpu/kernels")
UNIT = "kernels.cu"
PTX = KERNELS / "bothends.ptx"
OPTIONS = [
    "--gpu-architecture=compute_75",
    "--std=c++17",
    # Included files are next to the one that includes them, or here.
    f"--include-path={KERNELS.as_posix()}",
    # No product and sum become one: results are the host's to the last bit.
    "--fmad=false",
    "--prec-div=true",
    "--prec-sqrt=true",
    "--ftz=false",
]


def sources():
    """What GPUs run: everything but the CPU's half."""
    files = [path for ending in ("*.cu", "*.cuh") for path in KERNELS.rglob(ending)]
    named = {path.relative_to(KERNELS).as_posix(): path.read_bytes() for path in files}
    return {name: named[name] for name in sorted(named) if not name.startswith("cpu/")}


def digest(named):
    """FNV-1a of all names and texts; `crates/gpu/src/twin/sources.rs` computes the same."""
    hashed = 0xCBF29CE484222325
    for name, text in named.items():
        for byte in name.encode() + b"\0" + text + b"\0":
            hashed = (hashed ^ byte) * 0x100000001B3 % 2**64
    return f"{hashed:016x}"


def nvrtc():
    [folder] = importlib.util.find_spec("nvidia.cuda_nvrtc").submodule_search_locations
    [library] = glob.glob(f"{folder}/lib/libnvrtc.so.*[0-9]")
    return ctypes.CDLL(library)


def text_of(lib, program, what):
    size = ctypes.c_size_t()
    getattr(lib, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
    text = ctypes.create_string_buffer(size.value)
    getattr(lib, f"nvrtcGet{what}")(program, text)
    return text.value.decode()


def compile_ptx(named):
    """The PTX, or an end with the compiler's messages."""
    lib = nvrtc()
    options = (ctypes.c_char_p * len(OPTIONS))(*[option.encode() for option in OPTIONS])
    program = ctypes.c_void_p()
    rc = lib.nvrtcCreateProgram(
        ctypes.byref(program), named[UNIT], UNIT.encode(), 0, None, None
    )
    if rc != 0:
        sys.exit(f"error: NVRTC takes no program (code {rc})")
    rc = lib.nvrtcCompileProgram(program, len(OPTIONS), options)
    log = text_of(lib, program, "ProgramLog").strip()
    if log:
        print(log, file=sys.stderr)
    if rc != 0:
        sys.exit(f"error: the kernels do not compile (code {rc})")
    return text_of(lib, program, "PTX")


def main():
    named = sources()
    ptx = f"// sources {digest(named)}\n" + compile_ptx(named)
    # What NVRTC calls itself may change with its packaging; what it makes does not.
    ptx = "\n".join(line for line in ptx.split("\n") if not line.startswith("// Compiler Build"))
    if "--check" not in sys.argv:
        PTX.write_text(ptx)
        print(f"{PTX}: {len(ptx)} bytes, {ptx.count('.entry')} kernels")
    elif not PTX.exists() or PTX.read_text() != ptx:
        sys.exit(f"error: {PTX} is not what the sources give; run scripts/build-kernels")
    else:
        print(f"{PTX} is what the sources give")


main()
