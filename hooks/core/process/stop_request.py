"""The request, stored in a run, that its training stop."""

from __future__ import annotations

import time

from tensortrial.errors import FileError
from tensortrial.format.documents import read_document
from tensortrial.format.schema import STOP_FILE, StopInfo
from tensortrial.storage.open import Storage

from ..log import logger

_MOST_BYTES = 64 << 10
# Seconds between two polls: a poll reads a disk, or sends a request to a bucket, inside a step of training.
_LOCAL_SECONDS = 1.0
_REMOTE_SECONDS = 10.0


class StopRequest:
    """A poll, now and then, for a rule's request that the job stop."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._pause = _LOCAL_SECONDS if storage.is_local else _REMOTE_SECONDS
        self._next_poll = 0.0
        self._is_logged = False

    def reason(self) -> str | None:
        """Return the reason to stop the training; None if no stop was requested, at the last poll."""
        now = time.monotonic()
        if now < self._next_poll:
            return None
        self._next_poll = now + self._pause
        try:
            return read_document(self._storage.read_document(STOP_FILE, _MOST_BYTES), StopInfo).reason
        except FileNotFoundError:
            return None
        except (ValueError, FileError) as exc:
            if not self._is_logged:
                self._is_logged = True
                logger.warning("%s/%s is no valid request, and stops nothing: %s", self._storage.url, STOP_FILE, exc)
            return None
