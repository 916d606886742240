"""The workers of a run, by their claims and end marks: their number, their sessions, and whether they have ended."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

from ..errors import AlreadyPublished, CorruptFile, FileError, InvalidWorker, StorageError
from ..forking import lazy
from ..format.checksum import document_bytes
from ..format.index_types import is_index_path
from ..format.schema import (
    COLLECTIONS,
    END,
    LEASES,
    MARKED_END,
    EndInfo,
    WorkerInfo,
    end_path,
    index_folder,
    lease_path,
)
from ..storage.base import FileSource, Storage

logger = logging.getLogger(__name__)

# An end mark has some hundred bytes, unless the sentence of a failure is long.
_MARK_BYTES = 1 << 20
_MARK_NAME = MARKED_END.rpartition("/")[2]


@dataclass(frozen=True, eq=False)
class Workers:
    """The claims and end marks of a run, by the names of their files. It never changes."""

    claims: Mapping[str, WorkerInfo] = field(default_factory=dict)
    contents: Mapping[str, bytes] = field(default_factory=dict)
    """The content of each claim at the last reading, because it rarely changes."""
    end_names: frozenset[str] = frozenset()
    """The files in the folder of end marks."""
    ends: Mapping[str, EndInfo] = field(default_factory=dict)
    """The end marks that could be read."""
    marked: frozenset[str] = frozenset()
    """Workers that a reader without write access marked as ended."""
    all_marked: bool = False
    """True if such a reader marked all workers as ended."""
    damaged: Mapping[str, FileError] = field(default_factory=dict)
    """The errors of claims and end marks that cannot be read, by their paths."""

    @lazy
    def _in_order(self) -> dict[str, WorkerInfo]:
        return dict(sorted(self.claims.items(), key=lambda claim: natural(claim[1].worker)))

    @lazy
    def infos(self) -> list[WorkerInfo]:
        """The claims of the workers, in natural order of their names. Not to be changed."""
        return list(self._in_order.values())

    @lazy
    def names(self) -> list[str]:
        """The workers that have a claim, in natural order. Not to be changed."""
        return [info.worker for info in self.infos]

    def last_index_file(self, worker: str) -> str:
        """Return the path of a worker's last index file by its end mark; empty if it has none."""
        mark = self.ends.get(_file_name(end_path(worker)))
        return (mark and mark.last_index_file) or ""

    @property
    def num_workers(self) -> int:
        """The number of workers by the newest claim, because a resumed job may have another number."""
        return self._newest.num_workers if self.claims else 1

    @lazy
    def _newest(self) -> WorkerInfo:
        return max(self.claims.values(), key=lambda info: (info.session, info.started_at))

    @property
    def newest_session(self) -> int:
        """The number of the newest session, by the claims."""
        return self._newest.session if self.claims else 0

    @property
    def session_start(self) -> int:
        """The first global step of the newest session. The workers that wrote the steps before it have ended."""
        return min((info.first_global_step for info in self._of_newest_session.values()), default=0)

    @lazy
    def job_ended(self) -> bool:
        """True if every worker of the newest session has ended, or the job was marked as ended."""
        if self.all_marked or _MARK_NAME in self.end_names:
            return True
        return bool(self.claims) and not self._are_some_pending() and not self.writing

    def _are_some_pending(self) -> bool:
        """Return whether workers of the newest session have neither begun nor been marked as ended."""
        return len(self._of_newest_session) + len(self._ended_unclaimed) < self.num_workers

    @lazy
    def ended(self) -> list[str]:
        """The workers of the newest session that have ended, in natural order."""
        claimed = [info.worker for name, info in self._of_newest_session.items() if self._has_ended(name)]
        return sorted([*claimed, *self._ended_unclaimed], key=natural)

    @lazy
    def writing(self) -> list[WorkerInfo]:
        """The workers of the newest session that have not ended, in natural order."""
        return [info for name, info in self._of_newest_session.items() if not self._has_ended(name)]

    @property
    def not_begun(self) -> list[str]:
        """The workers that the newest session waits for; known only if all names are worker_<number>."""
        known = {info.worker for info in self._of_newest_session.values()} | set(self._ended_unclaimed)
        expected = [f"worker_{rank}" for rank in range(self.num_workers)]
        return [name for name in expected if name not in known] if known <= set(expected) else []

    @property
    def failures(self) -> dict[str, str]:
        """The reasons why sessions that nobody continued did not end regularly, by worker, or by the mark of all."""
        return {
            end.worker or name: end.failure
            for name, end in self.ends.items()
            if end.failure is not None and "=" not in name and not self._is_of_earlier_session(name)
        }

    @lazy
    def _of_newest_session(self) -> dict[str, WorkerInfo]:
        return {name: info for name, info in self._in_order.items() if info.session == self.newest_session}

    def _has_ended(self, name: str) -> bool:
        marked = self.claims[name].worker in self.marked
        return marked or (name in self.end_names and not self._is_of_earlier_session(name))

    def _is_of_earlier_session(self, name: str) -> bool:
        return name in self.claims and self._session_of_end(name) < self.claims[name].session

    def _session_of_end(self, name: str) -> int:
        """Return the session that a worker's mark ends. A damaged mark ends the claimed session."""
        if (mark := self.ends.get(name)) is None:
            return 0  # until it is read
        claimed = self.claims[name].session if name in self.claims else self.newest_session
        return claimed if mark.session is None else mark.session

    @lazy
    def _ended_unclaimed(self) -> list[str]:
        """The workers that were marked as ended before they began in the newest session."""
        marks = [name for name in self._unclaimed_marks if self._session_of_end(name) >= self.newest_session]
        workers = {unquote(name.removesuffix(".json")) for name in marks}
        return sorted(workers | (self.marked - {info.worker for info in self._of_newest_session.values()}))

    @lazy
    def _unclaimed_marks(self) -> list[str]:
        """The end marks of workers that have no claim in the newest session."""
        # A name with '=' is the end of one session of a worker.
        names = (name for name in self.end_names if name.endswith(".json") and "=" not in name and name != _MARK_NAME)
        return [name for name in names if name not in self.claims or self.claims[name].session < self.newest_session]

    @lazy
    def lost_claims(self) -> list[str]:
        """The claims of workers that ended after they had saved something. A lagging listing may lack them, too."""
        marks = ((name, self.ends.get(name)) for name in self._unclaimed_marks if name not in self.claims)
        return [name for name, mark in marks if mark is not None and mark.last_index_file]

    @lazy
    def doubtful_ends(self) -> list[str]:
        """The end marks that were not read yet, or may have been replaced since. Not to be changed."""
        pending = {*self._unclaimed_marks} if self.newest_session and self._are_some_pending() else set()
        return sorted(
            name
            for name in self.end_names
            if name.endswith(".json")
            if name not in self.ends
            # A process that was taken over may have written the mark last.
            or self._is_of_earlier_session(name)
            or (name in pending and self._session_of_end(name) < self.newest_session)
        )


