"""The clock of a job's steps: their numbers, the mode, the step that is open, and what happens within a step."""

from __future__ import annotations

import itertools
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from tensortrial.format.record import Step
from tensortrial.mode import ModeKeys
from tensortrial.write.progress import Progress

from .configuration.sagemaker import CheckpointSteps


class GlobalSteps:
    """A map from one mode's steps to global steps: the first pair of each stretch in which both grow alike."""

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


class StepClock:
    """The steps of a job: their numbers over all modes and in each, the mode, and the open step.

    A step may be given a later number than the next one. Then the global step grows by as much as that of its mode, as
    if the steps between had happened. The first step of a mode may have any number.

    At most one step is open. While a step is held (`with hook.step():`), it stays open, and what begins meanwhile is a
    part of it. A step that was opened for values saved ahead of it begins next. In a mode whose steps were given
    numbers by the caller, nothing else begins a step. The clock is not thread-safe: the recorder holds its lock around
    each call.
    """

    def __init__(self, progress: Progress, checkpoint: CheckpointSteps) -> None:
        self.mode = ModeKeys.GLOBAL
        self.step: Step | None = None
        """The open step."""
        self.last_saved: Step | None = None
        """The newest closed step at which a tensor was saved."""
        self.is_ahead = False
        """True if the open step was opened for values saved ahead of it, and has not begun yet."""
        self.begun_by_call = False
        """True if `begin_step` began the step that is held."""
        self.held = 0
        """The number of holds of the open step."""
        self._mode_before: ModeKeys | None = None
        self.numbered: set[ModeKeys] = set()
        """The modes in which only explicit calls begin steps."""
        self._global_step: int
        self.start(progress)
        self._checkpoint = checkpoint
        if not self._global_step and (newest := checkpoint.read()):
            counts = {mode: step + 1 for mode, step in newest.items()}
            self._global_step = self._passed[None] = counts.pop(ModeKeys.GLOBAL, 0)
            # Steps in mode GLOBAL belong to no other mode.
            counts[ModeKeys.GLOBAL] = max(0, self._global_step - sum(counts.values()))
            self.mode_steps.update(counts)

    # Numbers.

    def start(self, progress: Progress) -> None:
        """Count on from a point of the run."""
        self._progress = progress
        self._global_step = progress.global_step
        self._passed: dict[ModeKeys | None, int] = {}
        """The numbers of global steps that no step of this job has: those before the first step of each mode."""
        self.mode_steps = {mode: progress.mode_steps.get(mode.name, 0) for mode in ModeKeys}
        """The number of the next step of each mode. Only the clock changes it."""
        self._global_steps = {mode: GlobalSteps() for mode in ModeKeys}

    def next(self, mode: ModeKeys, number: int | None = None) -> Step:
        """Return the next step of a mode, or a later one of a given number, without counting it."""
        following = self.mode_steps[mode]
        number = following if number is None else number
        if not following:
            # The first one: a job that begins with evaluation 500 at step 500 has not skipped 500 steps.
            return Step(mode, number, max(self._global_step, number))
        return Step(mode, number, self._global_step + number - following)

    @property
    def num_begun(self) -> int:
        """The number of global steps that the job has begun."""
        return self._global_step - sum(self._passed.values())

    def global_step_of(self, mode: ModeKeys, number: int) -> int | None:
        """Return the global step of a past step of a mode; None if it was before this session."""
        return self._global_steps[mode].find(number)

    def newest(self) -> dict[ModeKeys, int]:
        """Return the number of the newest step of each mode that has one; GLOBAL counts over all, from -1."""
        counted = {mode: count - 1 for mode, count in self.mode_steps.items() if count}
        return {**counted, ModeKeys.GLOBAL: self._global_step - 1}

    def count(self, step: Step) -> None:
        """Count a step that has begun."""
        if not self.mode_steps[step.mode]:
            self._passed[step.mode] = step.global_step - self._global_step
        # The steps that were skipped before it have the numbers before its own.
        first = step.mode_step - min(step.mode_step - self.mode_steps[step.mode], step.global_step - self._global_step)
        self._global_steps[step.mode].add(first, step.global_step - (step.mode_step - first))
        self._global_step, self.mode_steps[step.mode] = step.global_step + 1, step.mode_step + 1

    def continue_after(self, progress: Progress) -> None:
        """Count on from the run's present point, if it has changed."""
        if progress != self._progress:
            self.start(progress)

    def go_back(self, mode: ModeKeys, number: int) -> Progress | None:
        """Make a step of a mode the next one. Return the point to go back to; None if it was before the first step."""
        found = self._global_steps[mode].find(number)
        if found is None:
            return None
        for each, steps in self._global_steps.items():
            following = steps.cut(found, self.mode_steps[each])
            self.mode_steps[each] = self._progress.mode_steps.get(each.name, 0) if following is None else following
            if following is None and each is not mode:
                self._passed.pop(each, None)  # its first step was later
        self._global_step, self.mode_steps[mode] = found, number
        return Progress(0, found, {each.name: count for each, count in self.mode_steps.items()})

    def start_at(self, mode: ModeKeys, step: int) -> None:
        """Begin with this number, unless there are steps already."""
        if not self._global_step:
            self.mode_steps[mode] = self._global_step = self._passed[None] = step

    # The open step.

    def skip_to(self, mode: ModeKeys, number: int) -> Step:
        """Count a later step of any mode, which is never open, and return it."""
        step = self.next(mode, number)
        self.count(step)
        return step

    def continues(self) -> bool:
        """Return whether what begins now is the open step, or a part of it, and not a new step."""
        if self.step is None or self.held:
            return self.step is not None
        is_ahead, self.is_ahead = self.is_ahead, False
        return is_ahead

    def open(self, step: Step, is_ahead: bool = False) -> None:
        """Open a step and count it. The one before must be closed."""
        self.count(step)
        self.step, self.is_ahead = step, is_ahead

    def close(self) -> None:
        """Close the open step, if there is one."""
        if self.step is not None and self._checkpoint.writes:
            self._checkpoint.keep(self.newest())
        self.step, self.is_ahead = None, False

    def withdraw(self) -> None:
        """Take back the open step, which did not happen. The next one gets its number."""
        step, self.step, self.is_ahead = self.step, None, False
        if step is not None:
            self._global_step -= 1
            self.mode_steps[step.mode] -= 1

    def set_mode(self, mode: ModeKeys) -> None:
        """Count the following steps in another mode, also after the step that is held."""
        self.mode, self._mode_before = mode, None

    def hold(self) -> None:
        """Hold the open step until `release`. Holds may be nested."""
        self.held += 1

    def release(self) -> bool:
        """End one hold. Return whether it was the last one; then the mode from before the step applies again."""
        self.held = max(0, self.held - 1)
        if not self.held:
            self.begun_by_call = False
            self.mode, self._mode_before = self._mode_before or self.mode, None
        return not self.held

    def select(self, mode: ModeKeys) -> None:
        """Count the step that is about to be held in this mode; later steps keep the mode from before."""
        self._mode_before, self.mode = self.mode, mode


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
