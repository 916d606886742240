"""A series of numbers as one line of block characters."""

from __future__ import annotations

import math
from collections.abc import Sequence

_BLOCKS = "▁▂▃▄▅▆▇█"
NOT_FINITE = "!"


def sparkline(values: Sequence[float | None]) -> str:
    """Return one character for each value: a block of that height, `!` for NaN and infinities, a space for None."""
    finite = [value for value in values if value is not None and math.isfinite(value)]
    least, most = min(finite, default=0.0), max(finite, default=0.0)
    return "".join(_sign(value, least, most) for value in values)


def _sign(value: float | None, least: float, most: float) -> str:
    if value is None:
        return " "
    if not math.isfinite(value):
        return NOT_FINITE
    # The values are halved, because the difference of two large floats may be infinite.
    extent = most / 2 - least / 2
    return _BLOCKS[round((value / 2 - least / 2) / extent * (len(_BLOCKS) - 1)) if extent > 0 else 0]
