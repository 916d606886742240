"""A cache of index rows as objects. The rows of one tensor, or of one step, are read together."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from ..errors import CorruptFile, MissingIndexFile
from ..format.index_reader import IndexRows
from ..format.index_types import SavedTensor
from ..mode import ModeKeys
from ..snapshot.saved_steps import SavedSteps, StepRange, is_in_range
from ..storage.open import Storage

_CACHED_BLOCKS = 64
_MOST_FILES_AHEAD = 1000
"""The most files that are read ahead, each of which takes a millisecond."""


@dataclass(slots=True)
class _Block:
    """The rows of one tensor or of one step that were read so far."""

    rows: dict[Any, list[SavedTensor]] = field(default_factory=dict)
    """The rows of a tensor by global step, or of a step by name."""
    last_file: int = -1
    steps: SavedSteps | None = None
    """The saved steps at the time of reading."""


class RowCache:
    """The index rows of one run.

    Must not be used from two threads at once. Every method takes the saved steps, which name the index files to read,
    and raises CorruptFile, which names the file, if rows cannot be read.
    """

    def __init__(self, storage: Storage, range_steps: StepRange | None) -> None:
        self.index_rows = IndexRows(storage)
        self._range = range_steps or (None, None)
        self._blocks: OrderedDict[tuple[str, Any, bool], _Block] = OrderedDict()
        self._lineage: object = None
        self._last: tuple[str, int] | None = None

    def rows(self, steps: SavedSteps, name: str, global_step: int, statistics: bool = False) -> list[SavedTensor]:
        """Return the rows of one tensor at one step, one a worker; with statistics only on request.

        The previous call decides only how much is read ahead. A second step of the same tensor reads all of its steps,
        unless these are in many files; a second tensor of the same step reads the whole step. The rows are the same.
        """
        if not is_in_range(global_step, self._range):
            return []
        self._forget_replaced(steps)
        last, self._last = self._last, (name, global_step)
        of_tensor, of_step = ("tensor", name, statistics), ("step", global_step, statistics)
        if of_step in self._blocks or (last and last[1] == global_step and of_tensor not in self._blocks):
            return self._block(steps, *of_step).get(name, [])
        if of_tensor in self._blocks or (
            last and last[0] == name and len(steps.files_of_tensor(name)) <= _MOST_FILES_AHEAD
        ):
            # A bad file must not prevent reading the steps in other files.
            with suppress(CorruptFile, MissingIndexFile):
                return self._block(steps, *of_tensor).get(global_step, [])
        rows = self.index_rows.read(steps.files_around(global_step), [name], global_step, statistics)
        return _last_ones(steps, rows)

    def of_step(self, steps: SavedSteps, global_step: int) -> dict[str, list[SavedTensor]]:
        """Return the rows of every tensor at one step, by name, one a worker."""
        return self._block(steps, "step", global_step) if is_in_range(global_step, self._range) else {}

    def of_tensors(
        self, saved: SavedSteps, names: Sequence[str], mode: ModeKeys, span: tuple[int, int] | None, worker: str | None
    ) -> list[SavedTensor]:
        """Return the rows of some tensors, of every worker, without statistics.

        A span (steps of the mode with first <= step < end) and a worker restrict the files that are read; rows of other
        steps and workers may be among the result.
        """
        if len(names) == 1 and span is None:
            block = self._block(saved, "tensor", names[0])
            return [row for step, rows in block.items() if is_in_range(step, self._range) for row in rows]
        rows = self.index_rows.read(saved.files_between(mode, span, names, worker), names)
        return _last_ones(saved, [row for row in rows if is_in_range(row.global_step, self._range)])

    def _forget_replaced(self, steps: SavedSteps) -> None:
        """Forget the rows if the files that they were read from were replaced."""
        if steps.lineage is not self._lineage:
            self._blocks.clear()
            self._lineage = steps.lineage

    def _block(self, steps: SavedSteps, of: str, key: Any, statistics: bool = False) -> dict[Any, list[SavedTensor]]:
        """Return the rows of a "tensor", by step, or of a "step", by name. Only new files are read."""
        self._forget_replaced(steps)
        block = self._blocks.setdefault((of, key, statistics), _Block())
        self._blocks.move_to_end((of, key, statistics))
        if block.steps is not steps:
            known = steps.files_of_tensor(key) if of == "tensor" else steps.files_of_step(key)
            files = known[known > block.last_file]
            names, step = ([key], None) if of == "tensor" else (None, key)
            for row in self.index_rows.read(steps.paths_of(files), names, step, statistics):
                block.rows.setdefault(row.global_step if of == "tensor" else row.name, []).append(row)
            if steps.repeats or steps.unknown:
                block.rows = {key: _last_ones(steps, found) for key, found in block.rows.items()}
            block.last_file = int(files.max(initial=block.last_file))
            block.steps = steps
            if len(self._blocks) > _CACHED_BLOCKS:
                self._blocks.popitem(last=False)
        return block.rows


def _last_ones(steps: SavedSteps, rows: list[SavedTensor]) -> list[SavedTensor]:
    """Return the rows that count."""
    if not steps.repeats and not steps.unknown:
        return rows
    return [rows[row] for row in counting(steps, map(itemgetter(*map(SavedTensor._fields.index, COUNTING)), rows))]


COUNTING = ("name", "worker", "mode", "mode_step", "global_step")
"""The columns that determine whether a row counts."""


def counting(steps: SavedSteps, cells: Iterable[tuple[Any, ...]]) -> list[int]:
    """Return the positions of the rows that count; `cells` are the cells of the columns `COUNTING`.

    Rows of unknown steps do not count. If a worker saved a tensor twice at a step, the last row counts.
    """
    known = [
        ((name, worker, step[-1]), row)
        for row, (name, worker, *step) in enumerate(cells)
        if tuple(step) not in steps.unknown.get(worker, ())
    ]
    return list(dict(known).values()) if steps.repeats else [row for _, row in known]
