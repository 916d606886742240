"""Reads at a position of an open file."""

from __future__ import annotations

import os

from .base import Buffer

_TRUSTED_LENGTH = 1 << 20
"""Memory of up to this many bytes is allocated without a check of the file's size."""


def read_at(number: int, start: int, length: int) -> bytes:
    """Return `length` bytes from `start` on, or fewer where the file ends. One pread returns 2 GiB at most."""
    data = os.pread(number, length, start)
    if len(data) == length or not data:
        return data
    parts = [data]
    got = len(data)
    while got < length and (data := os.pread(number, length - got, start + got)):
        parts.append(data)
        got += len(data)
    return b"".join(parts)


def read_owned(number: int, start: int, length: int) -> bytearray:
    """Return the same bytes as `read_at`, in memory that belongs to the caller.

    An index may claim any length, so a large one is first limited to what the file holds.
    """
    if length > _TRUSTED_LENGTH:
        length = max(0, min(length, os.fstat(number).st_size - start))
    data = bytearray(length)
    got = os.preadv(number, [data], start) if length else 0
    if got == length:
        return data
    view = memoryview(data)
    while got < length and (count := os.preadv(number, [view[got:]], start + got)):
        got += count
    view.release()
    del data[got:]
    return data


def fill(number: int, start: int, buffer: Buffer) -> int:
    """Read until the buffer is full or the file ends, and return how many bytes were read."""
    got = 0
    while got < len(buffer) and (count := os.preadv(number, [buffer[got:]], start + got)):
        got += count
    return got
