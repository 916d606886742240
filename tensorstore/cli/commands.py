"""The program `tensortrial` with all its commands."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any, NoReturn

import click

from ..errors import TensorTrialError
from ..suggestions import near_names
from ..version import __version__
from ..visible import visible
from .writing.run import DESCRIPTION, run

# The module that has each command, under the module's own name. To import all of them takes a quarter of a second, so a
# module is imported when its command is wanted.
_MODULES = {
    "compact": "writing.compact",
    "compare": "reading.compare",
    "demo": "writing.demo",
    "diagnose": "reading.diagnose",
    "export": "writing.export",
    "follow": "reading.follow",
    "import": "writing.imports",
    "info": "reading.info",
    "ls": "reading.ls",
    "mark-ended": "writing.mark_ended",
    "mv": "writing.mv",
    "names": "reading.names",
    "note": "writing.note",
    "page": "reading.page",
    "query": "reading.query",
    "repair": "writing.repair",
    "report": "reading.report",
    "rm": "writing.rm",
    "rules": "reading.rules",
    "show": "reading.show",
    "sql": "reading.sql",
    "steps": "reading.steps",
    "tensor": "reading.tensor",
    "verify": "reading.verify",
    "watch": "reading.watch",
}
_GROUPS = {
    "Look": ("ls", "info", "show", "names", "steps", "tensor", "follow", "page", "report"),
    "Ask": ("diagnose", "compare", "sql", "query", "rules", "watch"),
    "Move": ("import", "export", "mv", "rm", "note"),
    "Mend": ("verify", "repair", "compact", "mark-ended"),
    "Run": ("run", "demo"),
}
_MEANT = {
    "cat": "tensor",
    "delete": "rm",
    "diff": "compare",
    "doctor": "diagnose",
    "list": "ls",
    "move": "mv",
    "open": "page",
    "remove": "rm",
    "rename": "mv",
    "runs": "ls",
    "serve": "page",
    "tag": "note",
    "tail": "follow",
    "ui": "page",
    "view": "page",
}
"""The names by which other programs call these commands."""
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

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            near = [_MEANT[name]] if name in _MEANT else near_names(name, self.list_commands(ctx), 1)
            meant = f"; did you mean {near[0]!r}?" if near else ""
            ctx.fail(f"no such command: {visible(name)!r}{meant}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        longest = max(map(len, self.list_commands(ctx)))
        for title, names in _GROUPS.items():
            found = {name: command for name in names if (command := self.get_command(ctx, name)) is not None}
            width = formatter.width - longest - 6
            with formatter.section(title):
                formatter.write_dl(
                    [(f"{name:{longest}}", each.get_short_help_str(width)) for name, each in found.items()]
                )

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
    """Return the message of an error. That of -o, where nothing is written, names the option of the storage."""
    if not isinstance(exc, click.NoSuchOption) or exc.option_name != "-o":
        return exc.message
    return "No such option: -o; for the storage write --storage-option KEY=VALUE"


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
