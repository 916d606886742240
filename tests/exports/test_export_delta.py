"""Exports into Delta Lake."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from exporting import ExportConformance, write_run, write_step
from runs import Job

from tensortrial.errors import ConfigurationError


class TestDelta(ExportConformance):
    @pytest.fixture
    def target(self, tmp_path: Path) -> str:
        return f"delta:{tmp_path}/lake"

    def table(self, target: str, table: str, version: int | None = None) -> DeltaTable:
        return DeltaTable(f"{target.removeprefix('delta:')}/{table}", version=version)

    def read(self, target: str, table: str) -> pa.Table:
        return self.table(target, table).to_pyarrow_table()

    def make_other(self, target: str) -> None:
        DeltaTable.create(
            f"{target.removeprefix('delta:')}/steps", pa.schema([("run", pa.string()), ("colour", pa.string())])
        )

    def test_a_part_is_one_version_and_earlier_ones_stay(self, tmp_path: Path, target: str) -> None:
        with Job(tmp_path / "a", flush_seconds=0) as job:
            for _ in range(2):
                write_step(job)
                job.flush()
                self.export(tmp_path / "a", target, tables=["tensors"])
        versions = [len(self.table(target, "tensors", version).to_pyarrow_table()) for version in range(3)]
        assert versions == [0, 5, 10]

    def test_duckdb_reads_it(self, tmp_path: Path, target: str) -> None:
        self.export(write_run(tmp_path / "a", 3), target)
        scalars = self.table(target, "scalars").to_pyarrow_dataset()
        assert scalars.count_rows() == 6
        assert duckdb.sql("select count(*), count(distinct name) from scalars").fetchall() == [(6, 2)]

    def test_a_url_without_a_folder_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigurationError, match="names no folder"):
            self.export(write_run(tmp_path / "a", 1), "delta:")
