"""`tensortrial show RUN`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import click

from ...read.trial import Trial
from ...visible import counted, visible
from ..console import COLUMN_GAP, console_for, least_width, print_line, print_table, working
from ..options import open_trial, run_argument, storage_option
from ..ranges import ranges
from ..sparkline import sparkline

_WIDTH, _FEWEST = 40, 8
"""The most and the fewest characters of a line, whose length depends on the terminal."""
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
    """Show a run's scalars as lines, and its worst tensors.

    A line goes from the first step to the last. Each character is the highest value of its steps; `!` marks NaN or an
    infinity. The worst tensors are those with NaN or infinities, then those whose last L2 norm is furthest from the
    median of their own past.

    \b
    tensortrial show runs/digits
    """
    trial = open_trial(run, storage_options)
    steps = [f"{mode.name} {', '.join(ranges(trial.steps(mode))[:4]) or 'none'}" for mode in trial.modes()]
    state, name = "ended" if trial.loaded_all_steps else "running", visible(trial.name, keep="")
    print_line(f"{name}: {state}; steps {'; '.join(steps) or 'none'}")
    _print_scalars(trial)
    if worst:
        _print_worst(trial, worst)


def _print_scalars(trial: Trial) -> None:
    found = _series(trial, "value", "scalars", "true")
    rows = [[name, mode, f"{first:.4g}", f"{last:.4g}"] for (name, mode), (_, first, last) in found.items()]
    if rows:
        lines = [line for line, _, _ in found.values()][:_MOST_SCALARS]
        _print_lines("first step to last", lines, ["scalar", "mode", "first", "last"], rows[:_MOST_SCALARS])
    if len(rows) > _MOST_SCALARS:
        click.echo(f"and {len(rows) - _MOST_SCALARS} more scalars; `tensortrial names RUN` lists them")


def _print_worst(trial: Trial, most: int) -> None:
    with working(f"reading {trial.name}"):
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
        [name, mode, _number(usual), _number(last), _why(wrong, first, usual, last)]
        for name, mode, _, wrong, first, usual, last in chosen
    ]
    drawn = [lines[name, mode][0] if (name, mode) in lines else [] for name, mode, *_ in chosen]
    _print_lines("l2, first step to last", drawn, ["tensor", "mode", "median", "last", "why"], rows)
    if len(found) > most:
        click.echo(f"and {counted(len(found) - most, 'tensor')} more; --worst {len(found)} shows all")


def _series(
    trial: Trial, value: str, view: str, condition: str, **parameters: Any
) -> dict[tuple[str, str], tuple[list[float | None], float, float]]:
    """Return the line's values, the first and the last value of each tensor in each mode."""
    query = _SERIES.format(value=value, view=view, condition=condition)
    bins: dict[tuple[str, str], list[Sequence[Any]]] = {}
    with working(f"reading {trial.name}"):
        rows = trial.sql(query, {"width": _WIDTH, **parameters}).fetchall()
    for name, mode, *row in rows:
        bins.setdefault((name, mode), []).append(row)
    return {key: _line(rows) for key, rows in bins.items()}


def _line(rows: list[Sequence[Any]]) -> tuple[list[float | None], float, float]:
    values: list[float | None] = [None] * _WIDTH
    for at, highest, wrong, *_ in rows:
        values[at] = math.nan if wrong else highest
    # If a run has fewer steps than characters, gaps are left out.
    if all(row[3] <= 1 for row in rows):
        values = [value for value in values if value is not None]
    return values, rows[0][4], rows[-1][5]


def _print_lines(
    title: str, lines: list[list[float | None]], columns: Sequence[str], rows: Sequence[Sequence[str]]
) -> None:
    """Print a table whose third column has the lines. They are shorter for long names, and left out without room."""
    console = console_for()
    room = console.width - COLUMN_GAP
    width = max(room - least_width(columns, rows, fold=False), _FEWEST)
    if width > room - least_width(columns, rows):
        print_table(console, columns, rows)
        return
    title = title if width >= len(title) else "trend"
    drawn = [sparkline(_shortened(line, width)) for line in lines]
    cells = [[*row[:2], line, *row[2:]] for row, line in zip(rows, drawn, strict=True)]
    print_table(console, [*columns[:2], title, *columns[2:]], cells)


def _shortened(values: list[float | None], most: int) -> list[float | None]:
    """Return at most `most` values, each the maximum of several neighbors; NaN if one of them is not finite."""
    bins: list[list[float]] = [[] for _ in range(min(len(values), most))]
    for at, value in enumerate(values):
        if value is not None:
            bins[at * len(bins) // len(values)].append(value)
    return [(max(each) if all(map(math.isfinite, each)) else math.nan) if each else None for each in bins]


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
        return f"{counted(wrong, 'NaN or inf element')}, first at global step {first}"
    if last is not None and not math.isfinite(last):
        return f"the last value is {last}"
    if not usual or last is None:
        return ""
    return f"{last / usual:.2g} times its median" if last != usual else ""


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"