def read_workers(source: FileSource, known: Workers = Workers()) -> Workers:
    """Return the workers of a run with new claims and end marks; `known` itself if there are none."""
    names, end_names = source.list(COLLECTIONS), frozenset(source.list(END))
    # The worker of a removed end mark has resumed, and written a new claim.
    resumes = not known.end_names <= end_names
    new = [name for name in names if name.endswith(".json") and (resumes or name not in known.claims)]
    workers = read_claims(source, known, new)
    if end_names != known.end_names:
        ends = {name: mark for name, mark in known.ends.items() if name in end_names}
        workers = replace(workers, end_names=end_names, ends=ends)
    workers = _with_ends(source, workers, workers.doubtful_ends)
    return read_claims(source, workers, workers.lost_claims) if workers.lost_claims else workers


def finished(source: FileSource, workers: Workers, since: Workers) -> set[str]:
    """Return the workers that cannot have written anything since `since` was read.

    Such a worker had ended by then, without a failure: a worker that failed may have a request on its way. It ended
    itself: a process that a reader marked as ended may be alive. And no worker has resumed: it would have created a
    lease of a session that no known claim names. Costs one listing if a worker has ended.
    """
    ended = {
        info.worker
        for name, info in workers.claims.items()
        if (mark := workers.ends.get(name)) is not None
        if mark == since.ends.get(name) and mark.session == info.session and mark.failure is None
    }
    if not ended:
        return ended
    claimed = {lease_path(info.worker, info.session) for info in workers.claims.values()}
    return ended if claimed.issuperset(f"{LEASES}/{name}" for name in source.list(LEASES)) else set()


