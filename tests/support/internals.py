"""What tests ask of the product that no public function answers. Only this file knows where the product keeps it."""

from __future__ import annotations

from tensortrial.hooks.core.recorder import Recorder
from tensortrial.read.trial import Trial, run_reader_of
from tensortrial.write.writer import Writer


def queued_bytes(of: Writer | Recorder) -> int:
    """Return the size of the values that a writer, or that of a recorder which has begun, has still to take."""
    writer = of._run._writer if isinstance(of, Recorder) else of
    assert writer is not None
    return writer._queued_bytes


def has_noticed_its_successor(recorder: Recorder) -> bool:
    """Return whether a recorder knows that another process has taken its run over."""
    lease = recorder._run._lease
    assert lease is not None
    return lease._taken_over is not None


def is_opened_by_manifest(trial: Trial) -> bool:
    """Return whether a trial has listed no index files, because a manifest names them."""
    return run_reader_of(trial)._manifest is not None


def index_paths(trial: Trial) -> list[str]:
    """Return the paths of the index files that a trial reads."""
    return [path for _, path in run_reader_of(trial).catalogue.fetch("index_paths")]
