"""The answers about a whole run: its description, the heat map, the names, the availability of steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..config.collection import WITH_GAPS
from ..dtypes import Array
from ..errors import TensorTrialError
from ..format.documents import utc
from ..format.schema import RunInfo
from ..maintenance.notes import notes_of
from ..nested import flat
from ..read.runs import Runs
from ..snapshot.snapshot import run_info
from ..snapshot.workers import natural
from ..storage.open import Storage
from .grid import Grid
from .open_run import SAME_FINDING, OpenRun
from .payload import is_wide, pack
from .tiles import width_for

# The most cells of one answer. With two compressed values of two bytes in each, it is below 300 kB.
_MOST_CELLS = 120_000
_MOST_COLUMNS = 1_000
_FEWEST_COLUMNS = 60


def describe_run(run: OpenRun) -> dict[str, Any]:
    """Return the description of a run."""
    workers, steps = run.trial.workers(), run.steps("GLOBAL")
    return {
        "name": run.name,
        "path": run.trial.path,
        "opened": True,
        "ended": run.trial.loaded_all_steps,
        "snapshot": str(run.trial.snapshot),
        "steps": len(np.unique(steps.steps)),
        "begun": run.reader.snapshot.steps_begun,
        "tensors": run.num_mapped if workers else 0,
        "numbers": run.num_numbers if workers else 0,
        "values": run.num_values,
        "saved": int(steps.saved_at_ms.max()) if len(steps.steps) else None,
        "workers": workers,
        "modes": [_describe_mode(run, mode) for mode in run.modes],
        "statistics": run.statistics if workers else [],
        "collections": sorted({each for of in run.collections.values() for each in of}),
        "findings": run.count_findings(),
        "damaged": run.damaged,
        **_about(run.reader.storage, run.info),
    }


def _about(storage: Storage, info: RunInfo) -> dict[str, Any]:
    started = utc(info.started_at).timestamp() * 1000
    return {"started": started, "framework": info.framework, "metadata": flat(info.metadata), **notes_of(storage)}


def outline(runs: Runs) -> list[dict[str, Any]]:
    """Return the data about many runs that a list of them shows."""
    steps = _by_run(runs, "count(distinct global_step) from steps")
    saved = _by_run(runs, "epoch_ms(max(saved_at)) from steps")
    found = _by_run(runs, f"count(distinct ({', '.join(SAME_FINDING)})) from findings")
    savers = _by_run(runs, "list(distinct worker) from steps")
    return [
        _outline(run.storage, run.info, run.snapshot.damaged)
        | {
            "name": run.name,
            "ended": run.snapshot.workers.job_ended,
            "snapshot": str(run.snapshot),
            "steps": steps.get(run.name, 0),
            "begun": run.snapshot.steps_begun,
            "saved": saved.get(run.name),
            "workers": sorted(savers.get(run.name, []), key=natural),
            "findings": found.get(run.name, 0),
        }
        for run in runs.all
    ]


def unreadable(storage: Storage, error: TensorTrialError) -> dict[str, Any]:
    """Return the outline of a run that cannot be read."""
    return _outline(storage, run_info(storage), {storage.url: error})


def _outline(storage: Storage, info: RunInfo, damaged: Mapping[str, TensorTrialError]) -> dict[str, Any]:
    nothing: dict[str, Any] = dict.fromkeys(("workers", "modes", "statistics", "collections"), ())
    counted = dict.fromkeys(("steps", "begun", "tensors", "numbers", "values", "findings"), 0)
    known = {"path": storage.url, "opened": False, "ended": True, "snapshot": "", "saved": None}
    said = [f"{path}: {error}" for path, error in damaged.items()]
    return {**known, **counted, **nothing, "damaged": said, **_about(storage, info)}


def _by_run(runs: Runs, counted: str) -> dict[str, Any]:
    found: list[Any] = runs.sql(f"select run, {counted} group by run").fetchall()
    return dict(found)


def _describe_mode(run: OpenRun, mode: str) -> dict[str, Any]:
    steps = run.steps(mode)
    return {"mode": mode, "first": steps.first, "last": steps.end - 1, "steps": len(np.unique(steps.steps))}


def tiles(
    run: OpenRun, statistic: str, mode: str, worker: str, bounds: tuple[int | None, int | None], columns: int
) -> dict[str, Any]:
    """Return a statistic of all tensors for the heat map; see docs/page.md."""
    rows = max(len(run.names), 1)
    most = max(min(columns, _MOST_COLUMNS, _MOST_CELLS // rows), min(columns, _FEWEST_COLUMNS), 1)
    grid = run.grid(statistic, mode, worker, bounds, most)
    steps = run.steps(mode)
    of = run.collections
    collections = [of.get(name, []) for name in grid.names]
    has_gaps = np.array([not set(WITH_GAPS).isdisjoint(each) for each in collections], bool).reshape(-1, 1)
    has_values, nonfinite = grid.finite > 0, np.where(has_gaps, 0, grid.nonfinite)
    floats = [np.where(has_values, grid.most, np.nan), np.where(has_values, grid.least, np.nan), grid.mean]
    wide = is_wide(*floats)
    return {
        "names": grid.names,
        "collections": collections,
        "starts": grid.starts,
        "end": min((grid.start + grid.columns) * grid.width, max(steps.end, 1)),
        "wide": wide,
        "packed": pack(floats, [grid.finite, nonfinite], wide),
        "leftOut": run.computed_of_all(statistic).left_out,
        "missing": _has_step(grid, steps.missing(not run.trial.loaded_all_steps)).tolist(),
    }


def _has_step(grid: Grid, steps: Array) -> Array:
    """Return a mask of the columns that contain one of some steps."""
    columns = steps // grid.width - grid.start
    found = np.zeros(grid.columns, bool)
    found[columns[(columns >= 0) & (columns < grid.columns)]] = True
    return found


def availability(run: OpenRun, mode: str, columns: int) -> dict[str, Any]:
    """Return the numbers of saved and missing steps of each worker, by column."""
    steps = run.steps(mode)
    width = width_for(steps.end - steps.first, min(columns, _MOST_COLUMNS))
    start = steps.first // width
    number = -(-steps.end // width) - start
    wanted = np.bincount(np.unique(steps.steps) // width - start, minlength=number)
    ended = set(run.trial.workers()) if run.trial.loaded_all_steps else set()
    rows = []
    for i, worker in enumerate(steps.workers):
        mine = steps.worker_of == i
        saved = np.bincount(steps.steps[mine] // width - start, minlength=number)
        rows.append(
            {
                "name": worker,
                "last": int(steps.steps[mine].max()),
                "ended": worker in ended,
                "savedAt": int(steps.saved_at_ms[mine].max()),
                "saved": saved.tolist(),
                "missing": np.maximum(wanted - saved, 0).tolist(),
            }
        )
    return {
        "starts": [(start + i) * width for i in range(number)],
        "end": steps.end,
        "workers": rows,
        "sentence": "; ".join(map(str, run.trial.late_workers()[:3])),
        "damaged": run.damaged,
    }
