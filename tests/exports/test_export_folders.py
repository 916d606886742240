"""Exports into folders of Parquet and CSV files."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import tensortrial
from support.export_conformance import SOME, ExportConformance, end_power, from_json, train, write_run, write_step
from support.file_access import before_opening
from support.runs import Job
from tensortrial.config.collection import Collection
from tensortrial.errors import ConfigurationError, ExportError, TableMismatch
from tensortrial.exports.json_text import as_json
from tensortrial.exports.tables import SCHEMAS
from tensortrial.exports.targets.parquet_file import write_parquet
from tensortrial.format.arrow_arrays import encoded

LARGE = " " * (33 << 20)
"""More than a small file may have."""


class FolderConformance(ExportConformance):
    suffix: str

    def path(self, target: str) -> Path:
        return Path(target.partition(":")[2])

    def files(self, target: str, table: str) -> list[Path]:
        return sorted((self.path(target) / table).rglob(f"[!.]*{self.suffix}"))

    def parquet_files(self, target: str, table: str) -> list[Path]:
        if self.suffix != ".parquet":
            pytest.skip("no Parquet")
        return self.files(target, table)

    def test_a_worker_and_a_run_of_any_name_have_files_of_their_own(self, tmp_path: Path, target: str) -> None:
        runs = tmp_path / "runs"
        write_run(runs / "x/lr=0.1 é", 2, "gpu:0/é")
        write_run(runs / "y/lr=0.1 é", 2, "..")
        self.export(runs, target)
        self.check(runs, target, "steps", "tensors", "runs")
        assert self.export(runs, target).rows["tensors"] == 0

    def test_two_exports_at_once_are_refused(self, tmp_path: Path, target: str) -> None:
        run = tmp_path / "a"
        with Job(run, flush_seconds=0) as writer:
            write_step(writer)
            writer.flush()

            def other() -> None:
                write_step(writer)
                self.export(run, target)

            # The first export has begun its first file.
            with (
                before_opening(self.path(target) / "steps", other),
                pytest.raises(ExportError, match="another export of a is under way"),
            ):
                self.export(run, target)
            self.export(run, target)
        self.check(run, target, "steps", "tensors")

    def test_nothing_is_left_of_what_was_not_finished(self, run: Path, target: str) -> None:
        # Values are read when their rows are written.
        with before_opening(run / "tensors", end_power), pytest.raises(RuntimeError, match="the power went"):
            self.export(run, target, tables=["tensor_values"])
        assert not list((self.path(target) / "tensor_values").rglob("*.*"))
        self.export(run, target, tables=["tensor_values"])
        self.check(run, target, "tensor_values")

    def test_a_target_that_is_not_a_folder_is_named(self, run: Path, target: str) -> None:
        self.path(target).write_text("a file")
        with pytest.raises(ExportError, match=f"^{re.escape(target)}: .*") as caught:
            self.export(run, target)
        assert "not a directory" in str(caught.value).lower()

    @pytest.mark.parametrize("noted", ["{", "[]", '{"run": "a"}', LARGE], ids=lambda text: text[:9])
    def test_a_damaged_note_is_named(self, run: Path, target: str, noted: str) -> None:
        self.export(run, target)
        (self.path(target) / "exports/a.json").write_text(noted)
        with pytest.raises(ExportError, match=r"exports/a\.json is damaged: .* export the run again"):
            self.export(run, target)

    def test_a_folder_on_a_disk_has_no_options(self, run: Path, target: str) -> None:
        with pytest.raises(ConfigurationError, match="has no option 'endpoint_url' for a folder on a disk"):
            self.export(run, target, endpoint_url="http://localhost:1")
        assert not self.path(target).exists()

    def test_a_target_without_a_folder_is_refused(self, run: Path, target: str) -> None:
        scheme = target.partition(":")[0]
        with pytest.raises(ConfigurationError, match=f"{scheme}: names no folder; write {scheme}:exports"):
            self.export(run, f"{scheme}:")


class TestParquetFolder(FolderConformance):
    suffix = ".parquet"

    @pytest.fixture
    def target(self, tmp_path: Path) -> str:
        return f"parquet:{tmp_path}/out"

    def test_runs_that_grew_since_they_were_opened_have_a_summary_of_their_exported_steps(
        self, tmp_path: Path, target: str
    ) -> None:
        tables = ("scalars", "run_summary")
        train(tmp_path / "a", 0, 3)
        opened = tensortrial.open_runs(tmp_path / "a")
        train(tmp_path / "a", 3, 5, resume=True)
        self.export(opened, target, tables=tables)
        self.export(tmp_path / "a", target, tables=tables)
        self.check(tmp_path / "a", target, *tables)

    def test_a_summary_whose_note_is_missing_is_computed_from_all_rows(self, tmp_path: Path, target: str) -> None:
        tables, folder = ("scalars", "run_summary"), Path(target.removeprefix("parquet:"))
        train(tmp_path / "a", 0, 3)
        self.export(tmp_path / "a", target, tables=tables)
        shutil.copytree(folder, tmp_path / "before")
        train(tmp_path / "a", 3, 5, resume=True)
        self.export(tmp_path / "a", target, tables=tables)
        # As an export leaves it that is killed before it writes the note.
        shutil.copy(folder / "run_summary/a.parquet", tmp_path / "before/run_summary/a.parquet")
        self.export(tmp_path / "a", f"parquet:{tmp_path}/before", tables=tables)
        self.check(tmp_path / "a", f"parquet:{tmp_path}/before", *tables)

    def read(self, target: str, table: str) -> pa.Table:
        return pa.concat_tables([pq.ParquetFile(path).read() for path in self.files(target, table)])

    def make_other(self, target: str) -> None:
        path = self.path(target) / "steps/a/worker_0/000000000000-000000000001.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(pa.table({"run": ["a"], "color": ["red"]}), path)

    def test_another_engine_reads_it(self, run: Path, target: str) -> None:
        self.export(run, target)
        count = duckdb.sql(
            f"select count(*) from '{self.path(target)}/tensors/**/*.parquet' where run = 'a'"
        ).fetchall()
        assert count == [(30,)]

    def test_a_reader_of_folders_passes_over_no_name(self, tmp_path: Path, target: str) -> None:
        for name in ("_baseline", "b", ".c"):
            write_run(tmp_path / "runs" / name, 1, f"_{name}")
        self.export(tmp_path / "runs", target, tables=SOME)
        assert self.export(tmp_path / "runs", target, tables=SOME).rows["steps"] == 0
        runs = tensortrial.open_runs(tmp_path / "runs").names
        for table in SOME:
            assert sorted(set(pq.read_table(self.path(target) / table)["run"].to_pylist())) == runs

    def test_an_object_store_takes_it(self, run: Path, moto_s3: Any) -> None:
        bucket = moto_s3.new_bucket()
        for rows in (6, 0):
            done = tensortrial.export(run, f"parquet:{bucket}/out", progress=False, **moto_s3.storage_options)
            assert done.rows["steps"] == rows
        (key,) = [
            each["Key"]
            for each in moto_s3.client.list_objects_v2(Bucket=bucket.removeprefix("s3://"))["Contents"]
            if each["Key"].startswith("out/steps/")
        ]
        assert re.fullmatch(r"out/steps/a/worker_0/000000000000-000000000005-[0-9a-f]{15}\.parquet", key)


class TestCSVFolder(FolderConformance):
    suffix = ".csv"

    @pytest.fixture
    def target(self, tmp_path: Path) -> str:
        return f"csv:{tmp_path}/out"

    def read(self, target: str, table: str) -> pa.Table:
        return pa.concat_tables([_read_csv(path, SCHEMAS[table]) for path in self.files(target, table)])

    def make_other(self, target: str) -> None:
        path = self.path(target) / "steps/a/worker_0/000000000000-000000000001.csv"
        path.parent.mkdir(parents=True)
        path.write_text('"run","color"\n"a","red"\n')

    def test_a_file_without_a_header_is_not_read_whole(self, run: Path, target: str) -> None:
        path = self.path(target) / "steps/a/worker_0/000000000000-000000000001.csv"
        path.parent.mkdir(parents=True)
        with path.open("wb") as file:
            file.truncate(1 << 40)  # sparse: larger than any memory
        with pytest.raises(TableMismatch) as caught:
            self.export(run, target)
        assert caught.value.table == "steps"

    def test_texts_of_any_kind_come_back(self, tmp_path: Path, target: str) -> None:
        names = ["", 'say "no", é\n', "\\", "a,b", "\t\x01"]
        with Job(tmp_path / "a", collections=[Collection("c", ["."])], saved=["c"]) as job:
            job.step(dict.fromkeys(names, 1.0), collections=tuple(names))
        self.export(tmp_path / "a", target)
        self.check(tmp_path / "a", target, "tensors", "collections")


def test_a_file_holds_more_texts_than_a_dictionary_does(tmp_path: Path) -> None:
    schema = pa.schema([("name", pa.string()), ("number", pa.int64())])
    names = [f"a long name, number {number}" * 4 if number % 7 else None for number in range(150_000)]
    rows = pa.table({"name": names, "number": range(len(names))}, schema)
    coded = encoded(schema)
    batches = [batch.cast(coded) for batch in rows.to_batches(20_000)]
    with (tmp_path / "x.parquet").open("wb") as file:
        assert write_parquet(file, coded, batches).num_rows == len(names)
    assert pq.ParquetFile(tmp_path / "x.parquet").read().equals(rows)


def test_lists_and_structs_become_json() -> None:
    lists = pa.array([["a", 'b"'], None, [], ["é\n"], ["z"]])
    for column in (
        lists,
        lists.slice(2),
        lists.slice(1, 1),
        pa.array([[1, 2], None, [], [-3]]),
        pa.array([[1.5, 1e300], None]),
        pa.array([{"edges": [0.5, 1.0], "counts": [3]}, None, {"edges": [0.1, -2.0], "counts": [1]}]).slice(1),
    ):
        assert [text and json.loads(text) for text in as_json(column).to_pylist()] == column.to_pylist()


def _read_csv(path: Path, schema: pa.Schema) -> pa.Table:
    nested = {field.name: field.type for field in schema if pa.types.is_nested(field.type)}
    texts = {field.name: pa.string() if field.name in nested or _is_raw(field) else field.type for field in schema}
    convert = pyarrow.csv.ConvertOptions(
        column_types=texts, strings_can_be_null=True, quoted_strings_can_be_null=False, null_values=[""]
    )
    parse = pyarrow.csv.ParseOptions(newlines_in_values=True)
    table = pyarrow.csv.read_csv(path, parse_options=parse, convert_options=convert)
    for index, field in enumerate(schema if table.column_names == schema.names else ()):
        cells = table[field.name].to_pylist()
        if field.name in nested:
            cells = from_json(cells, field.type)
        if _is_raw(field):
            cells = [bytes.fromhex(cell) for cell in cells]
        table = table.set_column(index, field.name, pa.array(cells, field.type))
    return table


def _is_raw(field: pa.Field) -> bool:
    return bool(pa.types.is_binary(field.type))


def test_a_tensor_without_a_name_is_read_from_a_csv_file(tmp_path: Path) -> None:
    with Job(tmp_path / "run") as job:  # no hook saves one
        job.put(job.begin(), {"": 5.0, "y": 6.0}, closes=True)
    tensortrial.export(tmp_path / "run", f"csv:{tmp_path}/out", progress=False)
    files = f"{tmp_path}/out/scalars/**/*.csv"
    query = f"select name, value from read_csv('{files}', allow_quoted_nulls = false) order by value"
    assert duckdb.sql(query).fetchall() == [("", 5.0), ("y", 6.0)]
