"""The export into Apache Iceberg.

Its URL is `iceberg:NAME`, for a catalogue of pyiceberg's configuration, or `iceberg:sqlite:///catalogue.db`.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa

from ...errors import ExportError, MissingExtra, TableMismatch
from .. import urls
from ..tables import GROWING, SCHEMAS, encoded
from ..target import Held, Part, Position, Target, differences, shown
from .iceberg_catalogue import open_catalogue, secrets
from .parquet_file import write_parquet

try:
    import sqlalchemy.exc
    from pyiceberg import exceptions as refused
    from pyiceberg.expressions import BooleanExpression, EqualTo, Reference
    from pyiceberg.expressions.literals import literal
    from pyiceberg.table import Table
except ModuleNotFoundError as exc:
    raise MissingExtra("pyiceberg", "warehouse", "an export into Iceberg") from exc

_NOTE = "tensortrial."
"""The prefix of the table property that says what the table holds of a run; the run's name follows."""

# pyiceberg repeats a commit that conflicts with another one, which may have the same rows: it must be refused.
# Bounds of `run` are kept whole, so that the rows of one run are replaced without reading the files of others.
# Bounds of floating-point numbers, which leave NaN out, are not kept.
_FLOATS = {field.name for schema in SCHEMAS.values() for field in schema if pa.types.is_floating(field.type)}
_PROPERTIES = {
    "commit.retry.num-retries": "0",
    "write.metadata.metrics.column.run": "full",
    **{f"write.metadata.metrics.column.{name}": "counts" for name in sorted(_FLOATS)},
}


class Iceberg(Target):
    """A namespace of an Iceberg catalogue.

    A property of each table says what it holds of a run, and changes in the same commit as its rows. `namespace` is
    where the tables are, `warehouse` where a new catalogue keeps its files. Other options are the catalogue's own, as
    pyiceberg has them.
    """

    def __init__(self, url: str, *, namespace: str = "tensortrial", warehouse: str = "", **properties: Any) -> None:
        address = url.partition(":")[2]
        self._name = f"iceberg:{shown(address)}"
        self._namespace = namespace
        self._secrets = secrets(address, properties) + urls.secrets(urlsplit(warehouse))
        with self._translated():
            self._catalogue = open_catalogue(address, warehouse, properties)
            self._catalogue.create_namespace_if_not_exists(namespace)

    def prepare(self, tables: Mapping[str, pa.Schema]) -> None:
        for table, schema in tables.items():
            with self._translated():
                made = self._catalogue.create_table_if_not_exists(
                    (self._namespace, table), schema, properties=_PROPERTIES
                )
            found = {field.name: _kind(field.type) for field in made.schema().as_arrow()}
            if difference := differences({field.name: _kind(field.type) for field in schema}, found):
                raise TableMismatch(self._name, table, difference)
            if missing := {key: value for key, value in _PROPERTIES.items() if made.properties.get(key) != value}:
                with self._translated(), made.transaction() as transaction:
                    transaction.set_properties(missing)

    def held(self, run: str) -> Held | None:
        notes = {table: self._note(table, run) for table in GROWING}
        identities = [note["identity"] for note in notes.values() if note]
        if not identities:
            return None
        last_step = {
            Position(table, worker): last
            for table, note in notes.items()
            for worker, last in note.get("last_step", {}).items()
        }
        return Held(identities[0], last_step)

    def names(self) -> set[tuple[str, str]]:
        with self._translated():
            return {
                (json.loads(value)["identity"], key.removeprefix(_NOTE))
                for table in GROWING
                if self._catalogue.table_exists((self._namespace, table))
                for key, value in self._table(table).properties.items()
                if key.startswith(_NOTE)
            }

    def _note(self, table: str, run: str) -> dict[str, Any]:
        with self._translated():
            if not self._catalogue.table_exists((self._namespace, table)):
                return {}
            note: dict[str, Any] = json.loads(self._table(table).properties.get(_NOTE + run, "{}"))
            return note

    def write(self, part: Part) -> int:
        with self._translated():
            table = self._table(part.table)
            note = json.loads(table.properties.get(_NOTE + part.run, "{}"))
            last_step = note.get("last_step", {})
            if last_step.get(part.worker, -1) != part.after:
                raise self._is_under_way()
            last_step[part.worker] = part.last_step
            changed = json.dumps({"identity": part.identity, "last_step": last_step})
            add = _register if _takes_files(table) else _append
            return add(table, part, {_NOTE + part.run: changed})

    def replace(self, table: str, run: str, rows: pa.Table) -> None:
        with self._translated():
            found = self._table(table)
            held = len(found.scan(_is(run), selected_fields=("run",)).to_arrow()) > 0
            replace = _replace_file if _takes_files(found) else _replace_rows
            replace(found, run, rows, held)

    def close(self) -> None:
        with self._translated():
            self._catalogue.close()

    def _table(self, table: str) -> Table:
        return self._catalogue.load_table((self._namespace, table))

    def _is_under_way(self) -> ExportError:
        return ExportError(self._name, "another export is under way; export again once it is done")

    @cached_property
    def _errors(self) -> tuple[type[Exception], ...]:
        of_catalogue = [
            each for each in vars(refused).values() if isinstance(each, type) and issubclass(each, Exception)
        ]
        return (*of_catalogue, sqlalchemy.exc.SQLAlchemyError, OSError, ValueError)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (ExportError, MissingExtra):
            raise
        except refused.CommitFailedException as exc:
            raise self._is_under_way() from exc
        except self._errors as exc:
            said = str(exc.orig if isinstance(exc, sqlalchemy.exc.DBAPIError) else exc)
            # Not `from` the error, whose text may hold a password.
            raise ExportError(self._name, urls.without(self._secrets, said)) from None