def read_claims(source: FileSource, known: Workers, names: Iterable[str] | None = None) -> Workers:
    """Return the workers with the present claims of these names, or of all known; `known` itself if none is new."""
    claims, contents, damaged = dict(known.claims), dict(known.contents), dict(known.damaged)
    for name in list(claims) if names is None else names:
        path = f"{COLLECTIONS}/{name}"
        try:
            content = source.read_document(path)
            if contents.get(name) != content:
                claims[name] = WorkerInfo.from_bytes(content, path)
                contents[name] = content
            damaged.pop(path, None)
        except FileNotFoundError:
            damaged.setdefault(path, CorruptFile(path, "the claim of this worker is missing"))
        except ValueError as exc:
            damaged.setdefault(path, CorruptFile(path, f"it is not a valid claim of a worker: {exc}"))
        except FileError as exc:
            damaged.setdefault(path, exc)
    if contents == known.contents and damaged == known.damaged:
        return known
    return replace(known, claims=claims, contents=contents, damaged=damaged)


def _with_ends(source: FileSource, known: Workers, names: list[str]) -> Workers:
    """Return the workers with more end marks, which are read all at once."""
    if not names:
        return known
    ends, damaged = dict(known.ends), dict(known.damaged)
    paths = [f"{END}/{name}" for name in names]
    for name, path, tail in zip(names, paths, source.read_tails(paths, _MARK_BYTES), strict=True):
        try:
            if isinstance(tail, Exception):
                raise tail
            ends[name] = _checked(EndInfo.from_bytes(tail[0], path))
            damaged.pop(path, None)
        except FileNotFoundError:
            continue  # removed since it was listed
        except ValueError as exc:
            ends[name] = EndInfo("")
            damaged.setdefault(path, CorruptFile(path, f"it is not a valid end mark: {exc}"))
        except FileError as exc:
            damaged.setdefault(path, exc)
    return known if (ends, damaged) == (known.ends, known.damaged) else replace(known, ends=ends, damaged=damaged)


def _checked(end: EndInfo) -> EndInfo:
    """Return an end mark. Raise ValueError if the file that it names cannot be the worker's last index file."""
    path = end.last_index_file
    if path and (end.worker is None or not is_index_path(path) or not path.startswith(f"{index_folder(end.worker)}/")):
        raise ValueError(f"{path!r} is not the path of an index file of {end.worker}")
    return end


def mark_ended(storage: Storage, workers: Workers, worker: str | None = None) -> Workers:
    """Mark all workers, or one, as ended in the run, unless they have ended.

    Returns:
        The workers. Without write access, only this object has the marks.

    Raises:
        InvalidWorker: The job has no such worker.
    """
    if worker is None:
        if workers.job_ended or _write_mark(storage, workers, MARKED_END, {}):
            return workers
        return replace(workers, all_marked=True)
    known = [info.worker for info in workers.writing] + workers.not_begun
    if worker not in (expected := [*known, *workers.ended]):
        raise InvalidWorker(worker, sorted(expected, key=natural))
    mark = {"worker": worker, "session": workers.newest_session}
    if worker not in known or _write_mark(storage, workers, end_path(worker), mark):
        return workers
    return replace(workers, marked=workers.marked | {worker})


def _write_mark(storage: Storage, workers: Workers, path: str, whose: dict[str, Any]) -> bool:
    document = {**whose, "ended_at": datetime.now(UTC).isoformat(), "failure": "marked as ended by a reader"}
    try:
        mark = workers.ends.get(_file_name(path))
        if mark is not None and (mark.session or 0) < whose.get("session", 0):
            storage.remove(path)
        # A worker's own end mark stays.
        with suppress(AlreadyPublished):
            storage.create(path, document_bytes(document))
    except StorageError as exc:
        logger.warning("run %s: marked as ended for this reader only: %s", storage.url, exc)
        return False
    return True


def _file_name(path: str) -> str:
    return path.rpartition("/")[2]


def natural(name: str) -> list[tuple[int, int | str]]:
    """Return a sort key that puts worker_2 before worker_10."""
    return [(0, int(part)) if part.isdecimal() else (1, part) for part in re.split(r"(\d+)", name)]
