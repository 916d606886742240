"""The rows of consecutive steps as columns, from their index files."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np

from ..dtypes import Array
from ..format.index_reader import DecodedGroup, ListCells, NumberCells, Positions, WordCells
from ..format.index_types import SavedTensor
from ..mode import ModeKeys
from ..read.row_cache import COUNTING, RowCache, counting
from ..snapshot.saved_steps import SavedSteps

IDENTITY = ("name", "worker", "dtype")
"""The columns of texts that, with the shape, identify a tensor across steps."""
_KEYS = (*IDENTITY, "shape", "global_step", "mode", "mode_step")
_MOST_DIMENSIONS = 64
"""The most dimensions of an array. A forged file may claim any number."""
_KEPT = 32
"""The most sequences of texts whose integers are cached."""


class Codes(dict[Any, int]):
    """A mapping of texts to integers. Whole sequences are cached, because file after file has the same names."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: OrderedDict[int, tuple[Sequence[Any], Array]] = OrderedDict()

    def of(self, words: Sequence[Any]) -> Array:
        """Return the integers of texts. New ones get the next integers."""
        kept = self._kept.get(id(words))
        if kept is None or kept[0] is not words:
            kept = words, np.array([self.setdefault(word, len(self)) for word in words], np.int32)
            if isinstance(words, tuple):  # which never changes
                self._kept[id(words)] = kept
                if len(self._kept) > _KEPT:
                    self._kept.popitem(last=False)
        return kept[1]


class StepColumns:
    """The rows of some steps with their statistics as columns. A row becomes an object only when it is requested."""

    def __init__(self, parts: list[tuple[DecodedGroup, Positions]], names: Collection[str]) -> None:
        self._parts = parts
        self.names = frozenset(names)
        """The columns that were read."""

    def __len__(self) -> int:
        return sum(len(positions) for _, positions in self._parts)

    def cells(self, name: str, wanted: Positions) -> list[Any]:
        """Return the cells of a column at the wanted positions."""
        found: dict[int, Any] = {}
        for group, positions, here in self._at(wanted):
            found.update(zip(here.tolist(), group.cells([name])[0](positions), strict=True))
        return [found[row] for row in wanted.tolist()]

    def numbers(self, name: str) -> tuple[Array, Array]:
        """Return a column of numbers as float64, and an array of bool that is False where the column is null."""
        found = [_numbers(*part, name) for part in self._parts]
        if len(found) == 1:
            return found[0]
        values, valid = zip((np.empty(0), np.empty(0, bool)), *found, strict=True)
        return np.concatenate(values), np.concatenate(valid)

    def codes(self, name: str, known: Codes) -> Array:
        """Return a column of texts as integers by `known`, to which missing texts are added."""
        found = [np.empty(0, np.int32)]
        for group, positions in self._parts:
            (cells,) = group.cells([name])
            if not isinstance(cells, WordCells):
                raise TypeError(f"the column {name} holds no texts")
            codes = known.of(cells.words)
            of_rows = cells.codes
            found.append(np.full(len(positions), codes[0]) if of_rows is None else codes[_at(of_rows, positions)])
        return np.concatenate(found)

    def shapes(self) -> Array:
        """Return the shapes as rows of integers, -1 after their ends."""
        found = [_padded(group.cells(["shape"])[0], positions) for group, positions in self._parts]
        shapes = np.full((len(self), max((each.shape[1] for each in found), default=0)), -1, np.int64)
        first = 0
        for each in found:
            shapes[first : first + len(each), : each.shape[1]] = each
            first += len(each)
        return shapes

    def rows(self, wanted: Positions, statistics: bool) -> list[SavedTensor]:
        """Return the rows at the wanted positions."""
        found: dict[int, SavedTensor] = {}
        for group, positions, here in self._at(wanted):
            found.update(zip(here.tolist(), group.rows(positions, statistics), strict=True))
        return [found[row] for row in wanted.tolist()]

    def _at(self, wanted: Positions) -> Iterator[tuple[DecodedGroup, Positions, Positions]]:
        """Yield the row groups of some positions, each with its rows and the indices of their positions."""
        first = 0
        for group, positions in self._parts:
            here = wanted[(first <= wanted) & (wanted < first + len(positions))]
            if len(here):
                yield group, positions[here - first], here
            first += len(positions)


def read_columns(
    cache: RowCache, steps: SavedSteps, first: int, last: int, names: Collection[str] = ()
) -> tuple[StepColumns, Array]:
    """Return the rows of all tensors from one global step to another, and a mask of the rows that count.

    The columns that identify a row and those of some names are read at once. Superseded rows do not count.

    Raises:
        CorruptFile: A file cannot be read.
    """
    wanted = [*dict.fromkeys((*_KEYS, *names))]

    def decoded(group: DecodedGroup, positions: Positions) -> tuple[DecodedGroup, Positions]:
        group.cells(wanted)
        return group, positions

    span = ModeKeys.GLOBAL, (first, last + 1)
    paths = steps.paths_of(steps.files_of_step(first)) if first == last else steps.files_between(*span)
    columns = StepColumns(cache.index_rows.read_each(paths, None, (first, last), decoded, wanted), wanted)
    if not steps.repeats and not steps.unknown:
        return columns, np.ones(len(columns), bool)
    every = np.arange(len(columns))
    keys = zip(*(columns.cells(name, every) for name in COUNTING), strict=True)
    return columns, np.isin(every, counting(steps, keys))


def _numbers(group: DecodedGroup, positions: Positions, name: str) -> tuple[Array, Array]:
    (cells,) = group.cells([name])
    if isinstance(cells, NumberCells):
        valid = np.ones(len(positions), bool) if cells.valid is None else _at(cells.valid, positions)
        return _at(cells.numbers, positions).astype(np.float64, copy=False), valid
    cell = next(iter(cells(positions[:1])), None)  # that of all rows
    return np.full(len(positions), cell, np.float64), np.full(len(positions), cell is not None)


def _at(values: Array, positions: Positions) -> Array:
    """Return the values at ascending positions. If these are all, the values are not copied."""
    return values if len(values) == len(positions) else values[positions]


def _padded(cells: Any, positions: Positions) -> Array:
    if isinstance(cells, WordCells):
        return np.tile(np.array(cells.words[0] or (), np.int64), (len(positions), 1))
    if not isinstance(cells, ListCells):  # no writer has written such shapes
        return np.array([hash(str(cell)) for cell in cells(positions)], np.int64).reshape(-1, 1)
    begins = cells.offsets[positions].astype(np.int64)
    lengths = cells.offsets[positions + 1] - begins
    at = np.arange(min(lengths.max(initial=0), _MOST_DIMENSIONS))
    is_there = at < lengths[:, None]
    found = np.full(is_there.shape, -1, np.int64)
    found[is_there] = cells.elements[(begins[:, None] + at)[is_there]]
    return found
