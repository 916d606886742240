"""A growing file of events. On a disk it is appended to; in an object store, which cannot append, it is replaced."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence
from typing import IO

from ..storage.open import Storage, translated
from .summary import first_event
from .tfrecord import framed

_FULL_BYTES = 1 << 20
"""An object of this size is followed by a new one, so that no flush replaces more than this."""


class EventFile:
    """The events of one folder, from one process.

    Readers read a folder's files in the order of their names, which begin with the time. So the events of a resumed run
    follow its earlier ones.
    """

    def __init__(self, storage: Storage, folder: str) -> None:
        self._storage = storage
        host = "".join(letter if letter.isalnum() else "-" for letter in socket.gethostname())
        self._stem = f"{folder}/events.out.tfevents.{int(time.time()):010d}.{host}.{os.getpid()}"
        self._part = 0
        self._data = bytearray()
        self._open: IO[bytes] | None = None

    def append(self, events: Sequence[bytes]) -> None:
        """Add events; other processes see them when this returns. Raises StorageError."""
        if self._storage.is_local:
            self._append_to_open(events)
        else:
            self._put(events)

    def close(self) -> None:
        """Close the file, if it is open."""
        if self._open is not None:
            self._open.close()
            self._open = None

    @property
    def _path(self) -> str:
        return f"{self._stem}.{self._part:05d}"

    def _append_to_open(self, events: Sequence[bytes]) -> None:
        with translated(self._path, "write"):
            if self._open is None:
                self._open = self._create()
                events = [first_event(time.time()), *events]
            left = memoryview(framed(events))
            while left:
                left = left[self._open.write(left) :]

    def _create(self) -> IO[bytes]:
        os.makedirs(f"{self._storage.url}/{os.path.dirname(self._path)}", exist_ok=True)
        while True:
            try:
                # Unbuffered: appended events survive the process.
                return open(f"{self._storage.url}/{self._path}", "xb", buffering=0)
            except FileExistsError:
                self._part += 1

    def _put(self, events: Sequence[bytes]) -> None:
        if not self._data:
            events = [first_event(time.time()), *events]
        self._data += framed(events)
        self._storage.replace(self._path, bytes(self._data))
        if len(self._data) >= _FULL_BYTES:
            self._part += 1
            self._data.clear()
