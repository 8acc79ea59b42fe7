#!/usr/bin/env python3
"""A device in Python: what docs/wire.md says, once more.

    tests/python_device.py --listen unix:///tmp/device.sock --data-root DIR
    tests/python_device.py --listen tcp://127.0.0.1:0 --data-root DIR --key-file FILE

Written from docs/wire.md and docs/numbers.md alone; it shares no line with the Rust code. It serves
opaque and planar records with the ops `decode`, `random_crop`, `center_crop`, `random_horizontal_flip`
and `random_vertical_flip`, and refuses image files, which it cannot decode to the bit. It prints
`listening on ADDRESS` and serves until it is killed. It is slow: a proof, not a product.

It needs NumPy and xxhash (tests/python-requirements.txt), and nothing else.
"""

import argparse
import collections
import hashlib
import hmac
import json
import os
import secrets
import socket
import stat
import struct
import sys
import threading
import time

import numpy as np
import xxhash

VERSION = 2
HEADER_BYTES = 80
(GREET, CHALLENGE, PROVE, REFUSED, HELLO, WELCOME, OPEN, OPENED, JOB, DONE, FAILED,
 REVOKE, ASK_STATS, STATS, BUSY, ATTEST, ATTESTED, PING, PONG) = range(1, 20)
# What a host sends, and the longest body of each.
BOUNDS = {GREET: 32, PROVE: 32, HELLO: 0, OPEN: 1 << 30, JOB: 524_288, REVOKE: 0, ASK_STATS: 0,
          ATTEST: 8192, PING: 0}
OF_SESSION = {OPENED, JOB, DONE, FAILED, REVOKE, ATTEST, ATTESTED}

OPS = ["decode", "random_crop", "center_crop", "random_horizontal_flip", "random_vertical_flip"]
FEED_OPS = {"normalize", "to_dtype", "layout", "mixup", "cutmix"}
SLOTS = 3
MOST_BATCH_BYTES = 1 << 26
MOST_WAITING = 4096
MOST_CONNECTIONS = 32
GREETING_SECONDS = 3
UNREADABLE = 2**64 - 1


class Malformed(Exception):
    """The bytes are not of the protocol: the connection ends."""


class OtherVersion(Exception):
    """The host speaks another version."""


class Gone(Exception):
    """The host is gone."""


class Refusal(Exception):
    """A session or a question is refused, and why."""


class BadSample(Exception):
    """A row cannot be made."""


class Unreadable(Exception):
    """A record cannot be read."""


def xxh3(data):
    return xxhash.xxh3_64_intdigest(data)


# ---- section 2: messages


Header = collections.namedtuple(
    "Header", "kind body_bytes session job payload body_sum checksum time lateness samples")


def encode(kind, body=b"", *, session=0, job=0, payload=0, checksum=0, time_ns=0,
           n=0):
    head = b"BEND" + struct.pack("<IB3xIQQQQQQQI", VERSION, kind, len(body), session, job, payload,
                                 xxh3(body), checksum, time_ns, 0, n)
    return head + struct.pack("<I", xxh3(head) & 0xFFFF_FFFF) + body


def decode_header(data):
    if data[:4] != b"BEND":
        raise Malformed("the magic bytes")
    if struct.unpack_from("<I", data, 4)[0] != VERSION:
        raise OtherVersion(struct.unpack_from("<I", data, 4)[0])
    if len(data) < HEADER_BYTES:
        return None
    if struct.unpack_from("<I", data, 76)[0] != xxh3(data[:76]) & 0xFFFF_FFFF:
        raise Malformed("the header's check")
    header = Header(*struct.unpack_from("<B3xIQQQQQQQI", data, 8))
    if header.kind not in BOUNDS or data[9:12] != bytes(3):
        raise Malformed("the kind")
    if header.body_bytes > BOUNDS[header.kind]:
        raise Malformed("the length of the body")
    if header.payload or (header.session != 0) != (header.kind in OF_SESSION):
        raise Malformed("a payload, or a session")
    return header


