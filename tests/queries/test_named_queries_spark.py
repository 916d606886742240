"""Named queries on Apache Spark: over the tables that an export makes, and with Spark as the engine of opened runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import tensortrial
from support.queried_runs import Rows, answers, same_rows, write_runs
from tensortrial.engines.spark import SparkEngine

Answers = dict[str, tuple[dict[str, Any], Rows]]
QUERIES = sorted(tensortrial.list_queries())


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    os.environ.update(SPARK_LOCAL_IP="127.0.0.1", PYSPARK_PYTHON=sys.executable)
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    session = (
        builder.config("spark.sql.session.timeZone", "UTC").config("spark.sql.shuffle.partitions", "2").getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Answers]:
    """The folder of the runs, and what each query must answer."""
    folder = tmp_path_factory.mktemp("runs")
    return folder, answers(write_runs(folder))


@pytest.fixture(scope="module")
def tables(spark: SparkSession, asked: tuple[Path, Answers]) -> SparkSession:
    """A session that has the runs as tables."""
    runs = tensortrial.open_runs(asked[0])
    for view in ("runs", "tensors", "scalars", "steps"):
        # Spark has no unsigned integers.
        signed = "replace (cast(digest as decimal(20, 0)) as digest)" if view == "tensors" else ""
        table = runs.sql(f"select * {signed} from {view}").to_arrow_table()
        spark.createDataFrame(table).createOrReplaceTempView(view)
    return spark


@pytest.fixture(scope="module")
def runs(spark: SparkSession, asked: tuple[Path, Answers]) -> tensortrial.Runs:
    """The runs where they lie, with Spark as their engine."""
    return tensortrial.open_runs(asked[0], engine=SparkEngine(spark))


@pytest.mark.parametrize("name", QUERIES)
def test_over_tables(name: str, tables: SparkSession, asked: tuple[Path, Answers]) -> None:
    parameters, expected = asked[1][name]
    found = [tuple(row) for row in tables.sql(tensortrial.query_text(name, "spark", **parameters)).collect()]
    assert same_rows(found, expected), found


@pytest.mark.parametrize("name", QUERIES)
def test_as_the_engine(name: str, runs: tensortrial.Runs, asked: tuple[Path, Answers]) -> None:
    parameters, expected = asked[1][name]
    found = tensortrial.query(runs, name, **parameters).fetchall()
    assert same_rows(found, expected), found
