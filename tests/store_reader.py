#!/usr/bin/env python3
"""Reads a store in plain Python and NumPy: what docs/store-format.md says, once more.

    tests/store_reader.py STORE                   reads all of it and prints what is in it
    tests/store_reader.py STORE --check SOURCE    compares it with the data it was packed from
    tests/store_reader.py STORE --copies          takes manifest and indices from their copies

Written from docs/store-format.md and section 7 of docs/numbers.md; it shares no line with
the Rust code. Every checksum is compared, every sample's label, name and metadata are read,
the coefficients of every JPEG become pixels, which must be Pillow's, and every original
file is made again. With `--check` the files must be those under SOURCE, byte for byte.
Damage is said in one line each; the exit status is then 1. It writes nothing, and it is slow.

NumPy, Pillow and xxhash come from PyPI into .venv, once; after that no network is needed.
"""

import argparse
import collections
import importlib.util
import io
import json
import os
import struct
import subprocess
import sys
import venv
from pathlib import Path

VENV = Path(__file__).resolve().parent.parent / ".venv"
PACKAGES = {"numpy": "2.3.5", "pillow": "12.3.0", "xxhash": "3.6.0"}

PAGE = 4096
HEADER = 48
BYTES, BLOCKS, REST = 0, 1, 2
GREY, YCBCR, RGB, CMYK, YCCK = range(5)
N_COMPONENTS = {GREY: 1, YCBCR: 3, RGB: 3, CMYK: 4, YCCK: 4}

# The natural place (row * 8 + column) of each coefficient in zigzag order: down every odd
# diagonal, up every even one.
ZIGZAG = sorted(
    range(64),
    key=lambda p: (p // 8 + p % 8, p // 8 if (p // 8 + p % 8) % 2 else p % 8),
)


def installed():
    """Whether this Python has the packages; their versions do not matter to what is read."""
    return all(importlib.util.find_spec(name) for name in ("numpy", "PIL", "xxhash"))


def start_in_venv():
    """Starts this script again where the packages are, after installing what is missing."""
    python = VENV / "bin" / "python"
    if Path(sys.prefix).resolve() == VENV.resolve() or not python.exists():
        pins = [f"{package}=={version}" for package, version in PACKAGES.items()]
        print(f"installing {' '.join(pins)} from PyPI into {VENV}", file=sys.stderr)
        if not python.exists():
            venv.create(VENV, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *pins], check=True)
    os.execv(python, [python, *sys.argv])


if not installed():
    start_in_venv()

import numpy as np  # noqa: E402
import PIL.Image  # noqa: E402
import xxhash  # noqa: E402


class Damaged(ValueError):
    """What was read is not what the format allows, or has a different checksum."""


def need(condition, why):
    if not condition:
        raise Damaged(why)


def checksum(data):
    return xxhash.xxh3_64_intdigest(data)


def take(layout, data, at=0):
    """Unpacks a little-endian layout; a Damaged instead of struct's error."""
    need(at + struct.calcsize("<" + layout) <= len(data), "it is cut short")
    return struct.unpack_from("<" + layout, data, at)


# ---- section 1: the manifest


def read_manifest(path):
    text = path.read_bytes()
    need(len(text) <= 1 << 26, "it is too long")
    manifest = json.loads(text)
    need(isinstance(manifest, dict) and "hash" in manifest, "it is not a manifest")
    stated = manifest.pop("hash")
    canonical = json.dumps(
        manifest, sort_keys=True, separators=(",", ":"), ensure_ascii=False
    )
    need(stated == f"{checksum(canonical.encode()):016x}", "it has a different hash")
    need(manifest["format"] == "bothends store", "its format is another")
    need(manifest["version"] == 1, f"version {manifest['version']} is not known")
    need(manifest["features"] == [], f"features {manifest['features']} are not known")
    need(
        manifest["samples"] == sum(shard["samples"] for shard in manifest["shards"]),
        "the shards have a different number of samples",
    )
    return manifest


