"""Exports into Delta Lake."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from support.export_conformance import ExportConformance, write_run, write_step
from support.file_access import before_opening
from support.runs import Job
from tensortrial.errors import ConfigurationError, ExportError
from tensortrial.exports.tables import SCHEMAS


class TestDelta(ExportConformance):
    @pytest.fixture
    def target(self, tmp_path: Path) -> str:
        return f"delta:{tmp_path}/lake"

    def table(self, target: str, table: str, version: int | None = None) -> DeltaTable:
        return DeltaTable(f"{target.removeprefix('delta:')}/{table}", version=version)

    def read(self, target: str, table: str) -> pa.Table:
        return self.table(target, table).to_pyarrow_table()

    def parquet_files(self, target: str, table: str) -> list[Path]:
        return list(Path(target.removeprefix("delta:"), table).rglob("*.parquet"))

    def make_other(self, target: str) -> None:
        DeltaTable.create(
            f"{target.removeprefix('delta:')}/steps", pa.schema([("run", pa.string()), ("color", pa.string())])
        )

    def test_a_part_is_one_version_and_earlier_ones_stay(self, tmp_path: Path, target: str) -> None:
        with Job(tmp_path / "a", flush_seconds=0) as job:
            for _ in range(2):
                write_step(job)
                job.flush()
                self.export(tmp_path / "a", target, tables=["tensors"])
        versions = [len(self.table(target, "tensors", version).to_pyarrow_table()) for version in range(3)]
        assert versions == [0, 5, 10]

    def test_a_file_says_which_runs_and_steps_it_has(self, run: Path, target: str) -> None:
        self.export(run, target, tables=["tensors"])
        found = pa.table(self.table(target, "tensors").get_add_actions(flatten=True)).to_pylist()
        bounds = [(row["num_records"], row["min.run"], row["min.global_step"], row["max.global_step"]) for row in found]
        assert bounds == [(30, "a", 0, 5)]

    def test_a_table_with_partitions_keeps_them(self, tmp_path: Path, target: str) -> None:
        DeltaTable.create(f"{target.removeprefix('delta:')}/steps", SCHEMAS["steps"], partition_by=["run"])
        for name in ("a", "b"):
            write_run(tmp_path / "runs" / name, 2)
        self.export(tmp_path / "runs", target, tables=["steps"])
        self.check(tmp_path / "runs", target, "steps")
        assert sorted(each["run"] for each in self.table(target, "steps").partitions()) == ["a", "b"]

    def test_two_exports_at_once_are_refused(self, tmp_path: Path, target: str) -> None:
        run = tmp_path / "a"
        with Job(run, flush_seconds=0) as job:
            write_step(job)
            job.flush()
            self.export(run, target, tables=["tensor_values"])
            write_step(job)
        # Values are read when the first export writes them.
        other = partial(self.export, run, target, tables=["tensor_values"])
        with (
            before_opening(run / "tensors", other),
            pytest.raises(ExportError, match="another export is under way"),
        ):
            self.export(run, target, tables=["tensor_values"])
        self.check(run, target, "tensor_values")

    def test_what_was_exported_is_known_when_the_log_is_gone(self, run: Path, target: str) -> None:
        self.export(run, target, tables=["steps"])
        for table in ("steps", "exports"):
            self.table(target, table).create_checkpoint()
            for entry in Path(target.removeprefix("delta:"), table, "_delta_log").glob("*.json"):
                entry.unlink()
        assert self.export(run, target, tables=["steps"]).rows["steps"] == 0

    def test_a_store_that_cannot_be_reached_is_named_without_its_keys(self, run: Path) -> None:
        options = {
            "endpoint_url": "http://127.0.0.1:9",
            "access_key_id": "someone",
            "secret_access_key": "very-secret",
            "region": "us-east-1",
            "allow_http": "true",
            "max_retries": 0,
        }
        with pytest.raises(ExportError, match="s3://bucket/lake") as caught:
            self.export(run, "delta:s3://bucket/lake", **options)
        assert not any(each in str(caught.value) for each in ("very-secret", "\x1b"))  # neither a key nor a color

    def test_duckdb_reads_it(self, run: Path, target: str) -> None:
        self.export(run, target)
        scalars = self.table(target, "scalars").to_pyarrow_dataset()
        assert scalars.count_rows() == 12
        assert duckdb.sql("select count(*), count(distinct name) from scalars").fetchall() == [(12, 2)]

    def test_a_folder_on_a_disk_has_no_options_of_stores(self, tmp_path: Path, run: Path, target: str) -> None:
        with pytest.raises(ConfigurationError, match="delta: has no option 'region' for a folder on a disk"):
            self.export(run, target, region="us-east-1")
        assert not (tmp_path / "lake").exists()
        self.export(run, target, tables=["steps"], allow_unsafe_rename="true")
        self.check(run, target, "steps")

    def test_a_url_without_a_folder_is_refused(self, run: Path) -> None:
        with pytest.raises(ConfigurationError, match="names no folder"):
            self.export(run, "delta:")
