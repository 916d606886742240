"""The import of runs that smdebug wrote, here written by `smdebug_runs` from the description of the format."""

from __future__ import annotations

import builtins
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tensortrial
from support.servers import ObjectStore
from support.smdebug_runs import SAVED_AT, OldRun, event, framed
from tensortrial.errors import (
    ConfigurationError,
    CorruptFile,
    FileError,
    NotARun,
    RunExists,
    RunNotFound,
    ShapeUnavailableForStep,
    StorageError,
    TensorUnavailableForStep,
)
from tensortrial.importers.smdebug import import_run
from tensortrial.importers.smdebug import job as importer
from tensortrial.mode import ModeKeys
from tensortrial.statistics.definitions import REDUCTIONS

TRAIN, EVAL, GLOBAL = ModeKeys.TRAIN, ModeKeys.EVAL, ModeKeys.GLOBAL

NULLS = dict.fromkeys(("PREDICT", "GLOBAL"))
EVERY = {"save_interval": 2, "save_steps": [], "start_step": 0, "end_step": None}
COLLECTIONS = {
    "weights": {
        "include_regex": ["^(?!gradient).*weight"],
        "tensor_names": ["Net_fc.weight", "w:0"],
        "reduction_config": {"save_raw_tensor": False, "reductions": "min,l1_norm,abs_max", "save_shape": False},
        "save_config": {"TRAIN": EVERY, "EVAL": {**EVERY, "save_interval": 1}, **NULLS},
        "save_histogram": True,
    },
    "losses": {"include_regex": ["[Ll]oss"], "tensor_names": ["loss"], "reduction_config": None, "save_config": None},
    "default": {"include_regex": [], "tensor_names": []},
}


@pytest.fixture
def old(tmp_path: Path) -> OldRun:
    run = OldRun(tmp_path / "old")
    run.collections(COLLECTIONS)
    return run


@pytest.fixture
def new(tmp_path: Path) -> str:
    return str(tmp_path / "new")


def imported(old: OldRun, new: str, **options: Any) -> tensortrial.Trial:
    return tensortrial.create_trial(import_run(old.folder, new, progress=False, **options))


def everything(trial: tensortrial.Trial) -> dict[Any, Any]:
    """All that the index and the values of a run say, without where they lie."""
    rows = trial.sql('select * exclude (chunk, "offset", row_group, "row", parts) from tensors order by all').fetchall()
    values = trial.sql("select * from tensor_values order by all").fetchall()
    return {"rows": [str(row) for row in rows], "values": values}


def test_values_modes_and_steps(old: OldRun, new: str) -> None:
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
    assert trial.loaded_all_steps()
    assert (trial.info.framework, trial.info.created_at) == ("smdebug", "2020-09-13T12:26:40.250000+00:00")
    assert trial.sql("select distinct epoch(saved_at) from tensors").fetchall() == [(SAVED_AT,)]


def test_collections(old: OldRun, new: str) -> None:
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


def test_a_reduction_whose_name_lost_its_number(old: OldRun, new: str) -> None:
    old.step({"smdebug/reductions/mean/w": np.float32(5), "smdebug/reductions/mean/v": np.float32(6)})
    trial = imported(old, new)
    assert trial.tensor_names() == ["v", "w:0"]
    assert trial.tensor("w:0").reduction_value(0, "mean") == 5
    assert trial.tensor_names(collection="weights") == ["w:0"]


def test_an_unknown_reduction_stays_a_tensor(old: OldRun, new: str) -> None:
    old.step({"smdebug/reductions/entropy/x": np.float32(5), "smdebug/reductions/": np.float32(6)})
    assert imported(old, new).tensor_names() == ["smdebug/reductions/", "smdebug/reductions/entropy/x"]


def test_only_shapes(old: OldRun, new: str) -> None:
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
def test_every_kind_of_value(old: OldRun, new: str, value: np.ndarray) -> None:
    old.step({"x": value})
    found = imported(old, new).tensor("x").value(0)
    assert (found.dtype, found.shape) == (value.dtype, value.shape)
    np.testing.assert_array_equal(found, value)


