"""The `run.json` that a run begins with: waited for, and what is there instead."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from ..errors import CorruptFile, MissingCollectionFiles, NotARun, RunNotFound, StorageError
from ..format.schema import COLLECTIONS, LEASES, RUN_FILE, RunInfo
from ..storage.open import Storage

_POLL_SECONDS = 0.05


def wait_for_run(storage: Storage, timeout: float | None) -> RunInfo:
    """Return the `run.json` of a run, as soon as it exists, for at most `timeout` seconds."""
    deadline = time.monotonic() + (timeout or 0)
    while True:
        try:
            return run_info(storage)
        except (RunNotFound, MissingCollectionFiles):
            if time.monotonic() >= deadline:
                raise
        time.sleep(_POLL_SECONDS)


def run_info(storage: Storage) -> RunInfo:
    """Return the `run.json` of a run.

    Raises RunNotFound, NotARun, MissingCollectionFiles, UnknownFormat.
    """
    content = read_run_file(storage)
    with _naming_the_run(storage):
        info = RunInfo.from_bytes(content, storage.url)
    if not storage.list(COLLECTIONS):
        raise MissingCollectionFiles(storage.url, "the run has no collections: no worker has begun to save")
    return info


def read_run_file(storage: Storage) -> bytes:
    """Return the content of a run's `run.json`. Raises RunNotFound and NotARun."""
    with _naming_the_run(storage):
        for _ in range(2):  # a run may begin between the two
            with suppress(FileNotFoundError):
                return storage.read_document(RUN_FILE)
            # A job that resumes a run which never began has a lease before anything else.
            if not storage.exists_any() or storage.list("") == [LEASES]:
                raise RunNotFound(storage.url, "there is no run here; create_trial(..., timeout=60) waits for one")
    raise NotARun(storage.url, _what_else(storage))


@contextmanager
def _naming_the_run(storage: Storage) -> Iterator[None]:
    """Raise errors that name the run: of many runs, it must be plain which one cannot be read."""
    try:
        yield
    except CorruptFile as exc:
        raise NotARun(storage.url, str(exc)) from exc
    except StorageError as exc:
        raise StorageError(storage.url, str(exc)) from exc


def _what_else(storage: Storage) -> str:
    # smdebug numbers the folders of its collections.
    if any(name.isdecimal() for name in storage.list(COLLECTIONS)):
        return (
            "smdebug wrote this run. Import it with `tensortrial import smdebug SOURCE TARGET`, or with "
            "tensortrial.importers.smdebug.import_run(source, target), and open the target"
        )
    return f"there are files here, but no {RUN_FILE}: this is not a run of tensortrial"
