"""The interface of an export's target, and the targets by the scheme of their URLs."""

from __future__ import annotations

import difflib
import inspect
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, ClassVar, NamedTuple

import pyarrow as pa

from ..errors import ConfigurationError, ExportError
from ..format.arrow_arrays import with_decimals

LEDGER = "exports"
"""The table in which a target keeps what it holds: the last step of each table, worker and run."""

LEDGER_SCHEMA = pa.schema(
    [
        pa.field("run", pa.string(), nullable=False),
        pa.field("identity", pa.string(), nullable=False),
        pa.field("table_name", pa.string(), nullable=False),
        pa.field("worker", pa.string(), nullable=False),
        pa.field("last_step", pa.int64(), nullable=False),
        pa.field("row_count", pa.int64(), nullable=False),
        pa.field("exported_at", pa.timestamp("us", tz="UTC"), nullable=False),
    ]
)


class Position(NamedTuple):
    """One table and one worker of a run: its rows are exported in the order of global steps."""

    table: str
    worker: str


@dataclass(frozen=True)
class Held:
    """The content of a target that belongs to one run."""

    identity: str
    """The run's identity, which differs from that of another run of the same name."""
    last_step: Mapping[Position, int]
    """The last exported global step of each table and worker."""


@dataclass(frozen=True)
class Part:
    """Rows of one table that are exported together.

    They are those of one worker of one run, of the global steps after `after` and up to `last_step`.
    """

    table: str
    run: str
    identity: str
    worker: str
    after: int
    last_step: int
    schema: pa.Schema
    batches: Callable[[pa.Schema], Iterator[pa.RecordBatch]]
    """Returns the rows as batches of a schema with these columns; no batch is empty. Each call reads them again."""
    failures: list[Exception] = field(default_factory=list)
    """The errors of reading the rows. A library that consumes them may hide an error."""

    @property
    def name(self) -> str:
        """The same name for the same rows, so that rows written twice are recognised. It has digits and a dash only."""
        return f"{self.after + 1:012d}-{self.last_step:012d}"

    def reader(self, schema: pa.Schema | None = None) -> pa.RecordBatchReader:
        """Return the rows as one stream. `schema` has the same columns, with other types."""
        schema = schema or self.schema
        return pa.RecordBatchReader.from_batches(schema, self._noting_failures(schema))

    def _noting_failures(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        try:
            yield from self.batches(schema)
        except Exception as exc:
            self.failures.append(exc)
            raise


class Target(ABC):
    """The destination of an export. Its errors are ExportError, and never show a password.

    The rows of one `write` or `replace` are written completely or not at all, even if the process is killed, and `held`
    agrees with them.
    """

    derives: ClassVar[frozenset[str]] = frozenset()
    """Tables that the target derives from the table `tensors`, as views."""

    unsigned: ClassVar[bool] = False
    """Whether the target has unsigned integers of 64 bits. If not, it gets decimals of 20 digits in their place."""

    def schema_of(self, schema: pa.Schema) -> pa.Schema:
        """Return the schema of a table, in types that the target has.

        Args:
            schema: The columns as the tables of an export have them.

        Returns:
            The columns, in the same order.
        """
        return schema if self.unsigned else with_decimals(schema)

    @abstractmethod
    def prepare(self, tables: Mapping[str, pa.Schema]) -> None:
        """Create the tables that are missing.

        Args:
            tables: Schemas by the name of the table.

        Raises:
            TableMismatch: A table exists with other columns.
        """

    @abstractmethod
    def held(self, run: str) -> Held | None:
        """Return what the target holds of a run.

        Args:
            run: Name of the run in the target.

        Returns:
            Its identity and the last exported steps, or None if the target has no such run.
        """

    @abstractmethod
    def names(self) -> set[tuple[str, str]]:
        """Return the runs in the target.

        Returns:
            Pairs of the identity and the name of a run.
        """

    @abstractmethod
    def write(self, part: Part) -> int:
        """Add the rows of a part, if any, and record its last step.

        Args:
            part: The rows.

        Returns:
            The number of rows.
        """

    @abstractmethod
    def replace(self, table: str, run: str, rows: pa.Table) -> None:
        """Replace all rows that a small table has of a run.

        Args:
            table: Name of the table.
            run: Name of the run in the target.
            rows: Rows that take their place.
        """

    @abstractmethod
    def close(self) -> None:
        """Close connections and files."""


_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]+):")

# By the scheme of the URL: the module of this package, and its class.
_TARGETS: dict[str, tuple[str, str]] = {
    "bigquery": ("bigquery", "BigQuery"),
    "csv": ("csv_folder", "CSVFolder"),
    "delta": ("delta", "DeltaLake"),
    "duckdb": ("duckdb_file", "DuckDBFile"),
    "iceberg": ("iceberg", "Iceberg"),
    "parquet": ("parquet_folder", "ParquetFolder"),
    "postgres": ("postgresql", "PostgreSQL"),
    "postgresql": ("postgresql", "PostgreSQL"),
    "snowflake": ("snowflake", "Snowflake"),
    "tensorboard": ("tensorboard", "TensorBoardFolder"),
}


def open_target(url: str, options: Mapping[str, Any]) -> Target:
    """Open the target at a URL such as `duckdb:///runs.duckdb`, or at a plain path that ends with `.duckdb`.

    Raises:
        ExportError: The URL is not one of a target, or the target cannot be reached.
        ConfigurationError: The target has no such option.
    """
    found = _SCHEME.match(url)
    scheme = found[1].lower() if found else ""
    if scheme not in _TARGETS and "://" not in url and url.endswith(".duckdb"):
        scheme, url = "duckdb", f"duckdb:{url}"
    if scheme not in _TARGETS:
        near = difflib.get_close_matches(scheme, _TARGETS, 1) or sorted(_TARGETS)
        raise ExportError(shown(url), f"unknown target: the URL of a target begins with {_or(near)}")
    module, name = _TARGETS[scheme]
    kind: Callable[..., Target] = getattr(import_module(f".targets.{module}", __package__), name)
    _check_options(scheme, kind, options)
    return kind(url, **options)


def _check_options(scheme: str, kind: Callable[..., Target], options: Mapping[str, Any]) -> None:
    parameters = list(inspect.signature(kind).parameters.values())[1:]
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return
    known = [parameter.name for parameter in parameters]
    for option in options:
        if option not in known:
            accepted = f"it has {', '.join(known)}" if known else "it has none"
            raise ConfigurationError(f"{scheme}: has no option {option!r}; {accepted}")


def differences(wanted: Mapping[str, str], found: Mapping[str, str]) -> list[str]:
    """Return how the columns of a table differ from the wanted ones, a line each. Both map names to types."""
    lines = [f"- {name} {kind}: is missing" for name, kind in wanted.items() if name not in found]
    lines += [f"+ {name} {kind}: is not expected" for name, kind in found.items() if name not in wanted]
    return lines + [
        f"! {name}: is {found[name]}, and not {kind}"
        for name, kind in wanted.items()
        if name in found and found[name] != kind
    ]


def _or(schemes: list[str]) -> str:
    return " or ".join(f"{scheme}:" for scheme in schemes)


def shown(url: str) -> str:
    """Return the URL without what may be secret."""
    scheme, colon, rest = url.partition("://")
    if not colon:
        return url
    server, slash, path = rest.partition("/")
    if "@" in path or "?" in server or "#" in server:
        # It may be a password with such a sign in it, whose end cannot be found.
        return f"{scheme}://…"
    return f"{scheme}://{server.rpartition('@')[2]}{slash}{path.partition('?')[0]}"
