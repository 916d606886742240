"""The command line: `tensortrial info RUN`, `names`, `steps`, `sql`, `watch`, `mark-ended`, `compact`,
`import smdebug`."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

from . import __version__
from .errors import MissingExtra, NotARun, RunNotFound, TensorTrialError
from .mode import ModeKeys
from .rules import Finding
from .runs import open_runs
from .trial import Trial, create_trial

try:
    import click
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
except ImportError as exc:
    # Said here and not by a traceback: the reader of this is at a shell.
    sys.exit(str(MissingExtra(exc.name or "click", "ui", "the command line")))

_MODES = click.Choice([mode.name for mode in ModeKeys], case_sensitive=False)


class _Commands(click.Group):
    """Prints the errors of this project as one sentence."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except TensorTrialError as exc:
            raise click.ClickException(str(exc)) from exc


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="tensortrial")
def main() -> None:
    """Look into training runs.

    RUN is the folder or URL that a hook saved to, such as runs/digits or s3://bucket/run. A run can be looked into
    while it is being written.
    """


_run = click.argument("run")
_storage = click.option(
    "-o",
    "--storage-option",
    "storage_options",
    multiple=True,
    metavar="KEY=VALUE",
    help="For fsspec, e.g. endpoint_url=http://localhost:9000. May be given several times.",
)
_mode = click.option(
    "--mode", type=_MODES, default="GLOBAL", help="Count steps in this mode. [default: over all modes]"
)


@main.command()
@_run
@_storage
def info(run: str, storage_options: tuple[str, ...]) -> None:
    """What a run is: workers, modes, steps, tensors, collections."""
    trial = _open(run, storage_options)
    console = _console()
    table = Table.grid(padding=(0, 2))
    for name, value in _facts(trial):
        table.add_row(name, value)
    console.print(table)
    rows = [(c.name, str(len(trial.tensor_names(collection=c.name)))) for c in trial.collections().values()]
    _print_table(console, ["collection", "tensors"], sorted(row for row in rows if row[1] != "0"))
    for error in trial.damaged.values():
        click.echo(f"damaged: {error}", err=True)


@main.command()
@_run
@click.option("--step", type=int, help="Only tensors saved at this step.")
@_mode
@click.option("--regex", multiple=True, help="Only names in which this is found. May be given several times.")
@click.option("--collection", help="Only tensors of this collection.")
@_storage
def names(
    run: str,
    step: int | None,
    mode: str,
    regex: tuple[str, ...],
    collection: str | None,
    storage_options: tuple[str, ...],
) -> None:
    """The names of saved tensors, one a line."""
    trial = _open(run, storage_options)
    found = trial.tensor_names(step=step, mode=ModeKeys[mode], regex=list(regex) or None, collection=collection)
    for name in found:
        click.echo(name)


@main.command()
@_run
@_mode
@click.option("--all", "incomplete", is_flag=True, help="Also steps that some worker has not written yet.")
@_storage
def steps(run: str, mode: str, incomplete: bool, storage_options: tuple[str, ...]) -> None:
    """The saved steps, as ranges: `0-90:10` means 0, 10, … 90."""
    for text in _ranges(_open(run, storage_options).steps(ModeKeys[mode], show_incomplete_steps=incomplete)):
        click.echo(text)


@main.command()
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@click.argument("query")
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "csv", "json", "parquet", "arrow"]),
    default="table",
    show_default=True,
    help="How to give the rows; json is one object a line, arrow an IPC stream.",
)
@click.option("--output", type=click.Path(dir_okay=False), help="Write to this file. [default: to standard output]")
@_storage
def sql(runs: tuple[str, ...], query: str, form: str, output: str | None, storage_options: tuple[str, ...]) -> None:
    """Run one SELECT on the views of a run, or of many.

    The views are tensors, reductions, scalars, steps, collections, findings and tensor_values; `SELECT * FROM
    reductions LIMIT 5` shows what is in one, `DESCRIBE tensors` its columns. RUN may be several runs, a folder that
    has runs below it, or a quoted pattern: the views then have the column run, and there is the view runs.
    """
    relation = _ask(runs, query, storage_options)
    with click.open_file(output or "-", "wb") as file:
        if form in ("parquet", "arrow"):
            _write_arrow(relation.to_arrow_table(), form, file)
        else:
            with io.TextIOWrapper(file, encoding="utf-8", newline="") as text:
                _write_text(relation.columns, relation.fetchall(), form, text)
                # Standard output is not ours to close.
                text.flush()
                text.detach()


