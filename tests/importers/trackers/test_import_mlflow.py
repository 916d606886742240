"""Runs of MLflow, from both of its stores, which MLflow wrote here."""

from __future__ import annotations

import math
import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

import tensortrial
from support.imported_runs import import_quietly, metadata, values
from tensortrial.cli import main
from tensortrial.errors import ConfigurationError, CorruptFile, RunNotFound, StorageError
from tensortrial.importers.mlflow import import_runs

PROGRAM = """
import os, mlflow
from mlflow.entities import Metric
mlflow.set_tracking_uri(os.environ["STORE"])
mlflow.set_experiment("digits: a/b #2")
nan, inf = float("nan"), float("inf")
with mlflow.start_run(run_name="first\\nrun 'é'"):
    mlflow.log_params({"lr": 0.1, "opt/name": "adam"})
    mlflow.set_tag("team", "vision")
    for step, loss in enumerate([3.0, nan, inf, -inf, 0.5]):
        mlflow.log_metric("train/loss", loss, step=step)
    mlflow.log_metric("train/loss", 2.0, step=1)  # back, and again
    mlflow.log_metric("accuracy", 0.25)           # MLflow's step is 0 if none is given
    mlflow.log_metric("accuracy", 0.75)
    mlflow.log_metric("early", 1.0, step=-1)
    mlflow.log_text("step,loss,note\\n0,1.5,a\\n7,2.5,b\\n", "logs/validation.csv")
    mlflow.log_text("a,b\\n1,2\\n", "other.csv")
with mlflow.start_run(run_name="long") as long:
    points = [Metric("loss", i / 2, 1740830400000 + i, i) for i in range(5_000)]
    for begin in range(0, len(points), 1000):
        mlflow.MlflowClient().log_batch(long.info.run_id, points[begin:begin + 1000])
with mlflow.start_run(run_name="without metrics"):
    mlflow.log_param("lr", 1)
with mlflow.start_run(run_name="deleted") as deleted:
    mlflow.log_metric("loss", 1.0)
mlflow.delete_run(deleted.info.run_id)
mlflow.start_run(run_name="running")
mlflow.log_metric("loss", 4.0, step=3)
os._exit(0)
"""


@pytest.fixture(scope="module")
def written(write: Callable[..., Path]) -> dict[str, Path]:
    """Both stores, by kind, each with the same five runs."""
    folder = write(PROGRAM, STORE="mlruns")
    database = write(PROGRAM, STORE="sqlite:///mlflow.db")
    return {"files": folder / "mlruns", "sqlite": database / "mlflow.db"}


@pytest.fixture(params=["files", "sqlite"])
def store(request: pytest.FixtureRequest, written: dict[str, Path], tmp_path: Path) -> Path:
    """A copy of a store."""
    source = written[request.param]
    copy = tmp_path / source.name
    shutil.copytree(source, copy) if source.is_dir() else shutil.copy(source, copy)
    return copy


def _by_name(runs: list[str]) -> dict[str, str]:
    return {metadata(run)["mlflow"]["run_name"]: run for run in runs}


