"""The SQL by which two indexes are compared. Its names are fixed, and all user input is a parameter."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..statistics.definitions import STATISTICS
from .tolerance import Tolerance

_ALL_STATISTICS = ", ".join(f'"{name}"' for name in STATISTICS)
_MODULUS = 1 << 64

AGREES = """
create or replace macro agrees(x, y, rtol, atol) as
    x is null or y is null or x = y
    or (isfinite(x) and isfinite(y) and abs(x - y) <= atol + rtol * abs(y))
"""
"""True if two numbers are within the tolerance. NaN equals NaN in DuckDB."""


@dataclass
class Side:
    """The compared rows of an index.

    Rows of both sides belong together if `name`, `mode`, `step` and `worker` are the same.
    """

    view: str
    """`a` or `b`."""
    worker: str | None = None
    """The only worker that is compared. The other side's may have another name."""
    workers: list[str] | None = None
    """The workers that are compared; None for all."""
    step: int | None = None
    """The only global step that is compared. The other side's may have another number."""
    mode: str | None = None
    """The only mode that is compared."""
    skips: bool = False
    """True if the table `catalogue.skipped` has steps that are not compared."""
    renames: bool = False
    """True if the table `catalogue.names_<view>` has the tensors to compare and their names for the comparison."""
    varying: tuple[str, ...] = ("mode", "worker")
    """The columns that distinguish rows of a tensor at a step. A constant one need not be hashed."""
    parameters: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        chosen = {"worker": self.worker, "workers": self.workers, "step": self.step, "mode": self.mode}
        self.parameters = {f"{self.view}_{key}": value for key, value in chosen.items() if value is not None}

    def rows(self) -> str:
        """Return the query of the rows."""
        view, tests = self.view, []
        if self.worker is not None:
            tests.append(f"t.worker = ${view}_worker")
        if self.workers is not None:
            tests.append(f"t.worker in (select unnest(${view}_workers))")
        if self.step is not None:
            tests.append(f"t.global_step = ${view}_step")
        if self.mode is not None:
            tests.append(f"t.mode = ${view}_mode")
        where = f"where {' and '.join(tests)}" if tests else ""
        names = f"join catalogue.names_{view} names on t.name = names.saved_as" if self.renames else ""
        return f"""(
            select {"names.name" if self.renames else "t.name"} as name,
                {"t.mode" if self.step is None else "''"} as mode,
                {"t.mode_step" if self.step is None else "0"} as step,
                {"t.worker" if self.worker is None else "''"} as worker,
                t.name as saved_as, t.worker as saved_by, t.* exclude (name, mode, worker)
            from catalogue.{view} t {names} {where}
        )"""

    def compared_rows(self) -> str:
        """Return the query of the rows of all steps that are not skipped."""
        if not self.skips:
            return self.rows()
        return f"(from {self.rows()} anti join catalogue.skipped using (mode, step))"


def fingerprints(side: Side) -> str:
    """Return the query of a fingerprint of each step, which differs if any digest does."""
    return f"""
        select step, count(*) as count, count(digest) as digests,
            (sum(hash({", ".join(("name", *side.varying, "digest"))})::hugeint) % {_MODULUS})::ubigint as fingerprint
        from {side.compared_rows()} group by step order by step
    """


def fingerprints_without_digests(side: Side) -> str:
    """Return the query of a fingerprint of each step's rows without a digest, and of how many are numbers."""
    return f"""
        select step, count(scalar) as numbers,
            (sum(hash(
                name, mode, worker, dtype, shape, scalar, signbit(scalar), {_ALL_STATISTICS}
            )::hugeint) % {_MODULUS})::ubigint as rest
        from {side.compared_rows()} where digest is null group by step order by step
    """


def tensors_of_step(side: Side) -> str:
    """Return the query of the tensors of one step and worker, in the order of execution."""
    return f"""
        select name, "order" from {side.rows()}
        where step = $of_step and mode = $of_mode and worker = $of_worker order by "order" nulls last, name
    """


