"""Exports into Snowflake, as far as they can be tried without an account: an emulator, DuckDB underneath, runs every
statement; the driver has a stand-in here, which uploads straight into the emulator's tables."""

from __future__ import annotations

import secrets
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import fakesnow
import pyarrow as pa
import pytest
import snowflake.connector

import tensortrial
from support.export_conformance import ExportConformance, from_json, write_run
from tensortrial.errors import ConfigurationError, ExportError
from tensortrial.exports.tables import SCHEMAS

pytestmark = pytest.mark.filterwarnings("default")  # the emulator's libraries are not ours to keep quiet


class Refused(Exception):
    """What the driver raises."""


class Cursor:
    """A cursor of the emulator, with the driver's upload."""

    def __init__(self, connection: Any) -> None:
        self._duckdb, self._cursor = connection._duck_conn, connection.cursor()

    def __enter__(self) -> Cursor:
        return self

    def __exit__(self, *_: object) -> None:
        self._cursor.close()

    def execute(self, statement: str) -> None:
        try:
            self._cursor.execute(statement)
        except snowflake.connector.Error as exc:
            raise Refused(str(exc)) from exc

    def fetchall(self) -> list[Any]:
        return list(self._cursor.fetchall())

    def adbc_ingest(self, table: str, rows: pa.Table, mode: str) -> int:
        assert mode == "append"
        names = ", ".join(f'"{name}"' for name in rows.column_names)
        self._duckdb.register("uploaded", rows)
        self._duckdb.execute(f'insert into "{table}" ({names}) select {names} from uploaded')
        self._duckdb.unregister("uploaded")
        return len(rows)


class Connection:
    settings: dict[str, str]

    def __init__(self, folder: Path, db_kwargs: dict[str, str], autocommit: bool) -> None:
        assert autocommit
        type(self).settings = db_kwargs
        if db_kwargs["username"] == "stranger":
            raise Refused(f"390100 (08004): Incorrect username or password: {db_kwargs['password']}")
        self._patch = fakesnow.patch(db_path=folder)
        self._patch.__enter__()
        self._connection = snowflake.connector.connect(database=db_kwargs["adbc.snowflake.sql.db"])

    def cursor(self) -> Cursor:
        return Cursor(self._connection)

    def close(self) -> None:
        self._connection.close()
        self._patch.__exit__(None, None, None)


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Modules of the driver's names, which is not installed with the emulator."""
    manager, driver, dbapi = (ModuleType(name) for name in ("adbc_driver_manager", "adbc_driver_snowflake", "dbapi"))
    manager.Error = Refused  # type: ignore[attr-defined]
    driver.dbapi = dbapi  # type: ignore[attr-defined]
    (tmp_path / "emulator").mkdir()
    dbapi.connect = lambda **settings: Connection(tmp_path / "emulator", **settings)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "adbc_driver_manager", manager)
    monkeypatch.setitem(sys.modules, "adbc_driver_snowflake", driver)
    monkeypatch.delitem(sys.modules, "tensortrial.exports.targets.snowflake", raising=False)
    yield
    sys.modules.pop("tensortrial.exports.targets.snowflake", None)


@pytest.mark.usefixtures("driver")
class TestSnowflake(ExportConformance):
    @pytest.fixture
    def target(self, tmp_path: Path) -> str:
        self.folder = tmp_path / "emulator"
        return f"snowflake://me:very-secret@org-account/lake/runs_{secrets.token_hex(4)}?warehouse=small"

    def query(self, target: str, *statements: str) -> pa.Table:
        schema = target.partition("?")[0].rpartition("/")[2].upper()
        connection = Connection(self.folder, {"adbc.snowflake.sql.db": "LAKE", "username": "me"}, True)
        try:
            for statement in (f"create schema if not exists {schema}", f"use schema {schema}"):
                connection.cursor().execute(statement)
            for statement in statements:
                found = connection._connection._duck_conn.execute(statement)
            return found.to_arrow_table()
        finally:
            connection.close()

    def read(self, target: str, table: str) -> pa.Table:
        found = self.query(target, f"from {table}")
        found = found.rename_columns([name.lower() for name in found.column_names])
        schema = SCHEMAS[table] if len(found.column_names) == len(SCHEMAS[table]) else found.schema
        columns = [_read(found[field.name], field.type) for field in schema]
        return pa.table(columns, names=schema.names)

    def make_other(self, target: str) -> None:
        self.query(target, 'create table STEPS ("RUN" varchar, "COLOR" varchar)')

    def rename(self, target: str, table: str, name: str) -> None:
        self.query(target, f"alter table {table.upper()} rename to {name.upper()}")

    @pytest.mark.skip(reason="the stand-in of the driver is in this process only")
    def test_a_killed_export_is_finished_by_the_next(self, tmp_path: Path, target: str) -> None: ...

    def test_what_fails_in_the_transaction_leaves_nothing(
        self, run: Path, target: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        execute = Cursor.execute

        def broken(cursor: Cursor, statement: str) -> None:
            if statement.startswith('insert into "STEPS"'):
                raise Refused("the line is cut")
            execute(cursor, statement)

        with monkeypatch.context() as patch:
            patch.setattr(Cursor, "execute", broken)
            with pytest.raises(ExportError, match="the line is cut"):
                self.export(run, target, tables=["steps"])
        assert self.query(target, "select count(*) as n from exports")["n"].to_pylist() == [0]
        self.export(run, target, tables=["steps"])
        self.check(run, target, "steps")

    def test_names_are_quoted(self, tmp_path: Path, target: str) -> None:
        run = write_run(tmp_path / 'it\'s "a" \\ é', 2, "gpu:'0'")
        for rows in (2, 0):
            assert self.export(run, target).rows["steps"] == rows
        self.check(run, target, "steps", "tensors", "runs")

    def test_the_driver_gets_the_settings_of_the_url(self, run: Path, target: str) -> None:
        self.export(run, target, role="loader")
        settings = {name.rpartition(".")[2]: value for name, value in Connection.settings.items()}
        expected = {"account": "org-account", "db": "LAKE", "warehouse": "small", "role": "loader"}
        assert settings == expected | {"username": "me", "password": "very-secret"}

    def test_a_refused_connection_shows_no_password(self, run: Path) -> None:
        url = f"snowflake://stranger:{'-'.join(['very', 'secret'])}@account/db/s"  # not as the traceback would show it
        with pytest.raises(ExportError, match=r"snowflake://account/db/s: 390100.*: \*\*\*") as caught:
            tensortrial.export(run, url)
        assert "very-secret" not in "".join(traceback.format_exception(caught.value))

    def test_a_url_that_says_too_little_is_refused(self, run: Path) -> None:
        with pytest.raises(ConfigurationError, match="USER@ACCOUNT/DATABASE/SCHEMA"):
            self.export(run, "snowflake://account/db")


def _read(column: pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    if pa.types.is_nested(kind):
        return from_json(column.to_pylist(), kind)
    return column.cast(kind)
