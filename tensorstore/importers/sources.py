"""The files and folders of other programs' sources."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import quote

from ..errors import RunExists, RunNotFound
from ..format.schema import RUN_FILE
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


def folders_of_runs(runs: Collection[str], source: str) -> dict[str, list[str]]:
    """Return the nested folders below the target of each of several runs, which are given by their paths in a source.

    No run goes into the folder of another, where readers would not find it: next to a run `a`, the run `a/b` goes to a
    folder of that name. The run of the source itself, whose path is empty, goes to a folder of the source's name.
    """
    own, known, found = source.rpartition("/")[2], set(runs), dict[str, list[str]]()
    while any(names_in(run)[:1] == [own] for run in runs):
        own += "_"
    for run in runs:
        names = names_in(run) or ([own] if len(runs) > 1 else [])
        above = next((count for count in range(1, len(names)) if "/".join(names[:count]) in known), len(names))
        found[run] = [*names[: above - 1], "/".join(names[above - 1 :])] if names else []
    return found


def open_target(
    target: str | os.PathLike[str], names: Sequence[str], storage_options: Mapping[str, Any] | None
) -> Storage:
    """Return the storage of nested folders below a target. Raises RunExists if a folder above it holds a run."""
    return open_storage(url_below(target, [_folder_name(name) for name in names], storage_options), storage_options)


def url_below(target: str | os.PathLike[str], folders: Sequence[str], storage_options: Mapping[str, Any] | None) -> str:
    """Return the path of nested folders below a target, the outermost one first.

    Raises:
        RunExists: A folder above the last one holds a run.
    """
    urls = ["/".join([os.fspath(target).rstrip("/"), *folders[:count]]) for count in range(len(folders) + 1)]
    for url in urls[:-1]:
        above = open_storage(url or target, storage_options)
        with suppress(FileNotFoundError):
            if above.size(RUN_FILE) >= 0:
                raise RunExists(
                    above.url, "holds a run, in which readers look for no other runs: choose another target"
                )
    return urls[-1]


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
    """Return the names of the folders in a path; [] for an empty one."""
    return path.split("/") if path else []
