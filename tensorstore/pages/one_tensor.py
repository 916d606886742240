"""The answers about one tensor: its description, its statistics over steps, and its histograms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..dtypes import Array
from ..errors import TensorUnavailableForStep
from ..format.schema import UNKNOWN_SHAPE
from ..mode import ModeKeys
from ..plots.numbers import as_floats
from ..plots.thinning import evenly, finite_mean
from ..statistics.computed import USUAL
from ..statistics.histogram import histogram
from .open_run import OpenRun, known_statistics
from .payload import number, numbers
from .tiles import width_for

_HISTOGRAM_BINS = 60
_MOST_POINTS = 2_000
_MOST_HISTOGRAMS = 200
# The most bytes of raw values that are read for histograms that were not saved.
_LARGEST_RAW = 16 << 20
_LARGEST = 1e300
_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
_OF_TENSOR = "name = $name and ($mode = 'GLOBAL' or mode = $mode) and ($worker = '' or worker = $worker)"


def _step(mode: str) -> str:
    return "global_step" if mode == "GLOBAL" else "mode_step"


def describe_tensor(run: OpenRun, name: str, mode: str, worker: str) -> dict[str, Any]:
    """Return the description of a tensor, and the steps of the mode at which it was saved."""
    run.trial.tensor(name)  # raises an error for an unknown name
    steps = run.trial.tensor(name).steps(ModeKeys.parse(mode), show_incomplete_steps=True)
    answer: dict[str, Any] = {"dtype": "", "shape": None, "nbytes": None, "statistics": [], "steps": steps}
    if steps:
        rows = run.reader.rows_at(name, steps[-1], ModeKeys.parse(mode), statistics=True)
        row, known = rows[0], set[str]()
        for each in rows:
            known |= known_statistics(each.statistics or [], each.dtype, each.shape, each.scalar)
        shape = None if tuple(row.shape) == UNKNOWN_SHAPE else list(row.shape)
        saved = [each for each in run.row_statistics if each in known]
        if row.has_raw and not saved:
            saved = [each for each in USUAL if each in run.row_statistics]
        answer |= {"dtype": row.dtype, "shape": shape, "nbytes": row.nbytes, "statistics": saved}
    return {**answer, "collections": run.collections.get(name, [])}


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
    computed = run.computed([name], [each for each in chosen if each in USUAL])
    forms = [
        [computed.expression(each) if each in computed.statistics else run.expression(each, lean) for each in chosen]
        for lean in (True, False)
    ]
    can_differ = [lean != other for lean, other in zip(*forms, strict=True)]
    for form in forms:
        values = ", ".join(f"({each})::double" for each in form)
        # A row for each statistic: DuckDB takes four times as long to plan a query with columns for each of ten.
        found = run.trial.sql(
            f"""
            select {_FOLDS} from (
                select step, unnest(saved) as value, unnest(range(len(saved))) as statistic
                from (
                    select {_step(mode)} as step, [{values or "null"}] as saved
                    from {computed.source} where {_OF_TENSOR}
                )
                where step >= $first and step < $end and $newest is not null
            )
            group by statistic, step // $width order by statistic, 1
            """,
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
        count = len(found) // max(len(chosen), 1)
        lacks = zip(found["lacks"].to_pylist(), np.repeat(can_differ, count), strict=False)
        if not any(lacking and differs for lacking, differs in lacks):
            break  # otherwise some rows may have other statistics, from which these are derived

    def of(column: str, at: int) -> list[Any]:
        return found[column].slice(at * count, count).to_pylist()

    return {
        "steps": of("step", 0),
        "leftOut": computed.left_out,
        "statistics": [
            {
                "statistic": each,
                **{key: numbers(of(key, at)) for key in ("min", "max", "mean")},
                "nonfinite": sum(of("nonfinite", at)),
                "fault": next((step for step in of("fault", at) if step is not None), None),
                "last": number(of("last", at)[-1]) if steps else None,
            }
            for at, each in enumerate(chosen)
        ],
    }


def _or_nan(fold: str) -> str:
    """Return the SQL of a fold of finite values, which is NaN if there are only others."""
    return f"coalesce({fold}, case when count(value) > 0 then 'nan'::double end)"


_FOLDS = f"""
    min(step) as step,
    {_or_nan("min(value) filter (where isfinite(value))")} as min,
    {_or_nan("max(value) filter (where isfinite(value))")} as max,
    {_or_nan(finite_mean("value"))} as mean,
    count(value) filter (where not isfinite(value)) as nonfinite,
    min(step) filter (where not isfinite(value)) as fault,
    avg(value) filter (where step = $newest) as last,
    count(value) < count(*) as lacks
