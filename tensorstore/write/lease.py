"""The lease of a worker: it names the process that writes to a run as this worker, for as long as it is renewed.

There is one file for each worker and session, created by exactly one process and renewed by it alone. A process that
opens a later session removes the files of the earlier ones. So a writer whose file is missing was taken over.
"""

from __future__ import annotations

import functools
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from ..errors import AlreadyPublished, ConfigurationError, RunInUse, RunTakenOver, StorageError
from ..format import schema
from ..format.checksum import document_bytes
from ..format.documents import Count, Number, Whole, read_document
from ..format.run_files import is_of_run
from ..format.schema import END, LEASES, lease_path, session_end_path
from ..interrupts import Event
from ..storage.open import Storage

logger = logging.getLogger(__name__)

LEASE_SECONDS = 60.0
SECONDS_VARIABLE = "TENSORTRIAL_LEASE_SECONDS"
_SHORTEST_SECONDS = 0.1
_RENEWALS = 3
"""The number of times that a lease is renewed while it lasts."""
_POLL_SECONDS = 0.2
_ANSWER_SECONDS = 5.0
_LOCK_SECONDS = 30.0

_released: set[tuple[str, LeaseInfo]] = set()
"""By run, the leases that this process has released, but could not mark as released because the disk was full."""


def lease_seconds() -> float:
    """Return the seconds that a lease lasts without renewal: TENSORTRIAL_LEASE_SECONDS, or 60.

    Raises:
        ConfigurationError: The variable is not a number of seconds.
    """
    text = os.environ.get(SECONDS_VARIABLE) or str(LEASE_SECONDS)
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not _SHORTEST_SECONDS <= seconds < float("inf"):
        raise ConfigurationError(
            f"{SECONDS_VARIABLE} must be a number of seconds, {_SHORTEST_SECONDS} or more, got {text!r}"
        )
    return seconds


@dataclass(frozen=True)
class LeaseInfo:
    """`leases/WORKER=SESSION.json`: the process that writes as a worker in a session."""

    worker: str
    session: Number
    num_workers: Count
    process: Process
    started_at: str
    """The time at which the process claimed the worker: ISO 8601 with time zone."""
    seconds: float = LEASE_SECONDS
    """The seconds that the lease lasts after the file was last written."""
    released_at: str | None = None
    """The time at which the process ended its session itself."""

    @property
    def path(self) -> str:
        return lease_path(self.worker, self.session)

    @property
    def may_publish(self) -> bool:
        """True unless the process has ended: a request of another machine may arrive after its lease expired."""
        return self.released_at is None and (not self.process.is_local or self.process.runs)

    def to_bytes(self) -> bytes:
        return document_bytes(vars(self))

    @classmethod
    def from_bytes(cls, data: bytes, path: str) -> LeaseInfo:
        """Return the lease in the file `path`.

        Raises:
            ValueError: It is damaged, or names another worker or session than the file does.
        """
        lease = read_document(data, cls)
        if lease.path != path:
            raise ValueError(f"it names the session of {lease.path}")
        return lease


def read_leases(storage: Storage) -> list[LeaseInfo]:
    """Return all leases of a run, including released and expired ones.

    A damaged file is left out: it does not prevent others from writing.
    """
    found = list[LeaseInfo]()
    for name in storage.list(LEASES):
        path = f"{LEASES}/{name}"
        try:
            found.append(LeaseInfo.from_bytes(storage.read_document(path), path))
        except FileNotFoundError:
            continue  # removed since it was listed
        except ValueError as exc:
            logger.warning("run %s: %s is damaged and is ignored: %s", storage.url, path, exc)
    return found


