"""Many pieces of memory, appended to a file by calls of the operating system that are neither many nor large."""

from __future__ import annotations

import ctypes
import io
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_KEEP_SIZE = 1
_RESERVED_BYTES = 1 << 20
CALL_BYTES = 512 << 10
"""The most that one call writes. Linux takes the memory for what a call writes in one piece, of up to 2 MB and more. On
a virtual machine, free pieces of 2 MB may be with the host, while smaller ones were used a moment ago: there, a file
took 12 us of the processor for each 4 kB in calls of 2 MB, and 1.1 us in calls of 512 kB."""
_PIECES = 1024
"""The least that every system takes in one call (IOV_MAX)."""


class BoundedWrites(io.FileIO):
    """A file without a buffer. Each write takes `CALL_BYTES` at most, as one of the system may take less than all."""

    def write(self, data: ReadableBuffer, /) -> int:
        return super().write(memoryview(data).cast("B")[:CALL_BYTES])


def append_all(number: int, pieces: Iterable[bytes | memoryview], nbytes: int) -> None:
    """Write all pieces, of `nbytes` bytes, at the position of a file descriptor, the end of its file. Raises OSError.

    A piece is taken when a call is to write it, so that what computes it leaves it in the processor's cache.
    """
    if nbytes >= _RESERVED_BYTES:
        _reserve(number, nbytes)
    for call in _calls(pieces):
        _write_all(number, call)


def _calls(pieces: Iterable[bytes | memoryview]) -> Iterator[list[bytes | memoryview]]:
    """Yield what each call writes. Pieces are cut where a call would write too much."""
    call: list[bytes | memoryview] = []
    left = CALL_BYTES
    for piece in pieces:
        rest = piece
        while len(rest) > left:
            rest = memoryview(rest)
            yield [*call, rest[:left]]
            call, rest, left = [], rest[left:], CALL_BYTES
        call.append(rest)
        left -= len(rest)
        if not left or len(call) == _PIECES:
            yield call
            call, left = [], CALL_BYTES
    if call:
        yield call


def _write_all(number: int, pieces: Sequence[bytes | memoryview]) -> None:
    written = os.writev(number, pieces)
    for piece in pieces:
        # A call may write less than all of it.
        if written < len(piece):
            rest = memoryview(piece)[written:]
            while rest:
                rest = rest[os.write(number, rest) :]
        written = max(0, written - len(piece))


def _reserve(number: int, nbytes: int) -> None:
    """Reserve space for what is to come: ext4 then writes it in two thirds of the time.

    A file system that cannot do it, or is full, is ignored here: the write itself fails.
    """
    if (allocate := _fallocate()) is not None:
        allocate(number, _KEEP_SIZE, os.lseek(number, 0, os.SEEK_CUR), nbytes)


@cache
def _fallocate() -> Callable[[int, int, int, int], int] | None:
    """Return Linux's call. posix_fallocate would write to every block where the file system cannot reserve."""
    library = ctypes.CDLL(None)
    found = getattr(library, "fallocate64", None) or getattr(library, "fallocate", None)
    if found is not None:
        found.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    return found
