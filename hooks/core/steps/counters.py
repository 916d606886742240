"""Counters of what happens in training: steps, and the values of a module within a step."""

from __future__ import annotations

import itertools
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping

from tensortrial.format.record import Step
from tensortrial.mode import ModeKeys
from tensortrial.write.progress import Progress


class GlobalSteps:
    """The global steps of the steps of one mode: stretches in which both numbers grow alike, two numbers each."""

    def __init__(self) -> None:
        self._first, self._global = array("q"), array("q")

    def add(self, mode_step: int, global_step: int) -> None:
        """Add a step, which is later than those before it."""
        if not self._first or global_step - mode_step != self._global[-1] - self._first[-1]:
            self._first.append(mode_step)
            self._global.append(global_step)

    def find(self, mode_step: int) -> int | None:
        """Return the global step of a step of the mode; None if it is earlier than all that were added."""
        found = bisect_right(self._first, mode_step) - 1
        return None if found < 0 else self._global[found] + mode_step - self._first[found]

    def cut(self, global_step: int, following: int) -> int | None:
        """Forget the steps from a global step on. Return the number of the next one, which was `following`, or None."""
        left = bisect_left(self._global, global_step)
        following = self._first[left] if left < len(self._first) else following
        del self._first[left:], self._global[left:]
        return min(following, self._first[-1] + global_step - self._global[-1]) if left else None


class StepCounter:
    """The numbers of a job's steps: one count over all modes, and one for each mode.

    A step may be given a later number than the next one. Then the global step grows by as much as that of its mode, as
    if the steps between had happened. The first step of a mode may have any number.
    """

    def __init__(self, progress: Progress) -> None:
        self.start(progress)

    def start(self, progress: Progress) -> None:
        """Count on from a point of the run."""
        self._progress = progress
        self._global_step = progress.global_step
        self._mode_steps = {mode: progress.mode_step(mode) for mode in ModeKeys}
        self._global_steps = {mode: GlobalSteps() for mode in ModeKeys}

    def next_number(self, mode: ModeKeys) -> int:
        """Return the number of the next step of a mode."""
        return self._mode_steps[mode]

    def next(self, mode: ModeKeys, number: int | None = None) -> Step:
        """Return the next step of a mode, or a later one of a given number, without counting it."""
        following = self._mode_steps[mode]
        number = following if number is None else number
        if not following:
            # The first one: a job that begins with evaluation 500 at step 500 has not skipped 500 steps.
            return Step(mode, number, max(self._global_step, number))
        return Step(mode, number, self._global_step + number - following)

    def global_step_of(self, mode: ModeKeys, number: int) -> int | None:
        """Return the global step of a past step of a mode; None if it was before this session."""
        return self._global_steps[mode].find(number)

    def start_after(self, newest: Mapping[ModeKeys, int]) -> None:
        """Begin a new run after these steps, which `newest` returned, unless there are steps already."""
        if not self._global_step and newest:
            counts = {mode: step + 1 for mode, step in newest.items()}
            self._global_step = counts.pop(ModeKeys.GLOBAL, 0)
            # The steps in mode GLOBAL are those of no other mode.
            counts[ModeKeys.GLOBAL] = max(0, self._global_step - sum(counts.values()))
            self._mode_steps.update(counts)

    def newest(self) -> dict[ModeKeys, int]:
        """Return the number of the newest step of each mode that has one; GLOBAL counts over all, from -1."""
        counted = {mode: count - 1 for mode, count in self._mode_steps.items() if count}
        return {**counted, ModeKeys.GLOBAL: self._global_step - 1}

    def count(self, step: Step) -> None:
        """Count a step that has begun."""
        # The steps that were skipped before it have the numbers before its own.
        first = step.mode_step - min(step.mode_step - self._mode_steps[step.mode], step.global_step - self._global_step)
        self._global_steps[step.mode].add(first, step.global_step - (step.mode_step - first))
        self._global_step, self._mode_steps[step.mode] = step.global_step + 1, step.mode_step + 1

    def take_back(self, step: Step) -> None:
        """Take back the step that was counted last, which did not happen. The next one gets its number."""
        self._global_step -= 1
        self._mode_steps[step.mode] -= 1

    def continue_after(self, progress: Progress) -> None:
        """Count on from where the run is now, if that is not where it was."""
        if progress != self._progress:
            self.start(progress)

    def go_back(self, mode: ModeKeys, number: int) -> Progress | None:
        """Make a step of a mode the next one. Return the point to go back to; None if it was before the first step."""
        found = self._global_steps[mode].find(number)
        if found is None:
            return None
        for each, steps in self._global_steps.items():
            following = steps.cut(found, self._mode_steps[each])
            self._mode_steps[each] = self._progress.mode_step(each) if following is None else following
        self._global_step, self._mode_steps[mode] = found, number
        return Progress(0, found, {each.name: count for each, count in self._mode_steps.items()})

    def start_at(self, mode: ModeKeys, step: int) -> None:
        """Begin with this number, unless there are steps already."""
        if not self._global_step:
            self._mode_steps[mode] = self._global_step = step


class OccurrenceCounter:
    """The number of times that a module received or returned a value within a step."""

    def __init__(self) -> None:
        self._step: object = None
        self._counts: dict[tuple[str, str], Iterator[int]] = {}

    def next(self, step: object, path: str, kind: str) -> int:
        """Return 0 for the first value of a step, 1 for the second and so on.

        A model may run in several threads at once.
        """
        if step is not self._step:
            self._step, self._counts = step, {}
        # Both calls are atomic.
        return next(self._counts.setdefault((path, kind), itertools.count()))
