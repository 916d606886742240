"""The run of a hook: workers, other runs in its folder, and reading meanwhile.

The recorder and the writer decide it, and no binding takes part. So one hook runs these tests.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensortrial import create_trial
from tensortrial.errors import RunExists

from .job import HookTests


class RunTests(HookTests):
    """Tests of the run."""

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

    def test_a_run_reads_the_same_while_it_is_written_and_afterwards(self, hook: Any, out: str) -> None:
        made = hook(include_collections=[self.collection])
        with self.running(made) as job:
            job.train(2)
            live = create_trial(out)
            assert live.tensor(self.tensor).steps(self.mode)[:1] == [0]
            assert not live.loaded_all_steps
            first = live.tensor(self.tensor).value(0, self.mode)
        again = create_trial(out)
        for trial in (live, again):
            assert trial.tensor(self.tensor).steps(self.mode) == [0, 1]
            assert trial.loaded_all_steps
            np.testing.assert_array_equal(trial.tensor(self.tensor).value(0, self.mode), first)
        assert live.tensor_names() == again.tensor_names()
