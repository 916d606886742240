"""The program `tensortrial` with all its commands."""

from __future__ import annotations

from typing import Any

import click

from .. import __version__
from ..errors import TensorTrialError
from .compact import compact
from .compare import compare
from .console import visible
from .export import export
from .follow import follow
from .imports import imports
from .info import info
from .ls import ls
from .mark_ended import mark_ended
from .names import names
from .page import page
from .query import query
from .repair import repair
from .report import report
from .show import show
from .sql import sql
from .steps import steps
from .verify import verify
from .watch import watch

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