@main.command("mark-ended")
@_run
@_storage
def mark_ended(run: str, storage_options: tuple[str, ...]) -> None:
    """Say that a job that crashed will write no more, so that nobody waits for it."""
    _open(run, storage_options).mark_ended()


@main.command("compact")
@_run
@click.option(
    "--grace",
    type=click.FloatRange(min=0),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="Keep the small files so long, for readers that have begun to read them; 0 if nobody reads.",
)
@click.option("--progress/--no-progress", default=True, help="Show a progress bar. [default: if tqdm is installed]")
@_storage
def compact_(run: str, grace: float, progress: bool, storage_options: tuple[str, ...]) -> None:
    """Make few index files of the many small ones of a run.

    Opening and querying a long run gets faster. A run can be compacted while it is written and read, and again as it
    grows; what was interrupted is finished the next time.
    """
    from .compaction import compact

    done = compact(run, grace=grace, storage_options=_options(storage_options), progress=progress)
    for error in done.damaged.values():
        click.echo(f"damaged, and left as it is: {error}", err=True)
    click.echo(
        f"{done.files_before} index files of {_megabytes(done.bytes_before)} are now "
        f"{done.files_after} of {_megabytes(done.bytes_after)}"
    )


def _megabytes(count: int) -> str:
    return f"{count / 1e6:.1f} MB"


_SHOWN_OF_A_STEP = 3
_NOTHING_FIRED, _FIRED, _COULD_NOT_RUN = 0, 1, 2


@main.command()
@_run
@click.option(
    "--rule", "rules", multiple=True, metavar="NAME[:KEY=VALUE,…]", help="A built-in rule. May be given several times."
)
@click.option(
    "--config", type=click.Path(dir_okay=False), help="A JSON or TOML file of rules, or SageMaker's configuration."
)
@click.option("--start-step", type=int, default=0, show_default=True, help="Global step to begin with.")
@click.option("--end-step", type=int, help="Global step to end before.  [default: with the job]")
@click.option("--timeout", type=float, help="Wait so many seconds for the run to begin.")
@click.option("--record/--no-record", default=True, show_default=True, help="Keep the findings in the run.")
@click.option(
    "--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True, help="How to print."
)
@_storage
def watch(
    run: str,
    rules: tuple[str, ...],
    config: str | None,
    start_step: int,
    end_step: int | None,
    timeout: float | None,
    record: bool,
    form: str,
    storage_options: tuple[str, ...],
) -> None:
    """Follow a run with rules, and print what they find, until the job ends.

    The exit status is 0 if no rule fired, 1 if one did, and 2 if one could not run: it lacked tensors, raised, or there
    was no step.

    \b
    tensortrial watch runs/digits --rule VanishingGradient --rule LossNotDecreasing:num_steps=20
    """
    from .rules.configuration import parse_rule, read_rules
    from .rules.running import watch as follow

    try:
        chosen = [parse_rule(text) for text in rules] + (read_rules(config) if config else [])
        if not chosen:
            raise click.UsageError("give at least one --rule, or a --config")
        trial = _open(run, storage_options, timeout)
        made = [each.make(trial) for each in chosen]
        found = follow(trial, made, start_step, end_step, record=record)
        status = _print_findings(found, form)
        if not any(start_step <= step and (end_step is None or step < end_step) for step in trial.steps()):
            click.echo("no step was evaluated", err=True)
            status = _COULD_NOT_RUN
    except TensorTrialError as exc:
        # Status 1 says that a rule fired.
        click.echo(f"Error: {exc}", err=True)
        status = _COULD_NOT_RUN
    sys.exit(status)


def _print_findings(findings: Iterable[Finding], form: str) -> int:
    """Print as they come; of many findings of a rule at a step, the first few. Gives the exit status."""
    status, last, more = _NOTHING_FIRED, None, 0
    for finding in findings:
        status = max(status, _COULD_NOT_RUN if finding.failed else _FIRED)
        if form == "json":
            click.echo(json.dumps(finding.to_json()))
            continue
        key = finding.rule, finding.step
        if key != last:
            _say_more(more)
            last, more = key, 0
        more += 1
        if more <= _SHOWN_OF_A_STEP:
            click.echo(str(finding))
    _say_more(more)
    return status


def _say_more(count: int) -> None:
    if count > _SHOWN_OF_A_STEP:
        click.echo(f"    … and {count - _SHOWN_OF_A_STEP} more of this rule at this step")


@main.group("import")
def import_() -> None:
    """Make a run from what something else wrote."""


