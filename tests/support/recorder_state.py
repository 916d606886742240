"""What a recorder, a trial and a process know and show to nobody: the simulation compares it with its model.

All that reads it here does so in one place, so that a change of the product's structure changes this file alone.
"""

from __future__ import annotations

from tensortrial.format.schema import WorkerInfo
from tensortrial.hooks.core.recorder import Recorder
from tensortrial.read.run_reader import _ENDED_SECONDS
from tensortrial.read.trial import Trial
from tensortrial.storage import flush_registry

ENDED_RESCAN_SECONDS = _ENDED_SECONDS
"""How often a trial lists the files of a run that has ended, at most."""


def failure_of(recorder: Recorder) -> str | None:
    """Return the error that has turned the hook off, as its end mark says it; None if there was none."""
    return recorder._life.failures.first


def resumes(recorder: Recorder) -> bool:
    """Return whether the hook resumes a run."""
    return recorder._run.resumes


def worker_and_session(recorder: Recorder) -> tuple[str, int]:
    """Return the worker that the hook writes as, and the number of its session."""
    return recorder._run.worker, recorder._run.progress.session


def claim_of(recorder: Recorder) -> WorkerInfo | None:
    """Return the claim that the hook has published; None before that."""
    return recorder._run._claimed


def newest_session(trial: Trial) -> int:
    """Return the newest session that had claimed the run when the trial refreshed last."""
    return max((info.session for info in trial._reader.workers.infos), default=0)


def forget_flushes(prefix: str) -> None:
    """Forget the flushes that writers have registered for runs whose key begins so, as the end of a process does."""
    for key in [key for key in flush_registry._flushes if key.startswith(prefix)]:
        del flush_registry._flushes[key]
