"""The base of targets that are SQL databases: the ledger is a table, and tables derived from `tensors` are views."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import Any, ClassVar

import pyarrow as pa

from tensortrial.queries import load

from ...errors import ExportError
from ...format import arrow_arrays
from ..tables import GROWING, SCHEMAS
from ..target import LEDGER, LEDGER_SCHEMA, Held, Part, Position, Replacement, Target

_HELD = "select run, identity, table_name, worker, last_step, digest from {ledger}"
_PARAMETER = re.compile(r"\$([a-z_][a-z_0-9]*)")
_NAMES = "select distinct identity, run from {ledger}"

_NAMED = 1000
"""The most runs that a query names. For more, it fetches the rows of all runs."""

KEY = "run, name, mode, mode_step, global_step, worker"
"""The columns that identify a value."""

SCALARS = f"""
create or replace view {{scalars}} as
select {KEY}, saved_at, scalar as value, collections
from {{tensors}}
where scalar is not null
"""
"""The view `scalars` of the table `tensors`."""

_SUMMARY = load("views/run_summary").replace("catalogue.tensors", "{tensors}")
RUN_SUMMARY = f"create or replace view {{run_summary}} as\n{_SUMMARY}"
"""The view `run_summary` of the table `tensors`."""


class SQLTarget(Target):
    """An SQL database. `_table` returns the name of each table, also of the ledger."""

    derives = frozenset({"scalars", "reductions", "run_summary"})

    _views: ClassVar[Mapping[str, str]]
    """The statement that creates each view, with `{scalars}`, `{tensors}` and so on for the tables' names."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._name!r})"

    def prepare(self, tables: Mapping[str, pa.Schema]) -> None:
        with self._session():
            self._create_schema()
            for table, schema in {LEDGER: LEDGER_SCHEMA, **tables}.items():
                self._prepare(table, schema)
            if "tensors" in tables:
                names = {name: self._table(name) for name in ("tensors", *self.derives)}
                for view, statement in self._views.items():
                    self._create_view(view, statement.format(**names))

    def held(self, runs: Sequence[str]) -> dict[str, Held]:
        query, parameters = _HELD.format(ledger=self._table(LEDGER)), {}
        if len(runs) <= _NAMED:
            query, parameters = f"{query} where {is_one_of(runs)}", numbered(runs)
        found: dict[str, Held] = {}
        with self._session():
            for run, identity, table, worker, last_step, digest in self._fetch(query, **parameters) if runs else ():
                digests = found.setdefault(run, Held(identity, {})).digests
                digests.setdefault(Position(table, worker), {})[int(last_step)] = digest
            if unlisted := [run for run in runs if run not in found]:
                self._check_unlisted(unlisted[:_NAMED])
        return found

    def names(self) -> set[tuple[str, str]]:
        with self._session():
            return {(identity, run) for identity, run in self._fetch(_NAMES.format(ledger=self._table(LEDGER)))}

    def remove(self, run: str) -> None:
        with self._session():
            # Views are not in the ledger. Its rows are deleted last, so that an interrupted call can be repeated.
            tables = [table for table in SCHEMAS if table not in self.derives and self._found_columns(table)]
            self._change(
                *(f"delete from {self._table(table)} where run = $run" for table in (*tables, LEDGER)), run=run
            )

    def _prepare(self, table: str, schema: pa.Schema) -> None:
        wanted, found = self._wanted_columns(schema), self._found_columns(table)
        if not found:
            if table == LEDGER:
                self._check_unlisted()
            else:
                # The notes of a table that somebody has dropped go first: not each database creates one in a
                # transaction.
                self._change(f"delete from {self._table(LEDGER)} where table_name = $table", table=table)
            self._create_table(table, schema)
        else:
            self._check_columns(table, wanted, found)

    def _check_unlisted(self, runs: Sequence[str] = ()) -> None:
        """Raise ExportError if tables have rows, of some runs or of any, that are not in the ledger.

        Of some runs, only the first table is searched, which is `steps` unless it was never exported.
        """
        wanted = {table: self._wanted_columns(self.schema_of(GROWING[table])) for table in set(GROWING) - self.derives}
        known = [table for table in sorted(wanted) if self._found_columns(table) == wanted[table]]
        condition, lacks = (f"where {is_one_of(runs)}", "lacks rows") if runs else ("", "is missing")
        query, known = f"select run from {{}} {condition} limit 1", known[:1] if runs else known
        rows = {table: self._fetch(query.format(self._table(table)), **numbered(runs)) for table in known}
        if held := [table for table in rows if rows[table]]:
            raise ExportError(
                self._name,
                f"the table {LEDGER}, which lists what was exported, {lacks}, and the tables {', '.join(held)} have "
                f"rows of the run {rows[held[0]][0][0]!r}, which would be added again: restore it, or delete the rows "
                "of all runs that it lacks from these tables, and export again",
            )

    @abstractmethod
    def _session(self) -> AbstractContextManager[None]:
        """Raise errors of the driver inside the block as ExportError.

        Where a transaction may create tables, the block is one.
        """

    @abstractmethod
    def _table(self, name: str) -> str:
        """Return the name of a table or view in SQL."""

    @abstractmethod
    def _fetch(self, query: str, **parameters: str) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows. `$name` stands for a parameter."""

    def _rewind(self, parts: Iterable[Part]) -> None:
        """Delete the rows that parts replace, in the transaction that adds the parts."""
        for part in parts:
            if part.goes_back:
                self._change(*self._rewinding(part), **parameters_of(part))

    def _rewinding(self, part: Part) -> list[str]:
        """Return the statements that delete the rows that a part replaces, with their parameters."""
        names = {"table": self._table(part.table), "ledger": self._table(LEDGER)}
        return [statement.format(**names, after=part.after) for statement in _REWIND]

    def _forget(self, table: str, replacements: Sequence[Replacement]) -> None:
        """Delete the rows of a small table that are replaced, in the transaction that adds the new ones."""
        runs = [each.run for each in replacements]
        self._change(*self._forgetting(table, runs), **numbered(runs))

    def _forgetting(self, table: str, runs: Sequence[str]) -> list[str]:
        """Return the statements that delete the rows of some runs in a small table, with the parameters `numbered`."""
        of_runs = is_one_of(runs)
        return [
            f"delete from {self._table(table)} where {of_runs}",
            f"delete from {self._table(LEDGER)} where {of_runs} and table_name = '{table}'",
        ]

    def _change(self, *statements: str, **parameters: str) -> None:
        """Run statements that return no rows, in one transaction. `$name` stands for a parameter."""
        for statement in statements:
            used = _PARAMETER.findall(statement)
            self._fetch(statement, **{name: value for name, value in parameters.items() if name in used})

    def _create_schema(self) -> None:
        """Create the schema or dataset of the tables, if it is missing."""

    def _create_view(self, view: str, statement: str) -> None:
        """Create a view by its statement, or replace it."""
        self._fetch(statement)

    @abstractmethod
    def _wanted_columns(self, schema: pa.Schema) -> dict[str, str]:
        """Return the database's name of the type of each column."""

    @abstractmethod
    def _found_columns(self, table: str) -> dict[str, str]:
        """Return the type of each column of an existing table; an empty mapping if there is no such table."""

    @abstractmethod
    def _create_table(self, table: str, schema: pa.Schema) -> None:
        """Create a table."""


