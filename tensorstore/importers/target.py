"""The run that an import writes: begun by it earlier, or not yet."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from ..errors import RunExists, TensorTrialError
from ..format.schema import RUN_FILE, RunInfo, end_path
from ..storage.open import Storage
from ..write.writer import Writer

SOURCE = "imported_from"
"""The key of a run's metadata that says what it was made of."""


def begun(target: Storage, source: str) -> RunInfo | None:
    """The run that an import of `source` has begun at `target`. Raises RunExists if there is any other."""
    try:
        run = RunInfo.from_bytes(target.read(RUN_FILE), target.url)
    except FileNotFoundError:
        return None
    if run.metadata.get(SOURCE) != source:
        raise RunExists(
            target.url,
            f"holds a run that was not imported from {source}, and nothing of it is ever overwritten: choose another "
            "target",
        )
    return run


@contextmanager
def writing(target: Storage, worker: str, writer: Writer) -> Iterator[None]:
    """After an error or an interruption what was published stays, for the next import to go on from there. The mark of
    the end would say that nothing is left."""
    try:
        yield
    except BaseException:
        with suppress(TensorTrialError):
            writer.close("the import was interrupted")
        target.remove(end_path(worker))
        raise
