"""Long random histories of writers, readers and compactions."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import tensortrial
from support.limits import keep_index_files
from support.runs import Job
from tensortrial.maintenance.compaction import compact
from tensortrial.read.trial import Trial
from tensortrial.storage.open import open_storage

# --------------------------------------------------------------------------------------------------- long histories


class Histories(RuleBasedStateMachine):
    """Writers that come and go, trials that stay open, and compactions that stop wherever they like."""

    @initialize()
    def begin(self) -> None:
        Histories.runs += 1
        self.url = f"memory://compaction-{os.getpid()}-{Histories.runs}/run"
        self.job: Job | None = None
        self.steps = 0
        self.trials: list[Trial] = []
        self.limits = pytest.MonkeyPatch()

    runs = 0

    @precondition(lambda self: self.job is None)
    @rule(kept=st.booleans())
    def open(self, kept: bool) -> None:
        self.limits.undo()
        if not kept:
            keep_index_files(self.limits)
        resume = self.steps > 0 or open_storage(self.url).exists_any()
        self.job = Job(self.url, resume=resume, steps_per_directory=90, flush_seconds=3600)

    @precondition(lambda self: self.job is not None)
    @rule(count=st.integers(1, 40))
    def flush(self, count: int) -> None:
        assert self.job is not None
        for _ in range(count):
            step = self.job.next_global_step
            self.job.step({"loss": step / 2, "w": [step, step]})
            self.job.flush()
        self.steps += count

    @precondition(lambda self: self.job is not None)
    @rule()
    def close(self) -> None:
        assert self.job is not None
        self.job.close()
        self.job = None

    @precondition(lambda self: open_storage(self.url).exists_any())
    @rule()
    def refresh(self) -> None:
        self.trials = [*self.trials[-2:], tensortrial.create_trial(self.url)]

    @precondition(lambda self: open_storage(self.url).exists_any())
    @rule(stop=st.one_of(st.none(), st.integers(0, 60)))
    def compact(self, stop: int | None) -> None:
        with _stopped_after(stop):
            compact(self.url, delete_older_than=0)

    @invariant()
    def nothing_is_lost(self) -> None:
        if not hasattr(self, "url") or not open_storage(self.url).exists_any():
            return
        for trial in [*self.trials, tensortrial.create_trial(self.url)]:
            trial.refresh()
            assert trial.steps(show_incomplete_steps=True) == [*range(self.steps)]
            rows = trial.sql("select global_step, scalar from tensors where name = 'loss' order by all").fetchall()
            assert rows == [(step, step / 2) for step in range(self.steps)]
            if self.steps:
                assert trial.tensor("loss").value(self.steps // 2) == self.steps // 2 / 2
                assert len(trial.tensor("loss").values()) == self.steps
                values = trial.tensor("w").values()
                assert [value.tolist() for value in values.values()] == [[step, step] for step in range(self.steps)]
            assert not trial.damaged

    def teardown(self) -> None:
        if getattr(self, "job", None) is not None:
            assert self.job is not None
            self.job.close()
        if hasattr(self, "limits"):
            self.limits.undo()


class _Stop(BaseException):
    pass


class _stopped_after:  # noqa: N801
    """Inside, the storage breaks off after so many writes and deletions, as if the process had been killed."""

    def __init__(self, stop: int | None) -> None:
        self._left = stop

    def __enter__(self) -> None:
        from tensortrial.storage.fsspec import FsspecStorage

        self._saved = FsspecStorage.create, FsspecStorage.remove

        def counted(call: Callable[..., Any]) -> Callable[..., Any]:
            def counting(*args: Any) -> Any:
                if self._left is not None:
                    self._left -= 1
                    if self._left < 0:
                        raise _Stop
                return call(*args)

            return counting

        FsspecStorage.create = counted(FsspecStorage.create)  # type: ignore[method-assign]
        FsspecStorage.remove = counted(FsspecStorage.remove)  # type: ignore[method-assign]

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> bool:
        from tensortrial.storage.fsspec import FsspecStorage

        FsspecStorage.create, FsspecStorage.remove = self._saved  # type: ignore[method-assign]
        return kind is _Stop


@pytest.fixture(autouse=True)
def _memory_is_released() -> Iterator[None]:
    yield
    import fsspec

    fsspec.filesystem("memory").store.clear()


TestHistories = Histories.TestCase
# `make simulate` runs them by the hundred.
TestHistories.settings = settings(
    max_examples=3, stateful_step_count=10, deadline=None, suppress_health_check=list(HealthCheck)
)
