"""Exports into PostgreSQL: a real server."""

from __future__ import annotations

import selectors
import socket
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from adbc_driver_postgresql import dbapi

import tensortrial
from support.export_conformance import ExportConformance, from_json, write_run
from support.runs import Job
from tensortrial.errors import ConfigurationError, ExportError
from tensortrial.exports.tables import SCHEMAS
from tensortrial.exports.target import shown


class TestPostgreSQL(ExportConformance):
    @pytest.fixture
    def target(self, postgres: Any) -> str:
        return str(postgres.new_database())

    def read(self, target: str, table: str) -> pa.Table:
        with dbapi.connect(target) as connection, connection.cursor() as cursor:
            cursor.execute(f"select * from {table}")
            found = _with_structs(cursor.fetch_arrow_table())
        if "digest" in found.column_names:
            # The driver passes numbers of type numeric on as texts.
            digests = pc.cast(found["digest"].combine_chunks().cast(pa.string()), pa.uint64())
            found = found.set_column(found.column_names.index("digest"), "digest", digests)
        return found

    def make_other(self, target: str) -> None:
        _execute(target, "create table steps (run text, color text)")

    def rename(self, target: str, table: str, name: str) -> None:
        _execute(target, f"alter table {table} rename to {name}")

    def test_the_schema_is_chosen_in_the_url_or_as_an_option(self, run: Path, target: str) -> None:
        self.export(run, f"{target}?schema=My runs")
        self.export(run, target, schema="more")
        assert len(self.read(target, '"My runs".steps')) == len(self.read(target, "more.steps")) == 6
        assert _same_names(
            self.read(target, '"My runs".scalars'), tensortrial.open_runs(run).sql("from scalars").to_arrow_table()
        )

    def test_two_exports_at_once_are_refused(self, run: Path, target: str) -> None:
        with dbapi.connect(target) as connection, connection.cursor() as cursor:
            cursor.execute("select pg_try_advisory_lock(hashtext('tensortrial export'), hashtext('public'))")
            with pytest.raises(ExportError, match="another export into the schema public is under way"):
                self.export(run, target)
        assert self.export(run, target).rows["steps"] == 6

    def test_what_the_server_refuses_leaves_nothing(self, run: Path, target: str) -> None:
        self.export(run, target, tables=["runs"])
        _execute(
            target,
            "create function no() returns trigger as $$begin raise exception 'not today'; end$$ language plpgsql",
        )
        self.export(run, target, tables=["steps"], since=100)
        _execute(target, "create trigger no before insert on exports for each row execute function no()")
        with pytest.raises(ExportError, match="not today"):
            self.export(run, target, tables=["tensors"])
        assert len(self.read(target, "tensors")) == 0

    def test_the_end_of_a_connection_is_named(self, run: Path, target: str) -> None:
        self.export(run, target, tables=["steps"], since=100)
        leave = "begin perform pg_terminate_backend(pg_backend_pid()); return new; end"
        _execute(target, f"create function leave() returns trigger as $${leave}$$ language plpgsql")
        _execute(target, "create trigger leave before insert on exports for each row execute function leave()")
        with pytest.raises(ExportError, match=r"terminating connection|server closed the connection"):
            self.export(run, target, tables=["tensors"])
        _execute(target, "drop trigger leave on exports")
        assert self.export(run, target, tables=["tensors"]).rows["tensors"] == 30

    def test_settings_in_the_url_are_those_of_libpq(self, run: Path, target: str) -> None:
        self.export(run, target, tables=["steps"])
        _execute(target, "create table names as select ''::text as name")
        note = "begin update names set name = current_setting('application_name'); return new; end"
        _execute(target, f"create function note() returns trigger as $${note}$$ language plpgsql")
        _execute(target, "create trigger note before insert on exports for each row execute function note()")
        self.export(run, f"{target}?application_name=a%20b+c%2Bd&options=-c%20lock_timeout%3D10s", tables=["runs"])
        assert _fetch(target, "select name from names") == [("a b+c+d",)]

    def test_a_reader_of_a_view_does_not_delay_the_next_export(self, run: Path, target: str) -> None:
        self.export(run, target, tables=["tensors"], since=3)
        with dbapi.connect(target) as connection, connection.cursor() as cursor:
            cursor.execute("select count(*) from scalars, reductions, run_summary")  # in a transaction that stays open
            done = self.export(run, f"{target}?options=-c%20lock_timeout%3D10s", tables=["tensors"], since=3)
        assert done.rows == {"tensors": 0}

    def test_a_comment_on_a_view_is_kept(self, run: Path, target: str) -> None:
        self.export(run, target, tables=["tensors"])
        for text in ("Ask Anna", "100 % of 'them'"):
            _execute(target, "comment on view scalars is '{}'".format(text.replace("'", "''")))
            for _ in range(2):
                self.export(run, target, tables=["tensors"])
            ((found,),) = _fetch(target, "select obj_description('scalars'::regclass)")
            assert found.splitlines()[0] == text
            assert len(found.splitlines()) == 2

    def test_a_role_that_may_only_change_rows_exports_into_tables_of_another(self, tmp_path: Path, target: str) -> None:
        write_run(tmp_path / "a", 4)
        self.export(tmp_path / "a", target)
        name = f"writer_{target.rpartition('_')[2]}"
        grants = "grant select, insert, delete on all tables in schema public to"
        for statement in (f"create role {name} login password 'secret'", f"{grants} {name}"):
            _execute(target, statement)
        as_writer = urlsplit(target)
        netloc = f"{name}:secret@{as_writer.netloc.rpartition('@')[2]}"
        write_run(tmp_path / "b")
        assert self.export(tmp_path, as_writer._replace(netloc=netloc).geturl()).rows["steps"] == 6

    def test_an_unknown_option_is_named(self, run: Path, target: str) -> None:
        with pytest.raises(ConfigurationError, match="no option 'shema'; it has schema"):
            self.export(run, target, shema="x")


