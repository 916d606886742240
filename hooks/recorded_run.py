"""The run as one worker of the job writes it."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from tensortrial import __version__
from tensortrial.claim import Progress, check_out_dir, claim, claim_again, progress, update_claim
from tensortrial.errors import ConfigurationError
from tensortrial.events.event_log import EventLog
from tensortrial.records import Numbers, Packed, Record, Step
from tensortrial.schema import RunInfo, WorkerInfo, checked_metadata, path_component
from tensortrial.storage import Storage, open_storage
from tensortrial.writer import Writer

from .collection_manager import CollectionManager
from .stop_request import StopRequest

CODECS = ("none", "lz4", "zstd")


class RecordedRun:
    """A run that one worker claims at its first step, writes to, and closes with a reason.

    Nothing is there before `claim`, and nothing is written after `close` or `forget`. `tensorboard_dir`, unless it is
    None, gets event files of the same.

    Raises ConfigurationError for a setting that makes no sense.
    """

    def __init__(
        self,
        out_dir: str,
        collections: CollectionManager,
        *,
        worker: str,
        num_workers: int,
        framework: str,
        versions: Mapping[str, str],
        metadata: Mapping[str, Any] | None,
        codec: str,
        flush_seconds: float | None,
        storage_options: Mapping[str, Any] | None,
        tensorboard_dir: str | os.PathLike[str] | None,
    ) -> None:
        if codec not in CODECS:
            raise ConfigurationError(f"codec must be one of {', '.join(CODECS)}, not {codec!r}")
        if flush_seconds is not None and flush_seconds < 0:
            raise ConfigurationError(f"flush_seconds must be 0 or more, not {flush_seconds!r}")
        self.worker, self.num_workers = worker, num_workers
        self._collections = collections
        self._framework, self._versions, self._metadata = framework, dict(versions), checked_metadata(metadata)
        self._codec, self._flush_seconds = codec, flush_seconds
        self._storage = open_storage(out_dir, storage_options)
        self._tensorboard: Storage | None = None
        if tensorboard_dir is not None:
            self._tensorboard = open_storage(tensorboard_dir, storage_options)
        self._stop_request = StopRequest(self._storage)
        self._resumes = False
        self._claimed: WorkerInfo | None = None
        self._writer: Writer | None = None
        self.progress = Progress()
        """Where the worker's steps go on."""

    def resume(self) -> None:
        """Go on after the steps that are there, if any are."""
        self._resumes = True
        self.progress = progress(self._storage, self.worker, self.num_workers)

    def check(self) -> None:
        """Raises RunExists if somebody else's run is there already."""
        check_out_dir(self._storage, self.worker, self.num_workers)

    @property
    def open(self) -> bool:
        """Whether the run is claimed, and not closed yet."""
        return self._writer is not None

    def claim(self) -> None:
        """Begin the run, or join it. Raises WorkerClaimed if another process writes as this worker."""
        run = RunInfo(
            created_at=_now(),
            framework=self._framework,
            num_workers=self.num_workers,
            codec=self._codec,
            versions={"tensortrial": __version__, "python": platform.python_version(), **self._versions},
            metadata=self._metadata,
        )
        self._claimed = self._worker_info(_now())
        first_flush = 0
        if self._resumes:
            first_flush = claim_again(self._storage, run, self._claimed)
        else:
            claim(self._storage, run, self._claimed)
        self._writer = Writer(
            self._storage,
            self.worker,
            codec=self._codec,
            flush_seconds=self._flush_seconds,
            first_flush=first_flush,
            also_to=self._event_log(),
        )

    def announce(self) -> None:
        """Tell readers of collections that changed since the run was claimed."""
        if self._claimed is not None and self.open:
            info = self._worker_info(self._claimed.started_at)
            if info != self._claimed:
                self._claimed = info
                update_claim(self._storage, info)

    def reason_to_stop(self) -> str | None:
        """Why a rule has asked the training to stop; None if it has not, as far as the last look tells."""
        return self._stop_request.reason() if self.open else None

    def put(self, step: Step, records: Sequence[Record | Numbers | Packed], closes: bool = False) -> None:
        """Give values of a step to the writer, the last ones of it with `closes`."""
        if self._writer is not None:
            self._writer.put(step, records, closes=closes)

    def flush(self) -> None:
        """Publish every closed step now, and return when that is done."""
        if self._writer is not None:
            self._writer.flush()

    def close(self, failure: str | None) -> None:
        """Publish what is left, and the run's end with what made the hook fail, if anything did."""
        # Let go of: its error holds the frames of the training step in which it was raised.
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close(failure)

    def forget(self) -> None:
        """In a forked child: the run belongs to the process that claimed it."""
        self._writer = None

    def _event_log(self) -> EventLog | None:
        if self._tensorboard is None:
            return None
        return EventLog(self._tensorboard, path_component(self.worker) if self.num_workers > 1 else "")

    def _worker_info(self, started_at: str) -> WorkerInfo:
        return WorkerInfo(
            self.worker,
            self.num_workers,
            started_at,
            [collection.to_json() for collection in self._collections],
            self._collections.saved_names,
            session=self.progress.session,
            first_global_step=self.progress.global_step,
            first_mode_steps=dict(self.progress.mode_steps),
        )


def _now() -> str:
    return datetime.now(UTC).isoformat()
