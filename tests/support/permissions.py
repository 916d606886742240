"""The modes of files, as they bind a user. Tests may run as root, whom no mode keeps out."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_T = TypeVar("_T")

_VERSION, _OVERRIDE_AND_SEARCH = 0x20080522, 0b110


def bound_by_modes(function: Callable[[], _T]) -> _T:
    """Call a function in a thread that may only do what the modes of files permit. Return what it returns."""
    with ThreadPoolExecutor(1, initializer=_give_up_capabilities) as threads:
        return threads.submit(function).result()


def _give_up_capabilities() -> None:
    """Give up this thread's capabilities to write and read any file (capset of Linux)."""
    libc, of = ctypes.CDLL(None), (ctypes.c_uint32 * 2)(_VERSION, 0)
    sets = (ctypes.c_uint32 * 6)()  # effective, permitted and inheritable ones, in two words each
    assert libc.capget(of, sets) == 0
    for number in range(3):
        sets[number] &= ~_OVERRIDE_AND_SEARCH
    assert libc.capset(of, sets) == 0
