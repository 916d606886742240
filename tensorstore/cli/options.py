"""Arguments and options that several commands take, and what is made of them."""

from __future__ import annotations

from collections.abc import Sequence

import click

from ..mode import ModeKeys
from ..trial import Trial, create_trial

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
mode_option = click.option(
    "--mode", type=_MODES, default="GLOBAL", help="Count steps in this mode. [default: over all modes]"
)


def open_trial(run: str, storage_options: Sequence[str], timeout: float | None = None) -> Trial:
    return create_trial(run, timeout=timeout, storage_options=options_of(storage_options))


def options_of(storage_options: Sequence[str], hint: str = "--storage-option") -> dict[str, str] | None:
    options = {}
    for option in storage_options:
        key, equals, value = option.partition("=")
        if not equals:
            raise click.BadParameter(f"{option!r} is not KEY=VALUE", param_hint=hint)
        options[key] = value
    return options or None
