"""The programming model: rules of one's own, what they require, and how they are invoked."""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensortrial
from support.runs import EVAL, TRAIN, Job
from tensortrial.errors import (
    ConfigurationError,
    NoMoreData,
    RuleEvaluationConditionMet,
    StepUnavailable,
    TensorUnavailable,
    TensorUnavailableForStep,
)
from tensortrial.rules import RequiredTensors, Rule, invoke_rule, watch


@pytest.fixture
def trial(tmp_path: Path) -> tensortrial.Trial:
    """`x` is its own step number, at 0, 2, 4 … 10; `y` is saved only at step 4."""
    with Job(tmp_path / "run", flush_seconds=0) as job:
        for step in range(11):
            if step % 2:
                job.skip(TRAIN)
            else:
                job.step({"x": np.full(3, step, np.float32), **({"y": 1.0} if step == 4 else {})}, TRAIN)
    return tensortrial.create_trial(tmp_path / "run")


class Above(Rule):
    """Written as the published examples are."""

    def __init__(self, base_trial: Any, threshold: Any = "4") -> None:
        super().__init__(base_trial, other_trials=None)
        self.threshold = float(threshold)
        self.seen: list[int] = []

    def set_required_tensors(self, step: int) -> None:
        self.req_tensors.add(name="x", steps=[step])

    def invoke_at_step(self, step: int) -> bool:
        self.seen.append(step)
        (tensor,) = self.req_tensors.get()
        return bool(tensor.value(step)[0] > self.threshold)


def test_every_saved_step_is_visited_and_the_end_is_exclusive(trial: tensortrial.Trial) -> None:
    rule = Above(trial)
    findings = invoke_rule(rule, start_step=2, end_step=8)
    assert rule.seen == [2, 4, 6]
    assert [(f.rule, f.step, f.mode, f.tensor, f.failed) for f in findings] == [("Above", 6, "TRAIN", None, False)]
    assert [f.step for f in invoke_rule(Above(trial))] == [6, 8, 10]


def test_the_condition_can_be_raised(trial: tensortrial.Trial) -> None:
    with pytest.raises(RuleEvaluationConditionMet) as raised:
        invoke_rule(Above(trial), raise_eval_cond=True)
    assert (raised.value.rule_name, raised.value.step) == ("Above", 6)


def test_the_condition_is_logged(trial: tensortrial.Trial, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "tensortrial.rules"):
        invoke_rule(Above(trial, "9"))
    assert "the condition of rule Above was met: step 10  Above" in caplog.text


def test_invoke_evaluates_one_step(trial: tensortrial.Trial) -> None:
    rule = Above(trial)
    rule.invoke(2)
    with pytest.raises(RuleEvaluationConditionMet):
        rule.invoke(6)
    with pytest.raises(StepUnavailable):
        rule.invoke(3)
    with pytest.raises(NoMoreData):
        rule.invoke(11)


def test_steps_without_what_is_required_are_passed_over(trial: tensortrial.Trial) -> None:
    class Y(Above):
        def set_required_tensors(self, step: int) -> None:
            self.req_tensors.add("y", [step])

        def invoke_at_step(self, step: int) -> bool:
            return True

    assert [f.step for f in invoke_rule(Y(trial))] == [4]


@pytest.mark.parametrize(
    "error",
    [TensorUnavailable("z"), TensorUnavailableForStep("z", 4), StepUnavailable(4)],
    ids=lambda error: type(error).__name__,
)
def test_unavailable_tensors_and_steps_skip_the_step(trial: tensortrial.Trial, error: Exception) -> None:
    class Raising(Above):
        def invoke_at_step(self, step: int) -> bool:
            if step < 8:
                raise error
            return True

    assert [f.step for f in invoke_rule(Raising(trial))] == [8, 10]


