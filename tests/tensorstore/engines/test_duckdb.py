"""DuckDB keeps the contract of an engine, and queries are checked before Spark runs them."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import duckdb
import pytest

import tensortrial
from support.engine_contract import EngineContract, make_project
from support.missing import without
from tensortrial import queries
from tensortrial.engines.base import FilesView, RunFile
from tensortrial.engines.duckdb import DuckDBEngine
from tensortrial.errors import MissingExtra, QueryError, QueryRefused
from tensortrial.format.schema import INDEX_SCHEMA
from tensortrial.storage.open import open_storage


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_project(tmp_path_factory.mktemp("project"))


class TestDuckDB(EngineContract):
    @pytest.fixture
    def engine(self) -> DuckDBEngine:
        return DuckDBEngine()


@pytest.mark.parametrize(
    "query",
    [
        "select * from parquet.`/etc/x`",
        "select * from other.tensors",
        "select * from catalogue_files",
        "select * from catalogue.files",
        "with t as (select * from u) select * from t",
        "select (select max(x) from elsewhere) from tensors",
        "select * from tensors join range(10)",
        "select * from identifier('other')",
        "select reflect('java.lang.System', 'getenv', 'HOME') from tensors",
        "select java_method('java.lang.System', 'exit', 1) from tensors",
        "select try_reflect('java.lang.System', 'exit', 1) from tensors",
        "select transform(name) using 'cat' as (x string) from tensors",
        "insert into tensors select * from tensors",
        "set spark.sql.ansi.enabled = false",
        "select 1; drop view tensors",
        "add jar 'x.jar'",
        "cache table tensors",
        "describe tensors",
        "table elsewhere",
        "",
    ],
)
def test_what_is_no_select_on_the_views_never_reaches_spark(query: str) -> None:
    spark_sql = pytest.importorskip("tensortrial.engines.spark_sql", exc_type=ImportError)
    for dialect in ("duckdb", "spark"):
        with pytest.raises((QueryRefused, QueryError)):
            spark_sql.select(query, {"tensors"}, dialect)


def test_queries_are_translated_for_spark() -> None:
    spark_sql = pytest.importorskip("tensortrial.engines.spark_sql", exc_type=ImportError)
    query = "with t as (from tensors) select name, epoch_us(saved_at) from t where list_contains(collections, $c)"
    found = spark_sql.select(query, {"Tensors"}, "duckdb")
    assert found.views == {"tensors"}
    assert found.text == (
        "WITH t AS (SELECT * FROM tensors) SELECT name, UNIX_MICROS(CAST(saved_at AS TIMESTAMP)) FROM t "
        "WHERE ARRAY_CONTAINS(collections, :c)"
    )
    assert "FROM catalogue_steps AS steps" in spark_sql.translated(queries.load_view("steps"))
    assert "catalogue_tensors AS tensors UNPIVOT" in spark_sql.translated(queries.load_view("reductions"))


def test_spark_is_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "pyspark", again="tensortrial.engines.spark")
    without(monkeypatch, "sqlglot", again="tensortrial.engines.spark_sql")
    with pytest.raises(MissingExtra, match=r"tensortrial\[spark\]"):
        import tensortrial.engines.spark  # noqa: F401


def test_a_query_of_the_tensors_makes_one_view_over_their_files(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = next(path.parent for path in sorted(folder.rglob("run.json")))
    trial = tensortrial.create_trial(run)
    with caplog.at_level(logging.DEBUG, "tensortrial.engines.duckdb"):
        ((rows,),) = trial.sql("select count(*) from tensors").fetchall()
        made = [message for message in caplog.messages if "read_parquet" in message]
        assert [message.split(" as ")[0] for message in made] == ["create or replace view tensors"]
        caplog.clear()
        ((scalars,),) = trial.sql("select count(*) from scalars").fetchall()
    assert rows >= scalars
    made = [message for message in caplog.messages if "read_parquet" in message]
    assert [message.split(" as ")[0] for message in made] == ["create or replace view catalogue.tensors"]


def test_a_view_over_files_is_made_by_the_next_statement_if_it_could_not_be_made(folder: Path) -> None:
    run = next(path.parent for path in sorted(folder.rglob("run.json")))
    index = next(path for path in sorted(run.rglob("*.parquet")) if "index" in path.parts)
    file = RunFile(open_storage(run), index.relative_to(run).as_posix())
    database: Any = DuckDBEngine().connect([file.storage])
    database.make_files_view(FilesView("v", INDEX_SCHEMA), [file])
    database.execute("drop schema catalogue cascade")
    with pytest.raises(duckdb.Error, match="catalogue"):
        database.execute("from catalogue.v")
    database.execute("create schema catalogue")
    assert database.execute("select count(*) > 0 from catalogue.v").fetchall() == [(True,)]
