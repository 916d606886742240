"""Runs of Aim, from the repositories that Aim wrote here."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import tensortrial
from support.imported_runs import import_quietly, metadata, values
from support.missing import without
from tensortrial import modes
from tensortrial.errors import ConfigurationError, CorruptFile, MissingExtra, RunNotFound
from tensortrial.importers.aim import import_runs

PROGRAM = """
import os
import numpy as np
import aim
from aim.sdk.repo import Repo

Repo.from_path(".", init=True)
quiet = dict(repo=".", capture_terminal_logs=False, system_tracking_interval=None)

run = aim.Run(experiment="../digits", **quiet)
run.name = "first"
run.add_tag("small")
run["hparams"] = {"lr": 0.1, "layers": [1, 2], "opt": {"name": "adam", "decay": None}, "none": []}
run["data"] = "digits"
run["__env"] = {"SECRET": "x"}
for step in [0, 300, 3, 70000]:
    run.track(step / 2, name="loss", step=step, context={"subset": "train"})
    run.track(np.float32(step), name="loss", step=step, context={"subset": "val"})
run.track(7, name="loss", step=3, context={"subset": "test"})
run.track({"nan": float("nan"), "inf": float("inf")}, step=2)
run.track(9.0, name="loss", step=1)
run.track(True, name="ok", step=2)
run.track(1.0, name="twice", step=2)
run.track(2.0, name="twice", step=2)
run.track(-1.5, name="early", step=-2)
run.track(3.0, name="load", step=0, context={"device": 1, "of": {"a": "b"}})
run.track(4.0, name="__system__cpu", step=0)
run.track(aim.Distribution([0, 0, 1, 2], bin_count=4), name="weights", step=3, context={"subset": "train"})
run.track(aim.Text("words"), name="text", step=3)
run.close()

run = aim.Run(**quiet)
for step in range(1500):
    run.track(step / 2, name="loss")
