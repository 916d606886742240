"""Which steps are there, complete, or still to come: against a model that takes the semantics by the letter."""

from __future__ import annotations

import tempfile
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import tensortrial
from support.runs import EVAL, GLOBAL, TRAIN, Job
from tensortrial.errors import ConfigurationError
from tensortrial.mode import ModeKeys
from tensortrial.read.step_states import StepState

AVAILABLE, UNAVAILABLE, NOT_YET = StepState.AVAILABLE, StepState.UNAVAILABLE, StepState.NOT_YET_AVAILABLE


def complete_steps(
    written: dict[int, set[str]], num_workers: int, ended: bool, before: int = 0, gone: frozenset[str] = frozenset()
) -> set[int]:
    """A step is complete when every worker that has not ended wrote it or a later one, or the job ended."""
    of_session = [(step, worker) for step in written if step >= before for worker in written[step] - gone]
    last = sorted({worker: step for step, worker in sorted(of_session)}.values())
    pending = max(num_workers - len(gone), 0)
    reached = min(last[-pending:] if pending else [], default=max(written, default=0)) if len(last) >= pending else -1
    return {step for step in written if ended or step < before or step <= reached}


def passed(step: int, steps: set[int], complete: set[int], ended: bool) -> StepState:
    """n = least existing step >= s. None: UNAVAILABLE if the job ended, else NOT_YET_AVAILABLE. n > s: UNAVAILABLE if a
    complete step >= n exists, else NOT_YET_AVAILABLE. n == s: AVAILABLE if complete, else NOT_YET_AVAILABLE."""
    n = min((each for each in steps if each >= step), default=None)
    if n is None:
        return UNAVAILABLE if ended else NOT_YET
    if n > step:
        return UNAVAILABLE if any(each >= n for each in complete) else NOT_YET
    return AVAILABLE if step in complete else NOT_YET


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    saves=st.lists(st.lists(st.sampled_from(["skip", TRAIN, EVAL]), max_size=8), min_size=1, max_size=3),
    ended=st.booleans(),
)
def test_a_run_of_several_workers(saves: list[list[Any]], ended: bool) -> None:
    """Each worker goes through the same modes and skips steps of its own."""
    modes = [TRAIN, TRAIN, EVAL, TRAIN, EVAL, EVAL, TRAIN, TRAIN]
    with tempfile.TemporaryDirectory() as folder:
        jobs = [Job(folder, f"worker_{rank}", len(saves)) for rank in range(len(saves))]
        written: dict[int, set[str]] = {}
        for rank, (job, kept) in enumerate(zip(jobs, saves, strict=True)):
            for mode, keep in zip(modes, kept, strict=False):
                if keep == "skip":
                    job.skip(mode)
                else:
                    written.setdefault(job.step({"a": 1.0}, mode=mode).global_step, set()).add(f"worker_{rank}")
        trial = tensortrial.create_trial(folder)
        if ended:
            trial.mark_ended()
        compare(trial, written, modes, len(saves), ended)
        for job in jobs:
            job.close()
        trial.close()


def compare(trial: Any, written: dict[int, set[str]], modes: list[ModeKeys], num_workers: int, ended: bool) -> None:
    complete = complete_steps(written, num_workers, ended)
    mode_steps = {step: modes[:step].count(mode) for step, mode in enumerate(modes)}
    for mode in (GLOBAL, TRAIN, EVAL):
        number = {
            step: step if mode is GLOBAL else mode_steps[step] for step in written if mode in (GLOBAL, modes[step])
        }
        there, whole = set(number.values()), {number[step] for step in number if step in complete}
        assert trial.steps(mode) == sorted(whole)
        assert trial.steps(mode, show_incomplete_steps=True) == sorted(there)
        for step in range(-1, 10):
            assert trial.has_passed_step(step, mode) is passed(step, there, whole, ended), (step, mode)


def test_a_step_of_one_mode_is_complete_once_a_later_step_of_another_is(tmp_path: Any) -> None:
    """Workers write in the order of global steps: who has written a later one will not come back."""
    jobs = [Job(tmp_path, f"worker_{rank}", 2) for rank in range(2)]
    jobs[0].step({"a": 1.0}, mode=TRAIN)
    jobs[1].skip(TRAIN)
    trial = tensortrial.create_trial(tmp_path)
    assert trial.has_passed_step(0, TRAIN) is NOT_YET
    for job in jobs:
        job.step({"a": 1.0}, mode=EVAL)
    assert trial.has_passed_step(0, TRAIN) is AVAILABLE
    for job in jobs:
        job.close()


def test_a_step_waits_for_a_worker_that_has_saved_nothing(tmp_path: Any) -> None:
    """Also once every worker that has saved something has ended."""
    jobs = [Job(tmp_path, f"worker_{rank}", 2) for rank in range(2)]
    jobs[0].step({"a": 1.0})
    jobs[0].close()
    trial = tensortrial.create_trial(tmp_path)
    assert trial.steps() == []
    assert trial.has_passed_step(0) is NOT_YET
    jobs[1].close()
    trial.refresh()
    assert trial.steps() == [0]


@pytest.mark.parametrize("window", [2, 3, 4, " 1000"])
def test_the_window_of_incomplete_steps(tmp_path: Any, monkeypatch: pytest.MonkeyPatch, window: int | str) -> None:
    """Past it, the older half of the incomplete steps counts as complete."""
    monkeypatch.setenv("SMDEBUG_INCOMPLETE_STEP_WAIT_WINDOW", str(window))
    jobs = [Job(tmp_path, f"worker_{rank}", 2) for rank in range(2)]
    jobs[1].step({"a": 1.0})
    for _ in range(5):
        jobs[0].step({"a": 1.0})
    assert tensortrial.create_trial(tmp_path).steps() == ([0, 1, 2] if int(window) < 4 else [0])
    for job in jobs:
        job.close()


