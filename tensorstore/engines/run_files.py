"""The URIs by which an engine reads the files of some runs. They number the runs, so that no query sees their paths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..forking import lazy
from ..format.schema import FINDINGS, INDEX, TENSORS
from ..format.verified_files import VerifiedFiles, verified_files
from ..storage.base import check_path
from ..storage.foreign_errors import missing
from ..storage.open import Storage

PROTOCOL = "tensortrial"
_FOLDERS = frozenset({INDEX, TENSORS, FINDINGS})


class RunFiles:
    """Runs with the URIs of their files: tensortrial://0/index/worker_0/….parquet is a file of the first run."""

    def __init__(self, storages: Sequence[Storage]) -> None:
        self._files = [verified_files(storage) for storage in storages]
        self._numbers = {storage.url: number for number, storage in enumerate(storages)}

    def uri(self, storage: Storage, path: str) -> str:
        """Return the URI of a file of one of these runs."""
        return f"{PROTOCOL}://{self._numbers[storage.url]}/{check_path(path)}"

    def find(self, uri: str) -> tuple[VerifiedFiles, str]:
        """Return the run and the path of a URI. Raises FileNotFoundError for files that no query needs."""
        number, _, path = uri.removeprefix(f"{PROTOCOL}://").partition("/")
        folder = path.partition("/")[0]
        if not (number.isdecimal() and int(number) < len(self._files)) or folder not in _FOLDERS:
            raise missing(uri)
        return self._files[int(number)], check_path(path)

    @lazy
    def filesystem(self) -> Any:
        """Return the fsspec filesystem that reads these URIs. Imports fsspec, which takes 0.1 s."""
        from ..storage.duckdb_filesystem import RunFileSystem

        return RunFileSystem(PROTOCOL, self.find)