# ---- section 8: the manifest


class Fields:
    """Bytes from front to back."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, n):
        if n > len(self.data) - self.at:
            raise Refusal("the manifest is cut short")
        self.at += n
        return self.data[self.at - n:self.at]

    def numbers(self, layout):
        return struct.unpack("<" + layout, self.take(struct.calcsize("<" + layout)))

    def name(self):
        return self.take(self.numbers("H")[0]).decode()

    def column(self, n, dtype):
        return np.frombuffer(self.take(n * np.dtype(dtype).itemsize), dtype)


def is_below_root(path):
    parts = path.split("/")
    return len(path.encode()) <= 4095 and "\0" not in path and not {"", ".", ".."} & set(parts)


class Manifest:
    """Where each record lies."""

    def __init__(self, data):
        fields = Fields(data)
        if fields.take(8) != b"BE-TABLE" or fields.numbers("I") != (2,):
            raise Refusal("this device reads manifests of version 2 alone")
        self.encoding, *self.shape, profiles, heads = fields.numbers("6I")
        n_classes, n_folders, n_files = fields.numbers("3I")
        self.n, checksums, self.whole = fields.numbers("Q2I")
        if self.encoding > 2 or (self.encoding != 1 and self.shape != [0, 0, 0]):
            raise Refusal("the manifest has an unknown encoding")
        if checksums > 1 or self.whole > 1 or self.n == 0 or profiles or heads:
            raise Refusal("this device serves no manifest with heads")
        for _ in range(n_classes):
            fields.name()
        folders = [fields.name() for _ in range(n_folders)]
        self.files = []
        for _ in range(n_files):
            folder, = fields.numbers("I")
            if folder >= n_folders:
                raise Refusal("a file lies in no folder")
            path = "/".join(part for part in (folders[folder], fields.name()) if part)
            if not is_below_root(path):
                raise Refusal(f"the path `{path}` leaves the data root")
            self.files.append(path)
        self.file = fields.column(self.n, "<u4")
        self.offset = fields.column(self.n, "<u8")
        self.length = fields.column(self.n, "<u4")
        label = fields.column(self.n, "<u4")
        self.checksum = fields.column(self.n, "<u8") if checksums else None
        if fields.at != len(data):
            raise Refusal("bytes follow the manifest")
        if (self.file >= n_files).any() or (n_classes and (label >= n_classes).any()):
            raise Refusal("the manifest names a file or a class that it does not have")
        if self.whole and self.offset.any():
            raise Refusal("a record that is a whole file does not begin with it")
        if self.encoding == 1 and (self.length != int(np.prod(self.shape, dtype=object))).any():
            raise Refusal("a planar record has a different length than its planes")

    def record(self, root, sample):
        """The bytes of a sample's record, as they are on the disk now."""
        row = sample % self.n
        path = os.path.join(root, self.files[self.file[row]])
        offset, length = int(self.offset[row]), int(self.length[row])
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
            try:
                about = os.fstat(fd)
                if not stat.S_ISREG(about.st_mode) or offset + length > about.st_size or (
                        self.whole and length != about.st_size):
                    raise Unreadable(f"`{path}` has no record at {offset}")
                data = os.pread(fd, length, offset)
            finally:
                os.close(fd)
        except OSError as error:
            raise Unreadable(f"cannot read `{path}`: {error.strerror}") from error
        if len(data) < length:
            raise Unreadable(f"`{path}` is cut short")
        return data

    def is_whole(self, sample, data):
        return self.checksum is None or xxh3(data) == int(self.checksum[sample % self.n])


# ---- docs/numbers.md, sections 1 and 2: random numbers


def philox(c, k):
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k[0], p1 & 0xFFFFFFFF, (p0 >> 32) ^ c[3] ^ k[1], p0 & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


