"""The completions of the shell: folders for runs, names of queries, rules and modes."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem


def complete_run(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the instruction that the shell completes folders."""
    return [CompletionItem(incomplete, type="dir")]


def complete_run_or_query(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the named queries that begin with the incomplete argument, and folders."""
    from ..named_queries import list_queries

    names = [name for name in list_queries() if name.startswith(incomplete)]
    return [*complete_run(context, parameter, incomplete), *map(CompletionItem, names)]


def complete_rule(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the built-in rules that begin with the incomplete option."""
    from ..rules.registry import RULES

    return [CompletionItem(name) for name in sorted(RULES) if name.startswith(incomplete)]