def ledger_table(written: Iterable[Part | Replacement], table: str) -> pa.Table:
    """Return the ledger's rows of parts or replacements of a table."""
    now = datetime.now(UTC)
    return arrow_arrays.table(LEDGER_SCHEMA, [(*ledger_row(each, table), now, each.digest) for each in written])


def ledger_row(written: Part | Replacement, table: str) -> tuple[str, str, str, str, int, int]:
    """Return the ledger's row without time and digest: run, identity, table, worker, last step, number of rows."""
    if isinstance(written, Replacement):
        return written.run, written.identity, table, "", -1, len(written.rows)
    return written.run, written.identity, table, written.worker, written.last_step, written.count


def ledger_select(written: Iterable[Part | Replacement], table: str, now: str, literal: Callable[[str], str]) -> str:
    """Return a query with the ledger's rows as literals. `now` is the SQL expression of the time."""
    found = []
    for each in written:
        run, identity, table, worker, last_step, count = ledger_row(each, table)
        texts = ", ".join(map(literal, (run, identity, table, worker)))
        found.append(f"select {texts}, {last_step}, {count}, {now}, {literal(each.digest)}")
    return " union all ".join(found)


def is_one_of(runs: Sequence[str]) -> str:
    """Return the condition that a row belongs to one of the runs, by the parameters that `numbered` returns."""
    return f"run in ({', '.join(f'${name}' for name in numbered(runs))})"


def numbered(runs: Sequence[str]) -> dict[str, str]:
    """Return the names of runs as parameters: run0, run1 and so on."""
    return {f"run{number}": run for number, run in enumerate(runs)}


IS_PART = "run = $run and table_name = $table and worker = $worker"

LAST_STEP = f"select coalesce(max(last_step), -1) from {{ledger}} where {IS_PART}"
"""The last step of a part's table and worker in the ledger; -1 if there is none."""


def parameters_of(part: Part) -> dict[str, str]:
    """Return the parameters of IS_PART, LAST_STEP and the statements that delete rows."""
    return {"run": part.run, "table": part.table, "worker": part.worker}


_REWIND = (
    "delete from {table} where run = $run and worker = $worker and global_step > {after}",
    f"delete from {{ledger}} where {IS_PART} and last_step > {{after}}",
)
"""The statements that delete the rows that a part replaces."""


def quoted(name: str) -> str:
    """Return a name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def with_parameters(query: str, parameters: Collection[str], spelled: Callable[[str], str]) -> str:
    """Return a query in which each `$name` is replaced by the result of `spelled`."""
    return _PARAMETER.sub(lambda found: spelled(found[1]) if found[1] in parameters else found[0], query)
