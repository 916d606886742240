"""Exports into Apache Iceberg, with a catalogue in SQLite, and in a real PostgreSQL server."""

from __future__ import annotations

import traceback
from abc import abstractmethod
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from adbc_driver_postgresql import dbapi
from pyiceberg.catalog import load_catalog
from pyiceberg.io.pyarrow import pyarrow_to_schema
from pyiceberg.table import StaticTable
from pyiceberg.transforms import IdentityTransform

import tensortrial
from support.export_conformance import ExportConformance, end_power, write_run, write_step
from support.file_access import before_opening
from support.missing import without
from support.runs import Job
from tensortrial.errors import ConfigurationError, ExportError, MissingExtra


class IcebergConformance(ExportConformance):
    @abstractmethod
    def catalogue(self, target: str) -> Any:
        """The catalogue, as pyiceberg opens it."""

    def read(self, target: str, table: str) -> pa.Table:
        return self.catalogue(target).load_table(("tensortrial", table)).scan().to_arrow()

    def files(self, target: str, table: str) -> list[Path]:
        location = urlsplit(self.catalogue(target).load_table(("tensortrial", table)).location()).path
        return list(Path(location).rglob("*.parquet"))

    def parquet_files(self, target: str, table: str) -> list[Path]:
        return self.files(target, table)

    def make_other(self, target: str) -> None:
        catalogue = self.catalogue(target)
        catalogue.create_namespace("tensortrial")
        catalogue.create_table(("tensortrial", "steps"), pa.schema([("run", pa.string()), ("color", pa.string())]))

    def test_a_part_is_one_snapshot_and_earlier_ones_stay(self, tmp_path: Path, target: str) -> None:
        with Job(tmp_path / "a", flush_seconds=0) as job:
            for _ in range(2):
                write_step(job)
                job.flush()
                self.export(tmp_path / "a", target, tables=["tensors"])
        table = self.catalogue(target).load_table("tensortrial.tensors")
        first, second = table.snapshots()
        assert len(table.scan(snapshot_id=first.snapshot_id).to_arrow()) == 5
        assert len(table.scan(snapshot_id=second.snapshot_id).to_arrow()) == 10

    def test_two_exports_at_once_are_refused(self, run: Path, target: str) -> None:
        # Values are read when the first export writes them.
        other = partial(self.export, run, target, tables=["tensor_values"])
        with (
            before_opening(run / "tensors", other),
            pytest.raises(ExportError, match="another export is under way"),
        ):
            self.export(run, target, tables=["tensor_values"])
        self.check(run, target, "tensor_values")
        assert len(self.files(target, "tensor_values")) == 1

    def test_a_file_is_written_once_with_the_numbers_of_its_columns(self, run: Path, target: str) -> None:
        self.export(run, target, tables=["tensors", "scalars"])
        table = self.catalogue(target).load_table("tensortrial.tensors")
        (path,) = self.files(target, "tensors")
        (row,) = table.inspect.files().to_pylist()
        assert row["file_path"].endswith(path.name)
        assert row["record_count"] == 30
        # What Iceberg's own schema says of the file is what the file says: no reader has to guess by names.
        ids = pyarrow_to_schema(pq.read_schema(path)).as_struct()
        assert {field.name: field.field_id for field in ids.fields} == {
            field.name: field.field_id for field in table.schema().fields
        }
        assert str(ids) == str(table.schema().as_struct())
        assert len(table.scan("name = 'loss' and global_step >= 1").to_arrow()) == 5

    def test_an_export_of_nothing_new_writes_no_file_and_logs_nothing(
        self, run: Path, target: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        self.export(run, target, tables=["steps", "tensors", "runs"])
        location = urlsplit(self.catalogue(target).load_table("tensortrial.steps").location()).path
        written = set(Path(location).parent.rglob("*"))
        self.export(run, target, tables=["steps", "tensors", "runs"])
        assert set(Path(location).parent.rglob("*")) == written
        assert not [record for record in caplog.records if record.name.startswith("pyiceberg")]

    def test_where_there_are_no_rows_there_is_no_file(self, run: Path, target: str) -> None:
        self.export(run, target, since=100, tables=["tensors"])
        assert not self.files(target, "tensors")

    def test_nothing_is_left_of_what_was_not_finished(self, run: Path, target: str) -> None:
        # Values are read when their rows are written.
        with before_opening(run / "tensors", end_power), pytest.raises(RuntimeError, match="the power went"):
            self.export(run, target, tables=["tensor_values"])
        assert not self.files(target, "tensor_values")
        self.export(run, target, tables=["tensor_values"])
        self.check(run, target, "tensor_values")

    @pytest.mark.parametrize(("column", "value", "files"), [("run", "b", 1), ("mode", "TRAIN", 2)])
    def test_a_table_may_be_partitioned(self, tmp_path: Path, target: str, column: str, value: str, files: int) -> None:
        write_run(tmp_path / "runs/a", 2)
        self.export(tmp_path / "runs", target)
        catalogue = self.catalogue(target)
        for name in ("steps", "tensors"):
            with catalogue.load_table(("tensortrial", name)).update_spec() as spec:
                spec.add_field(column, IdentityTransform(), "part")
        write_run(tmp_path / "runs/b", 3)
        self.export(tmp_path / "runs", target)
        self.check(tmp_path / "runs", target, "steps", "tensors")
        found = catalogue.load_table("tensortrial.tensors").inspect.files().to_pylist()
        parts = [row["partition"]["part"] for row in found]
        assert (parts.count(None), len(parts), value in parts) == (1, 1 + files, True)

    def test_what_was_exported_is_known_when_snapshots_are_gone(self, run: Path, target: str) -> None:
        self.export(run, target, tables=["steps"])
        with self.catalogue(target) as catalogue:
            steps = catalogue.load_table("tensortrial.steps")
            steps.overwrite(steps.scan().to_arrow())
            old = [each.snapshot_id for each in steps.snapshots()][:-1]
            steps.maintenance.expire_snapshots().by_ids(old).commit()
        assert self.export(run, target, tables=["steps"]).rows["steps"] == 0
        self.check(run, target, "steps")

    def test_an_option_that_no_catalogue_has_is_refused(self, tmp_path: Path, run: Path, target: str) -> None:
        with pytest.raises(ConfigurationError, match="iceberg: has no option 'nmespace'; it has namespace, warehouse"):
            self.export(run, target, nmespace="mine")
        self.export(run, target, tables=["steps"], echo="false", **{"s3.region": "us-east-1"})
        self.check(run, target, "steps")

    def test_a_namespace_can_be_chosen(self, run: Path, target: str) -> None:
        self.export(run, target, namespace="mine", tables=["steps"])
        assert len(self.catalogue(target).load_table("mine.steps").scan().to_arrow()) == 6


class TestIceberg(IcebergConformance):
    """A catalogue in SQLite."""

    @pytest.fixture
    def target(self, tmp_path: Path) -> str:
        return f"iceberg:sqlite:///{tmp_path}/lake/lake.db"

    def catalogue(self, target: str) -> Any:
        file = Path(target.removeprefix("iceberg:sqlite:///"))
        file.parent.mkdir(exist_ok=True)
        return load_catalog("tensortrial", type="sql", uri=f"sqlite:///{file}", warehouse=file.parent.as_uri())

    def test_a_file_that_is_no_catalogue_is_refused(self, tmp_path: Path, run: Path, target: str) -> None:
        (tmp_path / "lake").mkdir()
        (tmp_path / "lake/lake.db").write_text("not a database" * 100)
        with pytest.raises(ExportError, match="file is not a database"):
            tensortrial.export(run, target, progress=False)

    def test_a_relative_path_is_that_of_tables_too(
        self, tmp_path: Path, run: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        tensortrial.export(run, "iceberg:sqlite:///new/lake.db", tables=["steps"], progress=False)
        assert (tmp_path / "new/lake.db").exists()
        assert len(list((tmp_path / "new/tensortrial/steps/data").glob("*.parquet"))) == 1


@pytest.mark.slow
class TestIcebergInPostgreSQL(IcebergConformance):
    """A catalogue in a PostgreSQL server, and the tables' files in a folder."""

    @pytest.fixture
    def target(self, postgres: Any, tmp_path: Path) -> str:
        return f"iceberg:{postgres.new_database()}"

    @pytest.fixture(autouse=True)
    def _has_a_warehouse(self, tmp_path: Path) -> None:
        self.warehouse = (tmp_path / "warehouse").as_uri()

    def options(self, target: str) -> dict[str, Any]:
        return {"warehouse": self.warehouse}

    def catalogue(self, target: str) -> Any:
        uri = target.removeprefix("iceberg:").replace("postgresql:", "postgresql+psycopg2:")
        return load_catalog("tensortrial", type="sql", uri=uri, warehouse=self.warehouse)


def test_a_catalogue_may_be_in_postgresql(tmp_path: Path, run: Path, postgres: Any) -> None:
    url = postgres.new_database()
    warehouse = (tmp_path / "warehouse").as_uri()
    for rows in (6, 0):
        done = tensortrial.export(run, f"iceberg:{url}", warehouse=warehouse, tables=["steps"], progress=False)
        assert done.rows["steps"] == rows
    with dbapi.connect(url) as connection, connection.cursor() as cursor:
        cursor.execute("select table_namespace, table_name, metadata_location from iceberg_tables")
        ((namespace, table, location),) = cursor.fetchall()
    assert (namespace, table) == ("tensortrial", "steps")
    assert location.startswith(f"{warehouse}/tensortrial/steps/metadata/")
    assert len(StaticTable.from_metadata(location).scan().to_arrow()) == 6


def test_postgresql_without_its_driver_names_the_extra(
    tmp_path: Path, run: Path, postgres: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    without(monkeypatch, "psycopg2")
    with pytest.raises(MissingExtra, match=r"psycopg2, which is not installed: pip install 'tensortrial\[warehouse\]'"):
        tensortrial.export(run, f"iceberg:{postgres.url()}", warehouse=tmp_path.as_uri(), progress=False)


@pytest.mark.parametrize(
    ("location", "reason"),
    [
        ("nowhere", "iceberg:nowhere: pyiceberg's configuration has no catalogue 'nowhere'"),
        ("sqlite://", "names no file; write iceberg:sqlite:///lake/catalogue.db"),
        ("sqlite:///:memory:", "names no file"),
        ("postgresql://me:hunter2@127.0.0.1:1/x", "say where the files of new tables go"),
        ("nodatabase://me:hunter2@127.0.0.1:1/x", "say where the files of new tables go"),
    ],
)
def test_a_catalogue_that_cannot_be_is_refused(run: Path, location: str, reason: str) -> None:
    with pytest.raises(ExportError, match=reason) as caught:
        tensortrial.export(run, f"iceberg:{location}", progress=False)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("location", "reason"),
    [
        ("postgresql://me:hunter2@127.0.0.1:1/x", "Connection refused"),
        ("postgres://me:hunter2@127.0.0.1:1/x", "Connection refused"),
        ("postgresql://me@127.0.0.1:1/x?password=hunter2", "Connection refused"),
        ("postgresql://me:hunter2@127.0.0.1:1/x?wrong=1", 'invalid connection option "wrong"'),
        ("postgresql://me:hunter2@hunter2@127.0.0.1:1/x", "must be written as %40"),
        ("postgresql://me:x/hunter2@127.0.0.1:1/x", "must be written as %40"),
        ("mysql://me:hunter2@127.0.0.1:1/x", "the driver of mysql is not installed"),
        ("nodatabase://me:hunter2@127.0.0.1:1/x", "nodatabase"),
    ],
)
def test_a_server_that_refuses_is_said_without_a_password(
    tmp_path: Path, run: Path, location: str, reason: str
) -> None:
    with pytest.raises(ExportError, match=reason) as caught:
        tensortrial.export(run, f"iceberg:{location}", warehouse=tmp_path.as_uri(), progress=False)
    shown = "".join(traceback.format_exception(caught.value)) + repr(caught.value.__dict__)
    assert "hunter2" not in shown.replace(location, "")
    assert "hunter2" not in str(caught.value)
