"""The program `tensortrial` with all its commands."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any, NoReturn

import click

from ..errors import TensorTrialError
from ..version import __version__
from ..visible import visible
from .writing.run import DESCRIPTION, run

# The module that has each command, under the module's own name. To import all of them takes a quarter of a second, so a
# module is imported when its command is wanted.
_MODULES = {
    "compact": "writing.compact",
    "compare": "reading.compare",
    "diagnose": "reading.diagnose",
    "export": "writing.export",
    "follow": "reading.follow",
    "import": "writing.imports",
    "info": "reading.info",
    "ls": "reading.ls",
    "mark-ended": "writing.mark_ended",
    "names": "reading.names",
    "page": "reading.page",
    "query": "reading.query",
    "repair": "writing.repair",
    "report": "reading.report",
    "show": "reading.show",
    "sql": "reading.sql",
    "steps": "reading.steps",
    "verify": "reading.verify",
    "watch": "reading.watch",
}
# The exit status by which shells and schedulers recognise Ctrl-C: 128 and the number of SIGINT.
_INTERRUPTED = 130


class _Commands(click.Group):
    """A group that imports each command when it is wanted, and prints the errors of this project as one sentence."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), *_MODULES])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _MODULES:
            return super().get_command(ctx, cmd_name)
        module = _MODULES[cmd_name]
        command: click.Command = getattr(import_module(f".{module}", __package__), module.rpartition(".")[2])
        return command

    def make_context(self, *args: Any, **options: Any) -> click.Context:
        try:
            return super().make_context(*args, **options)
        except KeyboardInterrupt:
            _end_interrupted()

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except TensorTrialError as exc:
            raise click.ClickException(visible(str(exc))) from exc
        except click.ClickException as exc:
            vars(exc)["message"] = visible(_explained(exc))
            raise
        except KeyboardInterrupt:
            _end_interrupted()


def _explained(exc: click.ClickException) -> str:
    """Return the message of an error. That of -o, which is short for --output where it exists, says what to write."""
    if not isinstance(exc, click.NoSuchOption) or exc.option_name != "-o":
        return exc.message
    has_output = exc.ctx is not None and any("--output" in each.opts for each in exc.ctx.command.params)
    output = ", or --output FILE for the file to write" if has_output else ""
    return f"No such option: -o; for the storage write --storage-option KEY=VALUE{output}"


def _end_interrupted() -> NoReturn:
    # Click answers a KeyboardInterrupt by "Aborted!" and status 1, which is how its prompts are declined.
    click.echo("Interrupted", err=True)
    raise click.exceptions.Exit(_INTERRUPTED)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="tensortrial")
def main() -> None:
    """Inspect, query and export training runs.

    RUN is the folder or URL that a hook saved to, such as runs/digits or s3://bucket/run. A run can be read while it is
    being written.
    """


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
