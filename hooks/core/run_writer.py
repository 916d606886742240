"""The run as one worker of the job writes it."""

from __future__ import annotations

import os
import platform
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from typing import Any

from tensortrial.config.metadata import checked_metadata
from tensortrial.errors import AlreadyPublished, ConfigurationError, RunExists, TensorTrialError, WorkerClaimed
from tensortrial.format.record import Step
from tensortrial.format.schema import (
    CODECS,
    COLLECTIONS,
    FROM_START,
    RUN_FILE,
    FirstFlush,
    RunInfo,
    WorkerInfo,
    collections_path,
)
from tensortrial.mode import ModeKeys, check_not_negative
from tensortrial.snapshot.manifest import MOST_FILES_AT_CLOSE, write_manifest
from tensortrial.storage.open import Storage, open_storage
from tensortrial.tfevents.event_log import EventLog
from tensortrial.truth import is_switched_on
from tensortrial.version import __version__
from tensortrial.write.claim import Resumption, check_out_dir, claim, claim_again, has_ended, has_left_job, saved_steps
from tensortrial.write.lease import (
    Lease,
    LeaseInfo,
    Observer,
    check_unused,
    in_use,
    is_empty,
    lease_seconds,
    remove_run,
    wait_until_stopped,
)
from tensortrial.write.progress import Progress, in_step_with, place_of
from tensortrial.write.writer import Writer

from .configuration.collections import CollectionManager
from .configuration.options import Framework, HookOptions
from .log import logger
from .process.environment import KeptEnvironment, parse_parts
from .process.rank import Duty
from .process.stop_request import StopRequest

FORCE_VARIABLE = "TENSORTRIAL_FORCE"


