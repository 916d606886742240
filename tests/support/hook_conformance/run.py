"""The run of a hook: workers, resumption, reading meanwhile, copies of the hook, errors, and the end."""

from __future__ import annotations

import copy
import gc
import json
import logging
import os
import pickle
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensortrial import create_trial
from tensortrial.config.collection import Collection
from tensortrial.config.save_config import SaveConfig
from tensortrial.errors import RunExists
from tensortrial.mode import modes

from .job import HookTests


class Broken(Collection):
    """A collection that raises an error when it is matched with a tensor of the training."""

    def matches(self, tensor_name: str) -> bool:
        if tensor_name == "before":
            return False
        raise RuntimeError("a broken collection")


class RunTests(HookTests):
    """Tests of the run."""

    @pytest.mark.parametrize(
        "copied",
        [copy.copy, copy.deepcopy, lambda hook: pickle.loads(pickle.dumps(hook))],
        ids=["copy", "deepcopy", "pickle"],
    )
    def test_a_copy_of_a_hook_saves_nothing_and_warns_once(
        self, hook: Any, out: str, copied: Callable[[Any], Any], caplog: pytest.LogCaptureFixture
    ) -> None:
        original = hook()
        twin = copied(original)
        assert isinstance(twin, getattr(self.module, self.hook_class))
        assert twin.out_dir == out
        assert self.module.get_hook() is original
        with caplog.at_level(logging.WARNING, "tensortrial"):
            self.run(twin, 2)
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

    @pytest.mark.parametrize(
        ("variable", "value"), [("TENSORTRIAL", "0"), ("USE_SMDEBUG", "False"), (None, None)], ids=str
    )
    def test_a_hook_that_is_switched_off_writes_nothing(
        self, hook: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str | None, value: str
    ) -> None:
        if variable is not None:
            monkeypatch.setenv(variable, value)
        made = hook(save_all=True, dry_run=variable is None)
        made.save_scalar("x", 1)
        made.save_tensor("y", [1])
        assert len(self.run(made, 2)) == 2
        made.flush()
        assert os.listdir(tmp_path) == []

    def test_include_workers_saves_one_worker_or_all(
        self, hook: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("WORLD_SIZE", "2")
        made = []
        for rank in ("1", "0"):
            monkeypatch.setenv("RANK", rank)
            made += [hook(str(tmp_path / "one")), hook(str(tmp_path / "all"), include_workers="all")]
        assert [each.worker for each in made] == ["worker_1", "worker_1", "worker_0", "worker_0"]
        with ExitStack() as together:
            for job in [together.enter_context(self.running(each)) for each in made]:
                job.train(1)
        one, both = create_trial(tmp_path / "one"), create_trial(tmp_path / "all")
        assert (one.workers(), one.num_workers) == (["worker_0"], 1)
        assert (both.workers(), both.num_workers) == (["worker_0", "worker_1"], 2)
        for trial in (one, both):
            assert trial.tensor(self.number).steps(self.mode) == [0]
            assert trial.loaded_all_steps

    def test_an_out_dir_that_holds_a_run_is_refused(self, hook: Any) -> None:
        self.run(hook(), 1)
        with pytest.raises(RunExists, match=r"choose another out_dir.*resume=True"):
            hook()
        # A hook that writes nothing cannot damage the run.
        hook(dry_run=True)

    def test_resume_continues_after_the_last_step(self, hook: Any, out: str) -> None:
        for _ in range(2):
            with self.running(hook(resume=True)) as job:
                job.train(2, modes.TRAIN)
                job.train(1, modes.EVAL)
        assert self.steps(out, self.number, modes.TRAIN) == [0, 1, 2, 3]
        assert self.steps(out, self.number, modes.EVAL) == [0, 1]
        assert self.steps(out, self.number, modes.GLOBAL) == [0, 1, 2, 3, 4, 5]

    def test_a_run_reads_the_same_while_it_is_written_and_afterwards(self, hook: Any, out: str) -> None:
        made = hook(include_collections=[self.collection])
        with self.running(made) as job:
            job.train(2)
            live = create_trial(out)
            assert live.tensor(self.tensor).steps(self.mode)[:1] == [0]
            assert not live.loaded_all_steps
            first = live.tensor(self.tensor).value(0, self.mode)
        made.close()
        made.save_scalar("late", 1)
        made.save_tensor("late", [1])
        made.set_mode(modes.EVAL)
        made.close()
        again = create_trial(out)
        for trial in (live, again):
            assert trial.tensor(self.tensor).steps(self.mode) == [0, 1]
            assert trial.loaded_all_steps
            np.testing.assert_array_equal(trial.tensor(self.tensor).value(0, self.mode), first)
        assert live.tensor_names() == again.tensor_names()
        assert not again.has_tensor("late")

    def test_run_json_describes_the_run(self, hook: Any, out: str) -> None:
        self.run(hook(metadata={"project": "digits", "seed": 7}, codec="zstd"), 1)
        run = json.loads(Path(out, "run.json").read_bytes())
        assert run["framework"] == self.framework
        assert run["metadata"] == {"project": "digits", "seed": 7}
        assert run["codec"] == "zstd"
        assert {"tensortrial", "python"} < set(run["versions"])

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
        errors = _errors(caplog)
        assert len(errors) == 1
        assert "training is not affected: RuntimeError: a broken collection" in errors[0].getMessage()
        end = json.loads(Path(out, "end", "worker_0.json").read_bytes())
        assert "a broken collection" in end["failure"]
        assert create_trial(out).tensor_names() == ["before"]
        # The traceback in it keeps its frames, and so the trials, beyond the end of DuckDB.
        caplog.clear()

    def test_a_tensor_that_cannot_be_stored_does_not_stop_the_others(
        self, hook: Any, out: str, lenient: None, caplog: pytest.LogCaptureFixture
    ) -> None:
        made = hook()
        with self.running(made) as job:
            for _ in range(2):
                job.train(1)
                made.save_tensor("objects", [object()])
                made.save_tensor("ragged", [[1], [2, 3]])
                made.save_scalar("text", "not a number")
        assert sorted(record.args[0] for record in _errors(caplog)) == ["objects", "ragged", "text"]
        trial = create_trial(out)
        assert trial.tensor(self.number).steps(self.mode) == [0, 1]
        assert not {"objects", "ragged", "text"} & set(trial.tensor_names())
        assert json.loads(Path(out, "end", "worker_0.json").read_bytes())["failure"] is None


def _errors(caplog: pytest.LogCaptureFixture) -> list[Any]:
    """Return the errors that hooks have logged, without their warnings."""
    return [record for record in caplog.records if (record.name, record.levelname) == ("tensortrial.hooks", "ERROR")]
