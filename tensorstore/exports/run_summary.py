"""The table `run_summary` of a run that has only grown: the summary of its new rows joins the exported one."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from ..format import arrow_arrays
from .source import Source
from .tables import GROWING, REPLACED
from .target import Held, Position

_TABLE = "run_summary"
_SCALARS = arrow_arrays.encoded(GROWING["scalars"])
_COLUMNS = REPLACED[_TABLE].names[1:]


def continued(source: Source, held: Held | None, exported: Callable[[], pa.Table | None]) -> pa.Table | None:
    """Return the summary of a run without its column `run`, from the exported one and the rows of later steps.

    Args:
        source: The run.
        held: The content of the target for the run.
        exported: Returns the run's rows in the target, or None if they cannot be read back.

    Returns:
        The rows; None if they must be computed from all rows of the run, because it has gone back, has saved steps
        again, or has new rows at steps that another worker had saved before.
    """
    if held is None or not (of_workers := _summarized(source, held)):
        return None
    last, before = max(map(max, of_workers.values())), exported()
    # An interrupted export may have left a later summary than the note says.
    if before is None or pc.any(pc.greater(before["last_step"], last)).as_py():
        return None
    since = Held(held.identity, {Position("scalars", worker): parts for worker, parts in of_workers.items()})
    try:
        parts = [pa.Table.from_batches(part.batches(_SCALARS), _SCALARS) for part in source.parts("scalars", since)]
    except FileNotFoundError:  # compacted meanwhile
        return None
    new = pa.concat_tables([arrow_arrays.table(_SCALARS, []), *parts]).unify_dictionaries()
    if source.damaged or pc.any(pc.less_equal(new["global_step"], last)).as_py():
        return None
    return _joined(before.select(_COLUMNS), _summary(new)) if len(new) else before.select(_COLUMNS)


def _summarized(source: Source, held: Held) -> dict[str, dict[int, str]]:
    """Return the exported parts of each worker up to the step at which the exported summary ends; empty if unknown."""
    digest = held.digests.get(Position(_TABLE, ""), {}).get(-1)
    for table in GROWING:
        parts = {position.worker: parts for position, parts in held.digests.items() if position.table == table}
        if parts and source.digest_at({worker: max(steps) for worker, steps in parts.items()}) == digest:
            return parts
    return {}


def _summary(scalars: pa.Table) -> pa.Table:
    finite = pc.if_else(pc.is_finite(scalars["value"]), scalars["value"], None)
    texts = [scalars[name].cast(pa.string()) for name in ("name", "mode", "worker")]
    columns = [*texts, scalars["global_step"], scalars["value"], finite]
    rows = pa.table(columns, names=["name", "mode", "worker", "step", "value", "finite"])
    rows = rows.sort_by([("step", "ascending"), ("worker", "ascending")])
    return _grouped(
        rows, [("value", "last"), ("step", "max"), ("finite", "min"), ("finite", "max"), ("step", "count_distinct")]
    )


def _joined(before: pa.Table, now: pa.Table) -> pa.Table:
    rows = pa.concat_tables([before.cast(now.schema), now])
    return _grouped(rows, [("last", "last"), ("last_step", "max"), ("min", "min"), ("max", "max"), ("steps", "sum")])


def _grouped(rows: pa.Table, aggregates: list[tuple[str, str]]) -> pa.Table:
    """Return a row for each name and mode."""
    return rows.group_by(["name", "mode"], use_threads=False).aggregate(aggregates).rename_columns(_COLUMNS)
