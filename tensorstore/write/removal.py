"""The removal of a run that another one replaces."""

from __future__ import annotations

from ..errors import RunInUse
from ..format import schema
from ..storage.open import Storage
from .lease import LeaseInfo, Observer, read_leases

_DOCUMENTS = (schema.RUN_FILE, schema.MANIFEST, schema.STOP_FILE, schema.NOTES_FILE)
_SAVED = (schema.INDEX, schema.TENSORS, schema.FINDINGS)
_FOLDERS = (*_SAVED, schema.LOST, schema.END, schema.LEASES, schema.COLLECTIONS)


def check_removable(observer: Observer, storage: Storage, own: LeaseInfo | None = None) -> None:
    """Check that no living process but the holder of `own` writes to a run.

    Raises:
        RunInUse: One does.
    """
    for lease in observer.alive(each for each in read_leases(storage) if each != own):
        remedy = "choose another folder: only a run that nobody writes to is replaced, moved or deleted"
        raise RunInUse(storage.url, lease.worker, str(lease.process), lease.started_at, remedy)


def remove_run(storage: Storage, kept: str = "") -> None:
    """Delete the files of a run and of its system metrics, but not the file `kept`. Files of other kinds stay."""
    found = [file.path for file in storage.walk() if _is_of_run(file.path) and file.path != kept]
    # A removal that is interrupted leaves a run that is refused, and can be replaced.
    for path in sorted(
        found, key=lambda path: (path == schema.RUN_FILE, path.startswith(f"{schema.COLLECTIONS}/"), path)
    ):
        storage.remove(path)


def _is_of_run(path: str) -> bool:
    folder, _, rest = path.removeprefix(f"{schema.SYSTEM}/").partition("/")
    if folder == "tensorboard":
        return rest.rpartition("/")[2].startswith("events.out.tfevents.")
    is_document = path.endswith((".json", ".parquet"))
    return is_document and (folder in _FOLDERS if rest else folder in _DOCUMENTS)
