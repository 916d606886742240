"""A rule stops a training job that runs in another process."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

import tensortrial
from support import warm
from tensortrial import modes
from tensortrial.format.schema import STOP_FILE
from tensortrial.hooks.core.process import stop_request
from tensortrial.rules import Rule, invoke_rule
from tensortrial.storage.open import open_storage

TRAINING = """
import sys, time, torch
import tensortrial.hooks.pytorch as tt

resume = sys.argv[2:] == ["resume"]
model, loss = torch.nn.Linear(4, 1), torch.nn.MSELoss()
hook = tt.Hook(sys.argv[1], save_config=tt.SaveConfig(save_interval=1), flush_seconds=0, resume=resume)
hook.register_module(model)
hook.register_loss(loss)
hook.set_mode(tt.modes.TRAIN)
try:
    for _ in range(3 if resume else 3000):
        try:
            loss(model(torch.randn(3, 4)), torch.randn(3, 1)).backward()
            time.sleep(0.02)
        except Exception:
            print("swallowed")
finally:
    print("cleaned up")
"""


class AtStepFive(Rule):
    """A rule that fires once."""

    def invoke_at_step(self, step: int) -> bool:
        if step == 5:
            self.report("five is enough", observed=5.0, threshold=4.0)
        return step == 5


def test_a_rule_stops_training_and_the_run_is_closed(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAINING)
    out = tmp_path / "run"
    command = [tmp_path / "train.py", out]
    with warm.start(command, preload=warm.TORCH) as job:
        trial = tensortrial.create_trial(out, timeout=60)
        findings = invoke_rule(AtStepFive(trial, action_str="StopTraining"))  # until the job ends
        printed, said = job.communicate(timeout=60)
    assert [finding.step for finding in findings] == [5]
    assert job.returncode == 3
    assert printed == "cleaned up\n"
    assert "was stopped: rule AtStepFive fired at step 5: five is enough" in said
    assert trial.loaded_all_steps
    steps = trial.steps(modes.TRAIN)
    assert steps == list(range(len(steps)))
    assert 5 < len(steps) < 1000
    assert trial.sql("select rule, step, sentence from findings").fetchall() == [("AtStepFive", 5, "five is enough")]

    # A resumed run is not stopped by an old request.
    warm.run([*command, "resume"], check=True, preload=warm.TORCH)
    trial.refresh()
    assert len(trial.steps(modes.TRAIN)) == len(steps) + 3


@pytest.mark.parametrize(
    "text",
    ['{"reason": "eno', "{}", '{"reason": ""}', '{"reason": null}', "[]", "", f'{{"reason": "{"x" * 3_000_000}"}}'],
    ids=["cut", "empty object", "empty reason", "null", "list", "empty", "megabytes"],
)
def test_a_damaged_request_is_named_once_and_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    (tmp_path / STOP_FILE).write_text(text)
    monkeypatch.setattr(stop_request, "_LOCAL_SECONDS", 0.0)
    request = stop_request.StopRequest(open_storage(tmp_path))
    with caplog.at_level(logging.WARNING):
        assert [request.reason() for _ in range(3)] == [None] * 3
    assert [STOP_FILE in record.getMessage() for record in caplog.records] == [True]
