"""The documents are right: their code runs, prints what they show, and no table lacks a line.

In docs/python.md, docs/migrating.md and two tutorials, a Python block after one of these comments
is run:

    <!-- run -->            a script
    <!-- run: continue -->  the script above goes on
    <!-- run: torchrun -->  a script for two ranks

Paths, addresses and sizes in them are replaced by those of a small data set. A text block
behind `<!-- prints -->` must be what the block before it prints, except for sizes of data sets.
A script is skipped if something that it imports is not installed.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import inspect
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import bothends
import children

DOCS = Path(__file__).parents[3] / "docs"
PAGES = (
    "python.md",
    "migrating.md",
    "tutorials/first-training-loop.md",
    "tutorials/second-prong.md",
)

_BLOCK = re.compile(
    r"^<!-- (run(?:: (?P<how>\w+))?|prints) -->\n```(?P<language>\w+)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_PORT = "tcp+noise://nas:7070"


@dataclass
class Script:
    """Blocks that run one after the other, with what each must print, or None."""

    name: str
    how: str
    blocks: list[tuple[str, str | None]] = field(default_factory=list)

    @property
    def code(self) -> str:
        return "\n".join(code for code, _ in self.blocks)

    def skip_where_modules_are_missing(self) -> None:
        for module in sorted(_imports(self.code)):
            if not _is_installed(module):
                pytest.skip(f"{module} is not installed")


def _imports(code: str) -> set[str]:
    """The modules that code imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        if isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    # That module itself is always there.
    return found | {"torch"} if "bothends.torch" in found else found


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def scripts(page: str) -> Iterator[Script]:
    """The scripts of a page, named by its headings."""
    text = (DOCS / page).read_text()
    script = None
    for block in _BLOCK.finditer(text):
        if block["language"] == "text":
            assert script is not None, f"{page}: nothing prints {block['text']!r}"
            code, _ = script.blocks[-1]
            script.blocks[-1] = (code, block["text"])
            continue
        if block["how"] == "continue":
            assert script is not None, f"{page}: nothing goes on at {block['text']!r}"
        else:
            if script is not None:
                yield script
            script = Script(f"{page}: {_heading(text[: block.start()])}", block["how"] or "")
        script.blocks.append((block["text"], None))
    if script is not None:
        yield script


def _heading(before: str) -> str:
    headings: list[str] = re.findall(r"^#+ (.*)$", before, re.MULTILINE)
    return headings[-1]


ALL = [script for page in PAGES for script in scripts(page)]


# ---- running them ---------------------------------------------------------------------------


