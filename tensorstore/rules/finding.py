"""What a rule finds, and where findings are kept: in the run, one small file a flush."""

from __future__ import annotations

import logging
import time
import uuid
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ..errors import FileError
from ..format.schema import FINDINGS, FINDINGS_SCHEMA
from ..storage.open import Storage

logger = logging.getLogger("tensortrial.rules")


@dataclass(frozen=True)
class Finding:
    """A rule's condition was met, or the rule could not run."""

    rule: str
    """The rule's name; in a configuration of several rules of one kind, the one given there."""
    step: int | None
    """The global step; None if it is about the run as a whole."""
    mode: str | None
    """The mode of the step."""
    worker: str | None
    tensor: str | None
    observed: float | None
    """The number that broke the threshold."""
    threshold: float | None
    sentence: str
    """What happened, for a person."""
    failed: bool = False
    """The rule itself failed: `sentence` says why, and the rule was evaluated no further."""
    found_at: datetime = field(default_factory=lambda: datetime.now(UTC))

    def __str__(self) -> str:
        where = "" if self.step is None else f"step {self.step}  "
        return f"{where}{self.rule}: {self.sentence}"

    def to_json(self) -> dict[str, Any]:
        """The finding as JSON can hold it."""
        return {**asdict(self), "found_at": self.found_at.isoformat()}


class FindingLog:
    """Keeps findings in a run. They are published at most every `flush_seconds`, and by `close`.

    Where the run cannot be written to, that is logged once, and the findings are only returned.
    """

    def __init__(self, storage: Storage, flush_seconds: float = 1.0) -> None:
        self._storage = storage
        self._flush_seconds = flush_seconds
        self._waiting: list[Finding] = []
        self._flushed_at = time.monotonic()
        self._refused = False

    def add(self, findings: list[Finding]) -> None:
        self._waiting += findings
        self.tick()

    def tick(self) -> None:
        """Publish what has waited long enough."""
        if self._waiting and time.monotonic() - self._flushed_at >= self._flush_seconds:
            self.flush()

    def flush(self) -> None:
        """Publish what is waiting, as one new file."""
        findings, self._waiting = self._waiting, []
        self._flushed_at = time.monotonic()
        if not findings or self._refused:
            return
        try:
            _write(self._storage, findings)
        except (FileError, OSError) as exc:
            self._refused = True
            logger.warning("run %s: findings are not kept in it: %s", self._storage.url, exc)

    def close(self) -> None:
        self.flush()


def _write(storage: Storage, findings: list[Finding]) -> None:
    # Several processes may evaluate rules on one run: names that no two of them give, and that sort by time.
    name = f"{datetime.now(UTC):%Y%m%dT%H%M%S%f}-{uuid.uuid4().hex}.parquet"
    sink = storage.sink(f"{FINDINGS}/{name}")
    try:
        table = pa.Table.from_pylist([asdict(finding) for finding in findings], schema=FINDINGS_SCHEMA)
        pq.write_table(table, sink.file, compression="zstd", write_statistics=False)
        sink.publish()
    except BaseException:
        sink.abort()
        raise
