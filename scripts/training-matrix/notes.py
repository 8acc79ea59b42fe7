"""What a training script was given, written down for scripts/check-training-scripts.

A script calls this next to its own lines; nothing here knows which loader made a batch. Samples
are told apart by their label: every image of the matrix is a class of its own.
"""

import faulthandler
import hashlib
import json
import os
import sys

import numpy as np

_FILE = None
_TRAINED, _EVALUATED = "train", "evaluate"

# A hang is a failure, and its stack says where. Every process that imports this has the deadline.
if "MATRIX_DEADLINE_S" in os.environ:
    faulthandler.dump_traceback_later(float(os.environ["MATRIX_DEADLINE_S"]), exit=True)


def trained(epoch, images, targets):
    """A batch that a training step got."""
    _batch(_TRAINED, epoch, images, targets)


def evaluated(epoch, images, targets):
    """A batch that was evaluated."""
    _batch(_EVALUATED, epoch, images, targets)


def result(epoch, loss, n):
    """An evaluation as the script itself sums it up: its mean loss, and of how many samples."""
    _write(kind="result", epoch=epoch, loss=float(loss), n=int(n))


def saved():
    """A checkpoint was written: a run that resumes from it gets the batches that come now."""
    _write(kind="saved")


def loaders(**named):
    """The loaders when training is over: what they say of themselves."""
    for name, loader in named.items():
        stats = getattr(loader, "stats", None)
        front = stats()["front_batches"] if stats else None
        kind = f"{type(loader).__module__}.{type(loader).__name__}"
        words = getattr(loader, "words", None)
        _write(kind="loader", name=name, front_batches=front, type=kind, words=words)


def _batch(kind, epoch, images, targets):
    rows = np.asarray(images)
    labels = _labels(np.asarray(targets))
    digests = [hashlib.blake2b(row.tobytes(), digest_size=8).hexdigest() for row in rows]
    _write(kind=kind, epoch=int(epoch), labels=labels, digests=digests)


def _labels(targets):
    """Labels as they are; of mixed ones, those whose shares add up to a sample."""
    if targets.ndim == 1:
        return [int(label) for label in targets]
    # Label smoothing gives every class the same little share.
    shares = targets.sum(0)
    floor = shares.min()
    whole = (shares.sum() - floor * len(shares)) / len(targets)
    counts = np.rint((shares - floor) / whole).astype(int)
    return [label for label, count in enumerate(counts) for _ in range(count)]


def _write(**said):
    global _FILE
    if _FILE is None:
        folder = os.environ["MATRIX_NOTES"]
        _FILE = open(os.path.join(folder, f"{os.getpid()}.jsonl"), "a", encoding="utf-8")
    _FILE.write(json.dumps({"rank": rank(), **said}) + "\n")
    _FILE.flush()


def rank():
    """Which process this is; a script without torch.distributed puts its own function here."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank()
    return 0
