"""The program `tensortrial` with all its commands."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import click

from ..errors import TensorTrialError
from ..version import __version__
from ..visible import visible
from .argument_order import SuggestingGroup
from .sentences import sentence_of
from .writing.run import DESCRIPTION, run

# The commands by group: the module of each, whose function has the module's name, and the first line of its help.
# Importing all modules takes half a second, so a module is imported when its command is called.
_COMMANDS = {
    "Look": {
        "ls": ("reading.ls", "List the runs in a folder, with state, steps, size and tags."),
        "info": ("reading.info", "Show the workers, steps, tensors and collections of a run."),
        "show": ("reading.show", "Show a run's scalars as lines, and its worst tensors."),
        "names": ("reading.names", "List the names of saved tensors, one per line."),
        "steps": ("reading.steps", "List the saved steps as ranges: `0-90:10` means 0, 10, … 90."),
        "tensor": ("reading.tensor", "Show one tensor at one step: shape, statistics and elements."),
        "follow": ("reading.follow", "Print each step with its scalars as it is saved, like tail -f."),
        "page": ("reading.page", "Show runs in the browser, also while they are being written."),
        "report": ("reading.report", "Write runs as one HTML file that needs no server or network."),
    },
    "Ask": {
        "diagnose": ("reading.diagnose", "Find out what went wrong, where it began, and what to try."),
        "compare": ("reading.compare", "Find where two runs first differ."),
        "sql": ("reading.sql", "Run one SELECT on the views of one or several runs."),
        "query": ("reading.query", "Run a named query, such as losses or dead_layers."),
        "rules": ("reading.rules", "List the built-in rules, or describe one and its parameters."),
        "watch": ("reading.watch", "Evaluate rules on a run until its job ends."),
    },
    "Move": {
        "import": ("writing.imports", "Create a run from files that another program wrote."),
        "export": ("writing.export", "Copy runs into a database, a data lake or files."),
        "mv": ("writing.mv", "Rename a run, or move it to another folder or URL."),
        "rm": ("writing.rm", "Delete runs."),
        "note": ("writing.note", "Write a note about a run, or show its notes."),
    },
    "Mend": {
        "verify": ("reading.verify", "Read every byte of runs, and print which files are damaged."),
        "repair": ("writing.repair", "Remove files that belong to no step, and mark lost ones."),
        "compact": ("writing.compact", "Merge the many small files of a run into few."),
        "mark-ended": ("writing.mark_ended", "Mark a crashed job, or one of its workers, as ended."),
    },
    "Run": {
        "run": ("", "Run a training script unchanged, and save tensors of it."),
        "demo": ("writing.demo", "Write a small run to look at."),
    },
}
_MODULES = {name: module for group in _COMMANDS.values() for name, (module, _) in group.items() if module}
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
"""Aliases of commands, by their names in other programs."""
# The exit status by which shells and schedulers recognize Ctrl-C: 128 and the number of SIGINT.
_INTERRUPTED = 130


class _Commands(SuggestingGroup):
    """A group that imports each command when it is called, and prints this project's errors as one sentence."""

    aliases = _MEANT

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), *_MODULES])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _MODULES:
            return super().get_command(ctx, cmd_name)
        module = _MODULES[cmd_name]
        return getattr(import_module(f".{module}", __package__), module.rpartition(".")[2])

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        longest = max(map(len, self.list_commands(ctx)))
        for title, group in _COMMANDS.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:{longest}}", line) for name, (_, line) in group.items()])

    def make_context(self, *args: Any, **options: Any) -> click.Context:
        with _errors_as_sentences():  # the disk may be full that --help is written to
            return super().make_context(*args, **options)

    def invoke(self, ctx: click.Context) -> Any:
        with _errors_as_sentences():
            try:
                return super().invoke(ctx)
            except click.exceptions.NoArgsIsHelpError:
                raise  # its message is the help of a group
            except click.ClickException as exc:
                vars(exc)["message"] = visible(_explained(exc), keep="")
                raise


@contextmanager
def _errors_as_sentences() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise  # click ends without a message
    except (TensorTrialError, OSError) as exc:
        raise click.ClickException(sentence_of(exc)) from exc
    except KeyboardInterrupt:
        # Click ends a KeyboardInterrupt with "Aborted!" and status 1, as for a declined prompt.
        click.echo("Interrupted", err=True)
        raise click.exceptions.Exit(_INTERRUPTED) from None


def _explained(exc: click.ClickException) -> str:
    """Return the message of an error. For an unknown option, it says what to write for a path or for the storage."""
    if not isinstance(exc, click.NoSuchOption) or exc.possibilities:
        return exc.message
    storage, path = "for the storage write --storage-option KEY=VALUE", "if it begins a path, write ./ before it"
    return f"No such option: {exc.option_name}; {storage if exc.option_name == '-o' else path}"


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="tensortrial")
def main() -> None:
    """Inspect, query and export training runs.

    RUN is the folder or URL that a hook saved to, such as runs/digits or s3://bucket/run. A run can be read while it is
    being written.
    """


# This is for the list of commands, and for callers in Python: `__main__` runs the script without click.
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
