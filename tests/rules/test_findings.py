"""Findings are kept in the run, and SQL sees them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import tensortrial
from support.runs import TRAIN, Job
from tensortrial.format.schema import FINDINGS_SCHEMA
from tensortrial.rules import ExplodingTensor, invoke_rule, make_rule


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with Job(tmp_path / "run") as job:
        for value in (0.0, np.nan, np.inf):
            job.step({"x": np.full(2, value)}, TRAIN)
    return tmp_path / "run"


def test_findings_are_a_view(folder: Path) -> None:
    trial = tensortrial.create_trial(folder)
    assert trial.sql("select * from findings").fetchall() == []
    found = invoke_rule(ExplodingTensor(trial))
    rows = trial.sql("select rule, step, mode, worker, tensor, observed, sentence, failed from findings order by step")
    assert rows.fetchall() == [
        ("ExplodingTensor", 1, "TRAIN", "worker_0", "x", 2.0, "x holds 2 NaN", False),
        ("ExplodingTensor", 2, "TRAIN", "worker_0", "x", 2.0, "x holds 2 infinities", False),
    ]
    ((when,),) = trial.sql("select max(found_at) from findings").fetchall()
    assert when == found[-1].found_at


def test_each_evaluation_adds_a_file_and_touches_none(folder: Path) -> None:
    trial = tensortrial.create_trial(folder)
    invoke_rule(ExplodingTensor(trial))
    (first,) = (folder / "findings").iterdir()
    content = first.read_bytes()
    invoke_rule(make_rule("ExplodingTensor", trial, rule_name="NaN", only_nan="true"))
    assert first.read_bytes() == content
    assert len(list((folder / "findings").iterdir())) == 2
    assert pq.read_schema(first).equals(FINDINGS_SCHEMA)
    # Another trial, opened before, sees both: the files are listed again for each query.
    assert trial.sql("select count(*) from findings").fetchall() == [(3,)]


def test_a_repeated_evaluation_adds_no_finding_again(folder: Path) -> None:
    first = invoke_rule(ExplodingTensor(tensortrial.create_trial(folder)))
    (folder / "findings" / "0-corrupt.parquet").write_bytes(b"PAR1 corrupt")
    trial = tensortrial.create_trial(folder)
    assert [str(each) for each in invoke_rule(ExplodingTensor(trial))] == [str(each) for each in first]
    assert trial.sql("select count(*) from findings").fetchall() == [(2,)]
    with Job(folder, resume=True) as job:
        job.step({"x": np.full(2, np.inf)}, TRAIN)
    invoke_rule(ExplodingTensor(tensortrial.create_trial(folder)))
    assert trial.sql("select count(*), max(step) from findings").fetchall() == [(3, 3)]


def test_findings_join_with_other_views(folder: Path) -> None:
    trial = tensortrial.create_trial(folder, range_steps=(0, 2))
    invoke_rule(ExplodingTensor(tensortrial.create_trial(folder)))
    query = "select f.step from findings f join tensors t on t.name = f.tensor and t.global_step = f.step"
    assert trial.sql(query).fetchall() == [(1,)]


def test_findings_need_not_be_kept(folder: Path) -> None:
    assert invoke_rule(ExplodingTensor(tensortrial.create_trial(folder)), record=False)
    assert not (folder / "findings").exists()


def test_findings_of_a_run_that_cannot_be_written_to_are_returned(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trial = tensortrial.create_trial(folder)
    (folder / "findings").write_text("no folder can be made here")
    assert len(invoke_rule(ExplodingTensor(trial))) == 2
    assert "findings cannot be written into it" in caplog.text


def test_a_corrupt_file_of_findings_is_skipped(folder: Path) -> None:
    trial = tensortrial.create_trial(folder)
    invoke_rule(ExplodingTensor(trial))
    (folder / "findings" / "0-corrupt.parquet").write_bytes(b"PAR1 corrupt")
    assert trial.sql("select count(*) from findings").fetchall() == [(2,)]
    assert "findings/0-corrupt.parquet" in trial.damaged
