"""What a target of an export must be able to do, and how a target is found by its URL."""

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

LEDGER = "exports"
"""The table in which a target notes what it holds."""

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
    """Which rows of a run a target has been given: those of one table and worker up to a global step."""

    table: str
    worker: str


@dataclass(frozen=True)
class Held:
    """What a target holds of one run."""

    identity: str
    """Tells the run from another of the same name."""
    last_step: Mapping[Position, int]
    """The last global step of each table and worker that is there."""


@dataclass(frozen=True)
class Part:
    """Rows of one table that are exported together: those of one worker of one run, of the global steps after
    `after` and up to `last_step`."""

    table: str
    run: str
    identity: str
    worker: str
    after: int
    last_step: int
    schema: pa.Schema
    batches: Callable[[pa.Schema], Iterator[pa.RecordBatch]]
    """Reads the rows, anew each time it is called, as batches of a schema with these columns; never one of no rows."""
    failures: list[Exception] = field(default_factory=list)
    """What reading them came to, where the code that asked for them could not pass it on."""

    @property
    def name(self) -> str:
        """The same for the same rows, so that what was written twice can be told: digits alone."""
        return f"{self.after + 1:012d}-{self.last_step:012d}"

    def reader(self, schema: pa.Schema | None = None) -> pa.RecordBatchReader:
        """The rows as one stream, for libraries that take one. `schema` asks for other types of the same columns."""
        schema = schema or self.schema
        return pa.RecordBatchReader.from_batches(schema, self._noting_failures(schema))

    def _noting_failures(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        try:
            yield from self.batches(schema)
        except Exception as exc:
            self.failures.append(exc)
            raise


class Target(ABC):
    """Where runs are exported to. Errors are ExportError, and never show a password.

    What `write` and `replace` were given is there whole, or not at all, whatever kills the process; and what `held`
    says is there is there.
    """

    derives: ClassVar[frozenset[str]] = frozenset()
    """Tables that the target makes itself, as views of the table `tensors`."""

    @abstractmethod
    def prepare(self, tables: Mapping[str, pa.Schema]) -> None:
        """Create the tables that are missing. Raises TableMismatch for one that is there with other columns."""

    @abstractmethod
    def held(self, run: str) -> Held | None:
        """What is there of a run; None for nothing."""

    @abstractmethod
    def names(self) -> set[tuple[str, str]]:
        """The identity of each run of which anything is there, and the name that it has there."""

    @abstractmethod
    def write(self, part: Part) -> int:
        """Add the rows of a part, and note that they are there, also if there are none. Gives their number."""

    @abstractmethod
    def replace(self, table: str, run: str, rows: pa.Table) -> None:
        """Put `rows` in the place of all that a small table holds of the run."""

    @abstractmethod
    def close(self) -> None:
        """Release what is held open."""


_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]+):")

# By the scheme of the URL: the module beside this one, and its class.
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
    """The target at a URL such as `duckdb:///runs.duckdb`; a plain path that ends with `.duckdb` is one too. Raises
    ExportError for what is no target, or cannot be reached, and ConfigurationError for an option that it has not."""
    found = _SCHEME.match(url)
    scheme = found[1].lower() if found else ""
    if not scheme and url.endswith(".duckdb"):
        scheme, url = "duckdb", f"duckdb:{url}"
    if scheme not in _TARGETS:
        near = difflib.get_close_matches(scheme, _TARGETS, 1) or sorted(_TARGETS)
        raise ExportError(shown(url), f"this is no target of an export: its URL begins with {_or(near)}")
    module, name = _TARGETS[scheme]
    kind: Callable[..., Target] = getattr(import_module(f".{module}", __package__), name)
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
    """What tells the columns of a table from those that are wanted, a line each; both map names to types."""
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
    """The URL without what may be secret."""
    scheme, colon, rest = url.partition("://")
    if not colon:
        return url
    server, slash, path = rest.partition("/")
    if "@" in path or "?" in server or "#" in server:
        # A password with such a sign in it, perhaps: there is no telling where it ends.
        return f"{scheme}://…"
    return f"{scheme}://{server.rpartition('@')[2]}{slash}{path.partition('?')[0]}"
