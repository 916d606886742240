"""The values of an event: their kinds, and their conversion into the values of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt

from ...dtypes import Array
from ...tfevents.tensor_proto import tensor
from ...tfevents.wire import Value, fields, floating, message, number

_FLOAT, _STRING = 1, 7
_TAG, _SIMPLE, _OLD_HISTOGRAM, _IMAGE, _HISTOGRAM, _AUDIO, _TENSOR, _METADATA = 1, 2, 3, 4, 5, 6, 8, 9
Floats = npt.NDArray[np.float64]


class Kind(Enum):
    """The form in which a run keeps a value."""

    NUMBER = "number"
    HISTOGRAM = "histogram"
    TENSOR = "tensor"


@dataclass(frozen=True, slots=True)
class Plugin:
    """The plugin of TensorBoard that shows a tag, with its data. Only the first value of a tag must name it."""

    name: str = ""
    content: bytes = b""


@dataclass(frozen=True, slots=True)
class Histogram:
    """A histogram, whose bin i lies between edges i and i + 1."""

    edges: list[float]
    counts: list[int]
    statistics: Mapping[str, float]


def values_of(summary: memoryview) -> Iterator[dict[int, Value]]:
    """Yield the values of a Summary, each as its fields."""
    for field, value in fields(summary):
        if field == 1:
            yield dict(fields(message(value)))


def tag_of(value: Mapping[int, Value]) -> str:
    """Return the tag of a value."""
    return str(message(value.get(_TAG, memoryview(b""))), "utf-8")


def plugin_of(value: Mapping[int, Value]) -> Plugin | None:
    """Return the plugin that a value names; None if it names none."""
    if _METADATA not in value:
        return None
    metadata = dict(fields(message(value[_METADATA])))
    found = dict(fields(message(metadata.get(1, memoryview(b"")))))
    return Plugin(str(message(found.get(1, memoryview(b""))), "utf-8"), bytes(message(found.get(2, memoryview(b"")))))


def kind_of(value: Mapping[int, Value], plugin: Plugin) -> Kind | str:
    """Return the form in which a run keeps a value; for a value that is not kept, its kind in words."""
    if _SIMPLE in value:
        return Kind.NUMBER
    if _HISTOGRAM in value:
        return Kind.HISTOGRAM
    for field, what in ((_IMAGE, "images"), (_AUDIO, "audio"), (_OLD_HISTOGRAM, "histograms of an early TensorFlow")):
        if field in value:
            return what
    if _TENSOR not in value:
        return "empty values"
    if plugin.name in ("scalars", "histograms"):
        return Kind.NUMBER if plugin.name == "scalars" else Kind.HISTOGRAM
    of_strings = dict(fields(message(value[_TENSOR]))).get(1) == _STRING
    return Kind.TENSOR if not of_strings or plugin.name == "text" else plugin.name or "tensors of strings"


def number_of(value: Mapping[int, Value]) -> float:
    """Return the number of a value. Raises ValueError if it is not one."""
    if _SIMPLE in value:
        return floating(value[_SIMPLE])
    return float(tensor(message(value[_TENSOR])).item())


def is_single(value: Mapping[int, Value]) -> bool:
    """Return whether a number is in single precision."""
    return _SIMPLE in value or (_TENSOR in value and dict(fields(message(value[_TENSOR]))).get(1) == _FLOAT)


def tensor_of(value: Mapping[int, Value]) -> Array:
    """Return the tensor of a value. Raises ValueError."""
    return tensor(message(value[_TENSOR]))


def histogram_of(value: Mapping[int, Value]) -> Histogram | None:
    """Return the histogram of a value, or None for an empty one. Raises ValueError if it is not one."""
    if _TENSOR in value:
        return _of_tensor(tensor(message(value[_TENSOR])))
    return _of_message(message(value[_HISTOGRAM]))


def _of_tensor(buckets: Array) -> Histogram | None:
    """Return the histogram of a tensor with a row (left, right, count) for each bucket."""
    if buckets.ndim != 2 or buckets.shape[1] != 3:
        raise ValueError(f"a histogram of shape {buckets.shape}, where each bucket has left, right and count")
    lefts, rights, counts = buckets.astype(np.float64).T
    if not counts.sum():
        return None
    low, high = lefts[0], rights[-1]
    return _made(np.append(lefts, high), counts, {"min": float(low), "max": float(high)})


def _of_message(histogram: memoryview) -> Histogram | None:
    found: dict[int, list[memoryview]] = {}
    for field, value in fields(histogram):
        found.setdefault(field, []).append(message(value))
    low, high, count, total, squares = (floating(found[field][-1]) if field in found else 0.0 for field in range(1, 6))
    # A repeated field that is not packed has one entry for each number.
    limits, counts = (np.frombuffer(b"".join(found.get(field, [])), "<f8") for field in (6, 7))
    if len(limits) != len(counts):
        raise ValueError(f"a histogram with {len(limits)} limits for {len(counts)} buckets")
    if not count or not len(counts):
        return None
    # The outer edges may be far from the values: TensorFlow writes 1e308.
    edges = np.empty(len(limits) + 1)
    edges[0], edges[1:-1], edges[-1] = low, np.minimum(np.maximum(limits[:-1], low), high), high
    statistics = {"min": low, "max": high, "sum": total, "mean": total / count, "l2": float(np.sqrt(squares))}
    return _made(edges, counts, statistics)


def _made(edges: Floats, counts: Floats, statistics: Mapping[str, float]) -> Histogram:
    widths = edges[1:] - edges[:-1]
    if not widths.min() >= 0 or not np.isfinite(widths).all():
        raise ValueError("a histogram whose edges do not ascend")
    if edges[0] == edges[-1]:
        return Histogram([edges[0] - 0.5, edges[0] + 0.5], [round(counts.sum())], statistics)
    if not widths.all():
        # A bucket of width 0 is added to the previous one, or to the first.
        wide = widths > 0
        counts = np.bincount(np.maximum(np.cumsum(wide) - 1, 0), counts).astype(np.float64)
        edges = np.append(edges[:-1][wide], edges[-1])
    whole: npt.NDArray[np.int64] = np.rint(counts).astype(np.int64)
    return Histogram(edges.tolist(), whole.tolist(), statistics)


def hyperparameters(plugin: Plugin) -> dict[str, Any]:
    """Return the hyperparameters of a run from the data of the plugin `hparams`."""
    start = dict(fields(memoryview(plugin.content))).get(3)
    found = {}
    for field, entry in fields(message(start)) if start is not None else ():
        if field == 1:
            pair = dict(fields(message(entry)))
            found[str(message(pair[1]), "utf-8")] = _json_value(message(pair.get(2, memoryview(b""))))
    return found


def _json_value(value: memoryview) -> Any:
    """Return the number, text or bool of a google.protobuf.Value."""
    for field, found in fields(value):
        if field == 2:
            return floating(found)
        if field == 3:
            return str(message(found), "utf-8")
        if field == 4:
            return bool(number(found))
    return None