def test_no_more_data_ends_the_loop(trial: tensortrial.Trial) -> None:
    class Ending(Above):
        def invoke_at_step(self, step: int) -> bool:
            if step == 6:
                raise NoMoreData(step)
            return True

    assert [f.step for f in invoke_rule(Ending(trial))] == [0, 2, 4]


def test_another_error_of_a_rule_is_raised(trial: tensortrial.Trial) -> None:
    class Broken(Above):
        def invoke_at_step(self, step: int) -> bool:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        invoke_rule(Broken(trial))


def test_a_rule_may_raise_what_it_should_return(trial: tensortrial.Trial) -> None:
    class Raising(Above):
        def invoke_at_step(self, step: int) -> bool:
            if step == 4:
                raise RuleEvaluationConditionMet("Raising", step)
            return False

    (finding,) = invoke_rule(Raising(trial))
    assert finding.step == 4


def test_reports_say_more(trial: tensortrial.Trial) -> None:
    class Reporting(Above):
        def invoke_at_step(self, step: int) -> bool:
            self.report("x is large", tensor="x", worker="worker_0", observed=float(step), threshold=4.0)
            return step == 6

    (finding,) = invoke_rule(Reporting(trial))
    assert (finding.tensor, finding.worker, finding.observed, finding.threshold) == ("x", "worker_0", 6.0, 4.0)
    assert str(finding) == "step 6  Reporting: x is large"


def test_nothing_is_refreshed_during_a_step(tmp_path: Path) -> None:
    job = Job(tmp_path / "run", flush_seconds=0)
    job.step({"x": 1.0})
    job.step({"x": 1.0})
    trial = tensortrial.create_trial(tmp_path / "run")

    class Reading(Rule):
        def invoke_at_step(self, step: int) -> bool:
            before = trial.tensor("x").steps()
            job.publish({"x": 1.0})
            return before != trial.tensor("x").steps()

    assert invoke_rule(Reading(trial), end_step=1) == []
    assert len(trial.steps()) > 2
    job.close()


def test_a_live_run_is_followed_to_its_end(tmp_path: Path) -> None:
    def train() -> None:
        # All of it in one thread: the evaluation would end in a thread that has written a step.
        with Job(tmp_path / "run", flush_seconds=0) as job:
            for step in range(6):
                job.step({"x": np.full(2, step, np.float32)})
                time.sleep(0.05)

    thread = threading.Thread(target=train)
    thread.start()
    rule = Above(tensortrial.create_trial(tmp_path / "run", timeout=60))
    found = [f.step for f in invoke_rule(rule)]
    assert rule.seen == [0, 1, 2, 3, 4, 5]
    assert found == [5]
    thread.join()


def test_a_bounded_evaluation_ends_before_the_job_does(tmp_path: Path) -> None:
    with Job(tmp_path / "run", flush_seconds=0) as job:
        for _ in range(4):
            job.step({"x": np.ones(2)})
        job.flush()
        rule = Above(tensortrial.create_trial(tmp_path / "run"))
        assert invoke_rule(rule, end_step=2) == []
        assert rule.seen == [0, 1]


def test_a_range_with_nothing_in_it(trial: tensortrial.Trial, caplog: pytest.LogCaptureFixture) -> None:
    assert invoke_rule(Above(trial), 20, 30) == []
    assert "no step was saved from step 20 on and before step 30, so none is evaluated" in caplog.text
    with pytest.raises(ConfigurationError, match="start_step must be less than end_step, got 5 and 5"):
        invoke_rule(Above(trial), 5, 5)


