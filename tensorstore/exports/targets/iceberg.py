"""The export into Apache Iceberg.

Its URL is `iceberg:NAME`, for a catalogue in pyiceberg's configuration, or `iceberg:sqlite:///catalogue.db`.
"""

from __future__ import annotations

import json
import logging
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property, partial
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa

from ...errors import ExportError, TensorTrialError, importing
from ...format.arrow_arrays import encoded
from .. import urls
from ..tables import SCHEMAS, columns_of
from ..target import Held, Part, Position, Replacement, Target, reader_of, shown, with_part
from .iceberg_catalogue import open_catalogue, secrets
from .parquet_file import write_parquet

with importing("pyiceberg", "warehouse", "an export into Iceberg"):
    import sqlalchemy.exc
    from pyiceberg import exceptions as refused
    from pyiceberg.expressions import And, BooleanExpression, EqualTo, GreaterThan, In, Reference
    from pyiceberg.expressions.literals import literal
    from pyiceberg.table import Table

_NOTE = "tensortrial."
"""The prefix of the table property with the table's content of a run. The run's name follows."""

# A commit that conflicts with another one must fail, because both may have the same rows. pyiceberg would repeat it.
# Bounds of `run` are not truncated, so that rows of one run are replaced without reading the files of others. Bounds of
# floating-point columns are not kept, because they ignore NaN.
_FLOATS = {field.name for schema in SCHEMAS.values() for field in schema if pa.types.is_floating(field.type)}
_PROPERTIES = {
    "commit.retry.num-retries": "0",
    "write.metadata.metrics.column.run": "full",
    **{f"write.metadata.metrics.column.{name}": "counts" for name in sorted(_FLOATS)},
}


class Iceberg(Target):
    """A namespace of an Iceberg catalogue.

    A property of each table records its content of a run, and changes in the same commit as the rows. `namespace` is
    the namespace of the tables, `warehouse` the folder of a new catalogue's files. Other options are pyiceberg's for
    the catalogue.
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
                # It would write a file even if the table exists.
                create, name = self._catalogue.create_table_if_not_exists, (self._namespace, table)
                exists = self._catalogue.table_exists(name)
                made = self._table(table) if exists else create(name, schema, properties=_PROPERTIES)
            found = columns_of(made.schema().as_arrow())
            self._check_columns(table, columns_of(schema), found)
            if missing := {key: value for key, value in _PROPERTIES.items() if made.properties.get(key) != value}:
                with self._translated(), made.transaction() as transaction:
                    transaction.set_properties(missing)

    def held(self, runs: Sequence[str]) -> dict[str, Held]:
        found: dict[str, Held] = {}
        wanted = set(runs)
        for table, notes in self._notes():
            for run in wanted & notes.keys():
                note = notes[run]
                digests = found.setdefault(run, Held(note["identity"], {})).digests
                for worker, parts in note["digests"].items():
                    digests[Position(table, worker)] = {int(step): digest for step, digest in parts.items()}
        return found

    def names(self) -> set[tuple[str, str]]:
        return {(note["identity"], run) for _, notes in self._notes() for run, note in notes.items()}

    def _notes(self) -> Iterator[tuple[str, dict[str, dict[str, Any]]]]:
        """Yield the tables, each with its content of the runs."""
        with self._translated():
            names = [name for _, name in self._catalogue.list_tables(self._namespace)]
            for table in SCHEMAS:
                if table in names:
                    kept = self._table(table).properties.items()
                    yield (
                        table,
                        {key.removeprefix(_NOTE): json.loads(value) for key, value in kept if key.startswith(_NOTE)},
                    )

    def write(self, parts: Sequence[Part]) -> None:
        with self._translated():
            table = self._table(parts[0].table)
            notes: dict[str, dict[str, Any]] = {}
            for part in parts:
                known = json.loads(table.properties.get(_NOTE + part.run, "{}"))
                note = notes.setdefault(part.run, {"identity": part.identity, "digests": {}, **known})
                exported = {int(step): digest for step, digest in note["digests"].get(part.worker, {}).items()}
                if max(exported, default=-1) != part.held:
                    raise self._is_under_way()
                note["digests"][part.worker] = with_part(exported, part)
            replaced = [_rows_after(part) for part in parts if part.goes_back]
            readers = [partial(reader_of, [part]) for part in parts]
            _change(table, parts[0].schema, readers, replaced, notes)

    def replace(self, table: str, replacements: Sequence[Replacement]) -> None:
        with self._translated():
            found = self._table(table)
            held = _runs_in(found, [each.run for each in replacements])
            notes = {each.run: {"identity": each.identity, "digests": {"": {-1: each.digest}}} for each in replacements}
            readers = [partial(_reader, each.rows) for each in replacements]
            _change(found, replacements[0].rows.schema, readers, [_is_one_of(held)] if held else [], notes)

    def rows(self, table: str, run: str) -> pa.Table:
        with self._translated():
            return self._table(table).scan(_is_one_of([run])).to_arrow()

    def remove(self, run: str) -> None:
        with self._translated():
            for name, _ in self._notes():
                table = self._table(name)
                _change(table, SCHEMAS[name], [], [_is_one_of([run])] if _runs_in(table, [run]) else [], {run: None})

    def close(self) -> None:
        with self._translated():
            self._catalogue.close()

    def _table(self, table: str) -> Table:
        return self._catalogue.load_table((self._namespace, table))

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
        except TensorTrialError:
            raise
        except refused.CommitFailedException as exc:
            raise self._is_under_way() from exc
        except self._errors as exc:
            said = str(exc.orig if isinstance(exc, sqlalchemy.exc.DBAPIError) else exc)
            # Without `from exc`, because the text of that error may contain a password.
            raise ExportError(self._name, urls.without(self._secrets, said)) from None


def _takes_files(table: Table) -> bool:
    """Return whether each file with rows of only one run belongs to one partition, according to its statistics."""
    run = table.schema().find_field("run").field_id
    return all(field.source_id == run and field.transform.preserves_order for field in table.spec().fields)


def _change(
    table: Table,
    schema: pa.Schema,
    readers: Sequence[Callable[[pa.Schema], pa.RecordBatchReader]],
    replaced: Sequence[BooleanExpression],
    notes: Mapping[str, Mapping[str, Any] | None],
) -> None:
    """Delete rows, add those of each reader, and change the table's notes on runs, in one commit.

    The rows of each reader become one file, which is added to the table. If a file could belong to several partitions,
    pyiceberg writes the rows from memory instead.
    """
    properties = {_NOTE + run: json.dumps(note) for run, note in notes.items() if note is not None}
    forgotten = [_NOTE + run for run, note in notes.items() if note is None and _NOTE + run in table.properties]
    with ExitStack() as files, _without_remarks():
        paths, rows = list[str](), schema.empty_table()
        if _takes_files(table):
            written = [files.enter_context(_data_file(table, schema, reader)) for reader in readers]
            paths = [path for path, count in written if count]
        else:
            rows = pa.concat_tables(reader(schema).read_all() for reader in readers)
        with table.transaction() as transaction:
            for condition in replaced:
                transaction.delete(condition)
            if paths:
                transaction.add_files(paths, check_duplicate_files=False)
            if len(rows):
                transaction.append(rows)
            if properties:
                transaction.set_properties(properties)
            if forgotten:
                transaction.remove_properties(*forgotten)


@contextmanager
def _without_remarks() -> Iterator[None]:
    """Suppress pyiceberg's log lines about missing bounds, which are intended, and about deleting no row."""
    logger = logging.getLogger("pyiceberg.io.pyarrow")
    logger.addFilter(_is_no_remark)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Delete operation did not match any records")
            yield
    finally:
        logger.removeFilter(_is_no_remark)


