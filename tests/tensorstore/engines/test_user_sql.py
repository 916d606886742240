"""No SQL of a user writes, or reads anything but the views: by the parsed tree, and below it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from night.written_sql import (
    PLACES,
    READING_FILES,
    WRITING,
    contents,
    filled,
    nothing_refused_by_the_parser,
    run_if_possible,
    still_answers,
    write,
)

import tensortrial
from tensortrial import Trial
from tensortrial.errors import QueryError, QueryRefused
from tensortrial.read.runs import Runs

READING = (
    *READING_FILES,
    "from read_text('{run}/index/../run.json')",
    "from read_text('{run}/tensors/../../secret.txt')",
    "",
    "-- nothing",
    "select 1; select 2",
    "explain select 1",
    "from duckdb_settings()",
    "from duckdb_views()",
    "from duckdb_tables",
    "from duckdb_secrets()",
    "from duckdb_logs",
    "from duckdb_temporary_files()",
    "from pragma_database_list",
    "from pragma_table_info('tensors')",
    "from sqlite_master",
    "from information_schema.tables",
    "from pg_catalog.pg_class",
    "from pg_views",
    "from system.main.duckdb_columns",
    "from catalogue.steps",
    "from memory.catalogue.steps",
    "from temp.main.x",
    "from catalogue.finding_files",
    "from finding_files",
    "from files_of_tensors",
    "select (select count(*) from catalogue.files)",
    "with x as (from catalogue.files) from x",
    "with x as (from duckdb_views), duckdb_views as (select 1) from x",
    "with duckdb_views as (from duckdb_views) from duckdb_views",
    "with recursive duckdb_views as (from duckdb_views union all from duckdb_views) from duckdb_views",
    "from (with duckdb_views as (select 1) select 1), duckdb_views",
    "from catalogue.x, (with x as (select 1) select 1)",
    "with catalogue as (select 1) from catalogue.files",
    "from histogram(duckdb_settings, value)",
    "from histogram_values(duckdb_settings, value)",
    "from query('from duckdb_settings()')",
    "from query_table('duckdb_views')",
    "from seq_scan('x')",
    "from summary(tensors)",
    "from python_map_function()",
    "from arrow_scan(0, 0, 0)",
    "from pandas_scan(0)",
    "from which_secret('s3://x', 's3')",
    "from test_all_types()",
    "show all tables",
    "show databases",
    "show variables",
    "describe",
    "describe catalogue.steps",
    "summarize duckdb_settings()",
    "select getenv('HOME')",
    "select current_setting('temp_directory')",
    "select Current_Setting('temp_directory')",
    "select main.current_setting('temp_directory')",
    "select 'temp_directory'.current_setting()",
    "select system.main.current_setting('temp_directory')",
    "select list_transform(['temp_directory'], lambda x: current_setting(x))",
    "select getvariable('x')",
    "select pg_get_viewdef(1)",
    "select current_query()",
    "select write_log('x')",
    "select nextval('s')",
    "select sleep_ms(1)",
    "select name from tensors where getenv('HOME') <> ''",
    "select count(*) over (order by current_setting('threads')) from tensors",
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("project") / "run")


@pytest.fixture(scope="module")
def opened(run: Path) -> Iterator[tuple[Trial, Runs]]:
    with tensortrial.create_trial(run) as trial, tensortrial.open_runs(run.parent) as runs:
        yield trial, runs


def hostile(run: Path, share: int) -> Iterator[str]:
    """Yield the first statement in every place, each one by itself, and one in `share` of all others."""
    for row, statement in enumerate(WRITING):
        for column, place in enumerate(PLACES):
            if row == 0 or column == 0 or (row + column) % share == 0:
                yield place.format(w=filled(statement, run))


def test_no_writing_statement_is_run_in_any_place_of_a_query(run: Path, opened: tuple[Trial, Runs]) -> None:
    """The finder `written_sql` tries the other statements."""
    before = contents(run)
    trial, runs = opened
    for query in hostile(run, 12):
        for each in opened:
            with pytest.raises(QueryError):
                print(query, each.sql(query).fetchall())
    assert contents(run) == before
    assert still_answers(trial, runs)


@pytest.mark.parametrize("query", READING)
def test_nothing_but_the_views_is_read(run: Path, opened: tuple[Trial, Runs], query: str) -> None:
    for each in opened:
        with pytest.raises(QueryError):
            print(each.sql(filled(query, run)).fetchall())


@pytest.mark.parametrize(
    "query",
    [
        "from tensors",
        "FROM Tensors",
        "select * from main.tensors",
        "select * from memory.main.tensors",
        "table scalars",
        "values (1)",
        "show tables",
        "describe tensors",
        "describe select 1",
        "summarize scalars",
        "with tensors as (select 1 as a) select a from tensors",
        "with a as (select 1 as x), b as (from a) select * from a, b, (select x from b)",
        "with recursive r as (select 1 as n union all select n + 1 from r where n < 3) select max(n) from r",
        "with recursive r(n) using key (n) as (select 1 union select n + 1 from r where n < 3) from r",
        "select name.upper(), scalar::varchar from tensors where name ~ $$l$$",
        "select * exclude (chunk) replace (name || 'x' as name) from tensors",
        "select columns('name|mode') from tensors",
        "select list_transform(collections, lambda x: x || 'a') from tensors",
        "select count(*) filter (where scalar > 0), max(name order by name) from tensors group by all",
        "select row_number() over (partition by name order by global_step rows 3 preceding) from tensors qualify true",
        "pivot (select name, scalar from tensors) on name in ('loss') using max(scalar)",
        "from (unpivot (select 1 as a, 2 as b) on a, b into name n value v)",
        "select * from tensors asof join steps on tensors.saved_at >= steps.saved_at",
        "select * from tensors positional join steps",
        "select s.name from tensors s semi join steps using (global_step)",
        "select * from range(3), generate_series(1, 2), unnest([1, 2]), lateral (select 1)",
        "select * from tensors using sample 50%",
        "select distinct on (name) name from tensors order by name desc nulls last limit 50% offset 0",
        "select (select count(*) from steps), exists (from tensors), array(from range(3)), 1 in (select 1)",
        "select 1 as a union all by name select 2 as b union all (select 1, 2 except select 3, 4)",
        "select case when true then interval 1 day end, date '2026-01-01', [1][1], {'a': 1}.a, map {1: 2}",
        "select now() > date '2020-01-01', random() < 2",
        "select current_date, uuid(), pi(), try_cast('x' as int), 'a' collate nocase from steps order by #1",
        "select include_regex, save_config->>'save_interval' from collections",
        "from json_each('[1, 2]')",
        "-- a comment\nselect 1;",
    ],
)
def test_what_reads_the_views_is_run(opened: tuple[Trial, Runs], query: str) -> None:
    for each in opened:
        answer = each.sql(query)
        assert answer.columns
        assert all(len(row) == len(answer.columns) for row in answer.fetchall())


def test_an_unknown_view_is_answered_with_those_that_are_near(opened: tuple[Trial, Runs]) -> None:
    with pytest.raises(
        QueryError, match=r"no view 'tensor'; did you mean 'tensors'\? A query can read collections, findi"
    ):
        opened[0].sql("select * from tensor")


@pytest.mark.slow
def test_what_passed_the_parser_could_not_write_either(run: Path) -> None:
    """The connection reads files through a filesystem that writes nothing, in read-only transactions.

    The finder `written_sql` tries the statements in all places.
    """
    before = contents(run)
    with (
        nothing_refused_by_the_parser(),
        tensortrial.create_trial(run) as trial,
        tensortrial.open_runs(run.parent) as runs,
    ):
        for number, statement in enumerate(WRITING):
            for place in ("{w}", "with x as ({w}) from x", *PLACES[number % 30 :: 30]):
                run_if_possible(trial, place.format(w=filled(statement, run)))
            assert number % 5 or still_answers(trial, runs), statement
        assert still_answers(trial, runs)
        for query in READING_FILES:
            said = run_if_possible(trial, filled(query, run))
            assert not any(secret in said for secret in ("root:", str(run))), query
    assert contents(run) == before


def test_spark_sees_no_writing_statement(run: Path) -> None:
    spark_sql = pytest.importorskip("tensortrial.engines.spark_sql", exc_type=ImportError)
    for query in hostile(run, 20):
        # `(load httpfs)` is a column of another name there, and what stands in quotes a text.
        with suppress(QueryError):
            text = re.sub(r"'([^'\\]|\\.)*'", "", spark_sql.select(query, {"tensors"}, "duckdb").text)
            assert not re.search(r"\b(INSERT|DELETE|UPDATE|COPY|DROP|CREATE|ALTER|TRUNCATE|MERGE|ATTACH)\b", text), text


@pytest.mark.parametrize(
    "query",
    [
        "with x as (drop view tensors) select * from x",
        "with x as (from other), other as (select 1) select * from x",
        "with other as (from other) select * from other",
    ],
)
def test_spark_refuses_what_a_with_clause_does_not_define(query: str) -> None:
    spark_sql = pytest.importorskip("tensortrial.engines.spark_sql", exc_type=ImportError)
    with pytest.raises(QueryRefused):
        spark_sql.select(query, {"tensors"}, "duckdb")
