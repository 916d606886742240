"""What every target of an export must do: a class of tests, subclassed once a target."""

from __future__ import annotations

import json
import math
import shutil
import time
from abc import ABC, abstractmethod
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import ml_dtypes
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tensortrial
from support import warm
from support.runs import EPOCH, EVAL, TRAIN, Job
from tensortrial.config.collection import Collection
from tensortrial.errors import ConfigurationError, ExportError, TableMismatch
from tensortrial.exports.tables import DOCUMENTS
from tensortrial.rules import ExplodingTensor, watch

KEYS = ["run", "worker", "global_step", "name", "mode", "reduction"]
GROWING = ("steps", "tensors", "scalars", "reductions")
# Two tables to which rows are added, and one that is replaced: enough for what a target does with any table.
SOME = ("steps", "tensors", "runs")
# An export that says each part before it writes it, and makes a part of each index file.
SLOWLY = """
import threading
import tensortrial
from tensortrial.exports import job, source

source.PART_ROWS = job.PART_ROWS = 1
open_target = job.open_target

def opened(*arguments):
    target = open_target(*arguments)
    write = target.write

    written = 0

    def saying(parts):
        nonlocal written
        print("part", flush=True)
        if (written := written + 1) == 30:
            threading.Event().wait()  # it is killed between its 25th part and this one
        write(parts)

    target.write = saying
    return target

job.open_target = opened
tensortrial.export({runs!r}, {target!r}, progress=False, **{options!r})
"""


def write_run(path: Path, steps: int = 6, worker: str = "worker_0", num_workers: int = 1, **options: Any) -> Path:
    """A run with scalars, statistics, histograms, raw values of several dtypes, two modes, and NaN."""
    collections = [Collection("weights", ["w"])]
    with Job(path, worker, num_workers, collections=collections, saved=["weights"], flush_seconds=0, **options) as job:
        for _ in range(steps):
            write_step(job)
    return path


def write_step(job: Job) -> None:
    number = job.next_global_step
    step = job.begin(EVAL if number % 3 == 2 else TRAIN)
    weight = np.linspace(-number, 1, 6, dtype=np.float32).reshape(2, 3)
    job.put(step, {"loss": 1.0 / (1 + number), "accuracy": float("nan") if number == 1 else 0.5})
    job.put(step, {"net.w": weight}, statistics=("min", "max", "l2", "nan_count"), histogram=True)
    job.put(step, {"half": weight.astype(ml_dtypes.bfloat16), "empty": np.zeros((0, 4), np.int8)}, closes=True)


def train(path: Path, first: int, last: int, **options: Any) -> None:
    """Save the steps from `first` to before `last`, after a checkpoint at `first`; NaN at one of them."""
    with tensortrial.Run(path, flush_seconds=0, **options) as run:
        if first:
            run.resume_at(first)
        for number in range(first, last):
            with run.step(number):
                run.log({"loss": float("nan") if number == 1 else time.monotonic()})


def end_power() -> None:
    """Interrupt an export at this moment."""
    raise RuntimeError("the power went")


def same(found: pa.Table, expected: pa.Table) -> bool:
    """Return whether two tables hold the same rows, in any order; NaN equals NaN, and a decimal a whole number.

    The keys of JSON documents have any order, too.
    """
    return repr(_sorted(_whole(found)).to_pylist()) == repr(_sorted(_whole(expected)).to_pylist())


def _whole(table: pa.Table) -> pa.Table:
    """Return the table with unsigned integers for decimals, which targets have in their place."""
    kinds = [pa.uint64() if pa.types.is_decimal(kind) else kind for kind in table.schema.types]
    columns = [column.cast(kind) for column, kind in zip(table.columns, kinds, strict=True)]
    for name in DOCUMENTS.intersection(table.column_names):
        parsed = [text and json.dumps(json.loads(text), sort_keys=True) for text in table[name].to_pylist()]
        columns[table.column_names.index(name)] = pa.chunked_array([pa.array(parsed, pa.string())])
    return pa.table(columns, names=table.column_names)


def _sorted(table: pa.Table) -> pa.Table:
    return in_utc(table).sort_by([(name, "ascending") for name in KEYS if name in table.column_names])


