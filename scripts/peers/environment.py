"""What scripts that compare with peers run in: an interpreter, and this checkout's package."""

import os
import shutil
import subprocess
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
TARGET = ROOT / "target" / "peers"


def interpreter():
    """One that has torch and torchvision: PEERS_PYTHON, else one made in target/peers once."""
    if os.environ.get("PEERS_PYTHON"):
        return os.environ["PEERS_PYTHON"]
    script = ROOT / "scripts/peers/install-torchvision"
    made = subprocess.run([script], check=True, stdout=subprocess.PIPE, text=True)
    return made.stdout.strip()


def package():
    """The folder that this checkout's wheel is built and unpacked in, anew."""
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
