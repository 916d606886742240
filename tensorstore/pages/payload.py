"""The page's JSON: NaN and infinities are texts, and numbers have six digits."""

from __future__ import annotations

import base64
import json
import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np

from ..dtypes import Array

# JavaScript rounds whole numbers beyond these.
_LARGEST_INTEGER = 2**53
_DIGITS = 6
_LONGEST_TEXT = 2_000


def dump(value: Any) -> bytes:
    """Return a value as compact JSON, without NaN, which standard JSON lacks."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode(errors="replace")


def number(value: float | None) -> float | str | None:
    """Return a number with six significant digits, or a text for NaN and infinities."""
    if value is None:
        return None
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return float(f"{value:.{_DIGITS}g}")


def numbers(values: Iterable[float | None]) -> list[float | str | None]:
    """Return numbers with six significant digits."""
    return [number(value) for value in values]


def cell(value: Any) -> Any:
    """Return a value of a query's result for JSON: a text if JSON lacks its type."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if abs(value) <= _LARGEST_INTEGER else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else number(value)
    if isinstance(value, Decimal):
        return cell(float(value))
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, bytes):
        return _shortened(value[:_LONGEST_TEXT].hex())
    if isinstance(value, Mapping | list | tuple):
        return _shortened(json.dumps(value, default=str))
    return _shortened(str(value))


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}…"


def is_wide(*floats: Array) -> bool:
    """Return whether some finite numbers are too large or too small for six digits in float32."""
    sizes = np.abs(np.concatenate([each[np.isfinite(each)] for each in floats]))
    single = np.finfo(np.float32)
    return bool(np.any((sizes > single.max) | ((sizes > 0) & (sizes < single.tiny))))


def pack(floats: Sequence[Array], counts: Sequence[Array], wide: bool = False) -> str:
    """Return a statistic of all tensors as compressed bytes in base64.

    Args:
        floats: The largest, the smallest and the mean values, each (rows, columns), NaN where there is none.
        counts: Whole numbers, likewise. They are limited to 65,535.
        wide: Whether there are numbers that float32 lacks.

    Returns:
        The arrays one after another, compressed by zlib. Each element has 16 bits: of a float the upper bits of its
        float32 (bfloat16), or of its float64 if `wide`; of the smallest and the mean values the difference of these
        bits to those of the largest, modulo 65,536, which is 0 for a single step. Each array comes as the upper bytes
        of all its elements and then the lower ones.
    """
    upper, *others = (_upper_half(each, "<u8" if wide else "<u4") for each in floats)
    arrays = [upper, *(each - upper for each in others), *(np.minimum(each, 0xFFFF).astype("<u2") for each in counts)]
    planes = [plane for each in arrays for plane in ((each >> 8).astype("u1"), (each & 0xFF).astype("u1"))]
    return base64.b64encode(zlib.compress(b"".join(plane.tobytes() for plane in planes), 6)).decode()


def _upper_half(values: Array, bits: str) -> Array:
    """Return the upper 16 bits of floats, rounded to nearest."""
    size = int(bits[-1])
    with np.errstate(over="ignore"):
        whole = np.ascontiguousarray(values, f"<f{size}").view(bits)
    below = 8 * size - 16
    half = np.array(1 << (below - 1), bits)
    # The largest finite upper half is 0x7F7F, or 0x7FEF for float64. Numbers above it are not rounded up.
    largest = 0x7F7F if size == 4 else 0x7FEF
    rounded = np.where(np.isfinite(values) & ((whole >> below) & 0x7FFF < largest), whole + half, whole)
    return np.where(np.isnan(values), np.uint16(0x7FC0 if size == 4 else 0x7FF8), (rounded >> below).astype("<u2"))
