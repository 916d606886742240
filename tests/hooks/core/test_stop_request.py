"""A rule stops a training job that runs in another process."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tensortrial
from support import warm
from support.file_access import opened_by_this_thread
from support.limits import set_limits
from tensortrial import Run, modes
from tensortrial.errors import TrainingStopped
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


NAMED_STEPS: dict[str, Callable[[Run, int], Any]] = {
    "log": lambda run, step: run.log({"x": step}),
    "log at a step": lambda run, step: run.log({"x": step}, step=step),
    "log at a step of another mode": lambda run, step: run.log({"x": step}, step=step, mode="TRAIN"),
    "save_scalar": lambda run, step: run.save_scalar("x", step, step=step),
    "save_tensor": lambda run, step: run.save_tensor("x", [step], step=step),
}


@pytest.mark.parametrize("case", NAMED_STEPS)
def test_a_rule_stops_a_loop_that_names_its_steps(tmp_path: Path, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    set_limits(monkeypatch, seconds_between_reads_of_a_local_stop_request=0.0)
    run = Run(tmp_path / "run", flush_seconds=0)
    for step in range(8):
        NAMED_STEPS[case](run, step)
    run.flush()
    trial = tensortrial.create_trial(tmp_path / "run")
    invoke_rule(AtStepFive(trial, action_str="StopTraining"), end_step=6)

    def train() -> None:
        for step in range(8, 10_000):
            NAMED_STEPS[case](run, step)

    with pytest.raises(TrainingStopped, match="five is enough"):
        train()
    trial.refresh()
    assert trial.loaded_all_steps
    assert trial.steps()[:8] == list(range(8))


@pytest.mark.parametrize(("seconds", "files"), [(1e9, set()), (0.0, {STOP_FILE})], ids=["no poll is due", "all poll"])
def test_a_step_of_training_opens_no_file_but_for_a_poll(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, files: set[str]
) -> None:
    torch = pytest.importorskip("torch")
    import tensortrial.hooks.pytorch as tt

    set_limits(monkeypatch, seconds_between_reads_of_a_local_stop_request=seconds)
    monkeypatch.setattr("os.major", lambda _: 0)  # as on a file server; on a disk, a poll opens no file either
    hook = tt.Hook(tmp_path / "run", save_interval=1, save_all=True)
    model, loss = torch.nn.Linear(4, 1), torch.nn.MSELoss()
    hook.register_module(model)
    hook.register_loss(loss)

    def train(steps: int) -> None:
        for _ in range(steps):
            loss(model(torch.ones(3, 4)), torch.ones(3, 1)).backward()

    train(2)
    with opened_by_this_thread() as opened:
        train(20)
    hook.close()
    assert {Path(path).name for path in opened} == files


def test_a_hook_that_has_turned_itself_off_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_limits(monkeypatch, seconds_between_reads_of_a_local_stop_request=0.0)
    monkeypatch.delenv("TENSORTRIAL_STRICT", raising=False)
    run = Run(tmp_path / "run")
    run.log({"x": 1}, step=0)
    run.recorder.fail(OSError("the disk is full"))
    (tmp_path / "run" / STOP_FILE).write_text('{"reason": "enough"}')
    for step in range(1, 10):
        run.log({"x": 1}, step=step)
    assert tensortrial.create_trial(tmp_path / "run").steps() == [0]


@pytest.mark.parametrize(
    "text",
    ['{"reason": "eno', "{}", '{"reason": ""}', '{"reason": null}', "[]", "", f'{{"reason": "{"x" * 3_000_000}"}}'],
    ids=["cut", "empty object", "empty reason", "null", "list", "empty", "megabytes"],
)
def test_a_damaged_request_is_named_once_and_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    (tmp_path / STOP_FILE).write_text(text)
    set_limits(monkeypatch, seconds_between_reads_of_a_local_stop_request=0.0)
    request = stop_request.StopRequest(open_storage(tmp_path))
    with caplog.at_level(logging.WARNING):
        assert [request.reason() for _ in range(3)] == [None] * 3
    assert [STOP_FILE in record.getMessage() for record in caplog.records] == [True]
