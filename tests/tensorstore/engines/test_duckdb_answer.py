"""What a query answers on DuckDB: rows in every form, and this project's errors only."""

from __future__ import annotations

import signal
import sys
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tensortrial
from support.commands import run_command
from support.runs import Job
from tensortrial import Trial
from tensortrial.engines.duckdb import DuckDBEngine
from tensortrial.errors import (
    QueryError,
    QueryMemoryExceeded,
    QueryTimeout,
    TemporaryDiskExceeded,
    TensorTrialError,
)

ENDLESS = "select count(*) as n from range(10000000) a, range(10000000) b"
WAYS: dict[str, Callable[[Any], Any]] = {
    "fetchall": lambda answer: answer.fetchall(),
    "fetchnumpy": lambda answer: answer.fetchnumpy(),
    "df": lambda answer: pytest.importorskip("pandas") and answer.df(),
    "to_df": lambda answer: pytest.importorskip("pandas") and answer.to_df(),
    "pl": lambda answer: pytest.importorskip("polars") and answer.pl(),
    "to_arrow_table": lambda answer: answer.to_arrow_table(),
    "arrow": lambda answer: answer.arrow().read_all(),
    "arrow by batches": lambda answer: list(answer.arrow(10)),
    "to_arrow_reader": lambda answer: answer.to_arrow_reader().read_all(),
    "another library": lambda answer: pa.table(answer),
    "iteration": list,
    "shape": lambda answer: answer.shape,
    "show": lambda answer: answer.show(),
    "repr": repr,
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("answers") / "run"
    with Job(folder) as job:
        for step in range(3):
            job.step({"loss": step / 2})
    return folder


@pytest.fixture(scope="module")
def trial(run: Path) -> Iterator[Trial]:
    with tensortrial.create_trial(run) as trial:
        yield trial


@pytest.mark.parametrize("way", sorted({*WAYS} - {"shape"}))  # no value is needed to count rows
def test_every_method_raises_errors_of_this_project_only(trial: Trial, way: str) -> None:
    answer = trial.sql("select cast(name as int) as n from tensors order by n")
    for _ in range(2):
        with pytest.raises(
            TensorTrialError if way != "another library" else Exception, match="Could not convert"
        ) as got:
            WAYS[way](answer)
        assert way == "another library" or isinstance(got.value, QueryError)
    assert trial.sql("select 1").fetchall() == [(1,)]


@pytest.mark.parametrize("way", WAYS)
def test_every_method_stops_at_the_timeout(trial: Trial, way: str) -> None:
    if way == "another library":
        pytest.skip("the error passes through that library")
    answer = trial.sql(ENDLESS, timeout=0.2)
    with pytest.raises(QueryTimeout, match=r"timeout of 0\.2 seconds") as caught:
        WAYS[way](answer)
    assert isinstance(caught.value, TimeoutError)
    assert caught.value.timeout == 0.2


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("340282366920938463463374607431768211455::uhugeint", "340282366920938463463374607431768211455"),
        ("[18446744073709551616::uhugeint << 63]", "[170141183460469231731687303715884105728]"),
        ("'1010'::bit", "1010"),
        ("'11:00:00+02'::timetz", "11:00:00+02"),
    ],
)
def test_values_that_tables_of_other_libraries_lack_are_text_in_them(trial: Trial, value: str, text: str) -> None:
    query = f"""select {value} as "ä;""b", $one as one, 2 as one -- ;\n; -- one"""
    answer = trial.sql(query, {"one": 1})
    table = answer.to_arrow_table()
    assert table == answer.arrow().read_all()
    assert table.column_names == ['ä;"b', "one", "one"]
    assert [column.to_pylist() for column in table.columns] == [[text], [1], [2]]
    assert str(answer.fetchall()[0][0]) in (text, "11:00:00+02:00")
    assert answer.fetchnumpy()['ä;"b'].tolist() == [text]
    pytest.importorskip("pandas")
    assert answer.df().to_numpy().tolist() == [[text, 1, 2]]


