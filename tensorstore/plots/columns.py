"""Steps as columns of a plot: their ends, and the gaps between them."""

from __future__ import annotations

from typing import Any

import numpy as np

from .drawing import Floats

Bools = np.ndarray[Any, np.dtype[np.bool_]]


def column_ends(starts: Floats) -> Floats:
    """Return the end of each column: the next column, or a point before it if steps are missing.

    `starts` are the first steps of the columns, ascending. Steps are missing between two columns whose distance is more
    than 1.5 times the median. If this holds for more than a tenth of the distances, there is no regular distance, and
    no gap.
    """
    if not len(starts):
        return starts
    distances = np.diff(starts)
    usual = float(np.median(distances)) if len(distances) else 1.0
    wide = distances > 1.5 * usual
    if len(distances) < 3 or np.count_nonzero(wide) * 10 > len(distances):
        wide[:] = False
    return np.append(np.where(wide, starts[:-1] + usual, starts[1:]), starts[-1] + usual)


def with_gaps(starts: Floats) -> tuple[Floats, Bools]:
    """Return the edges of adjacent columns, and a mask of the columns that are not gaps."""
    ends = column_ends(starts)
    edges, saved = [starts[0]], list[bool]()
    for start, end in zip(starts, ends, strict=True):
        if start > edges[-1]:
            edges.append(start)
            saved.append(False)
        edges.append(end)
        saved.append(True)
    return np.array(edges, float), np.array(saved, bool)


def gaps(starts: Floats, others: Floats) -> list[tuple[float, float]]:
    """Return the ranges of steps that are missing between the saved ones, both ascending.

    A range with a step of another mode, one of `others`, is not missing.
    """
    ends = column_ends(starts)[:-1]
    between = np.searchsorted(others, starts[1:]) > np.searchsorted(others, starts[:-1], side="right")
    at = np.flatnonzero((ends < starts[1:]) & ~between)
    return [(float(ends[i]), float(starts[i + 1])) for i in at]
