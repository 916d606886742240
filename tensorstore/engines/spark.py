"""The engine for clusters, Apache Spark."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import pyarrow as pa

from tensortrial.queries import load_view

from ..errors import ConfigurationError, QueryError, QueryTimeout, RunClosed, importing
from ..format.arrow_arrays import with_decimals
from ..snapshot.snapshot import repeated
from ..storage.open import Storage
from . import spark_sql
from .base import LEFT_OUT, Answer, Database, FilesView, Rows, RunFile, UnreadableFile, UserQuery, rows_of
from .interrupting import DeadlinePassed, interruptible

with importing("pyspark", "spark", "SparkEngine"):
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import functions as sql_functions

_SCHEMES = {"file", "s3", "s3a", "gs", "hdfs", "abfs", "abfss"}
_SETTINGS = {
    # Texts and parts of times, such as hours, are those of the session's zone.
    "spark.sql.session.timeZone": "UTC",
    # Otherwise a query could read the environment of the driver: ${env:…}.
    "spark.sql.variable.substitute": "false",
}
# Spark treats the names of files as patterns.
_PATTERN = str.maketrans({sign: f"\\{sign}" for sign in "\\*?[]{}"})

# Spark escapes URIs, but not a plus, which url_decode would turn into a blank.
_FILE = "regexp_replace(url_decode(replace(_metadata.file_path, '+', '%2B')), '^file:/+', 'file:/')"


class SparkEngine:
    """An engine that runs queries in a Spark session, without changing the session.

    Everything but a SELECT on the views is refused before Spark sees it; Spark itself cannot be locked as DuckDB can
    (docs/scale.md).

    Args:
        spark: The session.
        dialect: The SQL of users' queries: "duckdb", so that a query is the same on both engines, or "spark".

    Raises:
        ConfigurationError: The dialect is neither.
    """

    def __init__(self, spark: SparkSession, dialect: str = "duckdb") -> None:
        if dialect not in ("duckdb", "spark"):
            raise ConfigurationError(f"SparkEngine's dialect must be 'duckdb' or 'spark', got {dialect!r}")
        self._spark = spark
        self._dialect = dialect
        self._process = os.getpid()

    def __reduce__(self) -> tuple[Any, ...]:
        raise ConfigurationError(
            "a Spark session belongs to one process: pass the path of the run to the other one, and open it there"
        )

    def __deepcopy__(self, memo: Any) -> SparkEngine:
        return self

    def connect(self, storages: Sequence[Storage]) -> Database:
        """Return a database whose views are invisible to the session.

        Args:
            storages: The runs that it can read.

        Returns:
            The database.

        Raises:
            ConfigurationError: Spark cannot read a run, such as one of memory://.
        """
        if os.getpid() != self._process:
            raise ConfigurationError(
                "this SparkEngine belongs to the process that forked: make one with a session of this process"
            )
        for storage in storages:
            _uri(storage, "")
        return SparkDatabase(self._spark.newSession(), self._dialect)


class SparkAnswer(Answer):
    """The rows of a query, as an Arrow table with some methods of DuckDB's relations."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    @property
    def columns(self) -> list[str]:
        return list(self._table.column_names)

    def to_arrow_table(self) -> pa.Table:
        return self._table

    def fetchall(self) -> Rows:
        return rows_of(self._table)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self.fetchall())

    def df(self) -> Any:
        """Return a pandas DataFrame."""
        return self._table.to_pandas()

    def __repr__(self) -> str:
        return repr(self._table)


