"""What a new user does with the wheel: a loop, then the same loop with a second prong.

    python try_wheel.py FOLDER-OF-CLASS-FOLDERS

It needs the installed package and NumPy, and no test framework: `scripts/try-wheel` runs it in
environments that are otherwise empty, of several Pythons and for the other architecture. The stream
must be the same, byte for byte, whoever makes it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import bothends

PATIENCE_S = 60


def digest(data: str, **options: Any) -> tuple[str, int]:
    """Of all batches of an epoch, and how many of them devices made."""
    digest = hashlib.sha256()
    with bothends.Loader(data, "imagenet-train", batch_size=4, last="pad", **options) as loader:
        for images, labels, mask in loader:
            assert type(images).__module__ == "numpy", type(images)
            for array in (images[mask], labels[mask]):
                digest.update(array.tobytes())
        back = sum(device["batches"] for device in loader.stats()["back"])
    return digest.hexdigest(), back


def agent(data: str, door: Path) -> subprocess.Popen[bytes]:
    program = shutil.which("bothends-agent")
    assert program is not None, "bothends-agent is not in the path"
    line = [program, "--listen", f"unix://{door}", "--data-root", data, "--cache", "off"]
    child = subprocess.Popen(line)
    ends = time.monotonic() + PATIENCE_S
    while not door.exists():
        assert child.poll() is None and time.monotonic() < ends, "the agent does not listen"
        time.sleep(0.02)
    return child


def main() -> None:
    data = sys.argv[1]
    for program in ("bothends", "bothends-agent", "firmware-sim"):
        said = subprocess.run([program, "--version"], check=True, capture_output=True, text=True)
        assert said.stdout == f"{program} {bothends.__version__}\n", said.stdout
    alone, _ = digest(data)
    emulated, made = digest(data, csds=["sim:ideal"], strategy="csd")
    assert emulated == alone and made > 0, "an emulated device makes other bytes, or nothing"
    with tempfile.TemporaryDirectory() as folder:
        door = Path(folder) / "door"
        child = agent(data, door)
        try:
            beside, made = digest(data, csds=[f"unix://{door}"], strategy="csd")
        finally:
            child.terminate()
            child.wait(PATIENCE_S)
    assert beside == alone and made > 0, "an agent makes other bytes, or nothing"
    system = os.uname()
    print(
        f"ok: bothends {bothends.__version__}, Python {sys.version.split()[0]}, {system.machine},"
        f" stream {alone[:16]}, {made} batches of an agent's"
    )


main()