def _takes_files(table: Table) -> bool:
    """Return whether every file with rows of one run lies in one partition, which its statistics name."""
    run = table.schema().find_field("run").field_id
    return all(field.source_id == run and field.transform.preserves_order for field in table.spec().fields)


def _register(table: Table, part: Part, note: dict[str, str]) -> int:
    """Write the rows into a file of the table, and add the file as it is."""
    with _data_file(table, part.schema, part.reader) as (path, count), table.transaction() as transaction:
        if count:
            transaction.add_files([path], check_duplicate_files=False)
        transaction.set_properties(note)
    return count


def _append(table: Table, part: Part, note: dict[str, str]) -> int:
    """Let pyiceberg write the rows, from memory, into as many files as there are partitions."""
    rows = part.reader().read_all()
    with table.transaction() as transaction:
        if len(rows):
            transaction.append(rows)
        transaction.set_properties(note)
    return len(rows)


def _replace_file(table: Table, run: str, rows: pa.Table, held: bool) -> None:
    """Replace the rows of a run, if any are `held`, by a file with these rows."""
    with (
        _data_file(table, rows.schema, lambda schema: rows.cast(schema).to_reader()) as (path, count),
        table.transaction() as transaction,
    ):
        if held:
            transaction.delete(_is(run))
        if count:
            transaction.add_files([path], check_duplicate_files=False)


def _replace_rows(table: Table, run: str, rows: pa.Table, held: bool) -> None:
    """Replace the rows of a run in a table with partitions."""
    if held:
        table.overwrite(rows, _is(run))
    elif len(rows):
        table.append(rows)


@contextmanager
def _data_file(
    table: Table, rows: pa.Schema, reader: Callable[[pa.Schema], pa.RecordBatchReader]
) -> Iterator[tuple[str, int]]:
    """Write a new file in the table's folder with the rows of `reader`; yield its path and the number of rows.

    The file is deleted if it has no rows, or if the table certainly does not name it.
    """
    path = table.location_provider().new_data_location(f"{uuid.uuid4()}.parquet")
    schema = _with_ids(encoded(rows), table.schema().as_arrow())
    count, is_wanted = 0, False
    try:
        with table.io.new_output(path).create() as file:
            count = write_parquet(file, schema, reader(schema))
        is_wanted = count > 0
        yield path, count
    except refused.CommitFailedException:
        is_wanted = False
        raise
    finally:
        if not is_wanted:
            with suppress(OSError):
                table.io.delete(path)


def _with_ids(schema: pa.Schema, known: pa.Schema) -> pa.Schema:
    """Return the schema with the numbers that Iceberg's table has for the columns."""
    return pa.schema([_with_id(field, known.field(field.name)) for field in schema])


def _with_id(field: pa.Field, known: pa.Field) -> pa.Field:
    kind = field.type
    if pa.types.is_list(kind):
        kind = pa.list_(_with_id(kind.value_field, known.type.value_field))
    elif pa.types.is_struct(kind):
        kind = pa.struct([_with_id(each, known.type.field(each.name)) for each in kind])
    return pa.field(field.name, kind, field.nullable, known.metadata)


def _is(run: str) -> BooleanExpression:
    return EqualTo(term=Reference("run"), value=literal(run))


def _kind(kind: pa.DataType) -> str:
    """Return a type in words, the same for every name of a list's items."""
    return str(kind).replace("large_", "").replace("element:", "item:")
