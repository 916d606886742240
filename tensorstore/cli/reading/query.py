"""`tensortrial query RUN… NAME`."""

from __future__ import annotations

import click

from ...named_queries import list_queries, named_query, query_text
from ...named_queries import query as run_query
from ..argument_order import runs_and_name
from ..completion import complete_run_or_query
from ..console import console_for, print_table
from ..options import opened_runs, parse_options, storage_option, timeout_option
from ..rows import RowOutput, output_options


@click.command(context_settings={"max_content_width": 100})
@click.argument("arguments", metavar="[RUN]... [NAME]", nargs=-1, shell_complete=complete_run_or_query)
@click.option("--param", multiple=True, metavar="NAME=VALUE", help="A parameter of the query. Can be repeated.")
@click.option("--list", "lists", is_flag=True, help="List the named queries; with NAME, describe that query.")
@click.option(
    "--dialect", help="Print the SQL for another engine, such as postgres, spark or snowflake, without running it."
)
@click.option("--from-raw", is_flag=True, help="Compute statistics that were not saved from raw values.")
@output_options
@timeout_option
@storage_option
def query(
    arguments: tuple[str, ...],
    param: tuple[str, ...],
    lists: bool,
    dialect: str | None,
    from_raw: bool,
    rows: RowOutput,
    timeout: float | None,
    storage_options: tuple[str, ...],
) -> None:
    """Run a named query, such as losses or dead_layers.

    RUN is a run, a folder with runs below it, or a quoted pattern; several are allowed. NAME may also come first.

    \b
    tensortrial query best_runs --list
    tensortrial query runs best_runs --param name=loss --param limit=3
    """
    name, runs = runs_and_name(arguments, list(list_queries()))
    values = parse_options(param, "--param") or {}
    if lists or name is None:
        _describe(name)
    elif dialect is not None:
        click.echo(query_text(name, dialect, **values))
    else:
        named_query(name).values(values)
        if not runs:
            raise click.UsageError(f"missing RUN; write: tensortrial query RUN {name}")
        with opened_runs(runs, storage_options) as opened:
            rows.write(run_query(opened, name, from_raw=from_raw, timeout=timeout, **values))


def _describe(name: str | None) -> None:
    if name is None:
        print_table(
            console_for(), ["query", "question"], [[each.name, each.question] for each in list_queries().values()]
        )
        return
    query = named_query(name)
    click.echo(f"{query.question}\n")
    for parameter in query.parameters:
        click.echo(f"--param {parameter}\n    {parameter.meaning}")
    click.echo(f"\ncolumns: {query.columns}\n\n{query.sql}")
