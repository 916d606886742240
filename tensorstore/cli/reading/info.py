"""`tensortrial info RUN…`."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import click

from ...errors import TensorTrialError
from ...format.documents import utc
from ...maintenance.notes import notes_of
from ...mode import ModeKeys
from ...read.trial import Trial, run_reader_of
from ...statistics.definitions import STATISTICS
from ...visible import visible
from ..console import console_for, print_facts, print_table
from ..options import open_trials, runs_argument, storage_option
from ..ranges import ranges

NUMBERS, RAW = "numbers", "raw values"
_MOST_READ = 200


@click.command()
@runs_argument
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each run, on a line.")
@storage_option
def info(runs: tuple[str, ...], as_json: bool, storage_options: tuple[str, ...]) -> None:
    """Show the workers, steps, tensors and collections of a run.

    RUN may be a quoted pattern, and several are allowed. `tensortrial ls` has one line for each run.

    \b
    tensortrial info runs/digits
    tensortrial info 'runs/*' --json
    """
    for number, trial in enumerate(open_trials(runs, storage_options)):
        if as_json:
            click.echo(json.dumps(_document(trial), ensure_ascii=False))
            continue
        if number:
            click.echo()
        _print(trial)


def _print(trial: Trial) -> None:
    console = console_for()
    print_facts(console, [(name, visible(value)) for name, value in _facts(trial)])
    rows = [(name, str(count), ", ".join(_forms(trial, name))) for name, count in _collections(trial).items()]
    print_table(console, ["collection", "tensors", "saved"], rows)


def _facts(trial: Trial) -> Iterable[tuple[str, str]]:
    run = trial.info
    made_with = " ".join(f"{name} {version}" for name, version in run.versions.items())
    yield "run", visible(trial.path, keep="")
    yield "started", f"{utc(run.started_at):%Y-%m-%d %H:%M:%S} UTC"
    yield "state", _state(trial)
    yield "snapshot", str(trial.snapshot)
    yield "framework", f"{run.framework} ({made_with})"
    yield "workers", _workers(trial)
    for late in trial.late_workers():
        yield "late", str(late)
    for worker, reason in trial.snapshot.workers.failures.items():
        yield "failure", f"{worker}: {reason}"
    for mode in trial.modes():
        yield f"steps {mode.name}", ", ".join(ranges(trial.steps(mode))) or "none"
    yield "tensors", str(len(trial.tensor_names()))
    noted = _notes(trial)
    yield from (each for each in (("note", noted["note"]), ("tags", ", ".join(noted["tags"]))) if each[1])
    if run.metadata:
        yield "metadata", json.dumps(run.metadata)
    yield from _environment(trial.environment())


def _workers(trial: Trial) -> str:
    names, now = trial.snapshot.workers.names, trial.num_workers
    since = f" (the job has {now} now)" if now < len(names) else ""
    return f"{max(now, len(names))}: {', '.join(names)}{since}"


def _environment(found: dict[str, Any]) -> Iterable[tuple[str, str]]:
    """Yield the parts of an environment that fit into a line. `--json` has all."""
    if "git_commit" in found:
        yield "commit", found["git_commit"] + (" and changes" if found.get("git_dirty") else "")
    if "command" in found:
        yield "command", f"{shlex.join(found['command'])} (in {found.get('working_directory')})"
    if "host" in found:
        yield "host", f"{found['host']}: {found.get('platform')}, {found.get('cpus')} CPUs"
    for name, groups in found.get("optimizers", {}).items():
        yield "optimizer", f"{name} {json.dumps(groups)}"


def _document(trial: Trial) -> dict[str, Any]:
    run = trial.info
    return {
        "run": trial.name,
        "path": trial.path,
        "started_at": run.started_at,
        "state": _state(trial),
        "snapshot": str(trial.snapshot),
        "framework": run.framework,
        "versions": dict(run.versions),
        "num_workers": trial.num_workers,
        "workers": trial.workers(),
        "late": [str(late) for late in trial.late_workers()],
        "failures": trial.snapshot.workers.failures,
        "steps": {mode.name: trial.steps(mode) for mode in trial.modes()},
        "tensors": len(trial.tensor_names()),
        "collections": _collections(trial),
        "saved": {name: _forms(trial, name) for name in _collections(trial)},
        "metadata": dict(run.metadata),
        **_notes(trial),
        "environment": trial.environment(),
        "damaged": [str(error) for error in trial.damaged.values()],
    }


def _notes(trial: Trial) -> dict[str, Any]:
    return notes_of(run_reader_of(trial).storage)


def _state(trial: Trial) -> str:
    return "ended" if trial.loaded_all_steps else "running"


def _collections(trial: Trial) -> dict[str, int]:
    counts = {name: len(trial.tensor_names(collection=name)) for name in sorted(trial.collections())}
    return {name: count for name, count in counts.items() if count}


def _forms(trial: Trial, collection: str) -> list[str]:
    """Return the forms in which tensors of a collection were saved: numbers, raw values, statistics.

    Only the first tensors at the beginning and near the end of the run are examined.
    """
    reader, steps, found = run_reader_of(trial), trial.steps(show_incomplete_steps=True), set[str]()
    for step in {*steps[:2], *steps[-8:][:1]}:
        for name in trial.tensor_names(step=step, collection=collection)[:_MOST_READ]:
            with suppress(TensorTrialError):  # the file is damaged, and is named below
                row = reader.row(name, step, ModeKeys.GLOBAL, None, statistics=True)
                found |= {
                    each for each, value in zip(STATISTICS, row.statistics or (), strict=False) if value is not None
                }
                found.add(NUMBERS if row.scalar is not None else RAW if row.has_raw else "")
    return [each for each in (NUMBERS, RAW, *STATISTICS) if each in found]
