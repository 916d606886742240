"""The content of a run as event files for TensorBoard: a folder for each mode."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from ..errors import TensorTrialError
from ..format.index_types import IndexedStep
from ..mode import ModeKeys
from ..storage.open import Storage
from .event_file import EventFile
from .summary import event, session_start, shown

logger = logging.getLogger(__name__)


class EventLog:
    """The event files of one worker.

    It receives the steps that a writer has published, on the writer's thread, and never raises: training and the run do
    not depend on it. The first file that cannot be written is logged, and no more is written.

    The steps of a mode are in a folder of its name, and TensorBoard's step is the step in the mode. `folder` holds
    these folders in the storage: a job of several workers has one for each worker. If the job went back to a
    checkpoint, `back_to` is the step of each mode from which on earlier events no longer count.
    """

    def __init__(self, storage: Storage, folder: str = "", back_to: Mapping[str, int] | None = None) -> None:
        self._storage = storage
        self._back_to = back_to
        self._prefix = f"{folder}/" if folder else ""
        self._files: dict[ModeKeys, EventFile] = {}
        self._is_off = False

    def write(self, steps: Sequence[IndexedStep]) -> None:
        """Add the scalars, statistics and histograms of steps."""
        if self._is_off:
            return
        of_mode: dict[ModeKeys, list[bytes]] = {}
        for indexed in steps:
            of_mode.setdefault(indexed.step.mode, []).extend(_events(indexed))
        try:
            if self._back_to is not None:
                self._go_back(self._back_to)
                self._back_to = None
            for mode, events in of_mode.items():
                if events:
                    self._file(mode).append(events)
        except TensorTrialError as exc:
            self._is_off = True
            logger.error(
                "no more is written to the event files in %s; the run itself goes on: %s", self._storage.url, exc
            )

    def close(self) -> None:
        """Close the files. Never raises: appended events are already visible."""
        for file in self._files.values():
            with suppress(OSError):
                file.close()

    def _go_back(self, steps: Mapping[str, int]) -> None:
        for mode in ModeKeys:
            if self._storage.list(self._folder(mode)):
                self._file(mode).append([session_start(time.time(), steps.get(mode.name, 0))])

    def _folder(self, mode: ModeKeys) -> str:
        return f"{self._prefix}{mode.name.lower()}"

    def _file(self, mode: ModeKeys) -> EventFile:
        if mode not in self._files:
            self._files[mode] = EventFile(self._storage, self._folder(mode))
        return self._files[mode]


def _events(indexed: IndexedStep) -> Iterator[bytes]:
    step = indexed.step.mode_step
    for row in indexed.rows():
        # A double has no more than the microseconds of such a time.
        seconds = round(row.saved_at_ns / 1000) / 1e6
        for value in shown(row.spec.plan.name, row.scalar, row.statistics, row.histogram):
            yield event(seconds, step, value)
