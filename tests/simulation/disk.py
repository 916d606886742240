"""The files of a simulated disk or bucket: what is written, what is durable, and what old listings show."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random

WRITEBACK_SECONDS = 40.0
"""After so long, an operating system has written everything to the disk by itself."""


@dataclass(eq=False)
class Inode:
    """The contents of a file, which never change, and when it was written or touched."""

    data: bytes
    written_at: float
    touched_at: float
    synced: bool = False


@dataclass
class _Change:
    at: float
    inode: Inode | None


@dataclass
class Disk:
    """The files of one run, by path.

    On a disk, what was written survives a loss of power only if it was synced, or is older than `WRITEBACK_SECONDS`:
    of each entry of a folder an earlier state may come back, and of an unsynced file any part. In a bucket everything
    survives that was put.
    """

    is_local: bool
    now: Callable[[], float]
    files: dict[str, Inode] = field(default_factory=dict)
    _durable: dict[str, Inode] = field(default_factory=dict)
    _pending: dict[str, list[_Change]] = field(default_factory=dict)
    _log: list[tuple[float, str, bool]] = field(default_factory=list)

    def put(self, path: str, data: bytes, durable: bool = False) -> None:
        """Write a file whole, synced if it replaces another one or is `durable`; then its name is synced, too."""
        replaces = path in self.files
        self._set(path, Inode(data, self.now(), self.now(), synced=replaces or durable))
        if durable:
            self._sync_names(path)

    def remove(self, path: str, durable: bool = False) -> None:
        """Delete a file, if it exists."""
        if path in self.files:
            self._set(path, None)
        if durable:
            self._sync_names(path)

    def sync(self, path: str) -> None:
        """Make a file durable, and the entries of its folder."""
        self.files[path].synced = True
        self._sync_names(path)

    def _sync_names(self, path: str) -> None:
        folder = path.rpartition("/")[0]
        for other in [other for other in self._pending if other.rpartition("/")[0] == folder]:
            self._make_durable(other, len(self._pending[other]))

    def names(self, folder: str, since: float = 0.0, hides: Callable[[], bool] | None = None) -> list[str]:
        """Return the paths below a folder, without the changes after the time `since` for which `hides()` is true."""
        prefix = f"{folder}/" if folder else ""
        found = {path for path in self.files if path.startswith(prefix)}
        if hides is not None:
            hidden: set[str] = set()
            for at, path, existed in reversed(self._log):
                if at <= since:
                    break
                if path.startswith(prefix) and (path in hidden or hides()):
                    hidden.add(path)
                    (found.add if existed else found.discard)(path)
        return sorted(found)

    def cut_power(self, rng: Random) -> None:
        """Lose what is not durable, or only some of it."""
        if self.is_local:
            self.write_back()
            for path, changes in list(self._pending.items()):
                self._make_durable(path, rng.randint(0, len(changes)))
            # What was lost does not come back with the next loss of power.
            self._pending.clear()
            self.files = {path: _torn(inode, rng) for path, inode in self._durable.items()}
            self._durable = dict(self.files)
        self._log.clear()

    def write_back(self) -> None:
        """Make everything durable that the operating system has had the time to write."""
        before = self.now() - WRITEBACK_SECONDS
        for path, changes in list(self._pending.items()):
            self._make_durable(path, sum(change.at <= before for change in changes))
        for inode in self._inodes():
            inode.synced = inode.synced or inode.written_at <= before

    def _inodes(self) -> Iterable[Inode]:
        yield from self.files.values()
        yield from self._durable.values()

    def _set(self, path: str, inode: Inode | None) -> None:
        self._log.append((self.now(), path, path in self.files))
        if inode is None:
            del self.files[path]
        else:
            self.files[path] = inode
        self._pending.setdefault(path, []).append(_Change(self.now(), inode))
        if not self.is_local:
            self._make_durable(path, 1)
            if inode is not None:
                inode.synced = True

    def _make_durable(self, path: str, count: int) -> None:
        changes = self._pending.pop(path)
        if count:
            inode = changes[count - 1].inode
            if inode is None:
                self._durable.pop(path, None)
            else:
                self._durable[path] = inode
        if changes[count:]:
            self._pending[path] = changes[count:]


def _torn(inode: Inode, rng: Random) -> Inode:
    """Return the file as it is after a loss of power."""
    if inode.synced or rng.random() < 0.3:
        return Inode(inode.data, inode.written_at, inode.touched_at, synced=True)
    length = rng.choice([0, rng.randint(0, len(inode.data)), len(inode.data)])
    zeros = bytes(len(inode.data) - length) if rng.random() < 0.5 else b""
    return Inode(inode.data[:length] + zeros, inode.written_at, inode.touched_at, synced=True)
