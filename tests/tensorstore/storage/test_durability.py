"""What `durable=True` keeps through a loss of power, and what happens when the disk refuses a sync."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.plain_hook import Hook
from support.power_cut import SyncedDisk
from tensortrial import create_trial
from tensortrial.errors import StorageError
from tensortrial.hooks.core.configuration.json_config import read_configuration
from tensortrial.maintenance.compaction import compact
from tensortrial.storage.durability import sync_folder
from tensortrial.storage.open import open_storage

VALUE = np.arange(64, dtype=np.float32)


def save_step(hook: Hook, step: int) -> None:
    with hook.step():
        hook.save_tensor("w", VALUE + step)
        hook.save_scalar("loss", step)
    hook.flush()


def steps_of(run: Path) -> list[int]:
    """Return the steps of a run, each of whose values was compared."""
    if not (run / "run.json").exists() or not list((run / "collections").glob("*.json")):
        return []
    trial = create_trial(str(run))
    steps: list[int] = trial.tensor("w").steps() if trial.has_tensor("w") else []
    for step in steps:
        np.testing.assert_array_equal(trial.tensor("w").value(step), VALUE + step)
        assert trial.tensor("loss").value(step) == step
    return steps


@pytest.fixture(params=[False, True], ids=["synced", "names_survive"])
def disk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> SyncedDisk:
    return SyncedDisk(monkeypatch, names_survive=request.param)


class TestAfterALossOfPower:
    def test_every_published_step_of_a_durable_run_is_left(self, tmp_path: Path, disk: SyncedDisk) -> None:
        run = tmp_path / "new" / "folders" / "run"
        hook = Hook(str(run), durable=True)
        for step in range(6):
            save_step(hook, step)
            left = tmp_path / f"left-{step}"
            disk.copy_survivors(tmp_path / "new", left)
            assert steps_of(left / "new/folders/run") == list(range(step + 1))
        hook.close()
        disk.copy_survivors(tmp_path / "new", tmp_path / "closed")
        assert create_trial(str(tmp_path / "closed/new/folders/run")).loaded_all_steps
        assert steps_of(tmp_path / "closed/new/folders/run") == list(range(6))

    def test_a_run_that_is_not_durable_syncs_only_what_replaces_a_file(self, tmp_path: Path, disk: SyncedDisk) -> None:
        hook = Hook(str(tmp_path / "run"))
        save_step(hook, 0)
        assert disk.syncs == 0
        hook.close()
        assert disk.syncs == 1  # the lease

    def test_a_file_that_is_replaced_keeps_one_of_its_contents(self, tmp_path: Path, disk: SyncedDisk) -> None:
        storage = open_storage(tmp_path / "run")
        storage.replace("collections/w.json", b"old")
        storage.sync("collections/w.json")
        storage.replace("collections/w.json", b"new")
        disk.copy_survivors(tmp_path / "run", tmp_path / "left")
        assert (tmp_path / "left/run/collections/w.json").read_bytes() in (b"old", b"new")

    def test_a_resumed_session_is_left(self, tmp_path: Path, disk: SyncedDisk) -> None:
        run = tmp_path / "run"
        for session in range(2):
            hook = Hook(str(run), durable=True, resume=True)
            for step in (0, 1):
                save_step(hook, 2 * session + step)
            hook.close()
        disk.copy_survivors(run, tmp_path / "left")
        assert steps_of(tmp_path / "left/run") == [0, 1, 2, 3]
        assert create_trial(str(tmp_path / "left/run")).loaded_all_steps

    def test_a_compaction_loses_nothing_at_any_sync(
        self, tmp_path: Path, disk: SyncedDisk, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = tmp_path / "run"
        hook = Hook(str(run), durable=True)
        for step in range(4):
            save_step(hook, step)
        hook.close()
        synced, checked = os.fsync, []

        def fsync(number: int) -> None:
            synced(number)
            checked.append(disk.syncs)
            disk.copy_survivors(run, tmp_path / f"left-{disk.syncs}")

        monkeypatch.setattr(os, "fsync", fsync)
        compact(run, delete_older_than=0)
        assert checked
        for number in checked:
            assert steps_of(tmp_path / f"left-{number}" / "run") == [0, 1, 2, 3]


class TestARefusedSync:
    @pytest.mark.parametrize("of", ["file", "folder"])
    def test_a_file_whose_sync_fails_is_not_published(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of: str
    ) -> None:
        storage = open_storage(tmp_path / "run", durable=True)
        storage.create("run.json", b"{}")
        failing(monkeypatch, lambda mode: stat.S_ISDIR(mode) == (of == "folder"))
        sink = storage.sink("index/file.parquet")
        sink.file.write(b"rows")
        for publish in (
            lambda: storage.create("end/new.json", b"{}"),
            lambda: storage.replace("end/replaced.json", b"{}"),
            sink.publish,
        ):
            with pytest.raises(StorageError, match="cannot write") as caught:
                publish()
            assert caught.value.errno == errno.EIO
        if of == "file":  # a folder is synced once the name is there: the caller knows that it may be lost
            assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["run.json"]

    @pytest.mark.parametrize("stride", [6, pytest.param(1, marks=pytest.mark.slow)])
    def test_a_hook_fails_at_any_refused_sync_and_keeps_what_was_published(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, stride: int
    ) -> None:
        """No disk refuses a chosen sync."""
        monkeypatch.setenv("TENSORTRIAL_STRICT", "0")
        real, failed = os.fsync, 0
        for refused in range(1, 200, stride):
            calls = 0

            def fsync(number: int, refused: int = refused) -> None:
                nonlocal calls
                calls += 1
                if calls == refused:
                    raise OSError(errno.EIO, "Input/output error")
                real(number)

            monkeypatch.setattr(os, "fsync", fsync)
            run = tmp_path / str(refused)
            hook, published = Hook(str(run), durable=True), 0
            for step in range(3):
                save_step(hook, step)
                published += hook.recorder.active
            hook.close()
            assert steps_of(run)[:published] == list(range(published))
            if calls < refused:
                break
            if published < 3:
                failed += 1
                assert "Input/output error" in caplog.text
                ends = [json.loads(file.read_bytes()) for file in run.glob("end/*.json")]
                assert all("Input/output error" in end["failure"] for end in ends)
            caplog.clear()
        assert failed > 4
        assert steps_of(run) == [0, 1, 2]

    def test_a_file_system_without_syncs_of_folders_is_used(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        failing(monkeypatch, stat.S_ISDIR, errno.EINVAL)
        hook = Hook(str(tmp_path / "run"), durable=True)
        save_step(hook, 0)
        hook.close()
        assert steps_of(tmp_path / "run") == [0]
        with pytest.raises(FileNotFoundError):
            sync_folder(str(tmp_path / "missing"))


class TestTheOption:
    def test_an_object_store_accepts_it(self) -> None:
        hook = Hook("memory://durable/run", durable=True)
        save_step(hook, 0)
        hook.close()
        assert create_trial("memory://durable/run").steps() == [0]

    def test_a_json_configuration_has_it(self, tmp_path: Path) -> None:
        path = tmp_path / "hook.json"
        for value, expected in (("true", True), (False, False)):
            document: dict[str, Any] = {"LocalPath": str(tmp_path / "run"), "HookParameters": {"durable": value}}
            path.write_text(json.dumps(document))
            assert read_configuration(str(path)).arguments["durable"] is expected


def failing(monkeypatch: pytest.MonkeyPatch, refuses: Callable[[int], bool], number: int = errno.EIO) -> None:
    """Make fsync fail for the descriptors whose mode `refuses` accepts."""
    real = os.fsync

    def fsync(descriptor: int) -> None:
        if refuses(os.fstat(descriptor).st_mode):
            raise OSError(number, os.strerror(number))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