class RunWriter:
    """A run that one worker claims at its first step, writes to, and closes with a reason.

    Nothing is written before `claim`, nor after `close` or `forget`.

    Raises:
        ConfigurationError: An option has an invalid value.
    """

    def __init__(self, options: HookOptions, framework: Framework, collections: CollectionManager, duty: Duty) -> None:
        if options.codec not in CODECS:
            raise ConfigurationError(f"codec must be one of {', '.join(CODECS)}, got {options.codec!r}")
        check_not_negative("flush_seconds", 0 if options.flush_seconds is None else options.flush_seconds)
        check_not_negative("queue_bytes", 0 if options.queue_bytes is None else options.queue_bytes)
        self.duty = duty
        self._options, self._framework, self._collections = options, framework, collections
        self._metadata = {} if options.metadata is None else checked_metadata(options.metadata)
        leads = duty.num_workers == 1 or duty.worker == "worker_0"
        self.environment = KeptEnvironment(parse_parts(options.environment), leads)
        self._first_dir, self._number = os.fspath(options.out_dir), 1
        self._open(self._first_dir)
        self._lease_seconds = lease_seconds()
        self._force = options.force or is_switched_on(FORCE_VARIABLE, default=False)
        self.resumes = False
        """True if the run existed before and is continued."""
        self._resumes_at: tuple[str, int] | None = None
        self.restarts = False
        """True if a resumed run begins again at its first step."""
        self._goes_back = False
        self._claimed: WorkerInfo | None = None
        self._lease: Lease | None = None
        self._writer: Writer | None = None
        self._earlier: dict[str, dict[int, int]] | None = None
        self.steps: int | None = None
        """The number of global steps that have begun, once the last one has."""
        self.progress = Progress()
        """The point in the run at which the worker's steps continue."""

    def _open(self, out_dir: str) -> None:
        self.out_dir = out_dir
        self._storage = open_storage(out_dir, self._options.storage_options, durable=self._options.durable)
        self._tensorboard: Storage | None = None
        if self._options.export_tensorboard:
            folder = self._options.tensorboard_dir or f"{out_dir.rstrip('/')}/tensorboard"
            self._tensorboard = open_storage(folder, self._options.storage_options)
        self._observer = Observer(self._storage)

    def _open_next(self) -> None:
        """Write to the folder of the next number."""
        self._number += 1
        self._open(f"{self._first_dir.rstrip('/')}-{self._number}")

    def resume(self, follows: bool = False) -> None:
        """Continue after the steps of the run, if it has any. A process that only `follows` them writes nothing.

        Raises:
            ConfigurationError: Nothing can be written there.
            RunInUse: A living process writes to the run, and `force` is not set.
        """
        self.resumes = True
        found = self._resumption(follows=follows)
        if not follows:
            self._storage.check_writable()
            self._find_alive(found.in_the_way())
        self.progress = self._continued(found)

    def resume_at(self, mode: ModeKeys, step: int) -> Progress:
        """Continue at a step of an earlier session. Return the point at which steps continue.

        Raises:
            ConfigurationError: The run has steps, but none in this mode.
        """
        self.flush()
        resumption = self._resumption(follows=not self.open)
        others = sorted(name for name, count in resumption.progress().mode_steps.items() if count)
        if others and mode.name not in others:
            raise ConfigurationError(
                f"the run has no steps in mode {mode.name}, only in {', '.join(others)}: pass mode=, or call set_mode "
                "before"
            )
        self._resumes_at = mode.name, step
        found = replace(self._continued(resumption), session=self.progress.session)
        if not self.open or found.global_step < self.progress.global_step:
            self.progress = found
        self.supersede_from(found)
        return found

    def supersede_from(self, back_to: Progress) -> None:
        """Supersede the steps of this session from the point at which it continues."""
        self.resumes, self._earlier = True, None
        if self._writer is not None:
            self._writer.flush(back_to)
            self.announce()

    def _continued(self, found: Resumption) -> Progress:
        progress = found.progress(self._resumes_at)
        return Progress(found.session) if self.restarts else progress

    def _resumption(self, follows: bool = False, expected: int | None = None) -> Resumption:
        return Resumption(self._storage, self.duty.worker, self.duty.num_workers, self._observer, follows, expected)

    def _find_alive(self, leases: Sequence[LeaseInfo]) -> list[LeaseInfo]:
        """Return the leases of living processes, which `force` allows to take over."""
        alive = self._observer.alive(leases)
        if alive and not self._force:
            raise in_use(self._storage, alive[0])
        return alive

    def check(self) -> None:
        """Check that the folder holds no run, or one that `on_exists` allows to replace, resume or restart.

        Raises:
            RunExists: There is one.
            RunInUse: A living process writes to the run that is to be replaced or resumed.
        """
        on_exists = self._options.on_exists
        if on_exists == "number":
            while self._holds_run():
                self._open_next()
        elif on_exists == "replace" and self._holds_run():
            check_unused(self._observer, self._storage)
        elif on_exists == "restart_crashed" and self._holds_run() and not has_ended(self._storage, self.duty.worker):
            self.restarts = True
            self.resume()
        else:
            check_out_dir(self._storage, self.duty.worker, self.duty.num_workers)

    def _holds_run(self) -> bool:
        try:
            check_out_dir(self._storage, self.duty.worker, self.duty.num_workers)
        except RunExists:
            return True
        return False

    def add_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Keep more values with the run. Once the run is claimed, this changes nothing.

        Raises:
            ConfigurationError: The metadata is not a mapping.
        """
        self._metadata = {**checked_metadata(metadata), **self._metadata}

    @property
    def open(self) -> bool:
        """True if the run is claimed, and not closed yet."""
        return self._writer is not None

    def may_join(self) -> bool:
        """Return whether a worker of several may claim the run without a step: it takes nothing from a run there."""
        self.duty.decide()
        takes = self.restarts or self._resumes_at is not None or self._options.on_exists == "replace"
        return self.duty.num_workers > 1 and not self.duty.rank.name and not takes

    def claim(self) -> None:
        """Begin the run, join it, or resume it.

        Raises:
            WorkerClaimed: Another process writes as this worker.
            RunInUse: A living process writes to the run to be resumed, or another one resumed it first.
        """
        run = self._run_info()
        if self.resumes:
            self._lease, first_flush = self._claim_again(run)
        else:
            self._lease, first_flush = self._claim_new(run), FROM_START
        self._stop_request = StopRequest(self._storage)
        self._writer = Writer(
            self._storage,
            self.duty.worker,
            codec=self._options.codec,
            flush_seconds=self._options.flush_seconds,
            queue_bytes=self._options.queue_bytes,
            first_flush=first_flush,
            also_to=self._event_log(),
            lease=self._lease,
            is_ordered=self._framework.is_ordered,
        )

    def _claim_new(self, run: RunInfo) -> Lease:
        numbered = self._options.on_exists == "number"
        self._claimed = self._worker_info(_now())
        try:
            if self._options.on_exists == "replace":
                self._remove_run()
            claim(self._storage, run, self._claimed, joins=self.duty.num_workers > 1 or not numbered)
        except (RunExists, WorkerClaimed):
            # Another job has begun a run there since the hook was made.
            if not numbered:
                raise
            self._open_next()
            return self._claim_new(run)
        lease = self._new_lease()
        lease.begin()
        return lease

    def _remove_run(self) -> None:
        """Delete the run in the folder, if there is one, as the only process that does."""
        if not self._holds_run():
            return
        lease = self._new_lease(self._resumption().session)
        lease.take()
        try:
            # A process that was quicker may have removed the run, and begun its own, meanwhile.
            check_unused(self._observer, self._storage, own=lease.info)
            remove_run(self._storage, lease.info.path)
        finally:
            lease.withdraw()

    def _run_info(self) -> RunInfo:
        return RunInfo(
            started_at=_now(),
            id=uuid.uuid4().hex,
            framework=self._framework.name,
            num_workers=self.duty.num_workers,
            codec=self._options.codec,
            versions={"tensortrial": __version__, "python": platform.python_version(), **self._framework.versions},
            metadata=self._metadata,
        )

    def _new_lease(self, session: int = 0) -> Lease:
        return Lease(
            self._storage, self.duty.worker, session, self.duty.num_workers, self._lease_seconds, self._restore
        )

    def _restore(self) -> bool:
        """Claim the run again if its folder was renamed or removed, because the next steps would be in no run."""
        claimed, path = self._claimed, collections_path(self.duty.worker)
        if claimed is None or path in [f"{COLLECTIONS}/{name}" for name in self._storage.list(COLLECTIONS)]:
            return False
        with suppress(AlreadyPublished):
            self._storage.create(RUN_FILE, self._run_info().to_bytes())
        self._storage.replace(path, claimed.to_bytes())
        if self._writer is not None:
            self._writer.begin_again()
        logger.warning(
            "run %s: its folder was renamed or removed while %s writes to it; later steps are saved there as a new "
            "run, and earlier ones are where the folder is now",
            self._storage.url,
            self.duty.worker,
        )
        return True

    def _claim_again(self, run: RunInfo) -> tuple[Lease, FirstFlush]:
        found = self._resumption(expected=self.progress.session)
        alive = self._find_alive(found.in_the_way())
        lease = self._new_lease(found.session)
        lease.take([each for each in found.leases if each.session < found.session])
        try:
            # A process that began the run a moment ago may have written its lease meanwhile.
            late = found.late()
            alive += self._find_alive(late)
        except BaseException:
            lease.withdraw()
            raise
        try:
            if late:
                lease.end(late)
            wait_until_stopped(self._storage, alive)
            found.wait_for_opener(lease.info)
            self.progress = self._continued(found)
            self._goes_back = self.restarts or self._resumes_at is not None
            self._claimed = self._worker_info(_now())
            # A flush of the process that was taken over may be under way, even if its lease had expired.
            open_elsewhere = [each for each in (*found.in_the_way(), *late) if each.may_publish and each not in alive]
            skipped = len(alive) + len(open_elsewhere)
            check = partial(lease.check, at_once=True)
            return lease, claim_again(self._storage, run, self._claimed, skipped, check, found.back_to)
        except BaseException:
            lease.release()
            raise

    def announce(self) -> None:
        """Publish the collections for readers, if they have changed since the run was claimed."""
        if self._claimed is not None and self.open:
            info = self._worker_info(self._claimed.started_at)
            if info != self._claimed:
                if self._lease is not None:
                    self._lease.check(at_once=True)
                self._claimed = info
                self._storage.replace(collections_path(info.worker), info.to_bytes())

    def reason_to_stop(self) -> str | None:
        """Return the reason of a rule's request that training stop; None if there was no request at the last poll."""
        return self._stop_request.reason() if self.open else None

    def global_step_of(self, mode: ModeKeys, number: int) -> int | None:
        """Return the global step of a step of an earlier session; None unless saved steps around it determine it."""
        if self._earlier is None:
            self._earlier = {}
            saved = saved_steps(self._storage) if self.resumes else {}
            for step in chain(*in_step_with(self.duty.worker, saved).values()):
                self._earlier.setdefault(step.mode, {})[step.mode_step] = step.global_step
        return place_of(self._earlier.get(mode.name, {}), number)

    def put(self, step: Step, closes: bool = False) -> None:
        """Pass the values that a step has to the writer; `closes` marks the last ones of the step."""
        if self._writer is not None:
            self._writer.put(step, step.records, closes=closes)

    def flush(self) -> None:
        """Publish every closed step now, and return when that is done."""
        if self._writer is not None:
            self._writer.flush()

    def close(self, failure: str | None) -> None:
        """Publish the remaining steps, and the run's end with the hook's failure. After Ctrl-C, another call does."""
        if self._writer is None:
            return
        self._announce_late()
        try:
            self._writer.close(failure, self.steps)
        except Exception:
            # No reference is kept: the writer's error holds the frames of the training step in which it was raised.
            self._writer = self._lease = None
            raise
        self._writer = self._lease = None
        self._finish()

    def _announce_late(self) -> None:
        """Publish an environment that was read after the last step began."""
        self.environment.is_read.wait(1)  # a run may be shorter
        if self.environment.is_new:
            try:
                self.announce()
            except TensorTrialError as exc:
                logger.warning("run %s: its environment was not kept: %s", self._storage.url, exc)

    def _finish(self) -> None:
        """Write the manifest if this was the last worker, or remove the run of a job that had no step."""
        try:
            if self.steps == 0 and is_empty(self._storage, self.duty.num_workers):
                remove_run(self._storage)
            else:
                write_manifest(self._storage, MOST_FILES_AT_CLOSE)  # the run is complete without it
        except (TensorTrialError, RuntimeError) as exc:  # at exit no thread can be started, nor a connection be made
            logger.warning("run %s: no manifest was written: %s", self._storage.url, exc)

    def forget(self) -> None:
        """Write nothing in a forked child: the run belongs to the process that claimed it."""
        self._writer = self._lease = None

    def _event_log(self) -> EventLog | None:
        if self._tensorboard is None:
            return None
        back_to = self.progress.mode_steps if self._goes_back else None
        has_left = partial(has_left_job, self._storage, self._claimed) if self._claimed else None
        return EventLog(self._tensorboard, self.duty.worker, self.duty.num_workers, back_to, has_left)

    def _worker_info(self, started_at: str) -> WorkerInfo:
        return WorkerInfo(
            self.duty.worker,
            self.duty.num_workers,
            started_at,
            [collection.to_json_dict() for collection in self._collections],
            self._collections.saved_names,
            session=self.progress.session,
            first_global_step=self.progress.global_step,
            first_mode_steps=dict(self.progress.mode_steps),
            goes_back=self._goes_back,
            environment=self.environment.values(),
        )


def _now() -> str:
    return datetime.now(UTC).isoformat()
