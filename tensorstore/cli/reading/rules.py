"""`tensortrial rules`."""

from __future__ import annotations

import inspect
import json
from typing import Any

import click

from ...rules.builtin.base import BuiltinRule
from ...rules.registry import RULES, rule_class
from ..completion import complete_rule
from ..console import console_for, print_table


@click.command()
@click.argument("name", required=False, shell_complete=complete_rule)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each rule, on a line.")
def rules(name: str | None, as_json: bool) -> None:
    """List the built-in rules, or describe one and its parameters.

    \b
    tensortrial rules
    tensortrial rules VanishingGradient
    tensortrial watch runs/digits --rule VanishingGradient:threshold=1e-6
    """
    chosen = list(RULES.values()) if name is None else [rule_class(name)]
    if as_json:
        for rule in chosen:
            click.echo(json.dumps(_document(rule)))
    elif name is None:
        print_table(console_for(), ["rule", "fires if"], [[each.__name__, _condition(each)] for each in chosen])
    else:
        _describe(chosen[0])


def _condition(rule: type[BuiltinRule]) -> str:
    first = (inspect.getdoc(rule) or "").partition("\n\n")[0].replace("\n", " ")
    return first.removeprefix("Fires if ").rstrip(".")


def _describe(rule: type[BuiltinRule]) -> None:
    console = console_for()
    console.print(rule.__name__, style="bold")
    for paragraph in (inspect.getdoc(rule) or "").split("\n\n"):
        # Lists keep their line breaks.
        console.print()
        console.print(paragraph if paragraph.startswith("- ") else paragraph.replace("\n", " "))
    defaults = {name: "" if each.default is None else str(each.default) for name, each in rule.PARAMETERS.items()}
    rows = [[name, defaults[name], each.text] for name, each in rule.PARAMETERS.items()]
    if rows:
        print_table(console, ["parameter", "default", ""], rows)


def _document(rule: type[BuiltinRule]) -> dict[str, Any]:
    parameters = {
        name: {"type": each.type_name, "default": each.default, "text": each.text}
        for name, each in rule.PARAMETERS.items()
    }
    return {"rule": rule.__name__, "text": inspect.getdoc(rule), "parameters": parameters}
