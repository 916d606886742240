"""The import of damaged runs in smdebug's format: the damage is named, and the rest is imported."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tensortrial
from support.smdebug_imports import COLLECTIONS, EVERY, imported
from support.smdebug_runs import OldRun, event, framed
from tensortrial.errors import (
    ConfigurationError,
    CorruptFile,
    FileError,
    NotARun,
    RunNotFound,
)
from tensortrial.importers.smdebug import import_run, import_runs
from tensortrial.mode import ModeKeys

TRAIN = ModeKeys.TRAIN


def damage_of(old: OldRun, new: str) -> tuple[tensortrial.Trial, list[FileError]]:
    damage: list[FileError] = []
    trial = imported(old, new, on_damage=damage.append)
    assert all(isinstance(error, CorruptFile) for error in damage)
    assert trial.steps(TRAIN)[0] == 0
    np.testing.assert_array_equal(trial.tensor("c").value(4, TRAIN), np.full(4, 2, "f4"))
    return trial, damage


def test_a_damaged_record_is_named_and_the_rest_is_imported(three: OldRun, new: str) -> None:
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


def test_a_record_that_is_not_an_event_is_named(three: OldRun, new: str) -> None:
    path = three.events(1)
    data = bytearray(path.read_bytes())
    first, second, _ = (each["start_idx"] for each in json.loads(three.index(1).read_text())["tensor_payload"])
    data[first + 12 : second - 4] = b"\xff" * (second - 16 - first)
    path.write_bytes(data)
    trial, (error,) = damage_of(three, new)
    assert "'a'" in str(error)
    assert trial.tensor_names(step=1) == ["b", "c"]


@pytest.mark.parametrize("left", [0.5, 0.9, 0.0])
def test_the_records_of_an_incomplete_file_are_imported(three: OldRun, new: str, left: float) -> None:
    data = three.events(1).read_bytes()
    three.events(1).write_bytes(data[: int(len(data) * left)])
    trial, damage = damage_of(three, new)
    assert trial.tensor_names(step=1) == {0.5: ["a"], 0.9: ["a", "b"], 0.0: []}[left]
    assert {error.path for error in damage} == {"events/000000000001/000000000001_worker_0.tfevents"}


def test_a_missing_event_file_is_named(three: OldRun, new: str) -> None:
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
def test_without_a_usable_index_the_events_suffice(three: OldRun, new: str, content: bytes | None) -> None:
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
@pytest.mark.slow
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
            position = data.draw(st.integers(0, len(content) - 1))
            length = data.draw(st.integers(1, 8))
            content[position : position + length] = data.draw(st.binary(max_size=8))
            content = content or bytearray(b"?")
        file.write_bytes(content)
        trial = imported(old, f"{folder}/new", on_damage=lambda error: None)
        assert {0, 2} <= set(trial.steps())
        assert trial.tensor("a").value(2).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("content", [b"{}}", b'{"_meta": {"num_workers": 100000000000}}'])
def test_damaged_collections_are_named(three: OldRun, new: str, content: bytes) -> None:
    (three.folder / "collections/000000000/worker_0_collections.json").write_bytes(content)
    trial, (error,) = damage_of(three, new)
    assert "the collections of a worker are damaged" in str(error)
    assert trial.collections() == {}


def test_an_invalid_setting_of_a_collection_is_left_out(three: OldRun, new: str) -> None:
    bad = {"include_regex": ["(", "^a"], "tensor_names": ["b"], "save_config": {"TRAIN": {**EVERY, "save_interval": 0}}}
    three.collections({"mine": {**bad, "reduction_config": {"reductions": "nope"}}})
    trial, damage = damage_of(three, new)
    assert len(damage) == 3
    assert trial.tensor_names(collection="mine") == ["a", "b"]


def test_a_name_that_cannot_be_stored_is_named(old: OldRun, new: str) -> None:
    old.step({"x": np.float32(1), "y": np.float32(2)})
    text = old.index(0).read_text()
    old.index(0).write_text(text.replace('"x"', '"\\ud800"'))
    damage: list[FileError] = []
    assert imported(old, new, on_damage=damage.append).tensor_names() == ["y"]
    assert len(damage) == 1


def test_damage_is_logged_by_default(three: OldRun, new: str, caplog: pytest.LogCaptureFixture) -> None:
    three.events(1).write_bytes(b"x")
    imported(three, new)
    assert "events/000000000001" in caplog.text


def test_foreign_files_are_ignored(three: OldRun, new: str) -> None:
    for name in (
        "index/000000000/notes.json",
        "events/000000000000/x_worker_0.tfevents",
        "events/readme",
        "claim.json",
    ):
        (three.folder / name).write_bytes(b"?")
    _, damage = damage_of(three, new)
    assert damage == []


def test_other_events_are_ignored(three: OldRun, new: str) -> None:
    version = framed(b"\x1a\x0dbrain.Event:2", None)
    three.events(1).write_bytes(version + framed(event("d", np.zeros(1), "TRAIN", 2, 1)))
    three.index(1).unlink()
    trial, damage = damage_of(three, new)
    assert damage == []
    assert trial.tensor_names(step=1) == ["d"]


def test_a_source_of_another_kind_is_refused(tmp_path: Path, new: str, three: OldRun) -> None:
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


def test_create_trial_of_an_old_run_says_how_to_import_it(three: OldRun) -> None:
    with pytest.raises(NotARun, match=r"tensortrial import smdebug .*import_run"):
        tensortrial.create_trial(three.folder)


def test_damaged_files_of_several_runs_are_named_with_their_folders(tmp_path: Path) -> None:
    for folder in ("a", "b/c"):
        run = OldRun(tmp_path / "jobs" / folder)
        run.step({"loss": np.float32(1)})
        next((run.folder / "events").rglob("*.tfevents")).write_bytes(b"damaged")
    damage: list[FileError] = []
    import_runs(tmp_path / "jobs", tmp_path / "runs", progress=False, on_damage=damage.append)
    files = [f"{each}/events/000000000000/000000000000_worker_0.tfevents" for each in ("a", "b/c")]
    assert [error.path for error in damage] == files
    assert [str(error).count(path) for error, path in zip(damage, files, strict=True)] == [1, 1]
