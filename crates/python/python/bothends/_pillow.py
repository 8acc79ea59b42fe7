"""Pillow as the decoder of last resort: for damaged images that it still reads, subject to
`PIL.ImageFile.LOAD_TRUNCATED_IMAGES`, and for formats without a native decoder.
"""

from __future__ import annotations

import io
import sys


def as_png(record: bytes) -> bytes:
    """The image as torchvision's loader would have it, RGB, as a PNG of its pixels.

    Raises:
        Exception: Pillow's own, if it also refuses the image.
    """
    from PIL import Image

    made = io.BytesIO()
    with Image.open(io.BytesIO(record)) as image:
        # Compression would only cost time, since the PNG is read once.
        image.convert("RGB").save(made, "PNG", compress_level=0)
    return made.getvalue()


def fills_truncated() -> bool:
    """Whether the script has told Pillow to fill in the missing part of truncated images. Pillow is
    not imported for this: a script that has not imported it cannot have done so."""
    return bool(getattr(sys.modules.get("PIL.ImageFile"), "LOAD_TRUNCATED_IMAGES", False))