@pytest.fixture(scope="session")
def shards(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two tar files of images and labels, as WebDataset has them."""
    folder = tmp_path_factory.mktemp("shards")
    images = sorted(photos.glob("*/*.jpg"))[:16]
    for n in range(2):
        with tarfile.open(folder / f"train-{n:06}.tar", "w") as tar:
            for label, image in enumerate(images[n::2]):
                _add(tar, f"{label:06}.jpg", image.read_bytes())
                _add(tar, f"{label:06}.cls", str(label).encode())
    return folder


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))


@pytest.fixture
def replaced(
    photos: Path, shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, str]:
    """What stands in the documents, and what it is here."""
    monkeypatch.chdir(tmp_path)
    for variable in list(os.environ):
        if variable.startswith(children.LAUNCHERS):
            monkeypatch.delenv(variable)
    return {
        "/data/train-": f"{shards}/train-",
        "/data/train": str(photos),
        "/data/val": str(photos),
        _PORT: f"unix://{tmp_path}/agent",
        "batch_size=256": "batch_size=8",
        "num_workers=8": "num_workers=2",
        "num_workers=4": "num_workers=1",
        "range(90)": "range(2)",
    }


@pytest.fixture
def agent(photos: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[None]:
    """An agent for the data, if the script connects to one."""
    program = shutil.which("bothends-agent")
    if _PORT not in request.node.callspec.params["script"].code:
        yield
        return
    if program is None:
        pytest.skip("there is no bothends-agent in the path")
    key = tmp_path / "shared.key"
    key.write_text("long enough for both sides")
    key.chmod(0o600)
    line = [program, "--listen", f"unix://{tmp_path}/agent", "--data-root", str(photos)]
    child = subprocess.Popen([*line, "--key-file", str(key)])
    try:
        assert children.eventually(10, (tmp_path / "agent").exists)
        yield
    finally:
        child.kill()
        child.wait()


@pytest.fixture
def patched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restores classes that scripts replace."""
    for module in ("torch.utils.data", "transformers.trainer"):
        # Not `import_module`: what a script does not import need not be there.
        if module in sys.modules:
            found = sys.modules[module]
            monkeypatch.setattr(found, "DataLoader", found.DataLoader)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("agent", "patched")
@pytest.mark.parametrize("script", ALL, ids=[script.name for script in ALL])
def test_their_code_runs(script: Script, replaced: dict[str, str], tmp_path: Path) -> None:
    script.skip_where_modules_are_missing()
    if script.how == "torchrun":
        _run_in_two_ranks(_replace(script.code, replaced), tmp_path)
        return
    names: dict[str, Any] = {"__name__": "__main__"}
    for code, prints in script.blocks:
        printed = io.StringIO()
        compiled = compile(_replace(code, replaced), script.name, "exec")
        with contextlib.redirect_stdout(printed):
            exec(compiled, names)
        if prints is not None:
            assert _without_counts(printed.getvalue()) == _without_counts(prints)


def _run_in_two_ranks(code: str, folder: Path) -> None:
    file = folder / "script.py"
    file.write_text(code)
    line = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run([*line, file], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-4000:]


def _replace(code: str, replaced: dict[str, str]) -> str:
    for ours, here in replaced.items():
        code = code.replace(ours, here)
    return code


def _without_counts(text: str) -> str:
    """The text without the sizes of data sets, which differ here."""
    return re.sub(r"\d+(?= files| rows| samples)", "N", text)


def test_the_readmes_example_needs_numpy_only(photos: Path, tmp_path: Path) -> None:
    pytest.importorskip("numpy", reason="numpy is not installed")
    readme = (DOCS.parent / "README.md").read_text()
    example = re.search(r"```python\n(import bothends\n.*?)```", readme, re.DOTALL)
    assert example is not None and "batch_size=64" in example[1]
    (tmp_path / "train").symlink_to(photos)
    without = "import os, sys; os.chdir(sys.argv[1]); sys.modules['torch'] = None\n"
    code = example[1].replace("batch_size=64", "batch_size=8")
    assert "(8, 3, 224, 224) float32 [" in children.run(without + code, tmp_path)


# ---- whether tables are complete ------------------------------------------------------------


@pytest.fixture(scope="module")
def reference() -> str:
    return (DOCS / "python.md").read_text().partition("# Reference")[2]


def _named(reference: str) -> set[str]:
    """What stands in code quotes."""
    quoted = re.findall(r"`([^`]+)`", re.sub(r"```.*?```", "", reference, flags=re.DOTALL))
    return {name for text in quoted for name in re.findall(r"\w+", text)}


def test_every_argument_of_the_loader_is_in_the_reference(reference: str) -> None:
    names = set(inspect.signature(bothends.Loader).parameters) - {"unknown"}
    assert names <= _named(reference)


def test_every_argument_of_the_dataloader_is_in_the_reference(reference: str) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    from bothends.torch import DataLoader

    names = set(inspect.signature(DataLoader).parameters) - {"unknown"}
    assert names <= _named(reference)


def test_every_error_is_in_the_reference(reference: str) -> None:
    errors = {name for name in bothends.__all__ if name.endswith("Error")}
    assert errors <= _named(reference)


def test_every_key_of_the_statistics_is_in_the_reference(reference: str, photos: Path) -> None:
    loader = bothends.Loader(photos, "imagenet-eval", batch_size=8)
    for _ in loader:
        pass
    stats = loader.stats()
    assert {*stats, *stats["stall"], *stats["side_index"]} <= _named(reference)


def test_every_transform_and_data_set_is_in_the_reference(reference: str) -> None:
    from bothends import _transforms
    from bothends._sources import torchvision
    from bothends._transforms.timm import TIMM

    transforms = {*_transforms._KNOWN, *(name for _, name in TIMM)}
    # Known only to say that they stay in Python.
    transforms -= {"AugMixAugment"}
    data_sets = {code.split(".")[1] for code in torchvision._KINDS}
    assert transforms | data_sets <= _named(reference)


@pytest.mark.parametrize("page", PAGES)
def test_links_inside_the_documents_lead_somewhere(page: str) -> None:
    text = (DOCS / page).read_text()
    for target in re.findall(r"\]\(([^)]+)\)", text):
        file, _, anchor = target.partition("#")
        if "://" in target:
            continue
        place = (DOCS / page).parent / file if file else DOCS / page
        assert place.exists(), target
        if anchor:
            assert anchor in _anchors(place.read_text()), target


def _anchors(text: str) -> set[str]:
    """What headings are called in links, as GitHub does it."""
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in headings}
