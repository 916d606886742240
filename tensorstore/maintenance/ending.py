"""The check before a run is marked as ended."""

from __future__ import annotations

from ..storage.open import Storage
from ..write.lease import Observer, in_use, read_leases


def check_no_writer(storage: Storage, worker: str | None = None) -> None:
    """Check that no living process writes to a run, or as one of its workers.

    Args:
        storage: The run.
        worker: The worker; None for all.

    Raises:
        RunInUse: A process does.
    """
    leases = (lease for lease in read_leases(storage) if worker in (None, lease.worker))
    for lease in Observer(storage).alive(leases):
        raise in_use(storage, lease, "mark it as ended with --force")
