"""The files and folders of other programs' sources."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote

from ..errors import RunNotFound
from ..storage.base import join
from ..storage.open import Storage, open_storage

_LONGEST = 200  # the most bytes of a folder's name; file systems allow 255

IsWanted = Callable[[str], bool]
"""Returns whether a file of this name is wanted."""


def open_source(
    source: str | os.PathLike[str], storage_options: Mapping[str, Any] | None, is_wanted: IsWanted
) -> tuple[Storage, str]:
    """Return `source` as a folder and '', or, if it is the path of a wanted file, its folder and its name."""
    text = os.fspath(source).rstrip("/")
    folder, _, name = text.rpartition("/")
    if not is_wanted(name):
        return open_storage(text, storage_options, follow_links=True), ""
    return open_storage(folder or ("/" if text.startswith("/") else "."), storage_options, follow_links=True), name


def find_files(
    source: str | os.PathLike[str], storage_options: Mapping[str, Any] | None, is_wanted: IsWanted, depth: int
) -> tuple[Storage, list[str], str]:
    """Return the folder, which is `source` or contains it, the wanted files, sorted, and the URL of `source`.

    Raises:
        RunNotFound: The source is a wanted file that is missing.
    """
    storage, name = open_source(source, storage_options, is_wanted)
    if not name:
        return storage, sorted(files_below(storage, is_wanted, depth)), storage.url
    if name not in storage.list(""):
        raise RunNotFound(os.fspath(source).rstrip("/"), "there is no such file")
    return storage, [name], url_of(storage, name)


def files_below(storage: Storage, is_wanted: IsWanted, depth: int, folder: str = "") -> Iterator[str]:
    """Yield the paths of the wanted files in a folder and in the folders below it, at most `depth` levels deep."""
    for name in storage.list(folder):
        path = join(folder, name)
        if is_wanted(name):
            yield path
        elif depth:
            yield from files_below(storage, is_wanted, depth - 1, path)


def url_of(storage: Storage, path: str) -> str:
    """Return the URL of a file or folder of a source. An empty path is the source itself."""
    return f"{storage.url}/{path}" if path else storage.url


def url_below(target: str | os.PathLike[str], names: Iterable[str]) -> str:
    """Return the path of nested folders below a target. The outermost folder comes first."""
    return "/".join([os.fspath(target).rstrip("/"), *map(_folder_name, names)])


def _folder_name(name: str) -> str:
    """Return a folder name for any text: a single path component, and a different one for each text."""
    quoted = quote(name.encode("utf-8", "surrogateescape"), safe=" =,+@~()") or "%"
    if quoted.startswith("."):
        quoted = "%2E" + quoted[1:]
    if len(quoted) > _LONGEST:
        digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        quoted = f"{quoted[: _LONGEST - 20].rstrip('%')}-{digest}"
    return quoted


def names_in(path: str) -> list[str]:
    """Return the names of the folders in a path; () for an empty one."""
    return path.split("/") if path else []
