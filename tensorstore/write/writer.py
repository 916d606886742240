"""The background writer: publishes what hooks record, flush by flush."""

from __future__ import annotations

import contextlib
import logging
import struct
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import NamedTuple, Protocol

from ..dtypes import as_scalar, dtype_name, to_bytes
from ..errors import RunTakenOver, StorageError, TensorTrialError
from ..format.checksum import document_bytes
from ..format.chunk_writer import PART_BYTES, ChunkWriter
from ..format.index_types import IndexedStep
from ..format.index_writer import indexed_rows, write_index
from ..format.record import Record, ScalarBatch, Step, TensorSpec, ValueBatch, plan_by_axis
from ..format.schema import (
    FROM_START,
    STEPS_PER_DIRECTORY,
    FirstFlush,
    chunk_path,
    end_path,
    folder_of,
    index_path,
    session_end_path,
)
from ..interrupts import Condition, Event
from ..mode import ModeKeys
from ..statistics.batched import Measuring
from ..statistics.by_axis import axis_within, statistics_by_axis
from ..statistics.digest import digest_of
from ..statistics.histogram import histogram
from ..statistics.sketch import sketch_of
from ..storage.open import Storage, register_flush, translated
from .claim import next_flush
from .close_compaction import SmallIndex
from .lease import Lease
from .progress import Progress
from .supersession import supersede_after

logger = logging.getLogger(__name__)

FLUSH_BYTES = 128 << 20
# Beyond this, training waits, because using the writer's memory again may cost training less than fresh memory. A
# bucket is often as slow as fresh memory, so more may be queued for it.
LOCAL_QUEUE_BYTES = 64 << 20
REMOTE_QUEUE_BYTES = 512 << 20
# Beyond this part of it, training pauses for a moment.
_MUCH = 0.5
_MOMENT_SECONDS = 0.002
_BEHIND_FLUSHES = 5  # training waits for a writer that is so many times `flush_seconds` behind, and so many seconds
# Up to this number, queued bytes may wait for the next flush.
_LITTLE_BYTES = 64 << 10
LOCAL_FLUSH_SECONDS = 1.0
REMOTE_FLUSH_SECONDS = 10.0
_BACKLOG_SECONDS = 0.1

_SCALAR_BYTES = 64


class StepSink(Protocol):
    """Receives what a writer has published, on the writer's thread. It never raises."""

    def write(self, steps: Sequence[IndexedStep]) -> None:
        """Receive published steps."""

    def go_back(self, steps: Mapping[str, int]) -> None:
        """Note that steps from these on, by mode, no longer count."""

    def close(self) -> None:
        """End: no step follows."""


class _Batch(NamedTuple):
    step: Step
    records: Sequence[Record | ScalarBatch | ValueBatch]
    nbytes: int
    closes: bool
    queued_at: float


class _FlushRequest(Event):
    """A request behind the queued records that it covers; set once they are published, or never will be."""

    back_to: Progress | None = None
    """The point from which on all steps are superseded after the flush."""


class _Stop:
    """The last item of a queue."""


