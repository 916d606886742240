"""SQLite files of other programs, where they lie."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from pathlib import Path

import pytest

from support.imported_runs import values
from tensortrial.errors import RunNotFound
from tensortrial.importers import mlflow
from tensortrial.importers.trackio import import_runs


@pytest.mark.parametrize("is_closed", [True, False])
def test_a_log_next_to_a_file_is_read_where_nothing_can_be_written(tmp_path: Path, is_closed: bool) -> None:
    folder = tmp_path / os.fsdecode(b"caf\xe9 #1?")
    folder.mkdir()
    database = sqlite3.connect(tmp_path / "project.db")
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("CREATE TABLE metrics (id, timestamp, run_name, step, metrics)")
    row = (1, "2025-03-01T12:00:00", "r", 0, json.dumps({"loss": 0.5}))
    database.execute("INSERT INTO metrics VALUES (?, ?, ?, ?, ?)", row)
    database.commit()
    if is_closed:
        database.close()
    for path in tmp_path.glob("project.db*"):
        shutil.copy(path, folder)
    database.close()
    # Where a folder is, SQLite can make no file, as in a folder that may only be read.
    (folder / "project.db-shm").unlink(missing_ok=True)
    (folder / "project.db-shm").mkdir()
    (run,) = import_runs(folder / "project.db", tmp_path / "runs", progress=False)
    assert values(run, "loss") == {0: 0.5}


def test_a_named_pipe_is_no_store_and_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(RunNotFound, match="no run of MLflow here"):
        mlflow.import_runs(tmp_path / "pipe", tmp_path / "runs", progress=False)