def first_whole(readers, complain):
    """What the first of several readers gives: of files that say the same one is enough."""
    failures = []
    for path, reader in readers:
        try:
            return reader(path)
        except (ValueError, OSError) as error:
            failures.append(error)
            complain(f"{path.name}: {error}")
    raise failures[-1]


# ---- section 2: a shard

Record = collections.namedtuple(
    "Record",
    "page length kind label name original began checksum metadata head",
)


class Index:
    def __init__(self, data):
        count, *lengths = take("6I", data)
        n_profiles, n_heads, n_names, names, metadata = lengths
        self.rest = memoryview(data)[24:]
        lines = self.section(48 * count)
        self.profiles = self.section(n_profiles)
        self.heads = self.section(n_heads)
        ends = np.frombuffer(self.section(4 * n_names), "<u4")
        names, metadata = self.section(names), self.section(metadata)
        need(not self.rest, "the index is longer than its sections")
        self.names = [str(name, "utf-8") for name in cut(names, ends)]
        fields = [take("IIB3xIIIQQII", lines, 48 * i) for i in range(count)]
        of_records = zip(
            fields,
            cut(metadata, [f[8] for f in fields]),
            cut(self.heads, [f[9] for f in fields]),
        )
        self.records = [Record(*f[:8], bytes(m), bytes(h)) for f, m, h in of_records]
        self.check()

    def section(self, length):
        need(length <= len(self.rest), "the index is cut short")
        section, self.rest = self.rest[:length], self.rest[length:]
        return section

    def check(self):
        page = 1
        for record in self.records:
            need(record.page == page, "there is a gap between records")
            need(record.kind in (BYTES, BLOCKS, REST), f"kind {record.kind} is not known")
            need((record.kind == BLOCKS) == bool(record.head), "a head is amiss")
            need(record.name < len(self.names), "a record has no name")
            if record.metadata:
                json.loads(record.metadata)
            page += -(-record.length // PAGE)
        self.end = page * PAGE


def cut(data, ends):
    """The parts of a section by where each ends."""
    at, parts = 0, []
    for end in map(int, ends):
        need(at <= end <= len(data), "an end lies outside its section")
        parts.append(data[at:end])
        at = end
    need(at == len(data), "a section is longer than its parts")
    return parts


def read_header(data):
    need(len(data) >= HEADER, "it is cut short")
    magic, version, flags, at, length, index_sum, own_sum = take("8sIIQQQQ", data)
    need(magic == b"BESHARD\0", "it is not a shard")
    need(own_sum == checksum(data[:40]), "the checksum of its header does not match")
    need(version == 1 and flags == 0, f"version {version}, flags {flags} are not known")
    return at, length, index_sum


def read_index(entry, beside):
    """A reader of a shard's index: in the shard, or right behind the header in its copy."""

    def reader(path):
        with path.open("rb") as file:
            at, length, index_sum = read_header(file.read(HEADER))
            file.seek(HEADER if beside else at)
            data = file.read(length)
        need(checksum(data) == index_sum, "the checksum of its index does not match")
        need(entry["index_checksum"] == f"{index_sum:016x}", "it is another shard's index")
        index = Index(data)
        need(index.end == at and at + length == entry["bytes"], "lengths do not agree")
        samples = sum(record.kind != REST for record in index.records)
        need(samples == entry["samples"], "it has a different number of samples")
        return index

    return reader


class Store:
    """Manifest and indices of a store; `damage` holds a line for all that was amiss."""

    def __init__(self, folder, only_copies):
        self.folder, self.damage = folder, []
        paths = [folder / "store.json", folder / "store.copy.json"][only_copies:]
        self.manifest = first_whole([(p, read_manifest) for p in paths], self.damage.append)
        self.shards = []
        for entry in self.manifest["shards"]:
            shard = folder / f"{entry['name']}.shard"
            readers = [
                (shard, read_index(entry, beside=False)),
                (folder / f"{entry['name']}.index", read_index(entry, beside=True)),
            ][only_copies:]
            self.shards.append((shard, first_whole(readers, self.damage.append)))

    def records(self):
        """Every record with its index, what is stored, and the words that name it."""
        for path, index in self.shards:
            with path.open("rb") as file:
                for number, record in enumerate(index.records):
                    file.seek(record.page * PAGE)
                    pages = file.read(-(-record.length // PAGE) * PAGE)
                    where = f"{path.name} record {number} (`{index.names[record.name]}`)"
                    yield where, index, record, pages


# ---- sections 3 and 4: a record of blocks


class Component:
    def __init__(self, h, v, steps):
        self.h, self.v, self.steps = h, v, steps


class Head:
    def __init__(self, index, record):
        head = record.head
        self.rows, self.columns, profile, unit = take("HHIH", head)
        self.wide, unit = unit >> 15, unit & 0x7FFF
        self.group_lengths = [length * unit for length in head[10:]]
        need(all(self.group_lengths), "a row group without bytes")
        self.colour, n, n_tables = take("BBB", index.profiles, profile)
        need(n == N_COMPONENTS.get(self.colour), "components and colour do not agree")
        at = profile + 3 + 3 * n
        tables = [
            np.array(take("64H", index.profiles, at + 128 * i), np.int64).reshape(8, 8)
            for i in range(n_tables)
        ]
        shapes = [take("BBB", index.profiles, profile + 3 + 3 * i) for i in range(n)]
        need(all(0 < h < 5 and 0 < v < 5 and t < n_tables for h, v, t in shapes), "a factor")
        self.components = [Component(h, v, tables[t]) for h, v, t in shapes]
        self.h_max = max(c.h for c in self.components)
        self.v_max = max(c.v for c in self.components)
        self.across = -(-self.columns // (8 * self.h_max))
        self.down = -(-self.rows // (8 * self.v_max))
        self.rows_of_group = -(-2 // self.v_max)
        groups = -(-self.down // self.rows_of_group)
        need(len(self.group_lengths) == groups, "the head has a different number of groups")


def read_coefficients(head, data):
    """Per component blocks down x across x 8 x 8, quantised."""
    coefficients = [
        np.zeros((head.down * c.v, head.across * c.h, 8, 8), np.int64)
        for c in head.components
    ]
    at = 0
    for number, length in enumerate(head.group_lengths):
        need(at + length <= len(data), "a row group is cut short")
        first = number * head.rows_of_group
        last = min(first + head.rows_of_group, head.down)
        read_group(head, data[at : at + length], range(first, last), coefficients)
        at += length
    return coefficients, data[at:]


def read_group(head, group, mcu_rows, coefficients):
    need(take("I", group)[0] == checksum(group[4:]) & 0xFFFFFFFF, "a group's checksum")
    rows = [
        (blocks, mcu_row * c.v + v)
        for mcu_row in mcu_rows
        for c, blocks in zip(head.components, coefficients)
        for v in range(c.v)
    ]
    lengths = take(f"{len(rows)}{'I' if head.wide else 'H'}", group, 4)
    at = 4 + (4 if head.wide else 2) * len(rows)
    for (blocks, row), length in zip(rows, lengths):
        need(at + length <= len(group), "a block row is cut short")
        block_row = group[at : at + length]
        end = 0
        for block in blocks[row]:
            end = read_block(block_row, end, block.reshape(64))
        need(end == length, "a block row ends elsewhere than its length says")
        at += length
    need(not any(group[at:]), "a group is not filled with zeros")


def read_block(data, at, block):
    """Reads the block at `at` into `block`, row by row; returns where the next one begins."""
    fields = int.from_bytes(data[at : at + 3], "little")
    mask_length, w0, w1 = fields >> 12 & 15, fields >> 16 & 15, fields >> 20
    need(mask_length <= 8 and w0 <= 9 and w1 <= 8, "a block's header")
    block[0] = signed(fields & 0xFFF, 12)
    at += 3
    mask_bytes = data[at : at + mask_length]
    mask = int.from_bytes(mask_bytes, "little")
    need(mask < 1 << 63 and (not mask_bytes or mask_bytes[-1]), "a block's mask")
    at += mask_length
    places = [ZIGZAG[k] for k in range(1, 64) if mask >> (k - 1) & 1]
    n, n0 = len(places), min(len(places), 8)
    need(bool(w0) == (n > 0) and bool(w1) == (n > 8), "a block's widths")
    widths = [min(w0, 8)] * n0 + [w1] * (n - n0)
    length = -(-sum(widths) // 8)
    values = int.from_bytes(data[at : at + length], "little")
    at += length
    for place, width in zip(places, widths):
        u = signed(values & (1 << width) - 1, width)
        block[place] = u if u < 0 else signed(u + 1, 8)
        values >>= width
    need(values == 0, "a block's last bits")
    if w0 == 9:
        need(at < len(data), "a block is cut short")
        for i in range(data[at]):
            place, value = take("Bh", data, at + 1 + 3 * i)
            need(1 <= place <= 63, "an exception's place")
            need(abs(value) > 127 and block[place] == (127 if value > 0 else -127), "exception")
            block[place] = value
        at += 1 + 3 * data[at]
    need(at <= len(data), "a block is cut short")
    return at


def signed(u, bits):
    return u - (1 << bits) if u >> (bits - 1) else u


# ---- docs/numbers.md, section 7: from coefficients to pixels

def wrapped(values):
    """Modulo 2^16, signed."""
    return (values + 32768 & 65535) - 32768


def inverse_pass(x, shift):
    """One pass of the inverse DCT: eight arrays become eight."""
    a, b = 8192 * wrapped(x[0] + x[4]), 8192 * wrapped(x[0] - x[4])
    c, d = 10703 * x[2] + 4433 * x[6], 4433 * x[2] - 10704 * x[6]
    s, r = wrapped(x[3] + x[7]), wrapped(x[1] + x[5])
    p, q = 9633 * s + 6437 * r, 9633 * r - 6436 * s
    even = [a + c, b + d, b - d, a - c]
    odd = [
        4926 * x[1] - 7373 * x[7] + p,
        4177 * x[3] - 20995 * x[5] + q,
        -4176 * x[5] - 20995 * x[3] + p,
        -4927 * x[7] - 7373 * x[1] + q,
    ]
    sums = [e + o for e, o in zip(even, odd)] + [e - o for e, o in zip(even, odd)][::-1]
    return [np.clip((v + (1 << shift >> 1)) >> shift, -32768, 32767) for v in sums]


def plane_of(head, component, coefficients):
    """Samples of a component, cut to its own size."""
    down, across = coefficients.shape[:2]
    rows = np.moveaxis(wrapped(coefficients * component.steps), 2, 0)
    columns = np.stack(inverse_pass(rows, 11), 2)
    flat = ~coefficients[:, :, 1:].any((2, 3))
    columns[flat] = wrapped(4 * rows[0][flat])[:, None]
    pixels = np.stack(inverse_pass(np.moveaxis(columns, 3, 0), 18), 3)
    plane = np.clip(pixels + 128, 0, 255).transpose(0, 2, 1, 3).reshape(down * 8, across * 8)
    rows = -(-head.rows * component.v // head.v_max)
    return plane[:rows, : -(-head.columns * component.h // head.h_max)]


def towards(plane, axis, step):
    """Each sample's neighbour before (-1) or behind (1) it; at the border the sample itself."""
    last = plane.shape[axis] - 1
    return plane.take(np.clip(np.arange(last + 1) + step, 0, last), axis)


def interleave(before, behind, axis):
    return np.stack([before, behind], axis + 1).reshape(
        [n * 2 if i == axis else n for i, n in enumerate(before.shape)]
    )


def upsampled(head, component, plane):
    across, down = head.h_max // component.h, head.v_max // component.v
    need(component.h * across == head.h_max, "a factor that is no whole number")
    need(component.v * down == head.v_max, "a factor that is no whole number")
    if (across, down) == (1, 2):
        sums = [3 * plane + towards(plane, 0, step) for step in (-1, 1)]
        plane = interleave((sums[0] + 1) >> 2, (sums[1] + 2) >> 2, 0)
    elif (across, down) == (2, 1) and plane.shape[1] > 2:
        sums = [3 * plane + towards(plane, 1, step) for step in (-1, 1)]
        plane = interleave((sums[0] + 1) >> 2, (sums[1] + 2) >> 2, 1)
    elif (across, down) == (2, 2) and plane.shape[1] > 2:
        tall = interleave(*(3 * plane + towards(plane, 0, step) for step in (-1, 1)), 0)
        sums = [3 * tall + towards(tall, 1, step) for step in (-1, 1)]
        plane = interleave((sums[0] + 8) >> 4, (sums[1] + 7) >> 4, 1)
    else:
        plane = plane.repeat(down, 0).repeat(across, 1)
    return plane[: head.rows, : head.columns]


def pixels_of(head, coefficients):
    """Rows x columns x red, green and blue."""
    planes = [
        upsampled(head, c, plane_of(head, c, values))
        for c, values in zip(head.components, coefficients)
    ]
    if head.colour in (YCBCR, YCCK):
        y, b, r = planes[0], planes[1] - 128, planes[2] - 128
        red = y + ((91881 * r + 32768) >> 16)
        green = y + ((32768 - 22554 * b - 46802 * r) >> 16)
        blue = y + ((116130 * b + 32768) >> 16)
        planes[:3] = [np.clip(channel, 0, 255) for channel in (red, green, blue)]
    if head.colour == CMYK:
        planes[:3] = [255 - plane for plane in planes[:3]]
    if head.colour in (CMYK, YCCK):
        *inks, k = planes
        products = [ink * k + 128 for ink in inks]
        planes = [np.maximum(0, k - ((m + (m >> 8)) >> 8)) for m in products]
    if head.colour == GREY:
        planes *= 3
    return np.stack(planes, 2)


# ---- section 5: the file again


class Scan:
    """What the beginning of a file says of the coding of its coefficients."""

    def __init__(self, beginning, tables):
        self.tables, self.interval, self.order = dict(tables), 0, []
        ids, at = [], 2
        need(beginning[:2] == b"\xff\xd8", "the beginning is not a JPEG's")
        while at < len(beginning):
            while beginning[at : at + 2] == b"\xff\xff":
                at += 1
            _, marker, length = struct.unpack_from(">BBH", beginning, at)
            body = beginning[at + 4 : at + 2 + length]
            at += 2 + length
            if marker in (0xC0, 0xC1):
                ids = [body[6 + 3 * i] for i in range(body[5])]
            elif marker == 0xC4:
                self.add_tables(body)
            elif marker == 0xDD:
                (self.interval,) = struct.unpack(">H", body)
            elif marker == 0xDA:
                for i in range(body[0]):
                    name, tables = body[1 + 2 * i], body[2 + 2 * i]
                    ac = 16 | tables & 15
                    self.order.append((ids.index(name), tables >> 4, ac))
        need(at == len(beginning) and self.order, "the beginning has no scan's header")

    def add_tables(self, body):
        """Huffman codes by symbol, as (code, length) (T.81, C.2)."""
        at = 0
        while at < len(body):
            counts, symbols = body[at + 1 : at + 17], at + 17
            code, codes = 0, {}
            for bits, count in enumerate(counts, 1):
                for symbol in body[symbols : symbols + count]:
                    codes[symbol] = (code, bits)
                    code += 1
                symbols += count
                code <<= 1
            self.tables[body[at]] = codes
            at = symbols


class BitWriter:
    def __init__(self, fill):
        self.fill, self.out, self.word, self.bits = fill, bytearray(), 0, 0

    def put(self, value, bits):
        self.word = self.word << bits | value
        self.bits += bits
        if self.bits >= 1024:
            self.flush(self.bits % 8)

    def flush(self, keep):
        """Writes all but the last bits, with a zero behind every 0xFF."""
        whole = (self.word >> keep).to_bytes((self.bits - keep) // 8, "big")
        self.out += whole.replace(b"\xff", b"\xff\x00")
        self.word &= (1 << keep) - 1
        self.bits = keep

    def end_segment(self):
        n = -self.bits % 8
        self.put(((1 << n) - 1) * self.fill, n)
        self.flush(0)


def standard_tables():
    """The tables of T.81, K.3, which libjpeg writes into a file that asks for no others."""
    file = io.BytesIO()
    PIL.Image.new("RGB", (8, 8)).save(file, "JPEG")
    header = file.getvalue().index(b"\xff\xda")
    return Scan(file.getvalue()[: header + 2 + 12], {}).tables


def put_block(writer, scan, values, before, tables):
    """One block in zigzag order, T.81 F.1.2; `before` is the DC of the one before."""
    dc, ac = (scan.tables[table] for table in tables)
    size, bits = size_and_bits(values[0] - before)
    writer.put(*dc[size])
    writer.put(bits, size)
    zeros = 0
    for value in values[1:]:
        if value == 0:
            zeros += 1
            continue
        while zeros > 15:
            writer.put(*ac[0xF0])
            zeros -= 16
        size, bits = size_and_bits(value)
        writer.put(*ac[zeros << 4 | size])
        writer.put(bits, size)
        zeros = 0
    if zeros:
        writer.put(*ac[0])


def size_and_bits(value):
    size = abs(value).bit_length()
    return size, value if value >= 0 else value + (1 << size) - 1


def entropy_coded(head, scan, coefficients, fill):
    writer = BitWriter(fill)
    in_zigzag = [c.reshape(*c.shape[:2], 64)[:, :, ZIGZAG].tolist() for c in coefficients]
    before = [0] * len(in_zigzag)
    for mcu in range(head.down * head.across):
        if scan.interval and mcu and mcu % scan.interval == 0:
            writer.end_segment()
            writer.out += bytes([0xFF, 0xD0 + (mcu // scan.interval - 1) % 8])
            before = [0] * len(in_zigzag)
        row, column = divmod(mcu, head.across)
        for which, *tables in scan.order:
            h, v = head.components[which].h, head.components[which].v
            for y in range(row * v, row * v + v):
                for x in range(column * h, column * h + h):
                    values = in_zigzag[which][y][x]
                    put_block(writer, scan, values, before[which], tables)
                    before[which] = values[0]
    writer.end_segment()
    return bytes(writer.out)


STANDARD_TABLES = standard_tables()


def original_jpeg(head, coefficients, remainder):
    short, length, fill, file_checksum = take("IIB3xQ", remainder)
    need(short == checksum(remainder[4:]) & 0xFFFFFFFF, "the remainder's checksum")
    need(fill in (0, 1) and 20 + length <= len(remainder), "the remainder's fields")
    beginning, end = remainder[20 : 20 + length], remainder[20 + length :]
    scan = Scan(beginning, STANDARD_TABLES)
    coded = entropy_coded(head, scan, coefficients, fill)
    original = beginning + coded + end
    need(checksum(original) == file_checksum, "the file that was made has a different checksum")
    return original


# ---- the data set


class Files:
    """The original files, put together of samples and rests."""

    def __init__(self):
        self.samples = collections.defaultdict(list)
        self.rests = collections.defaultdict(list)
        self.folders = []

    def add(self, name, record, original):
        if record.kind != REST:
            self.samples[name].append((record.began, original))
        elif record.label == 1:
            self.folders.append(name)
        else:
            self.rests[name].append((record.began, original))

    def names(self):
        return self.samples.keys() | self.rests.keys()

    def whole(self, name):
        """A file's bytes: its samples, and between and behind them the rest."""
        rests = self.rests.get(name, [])
        rest = b"".join(part for _, part in rests)
        file = bytearray()
        for began, sample in sorted(self.samples.get(name, [])):
            gap, rest = rest[: began - len(file)], rest[began - len(file) :]
            file += gap
            need(len(file) == began, "its samples do not fit together")
            file += sample
        file += rest
        need(all(length == len(file) for length, _ in rests), "it has a different length")
        return bytes(file)


def same_pixels(original, pixels):
    image = PIL.Image.open(io.BytesIO(original))
    return np.array_equal(np.asarray(image.convert("RGB")), pixels)


def read_record(index, record, pages, n_classes):
    """The original bytes of a record."""
    data, filling = pages[: record.length], pages[record.length :]
    need(len(data) == record.length, "it is cut short")
    need(checksum(data) == record.checksum, "it has a different checksum")
    need(not any(filling), "its last page is not filled with zeros")
    if record.kind != REST and n_classes:
        need(record.label < n_classes, "its label has no name")
    if record.kind == BLOCKS:
        head = Head(index, record)
        coefficients, remainder = read_coefficients(head, data)
        data = original_jpeg(head, coefficients, remainder)
        need(same_pixels(data, pixels_of(head, coefficients)), "Pillow has other pixels")
    need(len(data) == record.original, "it has a different length")
    return data


def read_records(store):
    """Reads every record; returns the files, and how many records are of each kind."""
    files, counts = Files(), collections.Counter()
    n_classes = len(store.manifest["classes"])
    for where, index, record, pages in store.records():
        counts[record.kind] += 1
        try:
            original = read_record(index, record, pages, n_classes)
            files.add(index.names[record.name], record, original)
        except (ValueError, LookupError, struct.error) as error:
            store.damage.append(f"{where}: {error}")
    return files, counts


def compare(files, source):
    """A line for each file that differs from that under `source`."""
    paths = {path.relative_to(source) for path in source.rglob("*") if path.is_file()}
    theirs = {path.as_posix() for path in paths if not path.name.startswith(".bothends-index-")}
    for name in sorted(files.names() | theirs):
        try:
            if name not in theirs:
                yield f"{name}: there is no such file in {source}"
            elif name not in files.names():
                yield f"{name}: it is not in the store"
            elif files.whole(name) != (source / name).read_bytes():
                yield f"{name}: it has other bytes than in {source}"
        except Damaged as error:
            yield f"{name}: {error}"
    for folder in files.folders:
        if not (source / folder).is_dir():
            yield f"{folder}: there is no such folder"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("store", type=Path, help="the store's folder")
    parser.add_argument("--check", type=Path, metavar="SOURCE", help="what was packed")
    parser.add_argument("--copies", action="store_true", help="do not look at what has a copy")
    args = parser.parse_args()
    try:
        store = Store(args.store, args.copies)
    except (ValueError, OSError) as error:
        sys.exit(f"error: {args.store} cannot be read: {error}")
    files, counts = read_records(store)
    samples = counts[BLOCKS] + counts[BYTES]
    if args.check:
        store.damage += compare(files, args.check)
    print(
        f"{samples} samples ({counts[BLOCKS]} as blocks, {counts[BYTES]} as bytes) and "
        f"{counts[REST]} rests in {len(store.shards)} shards; {len(files.names())} files, "
        f"{len(files.folders)} empty folders, {len(store.manifest['classes'])} classes"
    )
    for line in store.damage:
        print(f"damaged: {line}")
    sys.exit(1 if store.damage else 0)


if __name__ == "__main__":
    main()
