"""Small TIFF files of kinds that Pillow reads and does not write, put together byte by byte."""

import io
import random
import struct
import zlib

from PIL import Image

SHORT, LONG, RATIONAL = 3, 4, 5
FORMATS = {SHORT: "H", LONG: "I"}


def tiff(tags, parts, *, tiled=False, blobs=()):
    """A little-endian file. `tags` has values by number, with their type; `blobs` are tags whose values are
    the offsets of bytes that lie in the file."""
    body = bytearray(b"II*\0\0\0\0\0")

    def lay(data):
        body.extend(b"\0" * (len(body) % 2))
        body.extend(data)
        return len(body) - len(data)

    offsets = [lay(part) for part in parts]
    at, lengths = (324, 325) if tiled else (273, 279)
    tags = tags | {at: (LONG, offsets), lengths: (LONG, [len(part) for part in parts])}
    for number, pieces in blobs:
        tags[number] = (LONG, [lay(piece) for piece in pieces])
    entries = b""
    for number, (kind, values) in sorted(tags.items()):
        if kind == RATIONAL:
            packed = b"".join(struct.pack("<II", *value) for value in values)
        else:
            packed = struct.pack(f"<{len(values)}{FORMATS[kind]}", *values)
        inline = packed.ljust(4, b"\0") if len(packed) <= 4 else struct.pack("<I", lay(packed))
        entries += struct.pack("<HHI", number, kind, len(values)) + inline
    start = lay(struct.pack("<H", len(tags)) + entries + b"\0\0\0\0")
    body[4:8] = struct.pack("<I", start)
    return bytes(body)


def plain(width, height, photometric, n_samples, bits=8):
    return {
        256: (SHORT, [width]),
        257: (SHORT, [height]),
        258: (SHORT, [bits] * n_samples),
        262: (SHORT, [photometric]),
        277: (SHORT, [n_samples]),
    }


def ycbcr(factors, *, tile=None, studio=False, planes=None):
    """Deflated YCbCr of which several pixels share the chroma."""
    (h, v), (width, height) = factors, (21, 19)
    draw = random.Random(f"{factors} {tile}")
    columns, rows = (tile, tile) if tile else (width, 8)
    n_parts = -(-width // columns) * -(-height // rows) if tile else -(-height // rows)
    parts = []
    for nth in range(n_parts):
        n_rows = rows if tile else min(rows, height - nth * rows)
        n_blocks = -(-columns // h) * -(-n_rows // v)
        parts.append(zlib.compress(draw.randbytes(n_blocks * (h * v + 2))))
    tags = plain(width, height, 6, 3) | {259: (SHORT, [8]), 530: (SHORT, [h, v])}
    tags |= {322: (SHORT, [tile]), 323: (SHORT, [tile])} if tile else {278: (SHORT, [rows])}
    if planes is not None:
        tags[284] = (SHORT, [planes])
    if studio:
        tags[529] = (RATIONAL, [(2126, 10000), (7152, 10000), (722, 10000)])
        tags[532] = (RATIONAL, [(n, 1) for n in (16, 235, 128, 240, 128, 240)])
    return tiff(tags, parts, tiled=bool(tile))


def jpeg(image, **options):
    out = io.BytesIO()
    image.save(out, "JPEG", **options)
    return out.getvalue()


def segments(data):
    """Marker and payload of each segment up to the first scan, and the data behind its header."""
    found, at = [], 2
    while True:
        marker, length = data[at + 1], struct.unpack(">H", data[at + 2 : at + 4])[0]
        found.append((marker, data[at + 4 : at + 2 + length]))
        at += 2 + length
        if marker == 0xDA:
            return found, data[at:-2]


def old_jpeg(image, *, in_tables):
    width, height = image.size
    data = jpeg(image, quality=70, subsampling="4:2:0")
    tags = plain(width, height, 6, 3) | {259: (SHORT, [6]), 530: (SHORT, [2, 2])}
    tags |= {512: (SHORT, [1]), 278: (SHORT, [height])}
    if not in_tables:
        # As some writers have it: a scan of no more than the first coefficient.
        data = data.replace(b"\x03\x11\x00\x3f\x00", b"\x03\x11\x00\x00\x00", 1)
        # The only strip is the file itself, right after the TIFF's header.
        return tiff(tags | {513: (LONG, [8]), 514: (LONG, [len(data)])}, [data])
    found, scan = segments(data)
    q = [payload[1:] for marker, payload in found if marker == 0xDB]
    codes = {payload[0]: payload[1:] for marker, payload in found if marker == 0xC4}
    blobs = [
        (519, [q[0], q[1], q[1]]),
        (520, [codes[0], codes[1], codes[1]]),
        (521, [codes[0x10], codes[0x11], codes[0x11]]),
    ]
    return tiff(tags, [scan], blobs=blobs)


def premultiplied(bits):
    width, height, draw = 9, 5, random.Random(bits)
    planes = [zlib.compress(draw.randbytes(width * height * bits // 8)) for _ in range(4)]
    tags = plain(width, height, 2, 4, bits) | {259: (SHORT, [8]), 278: (SHORT, [height])}
    return tiff(tags | {284: (SHORT, [2]), 338: (SHORT, [1])}, planes)


def saved(image, **options):
    out = io.BytesIO()
    image.save(out, "TIFF", **options)
    return out.getvalue()


def all_of_them(image):
    """Name and bytes of each; `image` is a small picture."""
    image = image.convert("RGB")
    black = image.convert("1")
    yield from (
        (f"ycbcr{h}{v}", ycbcr((h, v)))
        for h, v in [(1, 1), (2, 1), (2, 2), (4, 1), (4, 2), (4, 4), (1, 2)]
    )
    yield "ycbcr22-tiled", ycbcr((2, 2), tile=16, studio=True)
    yield "ycbcr22-no-planes", ycbcr((2, 2), planes=0)
    yield "ycbcr21-studio", ycbcr((2, 1), studio=True)
    yield "old-jpeg", old_jpeg(image, in_tables=False)
    yield "old-jpeg-tables", old_jpeg(image, in_tables=True)
    yield "inks-jpeg", saved(image.convert("CMYK"), compression="jpeg", quality=60)
    yield "premultiplied8", premultiplied(8)
    yield "premultiplied16", premultiplied(16)
    yield "group3", saved(black, compression="group3")
    yield "group3-2d", saved(black, compression="group3", tiffinfo={292: 1})
    yield "group3-filled", saved(black, compression="group3", tiffinfo={292: 4})
    yield "runs", saved(black, compression="tiff_ccitt")
    yield "lab", saved(Image.frombytes("LAB", image.size, image.tobytes()))
