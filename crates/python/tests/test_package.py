"""The package itself: what the wheel holds and needs, what importing it costs, its commands and
its types."""

from __future__ import annotations

import errno
import importlib.metadata
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
import zipfile
from pathlib import Path
from typing import BinaryIO

import bothends
import pytest

import children

PACKAGE = Path(bothends.__file__).parent
COMMANDS = ["bothends", "bothends-agent", "firmware-sim"]
# What every Linux has that the wheel's tag names (PEP 600).
SYSTEM = {
    "libc.so.6",
    "libm.so.6",
    "libgcc_s.so.1",
    "libpthread.so.0",
    "libdl.so.2",
    "ld-linux-x86-64.so.2",
    "ld-linux-aarch64.so.1",
}


@pytest.fixture(scope="module")
def wheel() -> Path:
    name = os.environ.get("BOTHENDS_WHEEL")
    if name is None:
        pytest.skip("BOTHENDS_WHEEL names no wheel (scripts/check-python does)")
    return Path(name)


@pytest.fixture(scope="module")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The wheel's files of machine code, unpacked."""
    folder = tmp_path_factory.mktemp("wheel")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    files = [path for path in folder.rglob("*") if path.is_file()]
    found = [path for path in files if path.read_bytes()[:4] == b"\x7fELF"]
    # The code of the commands is in it, too.
    assert [path.name for path in found] == ["_native.abi3.so"]
    return found


def test_it_is_small(wheel: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f" wheel: {wheel.stat().st_size / 1e6:.1f} MB ", end="")
    # One that is built for tests is hardly optimised, and nobody downloads it.
    largest = 30e6 if wheel.parent.name == "debug" else 10e6
    assert wheel.stat().st_size <= largest


def test_it_asks_for_no_newer_system_than_its_tag_says(wheel: Path, programs: list[Path]) -> None:
    tag = re.search(r"-cp311-abi3-manylinux_2_(\d+)_(x86_64|aarch64)\.whl$", wheel.name)
    assert tag is not None, wheel.name
    for program in programs:
        wanted = [int(n) for n in re.findall(rb"GLIBC_2\.(\d+)", program.read_bytes())]
        assert wanted, program
        assert max(wanted) <= int(tag[1]), f"{program.name} asks for GLIBC_2.{max(wanted)}"


def test_it_needs_no_library_but_the_systems(programs: list[Path]) -> None:
    if shutil.which("readelf") is None:
        pytest.skip("readelf is not installed (binutils)")
    for program in programs:
        line = ["readelf", "--dynamic", "--wide", program]
        out = subprocess.run(line, check=True, capture_output=True, text=True).stdout
        needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", out))
        assert "libc.so.6" in needed and needed <= SYSTEM, (program.name, needed)


def test_it_holds_types_and_documents(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        about = archive.read(metadata).decode()
    assert {"bothends/py.typed", "bothends/_native.pyi"} <= set(names)
    assert "Requires-Python: >=3.11" in about and "bothends.Loader(" in about
    assert "Requires-Dist" not in about, "it needs no other package"
    for field in ("License-Expression: MIT OR Apache-2.0", "Author", "Project-URL: ", "Keywords: "):
        assert f"\n{field}" in about, field
    assert about.count("\nClassifier: ") > 10
    files = {name.rpartition("/")[2] for name in names}
    assert {"LICENSE-MIT", "LICENSE-APACHE", "third-party.txt"} <= files
    completions = {"_bothends", "_bothends-agent", "_firmware-sim", "bothends.fish"}
    assert completions | {"bothends.1", "bothends-agent.1", "firmware-sim.1"} <= files


def test_versions_are_one() -> None:
    try:
        installed = importlib.metadata.version("bothends")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("the package is not installed, only on the path")
    assert installed == bothends.__version__


def installed(command: str) -> Path:
    program = Path(sysconfig.get_path("scripts")) / command
    if not program.exists():
        pytest.skip("the package is not installed, only on the path")
    return program


@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_run(command: str) -> None:
    program = installed(command)
    out = subprocess.run([program, "--version"], check=True, capture_output=True, text=True)
    assert out.stdout.strip() == f"{command} {bothends.__version__}"
    wrong = subprocess.run([program, "--wrong"], capture_output=True, text=True)
    assert wrong.returncode == 2 and "--wrong" in wrong.stderr


def test_the_package_is_a_command() -> None:
    line = [sys.executable, "-m", "bothends", "completions", "bash"]
    out = subprocess.run(line, check=True, capture_output=True, text=True)
    assert "_bothends" in out.stdout and out.stdout.endswith("\n"), "it is printed to its end"


def test_ctrl_c_ends_a_command_at_once(tmp_path: Path) -> None:
    """Python's own handler would wait for its interpreter, which does not run any more."""
    events = tmp_path / "events"
    os.mkfifo(events)
    line = [installed("bothends"), "report", events, tmp_path / "report.html"]

    def hear() -> None:
        # Whoever runs the tests in the background of a script ignores it, and children inherit that.
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    with subprocess.Popen(line, preexec_fn=hear) as process:
        with opened_by_a_reader(events):
            process.send_signal(signal.SIGINT)
            try:
                assert process.wait(timeout=60) == -signal.SIGINT
            finally:
                process.kill()


def opened_by_a_reader(pipe: Path) -> BinaryIO:
    """A pipe's other end, once somebody reads from it."""
    end = time.monotonic() + 60
    while True:
        try:
            return os.fdopen(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK), "wb")
        except OSError as error:
            assert error.errno == errno.ENXIO and time.monotonic() < end, error
            time.sleep(0.01)


