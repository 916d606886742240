"""The content of a run as event files for TensorBoard: a folder for each mode."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import suppress

from ..errors import TensorTrialError
from ..format.index_types import IndexedStep
from ..format.schema import path_component
from ..mode import ModeKeys
from ..storage.open import Storage
from .event_file import EventFile
from .summary import events, session_start

logger = logging.getLogger(__name__)

_WORKER = re.compile(r"worker_\d+(\.\d+)?")


class EventLog:
    """The event files of one worker.

    It receives the steps that a writer has published, on the writer's thread, and never raises, because training and
    the run do not depend on it. After the first file that cannot be written, which is logged, it writes nothing more.

    The steps of a mode are in a folder of its name, and TensorBoard's step is the step in the mode. A job of several
    workers has a folder for each worker, which contains these.

    Args:
        storage: The folder of all event files of the run.
        worker: The name of the worker.
        num_workers: The number of workers of the job.
        back_to: If the job went back to a checkpoint, the step of each mode from which on earlier events no longer
            count.
        has_left: Returns whether a worker of an earlier session has left the job, so that its events are hidden, too.
    """

    def __init__(
        self,
        storage: Storage,
        worker: str,
        num_workers: int,
        back_to: Mapping[str, int] | None = None,
        has_left: Callable[[str], bool] | None = None,
    ) -> None:
        self._storage = storage
        self._num_workers, self._has_left = num_workers, has_left
        self._back_to = back_to
        self._prefix = f"{path_component(worker)}/" if num_workers > 1 else ""
        self._files: dict[ModeKeys, EventFile] = {}
        self._names: set[str] = set()
        self._is_off = False

    def write(self, steps: Sequence[IndexedStep]) -> None:
        """Add the scalars, statistics and histograms of steps."""
        if self._is_off:
            return
        self._names.update(spec.plan.name for indexed in steps for spec in indexed.specs)
        of_mode: dict[ModeKeys, list[bytes]] = {}
        for indexed in steps:
            of_mode.setdefault(indexed.step.mode, []).extend(_events(indexed, self._names))
        try:
            if self._back_to is not None:
                self._start_at(self._back_to)
                self._back_to = None
            for mode, found in of_mode.items():
                if found:
                    self._file(mode).append(found)
        except TensorTrialError as exc:
            self._is_off = True
            logger.error(
                "no more is written to the event files in %s; the run itself continues: %s", self._storage.url, exc
            )

    def go_back(self, steps: Mapping[str, int]) -> None:
        """Note that earlier events from these steps on, by mode, no longer count."""
        known = self._back_to or steps
        self._back_to = {mode: min(step, known.get(mode, 0)) for mode, step in steps.items()}

    def close(self) -> None:
        """Close the files. Never raises: appended events are already visible."""
        for file in self._files.values():
            with suppress(OSError):
                file.close()

    def _start_at(self, steps: Mapping[str, int]) -> None:
        for mode in ModeKeys:
            start = [session_start(time.time(), steps.get(mode.name, 0))]
            if self._storage.list(f"{self._prefix}{_folder(mode)}"):
                self._file(mode).append(start)
            for prefix in self._left_prefixes():
                if self._storage.list(f"{prefix}{_folder(mode)}"):
                    file = EventFile(self._storage, f"{prefix}{_folder(mode)}")
                    file.append(start)
                    file.close()

    def _left_prefixes(self) -> list[str]:
        """Return the prefixes of folders that no worker of this job writes to."""
        if (has_left := self._has_left) is None:
            return []
        workers = sorted(name for name in self._storage.list("") if _WORKER.fullmatch(name))
        if self._num_workers == 1:
            return [f"{worker}/" for worker in workers]
        return ["", *(f"{worker}/" for worker in workers if has_left(worker))]

    def _file(self, mode: ModeKeys) -> EventFile:
        if mode not in self._files:
            self._files[mode] = EventFile(self._storage, f"{self._prefix}{_folder(mode)}")
        return self._files[mode]


def _folder(mode: ModeKeys) -> str:
    return mode.name.lower()


def _events(indexed: IndexedStep, names: Container[str]) -> Iterator[bytes]:
    """Yield the events of rows that are not superseded."""
    scalars = {row: scalar for first, found in indexed.scalars for row, scalar in enumerate(found, first)}
    statistics: dict[int, Mapping[str, float]] = {}
    for kinds, (rows, numbers) in indexed.statistics.items():
        each = iter(numbers)
        statistics |= {row: dict(zip(kinds, each, strict=False)) for row in rows}
    for row in range(len(indexed.specs)) if indexed.last is None else indexed.last:
        # A double represents such a time to a microsecond.
        seconds = round(indexed.saved_at_ns[row] / 1000) / 1e6
        step, name, histogram = indexed.step.mode_step, indexed.specs[row].plan.name, indexed.histograms.get(row)
        yield from events(seconds, step, name, scalars.get(row), statistics.get(row, {}), histogram, names)
