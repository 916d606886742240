"""The import of TensorBoard's event files, without TensorFlow.

from tensortrial.importers.tensorboard import import_runs

import_runs("logs", "runs/logs")
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from ...config.metadata import checked_metadata
from ...dtypes import dtype_name
from ...errors import ConfigurationError, CorruptFile, UnsupportedValue
from ...format.record import Plan, Record, ScalarBatch, Step, ValueBatch
from ...format.schema import UNKNOWN_DTYPE, UNKNOWN_SHAPE, RunInfo
from ...mode import ModeKeys
from ...progress import progress_bar
from ...storage.open import Storage
from ...write.writer import Writer
from ..metrics import Report, log
from ..modes import MODES
from ..numbers import Numbers, publish_numbers
from ..sources import folders_of_runs, open_target, url_of
from ..target import (
    WORKER,
    Begin,
    Found,
    begin_of,
    begun,
    claim_target,
    collection_of,
    run_info,
    writing,
)
from .columns import Columns, EventReader
from .event_runs import EventRun, find_runs
from .values import Kind, histogram_of, tensor_of

_BATCH = 20_000
"""The number of values that are passed to the writer at once."""
_BATCH_LOCATIONS = 2_000
_NOTHING = np.empty(0, np.uint8)


def import_runs(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    metadata: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    progress: bool = True,
    report: Report = log,
) -> list[str]:
    """Import the event files in `source`, a folder tree or one file.

    A folder with event files is a run, together with those of its folders that are called train, validation, eval,
    test, predict and the like, which are its modes. The run of `source` itself goes to `target`, a run in a folder
    below it to the same folder below `target`. If there are both, the run of `source` goes to a folder of its name.

    Scalars, histograms, texts and tensors of numbers are kept, with their times; hyperparameters become metadata of the
    run. TensorBoard's step is the step in the mode; the global step counts through the modes of a step, and is the same
    if there is one mode only. Images, audio, graphs and other values that cannot be kept are counted and reported, and
    so are unreadable records, such as the incomplete end of a killed job.

    Calling it again continues an interrupted import, or adds what is new.

    Args:
        source: A folder or a file, as a path or a URL.
        target: Where the runs go.
        metadata: Metadata of the runs, in addition to their hyperparameters.
        storage_options: The options of the storage of source and target.
        progress: Show a progress bar on a terminal.
        report: Receives a sentence about each thing that was left out. By default it is logged.

    Returns:
        The paths of the imported runs.

    Raises:
        RunNotFound: The source is missing.
        RunExists: A target holds another run.
        CorruptFile: The source has nothing that could be imported.
        ConfigurationError: The source has a mode that it did not have at the first import.
    """
    storage, runs = find_runs(source, storage_options)
    folders = folders_of_runs([run.name for run in runs], storage.url)
    targets = [open_target(target, folders[run.name], storage_options) for run in runs]
    made = [
        _import_run(storage, run, each, checked_metadata(metadata), progress, report)
        for run, each in zip(runs, targets, strict=True)
    ]
    if not any(made):
        raise CorruptFile(storage.url, "its event files have nothing that could be imported")
    return [url for url in made if url]


def _import_run(
    storage: Storage, run: EventRun, target: Storage, metadata: Mapping[str, Any], progress: bool, report: Report
) -> str | None:
    """Import one run and return its URL; None if it has nothing that could be imported."""
    source = url_of(storage, run.name)
    if source == target.url:
        raise ConfigurationError(f"{source} cannot be imported into itself: choose another target")
    earlier = begun(target, source)
    reader = _read(storage, run, progress)
    for sentence in reader.damage:
        report(sentence)
    if reader.left_out:
        report(f"{source}: " + ", ".join(f"{count} {what}" for what, count in sorted(reader.left_out.items())))
    if not reader.names and not reader.hyperparameters and earlier is None:
        report(f"{source}: its event files have nothing that could be imported")
        return None
    _Import(reader, run, target, report, earlier).run(source, metadata, progress)
    return target.url


def _read(storage: Storage, run: EventRun, progress: bool) -> EventReader:
    reader = EventReader(storage)
    size = sum(storage.read_tail(path, 0)[1] for folder in run.folders for path in folder.files)
    with progress_bar(size, progress, f"read {run.name}", "B") as advance:
        for folder in run.folders:
            for path in folder.files:
                reader.read(path, folder.mode, folder.prefix, advance)
    return reader


class _Import:
    """The import of one run."""

    def __init__(
        self, reader: EventReader, run: EventRun, target: Storage, report: Report, earlier: RunInfo | None
    ) -> None:
        self._reader, self._target, self._report, self._earlier = reader, target, report, earlier
        self._modes = _modes(run, earlier, target)
        self._plans = [_plan(name, kind) for name, kind in zip(reader.names, reader.kinds, strict=True)]

    def run(self, source: str, metadata: Mapping[str, Any], progress: bool) -> None:
        columns = self._reader.columns()
        global_step = self._global_steps(columns)
        begin = Begin(0) if self._earlier is None else self._begin(columns, global_step)
        first = int(np.searchsorted(global_step, begin.step))
        modes = [mode.name for mode in self._modes]
        about = {**checked_metadata(self._reader.hyperparameters), **metadata, MODES: modes}
        run = run_info(source, "tensorboard", columns.saved_at, about)
        is_complete = first == len(global_step) and not begin.goes_back
        first_flush = claim_target(self._target, run, self._earlier, begin, self._plans, is_complete, self._report)
        if first_flush is None:
            return
        with progress_bar(len(global_step) - first, progress, "import", "value") as advance:
            if columns.location[first:].max(initial=-1) < 0:
                rows = Numbers(
                    columns.name, columns.mode, columns.step, global_step, columns.saved_at, columns.number
                ).part(slice(first, None))
                first_flush = publish_numbers(self._target, WORKER, first_flush, self._plans, rows, advance)
                first = len(global_step)
            with writing(self._target, WORKER, first_flush) as writer:
                for start, end in _batches(global_step, columns, first):
                    self._write(writer, columns, global_step, start, end)
                    advance(end - start)
                writer.close(self._failure())

    def _begin(self, columns: Columns, global_step: Any) -> Begin:
        """Return the step from which the run and the source differ."""

        def can_keep(row: int) -> bool:
            location = int(columns.location[row])
            if location < 0:
                return True
            (event,) = self._reader.fetch([location])
            plan = self._plans[int(columns.name[row])]
            return self._larger(plan, 0, location, event, report=lambda sentence: None) is not None

        withdrawn = self._reader.withdrawn()
        now, before = self._found(columns, global_step), self._found(withdrawn, self._global_steps(withdrawn))
        return begin_of(self._target, now, self._report, can_keep, before)

    def _found(self, columns: Columns, global_step: Any) -> Found:
        is_number = columns.location < 0
        return Found(self._reader.names, columns.name, global_step, columns.number, is_number, columns.saved_at)

    def _failure(self) -> str | None:
        damage = self._reader.damage
        return f"{len(damage)} events of the source could not be read: {damage[0]}" if damage else None

    def _global_steps(self, columns: Columns) -> Any:
        """Return the global steps, which count through the modes of a step."""
        rank = np.zeros(1 + max(mode.value for mode in ModeKeys), np.int64)
        rank[[mode.value for mode in self._modes]] = np.arange(len(self._modes))
        return columns.step * len(self._modes) + rank[columns.mode]

    def _write(self, writer: Writer, columns: Columns, global_step: Any, start: int, end: int) -> None:
        """Pass the values from `start` to `end`, which are whole steps, to the writer."""
        locations = columns.location[start:end].tolist()
        plans = [self._plans[name] for name in columns.name[start:end].tolist()]
        saved_at, numbers = columns.saved_at[start:end].tolist(), columns.number[start:end].tolist()
        large = [location for location in locations if location >= 0]
        events = dict(zip(large, self._reader.fetch(large), strict=True))
        steps = global_step[start:end]
        bounds = np.flatnonzero(np.diff(steps, prepend=-1, append=-1)).tolist()
        for first, last in pairwise(bounds):
            row = start + first
            step = Step(ModeKeys(int(columns.mode[row])), int(columns.step[row]), int(steps[first]))
            records: list[Record | ScalarBatch | ValueBatch] = []
            if max(locations[first:last]) < 0:
                records.append(ScalarBatch(plans[first:last], numbers[first:last], saved_at[first:last]))
            else:
                records += self._records(range(first, last), plans, numbers, saved_at, locations, events)
            writer.put(step, records, closes=True)

    def _records(
        self,
        rows: range,
        plans: Sequence[Plan],
        numbers: Sequence[float],
        saved_at: Sequence[int],
        locations: Sequence[int],
        events: Mapping[int, bytes | bytearray],
    ) -> Iterator[Record | ScalarBatch]:
        """Yield the records of a step that has values other than numbers."""
        for row in rows:
            if locations[row] < 0:
                continue
            event = events[locations[row]]
            if (record := self._larger(plans[row], saved_at[row], locations[row], event, self._report)) is not None:
                yield record
        if small := [row for row in rows if locations[row] < 0]:
            yield ScalarBatch(
                [plans[row] for row in small], [numbers[row] for row in small], [saved_at[row] for row in small]
            )

    def _larger(
        self, plan: Plan, saved_at: int, location: int, event: bytes | bytearray, report: Report
    ) -> Record | None:
        try:
            value = self._reader.value_at(location, event)
            if plan.raw:
                array = tensor_of(value)
                dtype_name(array.dtype)  # raises an error for a dtype that a run cannot hold
                return Record(plan, array, saved_at)
            histogram = histogram_of(value)
        except (ValueError, TypeError, IndexError, UnsupportedValue) as exc:
            report(f"{plan.name!r}, at byte {self._reader.locations[location].record.start}: {exc}")
            return None
        if histogram is None:
            return None
        drawn = histogram.edges, histogram.counts
        return Record(plan, _NOTHING, saved_at, histogram.statistics, UNKNOWN_DTYPE, UNKNOWN_SHAPE, histogram=drawn)


def _plan(name: str, kind: Kind) -> Plan:
    return Plan(name, (collection_of(name),) if kind is Kind.NUMBER else (), raw=kind is Kind.TENSOR)


def _modes(run: EventRun, earlier: RunInfo | None, target: Storage) -> list[ModeKeys]:
    """Return the modes that global steps count through: the modes of the first import of the run."""
    if earlier is None:
        return run.modes
    began = [ModeKeys.parse(name) for name in earlier.metadata.get(MODES, [])]
    new = [mode.name for mode in run.modes if mode not in began]
    if new:
        raise ConfigurationError(
            f"{target.url} was imported when the source had no steps of {', '.join(new)}, which its global steps "
            "do not count: choose another target"
        )
    return began


def _batches(global_step: Any, columns: Columns, begin: int) -> Iterator[tuple[int, int]]:
    """Yield the first and last index of each batch of whole steps."""
    if begin == len(global_step):
        return
    firsts = np.flatnonzero(np.diff(global_step, prepend=-1))
    firsts = firsts[firsts >= begin]
    # The cost of a value that must be fetched: a batch is full after _BATCH_LOCATIONS of them.
    weight = np.cumsum(np.where(columns.location >= 0, _BATCH // _BATCH_LOCATIONS, 1))
    batch = (weight[firsts] - weight[begin]) // _BATCH
    starts = firsts[np.flatnonzero(np.diff(batch, prepend=-1))].tolist()
    yield from zip(starts, [*starts[1:], len(global_step)], strict=True)
