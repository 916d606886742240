"""The views of a run: what they hold, what SQL may and may not, and data frames."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tensortrial
from support.runs import Job
from tensortrial import queries
from tensortrial.errors import (
    ConfigurationError,
    QueryError,
)
from tensortrial.read.run_queries import OF_MANY_RUNS, OF_ONE_RUN
from tensortrial.read.trial import Trial


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, run_of_three_flushes: Path) -> Path:
    """A run that no test changes."""
    return shutil.copytree(run_of_three_flushes, tmp_path_factory.mktemp("views") / "run")


@pytest.fixture(scope="module")
def trial(run: Path) -> Iterator[Trial]:
    with tensortrial.create_trial(run) as trial:
        yield trial


VIEWS = ("tensors", "reductions", "scalars", "steps", "collections", "tensor_values")


def test_each_view_has_the_columns_that_it_documents(trial: Trial) -> None:
    runs = tensortrial.open_runs(trial)
    for view in ("reductions", "scalars", "steps", "collections", "findings"):
        comment = queries.load(f"views/{view}").partition("\n\n")[0].replace("\n--", " ")
        documented = re.sub(r"\s*\([^)]*\)", "", comment.partition("Columns:")[2]).strip(" .\n")
        columns = re.split(r",\s*", documented)
        assert runs.sql(f"from {view}").columns == columns, view
        assert ["run", *trial.sql(f"from {view}").columns] == columns, view
    assert trial.sql("from tensors").columns[:5] == ["name", "mode", "mode_step", "global_step", "worker"]
    assert trial.sql("from tensor_values").columns[-1] == "value"


def test_the_views(trial: Trial) -> None:
    def rows(query: str) -> list[Any]:
        return trial.sql(query).fetchall()

    assert rows("select mode, mode_step, global_step, num_tensors from steps order by global_step limit 2") == [
        ("EVAL", 0, 0, 2),
        ("TRAIN", 0, 1, 2),
    ]
    assert rows("select value from scalars where name = 'loss' order by global_step") == [(n / 2,) for n in range(6)]
    reduced = "select reduction, value from reductions where name = 'w' and global_step = 3 order by all"
    assert rows(reduced) == [("abs_mean", 4.5), ("min", 3), ("nan_count", 0)]
    ((value,),) = rows("select value from tensor_values where global_step = 3")
    assert np.frombuffer(value).tolist() == [3, 4, 5, 6]
    assert rows("select name, saved, include_regex, tensor_names from collections order by name") == [
        ("losses", False, [], ["loss"]),
        ("weights", True, ["w"], []),
    ]
    assert rows("select count(*) from tensors where list_contains(collections, 'weights')") == [(6,)]


def test_parameters(trial: Trial) -> None:
    query = "select count(*) from tensors where name = $name and global_step < $step"
    assert trial.sql(query, {"name": "w", "step": 2}).fetchall() == [(2,)]
    with pytest.raises(QueryError):
        trial.sql(query, {"name": "w"})
    with pytest.raises(ConfigurationError):
        trial.sql(query, ["w", 2])  # type: ignore[arg-type]


def test_the_views_of_an_empty_run(tmp_path: Path) -> None:
    with Job(tmp_path) as job:
        trial = tensortrial.create_trial(tmp_path)
        columns = {view: trial.sql(f"from {view}").columns for view in VIEWS}
        assert [trial.sql(f"select * from {view}").fetchall() for view in VIEWS] == [[]] * 6
        job.publish({"w": np.zeros(3)})
        assert {view: trial.sql(f"from {view}").columns for view in VIEWS} == columns
        assert trial.sql("select count(*) from tensors").fetchall() == [(1,)]


def test_a_relation_outlives_a_refresh(tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.step({"a": 1.0})
    trial = tensortrial.create_trial(tmp_path)
    relation = trial.sql("select global_step from tensors")
    job.step({"a": 1.0})
    assert trial.sql("select count(*) from tensors").fetchall() == [(2,)]
    assert relation.fetchall()[0] == (0,)
    job.close()


SECRET = pa.table({"a": [1]})


@pytest.mark.parametrize(
    "query",
    ["select * from SECRET", "select", "from '/etc/passwd'", "select nothing from tensors", "from no_such_view"],
)
def test_sql_that_is_wrong_says_what_is_wrong(trial: Trial, query: str) -> None:
    """Among them the variables of the program that asks, which DuckDB would read by their names."""
    SECRET2 = SECRET  # noqa: F841, N806
    with pytest.raises(QueryError) as caught:
        trial.sql(query.replace("SECRET", "SECRET2"))
    assert isinstance(caught.value, ValueError)
    assert "Error: " in str(caught.value) or "a query can read collections, findings" in str(caught.value).lower()


@pytest.mark.parametrize(
    "name", ["lr=[0.1]", "a b", "it's", 'the "best"', "a*b?", "é☃", "{x}", "a%20b", "$name", "semi;colon"]
)
def test_a_run_in_a_folder_of_any_name(tmp_path: Path, name: str) -> None:
    # What a pattern would find instead.
    for other in ("lr=0", "axbx"):
        with Job(tmp_path / other) as job:
            job.step({"other": np.zeros(3)})
    with Job(tmp_path / name) as job:
        job.step({"w": np.zeros(3)})
    trial = tensortrial.create_trial(tmp_path / name)
    assert trial.name == name
    assert trial.tensor("w").value(0).tolist() == [0, 0, 0]
    assert trial.sql("select name from tensors").fetchall() == [("w",)]
    assert trial.sql("select name from tensor_values").fetchall() == [("w",)]


def test_range_steps_holds_in_sql_too(run: Path) -> None:
    trial = tensortrial.create_trial(run, range_steps=(1, 4))
    for view in ("tensors", "tensor_values", "steps", "scalars", "reductions"):
        found = trial.sql(f"select distinct global_step from {view} order by 1").fetchall()
        assert found == [(1,), (2,), (3,)], view


# --------------------------------------------------------------------------------------------------- data frames


def test_all_times_are_in_utc_with_a_time_zone(run: Path) -> None:
    """A time without a zone is another moment to `at time zone`, to pandas and to a database that receives it."""
    runs = tensortrial.open_runs(run)
    kinds = {}
    for view in OF_MANY_RUNS:
        answer = runs.sql(f"from {view}")
        times = {
            name: kind
            for name, kind in zip(answer.columns, answer.types, strict=True)
            if "TIME" in kind or "_at" in name
        }
        assert set(times.values()) <= {"TIMESTAMP WITH TIME ZONE"}, view
        arrow = answer.to_arrow_table().schema
        assert {arrow.field(name).type for name in times} <= {pa.timestamp("us", tz="UTC")}, view
        kinds[view] = list(times)
    assert kinds["runs"] == ["started_at", "ended_at"]
    assert kinds["tensors"] == kinds["scalars"] == kinds["steps"] == kinds["superseded"] == ["saved_at"]
    assert kinds["findings"] == ["found_at"]
    ((there, day),) = runs.sql(
        "select min(saved_at at time zone 'Asia/Tokyo')::text, min(saved_at)::text from scalars"
    ).fetchall()
    assert (there, day) == ("2026-01-01 09:00:00", "2026-01-01 00:00:00+00")
    (row,) = runs.sql("select started_at, ended_at from runs").fetchall()
    assert [each.utcoffset() for each in row] == [timedelta(0), timedelta(0)]


def test_pandas(trial: Trial) -> None:
    pytest.importorskip("pandas")
    frame = trial.sql("from scalars order by global_step").df()
    assert list(frame["value"]) == [n / 2 for n in range(6)]
    assert str(frame["saved_at"][0]).startswith("2026-01-01 00:00:00")
    assert trial.sql("from tensors").df().shape[0] == 12


def test_polars(trial: Trial) -> None:
    pytest.importorskip("polars")
    frame = trial.sql("from scalars order by global_step").pl()
    assert frame["value"].to_list() == [n / 2 for n in range(6)]
    assert frame["saved_at"][0] == datetime(2026, 1, 1, tzinfo=UTC)


# ------------------------------------------------------------------------------------------------------- queries


def test_every_query_states_its_question_and_columns() -> None:
    for name in (f"views/{name}" for name in queries.names("views")):
        text = queries.load(name)
        assert text.startswith("-- View "), name
        assert "olumns" in text, name
    with pytest.raises(KeyError, match="merged_reductions"):
        queries.load("views/no_such")


def test_a_query_reads_the_views_that_its_parsed_text_names(trial: Trial) -> None:
    runs = tensortrial.open_runs(trial)
    for each, names in ((trial, OF_ONE_RUN), (runs, OF_MANY_RUNS)):
        shown = [name for (name,) in each.sql("show tables").fetchall()]
        assert shown == sorted(names), "SHOW TABLES lists every view, whatever was queried before"
        assert each.sql('select count(*) from "FINDINGS"').fetchall() == [(0,)]
        assert each.sql("with findings as (select 7 as x) select x from findings").fetchall() == [(7,)]
        assert each.sql("select count(*) from (describe tensor_values)").fetchall()[0][0] >= 9