class Draws:
    """The stream of one op on one sample."""

    def __init__(self, seed, epoch, sample, op):
        self.key = [seed & 0xFFFFFFFF, seed >> 32]
        self.counter = [sample & 0xFFFFFFFF, sample >> 32, epoch]
        self.op, self.block, self.words = op, 0, []

    def word(self):
        if not self.words:
            self.words = philox([self.op << 16 | self.block, *self.counter], self.key)
            self.block += 1
        return self.words.pop(0)

    def uniform(self):
        a, b = self.word(), self.word()
        return ((a >> 5) * 67108864 + (b >> 6)) / 9007199254740992

    def below(self, n):
        return (self.word() * n) >> 32

    def bernoulli(self, p):
        return self.uniform() < p


# ---- section 7: the recipe, and docs/numbers.md, sections 6 and 7: ops


class Recipe:
    """The ops before the cut, each with the number of its stream."""

    def __init__(self, text, stated_hash):
        if f"{xxhash.xxh3_128_intdigest(text.encode()):032x}" != stated_hash:
            raise Refusal("the recipe has a different hash on this device")
        try:
            recipe = json.loads(text)
            ops = recipe["ops"]
            if recipe["version"] != 1 or not set(recipe) <= {"version", "name", "numerics",
                                                             "repeated_augment", "ops"}:
                raise Refusal("this device reads recipes of version 1")
            if recipe["numerics"] != "exact":
                raise Refusal("this device has numerics `exact` alone")
            names = [op["op"] for op in ops]
        except (ValueError, KeyError, TypeError) as error:
            raise Refusal(f"this device cannot read the recipe: {error!r}") from error
        n = next((i for i, name in enumerate(names) if name in FEED_OPS), len(names))
        for name in names[:n]:
            if name not in OPS:
                raise Refusal(f"this device has no op `{name}`")
        self.ops = ops[:n]

    def sample_bytes(self, manifest):
        """Bytes of every sample at the cut; what cannot be made of these records is refused."""
        if manifest.encoding == 0:
            raise Refusal("this device has no decoder of image files")
        if not self.ops:
            lengths = set(manifest.length.tolist())
            if manifest.encoding != 2 or len(lengths) != 1:
                raise Refusal("without ops, records are opaque and of one length")
            return lengths.pop()
        if self.ops[0]["op"] != "decode" or manifest.encoding != 1:
            raise Refusal("this device decodes planar records alone")
        height, width, channels = manifest.shape
        if channels not in (1, 3):
            raise Refusal("planar records have one channel or three")
        for op in self.ops:
            height, width = op.get("size", [height, width])
        return height * width * 3

    def make(self, manifest, data, stream):
        """A sample of a record; `stream` gives the draws of an op by its number."""
        if not self.ops:
            return data
        height, width, channels = manifest.shape
        image = np.frombuffer(data, np.uint8).reshape(channels, height, width)
        image = np.repeat(image, 3, 0) if channels == 1 else image
        image = image.transpose(1, 2, 0)
        for number, op in enumerate(self.ops[1:], 1):
            image = OPERATIONS[op["op"]](image, op, stream(number))
        return np.ascontiguousarray(image).tobytes()


def random_crop(image, op, draws):
    left, top, right, bottom = op["padding"]
    fill = op.get("fill", 0)
    height, width = op["size"]
    padded = np.empty((image.shape[0] + top + bottom, image.shape[1] + left + right, 3), np.uint8)
    padded[:] = fill
    padded[top:top + image.shape[0], left:left + image.shape[1]] = image
    if padded.shape[0] < height or padded.shape[1] < width:
        raise BadSample("the image is smaller than the crop")
    y = draws.below(padded.shape[0] - height + 1)
    x = draws.below(padded.shape[1] - width + 1)
    return padded[y:y + height, x:x + width]


def center_crop(image, op, _draws):
    height, width = op["size"]
    if image.shape[0] < height or image.shape[1] < width:
        raise BadSample("the image is smaller than the crop")
    top, left = round((image.shape[0] - height) / 2), round((image.shape[1] - width) / 2)
    return image[top:top + height, left:left + width]


def flip_rows(image, op, draws):
    return image[:, ::-1] if draws.bernoulli(op["p"]) else image