def in_utc(table: pa.Table) -> pa.Table:
    """With all times in UTC, as exports have them; views leave out to say so."""
    times = [pa.types.is_timestamp(kind) for kind in table.schema.types]
    columns = [
        column.cast(pa.timestamp("us", "UTC")) if is_time else column
        for column, is_time in zip(table.columns, times, strict=True)
    ]
    return pa.table(columns, names=table.column_names)


def from_json(cells: list[str | None], kind: pa.DataType) -> pa.Array:
    """JSON texts as lists or structs. In a struct, the first list is of numbers, which may be "NaN" or "Infinity"."""
    parsed = [cell and json.loads(cell) for cell in cells]
    for cell in filter(None, parsed if pa.types.is_struct(kind) else []):
        cell[kind[0].name] = list(map(float, cell[kind[0].name]))
    return pa.array(parsed, kind)


def bounded_floats(path: Path) -> list[str]:
    """The floating-point columns of a Parquet file that have a minimum and a maximum."""
    metadata = pq.read_metadata(path)
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    columns = [group.column(number) for group in groups for number in range(group.num_columns)]
    return [
        each.path_in_schema
        for each in columns
        if each.physical_type == "DOUBLE"
        and "." not in each.path_in_schema
        and each.is_stats_set
        and each.statistics.has_min_max
    ]


