"""Notes and tags that people give a run. They are in a file of their own, and no file that the job wrote changes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ..errors import ConfigurationError, CorruptFile, NotARun
from ..format.checksum import document_bytes
from ..format.documents import from_object, read_document
from ..format.schema import NOTES_FILE, RUN_FILE
from ..storage.open import Storage, open_storage


@dataclass(frozen=True)
class Notes:
    """The notes of people about a run.

    Attributes:
        note: A text; "" for none.
        tags: Short texts by which runs are found, each once.
        archived: Whether the lists of the page leave the run out.
    """

    note: str = ""
    tags: list[str] = field(default_factory=list)
    archived: bool = False


def read_notes(storage: Storage) -> Notes:
    """Return the notes of a run, empty ones if nobody has written any.

    Raises:
        CorruptFile: The file of the notes is damaged.
    """
    try:
        return read_document(storage.read_document(NOTES_FILE), Notes)
    except FileNotFoundError:
        return Notes()
    except ValueError as exc:
        raise CorruptFile(NOTES_FILE, f"{exc}; delete it, or write new notes") from exc


def write_notes(storage: Storage, notes: Notes) -> Notes:
    """Write the notes of a run, with its tags sorted and each once. Return them.

    Raises:
        ConfigurationError: They are larger than a reader accepts.
        StorageError: The file cannot be written.
    """
    tags = sorted({tag.strip() for tag in notes.tags} - {""})
    written = Notes(notes.note.strip(), tags, notes.archived)
    storage.replace(NOTES_FILE, document_bytes(asdict(written)))
    return written


def annotate(
    path: str | os.PathLike[str],
    *,
    note: str | None = None,
    tags: Iterable[str] | None = None,
    archived: bool | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Notes:
    """Keep notes about a run, also while it is written: in the file `notes.json` in its folder.

    What is None stays as it is, so without arguments this returns what was noted.

    Args:
        path: Folder or URL of the run.
        note: A text, which replaces the one before; "" removes it.
        tags: Short texts, which replace those before.
        archived: Whether the lists of the page leave it out.
        storage_options: Options of fsspec for a URL.

    Returns:
        All that is noted about the run now.

    Raises:
        NotARun: No run is at `path`.
        ConfigurationError: An argument has another type; `tags` is one text instead of several.
        CorruptFile: The notes are damaged, and not all of them are replaced.
        StorageError: The file cannot be written.
    """
    if isinstance(tags, str):
        raise ConfigurationError(f"tags must be a list of texts such as [{tags!r}], got {tags!r}")
    storage = open_storage(path, storage_options)
    if RUN_FILE not in storage.list(""):
        raise NotARun(storage.url, f"it has no {RUN_FILE}, so it is not a run")
    given = {"note": note, "tags": None if tags is None else list(tags), "archived": archived}
    changed = {key: value for key, value in given.items() if value is not None}
    try:
        from_object(changed, Notes)
    except ValueError as exc:
        raise ConfigurationError(str(exc)) from exc
    before = Notes() if len(changed) == len(given) else read_notes(storage)
    return write_notes(storage, Notes(**{**asdict(before), **changed})) if changed else before