def test_workers(old: OldRun, new: str) -> None:
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
    assert trial.loaded_all_steps()


def test_workers_that_left_nothing_are_not_waited_for(old: OldRun, new: str) -> None:
    old.collections(COLLECTIONS, num_workers=4)
    old.step({"loss": np.float32(1)})
    old.end()
    trial = imported(old, new)
    assert trial.loaded_all_steps()
    assert trial.steps() == [0]
    (Path(new) / "end/_marked.json").unlink()  # as if killed before the last line
    assert not tensortrial.create_trial(new).loaded_all_steps()
    assert imported(old, new).loaded_all_steps()


def test_a_run_without_end_mark_is_ended_and_says_so(old: OldRun, new: str) -> None:
    old.step({"loss": np.float32(1)})
    trial = imported(old, new)
    assert trial.loaded_all_steps()
    assert json.loads((Path(new) / "end/worker_0.json").read_text())["failure"] == "smdebug left no end mark"


def test_many_steps_in_several_directories(old: OldRun, new: str) -> None:
    for step in range(0, 2500, 50):
        old.step({"loss": np.float32(step)}, "TRAIN", step)
    trial = imported(old, new)
    assert trial.steps() == list(range(0, 2500, 50))
    assert trial.tensor("loss").value(2450) == 2450


# ------------------------------------------------------------------------------------------------------ bad input


@pytest.fixture
def three(old: OldRun) -> OldRun:
    for step in range(3):
        old.step({name: np.full(4, step, "f4") for name in ("a", "b", "c")}, "TRAIN", 2 * step, step)
    old.end()
    return old


def damage_of(old: OldRun, new: str) -> tuple[tensortrial.Trial, list[FileError]]:
    damage: list[FileError] = []
    trial = imported(old, new, on_damage=damage.append)
    assert all(isinstance(error, CorruptFile) for error in damage)
    assert trial.steps(TRAIN)[0] == 0
    np.testing.assert_array_equal(trial.tensor("c").value(4, TRAIN), np.full(4, 2, "f4"))
    return trial, damage


def test_a_torn_record_is_named_and_the_rest_goes_on(three: OldRun, new: str) -> None:
    path = three.events(1)
    data = bytearray(path.read_bytes())
    second = json.loads(three.index(1).read_text())["tensor_payload"][1]["start_idx"]
    data[second + 3] ^= 0x40  # the length of b's record
    path.write_bytes(data)
    trial, (error,) = damage_of(three, new)
    assert error.path == "events/000000000001/000000000001_worker_0.tfevents"
    assert f"'b', the record at byte {second}" in str(error)
    assert trial.tensor_names(step=1) == ["a", "c"]
    failure = json.loads((Path(new) / "end/worker_0.json").read_text())["failure"]
    assert failure == f"1 of its files could not be read whole: {error.path}"


def test_a_record_that_is_no_event(three: OldRun, new: str) -> None:
    path = three.events(1)
    data = bytearray(path.read_bytes())
    first, second, _ = (each["start_idx"] for each in json.loads(three.index(1).read_text())["tensor_payload"])
    data[first + 12 : second - 4] = b"\xff" * (second - 16 - first)
    path.write_bytes(data)
    trial, (error,) = damage_of(three, new)
    assert "'a'" in str(error)
    assert trial.tensor_names(step=1) == ["b", "c"]


@pytest.mark.parametrize("left", [0.5, 0.9, 0.0])
def test_a_torn_file_gives_what_it_has(three: OldRun, new: str, left: float) -> None:
    data = three.events(1).read_bytes()
    three.events(1).write_bytes(data[: int(len(data) * left)])
    trial, damage = damage_of(three, new)
    assert trial.tensor_names(step=1) == {0.5: ["a"], 0.9: ["a", "b"], 0.0: []}[left]
    assert {error.path for error in damage} == {"events/000000000001/000000000001_worker_0.tfevents"}


def test_a_missing_event_file(three: OldRun, new: str) -> None:
    three.events(1).unlink()
    trial, (error,) = damage_of(three, new)
    assert error.path.startswith("index/")
    assert "3 tensors" in str(error)
    assert trial.steps() == [0, 2]


