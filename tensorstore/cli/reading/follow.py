"""`tensortrial follow RUN`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import click

from ...mode import ModeKeys
from ...read.name_filter import name_patterns
from ...visible import in_a_line
from ..console import print_line
from ..options import open_trial, run_argument, storage_option, wait_option, waiting_hint

_SHOWN = 8
_QUERY = """
    select name, arg_min(value, (length(worker), worker)) as value
    from scalars where mode = $mode and mode_step = $step group by name order by name
"""


@click.command()
@run_argument
@click.option(
    "-n", "--last", type=click.IntRange(min=0), default=10, show_default=True, help="Print this number of past steps."
)
@click.option("--regex", multiple=True, help="Only scalars whose names match this regex. Can be repeated.")
@wait_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each step, on a line.")
@storage_option
def follow(
    run: str, last: int, regex: tuple[str, ...], timeout: float | None, as_json: bool, storage_options: tuple[str, ...]
) -> None:
    """Print each step with its scalars as it is saved, like tail -f.

    It ends with the job. The exit status is 0 when the job has ended, 1 if no new step came for --timeout seconds, and
    130 after Ctrl-C.

    \b
    tensortrial follow runs/digits --regex Loss
    """
    from ...rules.running import follow as steps_of

    with waiting_hint(timeout):
        trial = open_trial(run, storage_options, timeout)
    patterns = name_patterns(regex) if regex else ()
    steps = trial.steps()
    start = steps[-last] if 0 < last <= len(steps) else steps[-1] + 1 if steps and not last else 0
    for step in steps_of(trial, start, timeout=timeout):
        if step is None:
            continue
        mode, of_mode = trial.mode(step), trial.mode_step(step)
        rows = trial.sql(_QUERY, {"mode": mode.name, "step": of_mode}).fetchall()
        _print(mode, of_mode, step, [row for row in rows if _chosen(row[0], patterns)], as_json)
    click.echo("the job has ended", err=True)


def _chosen(name: str, patterns: Sequence[Any]) -> bool:
    return not patterns or any(pattern.search(name) for pattern in patterns)


def _print(mode: ModeKeys, mode_step: int, step: int, scalars: list[tuple[str, float]], as_json: bool) -> None:
    if as_json:
        values = {name: value if abs(value) < float("inf") else str(value) for name, value in scalars}
        document = {"mode": mode.name, "step": mode_step, "global_step": step, "scalars": values}
        click.echo(json.dumps(document, ensure_ascii=False))
        return
    texts = [f"{in_a_line(name)} {value:.5g}" for name, value in scalars[:_SHOWN]]
    if len(scalars) > _SHOWN:
        texts.append(f"and {len(scalars) - _SHOWN} more")
    print_line(f"{mode.name} {mode_step}  (global {step})  {'  '.join(texts) or 'no scalars'}")
