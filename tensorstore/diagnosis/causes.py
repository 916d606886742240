"""The grouping of findings into problems, by rule and tensor, joined by cause.

Problems are in the order of their beginning, but those with NaN or infinities come first, and notes last.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from ..rules.finding import Finding
from .checks import DIVERGED, FROZEN, NON_FINITE, SPIKES, Check
from .result import Problem

_REACH = 10
"""The most saved steps between a cause and its consequences. NaN has consequences at all later steps."""
_LONG = 50
"""The most saved steps between the beginning of a problem and the first NaN that it explains, by any consequences."""

Places = Mapping[tuple[int, str, str], int]
"""The positions of tensors in the execution order, by step, tensor and worker."""


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
    def key(self) -> tuple[float, float, bool, str]:
        step = math.inf if self.first.step is None else self.first.step
        place = math.inf if self.place is None else self.place
        return step, place, self.check.rule != NON_FINITE, self.first.tensor or ""

    @property
    def is_note(self) -> bool:
        """True if nothing in it is a problem for sure."""
        return all(each.check.is_note for each in (self, *self.explained))

    @property
    def is_non_finite(self) -> bool:
        """True if values become NaN or infinite, which no training survives."""
        return any(each.check.rule == NON_FINITE for each in (self, *self.explained))


def problems(
    findings: Sequence[Finding],
    checks: Sequence[Check],
    places: Places,
    sizes: Mapping[int, int],
    steps: Sequence[int],
    learned_from: Mapping[str, int],
    diverged: Collection[tuple[str, str]],
) -> list[Problem]:
    """Return the problems: first those with NaN or infinities, notes last, and each in the order of their beginning.

    Args:
        findings: Findings of rules that ran, in the order of steps.
        checks: The checks of those rules.
        places: The positions of tensors in the execution order of their steps.
        sizes: The number of tensors with a position, by step.
        steps: The saved steps, ascending.
        learned_from: The first step with a gradient of each parameter.
        diverged: The losses, with their workers, that are far above their first value in the end.
    """
    by_rule = {check.rule: check for check in checks}
    checked = [(finding, _check_of(finding, by_rule, learned_from, diverged)) for finding in findings]
    roots: list[_Group] = []
    for group in sorted(_groups(checked, places), key=lambda each: each.key):
        _add(group, roots, steps)
    roots.sort(key=lambda root: (root.is_note, not root.is_non_finite))
    return [_problem(root, sizes) for root in roots]


def _groups(checked: Sequence[tuple[Finding, Check]], places: Places) -> list[_Group]:
    groups: dict[tuple[str, bool, str | None, str | None], _Group] = {}
    for finding, check in checked:
        key = finding.rule, check.is_note, finding.tensor, finding.worker
        if key in groups:
            groups[key].last_step = finding.step
        else:
            place = places.get((finding.step or 0, finding.tensor or "", finding.worker or ""))
            groups[key] = _Group(check, finding, place, finding.step)
    return list(groups.values())


def _check_of(
    finding: Finding,
    by_rule: Mapping[str, Check],
    learned_from: Mapping[str, int],
    diverged: Collection[tuple[str, str]],
) -> Check:
    """Return the check of a finding's rule, or the one that says more about what the rule has found."""
    if finding.rule == DIVERGED.rule and (finding.tensor, finding.worker) in diverged:
        return DIVERGED
    if finding.rule == FROZEN.rule and finding.observed == 0 and learned_from:
        first = learned_from.get(finding.tensor or "")
        if first is None or (finding.step or 0) <= first:
            return FROZEN
    return by_rule[finding.rule]


def _add(group: _Group, roots: list[_Group], steps: Sequence[int]) -> None:
    """Add a group to the first problem that explains it, or make it a new problem."""
    for root in roots:
        if root.check == group.check:
            root.others.append(group)
            return
        is_late = group.check.rule == NON_FINITE and _steps_between(steps, root.first.step, group.first.step) > _LONG
        causes = [
            each for each in (root, *root.others, *root.explained) if not is_late or each.check.rule == NON_FINITE
        ]
        if any(_explains(each, group, steps) for each in causes):
            root.explained.append(group)
            return
    roots.append(group)


def _explains(cause: _Group, group: _Group, steps: Sequence[int]) -> bool:
    if cause.first.step is None or group.first.step is None or cause.first.step > group.first.step:
        return False
    if cause.check.rule == NON_FINITE:
        return True
    if group.check.rule not in cause.check.explains:
        return False
    observed, threshold = cause.first.observed, cause.first.threshold
    if group.check.rule in SPIKES and observed is not None and threshold is not None and observed < threshold:
        return False  # a constant weight does not cause large values
    begun, ended = cause.first.step, cause.last_step or cause.first.step
    return _steps_between(steps, min(max(begun, group.first.step), ended), group.first.step) <= _REACH


def _steps_between(steps: Sequence[int], first: int | None, last: int | None) -> int:
    return bisect_left(steps, last or 0) - bisect_left(steps, first or 0)


def _problem(root: _Group, sizes: Mapping[int, int]) -> Problem:
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
        advice=root.check.advice,
        is_note=root.is_note,
    )


def _consequences(groups: Sequence[_Group]) -> tuple[str, ...]:
    """Return a sentence for each rule, about the rule's first finding. NaN and infinities come first."""
    firsts: dict[str, list[_Group]] = {}
    for group in sorted(groups, key=lambda each: each.check.rule != NON_FINITE):
        firsts.setdefault(group.check.rule, []).append(group)
    return tuple(
        f"{rule} at step {of_rule[0].first.step}, {of_rule[0].first.sentence}"
        + (f", and {len(of_rule) - 1} more" if len(of_rule) > 1 else "")
        for rule, of_rule in firsts.items()
    )
