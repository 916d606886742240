"""`tensortrial show RUN`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import click

from ...read.trial import Trial
from ..console import console_for, print_line, print_table
from ..options import count_of, open_trial, run_argument, storage_option
from ..ranges import ranges
from ..sparkline import sparkline

_WIDTH = 40
_MOST_SCALARS = 30
_SERIES = """
    with wanted as (
        select name, mode, global_step, {value}::double as value from {view}
        where {condition}
    ), bounds as (
        select mode, min(global_step) as low, max(global_step) - min(global_step) + 1 as extent
        from wanted group by mode
    )
    select
        name, mode, least((global_step - low) * $width // extent, $width - 1) as bin,
        max(value) filter (where isfinite(value)) as most, bool_or(not isfinite(value)) as wrong,
        count(*) as n, arg_min(value, global_step) as first_value, arg_max(value, global_step) as last_value
    from wanted join bounds using (mode) group by all order by name, mode, bin
"""
_WORST = """
    select
        name, mode, count(*) as n, sum(coalesce(nan_count, 0) + coalesce(inf_count, 0))::bigint as wrong,
        min(global_step) filter (where nan_count > 0 or inf_count > 0) as first_wrong,
        median(l2) filter (where isfinite(l2)) as usual, arg_max(l2, global_step) as last_value
    from tensors where scalar is null group by name, mode
"""


@click.command()
@run_argument
@click.option("--worst", type=click.IntRange(min=0), default=10, show_default=True, help="How many tensors to show.")
@storage_option
def show(run: str, worst: int, storage_options: tuple[str, ...]) -> None:
    """Show how a run went: its scalars as lines, and the tensors that look worst.

    A line goes from the first step to the last. Each character is the highest value of its steps; `!` marks NaN or an
    infinity. The worst tensors are those with NaN or infinities, then those whose last L2 norm is furthest from the
    median of their own past.

    \b
    tensortrial show runs/digits
    """
    trial = open_trial(run, storage_options)
    steps = [f"{mode.name} {', '.join(ranges(trial.steps(mode))[:4]) or 'none'}" for mode in trial.modes()]
    print_line(f"{trial.name}: {'ended' if trial.loaded_all_steps else 'running'}; steps {'; '.join(steps) or 'none'}")
    _print_scalars(trial)
    if worst:
        _print_worst(trial, worst)
    for error in trial.damaged.values():
        print_line(f"damaged: {error}", err=True)


def _print_scalars(trial: Trial) -> None:
    found = _series(trial, "value", "scalars", "true")
    rows = [[name, mode, line, f"{first:.4g}", f"{last:.4g}"] for (name, mode), (line, first, last) in found.items()]
    if rows:
        print_table(console_for(), ["scalar", "mode", "first step to last", "first", "last"], rows[:_MOST_SCALARS])
    if len(rows) > _MOST_SCALARS:
        click.echo(f"and {len(rows) - _MOST_SCALARS} more scalars; `tensortrial names RUN` lists them")


def _print_worst(trial: Trial, most: int) -> None:
    found = [row for row in trial.sql(_WORST).fetchall() if row[3] or row[5] is not None]
    found.sort(key=lambda row: (-bool(row[3]), -_distance(row[5], row[6]), row[0], row[1]))
    chosen = found[:most]
    if not chosen:
        click.echo("no tensor has an L2 norm or counts of NaN; save them with ReductionConfig to see them here")
        return
    lines = _series(
        trial, "l2", "tensors", "l2 is not null and list_contains($names, name)", names=[r[0] for r in chosen]
    )
    rows = [
        [name, mode, lines.get((name, mode), ("",))[0], _number(usual), _number(last), _why(wrong, first, usual, last)]
        for name, mode, _, wrong, first, usual, last in chosen
    ]
    print_table(console_for(), ["tensor", "mode", "l2, first step to last", "median", "last", "why"], rows)
    if len(found) > most:
        click.echo(f"and {count_of(len(found) - most, 'tensor')} more; --worst {len(found)} shows all")


def _series(
    trial: Trial, value: str, view: str, condition: str, **parameters: Any
) -> dict[tuple[str, str], tuple[str, float, float]]:
    """Return a line, the first and the last value of each tensor in each mode."""
    query = _SERIES.format(value=value, view=view, condition=condition)
    bins: dict[tuple[str, str], list[Sequence[Any]]] = {}
    for name, mode, *row in trial.sql(query, {"width": _WIDTH, **parameters}).fetchall():
        bins.setdefault((name, mode), []).append(row)
    return {key: _line(rows) for key, rows in bins.items()}


def _line(rows: list[Sequence[Any]]) -> tuple[str, float, float]:
    values: list[float | None] = [None] * _WIDTH
    for at, highest, wrong, *_ in rows:
        values[at] = math.nan if wrong else highest
    # A run of fewer steps than characters has no gaps between them.
    dense = [value for value in values if value is not None] if all(row[3] <= 1 for row in rows) else values
    return sparkline(dense), rows[0][4], rows[-1][5]


def _distance(usual: float | None, last: float | None) -> float:
    if usual is None or last is None:
        return 0.0
    if not math.isfinite(last):
        return math.inf
    if usual <= 0 or last <= 0:
        return 0.0 if usual == last else math.inf
    return abs(math.log(last / usual))


def _why(wrong: int, first: int | None, usual: float | None, last: float | None) -> str:
    if wrong:
        return f"{count_of(wrong, 'NaN or inf element')}, first at global step {first}"
    if last is not None and not math.isfinite(last):
        return f"the last value is {last}"
    if not usual or last is None:
        return ""
    return f"{last / usual:.2g} times its median" if last != usual else ""


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"
