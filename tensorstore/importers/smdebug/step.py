"""The import of one step of one worker."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np

from ...dtypes import Array
from ...errors import CorruptFile, UnsupportedValue
from ...format.record import Plan, Record, Step
from ...format.schema import UNKNOWN_DTYPE, UNKNOWN_SHAPE
from ...mode import ModeKeys
from ...storage.open import ByteRange, Storage
from ...tfevents.tensor_proto import tensor
from ...tfevents.tfrecord import BLOCK, DamagedRecord, records
from ...write.writer import Writer
from .event import SavedTensor, saved_tensors
from .run import Report, StepFiles, StepIndex, WorkerCollections, parse_index, parse_reduction

_BATCH_BYTES = 1 << 20
_AHEAD = 8
"""The number of steps that are fetched ahead from an object store, where most of the time is latency."""
_NOTHING = np.empty(0, np.uint8)


@dataclass(slots=True)
class OpenStep:
    """A step with its index and its first block of events, which have been read."""

    storage: Storage
    files: StepFiles
    index: bytes | None = None
    block: bytes | bytearray | None = None

    @classmethod
    def open(cls, storage: Storage, files: StepFiles) -> OpenStep:
        """Read the index and the first block of events of a step."""
        step = cls(storage, files)
        if files.index is not None:
            step.index = storage.read(files.index)
        if files.events is not None:
            step.block = step.read_events(0, BLOCK)
        return step

    def read_events(self, start: int, length: int) -> bytes | bytearray:
        """Return a part of the event file, as `tfrecord.records` reads it."""
        if self.files.events is None:
            return b""
        if start == 0 and length == BLOCK and self.block is not None:
            block, self.block = self.block, None  # released, because it is needed once
            return block
        return self.storage.read_ranges([ByteRange(self.files.events, start, length)])[0]

    def began_at(self) -> int:
        """Return the time of the first saved tensor, in nanoseconds since 1970; 0 if unknown."""
        try:
            _, record = next(records(self.read_events))
            return 0 if isinstance(record, DamagedRecord) else next(saved_tensors(record)).saved_at
        except (ValueError, StopIteration):
            return 0


def opened_steps(storage: Storage, steps: Sequence[StepFiles]) -> Iterator[OpenStep]:
    """Open the steps, and yield them in their order. In an object store a few are opened ahead."""
    if storage.is_local:
        for files in steps:
            yield OpenStep.open(storage, files)
        return
    with ThreadPoolExecutor(_AHEAD) as pool:
        coming: deque[Future[OpenStep]] = deque()
        for files in steps:
            coming.append(pool.submit(OpenStep.open, storage, files))
            if len(coming) >= _AHEAD:
                yield coming.popleft().result()
        while coming:
            yield coming.popleft().result()


class Plans:
    """The plans of tensors. Steps at which a tensor has the same parts share one plan."""

    def __init__(self, collections: WorkerCollections) -> None:
        self._collections = collections
        self._plans: dict[tuple[str, bool, tuple[str, ...]], Plan] = {}
        self._tensors: dict[str, tuple[str, str | None]] = {}

    def plan(self, name: str, raw: bool, statistics: tuple[str, ...]) -> Plan:
        """Return the plan of a tensor. Raises UnsupportedValue for a name that cannot be stored."""
        key = (name, raw, statistics)
        if key not in self._plans:
            self._plans[key] = Plan(name, self._collections.of(name), raw, statistics)
        return self._plans[key]

    def tensor_of(self, stored_name: str) -> tuple[str, str | None]:
        """Return the tensor of a stored name, and the statistic that is stored, or None for the value itself."""
        if stored_name not in self._tensors:
            self._tensors[stored_name] = self._tensor_of(stored_name)
        return self._tensors[stored_name]

    def _tensor_of(self, stored_name: str) -> tuple[str, str | None]:
        reduction = parse_reduction(stored_name)
        if reduction is None:
            return stored_name, None
        statistic, name = reduction
        return self.full_name(name), statistic

    def full_name(self, name: str) -> str:
        """Return the name in the collections: the reductions of TensorFlow's `w:0` may be stored as those of `w`."""
        is_cut = not self._collections.has(name) and self._collections.has(f"{name}:0")
        return f"{name}:0" if is_cut else name


