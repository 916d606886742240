"""The files of a run, among others in its folder."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from ..errors import ConfigurationError
from ..storage.open import canonical_url
from . import schema

TEMPORARY = re.compile(r"(.*/)?\.([^/]+)\.[0-9a-f]{16}\.tmp", re.DOTALL)
"""The path of a file that is not published yet. A process that is killed leaves it."""
_DOCUMENTS = (schema.RUN_FILE, schema.MANIFEST, schema.STOP_FILE, schema.NOTES_FILE)
_FOLDERS = (schema.INDEX, schema.TENSORS, schema.FINDINGS, schema.LOST, schema.END, schema.LEASES, schema.COLLECTIONS)


def is_of_run(path: str) -> bool:
    """Return whether a path in a run's folder is that of a file of the run or of its system metrics."""
    if unpublished := TEMPORARY.fullmatch(path):
        path = "".join(unpublished.groups(""))
    folder, _, rest = path.removeprefix(f"{schema.SYSTEM}/").partition("/")
    if folder == "tensorboard":
        return rest.rpartition("/")[2].startswith("events.out.tfevents.")
    is_document = path.endswith((".json", ".parquet"))
    return is_document and (folder in _FOLDERS if rest else folder in _DOCUMENTS)


def check_outside_runs(place: str | os.PathLike[str], runs: Iterable[str] = ()) -> None:
    """Raise ConfigurationError if a file or folder to write is among the files of a run on a disk, or one of `runs`.

    Readers and `rm` would take it for a file of the run. Elsewhere in a run's folder, other files may be.
    """
    url = canonical_url(place)
    parts = (url if "://" in url else os.path.realpath(url)).split("/")
    known = {canonical_url(run) for run in runs}
    for count in range(len(parts), 0, -1):
        folder, below = "/".join(parts[:count]), parts[count:]
        if folder in known or os.path.isfile(f"{folder}/{schema.RUN_FILE}"):
            written = (below, [*below, "tensors", "0.parquet"], [*below, "events.out.tfevents.0"])
            if any(is_of_run("/".join(path)) for path in written):
                raise ConfigurationError(f"{url} is among the files of the run {folder}; choose another place")
