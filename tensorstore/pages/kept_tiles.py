"""Tiles of closed files in a folder of the user, so that a large run is not read each time that it is opened.

A file of an index never changes, and has a checksum that no other one has. What is kept names the files that it was
made of by path and checksum, so it is right or of no use, never stale. Nothing is written into a run.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np
from xxhash import xxh3_64_digest, xxh3_128_hexdigest

from ..errors import ConfigurationError
from .grid import Grid

logger = logging.getLogger(__name__)

FOLDER_VARIABLE = "TENSORTRIAL_CACHE"
"""A folder; "off" for none."""
SIZE_VARIABLE = "TENSORTRIAL_CACHE_MB"
"""The most that all files together may take, in megabytes of 10**6 bytes."""
_MOST_MEGABYTES = 1000
_VERSION = 1
_MAGIC = b"tensortrial tiles 1\n"
_DTYPES = ("<f8", "<f8", "<f8", "<i8", "<i8")
_CHECKSUM_BYTES = 8

Files = Mapping[str, int]
"""The checksums of index files, by path."""


class KeptTiles:
    """A folder of tiles. Several processes may use one at a time; a file is published whole, and the last one counts.

    Every failure to read or write it is a reason to compute the tiles, and no error.

    Args:
        folder: The folder, which is made at the first write.
        most_bytes: What its files may take together: the ones that were not used for the longest time are removed.
        run: What the run is known by: its id, and where it is.
    """

    def __init__(self, folder: Path, most_bytes: int, run: str) -> None:
        self._folder, self._most_bytes, self._run = folder, most_bytes, run

    def load(self, key: str, files: Files) -> tuple[frozenset[str], Grid] | None:
        """Return tiles, and the paths of the index files that they are of; None if there are none of use.

        Args:
            key: What the tiles are of.
            files: The files of the run now. Tiles of others, or of other contents, are of no use.
        """
        path = self._path(key)
        try:
            data = path.read_bytes()
            found = _decoded(data, files)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as exc:
            logger.info("the kept tiles in %s are not used, and are made again: %s", path, exc)
            return None
        with suppress(OSError):
            os.utime(path)  # used last
        return found

    def save(self, key: str, files: Files, grid: Grid) -> None:
        """Keep tiles.

        Args:
            key: What they are of.
            files: The files that they are of.
            grid: The tiles.
        """
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            number, name = tempfile.mkstemp(prefix=".new-", dir=self._folder)
            try:
                with os.fdopen(number, "wb") as file:
                    file.writelines(_encoded(files, grid))
                os.replace(name, self._path(key))
            except BaseException:
                os.unlink(name)
                raise
            self._forget()
        except OSError as exc:
            logger.info("tiles are not kept in %s: %s", self._folder, exc)

    def _path(self, key: str) -> Path:
        return self._folder / f"{xxh3_128_hexdigest(json.dumps([_VERSION, self._run, key]).encode())}.tiles"

    def _forget(self) -> None:
        """Remove what was not used for the longest time, and what a killed process left."""
        found = []
        for entry in os.scandir(self._folder):
            if entry.name.endswith(".tiles") or entry.name.startswith(".new-"):
                with suppress(OSError):
                    about = entry.stat(follow_symlinks=False)
                    found.append((about.st_mtime, about.st_size, entry.path))
        total = sum(size for _, size, _ in found)
        for _, size, path in sorted(found):
            if total <= self._most_bytes:
                return
            with suppress(OSError):
                os.unlink(path)
            total -= size


def kept_tiles(run: str) -> KeptTiles | None:
    """Return the folder that the environment chooses for the tiles of a run, None if it chooses none.

    Raises:
        ConfigurationError: The size is not a whole number.
    """
    chosen = os.environ.get(FOLDER_VARIABLE, "")
    if chosen.lower() in ("off", "0", "no", "false"):
        return None
    size = os.environ.get(SIZE_VARIABLE, str(_MOST_MEGABYTES))
    if not size.isdecimal():
        raise ConfigurationError(f"{SIZE_VARIABLE} must be a whole number of megabytes, got {size!r}")
    try:
        folder = Path(chosen) if chosen else _cache_folder() / "tensortrial" / "tiles"
    except RuntimeError:  # a user without a home
        return None
    return KeptTiles(folder, int(size) * 1_000_000, run)


def _cache_folder() -> Path:
    """Return where the system keeps what can be made again."""
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    chosen = os.environ.get("XDG_CACHE_HOME", "")
    return Path(chosen) if os.path.isabs(chosen) else Path.home() / ".cache"


def _encoded(files: Files, grid: Grid) -> list[bytes]:
    """Return a magic line, the length of the head, the head as JSON, the arrays, and a checksum of all before it."""
    head = {
        "files": dict(files),
        "names": grid.names,
        "width": grid.width,
        "start": grid.start,
        "columns": grid.columns,
    }
    text = json.dumps(head).encode()
    arrays = [np.ascontiguousarray(each, kind).tobytes() for each, kind in zip(grid.arrays, _DTYPES, strict=True)]
    data = b"".join([_MAGIC, len(text).to_bytes(8, "little"), text, *arrays])
    return [data, xxh3_64_digest(data)]


def _decoded(data: bytes, files: Files) -> tuple[frozenset[str], Grid]:
    view = memoryview(data)[:-_CHECKSUM_BYTES]
    if not data.startswith(_MAGIC) or xxh3_64_digest(view) != data[-_CHECKSUM_BYTES:]:
        raise ValueError("the file is damaged")
    begin = len(_MAGIC) + 8
    length = int.from_bytes(view[len(_MAGIC) : begin], "little")
    head = json.loads(bytes(view[begin : begin + length]))
    if any(files.get(path) != checksum for path, checksum in head["files"].items()):
        raise ValueError("the run has other files now")
    shape = len(head["names"]), head["columns"]
    size = shape[0] * shape[1] * 8
    begin += length
    arrays = [
        np.frombuffer(view[begin + i * size : begin + (i + 1) * size], kind).reshape(shape)
        for i, kind in enumerate(_DTYPES)
    ]
    return frozenset(head["files"]), Grid(head["names"], head["width"], head["start"], *arrays)
