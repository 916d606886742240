"""Arguments and options that several commands take, and what is made of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import click

from ..errors import MissingCollectionFiles, NotARun, RunNotFound, TensorTrialError
from ..format.schema import RUN_FILE
from ..mode import ModeKeys
from ..read.trial import Trial, create_trial
from ..storage.open import Storage, open_storage
from .console import say

_LOOKED_INTO = 100

_MODES = click.Choice([mode.name for mode in ModeKeys], case_sensitive=False)

run_argument = click.argument("run")
storage_option = click.option(
    "-o",
    "--storage-option",
    "storage_options",
    multiple=True,
    metavar="KEY=VALUE",
    help="For fsspec, e.g. endpoint_url=http://localhost:9000. May be given several times.",
)
timeout_option = click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Stop the query after this many seconds. [default: never]",
)
mode_option = click.option(
    "--mode", type=_MODES, default="GLOBAL", help="Count steps in this mode. [default: over all modes]"
)


def open_trial(run: str, storage_options: Sequence[str], timeout: float | None = None) -> Trial:
    with place_errors(run, storage_options):
        return create_trial(run, timeout=timeout, storage_options=options_of(storage_options))


@contextmanager
def waiting_hint(timeout: float | None) -> Iterator[None]:
    """Say of a run that has not begun that the command can wait for it, or has waited."""
    try:
        yield
    except (RunNotFound, MissingCollectionFiles) as exc:
        waited = "give --timeout SECONDS to wait for it" if timeout is None else f"none began in {timeout:g} seconds"
        raise type(exc)(exc.path, f"{str(exc).removeprefix(f'{exc.path}: ')}; {waited}") from exc


@contextmanager
def place_errors(run: str, storage_options: Sequence[str]) -> Iterator[None]:
    """Says of a place that is no run which runs are right below it."""
    try:
        yield
    except (RunNotFound, NotARun) as exc:
        below = _runs_below(open_storage(run, options_of(storage_options)))
        if below:
            reason = f"this is no run, but a folder with runs in it: name one of them, such as {', '.join(below[:3])}"
            raise NotARun(exc.path, reason) from exc
        if isinstance(exc, RunNotFound):
            raise RunNotFound(exc.path, "there is no run here") from exc
        raise


def _runs_below(storage: Storage) -> list[str]:
    return [name for name in sorted(storage.list(""))[:_LOOKED_INTO] if RUN_FILE in storage.list(name)]


def tell_left_out(damaged: Mapping[str, TensorTrialError]) -> None:
    for place, error in damaged.items():
        reason = str(error).removeprefix(f"{getattr(error, 'path', place)}: ")
        say(f"left out: {place}: {reason}", err=True)


def counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def options_of(storage_options: Sequence[str], hint: str = "--storage-option") -> dict[str, str] | None:
    options = {}
    for option in storage_options:
        key, equals, value = option.partition("=")
        if not equals:
            raise click.BadParameter(f"{option!r} is not KEY=VALUE", param_hint=hint)
        options[key] = value
    return options or None
