"""Runs of Trackio, from the SQLite files that Trackio wrote here."""

from __future__ import annotations

import math
import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

import tensortrial
from support.imported_runs import import_quietly, metadata, values
from tensortrial.errors import ConfigurationError, CorruptFile, RunNotFound
from tensortrial.importers.trackio import import_runs

PROGRAM = """
import trackio
nan, inf = float("nan"), float("inf")
run = trackio.init(project="digits", name="../first", config={"lr": 0.1, "opt": {"name": "adam"}})
for step, loss in enumerate([3.0, nan, inf, -inf, 0.5]):
    trackio.log({"train/loss": loss, "val": {"acc": step}, "text": "x", "ok": True})
trackio.log({"train/loss": 9.0}, step=1)
trackio.log({"hist": trackio.Histogram(np_histogram=([1, 2, 3], [0.0, 0.5, 1.0, 2.0]))}, step=7)
trackio.finish()
for _ in range(2):
    trackio.init(project="digits", name="same name", resume="never")
    for step in range(1500):
        trackio.log({"loss": step / 2})
    trackio.finish()
trackio.init(project="other", name="x")
trackio.log({"loss": 1.0})
trackio.finish()
"""


@pytest.fixture(scope="module")
def written(write: Callable[..., Path]) -> Path:
    return write(PROGRAM) / "trackio"


@pytest.fixture
def folder(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(written, tmp_path / "trackio"))


class TestRunsOfTrackio:
    def test_become_a_run_each_below_their_project(self, folder: Path, tmp_path: Path) -> None:
        runs, _ = import_quietly(import_runs, folder, tmp_path / "runs")
        names = [str(Path(run).relative_to(tmp_path / "runs")) for run in runs]
        assert names[:2] == ["digits/%2E.%2Ffirst", "digits/same name"]
        assert names[2].startswith("digits/same name (")
        assert names[3:] == ["other/x"]
        assert len(tensortrial.open_runs(tmp_path / "runs")) == 4
        assert len(values(runs[2], "loss")) == 1500
        assert sorted(os.listdir(tmp_path)) == ["runs", "trackio"]

    def test_keep_their_numbers(self, folder: Path, tmp_path: Path) -> None:
        runs, reported = import_quietly(import_runs, folder / "digits.db", tmp_path / "runs")
        loss = values(runs[0], "train/loss")
        assert [loss[step] for step in range(5)] == [3.0, 9.0, math.inf, -math.inf, 0.5]
        assert values(runs[0], "val.acc") == {0: 0.0, 1: 1.0, 2: 2.0, 3: 3.0, 4: 4.0}
        assert values(runs[0], "ok")[0] == 1.0
        rows = tensortrial.create_trial(runs[0]).sql("select global_step, histogram from tensors where name = 'hist'")
        assert rows.fetchall() == [(7, {"edges": [0.0, 0.5, 1.0, 2.0], "counts": [1, 2, 3]})]
        assert any("5 values that are no numbers, of 'text'" in sentence for sentence in reported)
        assert any("1 numbers, because later ones" in sentence for sentence in reported)

    def test_keep_nan(self, folder: Path, tmp_path: Path) -> None:
        with sqlite3.connect(folder / "digits.db") as database:
            database.execute("delete from metrics where cast(metrics as text) like '%9.0%'")
        runs, _ = import_quietly(import_runs, folder / "digits.db", tmp_path / "runs")
        assert math.isnan(values(runs[0], "train/loss")[1])

    def test_keep_configuration_and_times(self, folder: Path, tmp_path: Path) -> None:
        runs, _ = import_quietly(import_runs, folder / "digits.db", tmp_path / "runs", metadata={"owner": "ann"})
        found = metadata(runs[0])
        assert (found["lr"], found["opt"], found["owner"]) == (0.1, {"name": "adam"}, "ann")
        assert (found["trackio"]["project"], found["trackio"]["run_name"]) == ("digits", "../first")
        with sqlite3.connect(folder / "digits.db") as database:
            ((time,),) = database.execute("select min(timestamp) from metrics").fetchall()
        ((first,),) = tensortrial.create_trial(runs[0]).sql("select min(saved_at)::varchar from scalars").fetchall()
        assert first.replace(" ", "T").startswith(time[:23])


class TestAFileOfTrackio:
    def test_with_damaged_rows_gives_the_rest(self, folder: Path, tmp_path: Path) -> None:
        with sqlite3.connect(folder / "other.db") as database:
            rows = ["{", "[1]", "[" * 100_000, '{"a": ' * 90 + "1" + "}" * 90, '{"loss": 1e999, "\\ud800": 1, "": 2}']
            for step, text in enumerate([*rows, 5, None], start=10):
                database.execute(
                    "insert into metrics (run_id, timestamp, run_name, step, metrics) "
                    "select run_id, '0001-01-01T00:00:00', run_name, ?, ifnull(?, x'ff') from metrics limit 1",
                    (step, text),
                )
        runs, reported = import_quietly(import_runs, folder / "other.db", tmp_path / "runs")
        assert values(runs[0], "loss") == {0: 1.0, 14: math.inf}
        assert sum("this row is left out" in sentence for sentence in reported) == 6
        assert any("the values of '\\ud800', which cannot be the name of a tensor" in sentence for sentence in reported)

    def test_that_is_none_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(RunNotFound, match="no such file"):
            import_runs(tmp_path / "x.db", tmp_path / "runs")
        (tmp_path / "folder").mkdir()
        with pytest.raises(RunNotFound, match=r"no file that ends with \.db"):
            import_runs(tmp_path / "folder", tmp_path / "runs")
        (tmp_path / "x.db").write_bytes(b"text")
        with pytest.raises(CorruptFile, match="not an SQLite file"):
            import_runs(tmp_path / "x.db", tmp_path / "runs")
        with sqlite3.connect(tmp_path / "y.db") as database:
            database.execute("create table metrics (id, step, metrics)")
        with pytest.raises(
            CorruptFile, match="not a file of Trackio: it lacks the column 'timestamp' of the table 'metrics'"
        ):
            import_runs(tmp_path / "y.db", tmp_path / "runs")
        with pytest.raises(ConfigurationError, match="from a disk only"):
            import_runs("s3://bucket/x.db", tmp_path / "runs")
        assert not (tmp_path / "runs").exists()

    def test_that_is_damaged_keeps_no_other_from_being_imported(self, folder: Path, tmp_path: Path) -> None:
        (folder / "aaa.db").write_bytes(b"SQLite format 3\0" + os.urandom(8000))
        runs, reported = import_quietly(import_runs, folder, tmp_path / "runs")
        assert len(runs) == 4
        assert any("aaa.db: SQLite cannot read it" in sentence for sentence in reported)

    def test_without_a_run_is_named(self, folder: Path, tmp_path: Path) -> None:
        with sqlite3.connect(folder / "other.db") as database:
            database.execute("delete from metrics")
        with pytest.raises(RunNotFound, match=r"other\.db: Trackio has no run here"):
            import_runs(folder / "other.db", tmp_path / "runs")