class SparkDatabase(Database):
    """Temporary views in a session. The small tables are kept as Arrow tables, and passed to Spark before a query."""

    def __init__(self, session: SparkSession, dialect: str) -> None:
        self._session = session
        self._dialect = dialect
        self._closed = False
        self._tables: dict[str, pa.Table] = {}
        self._changed: set[str] = set()
        self._views: set[str] = set()
        for name, value in _SETTINGS.items():
            session.conf.set(name, value)

    # Small tables.

    def put(self, table: str, rows: pa.Table) -> None:
        self._tables[table] = rows
        self._changed.add(table)

    def _send_tables(self) -> None:
        for table in self._changed & set(self._tables):
            frame = self._session.createDataFrame(self._tables[table].combine_chunks())
            frame.createOrReplaceTempView(f"catalogue_{table}")
        self._changed.clear()

    # Queries.

    def parse(self, query: str, views: Collection[str]) -> UserQuery:
        if self._closed:
            raise RunClosed
        return spark_sql.select(query, views, self._dialect)

    def run(
        self,
        query: UserQuery,
        parameters: dict[str, Any] | None = None,
        timeout: float | None = None,
        remade: Callable[[], bool] = lambda: False,
    ) -> SparkAnswer:
        # The query has a job group of its own, so that canceling it cancels no other job of the session.
        context, group = self._session.sparkContext, f"tensortrial-{uuid.uuid4().hex}"

        def run() -> pa.Table:
            context.setJobGroup(group, "a query of tensortrial", interruptOnCancel=True)
            return self._run(query.text, parameters)

        try:
            stop = partial(context.cancelJobGroup, group)
            return SparkAnswer(repeated(lambda: interruptible(run, stop, timeout), remade))
        except DeadlinePassed as exc:
            assert timeout is not None
            raise QueryTimeout(timeout) from exc

    def _run(self, text: str, parameters: dict[str, Any] | None) -> pa.Table:
        if self._closed:
            raise RunClosed
        self._send_tables()
        with _translated():
            return self._session.sql(text, args=parameters or None).toArrow()

    # Views.

    def make_view(self, view: str, with_run: bool) -> None:
        self._send_tables()
        frame = self._session.sql(spark_sql.translated(load_view(view)))
        self._register(view, frame if with_run else frame.drop("run"))

    def make_files_view(self, view: FilesView, files: Sequence[RunFile]) -> None:
        frame = self._files(view, files)
        # An expression is not pushed into the scan, which would miss -0.0 in a dictionary when it searches for 0.0.
        floats = [field.name for field in view.schema if pa.types.is_floating(field.type)]
        frame = frame.withColumns({name: frame[name] * 1.0 for name in floats})
        if view.first is not None:
            frame = frame.where(frame[view.step] >= view.first)
        if view.end is not None:
            frame = frame.where(frame[view.step] < view.end)
        self._register(f"catalogue_{view.name}", frame)

    def _register(self, name: str, frame: DataFrame) -> None:
        frame.createOrReplaceTempView(name)
        self._views.add(name)

    def _files(self, view: FilesView, files: Sequence[RunFile]) -> DataFrame:
        schema = self._session.createDataFrame(with_decimals(view.schema).empty_table()).schema
        if files:
            uris = [_uri(file.storage, file.path) for file in files]
            with _translated():
                frame = self._session.read.schema(schema).parquet(*(uri.translate(_PATTERN) for uri in uris))
        else:
            frame = self._session.createDataFrame([], schema)
        runs = sorted({file.run for file in files})
        if len(runs) < 2 and view.left_out is None:
            return frame.select(sql_functions.lit("".join(runs)).alias("run"), "*")
        columns = {
            "file": [uri.replace("file:///", "file:/", 1) for uri in uris],  # as in Spark's `_metadata.file_path`
            "run": [file.run for file in files],
            "path": [file.path for file in files],
        }
        of_file = sql_functions.broadcast(self._session.createDataFrame(pa.table(columns)))
        joined = frame.withColumns(
            {"file": sql_functions.expr(_FILE), "row_of_file": sql_functions.expr("_metadata.row_index")}
        ).join(of_file, "file")
        if view.left_out is not None:
            left_out = self._session.createDataFrame(view.left_out)
            joined = joined.join(left_out, LEFT_OUT.names, "left_anti")
        return joined.select("run", *view.schema.names)

    def close(self) -> None:
        for view in (*self._views, *(f"catalogue_{table}" for table in self._tables)):
            self._session.catalog.dropTempView(view)
        self._tables.clear()
        self._views.clear()
        self._closed = True


@contextmanager
def _translated() -> Iterator[None]:
    """Raise UnreadableFile or QueryError for an error of Spark in the block."""
    try:
        yield
    except (PySparkException, Py4JError) as exc:
        said = str(exc)
        is_missing = "FILE_NOT_EXIST" in said or "PATH_NOT_FOUND" in said
        raise (UnreadableFile if is_missing else QueryError)(said) from exc


def _uri(storage: Storage, path: str) -> str:
    """Return a file's URI for Spark."""
    if storage.is_local:
        return f"file://{storage.url}/{path}"
    scheme, _, rest = storage.url.partition("://")
    if scheme not in _SCHEMES:
        raise ConfigurationError(f"Spark cannot read {storage.url}; copy the run to a disk or an object store")
    # Hadoop's scheme for S3 is s3a.
    return f"{'s3a' if scheme == 's3' else scheme}://{rest}/{path}"
