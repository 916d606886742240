"""NaN, infinities, -0.0 and null in SQL: every comparison finds the rows that numpy finds. The minimum and the maximum
that a Parquet file may hold of a column say nothing of NaN, so a run's files have none of floats."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tensortrial
from support.runs import Job, forge_file
from tensortrial.engines.base import FilesView, RunFile, UserQuery
from tensortrial.engines.duckdb import DuckDBEngine
from tensortrial.format.schema import INDEX
from tensortrial.storage.open import open_storage

NAN, INF = math.nan, math.inf
LARGEST = 1.7976931348623157e308
NUMBERS = [NAN, INF, -INF, -0.0, 0.0, 1.0, -1.5, 2.0, 5e-324, LARGEST]
GOLDEN = sorted((Path(__file__).parents[2] / "golden").glob("format-*/*"))


def less(x: float, y: float) -> bool:
    """NaN is the greatest of all, and equal to itself."""
    return not np.isnan(x) and bool(np.isnan(y) or x < y)


def equal(x: float, y: float) -> bool:
    return bool(x == y or (np.isnan(x) and np.isnan(y)))


def at_most(x: float, y: float) -> bool:
    return less(x, y) or equal(x, y)


CONDITIONS: dict[str, Callable[[float, float, float], bool]] = {
    "x = $a": lambda x, a, b: equal(x, a),
    "x <> $a": lambda x, a, b: not equal(x, a),
    "x < $a": lambda x, a, b: less(x, a),
    "x <= $a": lambda x, a, b: at_most(x, a),
    "x > $a": lambda x, a, b: less(a, x),
    "x >= $a": lambda x, a, b: at_most(a, x),
    "x > $a and x <> $b": lambda x, a, b: less(a, x) and not equal(x, b),
    "x between $a and $b": lambda x, a, b: at_most(a, x) and at_most(x, b),
    "x not between $a and $b": lambda x, a, b: not (at_most(a, x) and at_most(x, b)),
    "not (x <= $a)": lambda x, a, b: less(a, x),
    "isnan(x)": lambda x, a, b: bool(np.isnan(x)),
    "not isnan(x)": lambda x, a, b: not np.isnan(x),
    "isinf(x)": lambda x, a, b: bool(np.isinf(x)),
    "isfinite(x)": lambda x, a, b: bool(np.isfinite(x)),
    "not isfinite(x)": lambda x, a, b: not np.isfinite(x),
    "x is not distinct from $a": lambda x, a, b: equal(x, a),
    "x in ($a, $b)": lambda x, a, b: equal(x, a) or equal(x, b),
    "x not in ($a, $b)": lambda x, a, b: not (equal(x, a) or equal(x, b)),
    "x = 'nan'": lambda x, a, b: bool(np.isnan(x)),
    "x > 1e308": lambda x, a, b: less(1e308, x),
}
Files = list[list[float | None]]
cells = st.lists(
    st.lists(st.one_of(st.none(), st.sampled_from(NUMBERS)), min_size=1, max_size=6), min_size=1, max_size=3
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    (folder / INDEX).mkdir()
    return folder


def rows_of(found: Any) -> list[int]:
    return [row for (row,) in found.fetchall()]


def opened(folder: Path, files: Files, many: bool) -> Any:
    """Return a database with a view over files of one run, or of two, without minimum and maximum of the floats."""
    storage, row = open_storage(folder), 0
    for number, numbers in enumerate(files):
        table = pa.table({"x": pa.array(numbers, pa.float64()), "i": range(row, row + len(numbers))})
        forge_file(folder, folder / INDEX / f"{number}.parquet", table, row_group_size=4, write_statistics=["i"])
        row += len(numbers)
    database: Any = DuckDBEngine().connect([storage])
    view = FilesView("v", pa.schema([("x", pa.float64()), ("i", pa.int64())]))
    runs = ("a", "b" if many else "a")
    paths = [f"{INDEX}/{number}.parquet" for number in range(len(files))]
    database.make_files_view(view, [RunFile(storage, path, runs[number % 2]) for number, path in enumerate(paths)])
    database.execute("from catalogue.v limit 0")  # the first statement of its own that reads the view makes it
    return database


def select(database: Any, query: str, parameters: dict[str, float] | None = None) -> Any:
    return database.run(UserQuery(query, frozenset()), parameters)


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cells, st.sampled_from(NUMBERS), st.sampled_from(NUMBERS), st.booleans())
def test_every_comparison_is_numpys(folder: Path, files: Files, a: float, b: float, many: bool) -> None:
    database = opened(folder, files, many)
    numbers = [number for file in files for number in file]
    for condition, holds in CONDITIONS.items():
        parameters = {name: value for name, value in (("a", a), ("b", b)) if f"${name}" in condition}
        found = rows_of(select(database, f"select i from catalogue.v where {condition} order by i", parameters))
        assert found == [row for row, x in enumerate(numbers) if x is not None and holds(x, a, b)], condition
    found = rows_of(select(database, "select i from catalogue.v where x is distinct from $a order by i", {"a": a}))
    assert found == [row for row, x in enumerate(numbers) if x is None or not equal(x, a)]
    found = rows_of(
        select(database, "select i from catalogue.v join (select $a::double as y) on x = y order by i", {"a": a})
    )
    assert found == [row for row, x in enumerate(numbers) if x is not None and equal(x, a)]
    database.close()


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cells)
def test_order_minimum_and_maximum_are_numpys(folder: Path, files: Files) -> None:
    database = opened(folder, files, many=False)
    numbers = np.array([number for file in files for number in file if number is not None], float)
    ends = [(np.fmin.reduce(numbers), np.max(numbers))] if len(numbers) else [(None, None)]
    np.testing.assert_equal(
        select(database, "select min(x) + 0, max(x) + 0 from catalogue.v").fetchall(),
        np.add(ends, 0) if len(numbers) else ends,
    )
    ascending = [x + 0 for x in np.sort(numbers)]  # -0.0 is 0.0
    found = select(database, "select x + 0 from catalogue.v where x is not null order by x").fetchall()
    np.testing.assert_equal([x for (x,) in found], ascending)
    for order, expected in (("x", ascending), ("x desc", ascending[::-1])):
        found = select(
            database, f"select x + 0 from catalogue.v where x is not null order by {order} limit 2"
        ).fetchall()
        np.testing.assert_equal([x for (x,) in found], expected[:2])
    database.close()


LOSSES = [2.0 - 0.125 * step if step < 11 else NAN for step in range(20)]


def write(run: Path, losses: Sequence[float], flush: bool) -> None:
    with Job(run, flush_seconds=1e9) as job:
        for loss in losses:
            job.step({"loss": loss}, collections=("losses",))
            if flush:
                job.flush()


@pytest.mark.parametrize("before", ["flushed", "small", "compacted"])
def test_a_loss_that_becomes_nan_is_found(tmp_path: Path, before: str) -> None:
    write(tmp_path / "run", LOSSES, flush=before != "small")
    if before == "compacted":
        tensortrial.compact(tmp_path / "run", delete_older_than=0)
    for opened in (tensortrial.create_trial(tmp_path / "run"), tensortrial.open_runs(tmp_path)):
        for condition in ("isnan(scalar)", "scalar > 1e308", "not scalar between -1e308 and 1e308"):
            assert opened.sql(f"select count(*) from tensors where {condition}").fetchall() == [(9,)], condition
        assert opened.sql("select count(*) from scalars where isnan(value)").fetchall() == [(9,)]
    ((_, _, name, _, _, _, step, *_),) = tensortrial.query(tmp_path, "first_non_finite").fetchall()
    assert (name, step) == ("loss", 11)


@pytest.mark.parametrize("run", GOLDEN, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_golden_runs_lose_no_row(run: Path) -> None:
    trial = tensortrial.create_trial(run)
    numbers = [x for (x,) in trial.sql("select scalar from tensors").fetchall() if x is not None]
    for low, high in pairwise(sorted({x for x in numbers if math.isfinite(x)})):
        found = trial.sql("select count(*) from tensors where scalar > $a", {"a": (low + high) / 2}).fetchall()
        assert found == [(sum(not at_most(x, (low + high) / 2) for x in numbers),)]
    found = trial.sql("select count(*) from tensors where isnan(scalar)").fetchall()
    assert found == [(sum(map(math.isnan, numbers)),)]


@pytest.mark.parametrize("compacted", [False, True])
def test_index_files_hold_no_bounds_of_numbers_that_may_be_nan(tmp_path: Path, compacted: bool) -> None:
    write(tmp_path, LOSSES, flush=True)
    if compacted:
        tensortrial.compact(tmp_path, delete_older_than=0)
    bounded = set()
    for path in (tmp_path / INDEX).rglob("*.parquet"):
        group = pq.read_metadata(path).row_group(0)
        columns = [group.column(number) for number in range(group.num_columns)]
        bounded |= {(each.path_in_schema, each.physical_type) for each in columns if each.statistics is not None}
    assert "DOUBLE" not in {kind for _, kind in bounded}
    assert {"name", "global_step"} <= {name for name, _ in bounded}
