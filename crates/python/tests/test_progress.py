"""`progress=True`: tqdm's protocol where it is there, plain lines where nobody looks at a terminal,
nothing at all for what is over in a moment; the batches are the same."""

from __future__ import annotations

import io
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from bothends import Loader, _progress

OPTIONS: dict[str, Any] = {"recipe": "imagenet-eval", "batch_size": 4, "framework": "numpy"}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def labels(loader: Loader) -> list[list[int]]:
    return [list(labels) for _, labels in loader]


def test_a_short_epoch_is_silent_and_unchanged(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain, shown = Loader(small, **OPTIONS), Loader(small, progress=True, **OPTIONS)
    assert labels(shown) == labels(plain)
    assert capsys.readouterr().err == ""


def test_without_a_terminal_there_are_plain_lines(
    small: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_progress, "DELAY", 0.0)
    monkeypatch.setattr(_progress, "EVERY_LINE", 0.0)
    n = len(labels(Loader(small, progress=True, **OPTIONS)))
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(" batches,")[0] for line in lines] == [
        f"epoch 0: {i + 1}/{n}" for i in range(n)
    ]
    assert not any("\r" in line for line in lines)


def test_an_epoch_that_is_resumed_goes_on_where_it_was(
    small: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_progress, "DELAY", 0.0)
    monkeypatch.setattr(_progress, "EVERY_LINE", 0.0)
    first, again = Loader(small, **OPTIONS), Loader(small, progress=True, **OPTIONS)
    batches = iter(first)
    next(batches), next(batches)
    again.load_state_dict(first.state_dict())
    n = len(again)
    assert len(labels(again)) == n - 2
    assert capsys.readouterr().err.startswith(f"epoch 0: 3/{n} batches")


def test_on_a_terminal_tqdm_shows_it(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its protocol alone: the arguments of its constructor, `update` and `close`."""
    calls: list[Any] = []

    class Bar:
        def __init__(self, **arguments: Any) -> None:
            calls.append(arguments)

        def update(self, n: int) -> None:
            calls.append(n)

        def close(self) -> None:
            calls.append("close")

    module = types.ModuleType("tqdm.auto")
    module.tqdm = Bar  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tqdm", types.ModuleType("tqdm"))
    monkeypatch.setitem(sys.modules, "tqdm.auto", module)
    monkeypatch.setattr(sys, "stderr", Terminal())
    batches = iter(Loader(small, progress=True, **OPTIONS).batches())
    next(batches), next(batches)
    del batches  # a script that breaks off
    expected = {"total": 5, "initial": 0, "desc": "epoch 0", "unit": "batch", "delay": 2.0}
    assert calls == [expected, 1, 1, "close"]


def test_on_a_terminal_without_tqdm_a_line_stays_in_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_progress, "DELAY", 0.0)
    monkeypatch.setattr(_progress, "EVERY_TERMINAL", 0.0)
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    assert list(_progress.Shown(iter("ab"), 2, 0, 7)) == ["a", "b"]
    said = terminal.getvalue()
    assert said.count("\repoch 7: ") == 2 and said.endswith("\n"), said
