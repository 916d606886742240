"""Trials that are open while their run is replaced by another one, or deleted."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.servers import ObjectStore
from support.waiting import wait_until
from tensortrial import Run, Trial, create_trial, open_runs
from tensortrial.errors import RunNotFound
from tensortrial.maintenance.compaction import compact

LARGE = 100_000
"""The elements of a tensor whose file is verified block by block."""


def write(out: Any, value: float, steps: int, **options: Any) -> Run:
    """Write a run of one value, which is its metadata, too."""
    run = Run(out, flush_seconds=0, metadata={"value": value}, **options)
    for step in range(steps):
        run.log({"x": value}, step=step)
        run.save_tensor("large", np.full(LARGE, value, np.float32), step=step)
        run.flush()
    return run


def check(trial: Trial, value: float, steps: int) -> None:
    """Check that all answers are those of one run."""
    x, large = trial.tensor("x"), trial.tensor("large")
    assert trial.steps() == x.steps() == large.steps() == list(range(steps))
    assert [x.value(step) for step in x.steps()] == [value] * steps
    assert [large.value(step).tolist() for step in large.steps()] == [[value] * LARGE] * steps
    assert trial.sql("select scalar from tensors where name = 'x'").fetchall() == [(value,)] * steps
    blobs = trial.sql("select value from tensor_values where name = 'large'").fetchall()
    assert blobs == [(np.full(LARGE, value, np.float32).tobytes(),)] * steps
    assert trial.info.metadata == {"value": value}


@pytest.mark.parametrize("is_closed", [True, False])
@pytest.mark.parametrize("steps", [2, 6])
@pytest.mark.parametrize("how", ["on_exists", "deleted"])
def test_an_open_trial_reads_the_run_that_has_replaced_its_own(
    tmp_path: Path, how: str, steps: int, is_closed: bool
) -> None:
    out = tmp_path / "run"
    write(out, 1, 4).close()
    trial = create_trial(out)
    check(trial, 1, 4)
    if how == "deleted":
        shutil.rmtree(out)
    run = write(out, 2, steps, on_exists="replace" if how == "on_exists" else "fail")
    if is_closed:
        run.close()
    trial.refresh()
    # Of a run that is written, the last step is open.
    check(trial, 2, steps if is_closed else steps - 1)
    assert trial.loaded_all_steps is is_closed
    run.close()


def test_statistics_of_raw_values_are_those_of_the_run_that_has_replaced_another_one(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    write(tmp_path / "run", 1, 4).close()
    trial = create_trial(tmp_path / "run")
    assert trial.frame("large", "max")["large"].tolist() == [1] * 4
    write(tmp_path / "run", 2, 3, on_exists="replace").close()
    trial.refresh()
    assert trial.frame("large", "max")["large"].tolist() == [2] * 3


@pytest.mark.s3
def test_a_trial_in_an_object_store_reads_the_run_that_has_replaced_its_own(moto_s3: ObjectStore) -> None:
    url, options = f"{moto_s3.new_bucket()}/run", {"storage_options": moto_s3.storage_options}
    write(url, 1, 4, **options).close()
    trial = create_trial(url, **options)
    check(trial, 1, 4)
    write(url, 2, 3, on_exists="replace", **options).close()
    trial.refresh()
    check(trial, 2, 3)


def test_a_trial_notices_by_itself_that_its_run_was_replaced(tmp_path: Path) -> None:
    write(tmp_path / "run", 1, 4).close()
    trial = create_trial(tmp_path / "run")
    check(trial, 1, 4)
    write(tmp_path / "run", 2, 2, on_exists="replace").close()
    wait_until(lambda: trial.steps() == [0, 1])
    check(trial, 2, 2)


def test_a_query_counts_no_rows_of_half_a_run_after_its_run_was_replaced(tmp_path: Path) -> None:
    write_numbers(tmp_path / "run", 80)
    compact(tmp_path / "run", delete_older_than=0)
    trial, count = create_trial(tmp_path / "run"), "select count(*) from tensors"
    assert trial.sql(count).fetchall() == [(80,)]
    shutil.rmtree(tmp_path / "run")
    write_numbers(tmp_path / "run", 3)
    try:
        counted = trial.sql(count).fetchall()
    except RunNotFound as error:  # unless a refresh was due, which opens the other run
        assert "another run has replaced the run since it was opened; call refresh()" in str(error)  # noqa: PT017
        counted = trial.sql(count).fetchall()
    assert counted == [(3,)]
    assert trial.tensor("x").values() == {0: 0, 1: 1, 2: 2}


def test_a_query_of_many_runs_names_a_replaced_one_until_they_are_refreshed(tmp_path: Path) -> None:
    for name in ("kept", "replaced"):
        write_numbers(tmp_path / name, 80)
    compact(tmp_path / "replaced", delete_older_than=0)
    runs, count = open_runs(tmp_path), "select run, count(*) from tensors group by run order by run"
    shutil.rmtree(tmp_path / "replaced")
    write_numbers(tmp_path / "replaced", 3)
    for _ in range(2):
        with pytest.raises(RunNotFound, match=r"another run has replaced .*; call refresh\(\) to read that one"):
            runs.sql(count)
    runs.refresh()
    assert runs.sql(count).fetchall() == [("kept", 80), ("replaced", 3)]


def write_numbers(out: Path, steps: int) -> None:
    with Run(out, flush_seconds=0, environment=False) as run:
        for step in range(steps):
            run.log({"x": step}, step=step)
            run.flush()


def test_a_trial_whose_metadata_alone_is_read_notices_that_its_run_was_replaced_or_deleted(tmp_path: Path) -> None:
    write(tmp_path / "run", 1, 1).close()
    trial = create_trial(tmp_path / "run")
    assert trial.info.metadata == {"value": 1}
    write(tmp_path / "run", 2, 1, on_exists="replace").close()
    wait_until(lambda: trial.info.metadata == {"value": 2})
    shutil.rmtree(tmp_path / "run")

    def is_deleted() -> bool:
        try:
            return trial.info is None
        except RunNotFound:
            return True

    wait_until(is_deleted)


def test_a_refresh_of_a_deleted_run_is_an_error_until_there_is_another_one(tmp_path: Path) -> None:
    write(tmp_path / "run", 1, 4).close()
    trial = create_trial(tmp_path / "run")
    check(trial, 1, 4)
    shutil.rmtree(tmp_path / "run")
    for read in (trial.refresh, trial.steps, trial.refresh):
        with pytest.raises(RunNotFound, match="run"):
            read()
    write(tmp_path / "run", 2, 2).close()
    trial.refresh()
    check(trial, 2, 2)
