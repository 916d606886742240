"""The search for runs: at a path, below it, or where a pattern says."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..errors import StorageError, TensorTrialError
from ..format.schema import RUN_FILE
from ..storage.open import Storage, open_storage

# The number of levels below a folder that are searched for runs.
_DEPTH = 4


class RunSearch:
    """Finds the runs of a path: the run itself, those below it, or those that match a pattern."""

    def __init__(self, options: Mapping[str, Any] | None) -> None:
        self._options = options
        self.damaged: dict[str, TensorTrialError] = {}
        """Folders that could not be listed."""

    def at(self, location: str) -> Iterator[Storage]:
        head, *pattern = self._split(location)
        for found in self._matching(head, pattern) if pattern else [location]:
            yield from self._below(found, _DEPTH)

    def _split(self, location: str) -> list[str]:
        """Return the folder that a pattern begins with, and its parts from the first one with such a sign on."""
        parts = location.rstrip("/").split("/")
        first = next((i for i, part in enumerate(parts) if any(sign in part for sign in "*?[")), len(parts))
        # A folder may well have one in its name.
        if first < len(parts) and self._entries(open_storage(location, self._options)):
            first = len(parts)
        return ["/".join(parts[:first]) or ("/" if location.startswith("/") else "."), *parts[first:]]

    def _matching(self, folder: str, pattern: Sequence[str]) -> Iterator[str]:
        if not pattern:
            yield folder
            return
        for name in self._entries(open_storage(folder, self._options)):
            if name == pattern[0] or fnmatch.fnmatchcase(name, pattern[0]):
                yield from self._matching(f"{folder.rstrip('/')}/{name}", pattern[1:])

    def _below(self, location: str, depth: int) -> Iterator[Storage]:
        storage = open_storage(location, self._options)
        names = self._entries(storage)
        if RUN_FILE in names:
            yield storage
        elif depth:
            for name in names:
                yield from self._below(f"{location.rstrip('/')}/{name}", depth - 1)

    def _entries(self, storage: Storage) -> list[str]:
        try:
            return [name for name in storage.list("") if not name.startswith(".")]
        except StorageError as exc:
            self.damaged[storage.url] = exc
            return []


def short_names(urls: Sequence[str]) -> dict[str, str]:
    """Return the shortest ends of the paths that distinguish them, as UTF-8 can hold them."""
    names = {url: url.rpartition("/")[2] for url in urls}
    parts = 1
    while len(set(names.values())) < len(urls):
        parts += 1
        taken = list(names.values())
        names = {
            url: "/".join(url.split("/")[-parts:]) if taken.count(name) > 1 else name for url, name in names.items()
        }
    return {url: name.encode(errors="backslashreplace").decode() for url, name in names.items()}
