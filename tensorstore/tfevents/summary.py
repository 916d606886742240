"""The writer of an event file's messages: an Event, and the values in its Summary.

The numbers are those of TensorFlow's event.proto and summary.proto. Scalars are a `simple_value` and histograms a
`histo`, the two forms that every reader of event files understands.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Container, Iterator, Mapping, Sequence
from functools import lru_cache

from .wire import bytes_field, double_field, doubles_field, float_field, single, varint_field

_START = 1


def event(seconds: float, step: int, value: bytes) -> bytes:
    """Return an event with one value at a step; `seconds` are since 1970."""
    return double_field(1, seconds) + step_field(step) + bytes_field(5, bytes_field(1, value))


def first_event(seconds: float) -> bytes:
    """Return the event with which a file begins."""
    return double_field(1, seconds) + bytes_field(3, b"brain.Event:2")


def session_start(seconds: float, step: int) -> bytes:
    """Return the event by which TensorBoard discards a folder's values from a step on."""
    return double_field(1, seconds) + varint_field(2, step) + bytes_field(7, varint_field(1, _START))


def events(
    seconds: float,
    step: int,
    name: str,
    number: float | None,
    statistics: Mapping[str, float],
    drawn: tuple[Sequence[float], Sequence[int]] | None,
    names: Container[str] = (),
) -> Iterator[bytes]:
    """Yield the events of a saved tensor at a step, each with one value; `seconds` are since 1970.

    A number is one scalar. For a larger tensor, each statistic is a scalar, named after both, and its histogram is a
    histogram. No statistic gets one of `names`, the names of tensors.
    """
    at = double_field(1, seconds) + step_field(step)
    if number is not None:
        yield at + scalar_before_value(name) + single(number)
        return
    for statistic, value in statistics.items():
        yield at + scalar_before_value(statistic_tag(name, statistic, names)) + single(value)
    if drawn is not None:
        yield event(seconds, step, histogram(name, *drawn, statistics))


def statistic_tag(name: str, statistic: str, names: Container[str]) -> str:
    """Return the tag of a statistic of a tensor, which is not one of `names`, those of all tensors."""
    tag = f"{name}/{statistic}"
    return f"{name}/statistics/{statistic}" if tag in names else tag


@lru_cache(maxsize=65536)  # cached, because many tensors are saved at a step, and a tensor at many steps
def step_field(step: int) -> bytes:
    """Return the field of an event's step."""
    return varint_field(2, step)


@lru_cache(maxsize=65536)
def scalar_before_value(tag: str) -> bytes:
    """Return the bytes of a summary with a scalar, up to its value, which is the last four bytes (single precision)."""
    return bytes_field(5, bytes_field(1, scalar(tag, 0.0)))[:-4]


def scalar(tag: str, value: float) -> bytes:
    """Return a scalar value, in single precision."""
    return bytes_field(1, tag.encode()) + float_field(2, value)


def histogram(
    tag: str, edges: Sequence[float], counts: Sequence[int], statistics: Mapping[str, float] | None = None
) -> bytes:
    """Return a histogram value, whose bin i lies between edges i and i + 1.

    The sum and the sum of squares are from the `statistics`, if known, else estimated from the bins' centers.
    TensorBoard does not show them.
    """
    middles = [left + (right - left) / 2 for left, right in itertools.pairwise(edges)]
    known = statistics or {}
    total, norm = known.get("sum"), known.get("l2")
    if total is None or not math.isfinite(total):
        total = math.fsum(middle * count for middle, count in zip(middles, counts, strict=True))
    if norm is None or not math.isfinite(norm):
        norm = math.sqrt(math.fsum(middle * middle * count for middle, count in zip(middles, counts, strict=True)))
    message = (
        double_field(1, edges[0])
        + double_field(2, edges[-1])
        + double_field(3, sum(counts))
        + double_field(4, total)
        + double_field(5, norm * norm)
        + doubles_field(6, edges[1:])
        + doubles_field(7, counts)
    )
    return bytes_field(1, tag.encode()) + bytes_field(5, message)
