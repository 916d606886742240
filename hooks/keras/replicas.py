"""Replicas: workers of a job that share a process, each with a recorder of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Concatenate, ParamSpec

from ..core.configuration.options import Framework, HookOptions
from ..core.process.rank import Rank
from ..core.recorder import Recorder

_P = ParamSpec("_P")


def _for_each(method: Callable[Concatenate[Recorder, _P], None]) -> Callable[Concatenate[LeadingRecorder, _P], None]:
    """Return a method that calls another one of each replica's recorder."""

    def call(self: LeadingRecorder, /, *args: _P.args, **kwargs: _P.kwargs) -> None:
        for recorder in self.all:
            method(recorder, *args, **kwargs)

    return call


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

        If only one worker is saved, the first replica stays the only one. Once steps have begun, this changes nothing.
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

    set_mode = _for_each(Recorder.set_mode)
    hold_step = _for_each(Recorder.hold_step)
    release_step = _for_each(Recorder.release_step)
    withdraw_step = _for_each(Recorder.withdraw_step)
    flush = _for_each(Recorder.flush)
    close = _for_each(Recorder.close)
