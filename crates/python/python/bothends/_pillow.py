"""Pillow as the decoder of last resort: of damaged images that it reads nevertheless, as
`PIL.ImageFile.LOAD_TRUNCATED_IMAGES` says, and of formats that the native decoders do not have.
"""

from __future__ import annotations

import io
import sys


def as_png(record: bytes) -> bytes:
    """The image as torchvision's loader would have it, RGB, as a PNG of its pixels.

    Raises:
        Exception: Pillow's own, where it refuses the image, too.
    """
    from PIL import Image

    made = io.BytesIO()
    with Image.open(io.BytesIO(record)) as image:
        # Compression would only cost time: the PNG is read once.
        image.convert("RGB").save(made, "PNG", compress_level=0)
    return made.getvalue()


def fills_truncated() -> bool:
    """Whether the script has told Pillow to fill in what truncated images lack. Pillow is not
    imported for that: without it nobody has."""
    return bool(getattr(sys.modules.get("PIL.ImageFile"), "LOAD_TRUNCATED_IMAGES", False))
