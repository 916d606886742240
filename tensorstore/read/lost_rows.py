"""Rows that damaged files may have held, so that no row of another worker is returned in their place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

import numpy as np

from ..errors import CorruptFile, FileError
from ..format.flush_range import FlushRange, flush_range_of
from ..format.index_types import SavedTensor
from ..format.schema import COLLECTIONS, INDEX, worker_of
from ..mode import ModeKeys
from ..snapshot.saved_steps import Columns, SavedSteps
from ..snapshot.workers import natural


@dataclass(frozen=True, slots=True)
class _Lost:
    """The global steps of which a damaged file may hold rows."""

    worker: str
    error: FileError
    after: int
    before: float
    known: tuple[tuple[int, int], ...] = ()
    """The first and the last step of files of the worker that can be read: of these nothing is lost."""

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

    def __init__(self, damaged: Mapping[str, FileError], saved: SavedSteps) -> None:
        """`damaged` files, by path, and the steps that were `saved` in the others."""
        self._saved, files = saved, saved.spans
        self._lost = [
            lost for path, error in damaged.items() if (lost := _of_claim(path, error) or _of_index(path, error, files))
        ]

    def check(self, rows: Iterable[SavedTensor], mode: ModeKeys) -> None:
        """Raise CorruptFile if a damaged file may hold a row that comes before one of `rows`.

        That is a row of the same tensor and step of a mode, of a worker that comes before the row's own. The error
        names the file.
        """
        for row in rows if self._lost else ():
            for lost in self._lost:
                if natural(lost.worker) < natural(row.worker) and self._may_hold(lost, _step_of(row, mode), mode):
                    raise CorruptFile(
                        lost.error.path,
                        f"this damaged file may hold {row.name!r} of {lost.worker} at {_named(row, mode)}; pass "
                        f"worker={row.worker!r} to read what that worker saved ({lost.error})",
                    ) from lost.error

    def check_worker(self, worker: str, row: SavedTensor, mode: ModeKeys) -> None:
        """Raise CorruptFile if a damaged file may hold the row of `worker` for the tensor and step of `row`."""
        for lost in self._lost:
            if lost.worker == worker and self._may_hold(lost, _step_of(row, mode), mode):
                raise CorruptFile(
                    lost.error.path,
                    f"this file is damaged or missing, and may have held {row.name!r} of {worker} at "
                    f"{_named(row, mode)} ({lost.error})",
                ) from lost.error

    def holding(self, step: int, mode: ModeKeys) -> FileError | None:
        """Return the error of a file that may hold a step of a mode; None if none may."""
        return next((lost.error for lost in self._lost if self._may_hold(lost, step, mode)), None)

    def _may_hold(self, lost: _Lost, step: int, mode: ModeKeys) -> bool:
        """Return whether a file may hold a step of a mode: at its global step, or between those of its neighbors.

        These are steps of all workers or, where these are not in step, of the file's own.
        """
        if mode is ModeKeys.GLOBAL:
            return lost.may_hold_between(step - 1, step + 1)
        found = self._of_worker(self._saved.columns.of(self._saved.rows_of(step, mode)), lost.worker).global_step
        if len(found):
            return lost.may_hold_between(int(found.min()) - 1, int(found.max()) + 1)
        rows = self._of_worker(self._saved.in_mode(mode)[0], lost.worker)
        before, after = (rows.global_step[side] for side in (rows.mode_step < step, rows.mode_step > step))
        return lost.may_hold_between(int(before.max(initial=-1)), float("inf") if not len(after) else int(after.min()))

    def _of_worker(self, rows: Columns, worker: str) -> Columns:
        if self._saved.are_in_step:
            return rows
        return rows.of(np.array([each == worker for each in self._saved.workers], bool)[rows.worker])


def _step_of(row: SavedTensor, mode: ModeKeys) -> int:
    return row.global_step if mode is ModeKeys.GLOBAL else row.mode_step


def _named(row: SavedTensor, mode: ModeKeys) -> str:
    return f"step {row.global_step}" if mode is ModeKeys.GLOBAL else f"step {row.mode_step} of mode {mode.name}"


def _of_claim(path: str, error: FileError) -> _Lost | None:
    if not path.startswith(f"{COLLECTIONS}/"):
        return None
    # A worker's rows are read only if its claim is readable.
    return _Lost(worker_of(path), error, -1, float("inf"))


def _of_index(path: str, error: FileError, files: Sequence[tuple[str, int, int]]) -> _Lost | None:
    """Return the steps between the flushes of the worker before the damaged ones and those after them."""
    parts = path.split("/")
    flushes = flush_range_of(path)
    if parts[0] != INDEX or flushes is None or not parts[1].startswith("worker="):
        return None
    own = [file for file in files if file[0].startswith(f"{INDEX}/{parts[1]}/")]
    others = _in_order([(of, first, last) for other, first, last in own if (of := flush_range_of(other))])
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