def test_names_have_the_order_of_a_run_in_a_database_of_any_language(tmp_path: Path, postgres: Any) -> None:
    # In English, worker_B comes after worker_a.
    target = str(postgres.new_database("template template0 locale_provider icu icu_locale 'en-US' locale 'C'"))
    with Job(tmp_path / "a", "worker_a", 2) as one, Job(tmp_path / "a", "worker_B", 2) as two:
        one.step({"loss": 1.0, "Loss": 3.0})
        two.step({"loss": 2.0, "Loss": 4.0})
    tensortrial.export(tmp_path / "a", target, progress=False)
    query = "select name, last from run_summary order by name"
    with dbapi.connect(target) as connection, connection.cursor() as cursor:
        cursor.execute(query)
        found = cursor.fetchall()
    assert found == tensortrial.open_runs(tmp_path / "a").sql(query).fetchall() == [("Loss", 3.0), ("loss", 1.0)]


def test_metadata_is_queried_as_in_a_run(tmp_path: Path, postgres: Any) -> None:
    target = str(postgres.new_database())
    metadata = {"lr": 0.25, "who": "é", "zero": "a\0b", "half": "\ud800", "face": "😀", "path": "\\u0000"}
    with tensortrial.Run(tmp_path / "a", metadata=metadata, flush_seconds=0) as run:
        for step in range(2):
            run.log({"loss": 1.0}, step=step)
        run.flush()
        query = "select cast(metadata->>'lr' as double precision) from runs"
        tensortrial.export(tmp_path / "a", target, progress=False)
        (expected,) = tensortrial.open_runs(tmp_path / "a").sql(query.replace(" precision", "")).fetchall()
        assert _fetch(target, query) == [expected] == [(0.25,)]
    found = "select metadata->>'who', metadata->>'zero', metadata->>'face', metadata->>'path' from runs"
    assert _fetch(target, f"{found} where metadata @> '{{\"lr\": 0.25}}'") == [("é", "a\ufffdb", "😀", "\\u0000")]


