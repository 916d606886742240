"""Arrays of tensors x columns of steps, with operations that join, cut and coarsen them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce

import numpy as np
import pyarrow as pa

from ..dtypes import Array
from ..format.arrow_arrays import numpy_of


@dataclass(frozen=True)
class Grid:
    """One statistic of all tensors: a row is a tensor, column i the steps from (start + i) * width on."""

    names: list[str]
    width: int
    start: int
    least: Array
    """float64, infinite where there is no finite value."""
    most: Array
    total: Array
    """The sum of the finite values, float64."""
    finite: Array
    """The number of finite values, int64."""
    nonfinite: Array

    @property
    def columns(self) -> int:
        return int(self.least.shape[1])

    @property
    def nbytes(self) -> int:
        return sum(each.nbytes for each in self.arrays)

    @property
    def starts(self) -> list[int]:
        """The first step of each column."""
        return [(self.start + i) * self.width for i in range(self.columns)]

    @property
    def mean(self) -> Array:
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = np.where(self.finite > 0, self.total / self.finite, np.nan)
        # The sum of large values may overflow.
        return np.minimum(np.maximum(mean, self.least), self.most)

    @property
    def arrays(self) -> tuple[Array, ...]:
        return self.least, self.most, self.total, self.finite, self.nonfinite

    @classmethod
    def empty(cls, width: int, names: list[str] | None = None, start: int = 0, columns: int = 0) -> Grid:
        shape = (len(names or []), columns)
        return cls(
            names or [],
            width,
            start,
            np.full(shape, np.inf),
            np.full(shape, -np.inf),
            np.zeros(shape),
            np.zeros(shape, np.int64),
            np.zeros(shape, np.int64),
        )

    @classmethod
    def from_rows(cls, rows: pa.Table, width: int) -> Grid:
        """Return the grid of rows: name, bin, least, most, total, finite, valued; null where no value is finite."""
        if not rows.num_rows:
            return cls.empty(width)
        names = rows["name"].combine_chunks().dictionary_encode()
        numbers = {name: rows[name].combine_chunks() for name in rows.column_names if name != "name"}
        bins = numpy_of(numbers["bin"])
        start = int(bins.min())
        grid = cls.empty(width, names.dictionary.to_pylist(), start, int(bins.max()) - start + 1)
        at = numpy_of(names.indices), bins - start
        grid.least[at] = numpy_of(numbers["least"], missing=np.inf)
        grid.most[at] = numpy_of(numbers["most"], missing=-np.inf)
        grid.total[at] = numpy_of(numbers["total"])
        grid.finite[at] = numpy_of(numbers["finite"])
        grid.nonfinite[at] = numpy_of(numbers["valued"]) - grid.finite[at]
        return grid

    def coarser(self, width: int) -> Grid:
        """Return the grid with wider columns: `width` is a multiple of this one's."""
        factor = width // self.width
        if factor <= 1:
            return self
        before = self.start % factor
        after = -(before + self.columns) % factor
        folds = ((np.minimum, np.inf), (np.maximum, -np.inf), (np.add, 0), (np.add, 0), (np.add, 0))
        arrays = []
        for each, (fold, none) in zip(self.arrays, folds, strict=True):
            padded = np.pad(each, ((0, 0), (before, after)), constant_values=none)
            # A few operations on long strides take a fifth of the time of a reduction over short rows.
            arrays.append(reduce(fold, (padded[:, i::factor] for i in range(factor))))
        return Grid(self.names, width, self.start // factor, *arrays)

    def cut(self, first: int, end: int) -> Grid:
        """Return the columns that contain steps first <= step < end."""
        begin = max(first // self.width - self.start, 0)
        stop = max(-(-end // self.width) - self.start, begin)
        return Grid(self.names, self.width, self.start + begin, *(each[:, begin:stop] for each in self.arrays))

    def joined(self, other: Grid) -> Grid:
        """Return the grid of the values of both grids, which must have the same width."""
        if not other.names:
            return self
        if not self.names:
            return other
        names = list(dict.fromkeys([*self.names, *other.names]))
        start = min(self.start, other.start)
        columns = max(self.start + self.columns, other.start + other.columns) - start
        whole = Grid.empty(self.width, names, start, columns)
        rows = {name: row for row, name in enumerate(names)}
        for part in (self, other):
            at = np.ix_(
                [rows[name] for name in part.names], range(part.start - start, part.start - start + part.columns)
            )
            whole.least[at] = np.minimum(whole.least[at], part.least)
            whole.most[at] = np.maximum(whole.most[at], part.most)
            for sums, added in zip(whole.arrays[2:], part.arrays[2:], strict=True):
                sums[at] += added
        return whole

    def renamed(self, names: Mapping[str, str]) -> Grid:
        """Return the rows that have a new name in `names`, with that name."""
        rows = [row for row, name in enumerate(self.names) if name in names]
        kept = [names[self.names[row]] for row in rows]
        return Grid(kept, self.width, self.start, *(each[rows] for each in self.arrays))

    def ordered(self, names: list[str]) -> Grid:
        """Return the grid with its rows in the order of `names`, without unknown ones."""
        rows = {name: row for row, name in enumerate(self.names)}
        kept = [name for name in names if name in rows]
        at = [rows[name] for name in kept]
        return Grid(kept, self.width, self.start, *(each[at] for each in self.arrays))
