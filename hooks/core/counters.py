"""Counters of what happens in training: steps, and the values of a module within a step."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

from tensortrial.format.record import Step
from tensortrial.mode import ModeKeys
from tensortrial.write.claim import Progress


class StepCounter:
    """The numbers of a job's steps: one count over all modes, and one for each mode."""

    def __init__(self, progress: Progress) -> None:
        self._start(progress)

    def _start(self, progress: Progress) -> None:
        self._progress = progress
        self._global_step = progress.global_step
        self._mode_steps = {mode: progress.mode_step(mode) for mode in ModeKeys}

    def next(self, mode: ModeKeys) -> Step:
        """Return the next step of a mode, without counting it."""
        return Step(mode, self._mode_steps[mode], self._global_step)

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
        self._global_step += 1
        self._mode_steps[step.mode] += 1

    def take_back(self, step: Step) -> None:
        """Take back the step that was counted last, which did not happen. The next one gets its number."""
        self._global_step -= 1
        self._mode_steps[step.mode] -= 1

    def continue_after(self, progress: Progress) -> None:
        """Count on from where the run is now, if that is not where it was."""
        if progress != self._progress:
            self._start(progress)

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
