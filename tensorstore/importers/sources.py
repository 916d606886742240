"""The files that another program has laid out in folders."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import quote

from ..errors import RunNotFound
from ..storage.base import join
from ..storage.open import Storage, open_storage

IsWanted = Callable[[str], bool]
"""Returns whether a file of this name is wanted."""


def open_source(
    source: str | os.PathLike[str], storage_options: Mapping[str, Any] | None, is_wanted: IsWanted
) -> tuple[Storage, str]:
    """Return a folder, and the name of the file in it if `source` is the path of a wanted file, else an empty text."""
    text = os.fspath(source).rstrip("/")
    folder, _, name = text.rpartition("/")
    if not is_wanted(name):
        return open_storage(text, storage_options, follow_links=True), ""
    return open_storage(folder or ("/" if text.startswith("/") else "."), storage_options, follow_links=True), name


def find_files(
    source: str | os.PathLike[str], storage_options: Mapping[str, Any] | None, is_wanted: IsWanted, depth: int
) -> tuple[Storage, list[str]]:
    """Return the folder that is `source`, or holds it, and the wanted files, sorted. Raises RunNotFound for a file."""
    storage, name = open_source(source, storage_options, is_wanted)
    if not name:
        return storage, sorted(files_below(storage, is_wanted, depth))
    if name not in storage.list(""):
        raise RunNotFound(os.fspath(source).rstrip("/"), "there is no such file")
    return storage, [name]


def files_below(storage: Storage, is_wanted: IsWanted, depth: int, folder: str = "") -> Iterator[str]:
    """Yield the paths of the wanted files in a folder and in the folders below it, so many levels deep."""
    for name in storage.list(folder):
        path = join(folder, name)
        if is_wanted(name):
            yield path
        elif depth:
            yield from files_below(storage, is_wanted, depth - 1, path)


def url_of(storage: Storage, path: str) -> str:
    """Return the URL of a file or folder of a source; that of the source itself for an empty path."""
    return f"{storage.url}/{path}" if path else storage.url


def url_below(target: str | os.PathLike[str], run: str) -> str:
    """Return where one of several runs goes, with its name quoted; the target itself for a run without a name."""
    folder = os.fspath(target).rstrip("/")
    parts = [quote(part, safe=" =,+@~") for part in run.split("/") if part not in ("", ".", "..")]
    return "/".join([folder, *parts])
