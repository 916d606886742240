"""`diagnose`: the evaluation of rules on the saved steps of a run."""

from __future__ import annotations

import math
import os
import re
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from ..errors import FileError
from ..read.opening import create_trial, no_refresh
from ..read.trial import Trial, run_reader_of
from ..rules.builtin.losses import OF_HELD_OUT_DATA
from ..rules.finding import Finding
from ..rules.registry import make_rule
from ..rules.running import CANNOT_RUN, evaluate_saved
from ..snapshot.snapshot import run_info
from .causes import Facts, Places, problems
from .checks import ANOMALY, CONVERGED, DIVERGED, FROZEN, SPIKES, UNTRAINED, RunFacts, checks_for, parameters_of
from .headline import headline
from .origin import origin
from .result import Diagnosis, Problem, Unchecked

_MOVING = r"(?i)(^|[^a-z0-9])(policy|actor|critic|value_loss|generator|discriminator|adversarial|gan|[dgq])([^a-z]|$)"
"""The names of losses whose targets or data move with the training, so that a rise says nothing by itself.

They are those of reinforcement learning, and of two models that train against each other.
"""
_VANISHED = ("VanishingGradient", "AllZero")
_BIAS = re.compile(r"(?<=\.)bias$")

_PLACES = """
select global_step, name, worker, "order"
from tensors
where "order" is not null and list_contains($steps, global_step)
"""
_LEARNED_FROM = """
select parameter, min(global_step)
from tensors
where parameter is not null
group by parameter
"""
_DIVERGED = """
with losses as (
    select name, worker, mode, global_step, value, first_value(value) over of_name as first
    from scalars
    where (list_contains($names, name) or list_contains(collections, 'losses')) and isfinite(value)
    window of_name as (partition by name, worker, mode order by global_step)
), begun as (
    select *, global_step <= max(if(value <= 2 * first, global_step, null)) over of_name as is_early
    from losses
    window of_name as (partition by name, worker, mode)
), ends as (
    select name, worker, any_value(first) as first, list(value order by global_step desc)[:10] as last,
        quantile_cont(value, [0.25, 0.75]) filter (is_early) as early
    from begun
    group by name, worker, mode
)
select name, worker
from ends
where list_contains($names, name) and not regexp_matches(name, $moving) and first > 0 and list_min(last) > 2 * first
    -- The first value says little if several calls compute the loss in turn, and some of them a far larger one.
    and not (early[1] <= 2 * first and early[2] >= list_min(last))
    -- Parts of a loss may rise while the loss falls.
    and worker not in (select worker from ends where list_max(last) < first)
"""
_GUESSED = """
with outputs as (
    select *, shape[least(len(shape), 2)] as classes
    from tensors
    where contains(name, '_output_') and not list_contains(collections, 'losses')
), of_logits as (
    select losses.name, losses.worker, max(classes) as classes
    from tensors as losses
        asof join outputs
        on losses.worker = outputs.worker and losses.global_step = outputs.global_step
        and losses."order" > outputs."order"
    where list_contains($names, losses.name)
    group by all
), ends as (
    select name, worker, list(value order by global_step desc)[:25] as last
    from scalars
    where list_contains($names, name) and mode in ('TRAIN', 'GLOBAL')
    group by name, worker
    having count(*) >= 100
)
select name, worker, classes
from of_logits join ends using (name, worker)
where classes > 1 and abs(list_avg(last) / ln(classes) - 1) < 0.01
"""
_IDLE_SINCE = """
with rates as (
    select global_step, max(value) as rate
    from scalars
    where regexp_matches(name, '^hyperparameters/.*/(lr|learning_rate)$')
    group by global_step
)
select min(global_step)
from rates
where global_step > (select max(global_step) from rates where rate > 0)
"""
_WARMING = """
with rates as (
    select global_step, max(value) as rate, lag(max(value)) over (order by global_step) as before
    from scalars
    where regexp_matches(name, '^hyperparameters/.*/(lr|learning_rate)$')
    group by global_step
)
select max(rate) from rates having count(*) >= 20 and bool_and(rate > before)
"""
_DECAYING = """
with decays as (
    select product(value) as part
    from scalars
    where regexp_matches(name, '^hyperparameters/(AdamW|SGD)(_[0-9]+)?/.*/(lr|weight_decay)$')
    group by worker, global_step, regexp_replace(name, '[^/]*$', '')
    having count(*) = 2
)
select max(part) from decays having max(part) >= 0.01
"""
_CONVERGED = """
with losses as (
    select name, worker, global_step,
        avg(abs(value)) over recent as recent,
        first_value(abs(value)) over (partition by name, worker order by global_step) as first
    from scalars
    where list_contains(collections, 'losses') and isfinite(value)
        and mode in ('TRAIN', 'GLOBAL') and not regexp_matches(name, $held_out, 'i')
    window recent as (partition by name, worker order by global_step rows 9 preceding)
), ends as (
    select min(global_step) filter (recent < greatest(first / 1000, 1e-6)) as step
    from losses
    group by name, worker
)
select max(step) from ends having count(step) = count(*)
"""
_USUAL_SPIKES = """
with rates as (
    select global_step, max(value) as rate
    from scalars
    where regexp_matches(name, '^hyperparameters/.*/(lr|learning_rate)$')
    group by global_step
), losses as (
    select name, worker, mode, global_step, value, if(value > 0, ln(value), null) as log, rate,
        first_value(abs(value)) over of_name as first, max(value) over of_name as most,
        max(rate) over of_name as fastest
    from scalars asof left join rates using (global_step)
    where list_contains($names, name) and isfinite(value)
    window of_name as (partition by name, worker, mode order by global_step)
)
select name, worker, global_step
from losses
window
    past as (partition by name, worker, mode order by global_step rows between 128 preceding and 1 preceding),
    next as (partition by name, worker, mode order by global_step rows between 1 following and 3 following),
    later as (partition by name, worker, mode order by global_step rows between 1 following and 10 following)
qualify global_step in (select unnest($steps)) and (
    abs(value) < first / 10 or regexp_matches(name, $moving)
    -- A batch with an example of a rare class.
    or (value < first and max(value) over next <= max(value) over past)
    -- A restart of a schedule: the learning rate rises to what it was before, and so may the loss.
    or (value <= max(most) over past and rate > 2 * min(rate) over past and rate <= max(fastest) over past)
    -- A jump by less than half, or one that is usual for a heavy tail, as its logarithm is less than twice as far above
    -- the median as the largest one before. After it, the loss is as before.
    or (
        (value < 1.5 * median(value) over past or log < 2 * max(log) over past - median(log) over past)
        and median(value) over later < median(value) over past * greatest(1.5, exp(stddev(log) over past))
    )
)
"""