class Observer:
    """An observer that finds out which leases are alive.

    Processes of this machine are checked directly, so a dead one frees its worker at once. A process of another machine
    is alive for as long as its lease lasts, by the clock of the storage. If that clock may jump, a lease that seems to
    have expired is watched for half its length: if it is renewed meanwhile, it is alive.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._dead: dict[str, float] = {}

    def alive(self, leases: Iterable[LeaseInfo]) -> list[LeaseInfo]:
        """Return the leases that are alive."""
        return [lease for lease in leases if self._is_alive(lease)]

    def _is_alive(self, lease: LeaseInfo) -> bool:
        if lease.released_at is not None or (self._storage.url, lease) in _released:
            return False
        if lease.process.is_local:
            return lease.process.runs
        try:
            written, now = self._storage.written_at(lease.path)
            if self._dead.get(lease.path) == written:
                return False
            lasts = abs(now - written) <= lease.seconds
            alive = lasts or (not self._storage.keeps_time and self._is_renewed(lease, written))
        except FileNotFoundError:
            return False
        if not alive:
            self._dead[lease.path] = written
        return alive

    def _is_renewed(self, lease: LeaseInfo, written: float) -> bool:
        seconds = lease.seconds / 2
        text = "run %s: the lease of %s (%s) has run out by the clock; watching it for %.0f s, because clocks may jump"
        logger.warning(text, self._storage.url, lease.worker, lease.process, seconds)
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            time.sleep(min(left, _POLL_SECONDS))
            if self._storage.written_at(lease.path)[0] != written:
                return True
        return False


class Lease:
    """A lease that this process holds. A thread renews it, from `begin` or `take` until `release` or `drop`.

    If the lease is gone but no successor exists, `restore` claims the run again and returns True if it had to.
    """

    def __init__(
        self,
        storage: Storage,
        worker: str,
        session: int,
        num_workers: int,
        seconds: float,
        restore: Callable[[], bool] = lambda: False,
    ) -> None:
        started_at = datetime.now(UTC).isoformat()
        self.info = LeaseInfo(worker, session, num_workers, this_process(), started_at, seconds)
        self._storage, self._restore = storage, restore
        self._taken_over: RunTakenOver | None = None
        self._ended = Event()
        self._thread: threading.Thread | None = None
        self._renewed_at = 0.0
        self._older: list[LeaseInfo] = []

    def begin(self) -> None:
        """Hold the lease of a worker that no other process can claim.

        Raises:
            RunInUse: Another process that resumes the run saw no claim, and has joined the session as this worker.
            RunTakenOver: Another process has resumed the run, because it saw no lease while this one was being written.
        """
        try:
            self._storage.create(self.info.path, self.info.to_bytes())
        except AlreadyPublished:
            holder = self._holder()
            if holder != self.info and Observer(self._storage).alive([holder]):
                raise in_use(self._storage, holder) from None
            self._storage.replace(self.info.path, self.info.to_bytes())
        if successor := self._successor():
            self._storage.remove(self.info.path)
            raise successor
        self._start()

    def take(self, older: Iterable[LeaseInfo] = ()) -> None:
        """Acquire the lease of a resumed session, in which exactly one process succeeds, and end the `older` leases.

        Raises:
            RunInUse: Another process was first.
        """
        try:
            self._storage.create(self.info.path, self.info.to_bytes())
        except AlreadyPublished:
            raise in_use(self._storage, self._holder()) from None
        self._start()
        self.end(older)

    def _holder(self) -> LeaseInfo:
        try:
            return LeaseInfo.from_bytes(self._storage.read_document(self.info.path), self.info.path)
        except (FileNotFoundError, ValueError):
            return self.info

    def _start(self) -> None:
        self._renewed_at = _clock()
        name = f"tensortrial-lease-{self.info.worker}"
        self._thread = threading.Thread(target=self._renew_until_ended, name=name, daemon=True)
        self._thread.start()

    def end(self, leases: Iterable[LeaseInfo]) -> None:
        """End leases of earlier sessions, also of those that appeared after this one was taken."""
        self._older += leases
        self._remove_older()

    def _remove_older(self) -> None:
        for lease in self._older:
            with self._storage.locked(lease.path, _LOCK_SECONDS):
                self._storage.remove(lease.path)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Let a process on this machine that takes the run over wait until the block has published.

        Raises:
            RunTakenOver: As for `check`; also if the run was taken over while something was being published.
        """
        with self._storage.locked(self.info.path, _LOCK_SECONDS):
            self.check()
            yield
            if self._taken_over is not None or self._is_late():
                self.check()

    def check(self, at_once: bool = False) -> None:
        """Verify that this process may still write.

        On a disk the lease is renewed at each call, which costs next to nothing. Elsewhere a renewal costs a request.
        It is made only if the last one is too long ago, for example after the machine slept, or if `at_once` is true.

        Raises:
            RunTakenOver: Another process has taken the run over.
            StorageError: Another process may have, but the storage gives no answer.
        """
        if self._taken_over is None and (self._storage.is_local or self._is_late() or at_once):
            self._renew()
        if self._taken_over is not None:
            raise self._taken_over

    def release(self) -> None:
        """Stop renewing, and mark the session as ended in the run. The lease of a successor stays unchanged."""
        self.drop()
        if self._taken_over is None:
            released = replace(self.info, released_at=datetime.now(UTC).isoformat())
            try:
                self._storage.replace(self.info.path, released.to_bytes())
            except StorageError:
                _released.add((self._storage.url, self.info))
                raise

    def withdraw(self) -> None:
        """Stop renewing, and remove the lease of a session that has not begun."""
        self.drop()
        self._storage.remove(self.info.path)

    def drop(self) -> None:
        """Stop renewing, and write nothing."""
        self._ended.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _renew_until_ended(self) -> None:
        while not self._ended.wait(self.info.seconds / _RENEWALS):
            try:
                self._renew()
            except Exception as exc:  # noqa: BLE001 - the next renewal tries again
                logger.debug("cannot renew the lease of %s: %s", self.info.worker, exc)
            if self._older and self._taken_over is None:
                # A renewal that was under way while the file was removed may have put it back.
                try:
                    self._remove_older()
                    self._older = []
                except StorageError as exc:
                    logger.debug("cannot remove old leases: %s", exc)
            if self._taken_over is not None:
                return

    def _renew(self) -> None:
        started = _clock()
        try:
            self._storage.touch(self.info.path)
            self._renewed_at = started
        except FileNotFoundError:
            self._taken_over = self._successor()
            if self._taken_over is None and self._restore():
                self._storage.replace(self.info.path, self.info.to_bytes())
        except Exception as exc:
            # The store may be back before the lease expires. If the times of files cannot be set and all processes are
            # on this machine, it never expires.
            if self._is_late() and not self._storage.is_local:
                raise
            logger.debug("cannot renew the lease of %s: %s", self.info.worker, exc)

    def _is_late(self) -> bool:
        return _clock() - self._renewed_at > self.info.seconds

    def _successor(self) -> RunTakenOver | None:
        """Return the error that names the process of a later session; None if there is none."""
        later = [lease for lease in read_leases(self._storage) if lease.session > self.info.session]
        if not later:
            return None
        successor = next((lease for lease in later if lease.worker == self.info.worker), later[0])
        return RunTakenOver(self._storage.url, self.info.worker, str(successor.process))


