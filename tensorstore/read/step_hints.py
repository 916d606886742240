"""The hint where a tensor was saved, for the error of a step at which it was not."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

from ..mode import ModeKeys
from ..snapshot.saved_steps import SavedSteps

# How many steps are checked for the tensor, on each side. An error must not cost a scan of a long run.
_MOST_CHECKED = 200


def step_hint(saved_steps: SavedSteps, name: str, step: int, mode: ModeKeys, steps: Sequence[int]) -> str:
    """Return which modes have the tensor at a step, and the steps near it, as a clause.

    Args:
        saved_steps: The saved steps.
        name: The name of the tensor.
        step: The step that the tensor does not have.
        mode: The mode that the step is counted in.
        steps: The saved steps of that mode, ascending.

    Returns:
        The clause; empty if no other mode has the step, and no step is near.
    """
    sets = set(saved_steps.sets_of(name))

    def has(step: int, mode: ModeKeys) -> bool:
        return not sets.isdisjoint(saved_steps.sets_at(step, mode))

    saved = saved_steps.modes()
    others = [each.name for each in ModeKeys if each in saved and each is not mode and has(step, each)]
    at = bisect_left(steps, step)
    before = _first(each for each in reversed(steps[max(0, at - _MOST_CHECKED) : at]) if has(each, mode))
    after = _first(each for each in steps[at : at + _MOST_CHECKED] if has(each, mode) and each != step)
    near = [str(each) for each in (before, after) if each is not None]
    clauses = []
    if others:
        has_it = "modes " + " and ".join(others) + " have" if len(others) > 1 else f"mode {others[0]} has"
        clauses.append(f"{has_it} a step {step} of it: pass mode=ModeKeys.{others[0]}")
    if near:
        which = "nearest steps are" if len(near) > 1 else "nearest step is"
        clauses.append(f"its {which} {' and '.join(near)}" + (f" of mode {mode.name}" if others else ""))
    return "; ".join(clauses)


def _first(steps: Iterable[int]) -> int | None:
    return next(iter(steps), None)
