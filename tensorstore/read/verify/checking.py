"""Collects what a verification finds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from ...errors import FileError, StorageError
from ...format.index_types import SavedTensor
from .report import Damage


@dataclass
class _Found:
    reason: str
    worker: str | None
    may_pass: bool
    steps: set[int] = field(default_factory=set)
    tensors: set[str] = field(default_factory=set)
    values: int = 0


class Findings:
    """The damage of a run, by file, and how much was read."""

    def __init__(self, advance: Callable[[float], object]) -> None:
        self._advance = advance
        self._found: dict[str, _Found] = {}
        self._read: dict[str, int] = {}
        self._counts: dict[str, tuple[int, int]] = {}

    def read(self, path: str, nbytes: int) -> None:
        """Count bytes that were read of a file. Bytes that are read again are not counted."""
        before = self._read.get(path)
        self._read[path] = (before or 0) + nbytes
        self._advance(nbytes)

    def was_read(self, path: str) -> bool:
        """Return whether anything of a file was read."""
        return path in self._read

    def count(self, index_file: str, rows: int, values: int) -> None:
        """Take note of how many rows an index file has, and how many of them have their value in a chunk."""
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
        """Take note that a file is damaged. Only the first reason of a file is kept."""
        self._found.setdefault(path, _Found(_reason(path, reason), worker, _may_pass(reason)))

    def value_damaged(self, row: SavedTensor, reason: str | Exception) -> None:
        """Take note that the raw value of a row cannot be read."""
        path = str(row.chunk)
        found = self._found.setdefault(path, _Found(_reason(path, reason), row.worker, _may_pass(reason)))
        found.worker = found.worker or row.worker
        found.steps.add(row.global_step)
        found.tensors.add(row.name)
        found.values += 1

    def is_damaged(self, path: str) -> bool:
        """Return whether a file was found damaged."""
        return path in self._found

    def damage(self) -> tuple[Damage, ...]:
        """Return all damage, by file."""
        return tuple(
            Damage(
                path,
                each.reason,
                each.worker,
                tuple(sorted(each.steps)),
                tuple(sorted(each.tensors)),
                each.values,
                each.may_pass,
            )
            for path, each in sorted(self._found.items())
        )


def _may_pass(reason: str | Exception) -> bool:
    return isinstance(reason, StorageError)


def _reason(path: str, reason: str | Exception) -> str:
    if isinstance(reason, FileNotFoundError) and not isinstance(reason, FileError):
        return "it is missing"
    return str(reason).removeprefix(f"{path}: ")