def wait_until_stopped(storage: Storage, leases: Iterable[LeaseInfo]) -> None:
    """Wait until processes have noticed that their leases were ended, or have had the time to.

    On a disk there is no wait: they notice it before they publish anything more.
    """
    waited = {session_end_path(each.worker, each.session).rpartition("/")[2]: each for each in leases}
    if storage.is_local or not waited:
        return
    longest = max(lease.seconds for lease in waited.values()) / _RENEWALS
    deadline = time.monotonic() + longest + min(longest, _ANSWER_SECONDS)
    while not waited.keys() <= set(storage.list(END)) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)


def in_use(storage: Storage, lease: LeaseInfo, remedy: str = "") -> RunInUse:
    """Return the error that names the process which writes to a run."""
    return RunInUse(storage.url, lease.worker, str(lease.process), lease.started_at, remedy)


def _clock() -> float:
    # If the system has such a clock, it also runs while the machine sleeps.
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


_PROC = Path("/proc")


@dataclass(frozen=True)
class Process:
    """The identity of one process among all that ever ran, on any machine."""

    id: Annotated[int, Whole(1, (1 << 31) - 1)]
    """The process id, which the operating system uses again."""
    started: str = ""
    """The time at which the kernel started the process, in ticks since the boot; empty if unknown."""
    host: str = ""
    boot: str = ""
    """The boot of the machine and the namespace of `id`; empty if unknown. Containers of one machine share the boot,
    but each numbers its own processes."""

    def __str__(self) -> str:
        own = " (this process)" if self == this_process() else ""
        return f"process {self.id} on host {self.host!r}{own}"

    @property
    def is_local(self) -> bool:
        """Return whether both processes run on one machine in one namespace, so that they see each other."""
        return bool(self.boot and self.started) and self.boot == _boot() and self.host == socket.gethostname()

    @property
    def runs(self) -> bool:
        """Return whether a local process still runs. A later process with the same id is told apart by its start."""
        started = _started(self.id)
        if started is not None:
            return started == self.started
        try:
            os.kill(self.id, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True  # it runs, and is hidden from this user
        return False  # it has ended, but its parent has not noticed yet


def this_process() -> Process:
    """Return the identity of the calling process."""
    return _identity(os.getpid())


@functools.lru_cache(maxsize=1)
def _identity(number: int) -> Process:
    return Process(number, _started(number) or "", socket.gethostname(), _boot())


@functools.lru_cache(maxsize=1)
def _boot() -> str:
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{boot} {os.readlink(_PROC / 'self/ns/pid')}"
    except OSError:
        return ""


def _started(number: int) -> str | None:
    """Return when a process was started; None if it does not run any more, or cannot be seen."""
    try:
        text = (_PROC / str(number) / "stat").read_text("utf-8", errors="replace")
    except OSError:
        return None
    # The second field is the program's name in parentheses, which may hold spaces and parentheses itself.
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in ("Z", "X") else fields[19]


_REMEDY = "choose another folder: a run is replaced, moved or deleted only if no process writes to it"


def check_unused(observer: Observer, storage: Storage, remedy: str = _REMEDY, own: LeaseInfo | None = None) -> None:
    """Check that no living process writes to a run, except the holder of `own`.

    Raises:
        RunInUse: A process writes; `remedy` says what to do.
    """
    for lease in observer.alive(each for each in read_leases(storage) if each != own):
        raise in_use(storage, lease, remedy)


def is_empty(storage: Storage, num_workers: int) -> bool:
    """Return whether a run has ended in which no worker has saved anything."""
    documents = {schema.RUN_FILE, schema.COLLECTIONS, END, LEASES}
    return documents.issuperset(storage.list("")) and len(storage.list(END)) >= num_workers


def remove_run(storage: Storage, kept: str = "") -> None:
    """Delete the files of a run, except the file `kept`. Foreign files stay."""
    found = [file.path for file in storage.walk() if is_of_run(file.path) and file.path != kept]
    # A removal that is killed leaves no run for readers, and claims, which show that the rest belongs to a run.
    for path in sorted(found, key=lambda path: (path != schema.RUN_FILE, path.startswith(schema.COLLECTIONS), path)):
        storage.remove(path)