class TestAStoreOfMlflow:
    def test_becomes_a_run_for_each_that_logged_a_number(self, store: Path, tmp_path: Path) -> None:
        runs, reported = import_quietly(import_runs, store, tmp_path / "runs")
        assert sorted(_by_name(runs)) == ["first\nrun 'é'", "long", "running"]
        assert {Path(run).parent.name for run in runs} == {"digits%3A a%2Fb %232"}
        assert len(tensortrial.open_runs(tmp_path / "runs")) == 3
        assert sum("because it was deleted" in sentence for sentence in reported) == 1
        assert sum("has no number that could be imported" in sentence for sentence in reported) == 1

    def test_keeps_numbers_that_are_not_finite_and_the_last_of_a_step(self, store: Path, tmp_path: Path) -> None:
        runs, reported = import_quietly(import_runs, store, tmp_path / "runs")
        run = _by_name(runs)["first\nrun 'é'"]
        loss = values(run, "train/loss")
        assert list(loss) == [0, 1, 2, 3, 4]
        assert [loss[step] for step in (0, 1, 2, 3, 4)] == [3.0, 2.0, math.inf, -math.inf, 0.5]
        assert values(run, "accuracy") == {0: 0.75}
        trial = tensortrial.create_trial(run)
        assert trial.tensor_names(collection="losses") == ["train/loss"]
        assert "early" not in trial.tensor_names() or not trial.tensor("early").steps()
        about_first = [sentence.rpartition(": ")[2] for sentence in reported if "numbers, because" in sentence]
        assert about_first == ["2 numbers, because later ones have the same name and step"]
        assert any("whose step is no whole number from 0 to 1e12, such as -1" in sentence for sentence in reported)

    def test_keeps_nan(self, store: Path, tmp_path: Path) -> None:
        if store.is_dir():
            path = next(store.glob("*/*/metrics/train/loss"))
            path.write_text("\n".join(line for line in path.read_text().splitlines() if " 2.0 " not in line) + "\n")
        else:
            with sqlite3.connect(store) as database:
                database.execute("delete from metrics where key = 'train/loss' and value = 2")
        runs, _ = import_quietly(import_runs, store, tmp_path / "runs")
        assert math.isnan(values(_by_name(runs)["first\nrun 'é'"], "train/loss")[1])

    def test_keeps_parameters_and_what_is_known_about_the_run(self, store: Path, tmp_path: Path) -> None:
        runs = _by_name(import_quietly(import_runs, store, tmp_path / "runs", metadata={"owner": "ann"})[0])
        found = metadata(runs["first\nrun 'é'"])
        assert (found["lr"], found["opt/name"], found["owner"]) == ("0.1", "adam", "ann")
        about = found["mlflow"]
        assert (about["experiment"], about["status"]) == ("digits: a/b #2", "FINISHED")
        assert about["tags"]["team"] == "vision"
        assert about["run_id"] == Path(runs["first\nrun 'é'"]).name
        assert about["started_at"] < about["ended_at"]
        running = metadata(runs["running"])["mlflow"]
        assert running["status"] == "RUNNING"
        assert "ended_at" not in running

    def test_keeps_times_and_histories_of_any_length(self, store: Path, tmp_path: Path) -> None:
        run = _by_name(import_quietly(import_runs, store, tmp_path / "runs")[0])["long"]
        sql = "select count(*), sum(value), epoch_ms(min(saved_at)), epoch_ms(max(saved_at)) from scalars"
        (row,) = tensortrial.create_trial(run).sql(sql).fetchall()
        assert row == (5_000, sum(i / 2 for i in range(5_000)), 1740830400000, 1740830404999)

    def test_is_read_with_its_tables_among_artifacts_if_asked(
        self, store: Path, written: dict[str, Path], tmp_path: Path
    ) -> None:
        source = store if store.is_dir() else written["sqlite"]  # which names the folder of its artifacts
        runs, reported = import_quietly(import_runs, source, tmp_path / "runs", artifacts=True)
        run = _by_name(runs)["first\nrun 'é'"]
        assert values(run, "logs/validation.csv/loss") == {0: 1.5, 7: 2.5}
        assert values(run, "train/loss")[4] == 0.5
        assert any("other.csv: this table, because it has no column step" in sentence for sentence in reported)

    def test_is_imported_by_the_command_line(self, store: Path, tmp_path: Path) -> None:
        done = CliRunner().invoke(main, ["import", "mlflow", str(store), str(tmp_path / "runs"), "--no-progress"])
        assert done.exit_code == 0, done.output
        assert len(done.stdout.split("\n")) == 4
        assert done.stderr.count("skipped:") == 4


