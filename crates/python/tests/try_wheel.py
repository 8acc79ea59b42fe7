"""What a new user does with the wheel: a loop, then the same loop with a second prong.

    python try_wheel.py FOLDER-OF-CLASS-FOLDERS

It needs the installed package and NumPy, and no test framework: `scripts/try-wheel` runs it in
environments that are otherwise empty, of several Pythons and for the other architecture. The samples
must be the same, byte for byte, whoever makes them.
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
    """Of all samples of an epoch in any order, and how many batches devices made. (With the
    strategy "csd" they make all, and begin at the epoch's end.)"""
    samples = []
    with bothends.Loader(data, "imagenet-train", batch_size=4, last="pad", **options) as loader:
        for images, labels, mask in loader:
            assert type(images).__module__ == "numpy", type(images)
            for image, label in zip(images[mask], labels[mask], strict=True):
                samples.append(hashlib.sha256(image.tobytes() + label.tobytes()).digest())
        back = sum(device["batches"] for device in loader.stats()["back"])
    return hashlib.sha256(b"".join(sorted(samples))).hexdigest(), back


def made_by_device(data: str, device: str, alone: str) -> int:
    """Batches that a device made, the same ones as the host's. On a busy machine the host may make a
    short epoch again before the device has begun: then another epoch is run."""
    ends = time.monotonic() + PATIENCE_S
    made = 0
    while made == 0:
        assert time.monotonic() < ends, f"{device} makes nothing"
        samples, made = digest(data, csds=[device], strategy="csd")
        assert samples == alone, f"{device} makes other bytes"
    return made


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
    made_by_device(data, "sim:ideal", alone)
    with tempfile.TemporaryDirectory() as folder:
        door = Path(folder) / "door"
        child = agent(data, door)
        try:
            made = made_by_device(data, f"unix://{door}", alone)
        finally:
            child.terminate()
            child.wait(PATIENCE_S)
    system = os.uname()
    print(
        f"ok: bothends {bothends.__version__}, Python {sys.version.split()[0]}, {system.machine},"
        f" samples {alone[:16]}, {made} batches of an agent's"
    )


main()
