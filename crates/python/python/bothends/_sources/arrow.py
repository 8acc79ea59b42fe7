"""Finds the bytes of an Arrow table's column on disk.

A table loaded by Hugging Face's `datasets` is memory-mapped. The offset of an image in its file is
its address minus that of the map, and the kernel says which file is mapped.
"""

from __future__ import annotations

import bisect
import os
import sys
from dataclasses import dataclass
from typing import Any

from .records import Unknown

# Samples that are read from the files and compared with the table.
_COMPARED = 16
_SIGNATURES = (
    b"\xff\xd8\xff",
    b"\x89PNG\r\n\x1a\n",
    *(b"BM", b"P1", b"P2", b"P3", b"P4", b"P5", b"P6", b"Pf", b"GIF87a", b"GIF89a", b"RIFF"),
    *(b"II\x2a\0", b"MM\0\x2a", b"II\x2b\0"),
)


@dataclass(frozen=True)
class Pieces:
    """Pieces of files, one per row.

    Attributes:
        files: each row's file.
        extents: offset and length of each row in its file.
    """

    files: list[str]
    extents: list[tuple[int, int]]


def column_pieces(column: Any, rows: Any) -> Pieces | list[str] | None:
    """Where the images of a column are: parts of files, or separate files.

    Args:
        column: a `pyarrow.ChunkedArray` of bytes, of paths, or of both as `datasets` has them.
        rows: an array of the rows to find, in order; None for all.

    Returns:
        None if some bytes are not in a file, so that rows can only be requested one by one.

    Raises:
        Unknown: a row has no image, or the column holds none.
    """
    # A table of it exists.
    pa: Any = sys.modules["pyarrow"]
    binary = _binary(column, pa)
    if binary is None or binary.null_count == len(binary):
        return _paths(column, rows, pa)
    if binary.null_count:
        return None
    pieces = _pieces(binary, rows)
    return pieces if pieces is None or _is_true(pieces, binary, rows) else None


def _binary(column: Any, pa: Any) -> Any:
    kind = column.type
    if pa.types.is_struct(kind) and kind.get_field_index("bytes") >= 0:
        chunks = [_child(chunk, "bytes") for chunk in column.chunks]
        return pa.chunked_array(chunks, kind.field("bytes").type)
    is_bytes = pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
    return column if is_bytes else None


def _child(chunk: Any, name: str) -> Any:
    """A field of a struct. If a whole row is null, so are its fields."""
    if chunk.null_count:
        return chunk.flatten()[chunk.type.get_field_index(name)]
    return chunk.field(name)


def _paths(column: Any, rows: Any, pa: Any) -> list[str]:
    kind = column.type
    if pa.types.is_struct(kind) and kind.get_field_index("path") >= 0:
        chunks = [_child(chunk, "path") for chunk in column.chunks]
        column = pa.chunked_array(chunks, kind.field("path").type)
    elif not pa.types.is_string(kind) and not pa.types.is_large_string(kind):
        raise Unknown(f"the column is of type {kind}, which holds no images")
    paths: list[Any] = (column if rows is None else column.take(rows)).to_pylist()
    if None in paths:
        raise Unknown(f"row {paths.index(None)} has no image", "filter such rows out")
    return paths


def _pieces(binary: Any, rows: Any) -> Pieces | None:
    import numpy as np

    maps = _Maps()
    files: list[str] = []
    starts, lengths, owners = [], [], []
    for chunk in binary.chunks:
        if len(chunk) == 0:
            continue
        _, offsets, data = chunk.buffers()
        width = np.int64 if str(chunk.type) == "large_binary" else np.int32
        ends = np.frombuffer(offsets, width)[chunk.offset : chunk.offset + len(chunk) + 1]
        ends = ends.astype(np.int64)
        place = maps.place(data.address + int(ends[0]), int(ends[-1] - ends[0]))
        if place is None:
            return None
        owners.append(np.full(len(chunk), len(files)))
        files.append(place[0])
        starts.append(ends[:-1] - ends[0] + place[1])
        lengths.append(np.diff(ends))
    if not files:
        return None
    start, length, owner = map(np.concatenate, (starts, lengths, owners))
    if rows is not None:
        order = rows.to_numpy(zero_copy_only=False)
        start, length, owner = start[order], length[order], owner[order]
    extents = list(zip(start.tolist(), length.tolist(), strict=True))
    return Pieces([files[n] for n in owner.tolist()], extents)


class _Maps:
    """The files mapped into this process."""

    def __init__(self) -> None:
        self._maps: list[tuple[int, int, int, str]] = []
        try:
            with open("/proc/self/maps", "rb") as lines:
                for line in lines:
                    self._read(os.fsdecode(line))
        except OSError:
            # Not Linux: no map is known.
            pass

    def place(self, address: int, length: int) -> tuple[str, int] | None:
        """File and offset of these bytes, if they are within one map of a file."""
        n = bisect.bisect_right(self._maps, address, key=lambda one: one[0]) - 1
        if n < 0:
            return None
        start, end, offset, file = self._maps[n]
        if address + length > end:
            return None
        return file, address - start + offset

    def _read(self, line: str) -> None:
        parts = line.rstrip("\n").split(maxsplit=5)
        # The kernel writes a newline in a name as \012; such names are not supported.
        if len(parts) < 6 or parts[5][:1] != "/" or "\\" in parts[5]:
            return
        start, end = (int(part, 16) for part in parts[0].split("-"))
        self._maps.append((start, end, int(parts[2], 16), parts[5]))


def _is_true(pieces: Pieces, binary: Any, rows: Any) -> bool:
    """Whether the files contain what the table does: a map may belong to a file that was replaced.

    Raises:
        Unknown: the images are of a format that is not decoded.
    """
    n = len(pieces.files)
    for i in sorted({k * (n - 1) // (_COMPARED - 1) for k in range(_COMPARED)}):
        offset, length = pieces.extents[i]
        try:
            with open(pieces.files[i], "rb") as file:
                file.seek(offset)
                content = file.read(length)
        except OSError:
            return False
        row = i if rows is None else rows[i].as_py()
        if content != binary[row].as_py():
            return False
        if not content.startswith(_SIGNATURES):
            raise Unknown(f"row {i} has a format that is not read", "convert it to PNG")
    return True
