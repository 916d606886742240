"""The headline of a problem: its beginning, the interval of steps, and the first tensor."""

from __future__ import annotations

import math

from ..read.trial import Trial, run_reader_of
from ..visible import in_a_line
from .checks import ANOMALY, GREW, NON_FINITE, OF_A_SPIKE, ROSE
from .origin import Origin
from .result import Problem, plain_sentence

_LAST_LOSS = """
select name, global_step, value,
    first_value(global_step) over of_name as first_step,
    first_value(value) over of_name as first
from scalars
where global_step < $step and list_contains(collections, 'losses')
window of_name as (partition by name, worker order by global_step)
order by global_step desc, name, worker
limit 1
"""
_RATES = """
select name, global_step, value
from scalars
where global_step <= $step and regexp_matches(name, $pattern) and isfinite(value)
order by name, global_step
"""
_RATE = r"(?i)(^|[^a-z])(lr|learning[_ ]rate)([^a-z]|$)"
_GROWTH = 10.0
"""A loss has grown if it is more than this many times the first one."""
_FEWEST_RATES = 10
"""The fewest learning rates to compare with."""
_RISE = 1.5
"""The factor by which a learning rate must have risen over its largest earlier value."""


def headline(trial: Trial, problem: Problem, origin: Origin | None) -> tuple[str, str]:
    """Return a sentence about the beginning of a problem, without its full stop, and advice that follows from it."""
    if problem.step is None:
        return plain_sentence(problem), ""
    rate = _risen_rate(trial, problem.step) if problem.rule in OF_A_SPIKE else ""
    advice = ROSE if rate and problem.rule != ANOMALY else ""
    if problem.rule == NON_FINITE and origin is None:
        loss, has_grown = _last_loss(trial, problem)
        return f"{_happened(problem)}{rate}{loss}", advice or (GREW if has_grown else "")
    if origin is None:
        return f"{_happened(problem)}{rate}", advice
    what = f"{in_a_line(origin.tensor)} left its own past at step {origin.step}"
    usual = f"it changed by {origin.change:.3g} of its norm between two saves, where {origin.usual:.3g} is usual"
    then = "" if problem.rule == ANOMALY else f"; {_happened(problem)}"
    advice = f"lower the learning rate of {in_a_line(origin.tensor)}"
    return f"{what}: {usual}{rate}{then}", f"{advice}, or clip its gradient" if problem.rule == ANOMALY else advice


def _happened(problem: Problem) -> str:
    begun = f"at step {problem.step}"
    if problem.after_step is not None:
        begun = f"between steps {problem.after_step} and {problem.step}"
    if problem.rule != NON_FINITE:
        return f"{begun}, {plain_sentence(problem)}"
    what = "NaN begins" if problem.sentence.endswith("NaN") else "infinity begins"
    return f"{what} {begun}, first in {in_a_line(problem.tensor or '')}"


def _last_loss(trial: Trial, problem: Problem) -> tuple[str, bool]:
    """Return a clause about the last loss before a problem, and whether it was many times the first loss."""
    rows = run_reader_of(trial).sql(_LAST_LOSS, {"step": problem.step}).fetchall()
    if not rows or not math.isfinite(rows[0][2]):
        return "", False
    name, step, value, first_step, first = rows[0]
    clause = f"; {'it' if name == problem.tensor else 'the loss'} was {value:.4g} at step {step}"
    if value <= _GROWTH * abs(first):
        return clause, False
    return f"{clause}, after {first:.4g} at step {first_step}", True


def _risen_rate(trial: Trial, step: int) -> str:
    """Return a clause about the learning rate that rose most above its earlier values until a step."""
    of_name: dict[str, list[tuple[int, float]]] = {}
    for name, at, value in run_reader_of(trial).sql(_RATES, {"step": step, "pattern": _RATE}).fetchall():
        of_name.setdefault(name, []).append((at, value))
    risen = [(*rise, name) for name, rates in of_name.items() if (rise := _rise(rates)) is not None]
    if not risen:
        return ""
    before, since, now, name = max(risen, key=lambda each: (each[2] / each[0], each[3]))
    return f", after '{in_a_line(name)}' rose from {before:.4g} to {now:.4g} since step {since}"


def _rise(rates: list[tuple[int, float]]) -> tuple[float, int, float] | None:
    """Return the largest rate before the last rise, the step of the rise, and the newest rate.

    None if it has not risen, or has risen all the time, as in a warmup.
    """
    now = rates[-1][1]
    most = 0.0
    for position, (step, rate) in enumerate(rates):
        if position >= _FEWEST_RATES and rate > most and min(each for _, each in rates[position:]) > most:
            was_flat = most == max(each for _, each in rates[: (position + 1) // 2])
            return (most, step, now) if was_flat and most > 0 and now > _RISE * most else None
        most = max(most, rate)
    return None