def flip_columns(image, op, draws):
    return image[::-1] if draws.bernoulli(op["p"]) else image


OPERATIONS = {"random_crop": random_crop, "center_crop": center_crop,
              "random_horizontal_flip": flip_rows, "random_vertical_flip": flip_columns}


# ---- section 5: sessions


class Session:
    """What was agreed before the first job."""

    def __init__(self, body, root):
        n, = struct.unpack_from("<I", body) if len(body) >= 4 else (len(body),)
        if n > 1 << 20 or n > len(body) - 4:
            raise Malformed("the length of the session's JSON")
        try:
            said = json.loads(body[4:4 + n])
            recipe, stated = said.pop("recipe"), said.pop("recipe_hash")
            self.seed, sample_bytes = said.pop("seed"), said.pop("sample_bytes")
            self.max_batch = said.pop("max_batch")
        except (ValueError, KeyError, AttributeError) as error:
            raise Malformed("the session's JSON") from error
        if said:
            raise Malformed("an unknown key of a session")
        self.root = root
        self.recipe = Recipe(recipe, stated)
        try:
            self.manifest = Manifest(body[4 + n:])
        except UnicodeDecodeError as error:
            raise Refusal("a name in the manifest is not UTF-8") from error
        self.sample_bytes = self.recipe.sample_bytes(self.manifest)
        if self.sample_bytes != sample_bytes or sample_bytes == 0:
            raise Refusal(f"a sample has {sample_bytes} bytes on the host and "
                          f"{self.sample_bytes} on this device")
        if sample_bytes * self.max_batch > MOST_BATCH_BYTES:
            raise Refusal(f"a batch of this device has at most {MOST_BATCH_BYTES} bytes; "
                          "use a smaller batch size")
        first = os.path.join(root, self.manifest.files[self.manifest.file[0]])
        if not os.path.isfile(first):
            raise Refusal(f"cannot read `{first}`; is the data set at the data root?")
        self.id = 1 + secrets.randbelow(2**64 - 1)

    def make(self, epoch, samples, count):
        """The bytes of a job and its bad rows."""
        rows, bad, unread = [], [], []
        for row, sample in enumerate(samples):
            try:
                data = self.manifest.record(self.root, sample)
                count(len(data))
                if not self.manifest.is_whole(sample, data):
                    raise BadSample("a different checksum")
                rows.append(self.recipe.make(
                    self.manifest, data,
                    lambda op, sample=sample: Draws(self.seed, epoch, sample, op)))
            except (BadSample, Unreadable) as error:
                rows.append(bytes(self.sample_bytes))
                bad.append(row)
                unread += [error] if isinstance(error, Unreadable) else []
        if samples and len(unread) == len(samples):
            raise unread[0]
        return b"".join(rows), bad

    def attest(self, seed, samples):
        body = b""
        for sample in samples:
            if sample >= self.manifest.n:
                raise Refusal(f"there is no sample {sample} in this session")
            try:
                data = self.manifest.record(self.root, sample)
                digest = xxhash.xxh3_128_intdigest(data, seed)
                body += struct.pack("<Q", len(data)) + digest.to_bytes(16, "little")
            except Unreadable:
                body += struct.pack("<Q", UNREADABLE) + bytes(16)
        return body


# ---- connections


class Device:
    """What all connections share."""

    def __init__(self, root, key):
        self.root, self.key = os.path.realpath(root), key
        self.lock = threading.Lock()
        self.n_connections = 0
        self.counts = collections.Counter()

    def welcome(self):
        return json.dumps({"protocol_version": VERSION, "name": "a device in Python",
                           "emulated": False, "ops": OPS, "slots": SLOTS,
                           "max_batch_bytes": MOST_BATCH_BYTES, "features": ["pulse"]}).encode()

    def stats(self):
        with self.lock:
            counts = dict(self.counts)
        return json.dumps({
            "jobs": counts.get("jobs", 0), "samples": counts.get("samples", 0),
            "queued": counts.get("queued", 0), "cpu_seconds": time.process_time(),
            "media_read_bytes": counts.get("bytes", 0),
            "busy_seconds": counts.get("busy_ns", 0) / 1e9,
            "late_completions": 0, "max_lateness_seconds": 0.0, "energy": []}).encode()

    def count(self, **more):
        with self.lock:
            self.counts.update(more)


