"""The workers of a run, by their claims and end marks: their number, their collections, and whether they have ended."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

from ...config.collection import Collection
from ...errors import (
    AlreadyPublished,
    CorruptFile,
    FileError,
    InvalidCollectionConfiguration,
    InvalidWorker,
    StorageError,
)
from ...format.checksum import document_bytes
from ...format.index_footer import is_index_path
from ...format.schema import COLLECTIONS, END, MARKED_END, EndInfo, WorkerInfo, end_path, index_folder
from ...storage.open import FileSource, Storage

logger = logging.getLogger(__name__)

# An end mark has some hundred bytes, unless the sentence of a failure is long.
_MARK_BYTES = 1 << 20
_MARK_NAME = MARKED_END.rpartition("/")[2]


class Workers:
    """The claims and end marks of a run, as of the last `refresh`."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._source: FileSource = storage
        self._files: dict[str, WorkerInfo] = {}
        self._infos: list[WorkerInfo] | None = None
        self._contents: dict[str, bytes] = {}
        """The content of each claim when it was read last: most often it is still the same."""
        self._ended_files: frozenset[str] = frozenset()
        self._end_sessions: dict[str, int] = {}
        self._marked_ended = False
        self._marked_workers: frozenset[str] = frozenset()
        self._marked_since = False
        self._last_index_files: dict[str, str | None] = {}
        self.damaged: dict[str, FileError] = {}

    @property
    def infos(self) -> list[WorkerInfo]:
        """The claims of the workers, in natural order of their names. Not to be changed."""
        if self._infos is None:
            self._infos = sorted(self._files.values(), key=lambda info: natural(info.worker))
        return self._infos

    @property
    def last_index_files(self) -> dict[str, str]:
        """The paths of the last index files of the workers that have ended, by worker, as far as end marks say it."""
        named = {worker: self._last_index_files.get(_file_name(end_path(worker))) for worker in self._names()}
        return {worker: path for worker, path in named.items() if path}

    def _names(self) -> Iterator[str]:
        return (info.worker for info in self._files.values())

    def collections(self) -> Iterator[Collection]:
        """Yield the collections that workers claim, by worker in natural order.

        A collection that cannot be read is logged and skipped.
        """
        for name, info in sorted(self._files.items(), key=lambda item: natural(item[1].worker)):
            for document in info.collections:
                try:
                    yield Collection.from_dict(document)
                except InvalidCollectionConfiguration as exc:
                    self.set_aside(CorruptFile(f"{COLLECTIONS}/{name}", f"one of its collections is skipped: {exc}"))

    @property
    def num_workers(self) -> int:
        """The number of workers, by the newest claim: a resumed job may have another."""
        return self._newest().num_workers if self._files else 1

    @property
    def session_start(self) -> int:
        """The first global step of the newest session. The workers that wrote the steps before it have ended."""
        return min((info.first_global_step for info in self._of_newest_session()), default=0)

    @property
    def job_ended(self) -> bool:
        """True if every worker of the newest session has ended, or the job was marked as ended."""
        if self._marked_ended or _MARK_NAME in self._ended_files:
            return True
        if not self._files or self._are_some_awaited():
            return False
        return all(self._has_ended(info.worker) for info in self._of_newest_session())

    def _are_some_awaited(self) -> bool:
        """Return whether workers of the newest session have neither begun nor been marked as ended."""
        return len(self._of_newest_session()) + len(self._ended_unclaimed()) < self.num_workers

    @property
    def ended(self) -> list[str]:
        """The workers of the newest session that will write no more, in natural order."""
        claimed = [info.worker for info in self._of_newest_session() if self._has_ended(info.worker)]
        return sorted([*claimed, *self._ended_unclaimed()], key=natural)

    @property
    def writing(self) -> list[WorkerInfo]:
        """The workers of the newest session that have not ended, in natural order."""
        return [info for info in self._of_newest_session() if not self._has_ended(info.worker)]

    @property
    def not_begun(self) -> list[str]:
        """The workers that the newest session waits for, if all names are known to be worker_<number>."""
        known = {info.worker for info in self._of_newest_session()} | set(self._ended_unclaimed())
        expected = [f"worker_{rank}" for rank in range(self.num_workers)]
        return [name for name in expected if name not in known] if known <= set(expected) else []

    def _of_newest_session(self) -> list[WorkerInfo]:
        newest = self.newest_session
        return [info for info in self.infos if info.session == newest]

    @property
    def newest_session(self) -> int:
        """The number of the newest session, by the claims."""
        return self._newest().session if self._files else 0

    def _has_ended(self, worker: str) -> bool:
        name = _file_name(end_path(worker))
        ended = name in self._ended_files and not self._is_of_earlier_session(name)
        return ended or worker in self._marked_workers

    def _is_of_earlier_session(self, name: str) -> bool:
        return name in self._files and self._end_sessions.get(name, 0) < self._files[name].session

    def _ended_unclaimed(self) -> list[str]:
        """Return workers that were marked as ended before they began in the newest session."""
        newest = self.newest_session
        unclaimed = {name for name in self._unclaimed_marks() if self._end_sessions.get(name, 0) >= newest}
        workers = {unquote(name.removesuffix(".json")) for name in unclaimed}
        return sorted(workers | (self._marked_workers - {info.worker for info in self._of_newest_session()}))

    def _unclaimed_marks(self) -> set[str]:
        """Return the end marks of workers that have no claim in the newest session."""
        # A name with '=' is the end of one session of a worker.
        names = {name for name in self._ended_files if name.endswith(".json") and "=" not in name} - {_MARK_NAME}
        newest = self.newest_session
        return {name for name in names if name not in self._files or self._files[name].session < newest}

    def refresh(self, source: FileSource | None = None) -> bool:
        """Find new claims and end marks, in the `source` or, if None, in the run. Return whether anything changed."""
        self._source = source or self._storage
        names = [name for name in self._source.list(COLLECTIONS) if name.endswith(".json")]
        ended = frozenset(self._source.list(END))
        # An end mark that disappears belongs to a worker that resumes, and has written a new claim.
        resumed = bool(self._ended_files - ended)
        new = [name for name in names if resumed or name not in self._files]
        changed = ended != self._ended_files or bool(new) or self._marked_since
        self._ended_files, self._marked_since = ended, False
        self._read(new)
        self._read_last_index_files()
        return self._read_ends() or changed

    def _read_last_index_files(self) -> None:
        """Read the end marks that are new, all at once."""
        known = {name: last for name, last in self._last_index_files.items() if name in self._ended_files}
        new = sorted(name for name in self._files if name in self._ended_files and name not in known)
        paths = [f"{END}/{name}" for name in new]
        for name, path, tail in zip(new, paths, self._source.read_tails(paths, _MARK_BYTES), strict=True):
            try:
                if isinstance(tail, Exception):
                    raise tail
                known[name] = _last_index_file(EndInfo.from_bytes(tail[0], path))
            except FileNotFoundError:
                continue  # removed since it was listed
            except ValueError as exc:
                known[name] = None
                self.set_aside(CorruptFile(path, f"it does not say how a worker ended: {exc}"))
            except FileError as exc:
                self.set_aside(exc)
        self._last_index_files = known

    def _read_ends(self) -> bool:
        """Read the sessions of the end marks of workers that had several, and return whether anything changed.

        A process that was taken over may have written the mark last.
        """
        before = dict(self._end_sessions)
        self._end_sessions = {name: session for name, session in before.items() if name in self._ended_files}
        for name, info in self._files.items():
            if name in self._ended_files and self._is_of_earlier_session(name):
                self._end_sessions[name] = self._session_of_end(name, info.session)
        newest = self.newest_session
        if newest and self._are_some_awaited():
            for name in self._unclaimed_marks():
                if self._end_sessions.get(name, 0) < newest:
                    claimed = self._files[name].session if name in self._files else newest
                    self._end_sessions[name] = self._session_of_end(name, claimed)
        return self._end_sessions != before

    def _session_of_end(self, name: str, unsaid: int) -> int:
        path = f"{END}/{name}"
        session = None
        try:
            session = EndInfo.from_bytes(self._source.read_document(path), path).session
        except ValueError as exc:
            self.set_aside(CorruptFile(path, f"it does not say which session of a worker ended: {exc}"))
        except FileNotFoundError:
            pass  # removed since it was listed
        # One of an earlier release does not say it.
        return unsaid if session is None else session

    def reread(self) -> bool:
        """Read the claims again: they may change once training has begun. Return whether they did."""
        before = dict(self._files)
        self._read(list(self._files))
        return self._files != before

    def mark_ended(self, worker: str | None = None) -> None:
        """Mark all workers, or one, as ended in the run, unless they have ended.

        Where the run cannot be written to, only this reader knows. Raises InvalidWorker.
        """
        if worker is None:
            self._mark_all_ended()
        elif worker in (known := [info.worker for info in self.writing] + self.not_begun):
            self._mark_worker_ended(worker)
        elif worker not in (known := [*known, *self.ended]):
            raise InvalidWorker(worker, sorted(known, key=natural))

    def _mark_all_ended(self) -> None:
        if not self.job_ended and not self._write_mark(MARKED_END, {}):
            self._marked_ended = True

    def _mark_worker_ended(self, worker: str) -> None:
        if not self._write_mark(end_path(worker), {"worker": worker, "session": self.newest_session}):
            self._marked_workers |= {worker}

    def _write_mark(self, path: str, whose: dict[str, Any]) -> bool:
        document = {**whose, "ended_at": datetime.now(UTC).isoformat(), "failure": "marked as ended by a reader"}
        try:
            name = _file_name(path)
            if name in self._ended_files and self._end_sessions.get(name, 0) < whose.get("session", 0):
                self._storage.remove(path)
            # A worker's own end mark stays.
            with suppress(AlreadyPublished):
                self._storage.create(path, document_bytes(document))
        except StorageError as exc:
            logger.warning("run %s: marked as ended for this reader only: %s", self._storage.url, exc)
            self._marked_since = True
            return False
        return True

    def _newest(self) -> WorkerInfo:
        return max(self._files.values(), key=_by_session)

    def _read(self, names: Iterable[str]) -> None:
        self._infos = None
        for name in names:
            path = f"{COLLECTIONS}/{name}"
            try:
                content = self._source.read_document(path)
                if self._contents.get(name) != content:
                    self._files[name] = WorkerInfo.from_bytes(content, path)
                    self._contents[name] = content
                self.damaged.pop(path, None)
            except (ValueError, FileNotFoundError) as exc:
                self.set_aside(CorruptFile(path, f"it does not say what a worker saves: {exc}"))
            except StorageError as exc:
                self.set_aside(exc)

    def set_aside(self, error: FileError) -> None:
        """Remember that a claim or an end mark is damaged, and log it once."""
        if error.path not in self.damaged:
            self.damaged[error.path] = error
            logger.warning("run %s: left out, the rest is readable: %s", self._storage.url, error)


def _last_index_file(end: EndInfo) -> str | None:
    """Return the path of the last index file that an end mark names. Raises ValueError if it cannot be one."""
    if not end.last_index_file or end.worker is None:
        return None
    path = end.last_index_file
    if not is_index_path(path) or not path.startswith(f"{index_folder(end.worker)}/"):
        raise ValueError(f"{end.last_index_file!r} is not the path of an index file of {end.worker}")
    return end.last_index_file


def _by_session(info: WorkerInfo) -> tuple[int, str]:
    return info.session, info.started_at


def _file_name(path: str) -> str:
    return path.rpartition("/")[2]


def natural(name: str) -> list[tuple[int, int | str]]:
    """Return a sort key that puts worker_2 before worker_10."""
    return [(0, int(part)) if part.isdecimal() else (1, part) for part in re.split(r"(\d+)", name)]
