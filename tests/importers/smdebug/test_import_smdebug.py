"""The import of runs in smdebug's format, written by `smdebug_runs` from the description of the format."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tensortrial
from support import warm
from support.commands import run_command, run_program
from support.limits import set_limits
from support.missing import without
from support.programs import run_cold
from support.servers import ObjectStore
from support.smdebug_imports import COLLECTIONS, everything, imported
from support.smdebug_runs import SAVED_AT, OldRun
from tensortrial.errors import (
    NotARun,
    RunExists,
    RunNotFound,
    ShapeUnavailableForStep,
    TensorUnavailableForStep,
)
from tensortrial.importers.smdebug import import_run, import_runs
from tensortrial.mode import ModeKeys
from tensortrial.statistics.definitions import REDUCTIONS

TRAIN, EVAL, GLOBAL = ModeKeys.TRAIN, ModeKeys.EVAL, ModeKeys.GLOBAL


def test_values_modes_and_steps_are_imported(old: OldRun, new: str) -> None:
    values = np.arange(6, dtype="f4").reshape(2, 3)
    for step in range(4):
        old.step({"Net_fc.weight": values + step, "loss": np.float32(step)}, "TRAIN", 2 * step, 3 * step)
        old.step({"loss": np.float32(-step)}, "EVAL", step, 3 * step + 1)
    old.end()
    trial = imported(old, new)
    assert trial.modes() == [TRAIN, EVAL]
    assert trial.steps(TRAIN) == [0, 2, 4, 6]
    assert trial.steps(EVAL) == [0, 1, 2, 3]
    assert trial.steps() == [0, 1, 3, 4, 6, 7, 9, 10]
    assert trial.global_step(TRAIN, 4) == 6
    weight = trial.tensor("Net_fc.weight")
    assert weight.value(6, TRAIN).dtype == np.float32
    np.testing.assert_array_equal(weight.value(6, TRAIN), values + 3)
    assert trial.tensor("loss").value(10).tolist() == -3
    assert trial.loaded_all_steps
    assert (trial.info.framework, trial.info.started_at) == ("smdebug", "2020-09-13T12:26:40.250000+00:00")
    assert trial.sql("select distinct epoch(saved_at) from tensors").fetchall() == [(SAVED_AT,)]


def test_collections_are_imported(old: OldRun, new: str) -> None:
    old.step({"loss": np.float32(1), "fc2.weight": np.zeros(2), "other": np.zeros(2)})
    trial = imported(old, new)
    assert set(trial.collections()) == set(COLLECTIONS)
    weights = trial.collection("weights")
    assert weights.reduction_config is not None
    assert weights.reduction_config.statistics == ("min", "l1", "abs_max")
    assert weights.save_config is not None
    assert weights.save_config.get_save_config(TRAIN).save_interval == 2
    assert weights.save_config.get_save_config(GLOBAL).save_interval == 500
    assert weights.save_histogram is True
    assert trial.tensor_names(collection="weights") == ["fc2.weight"]
    assert trial.tensor_names(collection="losses") == ["loss"]
    saved = trial.sql("select name from collections where saved order by name").fetchall()
    assert saved == [("losses",), ("weights",)]


def test_all_runs_below_a_folder_are_imported_by_their_paths(tmp_path: Path) -> None:
    jobs, runs = tmp_path / "jobs", tmp_path / "runs"
    for number, folder in enumerate(["job-1/debug-output", "collections-0", "a/b.c/events"]):
        old = OldRun(jobs / folder)
        old.collections(COLLECTIONS)
        old.step({"loss": np.float32(number)})
        old.end()
    (jobs / "notes.txt").write_text("not a run")
    printed = run_command("import", "smdebug", str(jobs), str(runs), "--no-progress")
    assert printed.stdout.splitlines() == [
        f"{runs}/{each}" for each in ("a/b.c/events", "collections-0", "job-1/debug-output")
    ]
    losses = {
        str(Path(path).relative_to(runs)): float(tensortrial.create_trial(path).tensor("loss").value(0))
        for path in printed.stdout.splitlines()
    }
    assert losses == {"job-1/debug-output": 0, "collections-0": 1, "a/b.c/events": 2}
    assert import_runs(jobs, runs, progress=False) == printed.stdout.splitlines()  # again: nothing is new
    with pytest.raises(NotARun):
        import_runs(jobs / "job-1" / "debug-output" / "index", tmp_path / "other")
    with pytest.raises(RunNotFound):
        import_runs(tmp_path / "missing", tmp_path / "other")


def test_runs_below_folders_with_names_of_the_format_or_line_breaks_are_imported(tmp_path: Path) -> None:
    folders = ["events/job", "line\nbreak"]
    for folder in folders:
        OldRun(tmp_path / "jobs" / folder).step({"loss": np.float32(1)})
    made = import_runs(tmp_path / "jobs", tmp_path / "runs", progress=False)
    assert [str(Path(path).relative_to(tmp_path / "runs")) for path in made] == folders
    assert [tensortrial.create_trial(path).steps() for path in made] == [[0], [0]]


def test_a_run_in_the_folder_of_another_is_imported_next_to_it(tmp_path: Path) -> None:
    for folder in ("é job", "é job/eval"):
        OldRun(tmp_path / "jobs" / folder).step({"loss": np.float32(1)})
    import_runs(tmp_path / "jobs", tmp_path / "runs", progress=False)
    assert tensortrial.open_runs(tmp_path / "runs").names == ["é job", "é job%2Feval"]


def test_runs_that_would_go_into_the_folder_of_another_need_another_target(tmp_path: Path) -> None:
    OldRun(tmp_path / "one").step({"loss": np.float32(1)})
    OldRun(tmp_path / "jobs" / "é job").step({"loss": np.float32(1)})
    import_runs(tmp_path / "one", tmp_path / "run", progress=False)
    with pytest.raises(RunExists, match="run: holds a run, in which readers look for no other runs"):
        import_runs(tmp_path / "jobs", tmp_path / "run", progress=False)


@pytest.mark.parametrize("name", ["w:0", "conv/w:0", "a/min/b", "smdebug/reductions/x", "plain"])
@pytest.mark.parametrize("with_raw", [False, True])
def test_reductions_belong_to_their_tensor(old: OldRun, new: str, name: str, with_raw: bool) -> None:
    stored = {
        f"smdebug/reductions/{prefix}{reduction}/{name}": np.float32(number)
        for number, (prefix, reduction) in enumerate((p, r) for p in ("", "abs_") for r in REDUCTIONS)
    }
    raw = {name: np.array([1.0, 2.0])} if with_raw else {}
    old.step({**stored, **raw})
    old.step({**raw, **stored}, mode_step=1)  # in the other order
    trial = imported(old, new)
    assert trial.tensor_names() == [name]
    tensor = trial.tensor(name)
    for step in (0, 1):
        found = {key: float(value) for key, value in tensor.reduction_values(step).items()}
        assert found == {
            (reduction, absolute): number
            for number, (absolute, reduction) in enumerate((a, r) for a in (False, True) for r in REDUCTIONS)
        }
        if with_raw:
            assert tensor.value(step).tolist() == [1, 2]
            assert tensor.shape(step) == (2,)
        else:
            with pytest.raises(TensorUnavailableForStep):
                tensor.value(step)
            with pytest.raises(ShapeUnavailableForStep):
                tensor.shape(step)
    assert tensor.shapes() == ({0: (2,), 1: (2,)} if with_raw else {})


def test_a_tensor_keeps_its_value_its_reductions_and_its_shape(old: OldRun, new: str) -> None:
    mean = {"smdebug/reductions/mean/both": np.float32(2.5), "smdebug/reductions/mean/w": np.float32(1.5)}
    value = np.arange(6, dtype="f4").reshape(2, 3)
    old.step({**mean, "both": value, "raw": value}, shapes={"both": (2, 3), "raw": (2, 3), "w": (4,), "shape": ()})
    trial = imported(old, new)
    np.testing.assert_array_equal(trial.tensor("both").value(0), value)
    np.testing.assert_array_equal(trial.tensor("raw").value(0), value)
    assert trial.tensor("both").reduction_values(0) == {("mean", False): 2.5}
    assert trial.tensor("w:0").reduction_value(0, "mean") == 1.5
    shapes = {name: trial.tensor(name).shape(0) for name in trial.tensor_names()}
    assert shapes == {"both": (2, 3), "raw": (2, 3), "w:0": (4,), "shape": ()}
    assert trial.verify().is_whole


def test_a_reduction_whose_name_lost_its_number_belongs_to_its_tensor(old: OldRun, new: str) -> None:
    old.step({"smdebug/reductions/mean/w": np.float32(5), "smdebug/reductions/mean/v": np.float32(6)})
    trial = imported(old, new)
    assert trial.tensor_names() == ["v", "w:0"]
    assert trial.tensor("w:0").reduction_value(0, "mean") == 5
    assert trial.tensor_names(collection="weights") == ["w:0"]


def test_an_unknown_reduction_stays_a_tensor(old: OldRun, new: str) -> None:
    old.step({"smdebug/reductions/entropy/x": np.float32(5), "smdebug/reductions/": np.float32(6)})
    assert imported(old, new).tensor_names() == ["smdebug/reductions/", "smdebug/reductions/entropy/x"]


def test_tensors_with_only_shapes_are_imported(old: OldRun, new: str) -> None:
    old.step({}, mode_step=3, shapes={"x": (2, 3), "scalar": ()})
    old.events(3).unlink()
    trial = imported(old, new)
    assert trial.steps(TRAIN) == [3]
    assert trial.tensor("x").shape(3) == (2, 3)
    assert trial.tensor("scalar").shape(3) == ()
    assert trial.tensor("x").reduction_values(3) == {}


@pytest.mark.parametrize(
    "value",
    [
        *(np.array([[1, 0], [2, 1]]).astype(dtype) for dtype in ("f2", "f4", "f8", "i1", "u1", "i4", "i8", "?", "c8")),
        np.array([1.5, -2], ml_dtypes.bfloat16),
        np.array(["f0", "Leaf", "ü"]),
        np.array([b"\xff", b"a"]),
        np.float64("nan"),
        np.zeros((0, 3), "f4"),
        np.array(["reg:squarederror"]),
    ],
    ids=lambda value: f"{value.dtype}{list(value.shape)}",
)
def test_every_dtype_is_imported(old: OldRun, new: str, value: np.ndarray) -> None:
    old.step({"x": value})
    found = imported(old, new).tensor("x").value(0)
    assert (found.dtype, found.shape) == (value.dtype, value.shape)
    np.testing.assert_array_equal(found, value)


def test_workers_are_imported(old: OldRun, new: str) -> None:
    workers = ["worker_0", "worker_1", "worker_10"]
    for rank, worker in enumerate(workers):
        old.collections(COLLECTIONS, worker, num_workers=3)
        for step in range(3 - (rank == 2)):
            old.step({"loss": np.float32(10 * rank + step)}, "TRAIN", step, worker=worker)
    old.end()
    trial = imported(old, new)
    assert (trial.workers(), trial.num_workers) == (workers, 3)
    loss = trial.tensor("loss")
    assert [float(loss.value(1, worker=worker)) for worker in workers] == [1, 11, 21]
    assert loss.workers(2) == workers[:2]
    assert trial.steps() == [0, 1, 2]
    assert trial.loaded_all_steps


def test_workers_that_left_nothing_are_not_waited_for(old: OldRun, new: str) -> None:
    old.collections(COLLECTIONS, num_workers=4)
    old.step({"loss": np.float32(1)})
    old.end()
    trial = imported(old, new)
    assert trial.loaded_all_steps
    assert trial.steps() == [0]
    (Path(new) / "end/_marked.json").unlink()  # as if killed before the last line
    assert not tensortrial.create_trial(new).loaded_all_steps
    assert imported(old, new).loaded_all_steps


def test_a_run_without_end_mark_is_ended_and_says_so(old: OldRun, new: str) -> None:
    old.step({"loss": np.float32(1)})
    trial = imported(old, new)
    assert trial.loaded_all_steps
    assert json.loads((Path(new) / "end/worker_0.json").read_text())["failure"] == "smdebug left no end mark"


def test_steps_in_several_folders_are_imported(old: OldRun, new: str) -> None:
    for step in range(0, 2500, 50):
        old.step({"loss": np.float32(step)}, "TRAIN", step)
    trial = imported(old, new)
    assert trial.steps() == list(range(0, 2500, 50))
    assert trial.tensor("loss").value(2450) == 2450


@pytest.mark.slow
def test_memory_stays_bounded(old: OldRun, new: str, tmp_path: Path) -> None:
    """Steps of 16 MB pass through far less than their sum."""
    value = np.zeros(4 << 20, "f4")
    for step in range(30):
        old.step({"smdebug/reductions/min/x": np.float32(0), "x": value}, mode_step=step)
    program = (
        "from support.memory import peak_bytes; from tensortrial.importers.smdebug import import_run\n"
        "before = peak_bytes()\n"
        f"import_run({str(old.folder)!r}, {new!r})\n"
        "print((peak_bytes() - before) >> 20)"
    )
    done = run_cold(program, tmp_path)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 320


@pytest.fixture
def s3(moto_s3: ObjectStore) -> tuple[str, dict[str, Any]]:
    return moto_s3.new_bucket(), moto_s3.storage_options


@pytest.mark.s3
def test_a_run_is_imported_from_and_to_an_object_store(
    three: OldRun, new: str, s3: tuple[str, dict[str, Any]], moto_s3: ObjectStore
) -> None:
    bucket, options = s3
    for path in three.folder.rglob("*"):
        if path.is_file():
            key = f"jobs/old/{path.relative_to(three.folder)}"
            moto_s3.client.put_object(Bucket=bucket.removeprefix("s3://"), Key=key, Body=path.read_bytes())
    local = everything(imported(three, new))
    with pytest.raises(NotARun, match="smdebug wrote"):
        tensortrial.create_trial(f"{bucket}/jobs/old", storage_options=options)
    path = import_run(f"{bucket}/jobs/old/", f"{bucket}/jobs/new", storage_options=options)
    assert path == f"{bucket}/jobs/new"
    trial = tensortrial.create_trial(path, storage_options=options)
    assert everything(trial) == local
    assert trial.loaded_all_steps
    assert import_run(f"{bucket}/jobs/old", f"{bucket}/jobs/new", storage_options=options) == path
    (again,) = import_runs(f"{bucket}/jobs", f"{bucket}/all", storage_options=options)
    assert again == f"{bucket}/all/old"
    assert everything(tensortrial.create_trial(again, storage_options=options)) == local


def test_the_command_imports_a_run(three: OldRun, new: str) -> None:
    three.events(1).write_bytes(b"x")
    done = run_program("import", "smdebug", three.folder, new, "--no-progress")
    assert (done.returncode, done.stdout) == (0, f"{new}\n")
    assert done.stderr.startswith("damaged: events/000000000001/")
    assert tensortrial.create_trial(new).steps() == [0, 2]
    refused = run_command("import", "smdebug", new, f"{new}-2", status=None)
    assert refused.returncode == 1
    assert refused.stderr == f"Error: {new}: it has no collections and no events, so it is not a run of smdebug\n"
    refused = run_command("import", "smdebug", f"{new}-3", f"{new}-2", status=1)
    assert refused.stderr == f"Error: {new}-3: no run was found here\n"


def test_the_progress_bar_needs_tqdm(
    three: OldRun, new: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tqdm")
    set_limits(monkeypatch, seconds_without_progress=0.0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    import_run(three.folder, new)
    assert "3/3" in capsys.readouterr().err
    import_run(three.folder, new + "-2", progress=False)
    without(monkeypatch, "tqdm")
    import_run(three.folder, new + "-3")
    assert capsys.readouterr().err == ""


def test_the_example_of_the_documentation_runs(old: OldRun, tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "migrating.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", page.partition("## Old runs")[2], re.DOTALL)
    old.step({"loss": np.float32(1)})
    (tmp_path / "old").rename(tmp_path / "job-1")
    (tmp_path / "old").mkdir()
    (tmp_path / "job-1").rename(tmp_path / "old/job-1")
    done = warm.run(["-c", example], cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "[0] ['loss']\n"), done.stderr