@pytest.mark.parametrize("encoding", ["EUC_JP", "LATIN1"])
def test_names_are_stored_whatever_the_encoding_of_the_database(
    tmp_path: Path, postgres: Any, encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    name = "損失" if encoding == "EUC_JP" else "café"
    target = postgres.new_database(f"encoding {encoding} locale 'C' template template0")
    for run, tensor in (("a", name), ("b", "☃")):
        with tensortrial.Run(tmp_path / run / name) as saved:
            saved.log({tensor: 1.0}, step=0)
    tensortrial.export(tmp_path / "a", target, progress=False)
    stored = f"{target}?client_encoding=UTF8"
    assert _fetch(stored, "select run, name from scalars") == [(name, name)]
    refusal = f"run 'b/{name}', tensor '☃': name .* cannot be stored in a database with the encoding {encoding}"
    with pytest.raises(ExportError, match=refusal):
        tensortrial.export(tmp_path, target, progress=False)
    assert _fetch(stored, "select run, name from scalars") == [(name, name)]


def test_a_name_with_a_zero_character_is_refused_with_the_way_out(tmp_path: Path, postgres: Any) -> None:
    target = str(postgres.new_database())
    with tensortrial.Run(tmp_path / "a") as run:
        run.log({"loss": 1.0, "lo\0ss": 1.0}, step=0)
    with pytest.raises(ExportError) as caught:
        tensortrial.export(tmp_path / "a", target, progress=False)
    assert "run 'a', tensor 'lo\\x00ss': name 'lo\\x00ss' has a zero character" in str(caught.value)
    assert "export to another target, such as duckdb:FILE" in str(caught.value)
    assert _fetch(target, "select count(*) from tensors") == [(0,)]


def test_a_name_that_cannot_be_stored_is_no_matter_at_steps_that_are_left_out(tmp_path: Path, postgres: Any) -> None:
    target = str(postgres.new_database())
    with tensortrial.Run(tmp_path / "a") as run:
        run.log({"lo\0ss": 1.0}, step=0)
        run.log({"loss": 1.0}, step=1)
    tensortrial.export(tmp_path / "a", target, tables=["scalars"], since=1, progress=False)
    assert _fetch(target, "select name, global_step from scalars") == [("loss", 1)]


def test_a_quantile_of_infinite_numbers_is_a_number_of_the_database(tmp_path: Path, postgres: Any) -> None:
    target = str(postgres.new_database())
    with Job(tmp_path / "a") as job:
        job.step({"w": np.array([1.5, np.nan, np.inf, -np.inf])}, sketch=True)
    tensortrial.export(tmp_path / "a", target, tables=["tensors"], progress=False)
    elements = "select element::float8 from tensors, json_array_elements_text(sketch->'values') as element"
    assert repr([number for (number,) in _fetch(target, elements)]) == "[-inf, 1.5, inf, nan]"


def test_an_export_may_follow_one_whose_connection_the_server_has_not_seen_end(tmp_path: Path, postgres: Any) -> None:
    target = str(postgres.new_database())
    with tensortrial.Run(tmp_path / "a") as run:
        run.log({"loss": 1.0}, step=0)
    with _without_goodbyes(postgres.port) as port:
        through = target.replace(f":{postgres.port}/", f":{port}/")
        tensortrial.export(tmp_path / "a", through, progress=False)
        assert tensortrial.export(tmp_path / "a", target, progress=False).rows["steps"] == 0


def test_a_url_without_a_server_means_that_of_the_surroundings(
    run: Path, postgres: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = urlsplit(postgres.new_database())
    monkeypatch.setenv("PGHOST", str(url.hostname))
    monkeypatch.setenv("PGPORT", str(url.port))
    monkeypatch.setenv("PGUSER", str(url.username))
    monkeypatch.setenv("PGPASSWORD", str(url.password))
    monkeypatch.setenv("PGDATABASE", url.path.strip("/"))
    for target, rows in ((f"postgresql://{url.path}", 6), ("postgresql://", 0), ("postgresql:", 0)):
        assert tensortrial.export(run, target, tables=["steps"], progress=False).rows["steps"] == rows


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:hunter2-secret@127.0.0.1:1/x",
        "postgresql://me:hunter2-secret@no.such.host.invalid/x",
        "postgresql://me:hunter2-secret@127.0.0.1:1/x?wrong=1",
        "postgresql://127.0.0.1:1/x?user=me&password=hunter2-secret",
        "postgresql://127.0.0.1:1/x?user=me&password=hunter2-secret&port=hunter2-secret",
        "postgresql://me:hunter2-secret@hunter2-secret@127.0.0.1:1/x",
        "postgresql://me:x/hunter2-secret@127.0.0.1:1/x",
        "postgresql://me:x?hunter2-secret@127.0.0.1:1/x",
        "postgresql://me:x#hunter2-secret@127.0.0.1:1/x",
        "postgresql://me:x[hunter2-secret@127.0.0.1:1/x",
        "postgresqll://me:hunter2-secret@127.0.0.1:1/x",
    ],
)
def test_a_refusal_shows_no_password(run: Path, url: str, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ExportError) as caught:
        tensortrial.export(run, url, progress=False)
    shown = "".join(traceback.format_exception(caught.value)) + repr(caught.value.__dict__) + caplog.text
    assert "hunter2" not in shown.replace(url, "")
    assert "hunter2" not in str(caught.value)


