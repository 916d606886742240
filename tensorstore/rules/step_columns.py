"""The rows of one step as columns, from the step's index files."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..dtypes import Array
from ..format.index_reader import ROW_COLUMNS, DecodedGroup, NumberCells, Positions
from ..format.index_types import SavedTensor
from ..read.row_cache import COUNTING, RowCache, counting
from ..snapshot.saved_steps import SavedSteps


class StepColumns:
    """The rows of a step with their statistics as columns. A row becomes an object only when it is requested."""

    def __init__(self, parts: list[tuple[DecodedGroup, Positions]]) -> None:
        self._parts = parts

    def __len__(self) -> int:
        return sum(len(positions) for _, positions in self._parts)

    def cells(self, name: str) -> list[Any]:
        """Return the cells of a column."""
        return [cell for group, positions in self._parts for cells in group.cells([name]) for cell in cells(positions)]

    def numbers(self, name: str) -> tuple[Array, Array]:
        """Return a column of numbers as float64, and an array of bool that is False where the column is null."""
        nothing = np.empty(0), np.empty(0, bool)
        values, valid = zip(nothing, *[_numbers(*part, name) for part in self._parts], strict=True)
        return np.concatenate(values), np.concatenate(valid)

    def rows(self, wanted: Positions) -> list[SavedTensor]:
        """Return the rows at the wanted positions."""
        found: dict[int, SavedTensor] = {}
        first = 0
        for group, positions in self._parts:
            here = wanted[(first <= wanted) & (wanted < first + len(positions))]
            found.update(zip(here.tolist(), group.rows(positions[here - first], statistics=True), strict=True))
            first += len(positions)
        return [found[row] for row in wanted.tolist()]


def read_columns(cache: RowCache, steps: SavedSteps, global_step: int) -> tuple[StepColumns, Positions]:
    """Return the rows of all tensors at a global step, and the positions of those that are not superseded.

    Raises:
        CorruptFile: A file cannot be read.
    """

    def decoded(group: DecodedGroup, positions: Positions) -> tuple[DecodedGroup, Positions]:
        group.cells(ROW_COLUMNS)
        return group, positions

    paths = steps.paths_of(steps.files_of_step(global_step))
    columns = StepColumns(cache.index_rows.read_each(paths, None, global_step, decoded))
    if not steps.repeats and not steps.unknown:
        return columns, np.arange(len(columns))
    return columns, np.array(counting(steps, zip(*map(columns.cells, COUNTING), strict=True)), np.intp)


def _numbers(group: DecodedGroup, positions: Positions, name: str) -> tuple[Array, Array]:
    (cells,) = group.cells([name])
    if isinstance(cells, NumberCells):
        valid = np.ones(len(positions), bool) if cells.valid is None else cells.valid[positions]
        return cells.numbers[positions].astype(np.float64, copy=False), valid
    cell = next(iter(cells(positions[:1])), None)  # the type of all rows
    return np.full(len(positions), cell, np.float64), np.full(len(positions), cell is not None)
