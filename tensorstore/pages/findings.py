"""The answers about rules: their findings in a run, and its diagnosis."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from ..errors import ConfigurationError, TensorTrialError
from ..mode import ModeKeys
from .open_run import SAME_FINDING, OpenRun
from .payload import number

_FIRSTS = f"""
    select
        rule, step, mode, worker, tensor, observed, threshold, sentence, failed, epoch_ms(found_at) as found_at,
        count(*) over same as times, max(step) over same as last
    from findings
    window same as (partition by {", ".join(SAME_FINDING)})
    qualify row_number() over (same order by step, worker) = 1
    order by step, rule, tensor limit 5000
"""


def findings(run: OpenRun) -> list[dict[str, Any]]:
    """Return the first finding of each rule in each tensor and mode, by step, with the number of findings.

    Most rules repeat their finding at every later step. Findings about the run as a whole have no step, and are last.
    """
    firsts: dict[tuple[Any, ...], dict[str, Any]] = {}
    found = [*run.recorded_findings(_FIRSTS), *run.unrecorded_findings()]
    for each in sorted(found, key=lambda each: (each["step"] is None, each["step"] or 0)):
        first = firsts.setdefault(tuple(each[key] for key in SAME_FINDING), {**each, "times": 0, "last": each["step"]})
        first["times"] += each.get("times", 1)
        last = each.get("last", each["step"])
        first["last"] = first["last"] if last is None else max(first["last"] or 0, last)
    return [_finding(run, each) for each in firsts.values()]


def diagnosis(run: OpenRun) -> dict[str, Any]:
    """Return the diagnosis of a run, as of `tensortrial diagnose`, with the location of each problem."""
    from ..diagnosis import diagnose
    from ..diagnosis.result import as_sentence

    found = diagnose(run.trial)
    problems = []
    for problem, _ in found.paragraphs():
        step, mode = _step_of_mode(run, problem.step, problem.mode)
        place = {"step": step, "mode": mode, "tensor": problem.tensor, "origin": problem.origin}
        advice = f"What to try: {problem.advice}."
        said = {"headline": as_sentence(problem.headline), "advice": advice, "lines": problem.lines()}
        problems.append({**place, **said, "note": problem.is_note})
    return {
        "summary": found.summary,
        "problems": problems,
        "damaged": [{"path": path, "reason": reason} for path, reason in found.damaged.items()],
        "unchecked": [{"rule": each.rule, "reason": each.reason} for each in found.unchecked],
    }


def _step_of_mode(
    run: OpenRun, step: int | None, mode: str | None, worker: str | None = None
) -> tuple[int | None, str | None]:
    if step is not None and (info := run.reader.states.info(step, ModeKeys.GLOBAL, worker)) is not None:
        return info.mode_step, info.mode.name
    return step, mode  # the finding is of a lost step


def _finding(run: OpenRun, found: Mapping[str, Any]) -> dict[str, Any]:
    step, mode = _step_of_mode(run, found["step"], found["mode"], found["worker"])
    rest = {key: found[key] for key in ("rule", "worker", "tensor", "sentence", "failed")}
    measured = {key: number(found[key]) for key in ("observed", "threshold")}
    last, _ = _step_of_mode(run, found["last"], found["mode"])
    repeated = {"times": found["times"], "last": last}
    return {**rest, **measured, **repeated, "step": step, "mode": mode, "foundAt": found["found_at"]}


def evaluate_rules(run: OpenRun) -> None:
    """Evaluate the built-in rules on a run that has ended. `run.new_findings` gets the results.

    Nothing is written into the run. A rule is left out if it needs parameters, or data that the run lacks.
    """
    from ..rules import make_rule, watch
    from ..rules.registry import RULES

    if not run.trial.loaded_all_steps:
        raise ConfigurationError(f"{run.name} is still being written; watch it by: tensortrial watch {run.trial.path}")
    rules = []
    for name in RULES:
        if name != "StalledTraining":
            with suppress(TensorTrialError):
                rules.append(make_rule(name, run.trial))
    run.new_findings += [
        {**asdict(each), "found_at": int(each.found_at.timestamp() * 1000)}
        for each in watch(run.trial, rules, record=False)
        if not each.failed
    ]
