"""The interface of targets, and the known targets by the scheme of their URLs."""

from __future__ import annotations

import difflib
import inspect
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import chain
from typing import Any, ClassVar, NamedTuple

import pyarrow as pa

from ..errors import ConfigurationError, ExportError, TableMismatch
from ..format.arrow_arrays import with_decimals
from ..format.run_files import check_outside_runs

LEDGER = "exports"
"""The table in which a target lists its content: a row for each part, and for each small table of a run."""

LEDGER_SCHEMA = pa.schema(
    [
        pa.field("run", pa.string(), nullable=False),
        pa.field("identity", pa.string(), nullable=False),
        pa.field("table_name", pa.string(), nullable=False),
        pa.field("worker", pa.string(), nullable=False),
        pa.field("last_step", pa.int64(), nullable=False),
        pa.field("row_count", pa.int64(), nullable=False),
        pa.field("exported_at", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("digest", pa.string(), nullable=False),
    ]
)


class Position(NamedTuple):
    """One table and one worker of a run, whose rows are exported in the order of global steps."""

    table: str
    worker: str


@dataclass(frozen=True)
class Held:
    """The content of a target for one run."""

    identity: str
    """The identity of the run, which tells it from another run of the same name."""
    digests: dict[Position, dict[int, str]]
    """The last global steps of exported parts, with the digest of all steps up to there, by table and worker.

    At least the last part is listed. A small table has its own digest at step -1, and no worker.
    """


@dataclass
class Part:
    """Rows of one table that are exported together.

    The rows are of one worker of one run, with global steps above `after` and up to `last_step`. They replace the
    target's rows above `after`, whose last step is `held`. It is above `after` if the run has gone back.
    """

    table: str
    run: str
    identity: str
    worker: str
    held: int
    after: int
    last_step: int
    digest: str
    """The digest of the worker's steps up to `last_step`."""
    schema: pa.Schema
    batches: Callable[[pa.Schema], Iterator[pa.RecordBatch]]
    """Returns the rows as batches of a schema with these columns; no batch is empty. Each call reads them again."""
    names: Callable[[], Collection[str]] = frozenset
    """Returns the names of all tensors of the run."""
    index_rows: int = 0
    """The number of index rows in the part."""
    count: int = 0
    """The number of rows that were read."""
    failure: Exception | None = None
    """The error of reading the rows, which a library that consumes them may hide."""

    @property
    def name(self) -> str:
        """The name of the rows, by which rows that are written twice are recognized. It has digits and a dash only."""
        return f"{self.after + 1:012d}-{self.last_step:012d}"

    @property
    def goes_back(self) -> bool:
        """True if the part replaces rows of the target."""
        return self.held > self.after

    def read(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the rows as batches of a schema, and count them."""
        self.count = 0
        try:
            for batch in self.batches(schema):
                self.count += batch.num_rows
                yield batch
        except Exception as exc:
            self.failure = exc
            raise


def reader_of(parts: Sequence[Part], schema: pa.Schema | None = None) -> pa.RecordBatchReader:
    """Return the rows of parts of one table as one stream of `schema`: their columns, in the target's types."""
    schema = schema or parts[0].schema
    return pa.RecordBatchReader.from_batches(schema, chain.from_iterable(part.read(schema) for part in parts))


_PARTS = 64
"""The most parts that a target without a ledger table remembers."""


def with_part(exported: Mapping[int, str], part: Part) -> dict[int, str]:
    """Return the last steps of parts with their digests after `part` is written.

    If there are many, every second earlier one is dropped. A run that goes back far is exported again from an earlier
    one.
    """
    steps = sorted(step for step in exported if step <= part.after)
    if len(steps) >= _PARTS:
        steps = steps[: _PARTS // 2 : 2] + steps[_PARTS // 2 :]
    return {step: exported[step] for step in steps} | {part.last_step: part.digest}


@dataclass(frozen=True)
class Replacement:
    """All rows of a run in a small table."""

    run: str
    identity: str
    rows: pa.Table
    digest: str


class Target(ABC):
    """The destination of an export. Its errors are ExportError, and never show a password.

    The rows of a part or a replacement are written completely or not at all, even if the process is killed, and `held`
    always corresponds to them.
    """

    _name: str
    """The name of the target in messages, without secrets."""

    derives: ClassVar[frozenset[str]] = frozenset()
    """Tables that the target derives from the table `tensors`, as views."""

    unsigned: ClassVar[bool] = False
    """True if the target has unsigned 64-bit integers. If not, it receives decimals of 20 digits instead."""

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
    def held(self, runs: Sequence[str]) -> dict[str, Held]:
        """Return the target's content of some runs.

        Args:
            runs: Names of the runs in the target.

        Returns:
            The identity and the exported steps of each run in the target, by its name.
        """

    @abstractmethod
    def names(self) -> set[tuple[str, str]]:
        """Return the runs in the target.

        Returns:
            Pairs of the identity and the name of a run.
        """

    @abstractmethod
    def write(self, parts: Sequence[Part]) -> None:
        """Add the rows of parts, if any, and record their last steps. Rows of the target after `after` are deleted.

        Args:
            parts: Parts of one table.
        """

    @abstractmethod
    def replace(self, table: str, replacements: Sequence[Replacement]) -> None:
        """Replace all rows that a small table has of some runs.

        Args:
            table: Name of the table.
            replacements: The rows that take their place.
        """

    def rows(self, table: str, run: str) -> pa.Table | None:
        """Return the rows of a run in a small table.

        Args:
            table: Name of the table.
            run: Name of the run in the target.

        Returns:
            The rows; None if the target cannot return them exactly, so that they are computed from the whole run.
        """
        return None

    @abstractmethod
    def remove(self, run: str) -> None:
        """Delete all rows of a run and its entry in the ledger.

        Args:
            run: Name of the run in the target.
        """

    def close(self) -> None:  # noqa: B027 - most targets of files have nothing open
        """Close connections and files, if any are open."""

    def _check_columns(self, table: str, wanted: Mapping[str, str], found: Mapping[str, str]) -> None:
        """Raise TableMismatch unless a table has the wanted columns. Both mappings are of names to types."""
        lines = [f"- {name} {kind}: is missing" for name, kind in wanted.items() if name not in found]
        lines += [f"+ {name} {kind}: is not expected" for name, kind in found.items() if name not in wanted]
        lines += [
            f"! {name}: is {found[name]}, and not {kind}"
            for name, kind in wanted.items()
            if name in found and found[name] != kind
        ]
        if lines:
            raise TableMismatch(self._name, table, lines)

    def _is_under_way(self, run: str = "") -> ExportError:
        return ExportError(self._name, is_under_way(run))


_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]+):")

# The module in this package and the class of each target, by the scheme of its URL.
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


_IN_FILES = ("csv", "delta", "duckdb", "iceberg", "parquet", "tensorboard")


def open_target(url: str, options: Mapping[str, Any], runs: Iterable[str] = ()) -> Target:
    """Open the target at a URL such as `duckdb:///runs.duckdb`, or at a plain path that ends with `.duckdb`.

    Raises:
        ExportError: The URL is not one of a target, or the target cannot be reached.
        ConfigurationError: The target has no such option, or is among the files of a run, such as one of `runs`.
    """
    found = _SCHEME.match(url)
    scheme = found[1].lower() if found else ""
    if scheme not in _TARGETS and "://" not in url and url.endswith(".duckdb"):
        scheme, url = "duckdb", f"duckdb:{url}"
    if scheme not in _TARGETS:
        near = difflib.get_close_matches(scheme, _TARGETS, 1) or sorted(_TARGETS)
        begins = " or ".join(f"{each}:" for each in near)
        raise ExportError(shown(url), f"unknown target: the URL of a target begins with {begins}")
    module, name = _TARGETS[scheme]
    kind: Callable[..., Target] = getattr(import_module(f".targets.{module}", __package__), name)
    _check_options(scheme, kind, options)
    if scheme in _IN_FILES:
        address = url.partition(":")[2].removeprefix("sqlite:/").removeprefix("//")
        for place in filter(None, (address, options.get("warehouse"))):
            check_outside_runs(place, runs)
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


def is_under_way(run: str = "") -> str:
    """Return the message for rows that do not follow the last exported ones: another export wrote meanwhile."""
    return f"another export{f' of {run}' if run else ''} is under way; export again once it is done"


def shown(url: str) -> str:
    """Return the URL without its password and other secrets."""
    scheme, colon, rest = url.partition("://")
    if not colon:
        return url
    server, slash, path = rest.partition("/")
    if "@" in path or "?" in server or "#" in server:
        # The end of a password that contains such a character cannot be found.
        return f"{scheme}://…"
    return f"{scheme}://{server.rpartition('@')[2]}{slash}{path.partition('?')[0]}"
