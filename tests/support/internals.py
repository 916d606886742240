"""What tests, and the model of the simulation, ask of the product that no public function answers.

Only this file knows where the product keeps it.
"""

from __future__ import annotations

from tensortrial.format.schema import WorkerInfo
from tensortrial.hooks.core.configuration.matcher import Matcher
from tensortrial.hooks.core.recorder import Recorder
from tensortrial.read.run_reader import _ENDED_SECONDS
from tensortrial.read.trial import Trial, run_reader_of
from tensortrial.snapshot.manifest import Manifest
from tensortrial.storage import flush_registry
from tensortrial.write.writer import Writer

ENDED_RESCAN_SECONDS = _ENDED_SECONDS
"""How often a trial lists the files of a run that has ended, at most."""


def queued_bytes(of: Writer | Recorder) -> int:
    """Return the size of the values that a writer, or that of a recorder which has begun, has still to take."""
    writer = of.run._writer if isinstance(of, Recorder) else of
    assert writer is not None
    return writer._queued_bytes


def waiting_threads(writer: Writer) -> int:
    """Return how many threads wait until a writer has less to do."""
    return writer._num_waiting


def has_noticed_its_successor(recorder: Recorder) -> bool:
    """Return whether a recorder knows that another process has taken its run over."""
    lease = recorder.run._lease
    assert lease is not None
    return lease._taken_over is not None


def is_opened_by_manifest(trial: Trial) -> bool:
    """Return whether a trial has listed no index files, because a manifest names them."""
    return isinstance(run_reader_of(trial).snapshot.manifest, Manifest)


def index_paths(trial: Trial) -> list[str]:
    """Return the paths of the index files that a trial reads."""
    return run_reader_of(trial).snapshot.steps.files()


def failure_of(recorder: Recorder) -> str | None:
    """Return the error that has turned the hook off, as its end mark says it; None if there was none."""
    return recorder.failures.first


def resumes(recorder: Recorder) -> bool:
    """Return whether the hook resumes a run."""
    return recorder.run.resumes


def worker_and_session(recorder: Recorder) -> tuple[str, int]:
    """Return the worker that the hook writes as, and the number of its session."""
    return recorder.run.duty.worker, recorder.run.progress.session


def claim_of(recorder: Recorder) -> WorkerInfo | None:
    """Return the claim that the hook has published; None before that."""
    return recorder.run._claimed


def newest_session(trial: Trial) -> int:
    """Return the newest session that had claimed the run when the trial refreshed last."""
    return max((info.session for info in run_reader_of(trial).snapshot.workers.infos), default=0)


def number_of_tried_patterns(matcher: Matcher, name: str) -> int:
    """Return how many patterns a matcher tries because a name has their rarest piece."""
    return sum(1 for _ in matcher._candidates(name))


def forget_flushes(prefix: str) -> None:
    """Forget the flushes that writers have registered for runs whose key begins so, as the end of a process does."""
    for key in [key for key in flush_registry._flushes if key.startswith(prefix)]:
        del flush_registry._flushes[key]