@pytest.mark.parametrize(
    "value",
    [
        "170141183460469231731687303715884105727::hugeint",
        "sum(global_step) over ()",
        "'00000000-0000-0000-0000-000000000001'::uuid",
        "interval 1 day",
        "map {'a': 1}",
        "timestamp '2026-01-01 12:00:00'",
        "'infinity'::timestamp",
        "timestamptz '2026-01-01 12:00:00+09'",
    ],
)
def test_a_time_with_a_zone_changes_no_other_column_where_pytz_is_missing(
    trial: Trial, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = f"select {value} as value, timestamptz '2026-01-01' as ended_at, global_step from scalars order by 3"
    others = f"select {value.replace('timestamptz', 'timestamp')} as value, global_step from scalars order by 2"
    expected = trial.sql(others).fetchall()
    monkeypatch.setitem(sys.modules, "pytz", None)
    for rows in (trial.sql(query).fetchall(), list(trial.sql(query))):
        assert [step for _, _, step in rows] == [step for _, step in expected]
        found, wanted = rows[0][0], expected[0][0]
        if value.startswith("timestamptz"):
            wanted = datetime(2026, 1, 1, 3, tzinfo=UTC)
        assert (found, type(found)) == (wanted, type(wanted))
    assert trial.sql("select [timestamptz '2026-01-01 12:00:00+09']").fetchall() == [
        ([datetime(2026, 1, 1, 3, tzinfo=UTC)],)
    ]


@pytest.mark.parametrize("time", ["infinity", "-infinity", "20000-01-01"])
@pytest.mark.parametrize("form", ["{}", "[{}]"])
def test_a_time_with_a_zone_that_python_cannot_hold_is_an_error(trial: Trial, time: str, form: str) -> None:
    value = form.format(f"'{time}'::timestamptz")
    for rows in (lambda answer: answer.fetchall(), list):
        with pytest.raises(QueryError, match="cast the column to VARCHAR"):
            rows(trial.sql(f"select {value}"))
    assert trial.sql(f"select {value}::varchar").fetchone() is not None


@pytest.mark.parametrize("way", ["fetchnumpy", "df", "pl", "to_arrow_table", "arrow", "another library"])
@pytest.mark.parametrize("time", ["infinity", "-infinity"])
def test_an_infinite_time_is_an_error_in_tables_of_other_libraries(trial: Trial, way: str, time: str) -> None:
    for kind in ("timestamp", "timestamp_s", "timestamp_ms", "timestamp_ns", "timestamptz", "date"):
        for value in (f"$time::{kind}", f"if(global_step = 2, $time, null)::{kind}"):
            answer = trial.sql(f"select global_step, {value} as t from scalars order by all", {"time": time})
            with pytest.raises(Exception, match="cast the column to VARCHAR"):
                WAYS[way](answer)
        finite = trial.sql(f"select * from (values ('2026-01-31'::{kind}, 1), (null, 2)) as r(t, i)").to_arrow_table()
        assert finite["t"].cast("date32").to_pylist() == [date(2026, 1, 31), None]


@pytest.mark.parametrize("parameters", [None, {"past": 3}], ids=["no parameters", "parameters"])
def test_every_method_gives_the_same_rows(
    trial: Trial, parameters: dict[str, Any] | None, capsys: pytest.CaptureFixture[str]
) -> None:
    condition = "where global_step < $past" if parameters else ""
    answer = trial.sql(f"select global_step, scalar from tensors {condition} order by all", parameters)
    rows = [(0, 0.0), (1, 0.5), (2, 1.0)]
    assert (answer.columns, answer.types) == (["global_step", "scalar"], ["BIGINT", "DOUBLE"])
    assert answer.fetchall() == rows
    assert answer.fetchall() == list(answer) == rows
    assert answer.to_arrow_table().to_pydict() == {"global_step": [0, 1, 2], "scalar": [0.0, 0.5, 1.0]}
    assert answer.arrow().read_all() == answer.to_arrow_table() == pa.table(answer)
    assert answer.fetchnumpy()["scalar"].tolist() == [0.0, 0.5, 1.0]
    assert answer.shape == (3, 2)
    answer.show()
    assert capsys.readouterr().out.count("│") == repr(answer).count("│") > 5


def test_an_iteration_takes_rows_by_their_size(trial: Trial) -> None:
    wide = trial.sql("select range as n, repeat('x', 400000) as text from range(150)")
    tracemalloc.start()
    try:
        rows = iter(wide)
        found = [next(rows)[0] for _ in range(5)] + [n for n, _ in rows]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found == list(range(150))
    assert peak < 40e6  # of 60 MB
    narrow = trial.sql("select range, [range, null], {'a': [range::varchar]} from range(25000)")
    assert [row[0] for row in narrow] == list(range(25000))


def test_a_query_with_parameters_ends_before_it_has_read_all_files(tmp_path: Path) -> None:
    """DuckDB 1 kept the GIL then, and waited forever for its threads, which closed files of Python's."""
    with Job(tmp_path, flush_seconds=3600) as job:
        for _ in range(40):
            job.publish({f"w{i}": np.arange(400.0) for i in range(50)})
    with tensortrial.create_trial(tmp_path) as trial:
        for _ in range(50):
            answer = trial.sql("select value from tensor_values where name <> $name limit 1", {"name": "x"})
            assert len(answer.fetchall()) == 1


def test_a_reader_that_was_not_read_disturbs_no_other_question(trial: Trial) -> None:
    answer = trial.sql("select range as i from range(3000000)")
    unread, begun = answer.arrow(), answer.arrow(1000)
    assert next(begun).num_rows > 0
    rows = iter(answer)
    assert next(rows) == (0,)
    assert trial.sql("select 1").fetchall() == [(1,)]
    assert answer.shape == (3000000, 1)
    assert unread.read_all().num_rows == 3000000
    assert next(rows) == (1,)


def test_an_answer_in_a_thread_stops_at_its_timeout(trial: Trial) -> None:
    caught: list[BaseException] = []

    def ask() -> None:
        try:
            trial.sql(ENDLESS, timeout=0.2).fetchall()
        except QueryError as exc:
            caught.append(exc)

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join(60)
    assert [type(each) for each in caught] == [QueryTimeout]


def test_ctrl_c_stops_an_answer(trial: Trial) -> None:
    timer = threading.Timer(0.5, signal.pthread_kill, [threading.main_thread().ident, signal.SIGINT])
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        trial.sql(ENDLESS).fetchall()
    timer.join()
    assert trial.sql("select 1").fetchall() == [(1,)]


def test_the_command_line_stops_a_query_at_its_timeout(run: Path) -> None:
    done = run_command("sql", run, ENDLESS, "--timeout", "0.2", status=1)
    assert "stopped by its timeout of 0.2 seconds" in done.stderr


LARGE = "select count(*) from (select distinct i, i::varchar || repeat('x', 40) as s from range(3000000) t(i))"


def test_a_query_that_needs_too_much_memory_names_the_limit(run: Path) -> None:
    with tensortrial.create_trial(run, engine=DuckDBEngine(memory_limit="60MB")) as trial:
        with pytest.raises(QueryMemoryExceeded, match="memory limit") as caught:
            trial.sql(LARGE).fetchall()
        assert isinstance(caught.value, MemoryError)
        assert trial.sql("select count(*) from tensors").fetchall() == [(3,)]


def test_a_query_that_needs_too_much_temporary_disk_names_the_limit(run: Path) -> None:
    engine = DuckDBEngine(memory_limit="60MB", temporary_disk="5MB")
    with (
        tensortrial.create_trial(run, engine=engine) as trial,
        pytest.raises(TemporaryDiskExceeded, match="temporary disk"),
    ):
        trial.sql(LARGE).fetchall()


def test_temporary_disk_holds_what_memory_does_not(run: Path) -> None:
    with tensortrial.create_trial(run, engine=DuckDBEngine(memory_limit="60MB", temporary_disk="2GB")) as trial:
        assert trial.sql(LARGE).fetchall() == [(3000000,)]
