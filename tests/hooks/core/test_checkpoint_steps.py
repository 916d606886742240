"""A job of SageMaker that is interrupted: its steps go on after those of its last checkpoint."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from support.plain_hook import Hook
from tensortrial import create_trial
from tensortrial.mode import modes


@pytest.fixture
def checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    configuration = tmp_path / "checkpointconfig.json"
    configuration.write_text(json.dumps({"S3Uri": "s3://bucket/job", "LocalPath": str(folder)}))
    monkeypatch.setenv("CHECKPOINT_CONFIG_FILE_PATH", str(configuration))
    return folder


def train(hook: Any, steps: int, checkpoint: Path | None = None, after: int = -1, mode: Any = modes.TRAIN) -> None:
    hook.set_mode(mode)
    for step in range(steps):
        hook.recorder.begin_step()
        hook.save_scalar("loss", step)
        if checkpoint is not None and step == after:
            checkpoint.write_text(f"{hook.out_dir} {step}")
            os.utime(checkpoint, ns=(0, 1 + checkpoint.stat().st_mtime_ns))


def steps_of(run: Path, mode: Any = modes.TRAIN) -> list[int]:
    return create_trial(run).steps(mode)


def test_steps_go_on_after_the_last_checkpoint_in_a_new_folder(tmp_path: Path, checkpoints: Path) -> None:
    first = Hook(str(tmp_path / "first"))
    train(first, 2, mode=modes.EVAL)
    train(first, 8, checkpoints / "model.pt", after=5)
    # The job ends here, without a further checkpoint.
    second = Hook(str(tmp_path / "second"))
    assert second.mode_steps == {modes.EVAL: 1, modes.TRAIN: 5, modes.GLOBAL: 7}
    train(second, 2)
    train(second, 1, mode=modes.EVAL)
    for hook in (first, second):
        hook.close()
    assert steps_of(tmp_path / "second") == [6, 7]
    assert steps_of(tmp_path / "second", modes.EVAL) == [2]
    assert steps_of(tmp_path / "second", modes.GLOBAL) == [8, 9, 10]


def test_a_checkpoint_that_is_replaced_counts(tmp_path: Path, checkpoints: Path) -> None:
    hook = Hook(str(tmp_path / "run"))
    for _ in range(2):
        train(hook, 3, checkpoints / "model.pt", after=1)
    hook.close()
    assert Hook(str(tmp_path / "next")).mode_steps[modes.TRAIN] == 4


def test_a_checkpoint_at_the_end_counts(tmp_path: Path, checkpoints: Path) -> None:
    hook = Hook(str(tmp_path / "run"))
    train(hook, 3, checkpoints / "model.pt", after=2)
    hook.close()
    assert Hook(str(tmp_path / "next")).mode_steps[modes.TRAIN] == 2


def test_steps_without_a_mode_are_counted(tmp_path: Path, checkpoints: Path) -> None:
    hook = Hook(str(tmp_path / "run"))
    train(hook, 3, checkpoints / "model.pt", after=2, mode=modes.GLOBAL)
    hook.close()
    after = Hook(str(tmp_path / "next"))
    train(after, 1, mode=modes.GLOBAL)
    after.close()
    assert steps_of(tmp_path / "next", modes.GLOBAL) == [3]


def test_a_run_that_is_resumed_goes_on_after_its_own_steps(tmp_path: Path, checkpoints: Path) -> None:
    hook = Hook(str(tmp_path / "run"))
    train(hook, 4, checkpoints / "model.pt", after=1)
    hook.close()
    again = Hook(str(tmp_path / "run"), resume=True)
    train(again, 1)
    again.close()
    assert steps_of(tmp_path / "run") == [0, 1, 2, 3, 4]


def test_the_state_that_smdebug_kept_is_read(tmp_path: Path, checkpoints: Path) -> None:
    # As smdebug 1.0.34 wrote it.
    states = [
        {"training-run": 0, "latest-global-step-saved": step, "latest-mode-step": {"GLOBAL": step, "TRAIN": step}}
        for step in (2, 5)
    ]
    (checkpoints / "metadata.json").write_text(json.dumps(states))
    assert Hook(str(tmp_path / "run")).mode_steps == {modes.TRAIN: 5, modes.GLOBAL: 5}


@pytest.mark.parametrize("damaged", ["", "{}", "[]", "[3]", '[{"latest-mode-step": {"DREAM": 1}}]', '[{"x": 1}]'])
def test_a_damaged_state_is_a_warning(
    tmp_path: Path, checkpoints: Path, damaged: str, caplog: pytest.LogCaptureFixture
) -> None:
    (checkpoints / "metadata.json").write_text(damaged)
    assert Hook(str(tmp_path / "run")).mode_steps == {modes.GLOBAL: -1}
    assert "steps are counted from 0, because" in caplog.text


def test_a_folder_that_cannot_be_written_ends_nothing(
    tmp_path: Path, checkpoints: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (checkpoints / "metadata.json.new").mkdir()
    hook = Hook(str(tmp_path / "run"))
    train(hook, 4, checkpoints / "model.pt", after=1)
    hook.close()
    assert steps_of(tmp_path / "run") == [0, 1, 2, 3]
    assert len([each for each in caplog.messages if "are not kept next to the checkpoints" in each]) == 1


def test_a_worker_that_saves_nothing_keeps_nothing(tmp_path: Path, checkpoints: Path) -> None:
    hook = Hook(str(tmp_path / "run"), dry_run=True)
    train(hook, 4, checkpoints / "model.pt", after=1)
    hook.close()
    assert not (checkpoints / "metadata.json").exists()


def test_a_job_without_a_folder_yet_is_fine(tmp_path: Path, checkpoints: Path) -> None:
    checkpoints.rmdir()
    hook = Hook(str(tmp_path / "run"))
    train(hook, 2)
    checkpoints.mkdir()
    train(hook, 3, checkpoints / "model.pt", after=0)
    hook.close()
    assert Hook(str(tmp_path / "next")).mode_steps[modes.TRAIN] == 2
