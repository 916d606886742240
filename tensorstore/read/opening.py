"""Opening one run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ..engines.base import Engine
from ..snapshot.step_range import StepRange
from ..storage.open import open_storage
from .run_file import wait_for_run
from .trial import Trial


def create_trial(
    path: str | os.PathLike[str],
    name: str | None = None,
    range_steps: StepRange | None = None,
    *,
    timeout: float | None = None,
    storage_options: Mapping[str, Any] | None = None,
    engine: Engine | None = None,
    verify: bool = True,
    **ignored: Any,
) -> Trial:
    """Open a run for reading, also while it is being written.

    Args:
        path: The run's folder, or an fsspec URL such as `s3://bucket/run`.
        name: The name of the trial; the last part of the path if None.
        range_steps: Restricts the trial to global steps a <= s < b of (a, b). None for either leaves that side open.
        timeout: Seconds to wait for a run to appear; None raises at once if there is none.
        storage_options: Options for fsspec.
        engine: The SQL engine: DuckDB if None, or for instance a SparkEngine.
        verify: Compare raw values with their digests when they are read.
        **ignored: `parallel`, `check`, `index_mode`, `cache`, `profiler` and `output_dir`, which smdebug had. They have
            no effect.

    Returns:
        The open run.

    Raises:
        RunNotFound: There is nothing at the path.
        NotARun: There are files at the path, but no run of this project.
        MissingCollectionFiles: No worker of the run has begun to save.
        UnknownFormat: A later release wrote the run.
        ConfigurationError: `range_steps` is empty.
        TypeError: An unexpected keyword argument was passed.
    """
    unknown = set(ignored) - {"parallel", "check", "index_mode", "cache", "profiler", "output_dir"}
    if unknown:
        raise TypeError(f"create_trial() got an unexpected argument {sorted(unknown)[0]!r}")
    storage = open_storage(path, storage_options)
    return Trial(storage, wait_for_run(storage, timeout), name, range_steps, engine, verify)
