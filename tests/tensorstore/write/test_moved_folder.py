"""A run's folder that is renamed while it is written, and one that is completed by a copy."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import tensortrial
from support.runs import TRAIN, Job
from tensortrial.format.schema import INDEX


def test_what_follows_a_rename_is_a_run_of_its_own_and_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = tensortrial.Run(tmp_path / "a", flush_seconds=0)
    for step in range(10):
        run.log({"loss": 0.5}, step=step)
        run.flush()
        if step == 6:
            (tmp_path / "a").rename(tmp_path / "b")
    run.close()
    (said,) = [each for each in caplog.messages if "renamed or removed" in each]
    assert f"run {tmp_path}/a" in said
    assert tensortrial.create_trial(tmp_path / "b").tensor("loss").steps(show_incomplete_steps=True)[:1] == [0]
    before = tensortrial.create_trial(tmp_path / "b").steps(show_incomplete_steps=True)
    after = tensortrial.create_trial(tmp_path / "a").steps()
    assert before + after == [*range(10)]
    assert tensortrial.create_trial(tmp_path / "a").loaded_all_steps
    assert tensortrial.verify(tmp_path / "a").is_whole
    assert tensortrial.verify(tmp_path / "b").is_whole


def test_each_worker_claims_a_renamed_run_again(tmp_path: Path) -> None:
    runs = []
    for rank in range(2):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("RANK", str(rank))
            patch.setenv("WORLD_SIZE", "2")
            runs.append(tensortrial.Run(tmp_path / "a", include_workers="all", flush_seconds=0))
            runs[-1].log({"loss": 1.0}, step=0)
            runs[-1].flush()
    (tmp_path / "a").rename(tmp_path / "b")
    for run in runs:
        run.log({"loss": 2.0}, step=1)
        run.close()
    assert tensortrial.create_trial(tmp_path / "a").workers() == ["worker_0", "worker_1"]


def with_their_times(source: Path, target: Path, chosen: Callable[[Path], bool]) -> None:
    """Copy files as tar and rsync do: folders get back their times when all is copied."""
    for file in filter(chosen, source.rglob("*.*")):
        (target / file.relative_to(source)).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, target / file.relative_to(source))
    for folder in filter(Path.is_dir, [target, *target.rglob("*")]):
        status = (source / folder.relative_to(target)).stat()
        os.utime(folder, ns=(status.st_atime_ns, status.st_mtime_ns))


def test_an_open_trial_sees_the_files_of_a_copy_that_restores_the_times_of_folders(tmp_path: Path) -> None:
    with Job(tmp_path / "run") as job:
        for _ in range(3):
            job.publish({"x": 1.0}, TRAIN)
    for folder in (tmp_path / "run").rglob("*"):
        os.utime(folder, ns=(1_700_000_000_123_456_789, 1_700_000_000_123_456_789))
    newest = max((tmp_path / "run" / INDEX).rglob("*.parquet"))
    with_their_times(
        tmp_path / "run", tmp_path / "copy", lambda file: file.name != newest.name and "end" not in str(file)
    )
    trial = tensortrial.create_trial(tmp_path / "copy")
    for _ in range(3):  # the listings are kept
        assert trial.steps(show_incomplete_steps=True) == [0, 1]
    with_their_times(tmp_path / "run", tmp_path / "copy", lambda file: True)
    trial.refresh()
    assert trial.steps() == [0, 1, 2]
