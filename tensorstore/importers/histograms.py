"""Histograms in a table's column of structs, as Weights & Biases and Neptune export them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from .metrics import Drawn, Integers


def holds_histograms(column: pa.ChunkedArray) -> bool:
    """Return whether the structs of a column have the fields of a histogram."""
    if not pa.types.is_struct(column.type):
        return False
    fields = {column.type.field(i).name for i in range(column.type.num_fields)}
    return "values" in fields and bool(fields & {"bins", "packedBins", "edges"})


def drawn_of(column: pa.ChunkedArray, names: Sequence[str], step: Integers, saved_at: Integers) -> Iterator[Drawn]:
    """Yield the histogram of each row of a column, with its name from `names`.

    Rows without a histogram, without a step (below 0), or with values that are not counts are left out.
    """
    for row, (value, name) in enumerate(zip(column.to_pylist(), names, strict=True)):
        if value is None or step[row] < 0:
            continue
        if (counted := edges_and_counts(value)) is not None:
            yield Drawn(name, int(step[row]), int(saved_at[row]), *counted)


def edges_and_counts(value: Mapping[str, Any]) -> tuple[list[float], list[int]] | None:
    """Return the edges and the counts of a histogram; None for an invalid one."""
    counts = value.get("values") or []
    try:
        edges = _edges(value, len(counts))
        if len(edges) == len(counts) + 1 > 1 and all(_is_count(count) for count in counts):
            return edges, [int(count) for count in counts]
    except (TypeError, ValueError, KeyError, OverflowError):
        pass
    return None


def _edges(value: Mapping[str, Any], length: int) -> list[float]:
    edges = value.get("bins") or value.get("edges")
    if edges:
        return [float(edge) for edge in edges]
    packed = value.get("packedBins")
    if not packed or packed["count"] != length:
        return []
    # Bins of equal width are packed as the first edge, the width and the number of bins.
    return [float(edge) for edge in packed["min"] + packed["size"] * np.arange(length + 1)]


def _is_count(value: Any) -> bool:
    return value is not None and 0 <= value < 1 << 63 and float(value).is_integer()
