"""Replicas: workers of a job that share a process, each with a recorder of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tensortrial.mode import ModeKeys

from .configuration.options import Framework, HookOptions
from .process.rank import Rank
from .recorder import Recorder


class LeadingRecorder(Recorder):
    """The recorder of a process and, once it is `broadcast`, of the first of its replicas.

    Modes, held steps, and the run's end are common to all replicas. Steps are begun, and tensors recorded, for each
    replica separately. The arguments are those of a Recorder.
    """

    def __init__(self, options: HookOptions, framework: Framework, rank: Rank | Callable[[], Rank]) -> None:
        self.others: list[Recorder] = []
        super().__init__(options, framework, rank)
        self._framework = framework

    @property
    def all(self) -> list[Recorder]:
        """The recorders of all replicas of this process, in their order."""
        return [self, *self.others]

    def broadcast(self, replicas: Sequence[str]) -> None:
        """Make each of several replicas a worker of the job, with the same steps and collections.

        If only one worker is saved, the first replica stays the only one. Once steps have begun, nothing changes.

        Args:
            replicas: The names of the replicas.
        """
        count = len(replicas)
        if count < 2 or self.others or not self.active or self.clock.step is not None:
            return
        if self.options.include_workers != "all":
            return
        rank = self.run.duty.rank
        number, size = rank.number * count, rank.size * count
        self.run.duty.set_rank(Rank(number, size, replicas[0]))
        for index, name in enumerate(replicas[1:], 1):
            own = Rank(number + index, size, name)
            self.others.append(Recorder(self.options, self._framework, own, collections=self.collections))
            self.others[-1].set_mode(self.clock.mode)

    def set_mode(self, mode: ModeKeys) -> None:
        super().set_mode(mode)
        for each in self.others:
            each.set_mode(mode)

    def hold_step(self, number: Any = None, mode: Any = None) -> None:
        super().hold_step(number, mode)
        for each in self.others:
            each.hold_step(number, mode)

    def release_step(self) -> None:
        super().release_step()
        for each in self.others:
            each.release_step()

    def withdraw_step(self) -> None:
        super().withdraw_step()
        for each in self.others:
            each.withdraw_step()

    def flush(self) -> None:
        super().flush()
        for each in self.others:
            each.flush()

    def close(self) -> None:
        super().close()
        for each in self.others:
            each.close()
