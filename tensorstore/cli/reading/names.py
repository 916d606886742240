"""`tensortrial names RUN`."""

from __future__ import annotations

import json

import click

from ...mode import ModeKeys
from ...read.trial import Trial
from ...suggestions import meant
from ..console import print_line, print_name
from ..options import mode_option, open_trial, run_argument, storage_option
from ..ranges import ranges


@click.command()
@run_argument
@click.option("--step", type=int, help="Only tensors saved at this step.")
@mode_option
@click.option(
    "--regex", multiple=True, help="Only names that match this regular expression (re.search). Can be repeated."
)
@click.option("--collection", help="Only tensors of this collection.")
@click.option("--json", "as_json", is_flag=True, help="Print the names as one JSON array.")
@storage_option
def names(
    run: str,
    step: int | None,
    mode: str,
    regex: tuple[str, ...],
    collection: str | None,
    as_json: bool,
    storage_options: tuple[str, ...],
) -> None:
    """List the names of saved tensors, one per line.

    \b
    tensortrial names runs/digits --collection gradients --step 100 --mode train
    """
    trial = open_trial(run, storage_options)
    _check_collection(trial, collection)
    found = trial.tensor_names(step=step, mode=ModeKeys[mode], regex=list(regex) or None, collection=collection)
    if as_json:
        click.echo(json.dumps(found, ensure_ascii=False))
    for name in () if as_json else found:
        print_name(name)
    if not found:
        print_line(_why_none(trial, step, ModeKeys[mode]), err=True)


def _check_collection(trial: Trial, collection: str | None) -> None:
    known = trial.collections()
    if collection is not None and collection not in known:
        listed = ", ".join(sorted(known)) or "none"
        reason = f"unknown collection {collection!r}; known collections: {listed}{meant([collection], known)}"
        raise click.BadParameter(reason, param_hint="--collection")


def _why_none(trial: Trial, step: int | None, mode: ModeKeys) -> str:
    if step is not None and step not in trial.steps(mode, show_incomplete_steps=True):
        saved = ", ".join(ranges(trial.steps(mode))) or "none"
        return f"nothing was saved at step {step} of mode {mode.name}; saved steps: {saved}"
    count = len(trial.tensor_names())
    return f"no tensor matches these options; the run has {count}, and `tensortrial names RUN` lists them"
