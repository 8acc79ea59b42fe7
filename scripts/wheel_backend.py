"""What pip calls to build the Python package from source (PEP 517).

It is maturin, and before it `scripts/build-programs`: a wheel also carries man pages and
completions of the three programs, which the programs themselves write. `scripts/build-wheel` is for
people; this is for `pip install .`, `python -m build` and source distributions.
"""

import os
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

import maturin
from maturin import get_requires_for_build_sdist, get_requires_for_build_wheel

__all__ = [
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_wheel",
]

ROOT = Path(__file__).resolve().parent.parent
# pyproject.toml names this folder; maturin refuses to do anything without it.
DATA = ROOT / "target/python/data"
PROGRAMS = ROOT / "target/python/programs"
LEFT_OUT = [":!.ci", ":!.github", ":!fuzz", ":!tests/bad"]


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    subprocess.run([ROOT / "scripts/build-programs", PROGRAMS], check=True)
    shutil.rmtree(DATA, ignore_errors=True)
    shutil.copytree(PROGRAMS / "share", DATA / "data/share")
    return maturin.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_sdist(sdist_directory, config_settings=None):
    """All files of the checkout but those that no build reads. Not maturin's: that takes the crates that
    the module depends on, and the programs come from others; nor does it know links to folders."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--", ".", *LEFT_OUT], cwd=ROOT, check=True, capture_output=True
    )
    with tempfile.TemporaryDirectory() as scratch:
        about = Path(scratch) / prepare_metadata_for_build_wheel(scratch) / "METADATA"
        name = about.parent.name.removesuffix(".dist-info")
        file = f"{name}.tar.gz"
        with tarfile.open(Path(sdist_directory) / file, "w:gz") as archive:
            archive.add(about, f"{name}/PKG-INFO", filter=_nobodys)
            for path in filter(None, listed.stdout.decode().split("\0")):
                archive.add(ROOT / path, f"{name}/{path}", recursive=False, filter=_nobodys)
    return file


def _nobodys(entry):
    """Without the name and the times of who packs it."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mtime = int(os.environ.get("SOURCE_DATE_EPOCH", entry.mtime))
    return entry


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    DATA.mkdir(parents=True, exist_ok=True)
    return maturin.prepare_metadata_for_build_wheel(metadata_directory, config_settings)
