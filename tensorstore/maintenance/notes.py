"""Notes and tags of people about a run, in a separate file, so that the job's files are not changed."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from ..errors import ConfigurationError, CorruptFile, NotARun, RunNotFound, TensorTrialError
from ..format.checksum import document_bytes
from ..format.documents import from_object, read_document
from ..format.schema import NOTES_FILE, RUN_FILE
from ..storage.open import Storage, open_storage

_LOCK_SECONDS = 10.0
_changing = threading.Lock()


@dataclass(frozen=True)
class Notes:
    """The notes of people about a run.

    Attributes:
        note: A text; "" for none.
        tags: Short texts by which runs are found, without duplicates.
        archived: True to leave the run out of the page's lists.
    """

    note: str = ""
    tags: list[str] = field(default_factory=list)
    archived: bool = False


def read_notes(storage: Storage) -> Notes:
    """Return the notes of a run, which are empty if nobody has written any.

    Raises:
        CorruptFile: The file of the notes is damaged.
    """
    try:
        return read_document(storage.read_document(NOTES_FILE), Notes)
    except FileNotFoundError:
        return Notes()
    except ValueError as exc:
        raise CorruptFile(NOTES_FILE, f"{exc}; delete it, or write new notes") from exc


def notes_of(storage: Storage) -> dict[str, Any]:
    """Return the notes of a run by their names. If they are damaged, the note is the error."""
    try:
        return asdict(read_notes(storage))
    except TensorTrialError as exc:
        return asdict(Notes(f"({exc})"))


def change_notes(
    storage: Storage, changes: Mapping[str, Any], added: Iterable[str] = (), removed: Iterable[str] = ()
) -> Notes:
    """Change some notes of a run, and return all of them, with sorted tags without duplicates.

    `changes` has the new values of attributes of Notes. Removed tags are also removed from the added ones.

    Raises:
        ConfigurationError: A value has another type, they are larger than a reader accepts, or a tag is blank.
        CorruptFile: The notes are damaged, and not all of them are replaced.
        StorageError: The file cannot be written.
    """
    try:
        from_object({"tags": [*added, *removed]}, Notes)
        given = asdict(from_object(changes, Notes))
    except ValueError as exc:
        raise ConfigurationError(str(exc)) from exc
    if blank := [tag for tag in (*added, *removed) if not tag.strip()]:
        raise ConfigurationError(f"a tag must not be blank, got {blank[0]!r}")
    # The lock is on a separate file, which is never replaced.
    with _changing, storage.locked(RUN_FILE, _LOCK_SECONDS):
        before = Notes() if changes.keys() >= given.keys() else read_notes(storage)
        now = replace(before, **{key: value for key, value in given.items() if key in changes})
        tags = {tag.strip() for tag in (*now.tags, *added)} - {tag.strip() for tag in removed} - {""}
        written = Notes(now.note.strip(), sorted(tags), now.archived)
        storage.replace(NOTES_FILE, document_bytes(asdict(written)))
    return written


def annotate(
    path: str | os.PathLike[str],
    *,
    note: str | None = None,
    tags: Iterable[str] | None = None,
    add_tags: Iterable[str] = (),
    remove_tags: Iterable[str] = (),
    archived: bool | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Notes:
    """Write notes about a run into the file `notes.json` in its folder, also while the run is written.

    Arguments that are None change nothing, so without arguments this returns the notes. On a file system, no concurrent
    change is lost.

    Args:
        path: Folder or URL of the run.
        note: A text, which replaces the previous one; "" removes it.
        tags: Short texts, which replace the previous ones.
        add_tags: Tags to add to the previous ones.
        remove_tags: Tags to remove.
        archived: Whether the lists of the page leave it out.
        storage_options: Options of fsspec for a URL.

    Returns:
        All notes of the run.

    Raises:
        RunNotFound: Nothing is at `path`.
        NotARun: The files at `path` are not a run.
        ConfigurationError: An argument has another type; tags are one text instead of several, or a tag to add or
            remove is blank.
        CorruptFile: The notes are damaged, and not all of them are replaced.
        StorageError: The file cannot be written.
    """
    for name, given in (("tags", tags), ("add_tags", add_tags), ("remove_tags", remove_tags)):
        if isinstance(given, str) or not (given is None or np.iterable(given)):
            raise ConfigurationError(f"{name} must be a list of texts such as ['paper'], got {given!r}")
    storage = open_storage(path, storage_options)
    if not storage.exists_any():
        raise RunNotFound(storage.url, "no run was found here")
    if RUN_FILE not in storage.list(""):
        raise NotARun(storage.url, f"it has no {RUN_FILE}, so it is not a run")
    values = {"note": note, "tags": None if tags is None else list(tags), "archived": archived}
    changes = {key: value for key, value in values.items() if value is not None}
    added, removed = ([] if each is None else list(each) for each in (add_tags, remove_tags))
    return change_notes(storage, changes, added, removed) if changes or added or removed else read_notes(storage)
