"""`tensortrial report RUN…`."""

from __future__ import annotations

import sys

import click

from ...visible import counted
from ..console import print_line, working
from ..options import error_status, opened_runs, runs_argument, storage_option
from ..rows import STDOUT, OutputFile

_FOUND, _FAILED = 1, 2


@click.command()
@runs_argument
@click.option("-o", "--output", "path", type=OutputFile(), default="report.html", show_default=True)
@click.option("--rules", "with_rules", is_flag=True, help="Evaluate all built-in rules first, on runs that have ended.")
@click.option(
    "--diagnose/--no-diagnose",
    "with_diagnosis",
    default=None,
    help="Begin with the results of `tensortrial diagnose`. [default: for small runs]",
)
@storage_option
@error_status(_FAILED)
def report(
    runs: tuple[str, ...], path: str, with_rules: bool, with_diagnosis: bool | None, storage_options: tuple[str, ...]
) -> None:
    """Write runs as one HTML file that needs no server or network.

    RUN is a run, a folder with runs below it, or a quoted pattern; several are allowed. The exit status is 0 if the
    runs have no findings of rules, 1 if they have any, and 2 if the report cannot be written.

    \b
    tensortrial report runs/digits -o report.html --rules
    """
    from ...pages.findings import evaluate_rules
    from ...pages.report import make_report, write_report
    from ...pages.served_runs import ServedRuns

    with opened_runs(runs, storage_options) as opened:
        served = ServedRuns(opened)
        if with_rules:
            served.of_each(served.names, evaluate_rules)
        with working(f"writing {path}"):
            if path == STDOUT:  # to open it by this name would empty the file that it is
                page, found = make_report(served, with_diagnosis)
                sys.stdout.buffer.write(page)
                sys.stdout.buffer.flush()
            else:
                found = write_report(served, path, with_diagnosis)
    said = f"{path}: {counted(len(served.names), 'run')}, {counted(found, 'finding')}"
    print_line(said, err=path == STDOUT)
    sys.exit(_FOUND if found else 0)
