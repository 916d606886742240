"""Arrays that are made without pyarrow's own conversion, which imports pandas, are those that it makes."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support import runs
from support.runs import Job
from tensortrial.format.arrow_arrays import column, numpy_of, table

CELLS: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.string(): st.text(),
    pa.int32(): st.integers(-(1 << 31), (1 << 31) - 1),
    pa.int64(): st.integers(-(1 << 63), (1 << 63) - 1),
    pa.float64(): st.floats(allow_nan=False),
    pa.timestamp("us"): st.integers(0, 1 << 50) | st.datetimes(),
    pa.bool_(): st.booleans(),
    pa.list_(pa.string()): st.lists(st.none() | st.text(), max_size=3),
    pa.list_(pa.int64()): st.lists(st.integers(0, 9), max_size=3),
}


@settings(deadline=None, max_examples=50)
@given(st.sampled_from(list(CELLS)).flatmap(lambda kind: st.tuples(st.just(kind), st.lists(st.none() | CELLS[kind]))))
def test_any_array_round_trips(drawn: tuple[pa.DataType, list[Any]]) -> None:
    kind, cells = drawn
    found = column(cells, kind)
    found.validate(full=True)
    assert found.equals(pa.array(cells, kind))
    schema = pa.schema([("a", kind)])
    assert table(schema, [(cell,) for cell in cells])["a"].to_pylist() == pa.array(cells, kind).to_pylist()


@given(st.lists(st.none() | st.integers(0, 99)), st.integers(0, 5), st.sampled_from([pa.int32(), pa.int64()]))
def test_numbers(cells: list[int | None], first: int, kind: pa.DataType) -> None:
    array = pa.array(cells, kind)[first:]
    assert numpy_of(array, -1).tolist() == [-1 if cell is None else cell for cell in cells[first:]]
    assert numpy_of(pa.array([0.5, 1.5])).tolist() == [0.5, 1.5]
    assert numpy_of(pa.array([0.5, None]), missing=np.inf).tolist() == [0.5, np.inf]


def test_readers_do_without_pandas(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    for name, first in {"a": 1.0, "b": 2.0}.items():
        with Job(tmp_path / name) as job:
            for value in (first, math.nan):
                job.step({"a": np.array([value, 3.0]), "b": value}, statistics=("l2",), collections=("one", "two"))
    program = f"""
import sys, tensortrial
place = {str(tmp_path)!r}
trial = tensortrial.create_trial(place + "/a")
assert (trial.steps(), trial.tensor_names()) == ([0, 1], ["a", "b"])
assert trial.tensor("a").value(0).tolist() == [1, 3]
assert trial.tensor("a").reduction_value(0, "l2") > 3
assert not {{"pandas", "torch"}} & set(sys.modules), "somebody imported pandas or torch"
assert trial.sql("select count(*) from findings").fetchall() == [(0,)]
assert trial.sql("select name, l2 from tensors where global_step = 1").fetchall()

from tensortrial.pages import Page
from tensortrial.pages.routes import Answers
answers = Answers(Page(trial).runs)
at = {{"run": trial.name, "mode": "TRAIN"}}
for path in ("info", "tiles", "availability"):
    assert answers.answer(path, {{**at, "statistic": "l2"}})

from tensortrial.rules import ExplodingTensor, watch
runs = tensortrial.open_runs(place)
assert len(runs.sql("from runs").fetchall()) == 2
assert len(runs.sql("select run, name, last from run_summary").fetchall()) == 2
assert tensortrial.compare(place + "/a", place + "/b").to_arrow_table().num_rows == 2
assert len(list(watch(trial, [ExplodingTensor(trial)]))) > 0
for target in ("parquet:" + place + "/exported", "duckdb:" + place + "/exported.duckdb"):
    tensortrial.export(place, target, progress=False)
    tensortrial.export(place, target, progress=False)
tensortrial.compact(place + "/a")
assert "pandas" not in sys.modules, "somebody imported pandas"
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_closing_does_without_pandas(tmp_path: Path) -> None:
    """Also where the few flushes of a run, and their raw values, are put together as it closes."""
    pytest.importorskip("pandas")
    program = f"""
import sys
import numpy as np
sys.path.insert(0, {str(Path(runs.__file__).parents[1])!r})
from support.runs import Job
job = Job({str(tmp_path / "run")!r})
for step in range(30):
    job.step({{"a": np.full((100, 100), step)}})
    job.writer.flush()
job.close()
assert "pandas" not in sys.modules, "somebody imported pandas"
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    assert len(list(tmp_path.glob("run/tensors/**/*-*.parquet"))) == 1
