"""The answers about several runs: scalars, SQL and named queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from ..engines.base import Rows
from ..plots.thinning import finite_mean, thinned
from ..read.named_queries import list_queries, named_query
from ..read.trial import run_reader_of
from .open_run import OpenRun
from .payload import number
from .query_process import Job
from .served_runs import ServedRuns

_MOST_POINTS = 2_000
_SCALARS = "select *, mode_step as step from scalars where list_contains($names, name)"


def scalar_names(served: ServedRuns, runs: Sequence[str]) -> list[str]:
    """Return the names of the scalars of runs, losses first."""
    found: dict[str, bool] = {}
    query = "select name, bool_or(list_contains(collections, 'losses')) from scalars group by name"
    for rows in served.of_each(runs, lambda run: run.kept("scalar names", partial(_fetched, run, query))):
        for name, is_loss in rows:
            found[name] = found.get(name, False) or is_loss
    return sorted(found, key=lambda name: (not found[name], name))


def _fetched(run: OpenRun, query: str) -> Rows:
    return run.trial.sql(query).fetchall()


def scalars(served: ServedRuns, runs: Sequence[str], names: Sequence[str], points: int) -> list[dict[str, Any]]:
    """Return curves of scalars, one for each run, name and mode."""
    most = max(1, min(points, _MOST_POINTS))
    return [curve for curves in served.of_each(runs, lambda run: _curves(run, list(names), most)) for curve in curves]


def _curves(run: OpenRun, names: list[str], points: int) -> list[dict[str, Any]]:
    mean = finite_mean("value")
    rows = run.trial.sql(
        f"""
        select
            name, mode, min(step) as step, min(global_step) as global, epoch_ms(min(saved_at)) as time,
            coalesce(min(value) filter (where isfinite(value)), 'nan'::double) as least,
            coalesce(max(value) filter (where isfinite(value)), 'nan'::double) as most,
            coalesce({mean}, 'nan'::double) as mean,
            count(*) filter (where not isfinite(value)) as nonfinite,
            any_value(last_step), avg(value) filter (where step = last_step) as last
        from ({thinned(_SCALARS, "name, mode")})
        group by name, mode, bucket
        order by name, mode, step
        """,
        {"names": names, "points": points},
    ).fetchall()
    curves: dict[tuple[str, str], dict[str, Any]] = {}
    for name, mode, *values, nonfinite, last_step, last in rows:
        empty = {"run": run.name, "name": name, "mode": mode}
        keys = ("steps", "globals", "times", "min", "max", "mean")
        curve = curves.setdefault((name, mode), empty | {key: [] for key in keys} | {"nonfinite": 0})
        for key, each in zip(keys, values, strict=True):
            curve[key].append(number(each) if isinstance(each, float) else each)
        curve["nonfinite"] += nonfinite
        curve["last"] = {"step": last_step, "value": number(last)}
    return list(curves.values())


# SQL.


def list_named() -> list[dict[str, Any]]:
    """Return the named queries."""
    return [
        {
            "name": each.name,
            "about": each.question,
            "sql": each.sql,
            "parameters": [
                {
                    "name": parameter.name,
                    "type": parameter.type,
                    "value": None if parameter.default is None else str(parameter.default),
                    "about": parameter.meaning,
                }
                for parameter in each.parameters
            ],
        }
        for each in list_queries().values()
    ]


def run_named(served: ServedRuns, run: OpenRun, name: str, parameters: Mapping[str, str]) -> dict[str, Any]:
    """Return the rows of a named query: over one run, or over all of them where a parameter names a run."""
    known = named_query(name).parameters
    is_over_all = any(parameter.type == "run" or parameter.name == "runs" for parameter in known)
    chosen = served.storages if is_over_all else [run_reader_of(run.trial).storage]
    values: dict[str, Any] = {key: value for key, value in parameters.items() if value != ""}
    if len(chosen) > 1 and any(parameter.name == "runs" for parameter in known):
        values.setdefault("runs", run.name)
    return served.queries.answer(Job(chosen, "", name, values))


def run_sql(served: ServedRuns, run: OpenRun | None, query: str) -> dict[str, Any]:
    """Return the rows of one SELECT on the views of a run, or of all runs if it is None."""
    if run is None:
        return served.queries.answer(Job(served.storages, "", query))
    return served.queries.answer(Job([run_reader_of(run.trial).storage], run.name, query))
