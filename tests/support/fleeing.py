"""A storage in which every index file has been replaced once it is read, however often the run is listed."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from tensortrial.errors import FileError
from tensortrial.format.index_reader import read_rows
from tensortrial.format.index_types import read_summary
from tensortrial.format.index_writer import publish_compacted
from tensortrial.format.schema import flush_range_of
from tensortrial.storage.local import LocalStorage

_MOST = 20


class NeverEnds(Exception):
    """A file was read more often than any number of attempts that ends."""


class Fleeing(LocalStorage):
    """A storage whose index files are compacted, and deleted, before each read of their rows.

    Footers are read as they were listed: each listing shows other files, and all of them are missing soon afterwards.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(str(folder))
        self.flees = False
        self.fled = 0

    def size(self, path: str) -> int:
        self._flee(path)
        return super().size(path)

    def read(self, path: str) -> bytes | bytearray:
        self._flee(path)
        return super().read(path)

    def _flee(self, path: str) -> None:
        if not self.flees or not path.startswith("index/"):
            return
        self.fled += 1
        if self.fled > _MOST:
            raise NeverEnds(path)
        plain = LocalStorage(self.url)
        with suppress(FileNotFoundError, FileError):
            data = plain.read(path)
            flushes = flush_range_of(path)
            assert flushes is not None
            wider = f"{path.rpartition('/')[0]}/{flushes.first:08d}-{flushes.last + 1:08d}.parquet"
            summary = read_summary(path, bytes(data), len(data))
            publish_compacted(plain, wider, read_rows(path, data), summary)
            plain.remove(path)
