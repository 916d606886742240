"""The request, left in a run, that its training shall stop."""

from __future__ import annotations

import time

from tensortrial.format.documents import read_document
from tensortrial.format.schema import STOP_FILE, StopInfo
from tensortrial.storage.open import Storage

# How often a step begins with a look: on a disk it takes 10 us, in a bucket a request.
_LOCAL_SECONDS = 0.2
_REMOTE_SECONDS = 10.0


class StopRequest:
    """Looks now and then whether a rule has asked the job to stop."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._pause = _LOCAL_SECONDS if storage.is_local else _REMOTE_SECONDS
        self._next_look = 0.0

    def reason(self) -> str | None:
        """Why the training shall stop; None if it shall not, as far as the last look tells."""
        now = time.monotonic()
        if now < self._next_look:
            return None
        self._next_look = now + self._pause
        try:
            return read_document(self._storage.read(STOP_FILE), StopInfo).reason
        except (FileNotFoundError, ValueError):
            return None
