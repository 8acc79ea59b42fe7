"""A loader in a Python without the lock: threads take batches at once, and the lock stays off.
It needs nothing but the package; `scripts/check-python` runs it where there is such a Python."""

from __future__ import annotations

import struct
import sys
import tempfile
import threading
import zlib
from pathlib import Path

import bothends


def png(shade: int) -> bytes:
    """A grey image of 32 x 32."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        checksum = struct.pack(">I", zlib.crc32(kind + content))
        return struct.pack(">I", len(content)) + kind + content + checksum

    header = struct.pack(">IIBBBBB", 32, 32, 8, 0, 0, 0, 0)
    pixels = zlib.compress((b"\0" + bytes([shade]) * 32) * 32)
    parts = chunk(b"IHDR", header), chunk(b"IDAT", pixels), chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def take(seen: list[int], feed: object) -> None:
    for images, labels in feed:  # type: ignore[attr-defined]
        seen.append(len(labels))
        images.__dlpack__(max_version=(1, 0))


with tempfile.TemporaryDirectory() as folder:
    for n in range(64):
        place = Path(folder) / f"class{n % 4}" / f"{n}.png"
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(png(n))
    loader = bothends.Loader(folder, "cifar10-eval", batch_size=2, framework="dlpack")
    for _ in range(5):
        seen: list[list[int]] = [[], [], [], []]
        feeds = loader.consumers(4)
        threads = [
            threading.Thread(target=take, args=pair) for pair in zip(seen, feeds, strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert seen == [[2] * 8] * 4, seen
    has_lock = getattr(sys, "_is_gil_enabled", lambda: True)()
    print(
        f"{sys.version.split()[0]}: 4 threads, 5 epochs, the lock is {'on' if has_lock else 'off'}"
    )
    assert not has_lock or "free-threading" not in sys.version
