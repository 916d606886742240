"""Arguments and options that several commands share."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import click

from ..errors import MissingCollectionFiles, NotARun, RunNotFound, TensorTrialError
from ..format.schema import RUN_FILE
from ..mode import ModeKeys
from ..read.opening import create_trial
from ..read.runs import Runs, open_runs
from ..read.trial import Trial
from ..storage.open import open_storage
from ..suggestions import near_names
from .completion import complete_run
from .console import print_line, working
from .sentences import sentence_of

_MOST_FOLDERS = 100

_MODES = click.Choice([mode.name for mode in ModeKeys], case_sensitive=False)

run_argument = click.argument("run", shell_complete=complete_run)
storage_option = click.option(
    "--storage-option",
    "storage_options",
    multiple=True,
    metavar="KEY=VALUE",
    help="An option of the storage, e.g. endpoint_url=http://localhost:9000. Can be repeated.",
)
progress_option = click.option(
    "--progress/--no-progress", default=True, help="Show a progress bar. [default: if tqdm is installed]"
)
runs_argument = click.argument("runs", metavar="RUN...", nargs=-1, required=True, shell_complete=complete_run)


_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class Seconds(click.FloatRange):
    """A duration in seconds, or with a unit: 90, 30m, 1h, 7d. NaN is refused."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        unit = _UNITS.get(value[-1:]) if isinstance(value, str) else None
        try:
            seconds = float(value[:-1] if unit else value)
        except ValueError:
            seconds = math.nan
        if math.isnan(seconds):
            self.fail(f"{value!r} is no duration; write seconds, or a number with a unit, such as 30m", param, ctx)
        return super().convert(seconds * (unit or 1), param, ctx)


timeout_option = click.option(
    "--timeout",
    type=Seconds(min=0, min_open=True),
    metavar="SECONDS",
    help="Stop the query after this many seconds. [default: no limit]",
)
wait_option = click.option(
    "--timeout",
    type=Seconds(min=0),
    metavar="SECONDS",
    help="How many seconds to wait for the run to begin, and for each new step. [default: no limit]",
)
mode_option = click.option(
    "--mode", type=_MODES, default="GLOBAL", help="Count steps in this mode. [default: in all modes together]"
)


def open_trial(run: str, storage_options: Sequence[str], timeout: float | None = None) -> Trial:
    """Open the run of a command. Wait up to `timeout` seconds for it to begin."""
    with runs_below_hint(run, storage_options), working(f"opening {run}"):
        return create_trial(run, timeout=timeout, storage_options=parse_options(storage_options))


def open_trials(runs: Sequence[str], storage_options: Sequence[str]) -> Iterator[Trial]:
    """Open each run of a command, and all runs that match a pattern."""
    for run in runs:
        if not _is_pattern(run) or open_storage(run, parse_options(storage_options)).exists_any():
            yield open_trial(run, storage_options)
            continue
        with opened_runs([run], storage_options) as opened:
            yield from map(opened.trial, opened.names)


def _is_pattern(run: str) -> bool:
    return any(sign in run for sign in "*?[")


@contextmanager
def error_status(status: int) -> Iterator[None]:
    """Print an error and end with a status, where status 1, the usual one, says that something was found.

    It is the innermost decorator of such a command, so that an error of its output, such as a full disk, counts too.
    """
    try:
        yield
    except BrokenPipeError:
        raise  # click ends without a message
    except (TensorTrialError, OSError) as exc:
        click.echo(f"Error: {sentence_of(exc)}", err=True)
        raise SystemExit(status) from exc


@contextmanager
def waiting_hint(timeout: float | None) -> Iterator[None]:
    """Add a hint to the error for a run that has not begun: the command has waited, or can wait for it."""
    try:
        yield
    except (RunNotFound, MissingCollectionFiles) as exc:
        waited = "pass --timeout SECONDS to wait for it" if timeout is None else f"none began in {timeout:g} seconds"
        raise type(exc)(exc.path, f"{str(exc).removeprefix(f'{exc.path}: ')}; {waited}") from exc


@contextmanager
def runs_below_hint(run: str, storage_options: Sequence[str]) -> Iterator[None]:
    """Add the runs in a folder to the error that the folder is not a run."""
    try:
        yield
    except (RunNotFound, NotARun) as exc:
        storage = open_storage(run, parse_options(storage_options))
        below = [name for name in sorted(storage.list(""))[:_MOST_FOLDERS] if RUN_FILE in storage.list(name)]
        if below:
            some = ", ".join(shlex.quote(f"{run.rstrip('/')}/{name}") for name in below[:3])
            reason = f"this is not a run, but a folder with runs; pass one of them, such as {some}"
            raise NotARun(exc.path, reason) from exc
        if isinstance(exc, RunNotFound):
            is_one = f"no run was found here{_meant(run)}"
            several = "this command takes one run, not a pattern; `tensortrial ls` lists what matches"
            raise RunNotFound(exc.path, several if _is_pattern(run) else is_one) from exc
        raise


def _meant(run: str) -> str:
    """Return the runs next to a path that is mistyped, as a clause."""
    place, name = Path(run).parent, Path(run).name
    try:
        siblings = [path.name for path in islice(place.iterdir(), _MOST_FOLDERS) if (path / RUN_FILE).is_file()]
    except OSError:
        return ""  # the run is a URL, or its folder does not exist
    near = near_names(name, siblings)
    return f"; did you mean {str(place / near[0])!r}?" if near else ""


@contextmanager
def opened_runs(runs: Sequence[str], storage_options: Sequence[str]) -> Iterator[Runs]:
    """Open the runs of a command. Print afterwards which of them were skipped, and why."""
    with working(f"opening {', '.join(runs)}"):
        opened = open_runs(runs, storage_options=parse_options(storage_options))
    yield opened
    report_skipped(opened.damaged)


def report_skipped(damaged: Mapping[str, TensorTrialError]) -> None:
    """Print the skipped runs or files, with reasons, to standard error."""
    for path, error in damaged.items():
        reason = str(error).removeprefix(f"{getattr(error, 'path', path)}: ")
        print_line(f"skipped: {path}: {reason}", err=True)


def parse_options(pairs: Sequence[str], option: str = "--storage-option") -> dict[str, str] | None:
    """Return the KEY=VALUE pairs of a repeated option as a dictionary, or None if there is none."""
    options = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise click.BadParameter("must be KEY=VALUE, and one has no =", param_hint=option)
        options[key] = value
    return options or None
