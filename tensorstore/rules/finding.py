"""Findings of rules, which are stored in the run, in a small file for each flush."""

from __future__ import annotations

import logging
import math
import time
import uuid
from contextlib import suppress
from dataclasses import asdict, astuple, dataclass, field
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from ..errors import FileError
from ..format.arrow_arrays import table
from ..format.index_reader import read_batches
from ..format.index_writer import sealed_parquet
from ..format.schema import FINDINGS, FINDINGS_SCHEMA
from ..html_table import html_table
from ..read.run_queries import parquet_files
from ..storage.open import Storage

logger = logging.getLogger("tensortrial.rules")

_COMPARED = FINDINGS_SCHEMA.remove(FINDINGS_SCHEMA.get_field_index("found_at"))
"""The columns by which findings of two watches are compared."""


def three_digits(number: float) -> str:
    """Return a distance, a ratio or a duration as people write it: 0.00123, 12.3, 1,190; 1.23e+06 from a million on."""
    return f"{number:,.0f}" if 999.5 <= abs(number) < 999_999.5 else f"{number:.3g}"


@dataclass(frozen=True)
class Finding:
    """A finding: the condition of a rule was met, or the rule could not run.

    Attributes:
        rule: Name of the rule, or the name in its configuration.
        step: Global step; None for a finding about the run as a whole.
        mode: Name of the mode of the step.
        worker: Name of the worker.
        tensor: Name of the tensor.
        observed: Number that crossed the threshold.
        threshold: The threshold.
        sentence: Description for people.
        failed: True if the rule itself failed. `sentence` says why, and the rule is not evaluated any further.
        found_at: Time of the finding, in UTC.
    """

    rule: str
    step: int | None
    mode: str | None
    worker: str | None
    tensor: str | None
    observed: float | None
    threshold: float | None
    sentence: str
    failed: bool = False
    found_at: datetime = field(default_factory=lambda: datetime.now(UTC))

    def __str__(self) -> str:
        where = "" if self.step is None else f"step {self.step}  "
        return f"{where}{self.rule}: {self.sentence}"

    def to_json(self) -> dict[str, Any]:
        """Return the finding as values of JSON.

        Returns:
            The attributes by name; `found_at` in ISO 8601. NaN and infinities are texts.
        """
        document = {**asdict(self), "found_at": self.found_at.isoformat()}
        return {
            key: str(value) if isinstance(value, float) and not math.isfinite(value) else value
            for key, value in document.items()
        }


class Findings(list[Finding]):
    """A list of findings, which a notebook shows as a table."""

    def _repr_html_(self) -> str:
        rows = ((_where(finding), finding.sentence) for finding in self)
        title = f"{len(self):,} findings" if len(self) != 1 else "1 finding"
        return html_table(title, rows)


def _where(finding: Finding) -> str:
    step = "" if finding.step is None else f"step {finding.step}, "
    return f"{step}{finding.rule}" + (" could not run" if finding.failed else "")


class FindingLog:
    """A writer of findings into a run. It publishes at most every `flush_seconds`, and at `flush`.

    Findings that an earlier watch has published are left out. If the run cannot be written to, that is logged once.
    With `record=False`, nothing is written.
    """

    def __init__(self, storage: Storage, flush_seconds: float = 1.0, record: bool = True) -> None:
        self._storage = storage
        self._flush_seconds = flush_seconds
        self._waiting: list[Finding] = []
        self._flushed_at = time.monotonic()
        self._is_recording = record
        self._earlier: set[str] | None = None

    def add(self, findings: list[Finding]) -> None:
        """Add findings, and publish if the last flush was `flush_seconds` ago."""
        self._waiting += findings
        self.tick()

    def tick(self) -> None:
        """Publish if the last flush was `flush_seconds` ago."""
        if self._waiting and time.monotonic() - self._flushed_at >= self._flush_seconds:
            self.flush()

    def flush(self) -> None:
        """Publish all findings that are not published yet, as one new file."""
        findings, self._waiting = self._waiting, []
        self._flushed_at = time.monotonic()
        if not findings or not self._is_recording:
            return
        try:
            if self._earlier is None:
                self._earlier = _published(self._storage)
            rows = list(map(astuple, findings))
            keys = _keys(table(FINDINGS_SCHEMA, rows))
            new = [row for row, key in zip(rows, keys, strict=True) if key not in self._earlier]
            if new:
                _write(self._storage, new)
        except (FileError, OSError) as exc:
            self._is_recording = False
            logger.warning("run %s: findings cannot be written into it: %s", self._storage.url, exc)


def _keys(rows: pa.Table) -> list[str]:
    """Return a text for each finding that differs from those of all others, whenever they were found."""
    return list(map(repr, rows.select(_COMPARED.names).to_pylist()))


def _published(storage: Storage) -> set[str]:
    """Return the keys of the findings in a run, without those in damaged files."""
    found = set[str]()
    for path in parquet_files(storage, FINDINGS):
        with suppress(FileError, FileNotFoundError):
            for rows in read_batches(path, storage.read(path), _COMPARED):
                found.update(_keys(rows))
    return found


def _write(storage: Storage, rows: list[tuple[Any, ...]]) -> None:
    # Several processes may evaluate rules on one run, so names are unique, and sort by time.
    name = f"{datetime.now(UTC):%Y%m%dT%H%M%S%f}-{uuid.uuid4().hex}.parquet"
    sink = storage.sink(f"{FINDINGS}/{name}")
    try:
        with sealed_parquet(sink, FINDINGS_SCHEMA, compression="zstd", write_statistics=False) as writer:
            writer.write_table(table(FINDINGS_SCHEMA, rows))
        sink.publish()
    finally:
        sink.abort()
