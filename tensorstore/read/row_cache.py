"""Rows of the index as objects: those of one step, and those of one tensor, which are kept."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from ..format.index_reader import IndexRows
from ..format.index_types import SavedTensor
from ..mode import ModeKeys
from ..snapshot.saved_steps import SavedSteps, StepRange, is_in_range
from ..storage.open import Storage

_CACHED_TENSORS = 64


@dataclass(slots=True)
class _OfTensor:
    """The rows of one tensor, as far as they were read."""

    rows: list[SavedTensor] = field(default_factory=list)
    last_file: int = -1
    steps: SavedSteps | None = None
    """The saved steps as of that time."""


class RowCache:
    """The rows of the index of one run. Not to be used from two threads at once.

    Every method takes the saved steps, which say what index files to read, and raises CorruptFile, naming the file,
    where rows cannot be read.
    """

    def __init__(self, storage: Storage, range_steps: StepRange | None) -> None:
        self._index_rows = IndexRows(storage)
        self._range = range_steps or (None, None)
        self._tensors: OrderedDict[str, _OfTensor] = OrderedDict()
        self._lineage: object = None

    def of_step(
        self, steps: SavedSteps, global_step: int, names: Collection[str] | None = None, statistics: bool = False
    ) -> list[SavedTensor]:
        """Return the rows of some tensors, or of all, at one step, one a worker; with statistics only on request."""
        if not is_in_range(global_step, self._range):
            return []
        return _last_ones(steps, self._index_rows.read(steps.files_around(global_step), names, global_step, statistics))

    def of_tensors(
        self, steps: SavedSteps, names: Sequence[str], mode: ModeKeys, span: tuple[int, int] | None, worker: str | None
    ) -> list[SavedTensor]:
        """Return the rows of some tensors, of every worker, without statistics.

        With a span, those at steps of the mode with first <= step < end; with a worker, those of it. Others may be
        among them.
        """
        if len(names) == 1 and span is None:
            rows = self._of_tensor(steps, names[0])
        else:
            rows = self._index_rows.read(steps.files_between(mode, span, names, worker), names)
            rows = _last_ones(steps, rows)
        if self._range == (None, None):
            return rows
        return [row for row in rows if is_in_range(row.global_step, self._range)]

    def _of_tensor(self, steps: SavedSteps, name: str) -> list[SavedTensor]:
        """Return the rows of a tensor. Only files that are new are read."""
        if steps.lineage is not self._lineage:  # the files that the rows were read from were replaced
            self._tensors.clear()
            self._lineage = steps.lineage
        known = self._tensors.setdefault(name, _OfTensor())
        self._tensors.move_to_end(name)
        if known.steps is not steps:
            files = steps.files_of_tensor(name)
            files = files[files > known.last_file]
            known.rows = _last_ones(steps, [*known.rows, *self._index_rows.read(steps.paths_of(files), [name])])
            known.last_file = int(files.max(initial=known.last_file))
            known.steps = steps
            if len(self._tensors) > _CACHED_TENSORS:
                self._tensors.popitem(last=False)
        return known.rows


def _last_ones(steps: SavedSteps, rows: list[SavedTensor]) -> list[SavedTensor]:
    """Return the rows that count: of known steps, and of a tensor that a worker saved twice at a step the last one."""
    if steps.unknown:
        rows = [row for row in rows if row.global_step not in steps.unknown.get(row.worker, ())]
    if not steps.repeats:
        return rows
    return list({(row.name, row.global_step, row.worker): row for row in rows}.values())
