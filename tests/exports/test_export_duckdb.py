"""Exports into a DuckDB file."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

import tensortrial
from support.export_conformance import JobConformance
from tensortrial.errors import ConfigurationError, ExportError


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
            database.execute("create table steps (run varchar, colour varchar)")

    def test_a_path_alone_will_do(self, tmp_path: Path, run: Path) -> None:
        tensortrial.export(run, tmp_path / "x.duckdb", progress=False)
        assert len(self.read(str(tmp_path / "x.duckdb"), "steps")) == 6

    def test_what_is_no_database_is_refused(self, tmp_path: Path, run: Path) -> None:
        (tmp_path / "x.duckdb").write_text("no database at all, but long enough to be taken for one" * 100)
        with pytest.raises(ExportError, match="cannot open it as a DuckDB file"):
            tensortrial.export(run, tmp_path / "x.duckdb", progress=False)


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
    tensortrial.export(run, tmp_path / "x.duckdb", progress=False)
    begun = "timestamptz '2026-01-01 00:00:00+00'"
    queries = [
        *(f"select count(*) from {view} where saved_at <= {begun}" for view in ("tensors", "scalars", "steps")),
        f"select count(*) from runs where started = {begun} and started < now()",
    ]
    with duckdb.connect(str(tmp_path / "x.duckdb")) as database:
        for query, count in zip(queries, (5, 2, 1, 1), strict=True):
            opened = tensortrial.open_runs(run)
            assert database.sql(query).fetchall() == opened.sql(query).fetchall() == [(count,)], query
    assert tensortrial.create_trial(run).sql(queries[0]).fetchall() == [(5,)]


def test_a_target_of_no_kind_is_named(run: Path) -> None:
    with pytest.raises(ExportError, match="begins with duckdb:") as caught:
        tensortrial.export(run, "duckbd://user:secret@host/x", progress=False)
    assert "secret" not in str(caught.value)
