"""The grouping of findings into problems, by rule and tensor, joined by cause.

Problems are in the order of their beginning, but those with NaN or infinities come first, and outliers of activations
after all others. Notes are last.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..mode import ModeKeys
from ..rules.finding import Finding
from .checks import (
    CONVERGED,
    DIVERGED,
    FROZEN,
    NON_FINITE,
    OF_ONE_CLASS,
    OUTLIERS,
    PASSING,
    RATIOS,
    SMALL,
    SPIKES,
    TOO_LATE,
    UNFED,
    UNTRAINED,
    Check,
    steps_to_fall,
)
from .result import Problem

_REACH = 10
"""The most saved steps between a cause and its consequences. NaN has consequences at all later steps."""
_LONG = 50
"""The most saved steps between the beginning of a problem and the first NaN that it explains, by any consequences."""
_OF_SKIPPED_STEPS = "gradient", "optimizer_gradient/", "update_ratio/"
"""The first letters of the names of tensors that may be NaN or infinite at steps that a GradScaler skips."""

Places = Mapping[tuple[int, str, str], int]
"""The positions of tensors in the execution order, by step, tensor and worker."""


@dataclass(frozen=True)
class Facts:
    """The facts of a run that decide what its findings mean.

    Attributes:
        steps: The saved steps, ascending.
        saves: Returns the steps at which a tensor was saved, ascending.
        mode_of: Returns the mode of a step.
        learned_from: The first step with a gradient of each parameter.
        diverged: The losses, with their workers, that are far above their first value in the end.
        converged: The first step from which on all training losses are nearly 0; infinite if there is none.
        usual_spikes: The jumps of losses that are no problem, by name, worker and step: of losses far below their first
            value, of losses that vary as much, and of those that training does not have to lower.
        has_losses: True if losses were evaluated.
        learning: The names of tensors that have not vanished.
    """

    steps: Sequence[int]
    saves: Callable[[str], Sequence[int]]
    mode_of: Callable[[int], ModeKeys]
    learned_from: Mapping[str, int]
    diverged: Collection[tuple[str, str]]
    converged: float
    usual_spikes: Collection[tuple[str, str, int]]
    has_losses: bool
    learning: Collection[str]


@dataclass
class _Group:
    """The findings of one rule in one tensor of one worker."""

    check: Check
    first: Finding
    place: int | None
    last_step: int | None
    others: list[_Group] = field(default_factory=list)
    explained: list[_Group] = field(default_factory=list)

    @property
    def key(self) -> tuple[float, bool, float, bool, str]:
        step = math.inf if self.first.step is None else self.first.step
        place = math.inf if self.place is None else self.place
        return step, self.check.rule == OUTLIERS, place, self.check.rule != NON_FINITE, self.first.tensor or ""

    @property
    def is_note(self) -> bool:
        """True if nothing in it is a problem for sure."""
        may_be_intended = self.check.is_note or self.check.rule == OUTLIERS
        return may_be_intended and all(each.check.is_note for each in self.explained)

    @property
    def is_non_finite(self) -> bool:
        """True if values become NaN or infinite, which no training survives."""
        return any(each.check.rule == NON_FINITE for each in (self, *self.explained))


def problems(
    findings: Sequence[Finding], checks: Sequence[Check], places: Places, sizes: Mapping[int, int], facts: Facts
) -> list[Problem]:
    """Return the problems: first those with NaN or infinities, notes last, and each in the order of their beginning.

    Args:
        findings: Findings of rules that ran, in the order of steps.
        checks: The checks of those rules.
        places: The positions of tensors in the execution order of their steps.
        sizes: The number of tensors with a position, by step.
        facts: The facts of the run.
    """
    by_rule = {check.rule: check for check in checks}
    checked = [(finding, _check_of(finding, by_rule, facts)) for finding in findings]
    roots: list[_Group] = []
    for group in sorted(_groups(checked, places), key=lambda each: each.key):
        if _is_over(group, facts):
            group.check = replace(group.check, is_note=True)
        _add(group, roots, facts)
    roots.sort(key=lambda root: (root.is_note, not root.is_non_finite, root.check.rule == OUTLIERS))
    return [_problem(root, sizes, facts) for root in roots]


def _groups(checked: Sequence[tuple[Finding, Check]], places: Places) -> list[_Group]:
    groups: dict[tuple[str, str, bool, str | None, str | None], _Group] = {}
    for finding, check in checked:
        key = finding.rule, check.advice, check.is_note, finding.tensor, finding.worker
        if key in groups:
            groups[key].last_step = finding.step
        else:
            # The rule for NaN and infinities names the first of the gradients, and this one the largest of them.
            is_sum = finding.rule == "GradientNormSpike" and not math.isfinite(finding.observed or 0)
            place = None if is_sum else places.get((finding.step or 0, finding.tensor or "", finding.worker or ""))
            groups[key] = _Group(check, finding, place, finding.step)
    return list(groups.values())


def _check_of(finding: Finding, by_rule: Mapping[str, Check], facts: Facts) -> Check:
    """Return the check of a finding's rule, or the one that says more about what the rule has found."""
    if finding.rule == DIVERGED.rule and (finding.tensor, finding.worker) in facts.diverged:
        return DIVERGED
    if finding.rule == OF_ONE_CLASS.rule and (finding.threshold or 0) < 1:
        return OF_ONE_CLASS
    if finding.rule == FROZEN.rule and finding.observed == 0 and facts.learned_from:
        first = facts.learned_from.get(finding.tensor or "")
        if first is None or (finding.step or 0) <= first:
            return FROZEN
    if finding.rule == UNTRAINED and finding.observed == 0:
        return replace(FROZEN, rule=UNTRAINED)
    check = SMALL[finding.rule] if finding.rule in RATIOS and _is_small(finding) else by_rule[finding.rule]
    if finding.rule in CONVERGED and _is_small(finding) and (finding.step or 0) >= facts.converged:
        return replace(check, is_note=True)
    if finding.rule == "LossSpike" and (finding.tensor, finding.worker, finding.step) in facts.usual_spikes:
        return replace(check, is_note=True)
    if finding.rule == "GradientNormSpike" and (facts.has_losses or not math.isfinite(finding.observed or 0)):
        return replace(check, is_note=True)  # other rules find what follows from it, and NaN and infinities
    return check