def test_a_wrong_password_is_the_servers_word(run: Path, postgres: Any) -> None:
    url = str(postgres.new_database())
    server = url.rpartition("@")[2]
    with pytest.raises(ExportError, match=f"postgresql://{server}: .*authentication failed") as caught:
        tensortrial.export(run, f"postgresql://someone:hunter2-secret@{server}", progress=False)
    assert "hunter2" not in str(caught.value)


def test_urls_are_shown_without_secrets() -> None:
    assert shown("postgresql://me:secret@host:5/db?password=x") == "postgresql://host:5/db"
    assert shown("postgresql://me:sec/ret@host/db") == "postgresql://…"
    assert shown("duckdb:runs.duckdb") == "duckdb:runs.duckdb"


@contextmanager
def _without_goodbyes(server: int) -> Iterator[int]:
    """A port that is connected with the port of a server once, and passes on neither the last message nor the end."""
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(("127.0.0.1", server)) as onward:

        def pass_on() -> None:
            client, _ = listener.accept()
            with client, selectors.DefaultSelector() as selector:
                selector.register(client, selectors.EVENT_READ, onward)
                selector.register(onward, selectors.EVENT_READ, client)
                while True:
                    for key, _ in selector.select():
                        data = cast("socket.socket", key.fileobj).recv(1 << 16)
                        if not data or data.endswith(b"X\0\0\0\4"):  # PostgreSQL's message Terminate
                            return
                        key.data.sendall(data)

        thread = threading.Thread(target=pass_on)
        thread.start()
        yield listener.getsockname()[1]
        thread.join()


def _execute(target: str, statement: str) -> None:
    with dbapi.connect(target) as connection, connection.cursor() as cursor:
        cursor.execute(statement)
        connection.commit()


def _fetch(target: str, query: str) -> list[Any]:
    with dbapi.connect(target) as connection, connection.cursor() as cursor:
        cursor.execute(query)
        return list(cursor.fetchall())


def _same_names(found: pa.Table, expected: pa.Table) -> bool:
    return sorted(found["name"].to_pylist()) == sorted(expected["name"].to_pylist())


def _with_structs(table: pa.Table) -> pa.Table:
    for name in {"histogram", "sketch"}.intersection(table.column_names):
        cells = from_json(table[name].to_pylist(), SCHEMAS["tensors"].field(name).type)
        table = table.set_column(table.column_names.index(name), name, cells)
    return table
