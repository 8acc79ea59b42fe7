"""The commands `bothends`, `bothends-agent` and `firmware-sim`. They are in `_native`, as most of what
they do is the loader's; here a process of Python becomes one."""

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
    # Python's handler only makes a note for its interpreter, which does not get to it any more. A signal
    # that was ignored from the start stays so.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    _open_standard_streams()
    called = sys.argv[0]
    # `python -m bothends` is called by a file's name.
    called = called if os.path.basename(called) == name else name
    run_program(name, [called, *sys.argv[1:]])


def _open_standard_streams() -> None:
    """A stream that was closed would be the first file that is opened, and messages go into that."""
    for stream in (0, 1, 2):
        try:
            os.fstat(stream)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