class ExportConformance(ABC):
    """Subclass it, and say where the target is and how a table of it is read. The fixture `run` is a run of 6 steps."""

    @pytest.fixture
    @abstractmethod
    def target(self, tmp_path: Path) -> Any:
        """The URL of a new, empty target."""

    @abstractmethod
    def read(self, target: str, table: str) -> pa.Table:
        """A table of the target, with the names of its columns, times in UTC, lists as lists, histograms as structs."""

    def make_other(self, target: str) -> None:
        """Put a table `steps` of other columns into the target: run and color, both text."""
        pytest.skip("the target has no tables that others make")

    def rename(self, target: str, table: str, name: str) -> None:
        """Rename a table of the target, as the message about other columns advises."""
        pytest.skip("the note of the content moves with the table")

    def options(self, target: str) -> dict[str, Any]:
        """The options of an export in addition to the URL."""
        return {}

    def export(self, runs: Any, target: str, **options: Any) -> tensortrial.Export:
        return tensortrial.export(runs, target, progress=False, **self.options(target), **options)

    def parquet_files(self, target: str, table: str) -> list[Path]:
        """The Parquet files that the target keeps of a table."""
        pytest.skip("the target keeps no Parquet files that others read")

    def test_no_reader_of_a_file_skips_nan(self, tmp_path: Path, target: str) -> None:
        with Job(tmp_path / "a") as job:
            for value in (1.5, float("nan"), -0.0, 0.5):
                step = job.begin(TRAIN)
                job.put(step, {"loss": value})
                job.put(step, {"w": np.full(3, value)}, statistics=("mean", "l2"), closes=True)
        trial = tensortrial.create_trial(tmp_path / "a")
        assert list(watch(trial, [ExplodingTensor(trial)]))
        self.export(tmp_path / "a", target, tables=["tensors", "scalars", "reductions", "findings"])
        for table, column, count in (
            ("tensors", "scalar", 1),
            ("tensors", "mean", 1),
            ("scalars", "value", 1),
            ("reductions", "value", 2),
        ):
            files = duckdb.read_parquet([str(path) for path in self.parquet_files(target, table)])
            for condition in (f"isnan({column})", f"{column} > 1e308", f"not {column} between -1e308 and 1e308"):
                assert files.filter(condition).aggregate("count(*)").fetchall() == [(count,)], (table, condition)
        for table in ("tensors", "scalars", "reductions", "findings"):
            for path in self.parquet_files(target, table):
                assert not bounded_floats(path), (table, path)

    def check(self, runs: Any, target: str, *tables: str, without: tuple[str, ...] = ()) -> None:
        opened = tensortrial.open_runs(runs)
        for table in tables:
            expected = opened.sql(f"select * from {table}").to_arrow_table()
            found = self.read(target, table)
            assert found.column_names == expected.column_names
            kept = [name for name in found.column_names if name not in without]
            assert same(found.select(kept), expected.select(kept)), table

    def test_tables_hold_what_the_views_hold(self, tmp_path: Path, target: str) -> None:
        write_run(tmp_path / "runs/a")
        write_run(tmp_path / "runs/b", 4)
        done = self.export(tmp_path / "runs", target)
        self.check(tmp_path / "runs", target, *GROWING, "runs", "run_summary", "collections")
        assert done.rows["tensors"] == (6 + 4) * 5
        assert done.rows["steps"] == 10
        assert "tensor_values" not in done.rows
        assert not done.damaged

    def test_of_a_tensor_that_was_saved_again_the_last_row_is_exported(self, tmp_path: Path, target: str) -> None:
        tables = ("tensors", "scalars", "tensor_values")
        with Job(tmp_path / "a", flush_seconds=0) as job:
            steps = [job.step({"w": np.full(3, number), "loss": float(number)}) for number in range(3)]
            self.export(tmp_path / "a", target, tables=tables)
            job.put(steps[1], {"w": np.full(3, 10), "late": np.ones(2)}, closes=True)
            job.flush()
            job.put(steps[1], {"w": np.full(3, 20), "loss": 5.0}, closes=True)
        self.export(tmp_path / "a", target, tables=tables)
        self.check(tmp_path / "a", target, *tables)
        values = self.read(target, "tensor_values").to_pylist()
        assert [row["value"] for row in values if (row["name"], row["global_step"]) == ("w", 1)] == [
            np.full(3, 20).tobytes()
        ]

    def test_raw_values_are_exported_on_request(self, run: Path, target: str) -> None:
        self.export(run, target, tables=["tensor_values"])
        self.check(run, target, "tensor_values")

    def test_sketches_of_numbers_that_are_not_finite_are_exported(self, tmp_path: Path, target: str) -> None:
        with Job(tmp_path / "a") as job:
            job.step({"w": np.array([1.5, np.nan, np.inf, -np.inf]), "finite": np.arange(3.0)}, sketch=True)
        self.export(tmp_path / "a", target, tables=["tensors"])
        self.check(tmp_path / "a", target, "tensors")

    def test_again_moves_only_what_is_new(self, tmp_path: Path, target: str) -> None:
        with Job(tmp_path / "a", flush_seconds=0) as job:
            write_step(job)
            write_step(job)
            job.writer.flush()
            first = self.export(tmp_path / "a", target, tables=SOME)
            assert (first.rows["steps"], first.rows["tensors"]) == (2, 10)
            again = self.export(tmp_path / "a", target, tables=SOME)
            assert (again.rows["steps"], again.rows["tensors"]) == (0, 0)
            write_step(job)
            job.writer.flush()
            third = self.export(tmp_path / "a", target, tables=SOME)
            assert (third.rows["steps"], third.rows["tensors"]) == (1, 5)
        self.export(tmp_path / "a", target, tables=SOME)
        self.check(tmp_path / "a", target, *SOME)

    def test_the_summary_of_a_run_follows_its_steps(self, tmp_path: Path, target: str) -> None:
        tables = ("scalars", "run_summary")
        write_run(tmp_path / "runs/b", 2)
        with (
            Job(tmp_path / "runs/a", "worker_0", 2, flush_seconds=0) as one,
            Job(tmp_path / "runs/a", "worker_1", 2, flush_seconds=0) as two,
        ):
            for value in (3.0, float("nan"), 2.0):
                for job in (one, two):
                    job.step({"loss": value * (1 if job is one else 10)})
                    job.writer.flush()
                    self.export(tmp_path / "runs", target, tables=tables)
                    self.check(tmp_path / "runs", target, *tables)
        (loss,) = [row for row in self.read(target, "run_summary").to_pylist() if row["run"] == "a"]
        assert [loss[name] for name in ("name", "last", "last_step", "min", "max", "steps")] == [
            *("loss", 20, 2, 2, 30, 3)
        ]
        again = self.export(tmp_path / "runs", target, tables=tables)
        assert again.rows.get("run_summary", 0) == 0

    def test_the_summary_follows_a_run_that_grows_goes_back_and_saves_steps_again(
        self, tmp_path: Path, target: str
    ) -> None:
        tables, run = ("scalars", "run_summary"), tmp_path / "a"

        def moved() -> None:
            self.export(run, target, tables=tables)
            self.check(run, target, *tables)

        for first, last in [(0, 2), (2, 6), (6, 7), (3, 5), (5, 9)]:
            train(run, first, last, resume=first > 0)
            moved()
        with tensortrial.Run(run, resume=True) as resumed:
            resumed.resume_at(2)
            with resumed.step(20):  # later than all steps that no longer count
                resumed.log({"loss": 3.0})
        moved()
        with Job(run, resume=True, flush_seconds=0) as job:
            known = job.step({"loss": math.inf, "new": -1.0})
            job.writer.flush()
            moved()
            job.put(known, {"loss": 5.0}, closes=True)
            job.writer.flush()
            moved()
            job.step({"new": math.nan})
            job.writer.flush()
            moved()
            tensortrial.compact(run, delete_older_than=0)
            job.step({"new": 2.0, "loss": -7.5})
            job.writer.flush()
            self.export(run, target, tables=("steps",))  # the summary is behind this table now
            job.step({"new": 3.0})
        moved()

    def test_workers_and_tables_are_moved_each_by_itself(self, tmp_path: Path, target: str) -> None:
        with (
            Job(tmp_path / "a", "worker_0", 2, flush_seconds=0) as one,
            Job(tmp_path / "a", "worker_1", 2, flush_seconds=0) as two,
        ):
            write_step(one)
            one.writer.flush()
            self.export(tmp_path / "a", target, tables="steps")
            write_step(two)
            write_step(two)
        self.export(tmp_path / "a", target, tables=SOME)
        self.check(tmp_path / "a", target, *SOME)

    def test_a_run_of_any_name_is_replaced_by_itself(self, tmp_path: Path, target: str) -> None:
        for name in ("it's", "its", 'a "b" % _'):
            write_run(tmp_path / "runs" / name, 1)
        for _ in range(2):
            self.export(tmp_path / "runs", target, tables=SOME)
        self.check(tmp_path / "runs", target, *SOME)

    def test_since_a_time_leaves_out_what_was_saved_before(self, run: Path, target: str) -> None:
        after = datetime.fromtimestamp(EPOCH / 1e9 + 10 * 365 * 86400, UTC)
        self.export(run, target, since=after, tables=["steps", "tensors"])
        assert len(self.read(target, "steps")) == len(self.read(target, "tensors")) == 0

    def test_another_run_of_the_same_name_is_refused(self, tmp_path: Path, target: str) -> None:
        self.export(write_run(tmp_path / "one/a", 2), target, tables=SOME)
        other = write_run(tmp_path / "two/a", 3)
        with pytest.raises(ExportError, match="another run of this name"):
            self.export(other, target, tables=SOME)
        self.check(tmp_path / "one/a", target, *SOME)

    def test_a_table_with_other_columns_is_left_alone(self, run: Path, target: str) -> None:
        self.make_other(target)
        with pytest.raises(TableMismatch) as caught:
            self.export(run, target)
        assert caught.value.table == "steps"
        assert any(line.startswith("+ color") for line in caught.value.difference)
        assert any(line.startswith("- global_step") for line in caught.value.difference)
        assert not any("run" in line.split() for line in caught.value.difference)
        assert self.read(target, "steps").column_names == ["run", "color"]

    def test_a_table_that_was_renamed_is_exported_again(self, run: Path, target: str) -> None:
        self.export(run, target)
        for table in ("runs", "tensors"):
            self.rename(target, table, f"earlier_{table}")
        assert self.export(run, target).rows == {"runs": 1, "collections": 0, "steps": 0, "tensors": 30}
        self.check(run, target, *GROWING)

    def test_a_run_that_went_back_is_exported_as_it_counts_now(self, tmp_path: Path, target: str) -> None:
        train(tmp_path / "a", 0, 3)
        train(tmp_path / "a", 3, 6, resume=True)
        self.export(tmp_path / "a", target)
        train(tmp_path / "a", 4, 5, resume=True)  # and the later step is gone
        done = self.export(tmp_path / "a", target)
        assert (done.rows["steps"], self.read(target, "steps")["global_step"].to_pylist().count(5)) == (5, 0)
        self.check(tmp_path / "a", target, *GROWING, "runs", "collections")
        train(tmp_path / "a", 5, 6, resume=True)
        assert self.export(tmp_path / "a", target).rows["steps"] == 1
        assert self.export(tmp_path / "a", target).rows["steps"] == 0
        self.check(tmp_path / "a", target, *GROWING, "runs", "run_summary")

    def test_pruning_deletes_what_is_not_exported(self, tmp_path: Path, target: str) -> None:
        for name in ("a", "b"):
            write_run(tmp_path / "runs" / name, 2)
        self.export(tmp_path / "runs", target, tables=SOME)
        shutil.rmtree(tmp_path / "runs/b")
        assert not self.export(tmp_path / "runs", target, tables=SOME).pruned
        assert self.export(tmp_path / "runs", target, tables=SOME, prune=True).pruned == ("b",)
        self.check(tmp_path / "runs", target, *SOME)
        write_run(tmp_path / "runs/b", 3)
        assert self.export(tmp_path / "runs", target, tables=SOME).rows["steps"] == 3
        self.check(tmp_path / "runs", target, *SOME)

    @pytest.mark.slow
    def test_a_killed_export_is_finished_by_the_next(self, tmp_path: Path, target: str) -> None:
        # Not closed meanwhile: the many index files of a run so small become one at its end.
        job = Job(tmp_path / "a", flush_seconds=0)
        for _ in range(40):
            write_step(job)
            job.writer.flush()
        run = tmp_path / "a"
        program = SLOWLY.format(runs=str(run), target=target, options=self.options(target))
        with warm.start(["-c", program]) as process:
            assert process.stdout is not None
            for _ in range(25):
                assert process.stdout.readline() == "part\n"
            process.kill()
        deadline = time.monotonic() + 20
        while True:
            try:
                done = self.export(run, target)
                break
            except ExportError:  # the server may not have seen yet that the process is gone
                assert time.monotonic() < deadline
                time.sleep(0.2)
        assert 0 < done.rows["steps"] + done.rows["tensors"] < 40 + 200
        self.check(run, target, *GROWING)
        job.close()

    def test_a_run_keeps_its_name(self, tmp_path: Path, target: str) -> None:
        with Job(tmp_path / "one/a", flush_seconds=0) as job:
            write_step(job)
            job.writer.flush()
            self.export(tmp_path, target, tables=SOME)
            before = {table: self.read(target, table) for table in ("tensors", "runs")}
            assert set(before["tensors"]["run"].to_pylist()) == {"a"}
            # From now on it is called one/a.
            write_run(tmp_path / "two/a", 2)
            write_step(job)
            job.writer.flush()
            assert tensortrial.open_runs(tmp_path).names == ["one/a", "two/a"]
            for rows in (3, 0):
                assert self.export(tmp_path, target, tables=SOME).rows["steps"] == rows
        runs = [row["run"] for row in self.read(target, "steps").to_pylist()]
        assert sorted(runs) == ["a", "a", "two/a", "two/a"]
        assert sorted(self.read(target, "runs")["run"].to_pylist()) == ["a", "two/a"]


