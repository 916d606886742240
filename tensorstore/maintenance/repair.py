"""Repair, which removes files that belong to no step of a run, and marks lost ones."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

from ..errors import AlreadyPublished
from ..format.index_types import IndexSummary
from ..format.schema import COLLECTIONS, END, INDEX, MANIFEST, TENSORS, LostInfo, lost_path
from ..mode import check_not_negative
from ..read.verify import Damage, Unnamed, Verification, verify_run
from ..snapshot.index_files import read_summaries
from ..snapshot.manifest import write_manifest
from ..snapshot.snapshot import run_info, take
from ..storage.open import Storage, open_storage
from ..write.lease import Observer, check_unused
from .compaction import DELETE_OLDER_THAN_SECONDS


@dataclass(frozen=True)
class Repair:
    """The result of `repair`.

    Attributes:
        removed: The removed files: raw values that no index file names, temporary files, and a manifest that is damaged
            or names damaged files. A manifest is written again if the run is otherwise whole.
        kept: Such files that were kept: young ones, and values whose index file is lost.
        marked: The files that were marked as lost.
        damaged: Damaged or missing files that cannot be marked: `run.json`, claims, end marks, findings, and files with
            errors of the file system, which may be temporary.
        is_dry_run: Whether nothing was changed, and this is only the plan.
    """

    removed: tuple[str, ...]
    kept: tuple[str, ...]
    marked: tuple[str, ...]
    damaged: tuple[Damage, ...]
    is_dry_run: bool = False


def repair(
    path: str | os.PathLike[str],
    *,
    dry_run: bool = False,
    force: bool = False,
    delete_older_than: float = DELETE_OLDER_THAN_SECONDS,
    storage_options: Mapping[str, Any] | None = None,
    progress: bool = False,
) -> Repair:
    """Remove files that belong to no step of a run, and mark lost ones.

    The run is verified first. Raw values that no index file names, and temporary files, are removed once they are older
    than `delete_older_than`. Damaged or missing index files and raw values are marked as lost: they are not changed,
    and `verify` lists them as lost afterwards. A manifest that is damaged, or names such files, is removed. Undamaged
    files are never changed. A repair may be interrupted and repeated.

    Args:
        path: Folder or URL of the run.
        dry_run: Change nothing, and return the plan.
        force: Repair the run although a process writes to it.
        delete_older_than: Seconds for which a file is kept that no index file names.
        storage_options: Options of fsspec for a URL.
        progress: Whether to show a progress bar, if tqdm is installed.

    Returns:
        The removed, kept, marked and damaged files.

    Raises:
        RunInUse: A living process writes to the run, and `force` is not set.
        RunNotFound: Nothing is at `path`.
        NotARun: Something else is at `path`, or the `run.json` is damaged.
        MissingCollectionFiles: No worker has begun to save.
        UnknownFormat: A later release wrote the run.
        StorageError: The file system or the object store refused an operation.
        ConfigurationError: `delete_older_than` is negative.
    """
    check_not_negative("delete_older_than", delete_older_than)
    storage = open_storage(path, storage_options)
    run_info(storage)
    if not force:
        check_unused(Observer(storage), storage, "repair it with force=True (--force)")
    return _Repairer(storage, verify_run(storage, progress), delete_older_than, dry_run).run()


class _Repairer:
    def __init__(self, storage: Storage, report: Verification, delete_older_than: float, dry_run: bool) -> None:
        self._storage, self._report = storage, report
        self._delete_older_than, self._dry_run = delete_older_than, dry_run
        # The run is read again, because a compaction may have named files since the verification.
        self._index = take(storage).index

    def run(self) -> Repair:
        # The marks are written first, because they change no file that could be needed.
        marked = [damage for damage in self._report.damaged if _may_be_marked(damage)]
        for damage in marked:
            self._mark(damage)
        removed, kept = list[str](), list[str]()
        unnamed = [each for each in self._report.unnamed if each.kind != "other"]
        unnamed.sort(key=lambda each: (each.worker or "", each.path))
        for worker, files in groupby(unnamed, lambda each: each.worker):
            for file in self._of_worker(worker, list(files), kept):
                if not self._dry_run:
                    self._storage.remove(file.path)
                removed.append(file.path)
        repaired = [damage.path for damage in marked]
        if self._is_manifest_wrong():
            removed.append(MANIFEST)
            repaired.append(MANIFEST)
            if not self._dry_run:
                self._storage.remove(MANIFEST)
                write_manifest(self._storage)  # if only the manifest was damaged
        rest = tuple(damage for damage in self._report.damaged if damage.path not in repaired)
        paths = tuple(damage.path for damage in marked)
        return Repair(tuple(sorted(removed)), tuple(sorted(kept)), paths, rest, self._dry_run)

    def _is_manifest_wrong(self) -> bool:
        """Return whether the run has a manifest that is damaged, or names files that are damaged or missing."""
        if MANIFEST not in self._storage.list(""):
            return False
        return any(
            damage.path.startswith((MANIFEST, f"{INDEX}/", f"{COLLECTIONS}/", f"{END}/")) and not damage.may_pass
            for damage in self._all_damage()
        )

    def _mark(self, damage: Damage) -> None:
        info = LostInfo(
            damage.path,
            damage.reason,
            datetime.now(UTC).isoformat(),
            damage.worker,
            list(damage.steps),
            list(damage.tensors),
        )
        if not self._dry_run:
            with suppress(AlreadyPublished):
                self._storage.create(lost_path(damage.path), info.to_bytes())

    def _of_worker(self, worker: str | None, files: list[Unnamed], kept: list[str]) -> list[Unnamed]:
        """Return the files of a worker to remove, and add the others to `kept`."""
        named = self._named(worker)
        found = []
        for file in files:
            is_needed = file.kind == "chunk" and (named is None or file.path in named)
            if is_needed or not self._is_old(file.path):
                kept.append(file.path)
            else:
                found.append(file)
        return found

    def _named(self, worker: str | None) -> set[str] | None:
        """Return the chunks that the worker's index files name; None if an index file is lost."""
        index = self._index.get(worker or "")
        if index is None or index.damaged:
            return None
        if any(each.worker == worker and each.path.startswith(f"{INDEX}/") for each in self._all_damage()):
            # A lost index file may have named any chunk, and the values are all that is left of its steps.
            return None
        named = set[str]()
        for _, _, summary in read_summaries(self._storage, [*index.files, *index.superseded]):
            if not isinstance(summary, IndexSummary):
                return None
            named.update(summary.chunks)
        return named

    def _all_damage(self) -> tuple[Damage, ...]:
        return self._report.damaged + self._report.lost

    def _is_old(self, path: str) -> bool:
        try:
            written, now = self._storage.written_at(path)
        except FileNotFoundError:
            return False
        return now - written >= self._delete_older_than


def _may_be_marked(damage: Damage) -> bool:
    return damage.path.startswith((f"{INDEX}/", f"{TENSORS}/")) and not damage.may_pass