class TestAFolderOfMlflow:
    def test_of_one_experiment_or_one_run_is_enough(self, written: dict[str, Path], tmp_path: Path) -> None:
        run = next(written["files"].glob("*/*/metrics/accuracy")).parents[1]
        assert len(import_quietly(import_runs, run.parent, tmp_path / "experiment")[0]) == 3
        (made,), _ = import_quietly(import_runs, run, tmp_path / "one")
        assert made == str(tmp_path / "one")
        assert values(made, "accuracy") == {0: 0.75}
        (made,), _ = import_quietly(import_runs, run.as_uri(), tmp_path / "two")
        assert values(made, "accuracy") == {0: 0.75}

    def test_with_damaged_files_gives_the_rest(self, written: dict[str, Path], tmp_path: Path) -> None:
        store = tmp_path / "mlruns"
        shutil.copytree(written["files"], store)
        first = next(store.glob("*/*/metrics/accuracy")).parents[1]
        with (first / "metrics/train/loss").open("ab") as file:
            file.write(b"\xff\xfe\nnot a line\n1740830400000 9.5 7")  # the job writes this line right now
        running = next(path for path in store.glob("*/*/tags/mlflow.runName") if path.read_text() == "running")
        (running.parents[1] / "meta.yaml").write_text("a: &x [*x]")
        runs, reported = import_quietly(import_runs, store, tmp_path / "runs")
        assert 7 not in values(_by_name(runs)["first\nrun 'é'"], "train/loss")
        (lines,) = [sentence for sentence in reported if "metrics/train/loss" in sentence]
        assert "3 lines that are incomplete or hold no number: '1740830400000 9.5 7'" in lines
        (yaml,) = [sentence for sentence in reported if "meta.yaml" in sentence]
        assert "this is not YAML: it contains itself" in yaml
        assert len(runs) == 2

    def test_with_folders_among_its_files_gives_the_rest(self, written: dict[str, Path], tmp_path: Path) -> None:
        store = tmp_path / "mlruns"
        shutil.copytree(written["files"], store)
        run = next(store.glob("*/*/metrics/accuracy")).parents[1]
        (run / "metrics/empty").mkdir()
        (run / "params/within").symlink_to(run / "params")
        before, _ = import_quietly(import_runs, written["files"], tmp_path / "before")
        runs, reported = import_quietly(import_runs, store, tmp_path / "runs")
        assert len(runs) == len(before)
        assert {sentence.rpartition(": ")[2] for sentence in reported} >= {"it is a folder, and not a file"}
        assert f"{run}/metrics/empty: it is a folder, and not a file" in reported

    def test_makes_no_object_that_its_yaml_names(self, written: dict[str, Path], tmp_path: Path) -> None:
        store = tmp_path / "mlruns"
        shutil.copytree(written["files"], store)
        for meta in store.glob("*/*/meta.yaml"):
            meta.write_text(f"run_id: !!python/object/apply:os.mkdir ['{tmp_path}/made']\n")
        import_quietly(import_runs, store, tmp_path / "runs")
        assert not (tmp_path / "made").exists()

    @pytest.mark.parametrize("name", ["../../outside", "..", ".hidden", "a" * 250, "x\ud800y", "index"])
    def test_named_by_a_hostile_experiment_stays_below_the_target(
        self, written: dict[str, Path], tmp_path: Path, name: str
    ) -> None:
        import json

        store = tmp_path / "store/mlruns"
        shutil.copytree(written["files"], store)
        for meta in store.glob("*/meta.yaml"):
            meta.write_text(f"name: {json.dumps(name)}\n")
        runs, _ = import_quietly(import_runs, store, tmp_path / "deep/target/runs")
        assert len(runs) == 3
        assert {Path(run).resolve().parents[1] for run in runs} == {tmp_path / "deep/target/runs"}
        assert len(tensortrial.open_runs(tmp_path / "deep/target/runs")) == 3
        assert sorted(os.listdir(tmp_path)) == ["deep", "store"]

    def test_without_a_run_is_named(self, tmp_path: Path, written: dict[str, Path]) -> None:
        with pytest.raises(RunNotFound, match="there is nothing here"):
            import_runs(tmp_path / "nowhere", tmp_path / "runs")
        (tmp_path / "empty").mkdir()
        (tmp_path / "empty/file").touch()
        with pytest.raises(RunNotFound, match=r"no folder with meta\.yaml next to metrics"):
            import_runs(tmp_path / "empty", tmp_path / "runs")
        with pytest.raises(RunNotFound, match=r"MLflow kept it in .*mlflow\.db, and only artifacts here"):
            import_runs(written["sqlite"].with_name("mlruns"), tmp_path / "runs")
        assert not (tmp_path / "runs").exists()


