"""The result of a verification."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Damage:
    """A file that is damaged or missing, and what it held.

    Attributes:
        path: The file, relative to the run.
        reason: What is wrong with it.
        worker: The worker that wrote it; None if that is not known.
        steps: The global steps whose tensors cannot be read, ascending; empty if they are not known.
        tensors: The names of these tensors, sorted; empty if they are not known.
        values: The number of raw values that cannot be read.
        may_pass: Whether the file system or the object store refused to read the file, which may pass.
    """

    path: str
    reason: str
    worker: str | None = None
    steps: tuple[int, ...] = ()
    tensors: tuple[str, ...] = ()
    values: int = 0
    may_pass: bool = False


@dataclass(frozen=True)
class Unfinished:
    """Something that was begun and not finished. While the job runs, that is no fault.

    Attributes:
        worker: The worker that has not ended, or lacks the steps.
        reason: What is not finished.
        steps: The global steps that other workers saved and this one did not, ascending.
    """

    worker: str
    reason: str
    steps: tuple[int, ...] = ()


@dataclass(frozen=True)
class Unnamed:
    """A file that belongs to no step of the run.

    Attributes:
        path: The file, relative to the run.
        nbytes: Its size in bytes.
        kind: `chunk` for raw values that no index file names, `temporary` for a file that was not published, `other`
            for a file of another program.
        worker: The worker that wrote it; None if that is not known.
    """

    path: str
    nbytes: int
    kind: str
    worker: str | None = None


@dataclass(frozen=True)
class Verification:
    """The result of `Trial.verify`.

    Attributes:
        run: The folder or URL of the run.
        files: The number of files that were read.
        nbytes: Their size in bytes.
        rows: The number of saved tensors, over all steps and workers.
        values: How many of them have their raw value in a chunk.
        damaged: The files that are damaged or missing.
        lost: Those of them that `tensortrial repair` has marked as lost. They are not in `damaged`.
        unfinished: What was begun and not finished.
        superseded: Files that a compacted file supersedes, and that may be deleted.
        unnamed: Files that belong to no step.
    """

    run: str
    files: int
    nbytes: int
    rows: int
    values: int
    damaged: tuple[Damage, ...] = ()
    lost: tuple[Damage, ...] = ()
    unfinished: tuple[Unfinished, ...] = ()
    superseded: tuple[str, ...] = ()
    unnamed: tuple[Unnamed, ...] = ()

    @property
    def is_whole(self) -> bool:
        """True if nothing is damaged, or all that is was marked as lost."""
        return not self.damaged

    def to_json(self) -> dict[str, Any]:
        """Return the report in the types of JSON.

        Returns:
            The attributes, and `is_whole`.
        """
        return {"is_whole": self.is_whole, **asdict(self)}

    def __str__(self) -> str:
        count = len(self.damaged)
        state = "whole" if not count else f"{count} file{' is' if count == 1 else 's are'} damaged or missing"
        return (
            f"{self.run}: {state} ({self.files} files, {self.nbytes / 1e6:.1f} MB, {self.rows} saved tensors, "
            f"{self.values} raw values)"
        )
