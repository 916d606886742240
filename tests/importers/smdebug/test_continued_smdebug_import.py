"""Imports from smdebug that are repeated, or continued after an interruption."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tensortrial
from support import warm
from support.file_access import before_opening
from support.smdebug_imports import COLLECTIONS, everything, imported
from support.smdebug_runs import OldRun
from tensortrial.errors import (
    RunExists,
    StorageError,
)
from tensortrial.importers.smdebug import import_run
from tensortrial.mode import ModeKeys

TRAIN, EVAL, GLOBAL = ModeKeys.TRAIN, ModeKeys.EVAL, ModeKeys.GLOBAL


def test_a_finished_import_stays_as_it_is(three: OldRun, new: str) -> None:
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
    assert trial.loaded_all_steps


_KILLED = """
import os, signal, sys
from tensortrial.importers import target
from tensortrial.importers.smdebug import job as smdebug
from tensortrial.write.writer import Writer

put, left = Writer.put, [int(sys.argv[3])]

def killed(self, *arguments, **more):
    put(self, *arguments, **more)
    left[0] -= 1
    if not left[0]:
        self.flush() if sys.argv[4] == "flushed" else None
        os.kill(os.getpid(), signal.SIGKILL)

Writer.put = killed
target.FLUSH_SECONDS = 0
smdebug.import_run(sys.argv[1], sys.argv[2], progress=False)
"""


@pytest.mark.parametrize(
    ("puts", "how"), [(1, "flushed"), (1, "at once"), (7, "flushed"), (13, "at once"), (20, "flushed")]
)
def test_a_killed_import_is_continued(old: OldRun, new: str, tmp_path: Path, puts: int, how: str) -> None:
    for worker in ("worker_0", "worker_1"):
        old.collections(COLLECTIONS, worker, num_workers=2)
        for step in range(10):
            values = {"a": np.full((50, 50), step, "f4"), "smdebug/reductions/min/w:0": np.float32(step)}
            old.step(values, "TRAIN" if step % 2 else "EVAL", step // 2, step, worker)
    old.end()
    whole = everything(imported(old, str(tmp_path / "whole")))
    assert len(whole["rows"]) == 40
    killed = warm.run(["-c", _KILLED, old.folder, new, puts, how])
    assert killed.returncode == -9
    if puts > 1 or how == "flushed":
        partial = tensortrial.create_trial(new)
        assert not partial.loaded_all_steps
        assert len(partial.sql("select * from tensors").fetchall()) < 40 or puts == 20  # all but the end marks
        partial.close()
    trial = imported(old, new)
    assert everything(trial) == whole
    assert trial.loaded_all_steps


def test_an_interrupted_import_leaves_no_end_mark(three: OldRun, new: str) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with before_opening(three.events(2), interrupt), pytest.raises(KeyboardInterrupt):
        import_run(three.folder, new)
    trial = tensortrial.create_trial(new)
    assert trial.steps(show_incomplete_steps=True) == [0, 1]
    assert not trial.loaded_all_steps
    assert imported(three, new).steps() == [0, 1, 2]


def test_an_unreadable_file_stops_the_import_which_can_be_continued(three: OldRun, new: str) -> None:
    """What may pass, such as a lost connection, must not leave a hole in the run."""

    def refuse() -> None:
        raise PermissionError(13, "no")

    with before_opening(three.index(1), refuse), pytest.raises(StorageError):
        import_run(three.folder, new)
    assert imported(three, new).steps() == [0, 1, 2]
