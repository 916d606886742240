"""Statistics that were not saved. They are computed from raw values, and cached as long as their run is open."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from ..progress import progress_bar
from .derived import expression
from .single import statistics as statistics_of

USUAL = ("l2", "rms", "mean", "std", "min", "max", "abs_mean", "abs_max", "nan_count", "inf_count", "zero_count")
"""The statistics that are offered for tensors with only raw values."""

_AT_ONCE = 64
"""The number of raw values that are read at once."""
_MOST_KEPT = 500_000
_LACKING = """
    select name, worker, global_step, mode, mode_step, nbytes, chunk, row_group, row
    from tensors where ({where}) and chunk is not null and ({lacks})
    order by global_step, name, worker
"""
_JOINED = """(
    select * from tensors left join (
        select
            unnest(cast($raw_names as varchar[])) as name, unnest(cast($raw_workers as varchar[])) as worker,
            unnest(cast($raw_steps as bigint[])) as global_step, {values}
    ) using (name, worker, global_step)
)"""

_Key = tuple[Any, ...]


class Reader(Protocol):
    """A run whose rows and raw values are read."""

    @property
    def storage(self) -> Any:
        """The files of the run. If another run replaces it, this is another object."""

    def sql(self, query: str, parameters: dict[str, Any]) -> Any:
        """Return the rows of a query on the views of the run."""

    def saved_row(self, name: str, global_step: int, worker: str) -> Any:
        """Return the row of a tensor; None if it was not saved at the step."""

    def read(self, rows: Sequence[Any]) -> list[Any]:
        """Return the raw values of rows."""


_kept: WeakKeyDictionary[Any, dict[tuple[str, _Key], float | None]] = WeakKeyDictionary()
"""The computed statistics of a storage, by the statistic and the location of the raw value, which never changes."""


@dataclass(frozen=True)
class Computed:
    """Computed statistics of tensors with only raw values."""

    statistics: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...] = ()
    """Name, worker, global step, mode and step of the mode, and a value for each statistic."""
    left_out: int = 0
    """The number of steps with raw values that were not read, because of `most_bytes`."""

    @property
    def source(self) -> str:
        """The view `tensors` in SQL, joined with the computed statistics."""
        values = (f"unnest(cast($raw_{each} as double[])) as computed_{each}" for each in self.statistics)
        return _JOINED.format(values=", ".join(values)) if self.rows else "tensors"

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters of `source`."""
        names, workers, steps, _, _, *values = zip(*self.rows, strict=True) if self.rows else ((),) * 5
        columns = dict(
            zip(("names", "workers", "steps", *self.statistics), (names, workers, steps, *values), strict=False)
        )
        return {f"raw_{name}": list(column) for name, column in columns.items()} if self.rows else {}

    def expression(self, statistic: str) -> str:
        """Return SQL over `source` for a statistic: the saved one, else the computed one."""
        saved = expression(statistic)
        return f"coalesce({saved}, computed_{statistic})" if self.rows and statistic in self.statistics else saved


NOTHING = Computed(())


def from_raw(
    reader: Reader, statistics: Sequence[str], where: str, parameters: Mapping[str, Any], most_bytes: int | None = None
) -> Computed:
    """Compute statistics of the rows that lack one and have a raw value.

    A progress bar is shown on a terminal.

    Args:
        reader: The run.
        statistics: Their names.
        where: The condition in SQL that chooses rows of the view `tensors`.
        parameters: The parameters of the condition.
        most_bytes: Read no more raw values than these, of steps at equal distances; None for all. What was computed
            before is not read again.

    Returns:
        The computed statistics.
    """
    lacks = " or ".join(f"{expression(each)} is null" for each in statistics)
    if not statistics:
        return NOTHING
    found = reader.sql(_LACKING.format(where=where, lacks=lacks), dict(parameters)).fetchall()
    known = _kept.setdefault(reader.storage, {})
    missing = [key for key in found if any((each, key) not in known for each in statistics)]
    if len(known) + len(missing) * len(statistics) > _MOST_KEPT:
        known.clear()
        missing = list(found)
    missing = missing if most_bytes is None else _spread(missing, most_bytes)
    with progress_bar(len(missing), True, f"compute {', '.join(statistics)}", "tensor") as advance:
        for first in range(0, len(missing), _AT_ONCE):
            some = missing[first : first + _AT_ONCE]
            known |= _computed(reader, some, statistics)
            advance(len(some))
    rows = ((*key[:5], *(known.get((each, key)) for each in statistics)) for key in found)
    left_out = len({key[2] for key in found if (statistics[0], key) not in known})
    return Computed(
        tuple(statistics), tuple(row for row in rows if any(value is not None for value in row[5:])), left_out
    )


def _spread(keys: Sequence[_Key], most_bytes: int) -> list[_Key]:
    """Return the values of steps at equal distances, the newest step among them."""
    steps, size = sorted({key[2] for key in keys}), sum(key[5] or 0 for key in keys)
    chosen, left = {*steps[:: -max(1, -(-size // most_bytes))]}, most_bytes
    kept = []
    for key in keys:
        if key[2] in chosen and left >= (key[5] or 0):
            kept.append(key)
            left -= key[5] or 0
    return kept


def _computed(reader: Reader, keys: Sequence[_Key], statistics: Sequence[str]) -> dict[tuple[str, _Key], float | None]:
    saved = ((key, reader.saved_row(key[0], key[2], key[1])) for key in keys)
    there = [(key, row) for key, row in saved if row is not None and row.has_raw]
    values = reader.read([row for _, row in there])
    found: dict[tuple[str, _Key], float | None] = {(each, key): None for key in keys for each in statistics}
    for (key, _), value in zip(there, values, strict=True):
        found |= {(each, key): number for each, number in _of(value, statistics)}
    return found


def _of(value: Any, statistics: Sequence[str]) -> Iterator[tuple[str, float | None]]:
    try:
        yield from statistics_of(value, tuple(statistics)).items()
    except (TypeError, ValueError):
        return  # texts and records have none
