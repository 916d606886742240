"""The answers about one tensor: its statistics over steps, its histograms, and its raw value at a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..dtypes import Array
from ..errors import ConfigurationError, TensorUnavailableForStep, UnavailableError
from ..format.schema import UNKNOWN_SHAPE
from ..mode import ModeKeys
from ..plots.thinning import finite_mean
from ..read.trial import run_reader_of
from ..statistics.computed import USUAL
from ..statistics.histogram import histogram
from .open_run import OpenRun
from .payload import number, numbers
from .tiles import width_for

_HISTOGRAM_BINS = 60
# Elements of a side of an image, and of the whole.
_LONGEST_SIDE = 1024
_MOST_ELEMENTS = 20_000
_MOST_POINTS = 2_000
_MOST_HISTOGRAMS = 200
# Raw values above this are not read for histograms that were not saved.
_LARGEST_RAW = 16 << 20
_LARGEST = 1e300
_OF_TENSOR = "name = $name and ($mode = 'GLOBAL' or mode = $mode) and ($worker = '' or worker = $worker)"


def _step(mode: str) -> str:
    return "global_step" if mode == "GLOBAL" else "mode_step"


def describe_tensor(run: OpenRun, name: str, mode: str, worker: str) -> dict[str, Any]:
    """Return what a tensor is, and the steps of the mode at which it was saved."""
    run.trial.tensor(name)  # raises for an unknown name
    steps = run.trial.tensor(name).steps(ModeKeys.parse(mode), show_incomplete_steps=True)
    answer: dict[str, Any] = {"dtype": "", "shape": None, "nbytes": None, "statistics": [], "steps": steps}
    if steps:
        row = run_reader_of(run.trial).rows_at(name, steps[-1], ModeKeys.parse(mode))[0]
        shape = None if tuple(row.shape) == UNKNOWN_SHAPE else list(row.shape)
        saved = _statistics_at(run, name, mode, steps[-1])
        if row.has_raw and not saved:
            saved = [each for each in USUAL if each in run.row_statistics]
        answer |= {"dtype": row.dtype, "shape": shape, "nbytes": row.nbytes, "statistics": saved}
    return {**answer, "collections": run.collections.get(name, [])}


def _statistics_at(run: OpenRun, name: str, mode: str, step: int) -> list[str]:
    if not run.row_statistics:
        return []
    counts = ", ".join(f"count({run.expression(each)})" for each in run.row_statistics)
    rows = run.trial.sql(
        f"select {counts} from tensors where {_OF_TENSOR} and {_step(mode)} = $step",
        {"name": name, "mode": mode, "worker": "", "step": step},
    ).fetchall()
    return [each for each, count in zip(run.row_statistics, rows[0], strict=True) if count]


def series(
    run: OpenRun,
    name: str,
    mode: str,
    worker: str,
    statistics: Sequence[str],
    bounds: tuple[int | None, int | None],
    points: int,
) -> dict[str, Any]:
    """Return statistics of a tensor over steps: least, largest and mean value of each range of steps."""
    chosen = [each for each in statistics if each in run.row_statistics]
    first, end = run.bounded(mode, bounds)
    steps = _steps_of(run, name, mode, (first, end))
    width = _width(steps, min(points, _MOST_POINTS))
    columns = ", ".join(_columns_of(i) for i in range(len(chosen)))
    computed = run.computed([name], [each for each in chosen if each in USUAL])
    expressions = (computed.expression(each) if each in USUAL else run.expression(each) for each in chosen)
    values = ", ".join(f"{each} as value{i}" for i, each in enumerate(expressions))
    comma = ", " if chosen else ""
    found = run.trial.sql(
        f"select min(step) as step{comma}{columns} from (select {_step(mode)} as step{comma}{values} "
        f"from {computed.source} where {_OF_TENSOR}) where step >= $first and step < $end and $newest is not null "
        "group by step // $width order by 1",
        {
            "name": name,
            "mode": mode,
            "worker": worker,
            "first": first,
            "end": end,
            "width": width,
            "newest": steps[-1] if steps else 0,
            **computed.parameters,
        },
    ).to_arrow_table()

    def of(column: str) -> list[Any]:
        return found[column].to_pylist()  # type: ignore[no-any-return]

    return {
        "steps": of("step"),
        "statistics": [
            {
                "statistic": each,
                **{key: numbers(of(f"{key}{i}")) for key in ("min", "max", "mean")},
                "nonfinite": sum(of(f"nonfinite{i}")),
                "last": number(of(f"last{i}")[-1]) if steps else None,
            }
            for i, each in enumerate(chosen)
        ],
    }


def _columns_of(number: int) -> str:
    """Return the SQL of a statistic: NaN where there are only values that are not finite."""
    value = f"value{number}"
    none = f"case when count({value}) > 0 then 'nan'::double end"
    finite = f"filter (where isfinite({value}))"
    folds = {"min": f"min({value}) {finite}", "max": f"max({value}) {finite}", "mean": finite_mean(value)}
    folded = (f"coalesce({fold}, {none}) as {key}{number}" for key, fold in folds.items())
    wrong = f"count({value}) filter (where not isfinite({value})) as nonfinite{number}"
    return f"{', '.join(folded)}, {wrong}, avg({value}) filter (where step = $newest) as last{number}"


def histograms(
    run: OpenRun, name: str, mode: str, worker: str, bounds: tuple[int | None, int | None], count: int
) -> list[dict[str, Any]]:
    """Return histograms of a tensor at steps that are evenly distributed, ascending; saved ones, or of raw values."""
    first, end = run.bounded(mode, bounds)
    chosen = _evenly(_steps_of(run, name, mode, (first, end)), max(1, min(count, _MOST_HISTOGRAMS)))
    step = _step(mode)
    rows = run.trial.sql(
        f"select {step} as step, arg_min(histogram, (length(worker), worker)) as histogram from tensors "
        f"where {_OF_TENSOR} and list_contains($steps, {step}) and histogram is not null group by 1 order by 1",
        {"name": name, "mode": mode, "worker": worker, "steps": chosen},
    ).fetchall()
    if rows:
        return [{"step": at, **_compact(histogram["edges"], histogram["counts"])} for at, histogram in rows]
    found = ((at, _raw(run, name, mode, worker, at, _LARGEST_RAW)) for at in chosen)
    return [{"step": at, **made} for at, value in found if value is not None and (made := _histogram(value))]


def _steps_of(run: OpenRun, name: str, mode: str, bounds: tuple[int, int]) -> list[int]:
    steps = run.trial.tensor(name).steps(ModeKeys.parse(mode), show_incomplete_steps=True)
    return [step for step in steps if bounds[0] <= step < bounds[1]]


def _width(steps: Sequence[int], points: int) -> int:
    """Return how many steps a point holds: one each where there are few, however far apart they are."""
    return 1 if len(steps) <= points else width_for(steps[-1] - steps[0] + 1, points)


def _evenly(steps: Sequence[int], count: int) -> list[int]:
    if len(steps) <= count:
        return list(steps)
    return [steps[i] for i in np.unique(np.linspace(0, len(steps) - 1, count).astype(int))]


def _compact(edges: Sequence[float], counts: Sequence[int]) -> dict[str, Any]:
    # Of larger ones, the distance is infinite.
    kept = np.clip(np.asarray(edges, float), -_LARGEST, _LARGEST)
    # Six digits do not tell edges apart that are near each other.
    near = kept[-1] - kept[0] < 1e-3 * np.abs(kept).max()
    return {"edges": kept.tolist() if near else numbers(kept.tolist()), "counts": [int(each) for each in counts]}


def _histogram(value: Array) -> dict[str, Any] | None:
    counted = histogram(value, _HISTOGRAM_BINS)
    if counted is None:
        return None
    edges, counts = counted
    return _compact(edges, counts)


def _raw(run: OpenRun, name: str, mode: str, worker: str, step: int, most: int | None = None) -> Array | None:
    """Return the raw value as float64, None if there is none, or it is larger than `most` bytes."""
    tensor = run.trial.tensor(name)
    wanted = worker or None
    try:
        if most is not None and run_reader_of(run.trial).row(name, step, ModeKeys.parse(mode), wanted).nbytes > most:
            return None
        value = tensor.value(step, ModeKeys.parse(mode), wanted)
    except TensorUnavailableForStep:
        return None
    if value.dtype.kind in "mM":
        value = value.astype(np.int64)
    try:
        with np.errstate(all="ignore"):
            return np.asarray(np.abs(value) if value.dtype.kind == "c" else value).astype(np.float64)
    except (TypeError, ValueError):
        return None  # texts, records


def value(run: OpenRun, name: str, mode: str, worker: str, step: int, axes: str, index: str) -> dict[str, Any] | None:
    """Return a slice of two dimensions of a raw value, down-sampled; None if it was not saved.

    Args:
        run: The run.
        name: The name of the tensor.
        mode: The mode that the step is counted in.
        worker: The worker; "" for the first one that has it.
        step: The step.
        axes: The two dimensions, as "0,1"; "" for the last two.
        index: The position in each dimension, as "0,0,3"; "" for the first ones.

    Returns:
        See docs/page.md. Of each block, the element that is largest in absolute value, NaN if one is not finite.
    """
    try:
        whole = _raw(run, name, mode, worker, step)
    except UnavailableError:
        return None
    if whole is None:
        return None
    row = run_reader_of(run.trial).row(name, step, ModeKeys.parse(mode), worker or None)
    down, across = _axes(axes, whole.ndim)
    at = _index(index, whole.shape)
    image = _image(whole, down, across, at)
    side = min(image.shape[1], _LONGEST_SIDE, max(1, _MOST_ELEMENTS // min(image.shape[0] or 1, 140)))
    columns, column_stride = _strided(image.shape[1], side)
    rows, row_stride = _strided(image.shape[0], min(_LONGEST_SIDE, max(1, _MOST_ELEMENTS // max(columns, 1))))
    return {
        "shape": list(whole.shape),
        "dtype": row.dtype,
        "total": int(whole.size),
        "rows": rows,
        "columns": columns,
        "values": numbers(_reduced(image, row_stride, column_stride).ravel().tolist()),
        "axes": [down, across],
        "index": at,
        "rowStride": row_stride,
        "columnStride": column_stride,
        "histogram": _histogram(whole),
        "extremes": _extremes(whole),
    }


def _axes(text: str, dimensions: int) -> tuple[int, int]:
    default = (max(dimensions - 2, 0), max(dimensions - 1, 0))
    if not text:
        return default
    chosen = _integers(text, "axes")
    if len(chosen) != 2 or chosen[0] == chosen[1] or not all(0 <= axis < dimensions for axis in chosen):
        # Of another tensor, whose page was seen before, or of a tensor with one dimension.
        return default
    return chosen[0], chosen[1]


def _index(text: str, shape: Sequence[int]) -> list[int]:
    chosen = _integers(text, "index") if text else []
    chosen += [0] * (len(shape) - len(chosen))
    return [min(max(at, 0), max(length - 1, 0)) for at, length in zip(chosen, shape, strict=False)]


def _integers(text: str, name: str) -> list[int]:
    try:
        return [int(each) for each in text.split(",")]
    except ValueError:
        raise ConfigurationError(f"{name} must be whole numbers such as '0,1', got {text!r}") from None


def _image(whole: Array, down: int, across: int, at: Sequence[int]) -> Array:
    if not whole.size:
        return np.zeros((0, 0))
    if whole.ndim < 2:
        return whole.reshape(1, -1)
    picked = whole[tuple(slice(None) if axis in (down, across) else at[axis] for axis in range(whole.ndim))]
    return picked if down < across else picked.T


def _strided(length: int, most: int) -> tuple[int, int]:
    stride = -(-length // most) if length > most else 1
    return -(-length // stride) if length else 0, stride


def _reduced(image: Array, row_stride: int, column_stride: int) -> Array:
    if row_stride == column_stride == 1 or not image.size:
        return image
    rows, columns = -image.shape[0] % row_stride, -image.shape[1] % column_stride
    padded = np.pad(image, ((0, rows), (0, columns)))
    grouped = padded.reshape(padded.shape[0] // row_stride, row_stride, -1, column_stride).swapaxes(1, 2)
    blocks = grouped.reshape(*grouped.shape[:2], -1)
    # argmax of NaN is the first NaN; infinities are larger than all finite numbers.
    return np.take_along_axis(blocks, np.abs(blocks).argmax(axis=2)[..., None], axis=2)[..., 0]


def _extremes(whole: Array) -> dict[str, Any]:
    finite = np.isfinite(whole)
    bad = np.flatnonzero(~finite.ravel())
    return {
        "min": _extreme(np.where(finite, whole, np.inf), np.argmin) if finite.any() else None,
        "max": _extreme(np.where(finite, whole, -np.inf), np.argmax) if finite.any() else None,
        "nan": [int(i) for i in np.unravel_index(bad[0], whole.shape)] if len(bad) else None,
        "nanCount": len(bad),
    }


def _extreme(values: Array, find: Any) -> dict[str, Any]:
    at = np.unravel_index(find(values), values.shape)
    return {"value": number(float(values[at])), "index": [int(i) for i in at]}