def _is_no_remark(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith("PyArrow statistics missing for column")


def _reader(rows: pa.Table, schema: pa.Schema) -> pa.RecordBatchReader:
    return rows.cast(schema).to_reader()


def _runs_in(table: Table, runs: Sequence[str]) -> list[str]:
    """Return the runs, out of `runs`, that have rows in a table."""
    found = table.scan(_is_one_of(runs), selected_fields=("run",)).to_arrow()
    return sorted(set(found["run"].to_pylist()))


@contextmanager
def _data_file(
    table: Table, rows: pa.Schema, reader: Callable[[pa.Schema], pa.RecordBatchReader]
) -> Iterator[tuple[str, int]]:
    """Write the rows of `reader` into a new file in the table's folder, and yield its path and the number of rows.

    The file is deleted if it has no rows, or if the table certainly does not refer to it.
    """
    path = table.location_provider().new_data_location(f"{uuid.uuid4()}.parquet")
    known = table.schema().as_arrow()
    schema = pa.schema([_with_id(field, known.field(field.name)) for field in encoded(rows)])
    count, is_wanted = 0, False
    try:
        with table.io.new_output(path).create() as file:
            count = write_parquet(file, schema, reader(schema)).num_rows
        is_wanted = count > 0
        yield path, count
    except refused.CommitFailedException:
        is_wanted = False
        raise
    finally:
        if not is_wanted:
            with suppress(OSError):
                table.io.delete(path)


def _with_id(field: pa.Field, known: pa.Field) -> pa.Field:
    kind = field.type
    if pa.types.is_list(kind):
        kind = pa.list_(_with_id(kind.value_field, known.type.value_field))
    elif pa.types.is_struct(kind):
        kind = pa.struct([_with_id(each, known.type.field(each.name)) for each in kind])
    return pa.field(field.name, kind, field.nullable, known.metadata)


def _is_one_of(runs: Sequence[str]) -> BooleanExpression:
    return In(term=Reference("run"), values={literal(run) for run in runs})


def _equals(column: str, text: str) -> BooleanExpression:
    return EqualTo(term=Reference(column), value=literal(text))


def _rows_after(part: Part) -> BooleanExpression:
    """Return the condition of the rows that a part replaces."""
    return And(
        _equals("run", part.run),
        _equals("worker", part.worker),
        GreaterThan(term=Reference("global_step"), value=literal(part.after)),
    )
