"""The generator of the part of docs/rules.md that describes each built-in rule.

python docs/site/rules_page.py     # rewrites that part of the page
"""

from __future__ import annotations

import inspect
from pathlib import Path

from tensortrial.rules.builtin.base import BuiltinRule
from tensortrial.rules.parameter import Parameter
from tensortrial.rules.registry import ALIASES, OURS, SAGEMAKER

BEGIN = "<!-- Generated from the rules: python docs/site/rules_page.py -->"
PAGE = Path(__file__).resolve().parents[1] / "rules.md"


def page(text: str) -> str:
    """Return a page with a new generated part. The text before BEGIN is not changed."""
    return f"{text.partition(BEGIN)[0]}{BEGIN}\n\n{generated()}"


def generated() -> str:
    """Return the rules and their parameters as Markdown."""
    parts = ["## The 20 rules of SageMaker Debugger\n", *map(_section, SAGEMAKER)]
    return "\n".join([*parts, "## Sixteen more\n", *map(_section, OURS)])


def _section(rule: type[BuiltinRule]) -> str:
    lines = [f"### {rule.__name__}\n", f"{inspect.getdoc(rule)}\n"]
    names = [alias for alias, name in ALIASES.items() if name == rule.__name__]
    if names:
        lines.append(f"Another name is {', '.join(f'`{name}`' for name in names)}.\n")
    if rule.PARAMETERS:
        lines += ["| parameter | type | default | |", "|---|---|---|---|"]
        lines += [_row(name, parameter) for name, parameter in rule.PARAMETERS.items()]
        lines.append("")
    return "\n".join(lines)


def _row(name: str, parameter: Parameter) -> str:
    default = "" if parameter.default is None else f"`{parameter.default}`"
    cells = (f"`{name}`", parameter.type_name, default, parameter.text)
    # A bar ends a cell of a table, even inside backquotes.
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
