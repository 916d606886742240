"""Verification of a run by its path, which also works if the run cannot be opened."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ..errors import CorruptFile, NotARun
from ..format.schema import RUN_FILE
from ..read.verify import Verification, verify_run
from ..snapshot.snapshot import run_info
from ..storage.open import open_storage


def verify(
    path: str | os.PathLike[str], *, storage_options: Mapping[str, Any] | None = None, progress: bool = False
) -> Verification:
    """Read every byte of a run, and return its damaged, unfinished and unneeded parts.

    `Trial.verify` does the same. This also works for a run whose `run.json` is damaged, so that it cannot be opened.

    Args:
        path: Folder or URL of the run.
        storage_options: Options of fsspec for a URL.
        progress: Whether to show a progress bar, if tqdm is installed.

    Returns:
        The report. `is_whole` is True if nothing is damaged.

    Raises:
        RunNotFound: Nothing is at `path`.
        NotARun: Something else is at `path`.
        MissingCollectionFiles: No worker has begun to save.
        UnknownFormat: A later release wrote the run.
        StorageError: The run cannot be listed.
    """
    storage = open_storage(path, storage_options)
    try:
        run_info(storage)
    except NotARun as exc:
        # A damaged run.json is reported. Without the file there is nothing to verify.
        if RUN_FILE not in storage.list("") or isinstance(exc.__cause__, CorruptFile):
            raise
    return verify_run(storage, progress)
