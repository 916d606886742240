"""The result of a verification, and its collection."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

from ...errors import FileError, StorageError
from ...format.index_types import SavedTensor
from ...visible import sized


@dataclass(frozen=True)
class Damage:
    """A file that is damaged or missing, and its lost content.

    Attributes:
        path: The file, relative to the run.
        reason: The fault.
        worker: The worker that wrote it; None if unknown.
        steps: The global steps whose tensors cannot be read, ascending; empty if they are not known.
        tensors: The names of these tensors, sorted; empty if they are not known.
        values: The number of raw values that cannot be read.
        may_pass: True if the file system or the object store refused to read the file, which may pass.
    """

    path: str
    reason: str
    worker: str | None = None
    steps: tuple[int, ...] = ()
    tensors: tuple[str, ...] = ()
    values: int = 0
    may_pass: bool = False


@dataclass(frozen=True)
class Unfinished:
    """Something that was begun but not finished. While the job runs, this is no fault.

    Attributes:
        worker: The worker that has not ended, or lacks the steps.
        reason: The unfinished part.
        steps: The global steps that other workers saved but this one did not, ascending.
    """

    worker: str
    reason: str
    steps: tuple[int, ...] = ()


@dataclass(frozen=True)
class Unnamed:
    """A file that belongs to no step of the run.

    Attributes:
        path: The file, relative to the run.
        nbytes: Its size in bytes.
        kind: `chunk` for raw values that no index file names, `temporary` for a file that was not published, `other`
            for a file of another program.
        worker: The worker that wrote it; None if that is not known.
    """

    path: str
    nbytes: int
    kind: str
    worker: str | None = None


@dataclass(frozen=True)
class Verification:
    """The result of `Trial.verify`.

    Attributes:
        run: The folder or URL of the run.
        files: The number of files that were read.
        nbytes: Their size in bytes.
        rows: The number of saved tensors, over all steps and workers.
        values: The number of them with a raw value in a chunk.
        damaged: The files that are damaged or missing.
        lost: The damaged or missing files that `tensortrial repair` has marked as lost. They are not in `damaged`.
        unfinished: Parts that were begun but not finished.
        superseded: Files that a compacted file supersedes and that may be deleted.
        unnamed: Files that belong to no step.
    """

    run: str
    files: int
    nbytes: int
    rows: int
    values: int
    damaged: tuple[Damage, ...] = ()
    lost: tuple[Damage, ...] = ()
    unfinished: tuple[Unfinished, ...] = ()
    superseded: tuple[str, ...] = ()
    unnamed: tuple[Unnamed, ...] = ()

    @property
    def is_whole(self) -> bool:
        """True if every damaged or missing file was marked as lost."""
        return not self.damaged

    def to_json(self) -> dict[str, Any]:
        """Return the report in the types of JSON.

        Returns:
            The attributes, and `is_whole`.
        """
        return {"is_whole": self.is_whole, **asdict(self)}

    def __str__(self) -> str:
        count = len(self.damaged)
        state = "whole" if not count else f"{count} file{' is' if count == 1 else 's are'} damaged or missing"
        return (
            f"{self.run}: {state} ({self.files} files, {sized(self.nbytes)}, {self.rows} saved tensors, "
            f"{self.values} raw values)"
        )


class Findings:
    """The damage of a run, by file, and the amounts that were read."""

    def __init__(self, advance: Callable[[float], object]) -> None:
        self._advance = advance
        self._found: dict[str, Damage] = {}
        self._values: dict[str, list[tuple[int, str]]] = {}
        """The global step and the name of each value that cannot be read, by chunk."""
        self._read: dict[str, int] = {}
        self._counts: dict[str, tuple[int, int]] = {}

    def read(self, path: str, nbytes: int) -> None:
        """Count bytes that were read of a file."""
        self._read[path] = self._read.get(path, 0) + nbytes
        self._advance(nbytes)

    def was_read(self, path: str) -> bool:
        """Return whether any byte of a file was read."""
        return path in self._read

    def count(self, index_file: str, rows: int, values: int) -> None:
        """Record the number of rows of an index file, and the number of them with a value in a chunk."""
        self._counts[index_file] = rows, values

    def forget(self, index_files: Iterable[str]) -> None:
        """Forget the rows of files that were compacted meanwhile."""
        for path in index_files:
            self._counts.pop(path, None)

    def totals(self) -> tuple[int, int, int, int]:
        """Return the number of files that were read, their bytes, and the numbers of rows and of values in chunks."""
        rows, values = map(sum, zip(*self._counts.values(), strict=True)) if self._counts else (0, 0)
        return len(self._read), sum(self._read.values()), rows, values

    def damaged(self, path: str, reason: str | Exception, worker: str | None = None) -> None:
        """Record that a file is damaged. Only the first reason of a file is kept."""
        self._found.setdefault(path, _damage(path, reason, worker))

    def value_damaged(self, row: SavedTensor, reason: str | Exception) -> None:
        """Record that the raw value of a row cannot be read."""
        path = str(row.chunk)
        found = self._found.get(path) or _damage(path, reason, row.worker)
        self._found[path] = replace(found, worker=found.worker or row.worker)
        self._values.setdefault(path, []).append((row.global_step, row.name))

    def is_damaged(self, path: str) -> bool:
        """Return whether a file was found damaged."""
        return path in self._found

    def damage(self) -> tuple[Damage, ...]:
        """Return all damage, by file."""
        found = []
        for path, damage in sorted(self._found.items()):
            values = self._values.get(path, [])
            steps, names = {step for step, _ in values}, {name for _, name in values}
            found.append(replace(damage, steps=tuple(sorted(steps)), tensors=tuple(sorted(names)), values=len(values)))
        return tuple(found)


def _damage(path: str, reason: str | Exception, worker: str | None) -> Damage:
    is_missing = isinstance(reason, FileNotFoundError) and not isinstance(reason, FileError)
    text = "it is missing" if is_missing else str(reason).removeprefix(f"{path}: ")
    return Damage(path, text, worker, may_pass=isinstance(reason, StorageError))
