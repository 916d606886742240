"""Exports into a DuckDB file."""

from __future__ import annotations

import resource
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import tensortrial
from support.export_conformance import GROWING, JobConformance, write_run
from tensortrial.errors import ConfigurationError, ExportError
from tensortrial.rules import ExplodingTensor, watch


@pytest.mark.parametrize("target", ["duckdb:", "duckdb://", "duckdb:///", "duckdb::memory:"])
def test_a_target_without_a_file_is_refused(run: Path, target: str) -> None:
    with pytest.raises(ConfigurationError, match=r"duckdb: names no file; write duckdb:warehouse\.duckdb"):
        tensortrial.export(run, target, progress=False)


class TestDuckDBFile(JobConformance):
    @pytest.fixture
    def target(self, tmp_path: Path) -> str:
        return f"duckdb://{tmp_path}/out.duckdb"

    def read(self, target: str, table: str) -> pa.Table:
        with duckdb.connect(target.removeprefix("duckdb://")) as database:
            return database.sql(f"from {table}").to_arrow_table()

    def make_other(self, target: str) -> None:
        with duckdb.connect(target.removeprefix("duckdb://")) as database:
            database.execute("create table steps (run varchar, color varchar)")

    def rename(self, target: str, table: str, name: str) -> None:
        with duckdb.connect(target.removeprefix("duckdb://")) as database:
            database.execute(f"alter table {table} rename to {name}")

    def test_rows_that_nothing_lists_are_not_exported_again(self, run: Path, target: str) -> None:
        self.export(run, target)
        self.rename(target, "exports", "earlier_exports")
        with pytest.raises(ExportError, match=r"the table exports, which .*, is missing, .* steps, tensors have rows"):
            self.export(run, target)
        assert len(self.read(target, "steps")) == 6
        for table in ("steps", "tensors"):
            self.rename(target, table, f"earlier_{table}")
        assert self.export(run, target).rows["steps"] == 6
        self.check(run, target, *GROWING)

    @pytest.mark.parametrize("tables", [None, ["tensors"]])
    def test_rows_that_were_deleted_from_the_list_are_not_exported_again(
        self, tmp_path: Path, run: Path, target: str, tables: list[str] | None
    ) -> None:
        self.export(run, target, tables=tables)
        with duckdb.connect(target.removeprefix("duckdb://")) as database:
            database.execute("delete from exports")
        with pytest.raises(ExportError, match=r"exports, which .*, lacks rows, .* have rows of the run 'a', which"):
            self.export(run, target, tables=tables)
        assert len(self.read(target, "tensors")) == 30
        self.export(write_run(tmp_path / "other"), target, tables=tables)

    def test_a_path_alone_will_do(self, tmp_path: Path, run: Path) -> None:
        tensortrial.export(run, tmp_path / "x.duckdb", progress=False)
        assert len(self.read(str(tmp_path / "x.duckdb"), "steps")) == 6

    def test_what_is_no_database_is_refused(self, tmp_path: Path, run: Path) -> None:
        (tmp_path / "x.duckdb").write_text("no database at all, but long enough to pass as one" * 100)
        with pytest.raises(ExportError, match="cannot open it as a DuckDB file"):
            tensortrial.export(run, tmp_path / "x.duckdb", progress=False)

    def test_a_disk_that_is_full_at_the_commit_is_an_error_of_the_export(
        self, tmp_path: Path, run: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("sys.dont_write_bytecode", True)  # what is imported meanwhile would be cut off, too
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (13_000, hard))  # the header of the file fits, the rows do not
        try:
            with pytest.raises(ExportError, match=r"x\.duckdb: .*Failed to commit"):
                tensortrial.export(run, tmp_path / "x.duckdb", progress=False)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        tensortrial.export(run, tmp_path / "x.duckdb", progress=False)
        assert len(self.read(str(tmp_path / "x.duckdb"), "steps")) == 6


@pytest.fixture
def far_away(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine in another time zone."""
    monkeypatch.setenv("TZ", "Asia/Kathmandu")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("far_away")
def test_a_time_is_the_same_moment_in_every_time_zone(tmp_path: Path, run: Path) -> None:
    shutil.copytree(run, copy := tmp_path / "run")
    hook = tensortrial.Run(copy, resume=True)
    hook.log({"y": float("nan")})
    hook.close()
    with tensortrial.create_trial(copy) as trial:
        assert list(watch(trial, [ExplodingTensor(trial)]))
    tables = ["tensors", "scalars", "steps", "runs", "findings"]
    for target in (tmp_path / "x.duckdb", f"parquet:{tmp_path / 'files'}"):
        tensortrial.export(copy, target, tables=tables, progress=False)
    begun, just_now = "timestamptz '2026-01-01 00:00:00+00'", "now() - interval 10 minute"
    queries = {
        **{
            f"select count(*) from {view} where saved_at <= {begun}": count
            for view, count in (("tensors", 5), ("scalars", 2), ("steps", 1))
        },
        f"select count(*) from runs where started_at = {begun} and started_at < now()": 1,
        "select count(*) from steps where saved_at <= '2026-01-01 00:00+00'": 1,
        f"select count(*) from steps where saved_at > {just_now}": 1,
        f"select count(*) from findings where found_at > {just_now} and found_at <= now()": 2,
        f"select count(*) from runs where ended_at > {just_now} and ended_at <= now()": 1,
    }
    of_parts = (
        "select distinct hour(saved_at), saved_at::date from steps where saved_at < '2026-01-01 00:10' order by all"
    )
    with (
        duckdb.connect(str(tmp_path / "x.duckdb")) as database,
        duckdb.connect() as files,
        tensortrial.open_runs(copy) as opened,
        tensortrial.create_trial(copy) as trial,
    ):
        for name in tables:
            files.execute(f"create view {name} as from read_parquet('{tmp_path}/files/{name}/**/*.parquet')")
        for query, count in queries.items():
            asked: list[Any] = [database, files, opened, *([] if "runs" in query else [trial])]
            assert [each.sql(query).fetchall() for each in asked] == [[(count,)]] * len(asked), query
        for exported in (database, files):
            exported.execute("set TimeZone = 'UTC'")
            assert exported.sql(of_parts).fetchall() == trial.sql(of_parts).fetchall() != []


def test_a_target_of_no_kind_is_named(run: Path) -> None:
    with pytest.raises(ExportError, match="begins with duckdb:") as caught:
        tensortrial.export(run, "duckbd://user:secret@host/x", progress=False)
    assert "secret" not in str(caught.value)
