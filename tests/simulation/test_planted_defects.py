"""The simulation finds defects: each of these, planted into the project, makes some history fail."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from simulation.actors import Training
from simulation.disk import Disk
from simulation.faults import FaultAt, NoFaults, faults_at
from simulation.histories import Operator, Story, compacted, overtaken, run, shortest, unflushed
from tensortrial.maintenance import compaction
from tensortrial.read.run_queries import QuerySources
from tensortrial.snapshot import index_files, snapshot
from tensortrial.snapshot.manifest import Manifest
from tensortrial.write import claim, lease, progress, writer

pytestmark = pytest.mark.slow

Put = Callable[[Any, str, Any], None]


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("TENSORTRIAL_STRICT", raising=False)  # a hook that fails is turned off here
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture
def put(monkeypatch: pytest.MonkeyPatch) -> Put:
    return lambda owner, name, value: monkeypatch.setattr(owner, name, value)


def finds(story: Story, is_local: bool, kinds: str = "", seeds: Sequence[int] = (1,)) -> bool:
    """Return whether a short history fails: undisturbed, or with a fault of some kinds at one of its calls."""
    return any(_finds(story, is_local, kinds.split(), seed) for seed in seeds)


def _finds(story: Story, is_local: bool, kinds: Sequence[str], seed: int) -> bool:
    _, outcome, error = run(seed, is_local, NoFaults(), story)
    faults = (
        FaultAt(number, fault)
        for number in _spread(outcome.calls)
        for fault in faults_at(number, is_local)
        if fault.kind in kinds
    )
    return error is not None or any(run(seed, is_local, fault, story)[2] for fault in faults)


def _spread(count: int) -> list[int]:
    """Return the numbers below `count`, far from those before: a defect shows at several calls after one another."""
    golden = (math.sqrt(5) - 1) / 2
    return list(dict.fromkeys([*(int(count * (index * golden % 1)) for index in range(1, count)), *range(count)]))


def test_an_index_file_that_is_published_before_its_values(put: Put) -> None:
    def publish_all(self: Any) -> None:
        for _, chunk in self._chunks.values():
            chunk.finish()
        if self._closed:
            self._publish_index()
        for _, chunk in self._chunks.values():
            chunk.publish()
        self._chunks.clear()
        self._chunk_bytes = 0
        self._flush += 1

    put(writer.Writer, "_publish_all", publish_all)
    assert finds(shortest, is_local=False, kinds="crash")


def test_files_that_are_deleted_before_the_compacted_one_is_published(put: Put) -> None:
    publish = compaction._Compactor._publish

    def delete_and_publish(self: Any, target: str, group: Any, chunks: Any) -> None:
        for file in group:
            self._storage.remove(file.path)
        publish(self, target, group, chunks)

    put(compaction._Compactor, "_publish", delete_and_publish)
    assert finds(compacted, is_local=False, kinds="crash")


def test_a_compacted_file_that_is_not_synced_before_others_are_deleted(put: Put) -> None:
    put(Disk, "sync", lambda *_: None)
    assert finds(compacted, is_local=True, kinds="cut")


def test_an_end_mark_that_is_written_before_the_last_steps(put: Put) -> None:
    close = writer.Writer.close

    def mark_and_close(self: Any, failure: str | None = None) -> None:
        if not self._stopping:
            self._write_end(failure)
        close(self, failure)

    put(writer.Writer, "close", mark_and_close)
    assert finds(unflushed, is_local=False, kinds="crash")


def test_a_flush_that_returns_before_it_has_published(put: Put) -> None:
    put(writer.Writer, "flush", lambda self: None)
    assert finds(shortest, is_local=False, kinds="crash")


def test_a_flush_that_hides_its_error(put: Put) -> None:
    put(writer.Writer, "_raise_error", lambda self: None)
    assert finds(shortest, is_local=True, kinds="error")


def test_a_resumed_session_that_saves_a_step_again(put: Put) -> None:
    after = claim.after

    def one_before(steps: Any) -> progress.Progress:
        found = after(steps)
        return progress.Progress(found.session, max(0, found.global_step - 1), found.mode_steps)

    put(claim, "after", one_before)
    assert finds(shortest, is_local=False)


def test_a_reader_that_reads_superseded_files_too(put: Put) -> None:
    put(index_files, "current_files", sorted)
    put(index_files._Reading, "_take", _take_without_replacing)
    assert finds(gone_back, is_local=False)


def gone_back(operator: Operator) -> None:
    """A worker resumes a run at an earlier step, and saves fewer steps than before."""
    training = Training(steps=5, flush_every=1, flush_seconds=0.0)
    operator.wait_for(operator.worker(training))
    operator.wait_for(operator.worker(replace(training, steps=1, resume=True, resume_at=1)))
    operator.finish()


def _take_without_replacing(self: Any, path: str, size: int, summary: Any) -> None:
    folder = index_files.folder_of(path)
    self._held[folder] = {**self._held.get(folder, {}), path: index_files.flush_range_of(path)}
    self._found.append(index_files.IndexFile(self._worker, path, summary, size=size))


def test_a_snapshot_that_loses_a_file(put: Put) -> None:
    read = snapshot.read_index

    def without_first(source: Any, worker: str, since: Any = None, **options: Any) -> tuple[Any, Any]:
        index, files = read(source, worker, since, **options)
        return index, files[1:] if len(files) > 1 else files

    put(snapshot, "read_index", without_first)
    assert finds(shortest, is_local=False)


def test_a_refresh_that_loses_a_file(put: Put) -> None:
    read = snapshot.read_index

    def without_last(source: Any, worker: str, since: Any = None, **options: Any) -> tuple[Any, Any]:
        index, files = read(source, worker, since, **options)
        return index, files[:-1] if since is not None else files

    put(snapshot, "read_index", without_last)
    assert finds(followed, is_local=False)


def test_a_reader_that_looks_for_no_session_after_the_run_was_closed(put: Put) -> None:
    put(snapshot.Snapshot, "is_closed", lambda self, source: self.workers.job_ended)
    assert finds(followed_and_resumed, is_local=False)


def followed_and_resumed(operator: Operator) -> None:
    """A worker trains, and resumes the run after it was closed, while another process follows it."""
    training = Training(steps=2, flush_every=1, flush_seconds=0.0)
    reader = operator.reader(looks=12, pause_seconds=3.0)
    operator.wait_for(operator.worker(training))
    operator.wait_for(operator.reader(looks=4, pause_seconds=3.0))
    operator.wait_for(operator.worker(replace(training, resume=True, pause_seconds=8.0)), reader)
    operator.finish()


def followed(operator: Operator) -> None:
    """A worker trains, and a process that follows it sees all that was published."""
    worker = operator.worker(Training(steps=6, flush_every=1, flush_seconds=0.0, pause_seconds=2.0))
    operator.wait_for(operator.reader(looks=8, pause_seconds=3.0), worker)
    operator.finish()


def test_sql_that_returns_rows_which_were_saved_again(put: Put) -> None:
    put(QuerySources, "rows_left_out", lambda self: {})
    put(lease.Lease, "check", lambda self, at_once=False: None)  # the process that was taken over goes on
    assert finds_sql(overtaken, range(40))


def finds_sql(story: Story, seeds: Sequence[int]) -> bool:
    """Return whether SQL has rows that the methods of a trial lack, in a history."""
    return any("SQL returns the rows" in str(run(seed, True, NoFaults(), story)[2]) for seed in seeds)


def test_a_manifest_that_is_taken_as_current_after_a_later_session(put: Put) -> None:
    put(Manifest, "is_current", lambda *_: True)
    put(claim, "MANIFEST", "another.parquet")  # the session leaves it there
    assert finds(resumed, is_local=False)


def test_a_manifest_that_names_files_which_a_later_session_has_superseded(put: Put) -> None:
    put(Manifest, "is_current", lambda *_: True)
    put(claim, "MANIFEST", "another.parquet")
    assert finds(gone_back_and_killed, is_local=False)


def gone_back_and_killed(operator: Operator) -> None:
    """A worker resumes a run at an earlier step, and is killed: no other manifest is written."""
    training = Training(steps=5, flush_every=1, flush_seconds=0.0)
    operator.wait_for(operator.worker(training))
    operator.wait_for(operator.worker(replace(training, steps=2, resume=True, resume_at=1, end="kill")))
    operator.finish()


def resumed(operator: Operator) -> None:
    """A worker resumes a run that has ended, and is killed."""
    training = Training(steps=2, flush_every=1, flush_seconds=0.0)
    operator.wait_for(operator.worker(training))
    operator.wait_for(operator.worker(replace(training, resume=True, end="kill")))
    operator.finish()


def test_a_process_that_goes_on_after_another_has_taken_the_run_over(put: Put) -> None:
    put(lease.Lease, "check", lambda self, at_once=False: None)
    assert finds(overtaken, is_local=True, seeds=range(20))