class TestADatabaseOfMlflow:
    def test_is_found_by_its_tracking_uri(self, written: dict[str, Path], tmp_path: Path) -> None:
        assert len(import_quietly(import_runs, f"sqlite:///{written['sqlite']}", tmp_path / "runs")[0]) == 3

    def test_with_artifacts_that_are_not_on_a_disk_says_so(self, written: dict[str, Path], tmp_path: Path) -> None:
        shutil.copy(written["sqlite"], tmp_path / "mlflow.db")
        with sqlite3.connect(tmp_path / "mlflow.db") as database:
            database.execute("update runs set artifact_uri = 's3://bucket/artifacts'")
        database.close()
        _, reported = import_quietly(import_runs, tmp_path / "mlflow.db", tmp_path / "runs", artifacts=True)
        assert sum("its artifacts at 's3://bucket/artifacts', which is not a folder" in each for each in reported) == 4

    def test_that_cannot_be_imported_is_refused(self, tmp_path: Path) -> None:
        bad = tmp_path / "mlflow.db"
        bad.write_text("no database")
        with pytest.raises(CorruptFile, match="not an SQLite file"):
            import_runs(bad, tmp_path / "runs")
        bad.write_bytes(b"")
        with pytest.raises(CorruptFile, match="not an SQLite file"):
            import_runs(bad, tmp_path / "runs")
        bad.unlink()
        with pytest.raises(RunNotFound, match="no such file"):
            import_runs(bad, tmp_path / "runs")
        with sqlite3.connect(bad) as database:
            database.execute("create table runs (x)")
            database.execute("create view metrics as select 1 as run_uuid")
        with pytest.raises(CorruptFile, match="not a store of MLflow: it lacks the table 'experiments'"):
            import_runs(bad, tmp_path / "runs")
        with pytest.raises(ConfigurationError, match="from a disk only"):
            import_runs("s3://bucket/mlflow.db", tmp_path / "runs")

    def test_that_is_damaged_anywhere_gives_a_named_error_or_the_rest(
        self, written: dict[str, Path], tmp_path: Path
    ) -> None:
        data = written["sqlite"].read_bytes()
        damaged = tmp_path / "mlflow.db"
        refused = list[str]()
        for number, cut in enumerate(range(100, len(data), len(data) // 12)):
            broken = bytearray(data)
            broken[cut : cut + 4096] = os.urandom(len(broken[cut : cut + 4096]))
            damaged.write_bytes(broken if number % 2 else data[:cut])
            try:
                import_quietly(import_runs, damaged, tmp_path / f"runs{number}")
            except (CorruptFile, StorageError, RunNotFound) as exc:
                refused.append(str(exc))
        assert len(refused) > 3
        assert all(str(damaged) in sentence for sentence in refused)

    def test_that_another_program_has_locked_is_named(
        self, written: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = tmp_path / "mlflow.db"
        shutil.copy(written["sqlite"], store)
        connect = sqlite3.connect
        monkeypatch.setattr(  # it would wait for five seconds
            sqlite3, "connect", lambda *arguments, **options: connect(*arguments, **(options | {"timeout": 0.1}))
        )
        other = connect(store, isolation_level=None)
        other.execute("begin exclusive")
        try:
            with pytest.raises(StorageError, match=r"database is locked; if another program uses it, try again"):
                import_runs(store, tmp_path / "runs")
        finally:
            other.close()