print(run.hash, flush=True)
os._exit(0)
"""

MORE = """
import aim
run = aim.Run({hash!r}, repo=".", capture_terminal_logs=False, system_tracking_interval=None, force_resume=True)
run.track(0.25, name="loss", step=2000, context={context!r})
run.close()
"""


@pytest.fixture(scope="module")
def written(write: Callable[..., Path]) -> Path:
    return write(PROGRAM)


@pytest.fixture
def folder(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(written, tmp_path / "project"))


def by_experiment(runs: list[str]) -> dict[str, str]:
    return {Path(run).parent.name: run for run in runs}


class TestRunsOfAim:
    def test_become_a_run_each_below_their_experiment(self, folder: Path, tmp_path: Path) -> None:
        runs, _ = import_quietly(import_runs, folder, tmp_path / "runs")
        assert sorted(Path(run).name for run in runs) == sorted(os.listdir(folder / ".aim" / "meta" / "chunks"))
        assert by_experiment(runs).keys() == {"%2E.%2Fdigits", "default"}
        assert sorted(os.listdir(tmp_path)) == ["project", "runs"]

    def test_keep_numbers_by_mode(self, folder: Path, tmp_path: Path) -> None:
        runs, reported = import_quietly(import_runs, folder / ".aim", tmp_path / "runs")
        trial = tensortrial.create_trial(by_experiment(runs)["%2E.%2Fdigits"])
        loss = trial.tensor("loss")
        assert loss.values(modes.TRAIN) == {0: 0.0, 3: 1.5, 300: 150.0, 70000: 35000.0}
        assert loss.values(modes.EVAL) == {0: 0.0, 3: 3.0, 300: 300.0, 70000: 70000.0}
        assert trial.tensor("test/loss").values(modes.EVAL) == {3: 7.0}
        assert trial.global_step(modes.EVAL, 300) == 601
        assert trial.tensor("inf").value(2, modes.TRAIN) == math.inf
        assert math.isnan(trial.tensor("nan").value(2, modes.TRAIN))
        assert trial.tensor("ok").value(2, modes.TRAIN) == 1.0
        assert trial.tensor("twice").value(2, modes.TRAIN) == 2.0
        assert trial.modes() == [modes.TRAIN, modes.EVAL]
        assert trial.tensor("global/loss").values(modes.TRAIN) == {1: 9.0}
        assert 'device=1/of={"a": "b"}/load' in trial.tensor_names()
        assert not {"early", "text", "__system__cpu"} & set(trial.tensor_names())
        said = " ".join(reported)
        assert "1 values that are no numbers, of 'text'" in said
        assert "1 values whose step is no whole number from 0 to 5e11, such as -2" in said
        assert "1 sequences of system metrics" in said

    def test_keep_distributions(self, folder: Path, tmp_path: Path) -> None:
        runs, _ = import_quietly(import_runs, folder, tmp_path / "runs")
        trial = tensortrial.create_trial(by_experiment(runs)["%2E.%2Fdigits"])
        rows = trial.sql("select mode, mode_step, histogram from tensors where name = 'weights'").fetchall()
        assert rows == [("TRAIN", 3, {"edges": [0.0, 0.5, 1.0, 1.5, 2.0], "counts": [2, 0, 1, 1]})]

    def test_keep_hyperparameters_and_times(self, folder: Path, tmp_path: Path) -> None:
        runs, _ = import_quietly(import_runs, folder, tmp_path / "runs", metadata={"owner": "ann"})
        path = by_experiment(runs)["%2E.%2Fdigits"]
        found = metadata(path)
        assert (found["lr"], found["layers"], found["none"], found["data"]) == (0.1, [1, 2], [], "digits")
        assert (found["opt"], found["owner"]) == ({"name": "adam", "decay": None}, "ann")
        assert {key: found["aim"][key] for key in ("run_name", "experiment", "tags")} == {
            "run_name": "first",
            "experiment": "../digits",
            "tags": ["small"],
        }
        assert "__env" not in found
        assert found["aim"]["hash"] == Path(path).name
        trial = tensortrial.create_trial(path)
        ((first,),) = trial.sql("select epoch(min(saved_at)) from scalars where name = 'loss'").fetchall()
        assert abs(first - os.stat(folder / ".aim" / "VERSION").st_mtime) < 600

    def test_that_were_killed_are_imported_as_far_as_they_are(self, folder: Path, tmp_path: Path) -> None:
        runs, _ = import_quietly(import_runs, folder, tmp_path / "runs")
        assert values(by_experiment(runs)["default"], "loss") == {step: step / 2 for step in range(1500)}

    def test_are_left_as_they_are(self, folder: Path, tmp_path: Path) -> None:
        before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
        import_quietly(import_runs, folder, tmp_path / "runs")
        assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before

    def test_imported_twice_change_nothing_and_grow(
        self, folder: Path, tmp_path: Path, write: Callable[..., Path]
    ) -> None:
        runs, _ = import_quietly(import_runs, folder, tmp_path / "runs")
        before = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("*") if path.is_file()}
        assert import_quietly(import_runs, folder, tmp_path / "runs")[0] == runs
        assert {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("*") if path.is_file()} == before
        path = by_experiment(runs)["default"]
        write(f"import os; os.chdir({str(folder)!r})" + MORE.format(hash=Path(path).name, context={}))
        import_quietly(import_runs, folder, tmp_path / "runs")
        assert values(path, "loss")[2000] == 0.25

    def test_with_a_new_mode_need_another_target(
        self, folder: Path, tmp_path: Path, write: Callable[..., Path]
    ) -> None:
        runs, _ = import_quietly(import_runs, folder, tmp_path / "runs")
        more = MORE.format(hash=Path(by_experiment(runs)["default"]).name, context={"subset": "train"})
        write(f"import os; os.chdir({str(folder)!r})" + more)
        with pytest.raises(ConfigurationError, match=r"had steps of GLOBAL, .* of TRAIN"):
            import_quietly(import_runs, folder, tmp_path / "runs")


class TestAnAimRepository:
    def test_that_is_none_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(RunNotFound, match=r"no folder \.aim with runs"):
            import_runs(tmp_path, tmp_path / "runs")
        with pytest.raises(ConfigurationError, match="from a disk only"):
            import_runs("s3://bucket/project", tmp_path / "runs")
        (tmp_path / ".aim" / "meta" / "chunks").mkdir(parents=True)
        with pytest.raises(RunNotFound, match="Aim has no run here"):
            import_runs(tmp_path, tmp_path / "runs")
        (tmp_path / ".aim" / "meta" / "chunks" / "empty").mkdir()
        with pytest.raises(CorruptFile, match="RocksDB cannot read it"):
            import_runs(tmp_path, tmp_path / "runs")
        assert not (tmp_path / "runs").exists()

    def test_with_a_damaged_run_gives_the_others(self, folder: Path, tmp_path: Path) -> None:
        damaged = by_experiment(import_quietly(import_runs, folder, tmp_path / "all")[0])["%2E.%2Fdigits"]
        for path in (folder / ".aim" / "seqs" / "chunks" / Path(damaged).name).glob("*.sst"):
            path.write_bytes(path.read_bytes()[:-100])
        runs, reported = import_quietly(import_runs, folder, tmp_path / "runs")
        assert list(by_experiment(runs)) == ["default"]
        assert any("RocksDB cannot read it" in sentence for sentence in reported)

    def test_without_its_sqlite_file_keeps_the_runs(self, folder: Path, tmp_path: Path) -> None:
        (folder / ".aim" / "run_metadata.sqlite").write_bytes(b"text")
        runs, reported = import_quietly(import_runs, folder, tmp_path / "runs")
        assert {Path(run).parent.name for run in runs} == {"default"}
        assert any("the names and experiments of runs are left out" in sentence for sentence in reported)

    def test_needs_the_extra(self, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        without(monkeypatch, "aimrocks")
        with pytest.raises(MissingExtra, match=r"pip install 'tensortrial\[aim\]'"):
            import_runs(folder, tmp_path / "runs")
