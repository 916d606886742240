"""The program `tensortrial` with all its commands."""

from __future__ import annotations

import sys
from typing import Any

import click

from .. import __version__
from ..errors import TensorTrialError
from .console import visible
from .reading.compare import compare
from .reading.diagnose import diagnose
from .reading.follow import follow
from .reading.info import info
from .reading.ls import ls
from .reading.names import names
from .reading.page import page
from .reading.query import query
from .reading.report import report
from .reading.show import show
from .reading.sql import sql
from .reading.steps import steps
from .reading.verify import verify
from .reading.watch import watch
from .writing.compact import compact
from .writing.export import export
from .writing.imports import imports
from .writing.mark_ended import mark_ended
from .writing.repair import repair
from .writing.run import DESCRIPTION, run

# The exit status by which shells and schedulers recognise Ctrl-C: 128 and the number of SIGINT.
_INTERRUPTED = 130


class _Commands(click.Group):
    """A group of commands that prints the errors of this project as one sentence."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except TensorTrialError as exc:
            raise click.ClickException(visible(str(exc))) from exc
        except click.ClickException as exc:
            vars(exc)["message"] = visible(exc.message)
            raise
        except KeyboardInterrupt:
            click.echo("Interrupted", err=True)
            ctx.exit(_INTERRUPTED)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="tensortrial")
def main() -> None:
    """Inspect, query and export training runs.

    RUN is the folder or URL that a hook saved to, such as runs/digits or s3://bucket/run. A run can be read while it is
    being written.
    """


for command in (
    ls,
    info,
    show,
    follow,
    names,
    steps,
    sql,
    query,
    compare,
    diagnose,
    watch,
    page,
    mark_ended,
    compact,
    verify,
    repair,
    report,
    imports,
    export,
):
    main.add_command(command)


# For the list of commands, and for callers in Python: `__main__` runs it without click.
@main.command(
    "run",
    help=f"\b\n{DESCRIPTION}",
    short_help="Run a training script unchanged, and save tensors of it.",
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def _run(arguments: tuple[str, ...]) -> None:
    sys.exit(run(arguments))
