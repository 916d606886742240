"""The life of a hook next to the job that it watches.

Each binding has to look whether its hook is a copy, is off or is closed, to keep its own errors away from training, to
continue a resumed run, and to let go of the model. So each framework runs these tests.
"""

from __future__ import annotations

import copy
import gc
import logging
import os
import pickle
import threading
import weakref
from pathlib import Path
from typing import Any

import pytest

from tensortrial import create_trial
from tensortrial.config.collection import Collection
from tensortrial.config.save_config import SaveConfig
from tensortrial.mode import modes

from .job import HookTests


class Broken(Collection):
    """A collection that raises an error when it is matched with a tensor of the training."""

    def matches(self, tensor_name: str) -> bool:
        if tensor_name == "before":
            return False
        raise RuntimeError("a broken collection")


class CopyTests(HookTests):
    """Tests of the copies of a hook, for a hook that is a class of the package."""

    def test_a_copy_of_a_hook_saves_nothing_and_warns_once(
        self, hook: Any, out: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        original = hook()
        twins = [copy.copy(original), pickle.loads(pickle.dumps(original)), copy.deepcopy(original)]
        for twin in twins:
            assert isinstance(twin, getattr(self.module, self.hook_class))
            assert (twin.out_dir, twin.recorder.copied_from, twin.recorder.active) == (out, out, False)
        assert self.module.get_hook() is original
        with caplog.at_level(logging.WARNING, "tensortrial"):
            self.run(twins[-1], 2)
        assert not os.path.exists(out)
        (message,) = [record.getMessage() for record in caplog.records if record.name == "tensortrial.hooks"]
        assert f"a copy of the hook of {out}" in message
        self.run(original, 1)
        assert create_trial(out).steps(self.mode) == [0]

    def test_a_copy_of_a_hook_that_is_off_does_not_warn(
        self, hook: Any, out: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        self.run(copy.deepcopy(hook(dry_run=True)), 1)
        assert not [record for record in caplog.records if record.name == "tensortrial.hooks"]


class LifeTests(HookTests):
    """Tests of a hook that is off, fails, is closed or continues a run."""

    def test_a_hook_that_is_switched_off_writes_nothing(self, hook: Any, tmp_path: Path) -> None:
        made = hook(save_all=True, dry_run=True)
        made.save_scalar("x", 1)
        made.save_tensor("y", [1])
        assert len(self.run(made, 2)) == 2
        made.flush()
        assert os.listdir(tmp_path) == []

    def test_an_error_inside_the_hook_does_not_reach_training(
        self, hook: Any, out: str, lenient: None, caplog: pytest.LogCaptureFixture
    ) -> None:
        made = hook(include_collections=["broken"])
        made.add_collection(Broken("broken", ".*"))
        made.save_scalar("before", 1)
        assert len(self.run(made, 3)) == 3
        with made.step():
            made.save_scalar("after", 1)
        made.flush()
        (error,) = self.errors(caplog)
        assert "training is not affected: RuntimeError: a broken collection" in error.getMessage()
        trial = create_trial(out)
        assert "a broken collection" in trial.snapshot.workers.failures["worker_0"]
        assert trial.tensor_names() == ["before"]
        # The traceback in it keeps its frames, and so the trials, beyond the end of DuckDB.
        caplog.clear()

    def test_resume_continues_after_the_last_step(self, hook: Any, out: str) -> None:
        for _ in range(2):
            with self.running(hook(resume=True)) as job:
                job.train(2, modes.TRAIN)
                job.train(1, modes.EVAL)
        assert self.steps(out, self.number, modes.TRAIN) == [0, 1, 2, 3]
        assert self.steps(out, self.number, modes.EVAL) == [0, 1]
        assert self.steps(out, self.number, modes.GLOBAL) == [0, 1, 2, 3, 4, 5]

    def test_what_a_job_does_with_a_closed_hook_is_not_saved(self, hook: Any, out: str) -> None:
        made = hook(save_all=True)
        job = self.make_job(made)
        job.train(1)
        made.close()
        made.save_scalar("late", 1)
        made.save_tensor("late", [1])
        made.set_mode(modes.EVAL)
        made.set_mode(self.mode)
        assert len(job.train(1)) == 1
        job.end()
        made.close()
        trial = create_trial(out)
        assert trial.loaded_all_steps
        assert trial.steps(self.mode) == [0]
        assert not trial.has_tensor("late")

    def test_another_thread_may_close_the_hook_while_the_job_trains(
        self, hook: Any, out: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        made = hook(save_all=True)
        job = self.make_job(made)
        job.train(1)
        closer = threading.Thread(target=made.close)
        closer.start()
        while closer.is_alive():
            job.train(1)
        closer.join()
        assert len(job.train(2)) == 2
        job.end()
        assert self.errors(caplog) == []
        assert create_trial(out).steps(self.mode)[0] == 0

    def test_a_closed_hook_does_not_keep_its_job_alive(self, hook: Any) -> None:
        made = hook(save_all=True)
        with self.running(made) as job:
            job.train(2)
        parts = [weakref.ref(part) for part in job.parts()]
        if not parts:
            pytest.skip("the job has no parts that must be freed")
        del job
        gc.collect()
        assert [part() for part in parts if part() is not None] == []
        assert not made.recorder.active

    def test_a_job_does_not_keep_a_closed_hook_alive(self, out: str) -> None:
        made = self.make_hook(out, save_all=True, save_config=SaveConfig(save_interval=1))
        with self.running(made) as job:
            job.train(2)
        self.module.del_hook()
        reference, parts = weakref.ref(made), job.parts()
        if not parts:
            pytest.skip("the job has no parts that outlive its hook")
        del made, job
        gc.collect()
        assert reference() is None

    def test_a_hook_without_a_job_is_freed_with_its_last_user(self, out: str) -> None:
        made = self.make_hook(out, save_config=SaveConfig(save_interval=1))
        made.save_scalar("x", 1)
        reference, recorder = weakref.ref(made), made.recorder
        self.module.set_hook(None)
        del made
        gc.collect()
        assert reference() is None
        recorder.close()