def test_a_rule_can_read_other_trials(trial: tensortrial.Trial, tmp_path: Path) -> None:
    with Job(tmp_path / "other") as job:
        for step in range(7):
            job.step({"x": np.full(3, -step, np.float32)})
    other = tensortrial.create_trial(tmp_path / "other")

    class Compare(Rule):
        def __init__(self, base_trial: Any, other_trials: Any) -> None:
            super().__init__(base_trial, "", other_trials)

        def set_required_tensors(self, step: int) -> None:
            for each in self.trials:
                self.req_tensors.add("x", [step], trial=each)

        def invoke_at_step(self, step: int) -> bool:
            mine, theirs = self.base_trial.tensor("x").value(step), self.other_trials[0].tensor("x").value(step)
            return not np.array_equal(mine, theirs)

    assert [f.step for f in invoke_rule(Compare(trial, [other]))] == [2, 4, 6]
    assert Compare(trial, other).other_trials == [other]


def test_what_is_not_a_trial_is_refused(trial: tensortrial.Trial) -> None:
    with pytest.raises(ConfigurationError, match="base_trial must be a Trial"):
        Above("runs/digits")

    class Two(Rule):
        def invoke_at_step(self, step: int) -> bool:
            return False

    with pytest.raises(ConfigurationError, match="other_trials must be a Trial or several"):
        Two(trial, other_trials=["somewhere"])  # type: ignore[list-item]


def test_the_error_of_a_wrong_argument_says_what_to_pass(trial: tensortrial.Trial) -> None:
    class Unready(Rule):
        def __init__(self, base_trial: Any) -> None:
            pass

        def invoke_at_step(self, step: int) -> bool:
            return False

    for rule, sentence in (
        (Above, "expected a rule, got the class Above: create one with a trial, as in Above\\(trial\\)"),
        (trial, "expected a rule, got Trial"),
        (Unready(trial), r"rule Unready has no trial: call super\(\).__init__\(base_trial\) in its constructor"),
    ):
        for evaluate in (invoke_rule, lambda each: list(watch(trial, [each]))):
            with pytest.raises(ConfigurationError, match=sentence):
                evaluate(rule)
    with pytest.raises(ConfigurationError, match=r"watch takes a list of rules, got one: pass \[rule\]"):
        watch(trial, Above(trial))
    with pytest.raises(ConfigurationError, match="trial must be a Trial, got 'runs/x'; create_trial opens one"):
        watch("runs/x", [Above(trial)])
    with pytest.raises(ConfigurationError, match="a step must be a whole number, got '0'"):
        invoke_rule(Above(trial), start_step="0")


def test_action_str_by_position_or_keyword(trial: tensortrial.Trial) -> None:
    class Plain(Rule):
        def invoke_at_step(self, step: int) -> bool:
            return False

    assert len(Plain(trial, '[{"name": "StopTraining"}]').actions.actions) == 1
    assert len(Plain(trial, action_str="stoptraining").actions.actions) == 1
    assert Plain(trial, other_trials=None).actions.actions == []


def test_required_tensors(trial: tensortrial.Trial) -> None:
    required = RequiredTensors(trial)
    required.add(name="x", steps=[2, 0])
    required.add("x", [4])
    required.add("^[xy]$", steps=[4], should_match_regex=True)
    assert required.get_names() == {"x", "^[xy]$"}
    assert required.get_tensor_steps("x") == [0, 2, 4]
    assert required.should_match_regex("^[xy]$")
    assert not required.should_match_regex("x")
    assert [tensor.name for tensor in required.get()] == ["x", "y"]
    assert [tensor.name for tensor in required.get("x")] == ["x"]
    required.fetch()
    with pytest.raises(TensorUnavailable):
        required.get_tensor_steps("y")
    required.add("y", [2])
    with pytest.raises(TensorUnavailableForStep):
        required.fetch()
    required.clear()
    assert required.get() == []


def test_findings_name_the_mode_of_their_step(tmp_path: Path) -> None:
    with Job(tmp_path / "run") as job:
        job.step({"x": np.ones(1)}, TRAIN)
        job.step({"x": np.ones(1)}, EVAL)
    rule = Above(tensortrial.create_trial(tmp_path / "run"), "0")
    assert [(f.step, f.mode) for f in invoke_rule(rule)] == [(0, "TRAIN"), (1, "EVAL")]