@pytest.mark.parametrize(
    "content",
    [
        None,
        b"",
        b"{",
        b"[]",
        b'{"meta": {"mode": "NONE", "mode_step": 1}}',
        b'{"meta": {"mode": "TRAIN", "mode_step": -1}}',
        b'{"meta": {"mode": "TRAIN", "mode_step": 1e999}}',
        b"[" * 100_000,
        b'{"meta": {"mode": "TRAIN", "mode_step": 1}, "tensor_payload": [1]}',
        b'{"meta": {"mode": "TRAIN", "mode_step": 1}, "shape_payload": [{"tensorname": "x", "shape": [-1]}]}',
    ],
)
def test_without_a_usable_index_the_events_tell_all(three: OldRun, new: str, content: bytes | None) -> None:
    three.index(1).unlink()
    if content is not None:
        three.index(1).write_bytes(content)
    trial, damage = damage_of(three, new)
    assert [error.path for error in damage] == (
        [] if content is None else ["index/000000000/000000000001_worker_0.json"]
    )
    assert trial.steps(TRAIN) == [0, 2, 4]
    assert trial.tensor_names(step=1) == ["a", "b", "c"]


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_no_damage_stops_an_import(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        old = OldRun(Path(folder) / "old")
        old.collections(COLLECTIONS)
        for step in range(3):
            values = {"smdebug/reductions/min/a": np.float32(1), "a": np.arange(4, dtype="i2"), "b": np.array(["x"])}
            old.step(values, "TRAIN", step, shapes={"c": (1, 2)})
        file = data.draw(st.sampled_from([old.events(1), old.index(1)]))
        content = bytearray(file.read_bytes())
        for _ in range(data.draw(st.integers(1, 4))):
            place = data.draw(st.integers(0, len(content) - 1))
            length = data.draw(st.integers(1, 8))
            content[place : place + length] = data.draw(st.binary(max_size=8))
            content = content or bytearray(b"?")
        file.write_bytes(content)
        trial = imported(old, f"{folder}/new", on_damage=lambda error: None)
        assert {0, 2} <= set(trial.steps())
        assert trial.tensor("a").value(2).tolist() == [0, 1, 2, 3]


def test_damaged_collections(three: OldRun, new: str) -> None:
    (three.folder / "collections/000000000/worker_0_collections.json").write_bytes(b"{}}")
    trial, (error,) = damage_of(three, new)
    assert "what a worker saves" in str(error)
    assert trial.collections() == {}


def test_a_setting_that_makes_no_sense_is_left_out(three: OldRun, new: str) -> None:
    bad = {"include_regex": ["(", "^a"], "tensor_names": ["b"], "save_config": {"TRAIN": {**EVERY, "save_interval": 0}}}
    three.collections({"mine": {**bad, "reduction_config": {"reductions": "nope"}}})
    trial, damage = damage_of(three, new)
    assert len(damage) == 3
    assert trial.tensor_names(collection="mine") == ["a", "b"]


def test_a_name_that_cannot_be_stored(old: OldRun, new: str) -> None:
    old.step({"x": np.float32(1), "y": np.float32(2)})
    text = old.index(0).read_text()
    old.index(0).write_text(text.replace('"x"', '"\\ud800"'))
    damage: list[FileError] = []
    assert imported(old, new, on_damage=damage.append).tensor_names() == ["y"]
    assert len(damage) == 1


def test_damage_is_logged_unless_asked_for(three: OldRun, new: str, caplog: pytest.LogCaptureFixture) -> None:
    three.events(1).write_bytes(b"x")
    imported(three, new)
    assert "events/000000000001" in caplog.text


def test_files_that_are_not_smdebugs_are_passed_over(three: OldRun, new: str) -> None:
    for name in (
        "index/000000000/notes.json",
        "events/000000000000/x_worker_0.tfevents",
        "events/readme",
        "claim.json",
    ):
        (three.folder / name).write_bytes(b"?")
    _, damage = damage_of(three, new)
    assert damage == []


def test_other_events_are_passed_over(three: OldRun, new: str) -> None:
    version = framed(b"\x1a\x0dbrain.Event:2", None)
    three.events(1).write_bytes(version + framed(event("d", np.zeros(1), "TRAIN", 2, 1)))
    three.index(1).unlink()
    trial, damage = damage_of(three, new)
    assert damage == []
    assert trial.tensor_names(step=1) == ["d"]


def test_the_wrong_source(tmp_path: Path, new: str, three: OldRun) -> None:
    with pytest.raises(RunNotFound):
        import_run(tmp_path / "nothing", new)
    (tmp_path / "file").write_text("x")
    with pytest.raises(NotARun, match="not a run of smdebug"):
        import_run(tmp_path / "file", new)
    run = import_run(three.folder, new)
    with pytest.raises(NotARun, match="not a run of smdebug"):
        import_run(run, tmp_path / "again")
    with pytest.raises(ConfigurationError, match="into itself"):
        import_run(three.folder, three.folder)


def test_create_trial_says_how(three: OldRun) -> None:
    with pytest.raises(NotARun, match=r"tensortrial import smdebug .*import_run"):
        tensortrial.create_trial(three.folder)


# ------------------------------------------------------------------------------------------- again, and after a kill


def test_a_finished_import_is_left_alone(three: OldRun, new: str) -> None:
    import_run(three.folder, new)
    before = {path: path.stat().st_mtime_ns for path in Path(new).rglob("*")}
    assert import_run(three.folder, new) == new
    assert {path: path.stat().st_mtime_ns for path in Path(new).rglob("*")} == before


def test_another_run_is_not_touched(three: OldRun, new: str, tmp_path: Path) -> None:
    import_run(three.folder, new)
    other = OldRun(tmp_path / "other")
    other.step({"x": np.zeros(1)})
    with pytest.raises(RunExists, match="not imported from"):
        import_run(other.folder, new)


def test_new_steps_and_workers_of_the_source_are_added(three: OldRun, new: str) -> None:
    trial = imported(three, new)
    three.step({"a": np.zeros(2)}, "EVAL", 0, 7)
    three.step({"a": np.ones(2)}, "EVAL", 0, 7, worker="worker_1")
    trial = imported(three, new)
    assert trial.steps() == [0, 1, 2, 7]
    assert trial.tensor("a").workers(7) == ["worker_0", "worker_1"]
    assert trial.loaded_all_steps()


_KILLED = """
import os, signal, sys
from tensortrial.importers import smdebug
from tensortrial.write.writer import Writer

put, left = Writer.put, [int(sys.argv[3])]

def killed(self, *arguments, **more):
    put(self, *arguments, **more)
    left[0] -= 1
    if not left[0]:
        self.flush() if sys.argv[4] == "flushed" else None
        os.kill(os.getpid(), signal.SIGKILL)

Writer.put = killed
smdebug.FLUSH_SECONDS = 0
smdebug.import_run(sys.argv[1], sys.argv[2], progress=False)
"""


@pytest.mark.parametrize(
    ("puts", "how"), [(1, "flushed"), (1, "at once"), (7, "flushed"), (13, "at once"), (20, "flushed")]
)
def test_a_killed_import_goes_on(old: OldRun, new: str, tmp_path: Path, puts: int, how: str) -> None:
    for worker in ("worker_0", "worker_1"):
        old.collections(COLLECTIONS, worker, num_workers=2)
        for step in range(10):
            values = {"a": np.full((50, 50), step, "f4"), "smdebug/reductions/min/w:0": np.float32(step)}
            old.step(values, "TRAIN" if step % 2 else "EVAL", step // 2, step, worker)
    old.end()
    whole = everything(imported(old, str(tmp_path / "whole")))
    assert len(whole["rows"]) == 40
    killed = subprocess.run([sys.executable, "-c", _KILLED, old.folder, new, str(puts), how], timeout=60)
    assert killed.returncode == -9
    if puts > 1 or how == "flushed":
        partial = tensortrial.create_trial(new)
        assert not partial.loaded_all_steps()
        assert len(partial.sql("select * from tensors").fetchall()) < 40 or puts == 20  # all but the end marks
        partial.close()
    trial = imported(old, new)
    assert everything(trial) == whole
    assert trial.loaded_all_steps()


def test_an_interrupted_import_leaves_no_end_mark(three: OldRun, new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted(importer.StepImport):
        def run(self) -> None:
            if self._opened.files.global_step == 2:
                raise KeyboardInterrupt
            super().run()

    with monkeypatch.context() as patch:
        patch.setattr(importer, "StepImport", Interrupted)
        with pytest.raises(KeyboardInterrupt):
            import_run(three.folder, new)
    trial = tensortrial.create_trial(new)
    assert trial.steps(show_incomplete_steps=True) == [0, 1]
    assert not trial.loaded_all_steps()
    assert imported(three, new).steps() == [0, 1, 2]


def test_an_unreadable_file_stops_the_import_and_it_can_go_on(
    three: OldRun, new: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What may pass, such as a lost connection, must not leave a hole in the run."""

    def refused(path: Any, *arguments: Any, **more: Any) -> Any:
        if str(path) == str(three.index(1)):
            raise PermissionError(13, "no")
        return opened(path, *arguments, **more)

    opened = builtins.open
    with monkeypatch.context() as patch:
        patch.setattr(builtins, "open", refused)
        with pytest.raises(StorageError):
            import_run(three.folder, new)
    assert imported(three, new).steps() == [0, 1, 2]


# ------------------------------------------------------------------------------------------------- around the import


@pytest.mark.slow
def test_memory_stays_bounded(old: OldRun, new: str) -> None:
    """Forty steps of 16 MB pass through far less than their sum."""
    value = np.zeros(4 << 20, "f4")
    for step in range(40):
        old.step({"smdebug/reductions/min/x": np.float32(0), "x": value}, mode_step=step)
    program = (
        "import resource, sys; from tensortrial.importers.smdebug import import_run\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "import_run(sys.argv[1], sys.argv[2])\n"
        "print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, old.folder, new], capture_output=True, text=True, timeout=120, check=True
    )
    assert int(done.stdout) < 320


@pytest.fixture
def s3(moto_s3: ObjectStore) -> tuple[str, dict[str, Any]]:
    return moto_s3.new_bucket(), moto_s3.storage_options


@pytest.mark.s3
def test_from_and_to_an_object_store(
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
    assert trial.loaded_all_steps()
    assert import_run(f"{bucket}/jobs/old", f"{bucket}/jobs/new", storage_options=options) == path


def command(*arguments: object) -> subprocess.CompletedProcess[str]:
    call = [sys.executable, "-m", "tensortrial", "import", "smdebug", *map(str, arguments)]
    return subprocess.run(call, capture_output=True, text=True, timeout=60)


def test_the_command(three: OldRun, new: str) -> None:
    pytest.importorskip("click")
    three.events(1).write_bytes(b"x")
    done = command(three.folder, new, "--no-progress")
    assert (done.returncode, done.stdout) == (0, f"{new}\n")
    assert done.stderr.startswith("damaged: events/000000000001/")
    assert tensortrial.create_trial(new).steps() == [0, 2]
    refused = command(new, f"{new}-2")
    assert refused.returncode == 1
    assert refused.stderr == f"Error: {new}: there are no collections and events here: this is not a run of smdebug\n"


def test_the_bar(three: OldRun, new: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tqdm")
    import_run(three.folder, new)
    assert "3/3" in capsys.readouterr().err
    import_run(three.folder, new + "-2", progress=False)
    monkeypatch.setitem(sys.modules, "tqdm", None)
    import_run(three.folder, new + "-3")
    assert capsys.readouterr().err == ""


def test_the_example_of_the_documentation(old: OldRun, tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "migrating.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", page.partition("## Old runs")[2], re.DOTALL)
    old.step({"loss": np.float32(1)})
    (tmp_path / "old").rename(tmp_path / "job-1")
    (tmp_path / "old").mkdir()
    (tmp_path / "job-1").rename(tmp_path / "old/job-1")
    done = subprocess.run([sys.executable, "-c", example], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "[0] ['loss']\n"), done.stderr