class JobConformance(ExportConformance):
    """What the export itself does for all targets. One of them, whichever it is, shows it."""

    def test_compacting_in_between_changes_nothing(self, tmp_path: Path, target: str) -> None:
        run = write_run(tmp_path / "a", 5)
        self.export(run, target)
        tensortrial.compact(run, delete_older_than=0)
        assert self.export(run, target).rows["tensors"] == 0
        with Job(run, resume=True) as job:
            write_step(job)
        tensortrial.compact(run, delete_older_than=0)
        assert self.export(run, target).rows["steps"] == 1
        # Raw values have moved since.
        self.check(run, target, *GROWING, without=("chunk", "offset", "row_group", "row"))

    def test_since_leaves_earlier_steps_out(self, run: Path, target: str) -> None:
        self.export(run, target, since=4, tables=["steps", "tensors"])
        assert sorted(set(self.read(target, "steps")["global_step"].to_pylist())) == [4, 5]
        assert sorted(set(self.read(target, "tensors")["global_step"].to_pylist())) == [4, 5]

    def test_a_table_that_there_is_not_is_named(self, run: Path, target: str) -> None:
        with pytest.raises(ConfigurationError, match="unknown table 'tensor'; did you mean tensors"):
            self.export(run, target, tables=["tensor"])

    def test_a_copy_of_a_run_is_that_run(self, tmp_path: Path, target: str) -> None:
        self.export(write_run(tmp_path / "one/a", 2), target)
        shutil.copytree(tmp_path / "one", tmp_path / "two")
        assert self.export(tmp_path / "two/a", target).rows["steps"] == 0

    def test_a_file_that_cannot_be_read_now_is_exported_once_it_can(self, tmp_path: Path, target: str) -> None:
        with Job(tmp_path / "a", flush_seconds=0) as job:
            for _ in range(4):
                write_step(job)
                job.writer.flush()
            hidden = sorted((tmp_path / "a/index").rglob("*.parquet"))[1]
            hidden.rename(tmp_path / "away")
            hidden.symlink_to(tmp_path / "nowhere")
            done = self.export(tmp_path / "a", target, tables=["steps", "tensors"])
            assert [Path(path).name for path in done.damaged] == [hidden.name]
            (tmp_path / "away").replace(hidden)
            self.export(tmp_path / "a", target, tables=["steps", "tensors"])
        self.check(tmp_path / "a", target, "steps", "tensors")

    def test_what_a_run_has_lost_stays_in_the_target(self, tmp_path: Path, target: str) -> None:
        with Job(tmp_path / "a", flush_seconds=0) as job:
            for _ in range(4):
                write_step(job)
                job.flush()
            self.export(tmp_path / "a", target, tables=["steps", "tensors"])
            *_, before, last = sorted((tmp_path / "a/index").rglob("*.parquet"))
            before.write_bytes(b"damaged")
            assert self.export(tmp_path / "a", target, tables=["steps", "tensors"]).damaged
            last.unlink()
            before.unlink()
            self.export(tmp_path / "a", target, tables=["steps", "tensors"])
        assert sorted(self.read(target, "steps")["global_step"].to_pylist()) == [0, 1, 2, 3]

    def test_nothing_is_pruned_while_a_run_cannot_be_read(self, tmp_path: Path, target: str) -> None:
        for name in ("a", "b"):
            write_run(tmp_path / "runs" / name, 2)
        self.export(tmp_path / "runs", target, tables=SOME)
        (tmp_path / "runs/b/run.json").write_text("{")
        assert self.export(tmp_path / "runs", target, tables=SOME, prune=True).pruned == ()
        assert sorted(self.read(target, "runs")["run"].to_pylist()) == ["a", "b"]

    def test_damaged_files_are_left_out_and_said(self, tmp_path: Path, target: str) -> None:
        run = write_run(tmp_path / "a", 4)
        with Job(run, resume=True, flush_seconds=0) as job:
            write_step(job)
        damaged_file = sorted((run / "index").rglob("*.parquet"), key=lambda path: path.name)[-1]
        damaged_file.write_bytes(damaged_file.read_bytes()[:-20])
        done = self.export(run, target)
        assert [Path(path).name for path in done.damaged] == [damaged_file.name]
        assert done.rows["steps"] == 4

    def test_a_file_that_was_left_out_is_said_again(self, tmp_path: Path, target: str) -> None:
        """Its footer is whole, so its steps are known and its rows are not."""
        run = write_run(tmp_path / "a", 4)
        file = min((run / "index").rglob("*.parquet"))  # the one that counts, if the run was compacted at its end
        content = bytearray(file.read_bytes())
        content[50:54] = b"XXXX"
        file.write_bytes(content)
        assert [Path(path).name for path in self.export(run, target).damaged] == [file.name]
        assert [Path(path).name for path in self.export(run, target).damaged] == [file.name]
