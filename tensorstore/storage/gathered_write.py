"""Gathered writes of many pieces of memory to a file, by few system calls of limited size."""

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
"""The most bytes of one call.

Linux allocates contiguous memory for a call, of 2 MB or more. On a virtual machine, free pieces of 2 MB may have to
come from the host, while smaller ones are available: a file took 12 us of the processor for each 4 kB in calls of 2 MB,
and 1.1 us in calls of 512 kB.
"""
_PIECES = 1024
"""The number of pieces that every system accepts in one call (IOV_MAX)."""


class BoundedWrites(io.FileIO):
    """An unbuffered file. Each write takes at most `CALL_BYTES`, and may take less, like the system call."""

    def write(self, data: ReadableBuffer, /) -> int:
        return super().write(memoryview(data).cast("B")[:CALL_BYTES])


def append_all(number: int, pieces: Iterable[bytes | memoryview], nbytes: int) -> None:
    """Write all pieces, of `nbytes` bytes, at the position of a file descriptor, the end of its file. Raises OSError.

    A piece is produced just before the call that writes it, so that it is still in the processor's cache.
    """
    position = os.lseek(number, 0, os.SEEK_CUR)
    if nbytes >= _RESERVED_BYTES:
        _reserve(number, position, nbytes)
    # A call that ends at a multiple of its size in the file fills whole large pages of the page cache.
    for call in _calls(pieces, CALL_BYTES - position % CALL_BYTES):
        _write_all(number, call)


def _calls(pieces: Iterable[bytes | memoryview], left: int) -> Iterator[list[bytes | memoryview]]:
    """Yield the pieces for each call, of `left` bytes at most, and CALL_BYTES after that. Larger pieces are cut."""
    call: list[bytes | memoryview] = []
    for piece in pieces:
        rest = memoryview(piece)
        while len(rest) >= left:
            yield [*call, rest[:left]]
            call, rest, left = [], rest[left:], CALL_BYTES
        if rest:
            call.append(rest)
            left -= len(rest)
        if len(call) == _PIECES:
            yield call
            call = []
    if call:
        yield call


def _write_all(number: int, pieces: Sequence[bytes | memoryview]) -> None:
    written = os.writev(number, pieces)
    for piece in pieces:
        # A call may write only a part.
        if written < len(piece):
            rest = memoryview(piece)[written:]
            while rest:
                rest = rest[os.write(number, rest) :]
        written = max(0, written - len(piece))


def _reserve(number: int, position: int, nbytes: int) -> None:
    """Reserve space for the following bytes, which ext4 then writes in two thirds of the time.

    Errors are ignored: if the file system is full, the write itself fails.
    """
    if (allocate := _fallocate()) is not None:
        allocate(number, _KEEP_SIZE, position, nbytes)


@cache
def _fallocate() -> Callable[[int, int, int, int], int] | None:
    """Return Linux's fallocate. posix_fallocate writes to every block if the file system cannot reserve space."""
    library = ctypes.CDLL(None)
    found = getattr(library, "fallocate64", None) or getattr(library, "fallocate", None)
    if found is not None:
        found.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    return found
