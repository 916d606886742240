"""A hook of no framework, which imports in a fraction of a second."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from tensortrial.hooks.core.base_hook import BaseHook
from tensortrial.hooks.core.configuration.options import Framework, HookOptions, accepts_fields_of
from tensortrial.hooks.core.process.rank import Rank
from tensortrial.hooks.core.recorder import Recorder


class Hook(BaseHook):
    """The methods that the hooks of all frameworks share."""

    @accepts_fields_of(HookOptions)
    def __init__(self, options: HookOptions) -> None:
        self.recorder = Recorder(options, Framework("none"), Rank(0, 1))

    def locked(self) -> AbstractContextManager[object]:
        """Return a context in which this thread holds the hook's lock, as while it saves a step."""
        return self.recorder._lock


class WorkerHook(BaseHook):
    """The hook of one of several workers, which are all saved and flush on request only."""

    def __init__(self, out_dir: str, rank: int = 0, size: int = 1, **options: Any) -> None:
        shared = HookOptions(out_dir, include_workers="all", flush_seconds=3600, **options)
        self.recorder = Recorder(shared, Framework("none"), Rank(rank, size))