def test_a_window_that_is_no_number_is_refused(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    Job(tmp_path, "worker_0", 1).close()
    monkeypatch.setenv("SMDEBUG_INCOMPLETE_STEP_WAIT_WINDOW", "many")
    with pytest.raises(ConfigurationError, match="SMDEBUG_INCOMPLETE_STEP_WAIT_WINDOW must be a whole number"):
        _ = tensortrial.create_trial(tmp_path).steps()


class History(RuleBasedStateMachine):
    """Workers write, flush, crash, close and resume; a trial sees exactly what was published."""

    @initialize(num_workers=st.integers(1, 3), codec=st.sampled_from(["none", "zstd"]))
    def begin(self, num_workers: int, codec: str) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.url, self.num_workers, self.codec = f"{self.folder.name}/run", num_workers, codec
        self.values: dict[tuple[int, str, str], float] = {}
        self.modes: dict[int, ModeKeys] = {}
        self.session_start = 0
        self.jobs: dict[str, Job] = {}
        self.trial: Any = None
        self.start(resume=False)
        self.trial = tensortrial.create_trial(self.url)

    def start(self, resume: bool) -> None:
        options = {"codec": self.codec, "flush_seconds": 3600, "steps_per_directory": 3}
        names = [f"worker_{rank}" for rank in range(self.num_workers)]
        self.jobs = {name: Job(self.url, name, self.num_workers, resume=resume, **options) for name in names}
        self.open = set(self.jobs)
        self.schedule: list[ModeKeys] = []
        self.session_start = max((step for step, _, _ in self.values), default=-1) + 1
        assert {job.next_global_step for job in self.jobs.values()} == {self.session_start}

    @rule(worker=st.integers(0, 2), mode=st.sampled_from([TRAIN, EVAL]), value=st.floats(-9, 9), large=st.booleans())
    def write(self, worker: int, mode: ModeKeys, value: float, large: bool) -> None:
        name = f"worker_{worker}"
        if name not in self.open:
            return
        job = self.jobs[name]
        position = job.next_global_step - self.session_start
        # The workers of a job go through the same modes, whichever of them comes first.
        if position == len(self.schedule):
            self.schedule.append(mode)
        step = job.step({"a": np.full(50 if large else (), value), f"of/{name}": value}, mode=self.schedule[position])
        self.values[step.global_step, name, "a"] = self.values[step.global_step, name, f"of/{name}"] = value
        self.modes[step.global_step] = step.mode

    @rule(worker=st.integers(0, 2))
    def flush(self, worker: int) -> None:
        if job := self.jobs.get(f"worker_{worker}"):
            job.flush()

    @rule(worker=st.integers(0, 2))
    def close(self, worker: int) -> None:
        if f"worker_{worker}" in self.open:
            self.open.discard(f"worker_{worker}")
            self.jobs[f"worker_{worker}"].close()

    @precondition(lambda self: self.trial is not None)
    @rule(num_workers=st.integers(1, 3), clean=st.booleans())
    def resume(self, num_workers: int, clean: bool) -> None:
        for name in sorted(self.open):
            self.jobs[name].flush()
            if clean:
                self.jobs[name].close()
            else:
                self.jobs[name].abandon()
        self.num_workers = num_workers
        self.start(resume=True)
        self.trial.refresh()

    @invariant()
    def the_trial_sees_what_was_written(self) -> None:
        if not self.trial:
            return
        self.trial.refresh()
        written: dict[int, set[str]] = {}
        for step, name, _ in self.values:
            written.setdefault(step, set()).add(name)
        ended = not self.open
        gone = frozenset(self.jobs.keys() - self.open)
        complete = complete_steps(written, self.num_workers, ended, self.session_start, gone)
        assert self.trial.loaded_all_steps == ended
        assert self.trial.steps() == sorted(complete)
        assert self.trial.steps(show_incomplete_steps=True) == sorted(written)
        for step in range(-1, max(written, default=0) + 3):
            assert self.trial.has_passed_step(step) is passed(step, set(written), complete, ended)
        for mode in (TRAIN, EVAL):
            steps = [step for step in sorted(written) if self.modes[step] is mode]
            assert [self.trial.global_step(mode, each) for each in self.trial.steps(mode, True)] == steps
        self.values_are_right(written)

    def values_are_right(self, written: dict[int, set[str]]) -> None:
        assert self.trial.tensor_names() == sorted({name for _, _, name in self.values})
        for worker in sorted({name for _, name, _ in self.values}):
            mine = {
                step: value for (step, name, tensor), value in self.values.items() if (name, tensor) == (worker, "a")
            }
            found = self.trial.tensor("a").values(worker=worker)
            assert {step: value.reshape(-1)[0] for step, value in found.items()} == mine
        for step in list(written)[-2:]:
            assert set(self.trial.tensor("a").workers(step)) == written[step]

    def teardown(self) -> None:
        if self.trial:
            for name in self.open:
                self.jobs[name].close()
            self.trial.close()
            self.folder.cleanup()


TestHistory = History.TestCase
# `make simulate` runs such histories by the hundred.
TestHistory.settings = settings(max_examples=8, stateful_step_count=15, deadline=None)
