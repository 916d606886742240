"""What all targets that are SQL databases share: the ledger as a table, and `scalars` and `reductions` as views."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import Any, ClassVar

import pyarrow as pa

from ...errors import TableMismatch
from ..target import LEDGER, LEDGER_SCHEMA, Held, Part, Position, Target, differences

_HELD = """
select identity, table_name, worker, max(last_step) from {ledger} where run = $run
group by identity, table_name, worker
"""
_PARAMETER = re.compile(r"\$([a-z_]+)")
_NAMES = "select distinct identity, run from {ledger}"

KEY = "run, name, mode, mode_step, global_step, worker"
"""The columns that say which value a row is about."""

SCALARS = f"""
create or replace view {{scalars}} as
select {KEY}, saved_at, scalar as value, collections
from {{tensors}}
where scalar is not null
"""
"""The view `scalars` of the table `tensors`."""


class SQLTarget(Target):
    """A database that is reached by SQL. Every table, also the ledger, is named by `_table`."""

    derives = frozenset({"scalars", "reductions"})

    _views: ClassVar[tuple[str, ...]]
    """The statements that create the views, with `{scalars}`, `{reductions}` and `{tensors}` for the tables' names."""

    _name: str
    """The target's name in messages, without secrets."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._name!r})"

    def prepare(self, tables: Mapping[str, pa.Schema]) -> None:
        with self._session():
            self._create_schema()
            for table, schema in {**tables, LEDGER: LEDGER_SCHEMA}.items():
                self._prepare(table, schema)
            if "tensors" in tables:
                names = {name: self._table(name) for name in ("tensors", *self.derives)}
                for view in self._views:
                    self._fetch(view.format(**names))

    def held(self, run: str) -> Held | None:
        with self._session():
            rows = self._fetch(_HELD.format(ledger=self._table(LEDGER)), run=run)
        if not rows:
            return None
        return Held(rows[0][0], {Position(table, worker): int(last) for _, table, worker, last in rows})

    def names(self) -> set[tuple[str, str]]:
        with self._session():
            return {(identity, run) for identity, run in self._fetch(_NAMES.format(ledger=self._table(LEDGER)))}

    def _prepare(self, table: str, schema: pa.Schema) -> None:
        wanted, found = self._wanted_columns(schema), self._found_columns(table)
        if not found:
            self._create_table(table, schema)
        elif difference := differences(wanted, found):
            raise TableMismatch(self._name, table, difference)

    @abstractmethod
    def _session(self) -> AbstractContextManager[None]:
        """Raise errors of the driver inside the block as ExportError.

        Where a transaction may create tables, the block is one.
        """

    @abstractmethod
    def _table(self, name: str) -> str:
        """Return the name of a table or view as it is written in SQL."""

    @abstractmethod
    def _fetch(self, query: str, **parameters: str) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows. `$name` stands for a parameter."""

    def _create_schema(self) -> None:
        """Create what holds the tables, if it is missing."""

    @abstractmethod
    def _wanted_columns(self, schema: pa.Schema) -> dict[str, str]:
        """Return the type of each column, as the database spells it."""

    @abstractmethod
    def _found_columns(self, table: str) -> dict[str, str]:
        """Return the type of each column of a table that exists; nothing if there is no such table."""

    @abstractmethod
    def _create_table(self, table: str, schema: pa.Schema) -> None:
        """Create a table."""


def ledger_table(part: Part, count: int) -> pa.Table:
    """Return the ledger's row for a part of `count` rows, as a table of one row."""
    row = (part.run, part.identity, part.table, part.worker, part.last_step, count, datetime.now(UTC))
    columns = [pa.array([value], field.type) for value, field in zip(row, LEDGER_SCHEMA, strict=True)]
    return pa.Table.from_arrays(columns, schema=LEDGER_SCHEMA)


LEDGER_ROW = "$run, $identity, $table, $worker, {last_step}, {count}"
"""The ledger's row for a part, but for the time, where it is written as text."""

IS_PART = "run = $run and table_name = $table and worker = $worker"

LAST_STEP = f"select coalesce(max(last_step), -1) from {{ledger}} where {IS_PART}"
"""The last step of a part's table and worker in the ledger; -1 if there is none."""


def parameters_of(part: Part) -> dict[str, str]:
    """Return the parameters of LEDGER_ROW, IS_PART and LAST_STEP."""
    return {"run": part.run, "identity": part.identity, "table": part.table, "worker": part.worker}


def is_under_way(part: Part) -> str:
    """Return the reason to refuse a part that does not follow the last one in the ledger."""
    return f"another export of {part.run} is under way; export again once it is done"


def with_parameters(query: str, parameters: Collection[str], spelled: Callable[[str], str]) -> str:
    """Return a query with `$name` of each parameter replaced by what `spelled` returns for the name."""
    return _PARAMETER.sub(lambda found: spelled(found[1]) if found[1] in parameters else found[0], query)
