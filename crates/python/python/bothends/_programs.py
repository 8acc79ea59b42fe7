"""The commands `bothends`, `bothends-agent` and `firmware-sim`. They are in `_native`, since they
share most of their code with the loader. Here a Python process becomes one of them."""

import os
import signal
import sys
from typing import NoReturn

from ._native import run_program


def bothends() -> NoReturn:
    _run("bothends")


def bothends_agent() -> NoReturn:
    _run("bothends-agent")


def firmware_sim() -> NoReturn:
    _run("firmware-sim")


def _run(name: str) -> NoReturn:
    # Python's handler only sets a flag for the interpreter, which no longer gets to check it. A
    # signal that was ignored from the start stays ignored.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    _open_standard_streams()
    called = sys.argv[0]
    # `python -m bothends` sets it to the name of a file.
    called = called if os.path.basename(called) == name else name
    run_program(name, [called, *sys.argv[1:]])


def _open_standard_streams() -> None:
    """Opens standard streams that are closed: otherwise the first file opened would take that
    descriptor and receive messages."""
    for stream in (0, 1, 2):
        try:
            os.fstat(stream)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
