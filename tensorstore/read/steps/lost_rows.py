"""Rows that damaged files may have held, so that no row of another worker is returned in their place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from ...errors import CorruptFile, FileError
from ...format.flush_range import FlushRange, flush_range_of
from ...format.index_types import SavedTensor
from ...format.schema import COLLECTIONS, INDEX, worker_of
from .workers import natural


@dataclass(frozen=True, slots=True)
class _Lost:
    """The global steps of which a damaged file may hold rows."""

    worker: str
    error: FileError
    after: int
    before: float
    known: tuple[tuple[int, int], ...] = ()
    """The first and the last step of files of the worker that can be read: of these nothing is lost."""

    def may_hold(self, step: int) -> bool:
        return self.after < step < self.before and not any(first <= step <= last for first, last in self.known)

    def may_hold_between(self, after: float, before: float) -> bool:
        """Return whether the file may hold a step between `after` and `before`."""
        step = max(self.after, after) + 1
        for first, last in sorted(self.known):
            if first > step:
                break
            step = max(step, last + 1)
        return step < min(self.before, before)


class LostRows:
    """The rows that the damaged files of a run may have held."""

    def __init__(self, damaged: Mapping[str, FileError], files: Sequence[tuple[str, int, int]]) -> None:
        """`damaged` files, by path, and the `files` of the index that can be read: path, first and last global step."""
        self._lost = [
            lost for path, error in damaged.items() if (lost := _of_claim(path, error) or _of_index(path, error, files))
        ]

    def check(self, rows: Iterable[SavedTensor]) -> None:
        """Raise CorruptFile if a damaged file may hold a row that comes before one of `rows`.

        That is a row of the same tensor and step, of a worker that comes before the row's own. The error names the
        file.
        """
        if self._lost:
            for row in rows:
                self._check(row)

    def check_worker(self, worker: str, row: SavedTensor) -> None:
        """Raise CorruptFile if a damaged file may hold the row of `worker` for the tensor and step of `row`."""
        for lost in self._lost:
            if lost.worker == worker and lost.may_hold(row.global_step):
                raise CorruptFile(
                    lost.error.path,
                    f"this file is damaged or missing, and may have held {row.name!r} of {worker} at step "
                    f"{row.global_step} ({lost.error})",
                ) from lost.error

    def between(self, after: float, before: float) -> FileError | None:
        """Return the error of a file that may hold a global step between `after` and `before`; None if none may."""
        return next((lost.error for lost in self._lost if lost.may_hold_between(after, before)), None)

    def _check(self, row: SavedTensor) -> None:
        for lost in self._lost:
            if natural(lost.worker) < natural(row.worker) and lost.may_hold(row.global_step):
                raise CorruptFile(
                    lost.error.path,
                    f"this damaged file may hold {row.name!r} of {lost.worker} at step {row.global_step}; pass "
                    f"worker={row.worker!r} to read what that worker saved ({lost.error})",
                ) from lost.error


def _of_claim(path: str, error: FileError) -> _Lost | None:
    if not path.startswith(f"{COLLECTIONS}/"):
        return None
    # Nothing of a worker is read without its claim.
    return _Lost(worker_of(path), error, -1, float("inf"))


def _of_index(path: str, error: FileError, files: Sequence[tuple[str, int, int]]) -> _Lost | None:
    """Return the steps between the flushes of the worker before the damaged ones and those after them."""
    parts = path.split("/")
    flushes = flush_range_of(path)
    if parts[0] != INDEX or flushes is None or not parts[1].startswith("worker="):
        return None
    others = _in_order([(of, first, last) for other, first, last in files if (of := _flushes_in(other, parts[1]))])
    return _Lost(
        unquote(parts[1].removeprefix("worker=")),
        error,
        max((last for of, _, last in others if of.last < flushes.first), default=-1),
        min((first for of, first, _ in others if of.first > flushes.last), default=float("inf")),
        tuple((first, last) for _, first, last in others),
    )


def _in_order(files: Sequence[tuple[FlushRange, int, int]]) -> list[tuple[FlushRange, int, int]]:
    """Return the files by their flushes, without those that begin before the end of an earlier one.

    These hold values that were saved at past steps: they do not show which steps another file holds.
    """
    found = []
    reached = -1
    for flushes, first, last in sorted(files, key=lambda file: file[0].first):
        if first > reached:
            found.append((flushes, first, last))
        reached = max(reached, last)
    return found


def _flushes_in(path: str, folder: str) -> FlushRange | None:
    return flush_range_of(path) if path.startswith(f"{INDEX}/{folder}/") else None