def _is_small(finding: Finding) -> bool:
    """Return whether a value is below its threshold, such as a vanished gradient."""
    if finding.rule == "AllZero":
        return True
    observed, threshold = finding.observed, finding.threshold
    return observed is not None and threshold is not None and observed < threshold


def _is_over(group: _Group, facts: Facts) -> bool:
    """Return whether a finding that may pass, such as one about a gradient, ended before the run."""
    name, rule = group.first.tensor or "", group.check.rule
    if rule not in PASSING or (rule == NON_FINITE and not name.startswith(_OF_SKIPPED_STEPS)):
        return False
    if (last := group.last_step) is None:
        return False
    # Rules of training evaluate no steps of other modes, which may come later.
    saves, mode = facts.saves(name), facts.mode_of(last)
    return any(facts.mode_of(step) is mode for step in saves[bisect_right(saves, last) :])


def _add(group: _Group, roots: list[_Group], facts: Facts) -> None:
    """Add a group to the first problem that explains it, or make it a new problem."""
    is_non_finite = group.check.rule == NON_FINITE
    for root in roots:
        if root.check == group.check:
            root.others.append(group)
            return
        late = _steps_between(facts.steps, root.first.step, group.first.step) > _LONG
        if is_non_finite and late and not root.is_non_finite:
            continue
        if any(_explains(each, group, facts) for each in (root, *root.others, *root.explained)):
            root.explained.append(group)
            return
    roots.append(group)


def _explains(cause: _Group, group: _Group, facts: Facts) -> bool:
    if cause.first.step is None or group.first.step is None or cause.first.step > group.first.step:
        return False
    if cause.check.rule == NON_FINITE:
        is_small = group.check.rule in RATIOS and _is_small(group.first)
        is_skipped = is_small and _steps_between(facts.steps, cause.last_step, group.last_step) <= _REACH
        return is_skipped or not cause.check.is_note
    if group.check.rule not in cause.check.explains:
        return False
    is_large = group.check.rule in SPIKES or (group.check.rule in RATIOS and not _is_small(group.first))
    if is_large and cause.check.rule in CONVERGED and _is_small(cause.first):
        return False  # a constant weight does not cause large values
    begun, ended = cause.first.step, cause.last_step or cause.first.step
    first = _earliest(group, facts)
    return _steps_between(facts.steps, min(max(begun, first), ended), first) <= _REACH


def _earliest(group: _Group, facts: Facts) -> int:
    """Return the first step at which a finding may have begun: the one after the previous save of its tensor.

    A loss that does not fall is found only some steps after it has risen.
    """
    step = group.first.step or 0
    if group.check.rule == DIVERGED.rule:
        return facts.steps[max(0, bisect_left(facts.steps, step) - steps_to_fall(len(facts.steps)))] + 1
    saves = facts.saves(group.first.tensor) if group.first.tensor else ()
    before = saves[: bisect_left(saves, step)][-1:]
    return before[0] + 1 if before else step


def _steps_between(steps: Sequence[int], first: int | None, last: int | None) -> int:
    return bisect_left(steps, last or 0) - bisect_left(steps, first or 0)


def _problem(root: _Group, sizes: Mapping[int, int], facts: Facts) -> Problem:
    first = root.first
    others = dict.fromkeys(each.first.tensor for each in root.others if each.first.tensor != first.tensor)
    return Problem(
        rule=first.rule,
        step=first.step,
        mode=first.mode,
        worker=first.worker,
        tensor=first.tensor,
        order=root.place,
        tensors_of_step=None if root.place is None else sizes.get(first.step or 0),
        headline=first.sentence,
        sentence=first.sentence,
        last_step=root.last_step,
        tensors=tuple(name for name in others if name is not None),
        explains=_consequences(root.explained),
        advice=_advice(root, facts),
        is_note=root.is_note,
    )


def _advice(root: _Group, facts: Facts) -> str:
    first, name = root.first, root.first.tensor or ""
    if root.check.rule != "VanishingGradient":
        return root.check.advice
    if facts.saves(name)[0] < (first.step or 0):
        return TOO_LATE
    is_weight = name.endswith(".weight")
    return UNFED if is_weight and f"{name.removesuffix('weight')}bias" in facts.learning else root.check.advice


def _consequences(groups: Sequence[_Group]) -> tuple[str, ...]:
    """Return a sentence for each rule, about the rule's first finding. NaN and infinities come first."""
    firsts: dict[str, list[_Group]] = {}
    for group in sorted(groups, key=lambda each: each.check.rule != NON_FINITE):
        firsts.setdefault(group.check.rule, []).append(group)
    return tuple(
        f"{rule} at step {of_rule[0].first.step}, {of_rule[0].first.sentence}"
        + (f", and {len(of_rule) - 1} more of the rule" if len(of_rule) > 1 else "")
        for rule, of_rule in firsts.items()
    )
