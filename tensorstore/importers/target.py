"""The run that an import writes, new or begun by an earlier import."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from ..errors import RunExists, TensorTrialError
from ..format.schema import RUN_FILE, RunInfo, end_path
from ..storage.open import Storage
from ..write.writer import Writer

SOURCE = "imported_from"
"""The key of a run's metadata that names the source."""


def begun(target: Storage, source: str) -> RunInfo | None:
    """Return the run that an import of `source` began at `target`, if any. Raises RunExists for any other run."""
    try:
        run = RunInfo.from_bytes(target.read(RUN_FILE), target.url)
    except FileNotFoundError:
        return None
    if run.metadata.get(SOURCE) != source:
        raise RunExists(
            target.url,
            f"holds a run that was not imported from {source}; it is never overwritten: choose another target",
        )
    return run


@contextmanager
def writing(target: Storage, worker: str, writer: Writer) -> Iterator[None]:
    """Close the writer after an error or an interruption, but not the run: the next import continues it."""
    try:
        yield
    except BaseException:
        with suppress(TensorTrialError):
            writer.close("the import was interrupted")
        target.remove(end_path(worker))
        raise
