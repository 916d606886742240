"""The grouping of findings into problems, by rule and tensor, in the order of their beginning, joined by cause."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..rules.finding import Finding
from .checks import FROZEN, NON_FINITE, SPIKES, Check
from .result import Problem

_REACH = 10
"""The most saved steps between a cause and its consequences. NaN has consequences at all later steps."""

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


def problems(
    findings: Sequence[Finding],
    checks: Sequence[Check],
    places: Places,
    sizes: Mapping[int, int],
    steps: Sequence[int],
    learned_from: Mapping[str, int],
) -> list[Problem]:
    """Return the problems in the order in which they began, notes last.

    Args:
        findings: Findings of rules that ran, in the order of steps.
        checks: The checks of those rules.
        places: The positions of tensors in the execution order of their steps.
        sizes: The number of tensors with a position, by step.
        steps: The saved steps, ascending.
        learned_from: The first step with a gradient of each parameter.
    """
    roots: list[_Group] = []
    for group in sorted(_groups(findings, checks, places, learned_from), key=lambda each: each.key):
        _add(group, roots, steps)
    return sorted((_problem(root, sizes) for root in roots), key=lambda problem: problem.is_note)


def _groups(
    findings: Sequence[Finding], checks: Sequence[Check], places: Places, learned_from: Mapping[str, int]
) -> list[_Group]:
    by_rule = {check.rule: check for check in checks}
    groups: dict[tuple[str, bool, str | None, str | None], _Group] = {}
    for finding in findings:
        check = FROZEN if _is_frozen(finding, learned_from) else by_rule[finding.rule]
        key = finding.rule, check.is_note, finding.tensor, finding.worker
        if key in groups:
            groups[key].last_step = finding.step
        else:
            place = places.get((finding.step or 0, finding.tensor or "", finding.worker or ""))
            groups[key] = _Group(check, finding, place, finding.step)
    return list(groups.values())


def _is_frozen(finding: Finding, learned_from: Mapping[str, int]) -> bool:
    if finding.rule != FROZEN.rule or finding.observed != 0 or not learned_from:
        return False
    first = learned_from.get(finding.tensor or "")
    return first is None or (finding.step or 0) <= first


def _add(group: _Group, roots: list[_Group], steps: Sequence[int]) -> None:
    """Add a group to the first problem that explains it, or make it a new problem."""
    for root in roots:
        if root.check == group.check:
            root.others.append(group)
            return
        if any(_explains(each, group, steps) for each in (root, *root.others, *root.explained)):
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
    reach = bisect_left(steps, group.first.step) - bisect_left(steps, min(max(begun, group.first.step), ended))
    return reach <= _REACH


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
        is_note=root.check.is_note and all(each.check.is_note for each in root.explained),
    )


def _consequences(groups: Sequence[_Group]) -> tuple[str, ...]:
    """Return a sentence for each rule, about the rule's first finding."""
    firsts: dict[str, list[_Group]] = {}
    for group in groups:
        firsts.setdefault(group.check.rule, []).append(group)
    return tuple(
        f"{rule} at step {of_rule[0].first.step}, {of_rule[0].first.sentence}"
        + (f", and {len(of_rule) - 1} more" if len(of_rule) > 1 else "")
        for rule, of_rule in firsts.items()
    )
