"""What scripts that compare with peers run in: interpreters, and this checkout's package."""

import os
import shutil
import subprocess
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
TARGET = ROOT / "target" / "peers"


class NotInstalled(Exception):
    """A peer whose packages cannot be had, with the reason."""


def interpreter(name="torchvision"):
    """One that has the packages of `requirements-NAME.txt`, made in target/peers once. For torch
    and torchvision PEERS_PYTHON names one that is there already."""
    if name == "torchvision" and os.environ.get("PEERS_PYTHON"):
        return os.environ["PEERS_PYTHON"]
    made = subprocess.run(
        [ROOT / "scripts/peers/install", name], stdout=subprocess.PIPE, text=True
    )
    said = (made.stdout.strip().splitlines() or ["scripts/peers/install said nothing"])[-1]
    if made.returncode:
        raise NotInstalled(said)
    return said


def package():
    """The folder in which this checkout's wheel is newly built and unpacked. PEERS_PACKAGE names
    one that was unpacked before."""
    if os.environ.get("PEERS_PACKAGE"):
        return Path(os.environ["PEERS_PACKAGE"]).absolute()
    script = ROOT / "scripts/build-wheel"
    built = subprocess.run([script], check=True, stdout=subprocess.PIPE, text=True)
    folder = TARGET / "package"
    shutil.rmtree(folder, ignore_errors=True)
    zipfile.ZipFile(built.stdout.split()[-1]).extractall(folder)
    return folder


def commit():
    """The checkout's commit, with a + where something was changed since."""
    def git(*words):
        ran = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
        return ran.stdout.strip() if ran.returncode == 0 else ""

    changed = "+" if git("status", "--porcelain", "--untracked-files=no") else ""
    return (git("rev-parse", "--short", "HEAD") or "unknown") + changed
