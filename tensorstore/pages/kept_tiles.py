"""A cache of tiles in the user's folder, so that a large run is not read each time that it is opened.

An index file never changes, and has a unique checksum. Cached tiles name their files by path and checksum, so they are
valid or ignored, but never stale. Nothing is written into a run.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np
from xxhash import xxh3_64_digest, xxh3_128_hexdigest

from ..errors import ConfigurationError
from ..storage.output_file import write_output
from ..truth import truth_of
from .grid import Grid

logger = logging.getLogger(__name__)

FOLDER_VARIABLE = "TENSORTRIAL_CACHE"
"""The variable with the folder; "off" for none."""
SIZE_VARIABLE = "TENSORTRIAL_CACHE_MB"
"""The variable with the limit of all files together, in megabytes of 10**6 bytes."""
_MOST_MEGABYTES = 1000
_VERSION = 1
_MAGIC = b"tensortrial tiles 1\n"
_DTYPES = ("<f8", "<f8", "<f8", "<i8", "<i8")
_CHECKSUM_BYTES = 8

Files = Mapping[str, int]
"""The checksums of index files, by path."""


class KeptTiles:
    """A folder of tiles. Several processes may use it at a time: a file is published whole, and the last one counts.

    After a failure to read or write it, the tiles are computed, without an error.

    Args:
        folder: The folder, which is made at the first write.
        most_bytes: The limit of its files' size. The least recently used files are removed.
        run: The identity of the run: its id and its location.
    """

    def __init__(self, folder: Path, most_bytes: int, run: str) -> None:
        self._folder, self._most_bytes, self._run = folder, most_bytes, run

    def load(self, key: str, files: Files) -> tuple[frozenset[str], Grid] | None:
        """Return tiles and the paths of their index files; None if there are no valid ones.

        Args:
            key: The choice and the width of the tiles.
            files: The current files of the run. Tiles of other files or contents are invalid.
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
            os.utime(path)  # it is now the most recently used one
        return found

    def save(self, key: str, files: Files, grid: Grid) -> None:
        """Write the tiles of some files into the cache. `key` is the choice and the width of the tiles."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_output(self._path(key), _encoded(files, grid))
            self._forget()
        except OSError as exc:
            logger.info("tiles are not kept in %s: %s", self._folder, exc)

    def _path(self, key: str) -> Path:
        return self._folder / f"{xxh3_128_hexdigest(json.dumps([_VERSION, self._run, key]).encode())}.tiles"

    def _forget(self) -> None:
        """Remove the least recently used files, and files that a killed process left."""
        found = []
        for entry in os.scandir(self._folder):
            if entry.name.endswith((".tiles", ".tmp")):
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


def kept_tiles(run_id: str, location: str) -> KeptTiles | None:
    """Return the cache for the tiles of a run that the environment configures; None if it is off.

    A copy of a run has its id, but may be damaged.

    Raises:
        ConfigurationError: The size is not a whole number.
    """
    chosen = os.environ.get(FOLDER_VARIABLE, "")
    if (truth := truth_of(chosen)) is False:
        return None
    size = os.environ.get(SIZE_VARIABLE, str(_MOST_MEGABYTES))
    if not size.isdecimal():
        raise ConfigurationError(f"{SIZE_VARIABLE} must be a whole number of megabytes, got {size!r}")
    try:
        folder = Path(chosen) if chosen and not truth else _cache_folder() / "tensortrial" / "tiles"
    except RuntimeError:  # a user without a home
        return None
    return KeptTiles(folder, int(size) * 1_000_000, f"{run_id} {location}")


def _cache_folder() -> Path:
    """Return the system's folder for caches."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    chosen = os.environ.get("XDG_CACHE_HOME", "")
    return Path(chosen) if os.path.isabs(chosen) else Path.home() / ".cache"


def _encoded(files: Files, grid: Grid) -> bytes:
    """Return a magic line, the length of the head, the head as JSON, the arrays, and a checksum of all of these."""
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
    return data + xxh3_64_digest(data)


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
