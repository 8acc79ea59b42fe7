"""What pip calls to build the Python package from source (PEP 517).

It is maturin, and before it `scripts/build-programs`: a wheel also carries the three programs, with
their man pages and completions. `scripts/build-wheel` is for people; this is for `pip install .`,
`python -m build` and source distributions.
"""

import shutil
import subprocess
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


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    subprocess.run([ROOT / "scripts/build-programs", DATA], check=True)
    return maturin.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_sdist(sdist_directory, config_settings=None):
    # Programs that were built here are no source.
    shutil.rmtree(DATA, ignore_errors=True)
    DATA.mkdir(parents=True)
    return maturin.build_sdist(sdist_directory, config_settings)


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    DATA.mkdir(parents=True, exist_ok=True)
    return maturin.prepare_metadata_for_build_wheel(metadata_directory, config_settings)
