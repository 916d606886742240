"""Named queries on Apache Spark, over the tables that an export makes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from asked_runs import Rows, answers, same_rows, write_runs
from pyspark.sql import SparkSession

import tensortrial

Answers = dict[str, tuple[dict[str, Any], Rows]]


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
def asked(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """What each query must answer; the runs are tables of the session."""
    folder = tmp_path_factory.mktemp("runs")
    saved = write_runs(folder)
    runs = tensortrial.open_runs(folder)
    for view in ("runs", "tensors", "scalars", "steps"):
        spark.createDataFrame(runs.sql(f"select * from {view}").to_arrow_table()).createOrReplaceTempView(view)
    return answers(saved)


@pytest.mark.parametrize("name", sorted(tensortrial.list_queries()))
def test_on_spark(name: str, spark: SparkSession, asked: Answers) -> None:
    parameters, expected = asked[name]
    found = [tuple(row) for row in spark.sql(tensortrial.query_text(name, "spark", **parameters)).collect()]
    assert same_rows(found, expected), found