def differences(a: Side, b: Side, tolerance: Tolerance, all_digests: bool) -> str:
    """Return the query of the rows that differ, or may differ, between the steps $first and $last.

    Tensors in `catalogue.found` are left out. It returns the first differing row of each tensor, and every row that
    only its values can decide: the columns of its key, whether its values are needed, and the attributes of a
    Difference. With `all_digests`, every row has a digest.
    """
    by_digest = all_digests and tolerance.is_exact
    # Reading the statistics, most of them null, takes longer than all the rest.
    differing = "''" if by_digest else _statistics_that_differ(tolerance)
    sides = {
        side.view: f"""(
            select s.* from {side.compared_rows()} s
                anti join catalogue.found using (name, mode, worker)
            where s.step between $first and $last and s.step in (select unnest($steps))
        )"""
        for side in (a, b)
    }
    return f"""
        with joined as (
            select coalesce(a.name, b.name) as name, coalesce(a.mode, b.mode) as mode,
                coalesce(a.step, b.step) as step, coalesce(a.worker, b.worker) as worker,
                coalesce(a."order", b."order") as place,
                a.global_step as step_a, b.global_step as step_b, a.saved_as as name_a, b.saved_as as name_b,
                a.saved_by as worker_a, b.saved_by as worker_b,
                a.dtype as dtype_a, b.dtype as dtype_b, a.shape as shape_a, b.shape as shape_b,
                {differing} as statistics,
                {_VERDICT_BY_DIGEST if by_digest else _verdict(tolerance)} as verdict
            from {sides["a"]} a full join {sides["b"]} b
                on a.name = b.name and a.mode = b.mode and a.step = b.step and a.worker = b.worker
        )
        select name, mode, worker, verdict = 'value',
            name_a, name_b, mode, worker_a, worker_b, if(mode = '', coalesce(step_a, 0), step), step_a, step_b, place,
            if(verdict = 'value bits', 'value', verdict), dtype_a, dtype_b, shape_a, shape_b,
            if(verdict = 'statistics', statistics, '')
        from joined where verdict <> 'same'
        qualify verdict = 'value'
            or row_number() over (partition by name, mode, worker, verdict = 'value' order by step) = 1
        order by step, place
    """


_VERDICT_BY_DIGEST = """case
    when b.name is null then 'only a'
    when a.name is null then 'only b'
    when a.dtype <> b.dtype then 'dtype'
    when a.shape <> b.shape then 'shape'
    when a.digest = b.digest then 'same'
    else 'value bits' end"""


def _verdict(tolerance: Tolerance) -> str:
    """Return the expression of the kind of a difference, after the column `statistics` with those that differ."""
    common = " or ".join(f'(a."{name}" is not null and b."{name}" is not null)' for name in STATISTICS)
    both_raw = "((a.scalar is not null or a.chunk is not null) and (b.scalar is not null or b.chunk is not null))"
    if tolerance.is_exact:
        return f"""case
            when b.name is null then 'only a'
            when a.name is null then 'only b'
            when a.dtype <> b.dtype then 'dtype'
            when a.shape <> b.shape then 'shape'
            when a.digest is not null and b.digest is not null then if(a.digest = b.digest, 'same', 'value bits')
            when a.scalar is not null and b.scalar is not null
                then if(a.scalar = b.scalar and signbit(a.scalar) = signbit(b.scalar), 'same', 'value bits')
            when statistics <> '' then 'statistics'
            when {both_raw} then 'value'
            else 'same' end"""
    # SQL can compare most numbers within a tolerance, but ulps need the values.
    number = "'value'" if tolerance.ulps is not None else f"if({_close('scalar', tolerance)}, 'same', 'value')"
    return f"""case
        when b.name is null then 'only a'
        when a.name is null then 'only b'
        when a.shape <> b.shape then 'shape'
        when a.digest = b.digest then 'same'
        when a.scalar is not null and b.scalar is not null then {number}
        when {both_raw} then 'value'
        when statistics <> '' then 'statistics'
        when {common} then 'same'
        when a.digest <> b.digest then 'value bits'
        else 'same' end"""


def _statistics_that_differ(tolerance: Tolerance) -> str:
    """Return the expression of the names of differing statistics, as one text; '' if there are none."""
    tests = ", ".join(f"if({_close(name, tolerance)}, null, '{name}')" for name in STATISTICS)
    return f"concat_ws(' ', {tests})"


def _close(column: str, tolerance: Tolerance) -> str:
    x, y = f'a."{column}"', f'b."{column}"'
    rtol, atol = float(tolerance.rtol or 0), float(tolerance.atol or 0)  # numpy shows its numbers in another way
    if not rtol and not atol:
        return f"coalesce({x} = {y}, true)"
    return f"agrees({x}, {y}, {rtol!r}, {atol!r})"
