"""Apache Spark keeps what an engine promises: on a cluster of two worker processes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import tensortrial
from support.engine_contract import NAMES, EngineContract, make_project
from support.runs import Job
from tensortrial.engines.spark import SparkEngine
from tensortrial.errors import ConfigurationError, QueryRefused


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    os.environ.update(SPARK_LOCAL_IP="127.0.0.1", PYSPARK_PYTHON=sys.executable)
    builder = SparkSession.builder.master("local-cluster[2,1,1024]").config("spark.ui.enabled", "false")
    session = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_project(tmp_path_factory.mktemp("project"))


class TestSpark(EngineContract):
    @pytest.fixture
    def engine(self, spark: SparkSession) -> SparkEngine:
        return SparkEngine(spark)

    def test_the_session_stays_as_it_was(self, spark: SparkSession, engine: SparkEngine, folder: Path) -> None:
        spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
        trials = [tensortrial.create_trial(folder / name, engine=engine) for name in NAMES]
        assert [trial.sql("select count(*) from findings").fetchall() for trial in trials] == [[(1,)], [(0,)]]
        assert spark.catalog.listTables() == []
        assert spark.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"
        for trial in trials:
            trial.close()

    def test_queries_of_its_own_dialect(self, spark: SparkSession, folder: Path) -> None:
        trial = tensortrial.create_trial(folder / NAMES[0], engine=SparkEngine(spark, dialect="spark"))
        assert trial.sql(
            "select size(collect_set(name)) as n from tensors where name = :name", {"name": "loss"}
        ).fetchall() == [(1,)]
        with pytest.raises(QueryRefused):
            trial.sql(f"select * from parquet.`{folder}`")
        # What names a variable of the environment is text.
        assert trial.sql("select distinct '${env:PATH}' as x from tensors").fetchall() == [("${env:PATH}",)]
        trial.close()

    def test_what_it_cannot_do(self, spark: SparkSession) -> None:
        with pytest.raises(ConfigurationError, match="dialect"):
            SparkEngine(spark, dialect="basic")
        job = Job("memory://spark/run")
        job.step({"x": 1.0})
        job.close()
        with pytest.raises(ConfigurationError, match="Spark cannot read memory://"):
            tensortrial.create_trial("memory://spark/run", engine=SparkEngine(spark)).sql("from tensors")