"""


def histograms(
    run: OpenRun, name: str, mode: str, worker: str, bounds: tuple[int | None, int | None], count: int
) -> list[dict[str, Any]]:
    """Return histograms of a tensor at evenly distributed steps, ascending: saved ones, or those of raw values."""
    first, end = run.bounded(mode, bounds)
    chosen = evenly(_steps_of(run, name, mode, (first, end)), max(1, min(count, _MOST_HISTOGRAMS)))
    step = _step(mode)
    rows = run.trial.sql(
        f"select {step} as step, arg_min(histogram, (length(worker), worker)) as histogram from tensors "
        f"where {_OF_TENSOR} and list_contains($steps, {step}) and histogram is not null group by 1 order by 1",
        {"name": name, "mode": mode, "worker": worker, "steps": chosen},
    ).fetchall()
    if rows:
        return [{"step": at, **_compact(histogram["edges"], histogram["counts"])} for at, histogram in rows]
    found = ((at, raw(run, name, mode, worker, at, _LARGEST_RAW)) for at in chosen)
    return [{"step": at, **made} for at, value in found if value is not None and (made := _histogram(value))]


def _steps_of(run: OpenRun, name: str, mode: str, bounds: tuple[int, int]) -> list[int]:
    steps = run.trial.tensor(name).steps(ModeKeys.parse(mode), show_incomplete_steps=True)
    return [step for step in steps if bounds[0] <= step < bounds[1]]


def _width(steps: Sequence[int], points: int) -> int:
    """Return the number of steps in a point, 1 if there are few steps, even if they are far apart."""
    return 1 if len(steps) <= points else width_for(steps[-1] - steps[0] + 1, points)


def _compact(edges: Sequence[float], counts: Sequence[int]) -> dict[str, Any]:
    # The distance of larger edges overflows.
    kept = np.clip(np.asarray(edges, float), -_LARGEST, _LARGEST)
    # Six digits do not distinguish close edges.
    near = kept[-1] - kept[0] < 1e-3 * np.abs(kept).max()
    shown = kept.tolist() if near else numbers(kept.tolist())
    below = np.concatenate([[0], np.cumsum(counts)])
    quantiles = np.interp(np.multiply(_QUANTILES, below[-1]), below, kept)  # even inside a bin
    return {"edges": shown, "counts": [int(each) for each in counts], "quantiles": quantiles.tolist()}


def _histogram(value: Array) -> dict[str, Any] | None:
    counted = histogram(value, _HISTOGRAM_BINS)
    if counted is None:
        return None
    edges, counts = counted
    return _compact(edges, counts)


def raw(run: OpenRun, name: str, mode: str, worker: str, step: int, most: int | None = None) -> Array | None:
    """Return the raw value as float64; None if there is none, or it is larger than `most` bytes."""
    tensor = run.trial.tensor(name)
    wanted = worker or None
    try:
        if most is not None and run.reader.row(name, step, ModeKeys.parse(mode), wanted).nbytes > most:
            return None
        value = tensor.value(step, ModeKeys.parse(mode), wanted)
    except TensorUnavailableForStep:
        return None
    return as_floats(value)
