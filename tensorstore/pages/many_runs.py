"""The answers about several runs: scalars, SQL and named queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..engines.base import Rows
from ..named_queries import list_queries, named_query
from ..plots.thinning import finite_mean, thinned
from ..read.run_queries import OF_MANY_RUNS
from .open_run import OpenRun
from .payload import number
from .query_process import Job
from .served_runs import ServedRuns

_MOST_POINTS = 2_000
_SCALARS = """
    select run, name, mode, mode_step as step, global_step, worker, saved_at, value
    from {scalars} where list_contains($names, name)
"""


def scalar_table(served: ServedRuns, runs: Sequence[str]) -> list[dict[str, Any]]:
    """Return the last, the least and the largest value of each scalar of some runs, losses first."""
    rows = _rows(
        served,
        runs,
        """
        select
            run, name, mode, max(mode_step) as step, min(value) filter (where isfinite(value)) as least,
            max(value) filter (where isfinite(value)) as most, bool_or(list_contains(collections, 'losses')) as is_loss,
            avg(value) filter (where mode_step = last_step) as last, count(distinct mode_step) as steps
        from (select *, max(mode_step) over (partition by run, name, mode) as last_step from {scalars})
        group by run, name, mode
        order by bool_or(is_loss) over (partition by name) desc, name, run, mode
        """,
        {},
    )
    return [
        {
            "run": run,
            "name": name,
            "mode": mode,
            "loss": is_loss,
            "steps": steps,
            "min": number(least),
            "max": number(most),
            "last": {"step": step, "value": number(last)},
        }
        for run, name, mode, step, least, most, is_loss, last, steps in rows
    ]


def _rows(served: ServedRuns, runs: Sequence[str], query: str, values: Mapping[str, Any]) -> Rows:
    """Return the rows of a SELECT on `{scalars}`, whose first column is the run. Deleted runs are left out."""
    if len(runs) == 1:
        one = query.format(scalars="(select $run as run, * from scalars)")
        found = served.of_each(runs, lambda run: run.reader.sql(one, {**values, "run": run.name}).fetchall())
        return [row for rows in found for row in rows]
    return served.rows_of(runs, query.format(scalars="scalars"), values)


def scalars(served: ServedRuns, runs: Sequence[str], names: Sequence[str], points: int) -> list[dict[str, Any]]:
    """Return curves of scalars, one for each run, name and mode."""
    most = max(1, min(points, _MOST_POINTS))
    key = "run, name, mode"
    rows = _rows(
        served,
        runs,
        f"""
        select
            {key}, min(step) as step, min(global_step) as global, epoch_us(min(saved_at)) / 1000 as time,
            coalesce(min(value) filter (where isfinite(value)), 'nan'::double) as least,
            coalesce(max(value) filter (where isfinite(value)), 'nan'::double) as most,
            coalesce({finite_mean("value")}, 'nan'::double) as mean,
            count(*) filter (where not isfinite(value)) as nonfinite,
            min(step) filter (where not isfinite(value)) as fault,
            any_value(last_step), avg(value) filter (where step = last_step) as last
        from ({thinned(_SCALARS, key)})
        group by {key}, bucket
        order by {key}, step
        """,
        {"names": list(names), "points": most},
    )
    curves: dict[tuple[str, str, str], dict[str, Any]] = {}
    for run, name, mode, *values, nonfinite, fault, last_step, last in rows:
        empty = {"run": run, "name": name, "mode": mode}
        keys = ("steps", "globals", "times", "min", "max", "mean")
        curve = curves.setdefault(
            (run, name, mode), empty | {key: [] for key in keys} | {"nonfinite": 0, "fault": None}
        )
        for key, each in zip(keys, values, strict=True):
            curve[key].append(number(each) if isinstance(each, float) and key != "times" else each)
        curve["nonfinite"] += nonfinite
        curve["fault"] = fault if curve["fault"] is None else curve["fault"]
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
    """Return the rows of a named query over one run, or over all runs if a parameter names a run."""
    known = named_query(name).parameters
    is_over_all = any(parameter.type == "run" or parameter.name == "runs" for parameter in known)
    chosen = served.storages if is_over_all else [run.reader.storage]
    values: dict[str, Any] = {key: value for key, value in parameters.items() if value != ""}
    if len(chosen) > 1 and any(parameter.name == "runs" for parameter in known):
        values.setdefault("runs", run.name)
    return served.queries.answer(Job(chosen, "", name, values))


def run_sql(served: ServedRuns, runs: Sequence[str], query: str) -> dict[str, Any]:
    """Return the rows of one SELECT on the views of one run or of several."""
    chosen = [run.reader.storage for run in map(served.run, runs)] if len(runs) == 1 else served.named(runs)
    return served.queries.answer(Job(chosen, runs[0] if len(runs) == 1 else "", query))


def list_views(served: ServedRuns, run: OpenRun) -> list[dict[str, Any]]:
    """Return the views with their columns, as in a query over several runs."""
    storage = run.reader.storage
    return [
        {"name": view, "columns": served.queries.answer(Job([storage], "", f"select * from {view} limit 0"))["columns"]}
        for view in OF_MANY_RUNS
    ]
