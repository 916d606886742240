"""The runs in a tree of folders with event files. A folder may be a run, or one mode of a run."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...errors import RunNotFound
from ...mode import ModeKeys
from ...storage.base import join
from ...storage.open import Storage, open_storage
from ..modes import MODE_OF_WORD, PREFERENCE
from ..sources import open_source

_MARK = "tfevents"
_DEPTH = 8


@dataclass(frozen=True, slots=True)
class EventFolder:
    """A folder of event files, which is a mode of a run."""

    mode: ModeKeys
    prefix: str
    """The prefix of its tensors' names; empty unless several folders have the same mode."""
    files: list[str]
    """The files, sorted by name and so by time."""


@dataclass(slots=True)
class EventRun:
    """A run and its folder, relative to the source."""

    name: str
    folders: list[EventFolder] = field(default_factory=list)

    @property
    def modes(self) -> list[ModeKeys]:
        """The modes in the order of their numbers."""
        return sorted({folder.mode for folder in self.folders}, key=lambda mode: mode.value)


def find_runs(
    source: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None
) -> tuple[Storage, list[EventRun]]:
    """Return the folder that is or contains `source`, and its runs. Raises RunNotFound if it has none."""
    storage, name = open_source(source, storage_options, lambda name: _MARK in name)
    if name:
        if name in storage.list("") and not storage.list(name):
            return storage, [EventRun("", [EventFolder(ModeKeys.GLOBAL, "", [name])])]
        storage = open_storage(os.fspath(source).rstrip("/"), storage_options, follow_links=True)
    files: dict[str, list[str]] = {}
    for path in _below(storage, "", _DEPTH):
        files.setdefault(path.rpartition("/")[0], []).append(path)
    if not files:
        raise RunNotFound(storage.url, f"there is no event file here: no file with {_MARK} in its name")
    return storage, _runs(files)


def _below(storage: Storage, folder: str, depth: int) -> Iterator[str]:
    for name in storage.list(folder):
        path = join(folder, name)
        below = list(_below(storage, path, depth - 1)) if depth else []
        yield from below
        if _MARK in name and not below:
            yield path


def _runs(files: Mapping[str, list[str]]) -> list[EventRun]:
    """Return the runs of folders with event files.

    A folder named after a mode belongs to the run in the folder above it. The files directly in the upper folder are
    then those of training, as TensorFlow's estimators write them.
    """
    of_modes: dict[str, dict[str, str]] = {}
    for folder in files:
        above, _, name = folder.rpartition("/")
        if name.lower() in MODE_OF_WORD:
            of_modes.setdefault(above, {})[name] = folder
    own = [folder for folder in files if folder.rpartition("/")[2].lower() not in MODE_OF_WORD]
    runs = []
    for name in sorted({*of_modes, *own}):
        run = EventRun(name)
        if name in own:
            run.folders.append(EventFolder(ModeKeys.TRAIN if name in of_modes else ModeKeys.GLOBAL, "", files[name]))
        below = of_modes.get(name, {})
        for each in sorted(below, key=lambda each: PREFERENCE.index(each.lower())):
            mode = MODE_OF_WORD[each.lower()]
            prefix = f"{each}/" if mode in run.modes else ""
            run.folders.append(EventFolder(mode, prefix, files[below[each]]))
        runs.append(run)
    return runs