def test_importing_it_imports_no_framework(capsys: pytest.CaptureFixture[str]) -> None:
    code = """
import sys, time
start = time.perf_counter()
import bothends
print(time.perf_counter() - start)
print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""
    seconds, modules = children.run(code).splitlines()
    with capsys.disabled():
        print(f" import bothends: {float(seconds) * 1000:.1f} ms ", end="")
    frameworks = {"torch", "numpy", "jax", "torchvision", "PIL"}
    assert "bothends" in modules.split() and not frameworks & set(modules.split())


def test_every_public_thing_is_documented() -> None:
    for name in bothends.__all__:
        thing = getattr(bothends, name)
        if isinstance(thing, type):
            assert thing.__doc__, name
            public = [m for m in vars(thing) if not m.startswith("_") and callable(vars(thing)[m])]
            for method in public:
                assert getattr(thing, method).__doc__, f"{name}.{method}"


def test_the_stub_names_what_the_native_half_has() -> None:
    stub = (PACKAGE / "_native.pyi").read_text()
    for name in ("Array", "Batch", "Consumer", "Loader"):
        native = getattr(bothends._native, name)
        body = re.search(rf"^class {name}:\n((?:    .*\n|\n)*)", stub, re.MULTILINE)
        assert body is not None, name
        typed = set(re.findall(r"def (\w+)\(", body[1])) - {"__init__"}
        has = {m for m in vars(native) if not m.startswith("__") or m in typed}
        assert typed == has, (name, typed ^ has)


def test_types_hold(tmp_path: Path) -> None:
    pytest.importorskip("mypy", reason="mypy is not installed")
    line = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--package", "bothends"]
    done = subprocess.run(line, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


SCRIPT = """
from torch.utils.data import Dataset
from bothends.torch import DataLoader

class Own(Dataset[int]):
    def __getitem__(self, i: int) -> int:
        return i

class Listed:
    def __len__(self) -> int:
        return 3
    def sample(self, i: int) -> str:
        return "file"

def train(loader: DataLoader[int]) -> None:
    state = loader.state_dict()
    loader.load_state_dict(state)

train(DataLoader(Own(), batch_size=4, ranks="shard", output="bf16"))
listed = DataLoader(Listed(), 4, True)
plain = DataLoader([1, 2, 3])
"""
MISTAKES = """
DataLoader(Own(), batch_sz=4)
DataLoader(Own(), ranks="foo")
DataLoader(Own(), output="f64")
plain.stat_dict()
"""


def test_type_checkers_find_mistakes_in_scripts(tmp_path: Path) -> None:
    """Symptom: `mypy --strict` accepts a misspelt option."""
    pytest.importorskip("mypy", reason="mypy is not installed")
    pytest.importorskip("torch", reason="torch is not installed")
    script = tmp_path / "script.py"
    script.write_text(SCRIPT + MISTAKES)
    line = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", str(script)]
    said = subprocess.run(line, capture_output=True, text=True, cwd=tmp_path).stdout
    n = SCRIPT.count("\n") + 1
    wrong = {int(found) for found in re.findall(r"script\.py:(\d+): error", said)}
    assert wrong == {n + 1, n + 2, n + 3, n + 4}, said


def test_the_readmes_lines_run(photos: Path, tmp_path: Path) -> None:
    """The lines of README.md on a folder of real images, if there are any."""
    pytest.importorskip("torch", reason="torch is not installed")
    readme = (Path(__file__).parents[3] / "README.md").read_text()
    code = re.search(
        r"```python\n(import bothends\n.*?)```\n\n```text\n(.*?)```", readme, re.DOTALL
    )
    assert code is not None
    (tmp_path / "train").symlink_to(photos)
    assert "batch_size=64" in code[1]
    few = code[1].replace("batch_size=64", "batch_size=8")  # the images here fill no batch of 64
    lines = children.run("import os, sys; os.chdir(sys.argv[1])\n" + few, tmp_path)
    # Batches are PyTorch's here, and PyTorch's or NumPy's in the page.
    shape = (
        r"(?:torch\.Size\(\[\d+, 3, 224, 224\]\) torch\.float32 tensor\(\[[\d, ]+\]\)"
        r"|\(\d+, 3, 224, 224\) float32 \[[\d ]+\])\n"
    )
    for output in (lines, code[2].replace("...\n", "")):
        assert re.fullmatch(rf"(?:{shape})+\d+ batches; made by the host: \d+\n", output), output
