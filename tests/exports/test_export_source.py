"""What an export reads: raw values where they are now, opened runs, and what is damaged."""

from __future__ import annotations

import re
import sys
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import tensortrial
from support.export_conformance import in_utc, same, write_run, write_step
from support.file_access import before_opening
from support.limits import set_limits
from support.runs import EVAL, Job
from tensortrial.errors import ConfigurationError, MissingChunk
from tensortrial.format.record import Step
from tensortrial.read.runs import Runs


def values(target: Path) -> dict[tuple[int, str], bytes]:
    with duckdb.connect(str(target)) as database:
        rows = database.sql("select global_step, name, value from tensor_values").fetchall()
    found = {(step, name): value for step, name, value in rows}
    assert len(found) == len(rows)
    return found


def export_values(run: Any, target: Path) -> tensortrial.Export:
    return tensortrial.export(run, target, tables=["tensor_values"], progress=False)


def test_raw_values_are_found_where_compaction_put_them(tmp_path: Path) -> None:
    run, target = tmp_path / "a", tmp_path / "x.duckdb"
    with Job(run, flush_seconds=0) as job:
        for number in range(8):
            job.publish({"w": np.full(5, number, np.int16), "v": np.full((2, 2), number, np.float64)})
            if number == 3:
                assert export_values(run, target).rows == {"tensor_values": 8}
    tensortrial.compact(run, delete_older_than=0)
    assert export_values(run, target).rows == {"tensor_values": 8}
    expected = {(step, "w"): np.full(5, step, np.int16).tobytes() for step in range(8)}
    expected |= {(step, "v"): np.full((2, 2), step, np.float64).tobytes() for step in range(8)}
    assert values(target) == expected


def test_runs_compacted_while_they_are_exported_lose_nothing(tmp_path: Path) -> None:
    run, target = tmp_path / "a", tmp_path / "x.duckdb"
    with Job(run, flush_seconds=0) as job:
        for number in range(70):
            job.publish({"w": np.full(5, number, np.int16)})
        # The index has been read by then, and names chunks that compaction deletes.
        with before_opening(run / "tensors", partial(tensortrial.compact, run, delete_older_than=0)):
            done = export_values(run, target)
    assert not done.damaged
    assert values(target) == {(step, "w"): np.full(5, step, np.int16).tobytes() for step in range(70)}


def test_values_of_a_step_that_was_begun_twice_are_those_of_the_index(tmp_path: Path) -> None:
    run, target = tmp_path / "a", tmp_path / "x.duckdb"
    job = Job(run, flush_seconds=0)
    job.step({"w": np.zeros(3)})
    job.put(job.begin(), {"w": np.full(3, 7.0)})
    job.flush()
    job.close()
    with Job(run, resume=True) as job:
        job.step({"w": np.ones(3)})
    export_values(run, target)
    assert values(target) == {(0, "w"): np.zeros(3).tobytes(), (1, "w"): np.ones(3).tobytes()}


def test_of_a_step_that_was_saved_again_in_another_mode_the_last_one_is_exported(tmp_path: Path) -> None:
    run, target = tmp_path / "a", tmp_path / "x.duckdb"
    query = "select global_step, mode, mode_step, num_tensors from steps order by all"
    with Job(run, flush_seconds=0) as job:
        for number in range(3):
            job.step({"loss": float(number)})
        job.flush()
        for again in (Step(EVAL, 0, 1), Step(EVAL, 1, 3)):
            tensortrial.export(run, target, progress=False)
            job.put(again, {"loss": 9.0, "new": 1.0}, closes=True)
            job.flush()
    tensortrial.export(run, target, progress=False)
    with duckdb.connect(str(target)) as database:
        found = database.sql(query).fetchall()
    assert found == tensortrial.open_runs(run).sql(query).fetchall()
    assert found == [(0, "GLOBAL", 0, 1), (1, "EVAL", 0, 2), (2, "GLOBAL", 2, 1), (3, "EVAL", 1, 2)]


def test_a_chunk_that_was_deleted_is_said(tmp_path: Path) -> None:
    run, target = tmp_path / "a", tmp_path / "x.duckdb"
    with Job(run, flush_seconds=0) as job:
        for number in range(3):
            job.publish({"w": np.full(5, number)})
        chunk = sorted((run / "tensors").rglob("*.parquet"))[1]
        chunk.unlink()
        done = export_values(run, target)
        assert [type(error) for error in done.damaged.values()] == [MissingChunk]
        assert sorted(values(target)) == [(0, "w"), (2, "w")]