class Connection:
    """One host. This thread reads, a second one makes and writes what jobs ask for."""

    def __init__(self, device, sock):
        self.device, self.sock = device, sock
        self.session = None
        self.waiting = collections.deque()
        self.changed = threading.Condition()
        self.sending = threading.Lock()
        self.is_over = False

    def read(self, n):
        data = bytearray()
        while len(data) < n:
            more = self.sock.recv(min(n - len(data), 1 << 18))
            if not more:
                raise Gone
            data += more
        return bytes(data)

    def receive(self):
        start = self.read(8)
        decode_header(start)
        header = decode_header(start + self.read(HEADER_BYTES - 8))
        body = self.read(header.body_bytes)
        if xxh3(body) != header.body_sum:
            raise Malformed("the body's checksum")
        return header, body

    def send(self, kind, body=b"", payload=b"", **fields):
        with self.sending:
            self.sock.sendall(encode(kind, body, payload=len(payload), **fields))
            self.sock.sendall(payload)

    def refuse(self, reason):
        """Says why, and gives the host the time to read it."""
        self.send(REFUSED, reason.encode()[:4096])
        self.sock.shutdown(socket.SHUT_WR)
        self.sock.settimeout(0.2)
        try:
            while self.sock.recv(4096):
                pass
        except OSError:
            pass

    def greet(self):
        """Whether the host is admitted."""
        self.sock.settimeout(GREETING_SECONDS)
        header, theirs = self.receive()
        if header.kind != GREET or len(theirs) != 32:
            raise Malformed("a first message that is not a greeting")
        ours, key = secrets.token_bytes(32), self.device.key

        def proof(role):
            text = b"bothends " + role + b" 1\0" + theirs + ours
            return hmac.new(key, text, hashlib.sha256).digest()

        self.send(CHALLENGE, ours + (proof(b"device") if key else b""))
        header, said = self.receive()
        if header.kind != PROVE or len(said) not in (0, 32):
            raise Malformed("a greeting without an end")
        self.sock.settimeout(None)
        if key and not hmac.compare_digest(said, proof(b"host")):
            self.refuse("the device asks for a key, and the host has another one or none")
            return False
        return True

    def serve(self):
        maker = None
        try:
            if not self.greet():
                return
            maker = threading.Thread(target=self.make, daemon=True)
            maker.start()
            while True:
                self.act(*self.receive())
        except OtherVersion as error:
            self.refuse(f"the host speaks protocol version {error}, this device {VERSION}")
        except (Malformed, Gone, OSError):
            pass
        finally:
            with self.changed:
                self.is_over = True
                self.drop_jobs()
                self.changed.notify()
            self.sock.close()

    def drop_jobs(self):
        self.device.count(queued=-len(self.waiting))
        self.waiting.clear()

    def act(self, header, body):
        kind = header.kind
        if kind == HELLO:
            self.send(WELCOME, self.device.welcome())
        elif kind == PING:
            self.send(PONG)
        elif kind == ASK_STATS:
            self.send(STATS, self.device.stats())
        elif kind == OPEN:
            self.open(body)
        elif kind in (GREET, PROVE):
            raise Malformed("a second greeting")
        elif self.session is None or header.session != self.session.id:
            if kind == JOB:
                samples_of(header, body)
        elif kind == JOB:
            self.queue(header, samples_of(header, body))
        elif kind == REVOKE:
            self.revoke(header.job)
        elif kind == ATTEST:
            self.attest(header.checksum, samples_of(header, body))

    def open(self, body):
        with self.changed:
            self.session = None
            self.drop_jobs()
        try:
            session = Session(body, self.device.root)
        except Refusal as refusal:
            self.send(REFUSED, str(refusal).encode()[:4096])
            return
        # Nothing of the new session may overtake the word that it is open.
        self.send(OPENED, session=session.id)
        with self.changed:
            self.session = session

    def queue(self, header, samples):
        with self.changed:
            if len(self.waiting) >= MOST_WAITING:
                raise Malformed("more jobs than anybody waits for")
            self.waiting.append((header.job, header.time & 0xFFFFFFFF, samples))
            self.device.count(queued=1)
            self.changed.notify()

    def revoke(self, number):
        with self.changed:
            found = [job for job in self.waiting if job[0] == number]
            if found:
                self.waiting.remove(found[0])
                self.device.count(queued=-1)
        if found:
            self.send(FAILED, b"revoked before it was begun", session=self.session.id, job=number)

    def attest(self, seed, samples):
        try:
            self.send(ATTESTED, self.session.attest(seed, samples), session=self.session.id)
        except Refusal as refusal:
            self.send(REFUSED, str(refusal).encode()[:4096])

    def make(self):
        """Makes jobs, one after the other. A result has left before the next one is made."""
        while True:
            with self.changed:
                while not self.waiting and not self.is_over:
                    self.changed.wait()
                if self.is_over:
                    return
                session, job = self.session, self.waiting.popleft()
            try:
                self.answer(session, *job)
            except OSError:
                return

    def answer(self, session, number, epoch, samples):
        began = time.monotonic_ns()
        fields = {"session": session.id, "job": number}
        try:
            if len(samples) > session.max_batch:
                raise Unreadable(f"job {number} has more samples than its session allows")
            made, bad = session.make(epoch, samples, lambda n: self.device.count(bytes=n))
        except Unreadable as error:
            self.device.count(jobs=1, queued=-1)
            self.send(FAILED, str(error).encode()[:4096], **fields)
            return
        took = time.monotonic_ns() - began
        self.device.count(jobs=1, queued=-1, samples=len(samples), busy_ns=took)
        # Raw planes are never damaged in a way that leaves pixels: behind the bad rows come none.
        body = struct.pack(f"<{len(bad)}I", *bad)
        self.send(DONE, body, made, checksum=xxh3(made), time_ns=took, n=len(bad), **fields)


