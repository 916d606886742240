"""The places where only the files of a run may be."""

from __future__ import annotations

import os
from collections.abc import Iterable

from ..errors import ConfigurationError
from ..format.schema import RUN_FILE
from ..storage.open import canonical_url
from .lease import is_of_run


def check_outside_runs(place: str | os.PathLike[str], runs: Iterable[str] = ()) -> None:
    """Raise ConfigurationError if a file or folder to write is among the files of a run on a disk, or one of `runs`.

    Readers and `rm` would take it for a file of the run. Elsewhere in a run's folder, other files may be.
    """
    url = canonical_url(place)
    parts = (url if "://" in url else os.path.realpath(url)).split("/")
    known = {canonical_url(run) for run in runs}
    for count in range(len(parts), 0, -1):
        folder, below = "/".join(parts[:count]), parts[count:]
        if folder in known or os.path.isfile(f"{folder}/{RUN_FILE}"):
            written = (below, [*below, "tensors", "0.parquet"], [*below, "events.out.tfevents.0"])
            if any(is_of_run("/".join(path)) for path in written):
                raise ConfigurationError(f"{url} is among the files of the run {folder}; choose another place")
