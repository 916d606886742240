"""`tensortrial page RUN…`."""

from __future__ import annotations

import webbrowser

import click

from ..console import print_line
from ..options import parse_options, report_skipped, runs_argument, storage_option


@click.command()
@runs_argument
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="The port. [default: a free one]")
@click.option("--token", help='The secret in the address; "" for none. [default: a random one]')
@click.option("--allowed-host", "allowed_hosts", metavar="NAME", multiple=True, help="A name of a proxy in front.")
@click.option("--no-browser", is_flag=True, help="Print the address only.")
@storage_option
def page(
    runs: tuple[str, ...],
    host: str,
    port: int,
    token: str | None,
    allowed_hosts: tuple[str, ...],
    no_browser: bool,
    storage_options: tuple[str, ...],
) -> None:
    """Show runs in the browser, also while they are being written.

    RUN is a run, a folder with runs below it, or a quoted pattern; several are allowed. The page
    changes nothing that a job wrote. Everybody who has the printed address can read it, and write notes about runs.

    \b
    tensortrial page runs/digits
    tensortrial page 'runs/lr=*' --port 8080 --no-browser
    """
    from ...pages import Page

    options = parse_options(storage_options)
    served = Page(runs, host=host, port=port, token=token, allowed_hosts=allowed_hosts, storage_options=options)
    report_skipped(served.runs.damaged)
    print_line(served.url)
    if not no_browser:
        webbrowser.open(served.url)
    served.serve()
