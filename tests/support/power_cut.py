"""A disk that shows what a loss of power would leave of a folder: only what was synced."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest


class SyncedDisk:
    """Keeps, at each fsync of this process, the content of the file or the names in the folder that was synced.

    Content that was not synced is lost, and so is a name of which the folder was not synced. With `names_survive`,
    each name survives at once and only content has to be synced, as on a file system that journals names alone.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, names_survive: bool = False) -> None:
        self._names_survive = names_survive
        self._content: dict[int, bytes] = {}
        self._names: dict[int, dict[str, tuple[int, bool]]] = {}
        self.syncs = 0
        real = os.fsync

        def fsync(number: int) -> None:
            real(number)
            self.syncs += 1
            status = os.fstat(number)
            if stat.S_ISDIR(status.st_mode):
                self._names[status.st_ino] = _names_in(os.readlink(f"/proc/self/fd/{number}"))
            else:
                self._content[status.st_ino] = Path(f"/proc/self/fd/{number}").read_bytes()

        monkeypatch.setattr(os, "fsync", fsync)

    def copy_survivors(self, folder: Path, target: Path) -> None:
        """Copy what would be left of `folder`, whose own name counts, too."""
        above = folder.parent
        names = {name: node for name, node in self._names_of(above).items() if name == folder.name}
        self._copy(names, above, target)

    def _names_of(self, folder: Path) -> dict[str, tuple[int, bool]]:
        return _names_in(str(folder)) if self._names_survive else self._names.get(folder.stat().st_ino, {})

    def _copy(self, names: dict[str, tuple[int, bool]], folder: Path, target: Path) -> None:
        target.mkdir(parents=True, exist_ok=True)
        for name, (inode, is_folder) in names.items():
            if is_folder:
                self._copy(self._names_of(folder / name), folder / name, target / name)
            else:
                (target / name).write_bytes(self._content.get(inode, b""))


def _names_in(folder: str) -> dict[str, tuple[int, bool]]:
    with os.scandir(folder) as entries:
        return {each.name: (each.inode(), each.is_dir(follow_symlinks=False)) for each in entries}
