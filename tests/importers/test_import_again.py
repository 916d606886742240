"""Sources that have grown since their import: a job was imported while it ran, and is imported again."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tensortrial
from support.imported_runs import values
from tensortrial.errors import RunExists
from tensortrial.importers import csv, lightning, mlflow, neptune, trackio, transformers, wandb

Logged = Mapping[str, Mapping[int, float]]
NOON = 1_740_830_400


def _table(logged: Logged, step: str = "step") -> str:
    steps = sorted({each for of in logged.values() for each in of})
    rows = [[str(each), *(str(of.get(each, "")) for of in logged.values())] for each in steps]
    return "\n".join([",".join([step, *logged]), *(",".join(row) for row in rows), ""])


def _csv(folder: Path, logged: Logged) -> None:
    (folder / "log.csv").write_text(_table(logged))


def _lightning(folder: Path, logged: Logged) -> None:
    (folder / "metrics.csv").write_text(_table(logged))


def _neptune(folder: Path, logged: Logged) -> None:
    for name, of in logged.items():
        (folder / f"{name}.csv").write_text(_table({"value": of}))


def _wandb(folder: Path, logged: Logged) -> None:
    (folder / "history.csv").write_text(_table(logged, "_step"))


def _trainer(folder: Path, logged: Logged) -> None:
    history = [{"step": step, name: value} for name, of in logged.items() for step, value in of.items()]
    (folder / "trainer_state.json").write_text(json.dumps({"log_history": history}))


def _mlflow(folder: Path, logged: Logged) -> None:
    (folder / "metrics").mkdir(exist_ok=True)
    (folder / "meta.yaml").write_text("run_id: a\nlifecycle_stage: active\n")
    for minute, (name, of) in enumerate(logged.items()):
        lines = [f"{1000 * (NOON + 60 * minute + step)} {value} {step}\n" for step, value in of.items()]
        (folder / "metrics" / name).write_text("".join(lines))


def _trackio(folder: Path, logged: Logged) -> None:
    with sqlite3.connect(folder / "project.db") as database:
        database.execute("CREATE TABLE IF NOT EXISTS metrics (id, timestamp, run_name, step, metrics)")
        database.execute("DELETE FROM metrics")
        rows = [(step, json.dumps({name: value})) for name, of in logged.items() for step, value in of.items()]
        database.executemany("INSERT INTO metrics VALUES (1, '2025-03-01T12:00:00', 'r', ?, ?)", rows)
    database.close()


SOURCES = [
    pytest.param(_csv, lambda *args, **options: [csv.import_run(*args, **options)], id="csv"),
    pytest.param(_lightning, lightning.import_runs, id="lightning"),
    pytest.param(_neptune, neptune.import_runs, id="neptune"),
    pytest.param(_wandb, wandb.import_runs, id="wandb"),
    pytest.param(_trainer, transformers.import_runs, id="transformers"),
    pytest.param(_mlflow, mlflow.import_runs, id="mlflow"),
    pytest.param(_trackio, trackio.import_runs, id="trackio"),
]


@pytest.mark.parametrize(("log", "import_runs"), SOURCES)
def test_what_a_job_logs_after_its_import_is_in_the_next_one(
    tmp_path: Path, log: Callable[[Path, Logged], None], import_runs: Callable[..., list[str]]
) -> None:
    if log is _mlflow:
        pytest.importorskip("yaml")
    source, reported = tmp_path / "source", list[str]()
    source.mkdir()

    def imported() -> str:
        (run,) = import_runs(source, tmp_path / "run", progress=False, report=reported.append)
        return run

    def files() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*")}

    log(source, {"loss": {1: 3.0, 2: float("nan"), 4: 1.0}})
    trial = tensortrial.create_trial(imported())
    before = files()
    imported()
    assert files() == before
    logged = {"loss": {1: 3.0, 2: 2.5, 4: 1.0, 5: 0.5}, "val": {0: 10.0, 1: 30.0, 2: 20.0}}
    log(source, logged)
    run = imported()
    assert {name: values(run, name) for name in tensortrial.create_trial(run).tensor_names()} == logged
    trial.refresh()
    assert trial.tensor("val").steps() == [0, 1, 2]
    assert trial.loaded_all_steps
    before = files()
    imported()
    assert files() == before
    assert reported == []


def test_a_source_that_was_cut_off_loses_nothing_of_its_run(tmp_path: Path) -> None:
    source = tmp_path / "log.csv"
    for text in ("step,loss\n0,1\n1,2\n", "step,loss\n1,2\n2,3\n"):
        source.write_text(text)
        run = csv.import_run(source, tmp_path / "run", progress=False)
    assert values(run, "loss") == {0: 1.0, 1: 2.0, 2: 3.0}


def test_a_source_that_began_again_sets_its_first_run_aside_and_says_so(tmp_path: Path) -> None:
    source, reported = tmp_path / "log.csv", list[str]()
    for text in ("step,loss\n0,1\n1,2\n2,3\n", "step,loss\n0,1\n1,5\n"):
        source.write_text(text)
        run = csv.import_run(source, tmp_path / "run", progress=False, report=reported.append)
    assert values(run, "loss") == {0: 1.0, 1: 5.0}
    assert tensortrial.create_trial(run).verify().is_whole
    assert reported == [f"{run}: 1 values from step 1 on, which the source no longer has, are superseded"]
    before = "select global_step, scalar from superseded order by all"
    assert tensortrial.create_trial(run).sql(before).fetchall()[-2:] == [(1, 2.0), (2, 3.0)]


@pytest.mark.parametrize(
    ("import_runs", "text"),
    [
        pytest.param(wandb.import_runs, "_step,{0}\n0,1\n", id="wandb-history"),
        pytest.param(wandb.import_runs, "Step,r - {0}\n0,1\n", id="wandb-chart"),
        pytest.param(neptune.import_runs, "step,value\n0,1\n", id="neptune-series"),
        pytest.param(neptune.import_runs, "run,step,{0}\nr,0,1\n", id="neptune-table"),
    ],
)
def test_two_files_of_a_folder_that_are_imported_one_by_one_are_two_sources(
    tmp_path: Path, import_runs: Callable[..., list[str]], text: str
) -> None:
    for name in ("loss", "accuracy"):
        (tmp_path / f"{name}.csv").write_text(text.format(name))
    (run,) = import_runs(tmp_path / "loss.csv", tmp_path / "runs", progress=False)
    with pytest.raises(RunExists, match=r"not imported from .*accuracy\.csv"):
        import_runs(tmp_path / "accuracy.csv", tmp_path / "runs", progress=False)
    assert tensortrial.create_trial(run).tensor_names() == ["loss"]
    assert import_runs(tmp_path / "loss.csv", tmp_path / "runs", progress=False) == [run]


def test_a_folder_with_a_second_table_is_the_same_source(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a.csv").write_text("step,loss\n0,1\n")
    csv.import_run(tmp_path / "logs", tmp_path / "run", progress=False)
    (tmp_path / "logs" / "b.csv").write_text("step,loss\n1,2\n")
    run = csv.import_run(tmp_path / "logs", tmp_path / "run", progress=False)
    assert values(run, "loss") == {0: 1.0, 1: 2.0}


def test_metadata_that_has_changed_is_said(tmp_path: Path) -> None:
    source, reported = tmp_path / "log.csv", list[str]()
    source.write_text("step,loss\n0,1\n")
    for rate in (0.1, 0.1, 0.2):
        run = csv.import_run(source, tmp_path / "run", progress=False, metadata={"lr": rate}, report=reported.append)
    assert reported == [f"{run}: the new metadata of the source ('lr'), as a run keeps that of its first import"]
    assert tensortrial.create_trial(run).info.metadata["lr"] == 0.1


def test_histograms_are_added_to_imported_steps(tmp_path: Path) -> None:
    drawn = {"_type": "histogram", "values": [1, 2], "bins": [0.0, 0.5, 2.0]}
    for histograms in ([None, None], [drawn, None]):
        table = pa.table({"_step": [0, 1], "loss": [1.0, 2.0], "weights": pa.array(histograms, pa.array([drawn]).type)})
        pq.write_table(table, tmp_path / "0000.parquet")
        (run,) = wandb.import_runs(tmp_path / "0000.parquet", tmp_path / "run", progress=False)
    rows = tensortrial.create_trial(run).sql("select global_step, name from tensors order by all").fetchall()
    assert rows == [(0, "loss"), (0, "weights"), (1, "loss")]


def test_numbers_of_a_step_keep_their_own_times(tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    _mlflow(tmp_path, {"loss": {0: 1.0, 1: 2.0}, "val": {0: 3.0}})
    (run,) = mlflow.import_runs(tmp_path, tmp_path / "run", progress=False)
    times = tensortrial.create_trial(run).sql(
        "select name, global_step, epoch(saved_at)::int from scalars order by 1, 2"
    )
    assert times.fetchall() == [("loss", 0, NOON), ("loss", 1, NOON + 1), ("val", 0, NOON + 60)]


def test_imports_do_without_pandas(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    pytest.importorskip("yaml")
    logs = {csv: _csv, lightning: _lightning, neptune: _neptune, wandb: _wandb, transformers: _trainer, mlflow: _mlflow}
    names = [module.__name__.rpartition(".")[2] for module in logs]
    for name, log in zip(names, logs.values(), strict=True):
        (tmp_path / name).mkdir()
        log(tmp_path / name, {"loss": {0: 1.0, 1: float("nan")}, "tokens": {0: 10**20, 1: 2**60 + 1}})
    columns = {"step": [0, 1, None], "time": [NOON, 0, None], "n": [2**60 + 1, 1, None], "text": ["1", "2", "a"]}
    pq.write_table(pa.table(columns), tmp_path / "csv" / "noted.parquet")
    program = f"""
import sys
from tensortrial.cli import main
for _ in range(2):
    for name in {names}:
        main(["import", name, name, f"runs/{{name}}"], standalone_mode=False)
assert "pandas" not in sys.modules, "somebody imported pandas"
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60, cwd=tmp_path)
