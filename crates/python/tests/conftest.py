"""What all tests share: images, and a deadline for each."""

from __future__ import annotations

import faulthandler
import os
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from images import write_photos

# Seconds. No test asserts a speed; one that hangs shall say where.
DEADLINE = 150


@pytest.fixture(autouse=True)
def deadline() -> Iterator[None]:
    faulthandler.dump_traceback_later(DEADLINE, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """50 JPEGs in 10 class folders: real ones where BOTHENDS_TEST_DATA names a folder with
    imagenet-500.tar."""
    folder = tmp_path_factory.mktemp("photos")
    archive = Path(os.environ.get("BOTHENDS_TEST_DATA", "")) / "imagenet-500.tar"
    if not archive.is_file():
        write_photos(folder, 50, 10)
        return folder
    with tarfile.open(archive) as tar:
        images = sorted((m for m in tar if m.isfile()), key=lambda member: member.name)
        for n, member in enumerate(images[::10][:50]):
            place = folder / f"class{n % 10}" / f"{n:02}.jpg"
            place.parent.mkdir(exist_ok=True)
            content = tar.extractfile(member)
            assert content is not None
            with content, open(place, "wb") as file:
                shutil.copyfileobj(content, file)
    return folder


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """23 small JPEGs in 5 class folders."""
    folder = tmp_path_factory.mktemp("small")
    write_photos(folder, 23, 5, side=40)
    return folder


@pytest.fixture(scope="session")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """500 small JPEGs in 10 class folders."""
    folder = tmp_path_factory.mktemp("many")
    write_photos(folder, 500, 10, side=40)
    return folder