class Writer:
    """The writer of the steps of one worker.

    With `is_ordered`, the records of a step come in the order in which the job computed their tensors.

    The training thread calls `put`, which only queues. A thread of the writer computes statistics, encodes and
    publishes.

    A flush happens `flush_seconds` after a step has closed (0: as each step closes), when `flush_bytes` have gathered,
    on `flush()` and on `close()`. Chunks of values are published before the index file that names them, so a reader
    never sees a row whose value is missing. When more than `queue_bytes` wait, or wait too long, `put` waits: memory
    and delay stay bounded and nothing is dropped.

    An error in the thread (a full disk, say) stops the writer for good: `put`, `flush` and `close` raise it. What was
    published before stays readable.
    """

    def __init__(  # noqa: PLR0913 - the only function where all options of a run meet
        self,
        storage: Storage,
        worker: str,
        *,
        codec: str = "none",
        flush_seconds: float | None = None,
        flush_bytes: int = FLUSH_BYTES,
        queue_bytes: int | None = None,
        part_bytes: int = PART_BYTES,
        first_flush: FirstFlush = FROM_START,
        steps_per_directory: int = STEPS_PER_DIRECTORY,
        also_to: StepSink | None = None,
        lease: Lease | None = None,
        is_ordered: bool = False,
    ) -> None:
        self._storage, self._worker, self._codec = storage, worker, codec
        default = LOCAL_FLUSH_SECONDS if storage.is_local else REMOTE_FLUSH_SECONDS
        self._flush_seconds = default if flush_seconds is None else flush_seconds
        self._flush_bytes, self._part_bytes = flush_bytes, part_bytes
        default_bytes = LOCAL_QUEUE_BYTES if storage.is_local else REMOTE_QUEUE_BYTES
        self._queue_bytes = default_bytes if queue_bytes is None else queue_bytes
        self._width = steps_per_directory
        self._also_to, self._lease, self._is_ordered = also_to, lease, is_ordered

        # Owned by the writer's thread.
        self._flush, self._last_index_file, self._last_folder = first_flush
        self._chunks: dict[tuple[ModeKeys, int], tuple[str, ChunkWriter]] = {}
        self._chunk_bytes = 0
        self._open: dict[int, IndexedStep] = {}
        # By global step, because values for a past step join it as long as it is not published.
        self._closed: dict[int, IndexedStep] = {}
        self._num_closed = 0
        self._flush_due: float | None = None
        self._warned_of_axis = False
        self._measuring = Measuring()
        self._small = SmallIndex(storage, worker, codec) if first_flush.number == 0 else None

        # Shared, under the condition's lock.
        # In C: Ctrl-C inside the methods by which a condition enters and leaves a block would leave it locked.
        self._lock = threading.RLock()
        self._changed = Condition(self._lock)
        self._queue: deque[_Batch | _FlushRequest | _Stop] = deque()
        self._queued_bytes, self._is_behind, self._num_waiting = 0, False, 0
        """The bytes in the queue, and the number of threads that wait until there are fewer."""
        self._unpublished_steps = 0
        self._stopping = self._is_closed = False
        self._error: BaseException | None = None

        self._ended = Event()
        """Set at the end of the thread."""
        self._thread = threading.Thread(target=self._run, name=f"tensortrial-writer-{worker}", daemon=True)
        self._thread.start()
        self._written_by = threading.get_ident()
        self._unregister = register_flush(storage.url, self.flush, lambda: self._written_by)

    def put(self, step: Step, records: Sequence[Record | ScalarBatch | ValueBatch], closes: bool = False) -> None:
        """Queue records of `step`; with `closes` they are its last ones. Wait while too much is queued."""
        nbytes = sum(map(_nbytes, records))
        with self._lock:
            self._raise_error()
            # Training goes on at half the writer's speed, without a long pause, until the writer has caught up.
            waits = 2 * self._is_behind
            if waits or self._queued_bytes + nbytes > self._queue_bytes:
                self._changed.notify_all()  # the thread may sleep until its flush is due
            self._num_waiting += 1
            try:
                # One batch always passes, however large.
                while self._queued_bytes and (waits > 0 or self._queued_bytes + nbytes > self._queue_bytes):
                    self._changed.wait()
                    self._raise_error()
                    waits -= 1
            finally:
                self._num_waiting -= 1
            if self._stopping:
                raise ValueError("the writer is closed")
            if closes:
                self._written_by = threading.get_ident()
            self._queue += (_Batch(step, records, nbytes, closes, time.monotonic()),)
            # The step is kept until it is published, and the memory of its records is used again before. No call is
            # between the lines, so Ctrl-C leaves the records either with the step or in the queue.
            step.records = []
            self._queued_bytes += nbytes
            self._unpublished_steps += closes
            # Once a flush is planned, the thread wakes for it: to wake for each number would hold up training.
            if self._flush_due is None or self._queued_bytes > _LITTLE_BYTES or self._num_waiting:
                self._changed.notify_all()
            if self._queued_bytes > _MUCH * self._queue_bytes:
                self._changed.wait(_MOMENT_SECONDS)

    def flush(self, back_to: Progress | None = None) -> None:
        """Publish every closed step, and return when that is done.

        With `back_to`, supersede this worker's steps from there on. No step may be open.
        """
        with self._lock:
            is_done = not self._unpublished_steps and back_to is None
            if is_done or threading.current_thread() is self._thread:
                return
            self._raise_error()
            if self._stopping:
                return
            request = _FlushRequest()
            request.back_to = back_to
            self._queue.append(request)
            self._changed.notify_all()
        request.wait()
        self._raise_error()

    def begin_again(self) -> None:
        """Refer to no published file any more, because the folder of the run was renamed or removed."""
        self._last_index_file, self._small = "", None

    def close(self, failure: str | None = None, steps: int | None = None) -> None:
        """Publish the rest and mark this worker as ended after `steps` steps, early if there is a `failure`."""
        with self._lock:
            if self._is_closed:
                return
            if not self._stopping:
                self._stopping = True
                self._queue.append(_Stop())
                self._changed.notify_all()
        self._unregister()
        self._ended.wait()  # Python takes a thread for ended if Ctrl-C interrupts `join`
        self._thread.join()
        # On a disk that was too full for the values, this may fail as well. The first error is raised.
        with contextlib.suppress(TensorTrialError) if self._error else contextlib.nullcontext():
            self._write_end(failure, steps)
        self._is_closed = True
        self._raise_error()

    def _write_end(self, failure: str | None, steps: int | None) -> None:
        path, session = end_path(self._worker), {}
        if self._lease is not None:
            session = {"session": self._lease.info.session}
            try:
                self._lease.check()
            except RunTakenOver as exc:
                self._error = self._error or exc
                # The run goes on in another process: only this session of the worker has ended.
                path = session_end_path(self._worker, self._lease.info.session)
            except StorageError as exc:
                # Readers see from the session whether the mark is of the newest one.
                logger.debug("cannot check the lease of %s: %s", self._worker, exc)
        error = self._error
        document = {
            "worker": self._worker,
            **session,
            "ended_at": datetime.now(UTC).isoformat(),
            "failure": failure or (None if error is None else f"{type(error).__name__}: {error}"),
            "last_index_file": self._last_index_file,
            "steps": steps,
        }
        try:
            self._storage.replace(path, document_bytes(document))
        finally:
            if self._lease is not None:
                self._lease.release()

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    # The thread.

    def _run(self) -> None:
        try:
            while not isinstance(item := self._next(), _Stop):
                self._handle(item)
            self._publish()
            if self._small is not None:
                self._small.compact()
        except BaseException as exc:  # noqa: BLE001 - kept, and raised by the next call
            self._fail(exc)
        finally:
            self._ended.set()
            if self._also_to is not None:
                self._also_to.close()

    def _next(self) -> _Batch | _FlushRequest | _Stop | None:
        """Return the next item of the queue; None if a flush is due before one comes."""
        with self._lock:
            while not self._queue:
                timeout = None if self._flush_due is None else self._flush_due - time.monotonic()
                if timeout is not None and timeout <= 0:
                    return None
                self._changed.wait(timeout)
            return self._queue.popleft()

    def _handle(self, item: _Batch | _FlushRequest | None) -> None:
        if isinstance(item, _FlushRequest):
            try:
                self._publish()
                if item.back_to is not None:
                    self._supersede(item.back_to)
            except BaseException as exc:
                self._error = exc  # before the caller wakes, which learns of the failure only here
                raise
            finally:
                item.set()
            return
        if item is not None:
            self._write(item)
            with self._lock:
                self._queued_bytes -= item.nbytes
                late_at = item.queued_at + _BEHIND_FLUSHES * max(1.0, self._flush_seconds)
                self._is_behind = bool(self._queue) and time.monotonic() > late_at
                self._changed.notify_all()
        # With more steps waiting already, a flush for each would let the writer fall behind further and further.
        delay = _BACKLOG_SECONDS if self._queue else 0.0
        if self._flush_due is not None and time.monotonic() >= self._flush_due + delay:
            self._publish()

    def _write(self, batch: _Batch) -> None:
        step = batch.step
        indexed = self._open.get(step.global_step)
        if indexed is None:
            indexed = self._closed.get(step.global_step) or IndexedStep(step, self._is_ordered)
            self._open[step.global_step] = indexed
        for record in batch.records:
            if isinstance(record, ScalarBatch):
                specs = [plan.spec("float64", (), 8) for plan in record.plans]
                first = indexed.add(specs, record.saved_at_ns)
                indexed.scalars.append((first, record.values))
                indexed.digests += _digests_of_scalars(first, specs, record.values)
            elif isinstance(record, ValueBatch):
                self._write_batch(indexed, record)
            else:
                self._write_record(indexed, record)
            if self._chunk_bytes >= self._flush_bytes:
                self._publish()
        if batch.closes:
            self._close_step(step.global_step)

    def _close_step(self, global_step: int) -> None:
        indexed = self._open.pop(global_step)
        indexed.close()
        self._closed[global_step] = indexed
        self._num_closed += 1
        if self._flush_due is None:
            self._flush_due = time.monotonic() + self._flush_seconds

    def _write_batch(self, indexed: IndexedStep, batch: ValueBatch) -> None:
        path, chunk = self._chunk(indexed.step)
        digests = list[int]()
        first = indexed.add(batch.specs, batch.saved_at_ns)
        indexed.spans.append((first, path, chunk.append_batch(indexed.step, batch, digests)))
        indexed.digests.append((first, digests))
        self._chunk_bytes += batch.nbytes

    def _write_record(self, indexed: IndexedStep, record: Record) -> None:
        if record.ready is not None:
            record.ready()
        plan, value = record.plan, record.value
        if isinstance(value, float):
            spec = plan.spec("float64", (), 8)
            row = indexed.add([spec], [record.saved_at_ns])
            self._write_by_axis(indexed, record, ())
            indexed.scalars.append((row, [value]))
            indexed.digests += _digests_of_scalars(row, [spec], [value])
            return
        shape = value.shape if record.shape is None else record.shape
        spec = plan.spec(record.dtype or dtype_name(value.dtype), shape, value.nbytes)
        row = indexed.add([spec], [record.saved_at_ns])
        if record.statistics is not None:
            indexed.add_statistics(row, tuple(record.statistics), record.statistics.values())
        elif plan.statistics:
            # Without an owner nothing reuses its memory, so it can wait.
            self._measuring.add(value, plan.statistics, partial(indexed.add_statistics, row), record.owner is None)
        self._write_by_axis(indexed, record, shape)
        counted = histogram(value) if plan.histogram else record.histogram
        if counted is not None:
            indexed.histograms[row] = counted
        if plan.sketch and (sketch := sketch_of(value)) is not None:
            indexed.sketches[row] = sketch
        scalar = as_scalar(value) if plan.raw else None
        if plan.raw and scalar is None:
            path, chunk = self._chunk(indexed.step)
            digests = list[int]()
            indexed.spans.append((row, path, chunk.append(indexed.step, record, spec, digests)))
            indexed.digests.append((row, digests))
            self._chunk_bytes += value.nbytes
            return
        if plan.digest:
            indexed.digests.append((row, [digest_of(to_bytes(value), spec.digest_header)]))
        if scalar is not None:
            indexed.scalars.append((row, [scalar]))
        record.release()

    def _write_by_axis(self, indexed: IndexedStep, record: Record, shape: tuple[int, ...]) -> None:
        """Write each statistic along an axis as a tensor of its own."""
        for number, names in record.plan.by_axis:
            axis = axis_within(number, shape)
            if axis is None:
                self._warn_of_axis(record.plan.name, number, shape)
                continue
            assert not isinstance(record.value, float)
            known = record.by_axis
            found = statistics_by_axis(record.value, names, axis) if known is None else known[number]
            for name, values in found.items():
                plan = plan_by_axis(record.plan.name, name, axis)
                self._write_record(indexed, Record(plan, values, record.saved_at_ns))

    def _warn_of_axis(self, name: str, axis: int, shape: tuple[int, ...]) -> None:
        if not self._warned_of_axis:
            self._warned_of_axis = True
            logger.warning(
                "tensor %r of shape %s has no axis %d: of it, and of others without that axis, only the statistics of "
                "the whole are saved",
                name,
                shape,
                axis,
            )

    def _chunk(self, step: Step) -> tuple[str, ChunkWriter]:
        """Return the path of the open chunk for the values of a step, and its writer."""
        key = step.mode, step.mode_step // self._width
        found = self._chunks.get(key)
        if found is None:
            path = chunk_path(step.mode.name, step.mode_step, self._worker, self._flush, self._width)
            chunk = ChunkWriter(self._storage.sink(path), path, self._worker, self._codec, self._part_bytes)
            found = self._chunks[key] = path, chunk
        return found

    def _publish(self) -> None:
        """Publish the values gathered so far, then the rows of the closed steps.

        The values may include some of a step that is still open. Its rows follow once it has closed.
        """
        with contextlib.nullcontext() if self._lease is None else self._lease.writing():
            self._publish_all()

    def _supersede(self, back_to: Progress) -> None:
        with contextlib.nullcontext() if self._lease is None else self._lease.writing():
            supersede_after(self._storage, self._worker, back_to.global_step, self._flush)
            self._flush, self._last_index_file, self._last_folder = next_flush(self._storage, self._worker)
        self._small = None
        if self._also_to is not None:
            self._also_to.go_back(back_to.mode_steps)

    def _publish_all(self) -> None:
        self._measuring.finish()
        for key, (_, chunk) in list(self._chunks.items()):
            chunk.finish()
            chunk.publish()
            del self._chunks[key]
        self._chunk_bytes = 0
        if self._closed:
            self._publish_index()
        self._flush += 1

    def _publish_index(self) -> None:
        steps = [indexed for _, indexed in sorted(self._closed.items())]
        path = index_path(self._worker, steps[0].step.global_step, self._flush, self._width)
        # Paths grow even for values of past steps, because readers look for new files after the known ones.
        path = max(path, f"{self._last_folder}/{path.rpartition('/')[2]}")
        sink = self._storage.sink(path)
        try:
            with translated(path, "write"):
                write_index(sink, *indexed_rows(self._worker, steps, self._last_index_file))
            if self._lease is not None:
                self._lease.check()  # publishing the values may have taken longer than the lease
            sink.publish()
        except BaseException:
            sink.abort()
            raise
        if self._small is not None and not self._small.add(path, steps, self._last_index_file):
            self._small = None
        self._last_index_file, self._last_folder = path, folder_of(path)
        if self._also_to is not None:
            self._also_to.write(steps)
        self._closed, self._flush_due = {}, None
        with self._lock:
            self._unpublished_steps -= self._num_closed
        self._num_closed = 0

    def _fail(self, exc: BaseException) -> None:
        for _, chunk in self._chunks.values():
            chunk.abort()
        self._chunks.clear()
        with self._lock:
            self._error = exc
            for item in self._queue:
                if isinstance(item, _FlushRequest):
                    item.set()
            self._queue.clear()
            self._queued_bytes = 0
            self._changed.notify_all()


def _digests_of_scalars(
    first: int, specs: Sequence[TensorSpec], values: Sequence[float]
) -> list[tuple[int, Sequence[int]]]:
    """Return the digests that the plans ask for, each with its row; `first` is the first row of the scalars."""
    return [
        (row, [digest_of(struct.pack("<d", value), spec.digest_header)])
        for row, (spec, value) in enumerate(zip(specs, values, strict=True), first)
        if spec.plan.digest
    ]


def _nbytes(record: Record | ScalarBatch | ValueBatch) -> int:
    if isinstance(record, Record):
        return _SCALAR_BYTES if isinstance(record.value, float) else record.value.nbytes + _SCALAR_BYTES
    if isinstance(record, ValueBatch):
        return _SCALAR_BYTES * len(record.specs) + record.nbytes
    return _SCALAR_BYTES * len(record.plans)
