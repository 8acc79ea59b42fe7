"""What happens to loaders: devices and trainers are killed, the shared memory is small."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import children
from streams import loader, step, steps


def files_below(*folders: Path) -> set[Path]:
    return {path for folder in folders for path in folder.rglob("*")}


@pytest.mark.parametrize("strategy", ["ordered", "relaxed", "csd"])
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGSTOP])
def test_a_device_that_dies_in_the_epoch(small: Path, strategy: str, end: signal.Signals) -> None:
    expected = steps(loader(small, repeat=8, last="pad"))
    options = {"strategy": strategy, "repeat": 8, "last": "pad"}
    before = set(children.children_of(os.getpid()))
    batches = loader(small, csds=["sim:ideal,rate=400"], **options)
    (device,) = set(children.children_of(os.getpid())) - before
    seen = []
    for batch in batches.batches():
        seen.append(step(batch))
        if len(seen) == 6:
            os.kill(device, end)
    assert sorted(seen) == sorted(expected)
    assert seen == expected or strategy != "ordered"
    for _ in range(10):
        back = batches.stats()["back"][0]
        if end != signal.SIGKILL or back["failure"] or back["batches"] == 0:
            break
        # So short an epoch may be over before the loss is noticed.
        assert len(steps(batches)) == len(expected)
    else:
        pytest.fail(f"nobody noticed: {back}")
    assert len(steps(batches)) == len(expected), "the next epoch does without it"
    del batches, batch
    assert children.eventually(60, lambda: not children.runs(device))


TRAINS = """
import sys
import bothends
from streams import SMALL
options = dict(batch_size=4, workers=2, output="u8", repeat=1000, csds=sys.argv[2:])
batches = bothends.Loader(sys.argv[1], SMALL, framework="numpy", **options)
feed = iter(batches)
for n in range(5):
    kept = next(feed)
print("trains", flush=True)
for _ in feed:
    pass
"""


@pytest.mark.parametrize(
    "csds",
    [[], ["sim:ideal,rate=400"], ["sim:ideal,rate=400,via=spool", "sim:newport"]],
    ids=["host", "device", "two devices"],
)
def test_a_trainer_that_is_killed_leaves_nothing(
    small: Path, csds: list[str], tmp_path: Path
) -> None:
    data, temporary = tmp_path / "data", tmp_path / "tmp"
    shutil.copytree(small, data)
    temporary.mkdir()
    shm = Path("/dev/shm")
    before = files_below(data, shm)
    trainer = children.start(TRAINS, data, *csds, TMPDIR=str(temporary))
    assert children.line(trainer) == "trains"
    time.sleep(0.2)
    others = children.children_of(trainer.pid)
    assert len(others) >= len(csds)
    trainer.kill()
    trainer.wait()

    def left() -> set[Path]:
        found = files_below(data, shm, temporary) - before
        return {path for path in found if not path.name.startswith(".bothends-index-")}

    def is_clean() -> bool:
        return not any(map(children.runs, others)) and not left()

    assert children.eventually(60, is_clean), (left(), list(filter(children.runs, others)))


SHM = """
import os, sys
assert os.statvfs("/dev/shm").f_blocks * os.statvfs("/dev/shm").f_frsize == 64 << 20
import torchvision, torchvision.transforms as v1
from bothends.torch import DataLoader
transform = v1.Compose([v1.RandomResizedCrop(224), v1.ToTensor()])
dataset = torchvision.datasets.ImageFolder(sys.argv[1], transform)
n = 0
for images, labels in DataLoader(dataset, batch_size=64, shuffle=True, num_workers=2):
    n += len(images)
    assert not os.listdir("/dev/shm"), os.listdir("/dev/shm")
print(n)
"""


def test_shared_memory_of_64_mib_is_enough(many: Path) -> None:
    """PyTorch's loader dies there after one batch of 38 MB."""
    pytest.importorskip("torchvision")
    small_shm = "mount -t tmpfs -o size=64m tmpfs /dev/shm"
    apart = ["unshare", "-m", "sh", "-c"]
    if os.getuid() != 0 or subprocess.run([*apart, small_shm], capture_output=True).returncode:
        pytest.skip("needs root and a mount namespace of its own")
    line = [*apart, f'{small_shm} && exec "$@"', "sh", sys.executable, "-c", SHM, str(many)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=120)
    assert done.stdout == "500\n", done.stderr