def diagnose(
    run: str | os.PathLike[str] | Trial, *, storage_options: Mapping[str, Any] | None = None, progress: bool = False
) -> Diagnosis:
    """Find out what went wrong in a run, where it began, and what to try.

    All built-in rules that need no parameters are evaluated on the steps that are saved, also of a run that is still
    being written. Findings are ordered by the step and the execution order at their beginning, but NaN and infinities
    come first, and outliers of activations last. Findings with one cause are joined: a NaN explains the NaN of all
    values that are computed from it. Nothing is written into the run, and no actions are executed.

    Args:
        run: Path or URL of a run, or a trial of it.
        storage_options: Options of the storage, if `run` is a path or URL.
        progress: Whether to show a progress bar, if tqdm is installed.

    Returns:
        The diagnosis. Its text is the first cause, what to try, and at most five lines about other problems.

    Raises:
        RunNotFound: There is no run.
    """
    if isinstance(run, Trial):
        return _diagnosed(run, progress)
    with create_trial(run, storage_options=storage_options) as trial:
        return _diagnosed(trial, progress)


def _diagnosed(trial: Trial, progress: bool) -> Diagnosis:
    trial.refresh()
    with no_refresh(trial):
        steps = trial.steps()
        framework = run_info(run_reader_of(trial).storage).framework
        run_facts = RunFacts(framework == "xgboost", len(trial.workers()), len(steps))
        checks = checks_for(run_facts)
        rules = [make_rule(check.rule, trial, **parameters_of(check, run_facts)) for check in checks]
        damaged: dict[str, FileError] = {}
        evaluated = evaluate_saved(trial, rules, damaged, progress)
        found = [finding for finding in evaluated if not finding.failed]
        learning = set(trial.tensor_names()) - {each.tensor for each in found if each.rule in _VANISHED}
        found = _without_offsets(found, learning)
        failed = {finding.rule: finding.sentence.removeprefix(CANNOT_RUN) for finding in evaluated if finding.failed}
        found = _explained(trial, found, damaged)
        places = _places(trial, found, damaged)
        sizes: dict[int, int] = {}
        for (step, _, _), place in places.items():
            sizes[step] = max(sizes.get(step, 0), place + 1)
        facts = _facts(trial, found, steps, "LossSpike" not in failed, learning, damaged)
        joined = problems(found, checks, places, sizes, facts)
        joined = [_located(trial, each, damaged) for each in joined]
    allowed = {check.rule: check.allowed_by for check in checks}
    unchecked = tuple(Unchecked(rule, allowed[rule] or reason) for rule, reason in failed.items())
    checked = tuple(check.rule for check in checks if check.rule not in failed)
    damaged |= trial.damaged
    reasons = {path: str(error).removeprefix(f"{path}: ") for path, error in sorted(damaged.items())}
    begun, failures = trial.snapshot.steps_begun, trial.snapshot.workers.failures
    return Diagnosis(trial.path, len(steps), tuple(joined), checked, unchecked, reasons, begun, failures)


