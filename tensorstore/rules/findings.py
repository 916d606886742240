"""Findings as a list, which a notebook shows as a table."""

from __future__ import annotations

from ..html_table import html_table
from .finding import Finding


class Findings(list[Finding]):
    """A list of findings."""

    def _repr_html_(self) -> str:
        rows = ((_where(finding), finding.sentence) for finding in self)
        title = f"{len(self):,} findings" if len(self) != 1 else "1 finding"
        return html_table(title, rows)


def _where(finding: Finding) -> str:
    step = "" if finding.step is None else f"step {finding.step}, "
    return f"{step}{finding.rule}" + (" could not run" if finding.failed else "")
