"""Opens the runs that a page shows, each once and by itself: the page needs no views over all of them until a query."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import RunNotFound, TensorTrialError
from ..parallel import in_threads
from ..read.opening import create_trial
from ..read.run_search import RunSearch, short_names
from ..read.runs import RunLocations, Runs, open_runs
from ..read.trial import Trial

_PARALLEL = 8
_Damaged = Mapping[str, TensorTrialError]


def open_trials(
    runs: Runs | RunLocations, storage_options: Mapping[str, Any] | None = None
) -> tuple[list[Trial], _Damaged]:
    """Open runs, by name.

    Args:
        runs: Open runs, or what `open_runs` takes.
        storage_options: Options for fsspec.

    Returns:
        The runs, and what could not be opened, by its path, and why.

    Raises:
        RunNotFound: No run can be opened.
        ConfigurationError: The list is empty.
    """
    if isinstance(runs, Runs):
        return [runs.trial(name) for name in runs.names], runs.damaged
    locations = [runs] if isinstance(runs, str | os.PathLike | Trial) else list(runs)
    if not locations or any(isinstance(each, Trial) for each in locations):
        return open_trials(open_runs(locations, storage_options=storage_options))
    return _opened([os.fspath(each) for each in locations if not isinstance(each, Trial)], storage_options)


def _opened(locations: Sequence[str], options: Mapping[str, Any] | None) -> tuple[list[Trial], _Damaged]:
    damaged = dict[str, TensorTrialError]()

    def find(location: str) -> list[str]:
        search, found = RunSearch(options), list[str]()
        try:
            found = [storage.url for storage in search.at(location)]
        except TensorTrialError as exc:
            damaged[location] = exc
        damaged.update(search.damaged)
        if not found and not damaged:
            damaged[location] = RunNotFound(location, "there is no run here, nor in the folders below")
        return found

    def open_one(url: str, name: str) -> Trial | None:
        try:
            return create_trial(url, name, storage_options=options)
        except TensorTrialError as exc:
            damaged[url] = exc
        except FileNotFoundError as exc:
            damaged[url] = RunNotFound(url, f"it is incomplete: {exc}")
        return None

    urls = list(dict.fromkeys(url for found in in_threads(find, locations, _PARALLEL) for url in found))
    names = short_names(urls)
    opened = in_threads(lambda url: open_one(url, names[url]), urls, _PARALLEL)
    trials = [each for each in opened if each is not None]
    if not trials:
        errors = list(damaged.values())
        if len(errors) == 1:
            raise errors[0]
        reasons = "; ".join(map(str, errors[:3])) + (f"; and {len(errors) - 3} more" if len(errors) > 3 else "")
        raise RunNotFound(", ".join(locations), f"no run can be opened: {reasons}")
    return sorted(trials, key=lambda trial: trial.name), damaged
