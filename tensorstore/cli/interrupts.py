"""The handling of Ctrl-C while the command line imports modules, and after a command has ended."""

from __future__ import annotations

import _thread
import signal
import threading
from types import FrameType

_AGAIN_SECONDS = 0.02
_IMPORT = "<frozen importlib._bootstrap"


def hold_while_importing() -> None:
    """Make Ctrl-C wait until no import is under way.

    Libraries in C turn a KeyboardInterrupt during their import into an ImportError, or end the process.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)


def say_no_more() -> None:
    """Let Ctrl-C end the process at once. After a command, it would print errors of objects that are being closed."""
    if signal.getsignal(signal.SIGINT) is _interrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def _interrupt(number: int, frame: FrameType | None) -> None:
    if not _is_importing(frame):
        raise KeyboardInterrupt
    again = threading.Timer(_AGAIN_SECONDS, _thread.interrupt_main)
    again.daemon = True
    again.start()


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith(_IMPORT):
            return True
        frame = frame.f_back
    return False
