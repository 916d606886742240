"""`tensortrial info RUN`."""

from __future__ import annotations

import json
from collections.abc import Iterable

import click
from rich.table import Table

from ..read.trial import Trial
from .console import console_for, print_line, print_table, visible
from .options import open_trial, run_argument, storage_option
from .ranges import ranges


@click.command()
@run_argument
@storage_option
def info(run: str, storage_options: tuple[str, ...]) -> None:
    """Show the workers, modes, steps, tensors and collections of a run."""
    trial = open_trial(run, storage_options)
    console = console_for()
    table = Table.grid(padding=(0, 2))
    for name, value in _facts(trial):
        table.add_row(name, visible(value))
    console.print(table)
    rows = [(c.name, str(len(trial.tensor_names(collection=c.name)))) for c in trial.collections().values()]
    print_table(console, ["collection", "tensors"], sorted(row for row in rows if row[1] != "0"))
    for error in trial.damaged.values():
        print_line(f"damaged: {error}", err=True)


def _facts(trial: Trial) -> Iterable[tuple[str, str]]:
    run = trial.info
    made_with = " ".join(f"{name} {version}" for name, version in run.versions.items())
    yield "run", trial.path
    yield "begun", run.created_at
    yield "state", "ended" if trial.loaded_all_steps else "running"
    yield "framework", f"{run.framework} ({made_with})"
    yield "workers", f"{trial.num_workers}: {', '.join(trial.workers())}"
    for late in trial.late_workers():
        yield "late", str(late)
    for mode in trial.modes():
        yield f"steps {mode.name}", ", ".join(ranges(trial.steps(mode))) or "none"
    yield "tensors", str(len(trial.tensor_names()))
    if run.metadata:
        yield "metadata", json.dumps(run.metadata)
