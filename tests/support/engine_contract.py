"""What every engine must answer, written once: subclass `EngineContract`, with the fixtures `engine` and `folder`.

The folder is one of `make_project`.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tensortrial
from support.runs import Job
from tensortrial import ModeKeys
from tensortrial.config.collection import Collection
from tensortrial.engines.base import Engine
from tensortrial.errors import QueryError, QueryRefused
from tensortrial.read.step_states import StepState
from tensortrial.rules import AllZero, watch

VIEWS = (
    *("tensors", "reductions", "merged_reductions", "scalars", "steps", "collections", "findings", "tensor_values"),
    *("superseded", "run_summary"),
)
NAMES = ("lr=[0.1]", "a+b %20*c")


# Of the values 1.5, NaN, infinity, -0.0, -0.5, and a tensor that is no scalar, at steps 0 to 5.
_FOUND = {
    "isnan(scalar)": [1],
    "not isnan(scalar) and scalar is not null": [0, 2, 3, 4],
    "isinf(scalar)": [2],
    "isfinite(scalar)": [0, 3, 4],
    "scalar > 1e308": [1, 2],
    "scalar >= 'nan'::double": [1],
    "scalar = 'nan'::double": [1],
    "scalar is not distinct from 'nan'::double": [1],
    "scalar in ('nan'::double, 1.5)": [0, 1],
    "not scalar between -1e308 and 1e308": [1, 2],
    "scalar <> 1.5": [1, 2, 3, 4],
    "scalar = 0": [3],
    "scalar <= 0": [3, 4],
    "scalar = (select max(scalar) from tensors)": [1],
}


def write(place: Path) -> None:
    job = Job(place, collections=[Collection("losses", include_regex="loss")], saved=["losses"])
    for step in range(3):
        values = {"gradient/w": np.full((2, 2), step / 2), "loss": [1.5, float("nan"), float("inf")][step]}
        job.step(
            values, ModeKeys.TRAIN, statistics=("mean", "l2", "abs_mean"), collections=("gradients",), sketch=step > 0
        )
    job.step({"loss": -0.5}, ModeKeys.EVAL)
    job.close()


def make_project(folder: Path) -> Path:
    """Two runs, in one of which a rule found something."""
    for name in NAMES:
        write(folder / name)
    trial = tensortrial.create_trial(folder / NAMES[0])
    assert list(watch(trial, [AllZero(trial, tensor_regex="gradient")]))
    return folder


def same(found: Any, expected: Any) -> bool:
    """Whether two answers hold the same rows, in any order, of the same types. What an engine calls the elements of a
    list, and whether a column may be null, is its own affair. One without unsigned integers has decimals."""
    ours, theirs = found.to_arrow_table(), expected.to_arrow_table()
    if "digest" in ours.column_names:
        ours = ours.set_column(ours.column_names.index("digest"), "digest", ours["digest"].cast(pa.uint64()))
    assert ours.column_names == theirs.column_names
    types = [
        (str(a.type).replace("element:", "l:"), str(b.type)) for a, b in zip(ours.schema, theirs.schema, strict=True)
    ]
    assert [a for a, _ in types] == [b for _, b in types]
    return sorted(map(repr, rows(ours))) == sorted(map(repr, rows(theirs)))


def rows(table: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in table.to_pylist()]


class EngineContract:
    def test_a_trial_answers(self, engine: Engine, folder: Path) -> None:
        trial = tensortrial.create_trial(folder / NAMES[0], engine=engine)
        assert (trial.steps(), trial.steps(ModeKeys.EVAL)) == ([0, 1, 2, 3], [0])
        assert trial.tensor_names() == ["gradient/w", "loss"]
        assert trial.tensor_names(collection="gradients", step=1) == ["gradient/w", "loss"]
        assert trial.modes() == [ModeKeys.TRAIN, ModeKeys.EVAL]
        assert trial.workers() == ["worker_0"]
        assert (trial.has_passed_step(2), trial.has_passed_step(9)) == (StepState.AVAILABLE, StepState.UNAVAILABLE)
        assert trial.tensor("loss").steps() == [0, 1, 2, 3]
        assert trial.tensor("gradient/w").value(2).tolist() == [[1, 1], [1, 1]]
        assert trial.tensor("gradient/w").reduction_value(1, "mean") == 0.5
        values = trial.values(["gradient/w", "loss"])
        assert list(values["gradient/w"]) == [0, 1, 2]
        trial.close()

    def test_the_views_hold_the_same_rows(self, engine: Engine, folder: Path) -> None:
        trial, expected = (tensortrial.create_trial(folder / NAMES[0], engine=each) for each in (engine, None))
        for view in VIEWS:
            assert same(trial.sql(f"select * from {view}"), expected.sql(f"select * from {view}")), view
        (first,) = trial.sql("select saved_at from steps where global_step = 0").fetchall()
        assert first == (datetime(2026, 1, 1, tzinfo=UTC),)
        # The order of numbers, with NaN above all others.
        found = trial.sql("select value from scalars order by value").fetchall()
        assert [str(value) for (value,) in found] == ["-0.5", "1.5", "inf", "nan"]
        trial.close()

    def test_no_comparison_loses_nan(self, engine: Engine, tmp_path: Path) -> None:
        with Job(tmp_path) as job:
            for value in (1.5, math.nan, math.inf, -0.0, -0.5):
                job.step({"loss": value})
            job.step({"vector": np.ones(3)})
        trial = tensortrial.create_trial(tmp_path, engine=engine)
        for condition, steps in _FOUND.items():
            found = trial.sql(f"select global_step from tensors where {condition} order by global_step").fetchall()
            assert [step for (step,) in found] == steps, condition
        trial.close()

    def test_a_query_with_parameters(self, engine: Engine, folder: Path) -> None:
        trial = tensortrial.create_trial(folder / NAMES[0], engine=engine)
        answer = trial.sql(
            "with w as (select * from reductions where name = $name) "
            "select reduction, max(value) as largest from w where mode_step <= $last group by reduction order by 1",
            {"name": "gradient/w", "last": 1},
        )
        assert answer.columns == ["reduction", "largest"]
        assert answer.fetchall() == [("abs_mean", 0.5), ("l2", 1.0), ("mean", 0.5)]
        trial.close()

    def test_numbers_of_numpy_and_modes_are_parameters(self, engine: Engine, folder: Path) -> None:
        trial = tensortrial.create_trial(folder / NAMES[0], engine=engine)
        (rows,) = trial.sql("select count(*) from steps where mode = 'GLOBAL' and mode_step = 1").fetchall()
        parameters = {"mode": tensortrial.modes.GLOBAL, "step": np.arange(3)[1], "least": np.float32(0.5)}
        query = "select count(*) from steps where mode = $mode and mode_step = $step and $least = 0.5"
        assert trial.sql(query, parameters).fetchall() == [rows]
        trial.close()

    def test_a_range_of_steps(self, engine: Engine, folder: Path) -> None:
        trial = tensortrial.create_trial(folder / NAMES[0], range_steps=(1, 3), engine=engine)
        assert trial.steps() == [1, 2]
        assert trial.sql("select count(*) from tensors").fetchall() == [(4,)]
        trial.close()

    def test_rows_are_fetched_one_after_another(self, engine: Engine, folder: Path) -> None:
        trial = tensortrial.create_trial(folder / NAMES[0], engine=engine)
        answer = trial.sql("select mode_step from steps order by mode_step")
        rows = answer.fetchall()
        assert len(rows) > 1
        assert [answer.fetchone() for _ in range(len(rows) + 2)] == [*rows, None, None]
        assert answer.fetchall() == rows
        assert trial.sql("select mode_step from steps where mode_step < 0").fetchone() is None
        trial.close()

    def test_it_sees_what_is_new(self, engine: Engine, tmp_path: Path) -> None:
        jobs = [Job(tmp_path, f"worker_{each}", 2) for each in range(2)]
        trial = None
        for step in range(3):
            for job in jobs:
                job.publish({"x": float(step)})
            trial = trial or tensortrial.create_trial(tmp_path, engine=engine)
            assert trial.steps() == [*range(step + 1)]
        assert trial is not None
        assert trial.sql("select count(*), max(value) from scalars").fetchall() == [(6, 2.0)]
        for job in jobs:
            job.close()
        # Every index file is another one now.
        tensortrial.compact(tmp_path, delete_older_than=0)
        assert trial.sql("select count(*), sum(num_tensors) from steps").fetchall() == [(6, 6)]
        assert trial.sql("select count(*) from tensors").fetchall() == [(6,)]
        assert trial.tensor("x").value(1, worker="worker_1") == 1
        trial.close()

    def test_of_a_tensor_that_was_saved_again_the_last_row_counts(self, engine: Engine, tmp_path: Path) -> None:
        for name in ("a", "b"):
            with Job(tmp_path / name) as job:
                steps = [job.step({"x": float(number), "y": 0.5}) for number in range(4)]
                job.flush()
                job.put(steps[1], {"x": 10.0, "late": 1.0}, closes=True)
                job.flush()
                job.put(steps[1], {"x": 20.0}, closes=True)
        trial = tensortrial.create_trial(tmp_path / "a", engine=engine)
        runs = tensortrial.open_runs(tmp_path, engine=engine)
        query = "select global_step, name, value from scalars order by global_step, name"
        expected = [(0, "x", 0.0), (0, "y", 0.5), (1, "late", 1.0), (1, "x", 20.0), (1, "y", 0.5)]
        expected += [(step, name, value) for step in (2, 3) for name, value in (("x", float(step)), ("y", 0.5))]
        assert [(1, "x", trial.tensor("x").value(1).item())] == [row for row in expected if row[:2] == (1, "x")]
        for _ in ("flushed", "compacted"):
            assert trial.sql(query).fetchall() == expected
            assert runs.sql(f"select run, {query.removeprefix('select')}, run").fetchall() == [
                (run, *row) for row in expected for run in ("a", "b")
            ]
            ranged = tensortrial.create_trial(tmp_path / "a", range_steps=(1, 2), engine=engine)
            assert ranged.sql(query).fetchall() == expected[2:5]
            ranged.close()
            for name in ("a", "b"):
                tensortrial.compact(tmp_path / name, delete_older_than=0)
        trial.close()
        runs.close()

    def test_raw_values_are_those_that_the_trial_reads(self, engine: Engine, tmp_path: Path) -> None:
        for name in ("a", "b"):
            job = Job(tmp_path / name, flush_seconds=0)
            job.step({"w": np.zeros(3)})
            job.put(job.begin(), {"w": np.full(3, 7.0)})  # a step that is never finished
            job.flush()
            job.close()
            with Job(tmp_path / name, resume=True) as job:
                job.step({"w": np.ones(3)})
                step = job.step({"w": np.full(3, 3.0), "v": np.ones(2)})
                job.put(step, {"w": np.full(3, 4.0)}, closes=True)  # in the same chunk
                job.flush()
                job.put(step, {"w": np.full(3, 5.0)}, closes=True)  # in the next one
        trial = tensortrial.create_trial(tmp_path / "a", engine=engine)
        runs = tensortrial.open_runs(tmp_path, engine=engine)
        expected = [(step, array.tobytes()) for step, array in trial.tensor("w").values().items()]
        assert [np.frombuffer(value)[0] for _, value in expected] == [0, 1, 5]
        query = "select {} global_step, value from tensor_values where name = 'w' order by 1, 2"
        for _ in ("flushed", "compacted"):
            assert trial.sql(query.format("")).fetchall() == expected
            assert runs.sql(query.format("run,")).fetchall() == [(run, *row) for run in ("a", "b") for row in expected]
            assert trial.sql("select count(*) from tensor_values where name = 'v'").fetchall() == [(1,)]
            for name in ("a", "b"):
                tensortrial.compact(tmp_path / name, delete_older_than=0)
        trial.close()
        runs.close()

    def test_many_runs(self, engine: Engine, folder: Path) -> None:
        runs, expected = (tensortrial.open_runs(folder, engine=each) for each in (engine, None))
        assert runs.names == sorted(NAMES)
        for view in (*VIEWS, "runs"):
            assert same(runs.sql(f"select * from {view}"), expected.sql(f"select * from {view}")), view
        answer = runs.sql("select run, count(*) from scalars group by run order by run")
        assert answer.fetchall() == [(name, 4) for name in sorted(NAMES)]
        runs.close()

    @pytest.mark.parametrize(
        "query",
        [
            "drop view tensors",
            "create table t as select * from tensors",
            "select 1; select 2",
            "select * from read_text('/etc/passwd')",
            "select * from '/etc/passwd.csv'",
            "copy tensors to '/tmp/x.csv'",
            "",
        ],
    )
    def test_nothing_but_the_views_is_read(self, engine: Engine, folder: Path, query: str) -> None:
        trial = tensortrial.create_trial(folder / NAMES[0], engine=engine)
        with pytest.raises((QueryRefused, QueryError)):
            trial.sql(query).fetchall()
        trial.close()

    def test_what_cannot_be_run_says_why(self, engine: Engine, folder: Path) -> None:
        trial = tensortrial.create_trial(folder / NAMES[0], engine=engine)
        with pytest.raises(QueryError, match="no_such_column"):
            trial.sql("select no_such_column from tensors").fetchall()
        trial.close()
