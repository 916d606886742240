"""`tensortrial query NAME RUN…`."""

from __future__ import annotations

import click

from ..read.named_queries import list_queries, named_query, query_text
from ..read.named_queries import query as ask
from ..read.runs import open_runs
from .options import options_of, storage_option, tell_left_out, timeout_option
from .rows import format_option, guard_option, output_option, write_rows


@click.command(context_settings={"max_content_width": 100})
@click.argument("name", required=False)
@click.argument("runs", metavar="[RUN]...", nargs=-1)
@click.option("--param", multiple=True, metavar="NAME=VALUE", help="A parameter. May be given several times.")
@click.option("--list", "lists", is_flag=True, help="List the named queries; with NAME, describe that one.")
@click.option(
    "--dialect", help="Print the SQL for another engine, such as postgres, spark or snowflake, and run nothing."
)
@click.option("--from-raw", is_flag=True, help="Compute statistics that were not saved from raw values.")
@format_option
@output_option
@guard_option
@timeout_option
@storage_option
def query(
    name: str | None,
    runs: tuple[str, ...],
    param: tuple[str, ...],
    lists: bool,
    dialect: str | None,
    from_raw: bool,
    form: str,
    output: str | None,
    guard_formulas: bool,
    timeout: float | None,
    storage_options: tuple[str, ...],
) -> None:
    """Ask runs a named query, such as losses or dead_layers.

    RUN is a run, a folder that has runs below it, or a quoted pattern; there may be several.

    \b
    tensortrial query best_runs --list
    tensortrial query best_runs runs --param name=loss --param limit=3
    """
    values = options_of(param, "--param") or {}
    if lists or name is None:
        _describe(name)
    elif dialect is not None:
        click.echo(query_text(name, dialect, **values))
    else:
        named_query(name).values(values)
        if not runs:
            raise click.UsageError("name at least one RUN")
        opened = open_runs(runs, storage_options=options_of(storage_options))
        write_rows(ask(opened, name, from_raw=from_raw, timeout=timeout, **values), form, output, guard_formulas)
        tell_left_out(opened.damaged)


def _describe(name: str | None) -> None:
    if name is None:
        queries = list_queries()
        width = max(map(len, queries))
        for each in queries.values():
            click.echo(f"{each.name:{width}}  {each.question}")
        return
    asked = named_query(name)
    click.echo(f"{asked.question}\n")
    for parameter in asked.parameters:
        click.echo(f"--param {parameter}\n    {parameter.meaning}")
    click.echo(f"\ncolumns: {asked.columns}\n\n{asked.sql}")
