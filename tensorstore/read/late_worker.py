"""A worker that has not saved what another worker has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

_SHOWN = 3


@dataclass(frozen=True)
class LateWorker:
    """A worker of a running job that the newest saved steps wait for. A running worker is late by a flush or two.

    Attributes:
        worker: Its name.
        last_step: The last global step that it saved; None if it has saved none.
        saved_at: When it saved that, in UTC and by its own clock; None if it has saved none.
        newest_step: The last global step that any worker saved.
    """

    worker: str
    last_step: int | None
    saved_at: datetime | None
    newest_step: int

    @property
    def behind_seconds(self) -> float | None:
        """Seconds since it saved its last step; None if it has saved none."""
        if self.saved_at is None:
            return None
        return (datetime.now(UTC) - self.saved_at.replace(tzinfo=UTC)).total_seconds()

    def __str__(self) -> str:
        if self.last_step is None or self.saved_at is None:
            return f"{self.worker} has saved no step, and another worker has saved step {self.newest_step}"
        return (
            f"{self.worker} has saved nothing since step {self.last_step}, at {self.saved_at:%Y-%m-%d %H:%M:%S} UTC, "
            f"and another worker has saved step {self.newest_step}"
        )


def described(late: Sequence[LateWorker], url: str) -> str:
    """Return a sentence on the late workers of the run at `url`, and on what to do; '' if there are none."""
    if not late:
        return ""
    more = f"; and {len(late) - _SHOWN} more workers" if len(late) > _SHOWN else ""
    worker = late[0].worker
    names = "; ".join(map(str, late[:_SHOWN]))
    return f"{names}{more}. If {worker} was killed, run `tensortrial mark-ended {url} --worker {worker}`"