def samples_of(header, body):
    """The samples of a job or a question."""
    if len(body) % 8 or (header.kind == JOB and len(body) != 8 * header.samples):
        raise Malformed("the number of samples")
    return list(struct.unpack(f"<{len(body) // 8}Q", body))


def serve(device, sock):
    try:
        Connection(device, sock).serve()
    finally:
        with device.lock:
            device.n_connections -= 1


def listen(address):
    scheme, _, place = address.partition("://")
    if scheme == "unix":
        sock = socket.socket(socket.AF_UNIX)
        sock.bind(place)
    elif scheme == "tcp":
        host, _, port = place.rpartition(":")
        sock = socket.create_server((host, int(port)))
        address = f"tcp://{host}:{sock.getsockname()[1]}"
    else:
        sys.exit(f"cannot listen at {address}; give unix:///PATH or tcp://HOST:PORT")
    sock.listen(64)
    return sock, address


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--listen", required=True, metavar="ADDRESS")
    parser.add_argument("--data-root", required=True, metavar="DIR")
    parser.add_argument("--key-file", metavar="FILE")
    args = parser.parse_args()
    key = None
    if args.key_file:
        with open(args.key_file, "rb") as file:
            key = file.read().rstrip(b" \t\n\r\x0c")
        if len(key) < 16:
            sys.exit(f"the key in {args.key_file} has less than 16 bytes")
    device = Device(args.data_root, key)
    listener, address = listen(args.listen)
    print(f"listening on {address}", flush=True)
    while True:
        sock, _ = listener.accept()
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with device.lock:
            is_full = device.n_connections >= MOST_CONNECTIONS
            device.n_connections += not is_full
        if is_full:
            sock.close()
            continue
        threading.Thread(target=serve, args=(device, sock), daemon=True).start()


if __name__ == "__main__":
    main()
