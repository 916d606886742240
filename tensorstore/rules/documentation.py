"""The generator of the part of docs/rules.md that describes each built-in rule.

python -m tensortrial.rules.documentation docs/rules.md     # rewrites that part of the page
"""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

from .builtin.base import BuiltinRule
from .parameter import Parameter
from .registry import ALIASES, OURS, SAGEMAKER

BEGIN = "<!-- Generated from the rules: python -m tensortrial.rules.documentation docs/rules.md -->"


def page(text: str) -> str:
    """Return a page with a new generated part. The text before BEGIN is not changed."""
    return f"{text.partition(BEGIN)[0]}{BEGIN}\n\n{generated()}"


def generated() -> str:
    """Return the rules and their parameters as Markdown."""
    parts = ["## The 20 rules of SageMaker Debugger\n", *map(_section, SAGEMAKER)]
    return "\n".join([*parts, "## Thirteen more\n", *map(_section, OURS)])


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


def main(arguments: list[str]) -> int:
    """Rewrite the generated part of the page that `arguments` names, and return the exit status."""
    if len(arguments) != 1:
        print(f"usage: python -m {__spec__.name} docs/rules.md", file=sys.stderr)
        return 2
    path = Path(arguments[0])
    path.write_text(page(path.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