def test_a_trial_is_exported_with_the_options_that_opened_it(tmp_path: Path, moto_s3: Any) -> None:
    url = f"{moto_s3.new_bucket()}/a"
    with Job(url, storage_options=moto_s3.storage_options) as job:
        write_step(job)
    trial = tensortrial.create_trial(url, storage_options=moto_s3.storage_options)
    assert tensortrial.export(trial, tmp_path / "x.duckdb", progress=False).rows["tensors"] == 5
    assert tensortrial.open_runs([trial]).names == ["a"]


def test_an_export_closes_the_runs_that_it_has_opened_and_no_others(tmp_path: Path) -> None:
    """Runs that are left open show themselves only as memory."""
    run, target = write_run(tmp_path / "a", 2), tmp_path / "x.duckdb"
    with mock.patch.object(Runs, "close", autospec=True, side_effect=Runs.close) as close:
        opened = tensortrial.open_runs(run)
        of_opening = close.call_count
        tensortrial.export(opened, target, progress=False)
        assert close.call_count == of_opening
        tensortrial.export(run, target, progress=False)
        assert close.call_count == 2 * of_opening + 1
    assert opened.sql("select count(*) from steps").fetchall() == [(2,)]
    opened.close()


def test_a_run_that_grows_is_exported_up_to_one_moment(tmp_path: Path) -> None:
    run, target = tmp_path / "a", tmp_path / "x.duckdb"
    with Job(run, flush_seconds=0) as job:
        write_step(job)
        job.flush()

        def grow() -> None:
            write_step(job)
            job.flush()

        # The first table is being written by then.
        with before_opening(run / "tensors", grow):
            done = tensortrial.export(run, target, tables=["tensor_values", "steps", "tensors"], progress=False)
        assert done.rows == {"tensor_values": 3, "steps": 1, "tensors": 5}
        tensortrial.export(run, target, progress=False)
    expected = tensortrial.open_runs(run).sql("from tensors").to_arrow_table()
    with duckdb.connect(str(target)) as database:
        moved = ["chunk", "offset", "row_group", "row"]
        found: pa.Table = database.sql("from tensors").to_arrow_table()
    assert same(in_utc(found).drop_columns(moved), in_utc(expected).drop_columns(moved))


def test_many_runs_go_together(tmp_path: Path) -> None:
    for name in "abc":
        write_run(tmp_path / "runs" / name, 2)
    runs = tensortrial.open_runs(tmp_path / "runs")
    done = tensortrial.export(runs, tmp_path / "x.duckdb", progress=False)
    assert (done.rows["runs"], done.rows["tensors"]) == (3, 30)
    assert not any(tensortrial.export(runs, tmp_path / "x.duckdb", progress=False).rows.values())
    with duckdb.connect(str(tmp_path / "x.duckdb")) as database:
        assert database.sql("select distinct run from tensors order by run").fetchall() == [("a",), ("b",), ("c",)]


@pytest.mark.parametrize("since", ["nonsense", True, 1.5, [], date(2026, 1, 31)])
def test_since_that_is_no_step_and_no_time_is_refused_before_anything_is_made(
    tmp_path: Path, run: Path, since: Any
) -> None:
    with pytest.raises(
        ConfigurationError, match=f"since must be a global step or a datetime, got {re.escape(repr(since))}"
    ):
        tensortrial.export(run, f"csv:{tmp_path}/out", since=since, progress=False)
    assert not (tmp_path / "out").exists()


def test_tables_that_are_no_names_are_refused(tmp_path: Path, run: Path) -> None:
    tables: Any = 5
    with pytest.raises(ConfigurationError, match="tables must be names of tables, got 5"):
        tensortrial.export(run, f"csv:{tmp_path}/out", tables=tables, progress=False)


def test_no_bar_is_shown_where_nothing_is_new(
    tmp_path: Path, run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    set_limits(monkeypatch, seconds_without_progress=0.0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)  # elsewhere there is no bar at all
    tensortrial.export(run, f"csv:{tmp_path}/out")
    assert "export" in capsys.readouterr().err
    tensortrial.export(run, f"csv:{tmp_path}/out")
    assert capsys.readouterr().err == ""
