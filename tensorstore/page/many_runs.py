"""The answers about several runs: scalars, findings and rules, SQL and named queries, the difference of two runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from ..engines.base import Rows
from ..errors import ConfigurationError, TensorTrialError
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


# Findings.


def findings(run: OpenRun) -> list[dict[str, Any]]:
    """Return what rules found in a run, in the order of steps."""
    rows = run.trial.sql(
        "select rule, step, mode, worker, tensor, observed, threshold, sentence, failed, "
        "epoch_ms(found_at) as found_at from findings order by step, rule, tensor limit 5000"
    )
    found = [dict(zip(rows.columns, row, strict=True)) for row in rows.fetchall()]
    return [_finding(run, each) for each in (*found, *_unrecorded(run))]


def count_findings(run: OpenRun) -> int:
    """Return the number of findings in a run, with those of rules that were run from the page."""
    return int(run.trial.sql("select count(*) from findings").fetchall()[0][0]) + len(_unrecorded(run))


def _unrecorded(run: OpenRun) -> list[dict[str, Any]]:
    """Return what rules that were run from the page found, and no rule has written into the run."""
    if not run.new_findings:
        return []
    recorded = set(run.trial.sql("select distinct rule, step, worker, tensor from findings").fetchall())
    keys = ("rule", "step", "worker", "tensor")
    return [each for each in run.new_findings if tuple(each[key] for key in keys) not in recorded]


def diagnosis(run: OpenRun) -> dict[str, Any]:
    """Return what `tensortrial diagnose` says of a run, with the place of each problem."""
    from ..diagnosis import diagnose

    found = diagnose(run.trial)
    problems = []
    for problem, text in found.paragraphs():
        step, mode = _step_of_mode(run, problem.step, problem.mode)
        place = {"step": step, "mode": mode, "tensor": problem.tensor}
        problems.append({**place, "text": text, "note": problem.is_note})
    return {
        "summary": found.summary,
        "problems": problems,
        "damaged": [{"path": path, "reason": reason} for path, reason in found.damaged.items()],
        "unchecked": [{"rule": each.rule, "reason": each.reason} for each in found.unchecked],
    }


def _step_of_mode(
    run: OpenRun, step: int | None, mode: str | None, worker: str | None = None
) -> tuple[int | None, str | None]:
    if step is not None and (info := run_reader_of(run.trial).info_of(step, worker)) is not None:
        return info.mode_step, info.mode.name
    return step, mode  # of a step that is lost


def _finding(run: OpenRun, found: Mapping[str, Any]) -> dict[str, Any]:
    step, mode = _step_of_mode(run, found["step"], found["mode"], found["worker"])
    rest = {key: found[key] for key in ("rule", "worker", "tensor", "sentence", "failed")}
    measured = {key: number(found[key]) for key in ("observed", "threshold")}
    return {**rest, **measured, "step": step, "mode": mode, "foundAt": found["found_at"]}


def list_rules() -> list[dict[str, str]]:
    """Return the built-in rules."""
    from ..rules.registry import RULES

    return [{"name": name, "about": (rule.__doc__ or "").partition("\n")[0]} for name, rule in RULES.items()]


def run_rules(run: OpenRun, names: Sequence[str]) -> str:
    """Evaluate built-in rules on a run that has ended, without writing into it. Return a sentence."""
    from ..rules import invoke_rule, make_rule

    if not run.trial.loaded_all_steps:
        raise ConfigurationError(f"{run.name} is still being written; watch it by: tensortrial watch {run.trial.path}")
    found, skipped = 0, list[str]()
    for name in names:
        try:
            results = invoke_rule(make_rule(name, run.trial), record=False)
        except TensorTrialError as exc:
            skipped.append(f"{name}: {exc}")
            continue
        run.new_findings = [each for each in run.new_findings if each["rule"] != name]
        run.new_findings += [{**each.to_json(), "found_at": int(each.found_at.timestamp() * 1000)} for each in results]
        found += len(results)
    sentence = f"{found} found by {len(names) - len(skipped)} of {len(names)} rules."
    return f"{sentence} Not evaluated: {'; '.join(skipped)}" if skipped else sentence


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
