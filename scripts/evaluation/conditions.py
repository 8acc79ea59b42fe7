"""What runs are made with. Each result keeps it, so that none is shown as that of other data or options.

Strategy, device, accelerator and workers are not here: they are the cell, by which results are found.
"""

import hashlib
import os
import platform
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent))
from machine import cpuinfo, kernel_level  # noqa: E402

UNTOLD = "an earlier version wrote them and did not keep what they were made with"


def files(path):
    """(name, bytes, time of modification) of every file, through links, each folder once."""
    seen = set()
    for folder, folders, names in os.walk(path, followlinks=True):
        about = os.stat(folder)
        if (about.st_dev, about.st_ino) in seen:
            folders.clear()
            continue
        seen.add((about.st_dev, about.st_ino))
        # Of two names of a folder the same one is followed every time.
        folders.sort()
        for name in names:
            file = os.path.join(folder, name)
            about = os.stat(file) if os.path.exists(file) else os.lstat(file)
            yield os.path.relpath(file, path), about.st_size, about.st_mtime_ns


def data_set(path):
    """A path, and what tells the files below it from others. They are not read, as data sets are
    large: a file with another content has another size or another time of modification."""
    path = Path(path).resolve()
    if path.is_file():
        about = path.stat()
        found = [(path.name, about.st_size, about.st_mtime_ns)]
    else:
        found = sorted(files(path))
    digest = hashlib.sha256(repr(found).encode("utf-8", "surrogateescape")).hexdigest()
    n_bytes = sum(size for _, size, _ in found)
    return {"path": str(path), "n_files": len(found), "len_bytes": n_bytes, "digest": digest}


def program(bothends):
    """A digest of the program and of firmware-sim, which is the emulated device."""
    device = os.environ.get("BOTHENDS_FIRMWARE_SIM") or bothends.resolve().parent / "firmware-sim"
    digest = hashlib.sha256()
    for path in (bothends, Path(device)):
        if path.is_file():
            digest.update(path.read_bytes())
    return digest.hexdigest()


def machine():
    """Without the clock, which every measurement finds a little different."""
    info = cpuinfo()
    kernels = kernel_level(info, platform.machine(), os.environ.get("BOTHENDS_KERNELS", ""))
    name = info.get("model name") or platform.machine()
    return f"{name}, kernels {kernels}, Linux {platform.release()}"


def of_all(bothends, seconds, processors):
    """What all runs have in common; the data are those of a recipe."""
    return {
        "seconds": seconds,
        "processors": processors,
        "machine": machine(),
        "program": program(bothends),
    }


def told(value):
    """A condition for people."""
    if isinstance(value, dict):
        return f"{value['path']} with {value['n_files']:,} files, {value['len_bytes']:,} bytes"
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def differences(recipe, made, now):
    """What `made` has otherwise than `now`, in words."""
    if made is None:
        return [UNTOLD]
    found = []
    for name, value in now.items():
        before = made.get(name)
        if before == value:
            continue
        if name == "program":
            found.append("another program made them")
        elif name == "data" and told(before) == told(value):
            found.append(f"{recipe}: files in {value['path']} have changed since")
        else:
            of = recipe if name == "data" else name
            found.append(f"{of}: {told(before)}; now {told(value)}")
    return found