@dataclass(slots=True)
class _Tensor:
    """The parts of one tensor of the step that have been read."""

    value: Array | None = None
    shape: tuple[int, ...] | None = None
    statistics: dict[str, float] = field(default_factory=dict)
    saved_at: int = 0


class StepImport:
    """The import of one step. Each tensor is passed to the writer as soon as all its parts have been read."""

    def __init__(self, opened: OpenStep, plans: Plans, writer: Writer, report: Report) -> None:
        self._opened, self._plans, self._writer, self._report = opened, plans, writer, report
        self._index = self._parse_index()
        names = self._index.names.values() if self._index else ()
        self._to_come = Counter(plans.tensor_of(name)[0] for name in names)
        self._step = self._step_of(self._index.mode, self._index.mode_step) if self._index else None
        shapes = self._index.shapes if self._index else {}
        self._tensors = {plans.full_name(name): _Tensor(shape=shape) for name, shape in shapes.items()}
        self._ready: list[Record] = []
        self._ready_bytes = 0
        self._is_begun = False

    def run(self) -> None:
        """Import the step."""
        self._read_events()
        for name in list(self._tensors):
            self._finish(name)
        if self._ready or self._is_begun:
            self._send(closes=True)

    def _parse_index(self) -> StepIndex | None:
        """Return the index, or None if it is missing or damaged, because the events name their tensors, too."""
        path, data = self._opened.files.index, self._opened.index
        if path is None or data is None:
            return None
        try:
            return parse_index(data)
        except ValueError as exc:
            self._report(CorruptFile(path, f"this is not the index of a step: {exc}"))
            return None

    def _step_of(self, mode: ModeKeys, mode_step: int) -> Step:
        return Step(mode, mode_step, self._opened.files.global_step)

    def _read_events(self) -> None:
        names = dict(self._index.names) if self._index else {}
        for position, record in records(self._opened.read_events, list(names)):
            name = names.pop(position, None)
            if isinstance(record, DamagedRecord):
                self._report_record(position, name, record)
                continue
            try:
                for saved in saved_tensors(record):
                    self._take(name or saved.name, saved)
            except (ValueError, TypeError) as exc:
                self._report_record(position, name, exc)
        if names:
            path = self._opened.files.events or self._opened.files.index or ""
            some = ", ".join(map(repr, list(names.values())[:3]))
            self._report(CorruptFile(path, f"{len(names)} tensors that the index names are missing: {some}"))

    def _report_record(self, position: int, name: str | None, exc: Exception) -> None:
        what = f"{name!r}, " if name else ""
        self._report(CorruptFile(self._opened.files.events or "", f"{what}the record at byte {position}: {exc}"))

    def _take(self, stored_name: str, saved: SavedTensor) -> None:
        name, statistic = self._plans.tensor_of(stored_name)
        value = tensor(saved.proto)
        found = self._tensors.setdefault(name, _Tensor())
        found.saved_at = saved.saved_at
        if statistic is None:
            found.value = value
        else:
            found.statistics[statistic] = float(value.item())
        if self._step is None:
            self._step = self._step_of(*(saved.step() or (ModeKeys.GLOBAL, self._opened.files.global_step)))
        self._to_come[name] -= 1
        if self._to_come[name] == 0:
            self._finish(name)

    def _finish(self, name: str) -> None:
        found = self._tensors.pop(name)
        raw, shape = found.value is not None, UNKNOWN_SHAPE if found.shape is None else found.shape
        if not raw and not found.statistics and found.shape is None:
            return
        try:
            plan = self._plans.plan(name, raw, tuple(found.statistics))
        except UnsupportedValue as exc:
            self._report(CorruptFile(self._opened.files.index or self._opened.files.events or "", str(exc)))
            return
        if found.value is None:
            record = Record(plan, _NOTHING, found.saved_at, found.statistics or None, UNKNOWN_DTYPE, shape)
        else:
            record = Record(plan, found.value, found.saved_at, found.statistics or None)
            self._ready_bytes += found.value.nbytes
        self._ready.append(record)
        if self._ready_bytes >= _BATCH_BYTES:
            self._send(closes=False)

    def _send(self, closes: bool) -> None:
        if self._step is None:
            # Only shapes were saved. The index has their step.
            return
        self._writer.put(self._step, self._ready, closes)
        self._ready, self._ready_bytes, self._is_begun = [], 0, True