def _facts(
    trial: Trial,
    found: Sequence[Finding],
    steps: Sequence[int],
    has_losses: bool,
    learning: Collection[str],
    damaged: dict[str, FileError],
) -> Facts:
    """Return the facts about the run that the findings need; those that none needs are not read."""

    def tensors(*rules: str) -> list[str]:
        return sorted({finding.tensor or "" for finding in found if finding.rule in rules})

    diverged, spikes = tensors(DIVERGED.rule), tensors("LossSpike")
    jumps = [finding.step for finding in found if finding.rule == "LossSpike"]
    of_spikes = {"names": spikes, "steps": jumps, "moving": _MOVING}
    learned_from = _fetched(trial, _LEARNED_FROM, {}, damaged) if tensors(FROZEN.rule) else []
    held_out = {"held_out": OF_HELD_OUT_DATA.pattern}
    converged = _fetched(trial, _CONVERGED, held_out, damaged) if tensors(*CONVERGED) else []
    return Facts(
        steps,
        cache(lambda name: trial.tensor(name).steps()),
        trial.mode,
        dict(learned_from),
        set(_fetched(trial, _DIVERGED, {"names": diverged, "moving": _MOVING}, damaged)) if diverged else set(),
        next((step for (step,) in converged if step is not None), math.inf),
        set(_fetched(trial, _USUAL_SPIKES, of_spikes, damaged)) if spikes else set(),
        has_losses,
        learning,
    )


def _explained(trial: Trial, found: Sequence[Finding], damaged: dict[str, FileError]) -> list[Finding]:
    """Return the findings, those about losses that do not fall with what is known about the reason."""
    names = sorted({each.tensor or "" for each in found if each.rule == DIVERGED.rule})
    if not names:
        return [*found]
    of_logits = [name for name in names if name.startswith("CrossEntropyLoss")]
    guesses = _fetched(trial, _GUESSED, {"names": of_logits}, damaged) if of_logits else []
    classes_of = {(name, worker): classes for name, worker, classes in guesses}
    idle_since, warming, decaying = (
        next((value for (value,) in _fetched(trial, query, {}, damaged)), None)
        for query in (_IDLE_SINCE, _WARMING, _DECAYING)
    )
    explained = []
    for finding in found:
        reasons = [finding.sentence]
        if finding.rule == DIVERGED.rule:
            if classes := classes_of.get((finding.tensor, finding.worker)):
                reasons.append(f"its last values are those of a guess among {classes} classes")
            if idle_since is not None and idle_since < (finding.step or 0):
                reasons.append(f"all learning rates are 0 since step {idle_since}")
            if warming is not None:
                reasons.append(f"the learning rate has risen at all steps, to {warming:.3g}")
            if decaying is not None:
                reasons.append(f"weight decay takes {100 * decaying:.3g} % of the weights at each step")
        explained.append(replace(finding, sentence="; ".join(reasons)))
    return explained


def _without_offsets(found: Sequence[Finding], learning: Collection[str]) -> list[Finding]:
    """Return the findings, without those of biases without a gradient whose layer's weight has one.

    A normalization after the layer subtracts such biases, so that the loss does not depend on them.
    """
    return [
        finding
        for finding in found
        if finding.rule not in _VANISHED or _BIAS.sub("weight", finding.tensor or "") not in learning
    ]


def _located(trial: Trial, problem: Problem, damaged: dict[str, FileError]) -> Problem:
    """Return a problem with its headline, the step after which it began, and the weight in which it began."""
    found, advice = None, ""
    problem = replace(problem, after_step=_step_before(trial, problem))
    try:
        if problem.step is not None and problem.rule in (ANOMALY, *SPIKES):
            found = origin(trial, problem.step, problem.worker)
        begun, advice = headline(trial, problem, found)
        problem = replace(problem, headline=begun)
    except FileError as exc:
        damaged.setdefault(exc.path, exc)
    if advice:
        problem = replace(problem, advice=advice if problem.rule == ANOMALY else f"{advice}; else {problem.advice}")
    if found is None:
        return problem
    return replace(problem, sentence=f"{problem.sentence}; before it, {found}", origin=found.tensor)


def _step_before(trial: Trial, problem: Problem) -> int | None:
    """Return the newest earlier step at which the problem's tensor was saved, if steps in between were not."""
    if problem.tensor is None or problem.step is None or problem.rule == UNTRAINED:
        return None  # the latter began at the first step
    steps = trial.tensor(problem.tensor).steps()
    before = steps[: bisect_left(steps, problem.step)][-1:]
    return before[0] if before and before[0] < problem.step - 1 else None


def _places(trial: Trial, findings: Iterable[Finding], damaged: dict[str, FileError]) -> Places:
    """Return the execution order of each tensor at the first step of each finding."""
    firsts: dict[tuple[str, str | None, str | None], int] = {}
    for finding in findings:
        if finding.step is not None:
            firsts.setdefault((finding.rule, finding.tensor, finding.worker), finding.step)
    steps = sorted(set(firsts.values()))
    if not steps:
        return {}
    rows = _fetched(trial, _PLACES, {"steps": steps}, damaged)
    return {(step, name, worker): place for step, name, worker, place in rows}


def _fetched(
    trial: Trial, query: str, parameters: Mapping[str, Any], damaged: dict[str, FileError]
) -> list[tuple[Any, ...]]:
    """Return the rows of a query. If a file cannot be read, note it in `damaged` and return no rows."""
    try:
        return run_reader_of(trial).sql(query, dict(parameters)).fetchall()
    except FileError as exc:
        damaged.setdefault(exc.path, exc)
        return []
