"""Runs of fewer steps than the save interval, and first steps that are saved as well."""

from __future__ import annotations

import numpy as np
import pytest

from support.plain_hook import Hook
from tensortrial import SaveConfig, create_trial
from tensortrial.errors import ConfigurationError


def train(out: str, steps: int, **options: object) -> None:
    hook = Hook(out, include_collections=["weights"], **options)
    hook.get_collection("weights").include("w")
    hook.set_mode("TRAIN")
    for _ in range(steps):
        hook.recorder.begin_step()
        plan = hook.recorder.planner.plan("w")
        if plan is not None:
            hook.recorder.record(plan, np.ones(2))
    hook.close()


@pytest.mark.parametrize(("steps", "interval", "says"), [(37, 500, True), (37, 20, False), (9, 500, False)])
def test_a_run_that_saved_one_of_many_steps_says_so(
    out: str, steps: int, interval: int, says: bool, caplog: pytest.LogCaptureFixture
) -> None:
    train(out, steps, save_config=SaveConfig(save_interval=interval))
    said = [message for message in caplog.messages if "at only 1 of the 37 steps of mode TRAIN" in message]
    assert len(said) == len(caplog.messages) == int(says)
    assert all("save_interval is 500" in message and "such as save_interval=3" in message for message in said)


def test_a_run_whose_steps_were_all_saved_by_calls_does_not_say_so(out: str, caplog: pytest.LogCaptureFixture) -> None:
    hook = Hook(out, save_config=SaveConfig(save_interval=500))
    for step in range(37):
        hook.recorder.begin_step()
        hook.recorder.save_tensor("w", np.full(2, step))
    hook.close()
    assert len(create_trial(out).tensor("w").steps()) == 37
    assert caplog.messages == []


def test_warmup_steps_are_saved_as_well(out: str, caplog: pytest.LogCaptureFixture) -> None:
    train(out, 41, save_config=SaveConfig(save_interval=20, warmup_steps=3))
    assert create_trial(out).tensor("w").steps("TRAIN") == [0, 1, 2, 20, 40]
    assert caplog.messages == []


def test_warmup_begins_at_the_first_step_and_ends_at_the_last() -> None:
    assert SaveConfig(start_step=5, warmup_steps="3").save_steps == [5, 6, 7]
    assert SaveConfig(end_step=2, warmup_steps=3, save_steps=[9]).save_steps == [0, 1, 9]
    assert SaveConfig(end_step=0, warmup_steps=3).save_steps == []
    assert SaveConfig.parse({"warmup_steps": 2}).save_steps == [0, 1]
    assert SaveConfig({"EVAL": {"warmup_steps": 1}}).to_json_dict()["EVAL"]["save_steps"] == [0]


@pytest.mark.parametrize("count", [-1, 1001, "many", 0.5])
def test_a_bad_number_of_warmup_steps_is_refused(count: int) -> None:
    with pytest.raises(ConfigurationError, match="warmup_steps"):
        SaveConfig(warmup_steps=count)
