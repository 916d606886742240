"""The files that another program has laid out in folders."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote

from ..errors import RunNotFound
from ..storage.base import join
from ..storage.open import Storage, open_storage

_LONGEST = 200  # bytes of a folder's name, of the 255 that file systems allow

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
    """Return the folder that is `source`, or holds it, and the wanted files, sorted.

    Raises:
        RunNotFound: The source is a wanted file that is missing.
    """
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


def url_below(target: str | os.PathLike[str], names: Iterable[str]) -> str:
    """Return the folder below a target that has these names, from the outermost."""
    return "/".join([os.fspath(target).rstrip("/"), *map(_folder_name, names)])


def _folder_name(name: str) -> str:
    """Return a name as that of one folder: nothing in it leads elsewhere, and no two names have one folder."""
    quoted = quote(name.encode("utf-8", "surrogateescape"), safe=" =,+@~()") or "%"
    if quoted.startswith("."):
        quoted = "%2E" + quoted[1:]
    if len(quoted) > _LONGEST:
        digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        quoted = f"{quoted[: _LONGEST - 20].rstrip('%')}-{digest}"
    return quoted


def names_in(path: str) -> list[str]:
    """Return the names of folders in a path, none for an empty one."""
    return path.split("/") if path else []
