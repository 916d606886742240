"""Statistics that were not saved, computed from raw values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

from ..progress import progress_bar
from ..read.run_reader import RunReader
from ..read.trial import Trial, run_reader_of
from ..statistics.single import statistics
from .selection import VALUE, ZERO_FRACTION, Selection

_AT_ONCE = 64
"""Raw values that are read at once."""
_MOST_KEPT = 500_000
_LACKING = """
    select name, worker, global_step, chunk, row_group, row
    from ({rows}) where value is null and chunk is not null
    order by global_step, name, worker
"""

_Key = tuple[Any, ...]
_kept: WeakKeyDictionary[RunReader, dict[tuple[str, _Key], float | None]] = WeakKeyDictionary()
"""The computed statistics, by the statistic and the location of the raw value, which never changes."""


def with_raw(trial: Trial, chosen: Selection) -> Selection:
    """Return a selection of one run with the statistic also of tensors that were saved as raw values only."""
    if chosen.statistic in (VALUE, ZERO_FRACTION):
        return chosen
    keys = trial.sql(_LACKING.format(rows=chosen.rows), chosen.parameters).fetchall()
    reader = run_reader_of(trial)
    known = _kept.setdefault(reader, {})
    missing = [key for key in keys if (chosen.statistic, key) not in known]
    if len(known) + len(missing) > _MOST_KEPT:
        known.clear()
        missing = list(keys)
    with progress_bar(len(missing), True, f"compute {chosen.statistic}", "tensor") as advance:
        for first in range(0, len(missing), _AT_ONCE):
            some = missing[first : first + _AT_ONCE]
            known |= {(chosen.statistic, key): value for key, value in _computed(reader, some, chosen.statistic)}
            advance(len(some))
    return replace(chosen, computed=tuple((*key[:3], known.get((chosen.statistic, key))) for key in keys))


def _computed(reader: RunReader, keys: Sequence[_Key], statistic: str) -> Iterator[tuple[_Key, float | None]]:
    saved = [reader.saved_row(name, step, worker) for name, worker, step, *_ in keys]
    there = [(key, row) for key, row in zip(keys, saved, strict=True) if row is not None and row.has_raw]
    for (key, _), value in zip(there, reader.read([row for _, row in there]), strict=True):
        yield key, statistics(value, (statistic,)).get(statistic)
