"""What the workers of a run say of themselves: what they save, how many they are, and whether they are done."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable
from datetime import UTC, datetime

from .errors import CorruptFile, FileError, StorageError
from .schema import COLLECTIONS, END, MARKED_END, WorkerInfo, end_path
from .storage import Storage

logger = logging.getLogger(__name__)

_MARK_NAME = MARKED_END.rpartition("/")[2]


class Workers:
    """The claims and end marks of a run, as of the last `refresh`."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._files: dict[str, WorkerInfo] = {}
        self._ended_files: frozenset[str] = frozenset()
        self._marked_ended = False
        self.damaged: dict[str, FileError] = {}

    @property
    def infos(self) -> list[WorkerInfo]:
        """What each worker said, in natural order of their names."""
        return sorted(self._files.values(), key=lambda info: natural(info.worker))

    @property
    def num_workers(self) -> int:
        """How many workers write, by the newest claim: a resumed job may have another number."""
        return self._newest().num_workers if self._files else 1

    @property
    def session_start(self) -> int:
        """The first global step of the newest session. Whoever wrote the steps before it has ended, in whatever way."""
        newest = self._newest() if self._files else None
        return newest.first_global_step if newest and newest.session else 0

    @property
    def job_ended(self) -> bool:
        """Whether every worker of the newest session is done, or the job was marked as ended."""
        if self._marked_ended or _MARK_NAME in self._ended_files:
            return True
        if not self._files or len(self._files) < self.num_workers:
            return False
        current = sorted(self._files.values(), key=lambda info: (info.session, info.started_at), reverse=True)
        done = (end_path(info.worker).rpartition("/")[2] in self._ended_files for info in current[: self.num_workers])
        return all(done)

    def refresh(self) -> bool:
        """Look who has come and who is done. True if anything changed."""
        names = [name for name in self._storage.list(COLLECTIONS) if name.endswith(".json")]
        ended = frozenset(self._storage.list(END))
        # An end mark that goes belongs to a worker that resumes, and has said anew what it saves.
        resumed = bool(self._ended_files - ended)
        new = [name for name in names if resumed or name not in self._files]
        changed = ended != self._ended_files or bool(new)
        self._ended_files = ended
        self._read(new)
        return changed

    def reread(self) -> bool:
        """Read again what the workers save: it may change once training has begun. True if it did."""
        before = dict(self._files)
        self._read(list(self._files))
        return self._files != before

    def mark_ended(self) -> None:
        """Say, in the run, that no worker will write any more, unless all have said so. Where the run cannot be written
        to, only this reader knows.
        """
        if self.job_ended:
            return
        document = {"ended_at": datetime.now(UTC).isoformat(), "failure": "marked as ended by a reader"}
        try:
            self._storage.replace(MARKED_END, json.dumps(document).encode())
        except StorageError as exc:
            self._marked_ended = True
            logger.warning("run %s: marked as ended for this reader only: %s", self._storage.url, exc)

    def _newest(self) -> WorkerInfo:
        return max(self._files.values(), key=lambda info: (info.session, info.started_at))

    def _read(self, names: Iterable[str]) -> None:
        for name in names:
            path = f"{COLLECTIONS}/{name}"
            try:
                self._files[name] = WorkerInfo.from_bytes(self._storage.read(path))
            except (ValueError, FileNotFoundError) as exc:
                if path not in self.damaged:
                    self.damaged[path] = CorruptFile(path, f"it does not say what a worker saves: {exc}")
                    logger.warning("%s", self.damaged[path])


def natural(name: str) -> list[tuple[int, int | str]]:
    """A sort key that puts worker_2 before worker_10."""
    return [(0, int(part)) if part.isdecimal() else (1, part) for part in re.split(r"(\d+)", name)]