@import_.command("smdebug")
@click.argument("source")
@click.argument("target")
@click.option("--progress/--no-progress", default=True, help="Show a progress bar. [default: if tqdm is installed]")
@_storage
def import_smdebug(source: str, target: str, progress: bool, storage_options: tuple[str, ...]) -> None:
    """Import a run that smdebug wrote.

    SOURCE is its folder or URL, such as s3://bucket/job/debug-output, TARGET where the new run shall be. Run again, an
    interrupted import goes on where it was.
    """
    # Here, because nothing else at the command line needs what writes runs.
    from .importers.smdebug import import_run

    options = _options(storage_options)
    path = import_run(
        source,
        target,
        storage_options=options,
        progress=progress,
        on_damage=lambda error: click.echo(f"damaged: {error}", err=True),
    )
    click.echo(path)


def _open(run: str, storage_options: Sequence[str], timeout: float | None = None) -> Trial:
    return create_trial(run, timeout=timeout, storage_options=_options(storage_options))


def _ask(places: Sequence[str], query: str, storage_options: Sequence[str]) -> Any:
    """The relation that answers a query on the one run, or on those that are found."""
    if len(places) == 1:
        try:
            return _open(places[0], storage_options).sql(query)
        except (RunNotFound, NotARun) as exc:
            alone: TensorTrialError = exc
    try:
        runs = open_runs(places, storage_options=_options(storage_options))
    except RunNotFound as exc:
        raise alone if len(places) == 1 else exc from None
    relation = runs.sql(query)
    for error in runs.damaged.values():
        click.echo(f"left out: {error}", err=True)
    return relation


def _options(storage_options: Sequence[str]) -> dict[str, str] | None:
    options = {}
    for option in storage_options:
        key, equals, value = option.partition("=")
        if not equals:
            raise click.BadParameter(f"{option!r} is not KEY=VALUE", param_hint="--storage-option")
        options[key] = value
    return options or None


def _facts(trial: Trial) -> Iterable[tuple[str, str]]:
    run = trial.info
    made_with = " ".join(f"{name} {version}" for name, version in run.versions.items())
    yield "run", trial.path
    yield "begun", run.created_at
    yield "state", "ended" if trial.loaded_all_steps() else "running"
    yield "framework", f"{run.framework} ({made_with})"
    yield "workers", f"{trial.num_workers}: {', '.join(trial.workers())}"
    for mode in trial.modes():
        yield f"steps {mode.name}", ", ".join(_ranges(trial.steps(mode))) or "none"
    yield "tensors", str(len(trial.tensor_names()))
    if run.metadata:
        yield "metadata", json.dumps(run.metadata)


def _ranges(numbers: Sequence[int]) -> list[str]:
    """Ascending numbers as ranges of equal distance."""
    found: list[str] = []
    start = 0
    while start < len(numbers):
        end = start + 1
        width = numbers[end] - numbers[start] if end < len(numbers) else 1
        while end + 1 < len(numbers) and numbers[end + 1] - numbers[end] == width:
            end += 1
        if end - start < 2:
            found.append(str(numbers[start]))
            start += 1
        else:
            found.append(f"{numbers[start]}-{numbers[end]}" + (f":{width}" if width > 1 else ""))
            start = end + 1
    return found


def _console(file: TextIO | None = None) -> Console:
    # Into a pipe or a file, lines must not be cut at the width of a terminal that is not there.
    width = None if (file or sys.stdout).isatty() else 10_000
    return Console(file=file, width=width, highlight=False, markup=False, emoji=False)


def _print_table(console: Console, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    table = Table(*columns, box=SIMPLE_HEAD, pad_edge=False)
    for row in rows:
        table.add_row(*row)
    console.print(table)


def _write_text(columns: Sequence[str], rows: Iterable[Sequence[Any]], form: str, file: TextIO) -> None:
    if form == "csv":
        import csv

        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)
    elif form == "json":
        for row in rows:
            file.write(json.dumps(dict(zip(columns, row, strict=True)), default=str) + "\n")
    else:
        _print_table(_console(file), columns, [[_cell(value) for value in row] for row in rows])


def _write_arrow(table: Any, form: str, file: Any) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if form == "parquet":
        buffer = pa.BufferOutputStream()  # a pipe cannot tell where in the file it is
        pq.write_table(table, buffer)
        file.write(buffer.getvalue())
    else:
        with pa.ipc.new_stream(file, table.schema) as stream:
            stream.write_table(table)


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, (bytes, bytearray)):
        return f"{len(value)} bytes"
    return "" if value is None else str(value)
