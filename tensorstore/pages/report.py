"""A report: the page with its answers in one file, which needs neither a server nor a network."""

from __future__ import annotations

import base64
import json
import posixpath
import re
from collections.abc import Iterator
from contextlib import closing
from itertools import permutations, zip_longest
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

from ..errors import TensorTrialError
from ..format.run_files import check_outside_runs
from ..mode import ModeKeys
from ..plots.thinning import evenly
from ..read.runs import RunLocations, Runs
from ..storage.output_file import write_output
from .open_run import OpenRun
from .payload import dump
from .routes import Answers
from .served_runs import ServedRuns

STATIC = Path(__file__).resolve().parent / "static"
_MOST_BYTES = 4_500_000
# The most runs whose tensors are included. Each takes 0.3 s of CPU time and 6 MB of memory.
_MOST_OPENED = 32
# Each tensor is read separately, so fewer are included of a run with more rows than this.
_MOST_TENSORS, _FEWEST_TENSORS, _ROWS = 48, 8, 20_000_000
# The most values of a run that is diagnosed by default; also in static/diagnosis.js.
_MOST_DIAGNOSED = 400_000
# The number of steps of a tensor that can be selected.
_MOST_STEPS = 1_000
_COLUMNS, _POINTS, _HISTOGRAMS = 200, 200, 24
# static/api.js selects the chosen runs and scalars from these answers.
_MOST_RUNS, _MOST_PANELS = 48, 48
# The runs of which any two are compared: the newest, with which the page begins.
_MOST_COMPARED = 4
# The statistics of the heat map, the most informative ones first.
_STATISTICS = ("l2", "abs_mean", "std", "mean", "nan_count", "zero_fraction", "max", "min", "value", "abs_max")
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' data:; style-src 'unsafe-inline'; img-src data: blob:; "
    "connect-src data: blob:; base-uri 'none'; form-action 'none'"
)
_IMPORT = re.compile(r"""(from\s+|import\s+)"(\.{1,2}/[\w./-]+\.js)";""")

Addressed = tuple[str, dict[str, str]]


def report(runs: Runs | RunLocations, path: str | Path, *, diagnose: bool | None = None) -> int:
    """Write runs as one HTML file below 5 MB. The page names the data that were left out for it.

    The file has the tensors of at most 32 runs, preferring those with findings, then the newest, and lists all runs.

    Args:
        runs: Open runs, or an argument of `open_runs`.
        path: The file, which is replaced if it exists.
        diagnose: Whether it begins with the diagnosis of each run; None to diagnose small runs only.

    Returns:
        The number of findings of rules in all runs.

    Raises:
        RunNotFound: No run can be opened.
        ConfigurationError: `path` is among the files of a run.
        StorageError: The file cannot be written.
    """
    with closing(ServedRuns(runs)) as served:
        return write_report(served, path, diagnose)


def write_report(served: ServedRuns, path: str | Path, diagnose: bool | None = None) -> int:
    """Write a report of runs. Return the number of findings in all of them."""
    check_outside_runs(path)
    page, findings = make_report(served, diagnose)
    write_output(path, page)
    return findings


def make_report(served: ServedRuns, diagnose: bool | None = None) -> tuple[bytes, int]:
    """Return a report of runs, and the number of findings in all of them."""
    known = served.describe()
    newest = sorted(known, key=lambda each: (-(each["started"] or 0), each["name"]))
    with_findings_first = sorted(newest, key=lambda each: not each["findings"])
    readable = [each["name"] for each in with_findings_first if each["snapshot"]][:_MOST_OPENED]
    runs = served.of_each(sorted(readable), lambda run: run)
    compared = [each["name"] for each in newest if each["name"] in readable][:_MOST_COMPARED]
    answers = Answers(served)
    held, size = dict[str, Any](), 0
    for request, given in _requests(answers, runs, compared, diagnose):
        try:
            answer = answers.answer(request, {**given, **_resolution()})
        except TensorTrialError:
            continue  # a damaged file, or a tensor without the requested data
        if request == "tensor":
            answer = {**answer, "steps": evenly(answer["steps"], _MOST_STEPS)}
        size += len(dump(answer))
        if size > _MOST_BYTES and held:
            break
        held[_address(request, given)] = answer
    return _html(held).encode(errors="replace"), sum(each["findings"] for each in known)


def _resolution() -> dict[str, str]:
    numbers = {"columns": str(_COLUMNS), "points": str(_POINTS), "count": str(_HISTOGRAMS)}
    return {**numbers, "statistics": ",".join(_STATISTICS)}


def _requests(answers: Answers, runs: list[OpenRun], compared: list[str], diagnose: bool | None) -> Iterator[Addressed]:
    """Yield the requests that a reader of the report can make, the most important first."""
    yield "info", {}
    yield "sizes", {}
    yield "queries", {}
    for run in runs:
        yield "names", {"run": run.name}
        yield "findings", {"run": run.name}
        if diagnose or (diagnose is None and run.num_values <= _MOST_DIAGNOSED):
            yield "diagnosis", {"run": run.name}
    # The first view shows one mode and one statistic.
    for rank in range(len(_STATISTICS)):
        for run in runs:
            chosen = [each for each in _STATISTICS if each in run.statistics][rank : rank + 1]
            for statistic in chosen:
                for mode in run.modes:
                    yield "tiles", {"run": run.name, "statistic": statistic, "mode": mode}
        if rank == 0:
            yield from _few(runs, compared, answers)
    # The file has a limited size: each run has its first tensor before any has its second.
    for of_each in zip_longest(*(_tensors(answers, run) for run in runs), fillvalue=list[Addressed]()):
        for requests in of_each:
            yield from requests


def _few(runs: list[OpenRun], compared: list[str], answers: Answers) -> Iterator[Addressed]:
    names = [run.name for run in runs[:_MOST_RUNS]]
    listed = _json(names)
    yield "scalar_table", {"runs": listed}
    known = list(dict.fromkeys(each["name"] for each in answers.scalar_table({"runs": listed})))
    if known:
        yield "scalars", {"runs": listed, "names": _json(known[:_MOST_PANELS])}
    for run in runs:
        for mode in run.modes:
            yield "availability", {"run": run.name, "mode": mode}
    for a, b in permutations(compared, 2):
        yield "difference", {"a": a, "b": b}


def _tensors(answers: Answers, run: OpenRun) -> Iterator[list[Addressed]]:
    """Yield the requests about each tensor: the one that is shown first, those of findings, then others."""
    found = answers.findings({"run": run.name})
    steps = {(each["tensor"], each["mode"]): each["step"] for each in found[::-1] if each["tensor"] is not None}
    names = list(dict.fromkeys([*run.names[:1], *(name for name, _ in steps), *run.names]))[: _tensors_of(run)]
    for name in names:
        requests = list[Addressed]()
        for mode in run.modes:
            at = {"run": run.name, "name": name, "mode": mode}
            requests += [("tensor", at), ("series", at), ("histograms", at)]
            known = run.trial.tensor(name).steps(ModeKeys.parse(mode), show_incomplete_steps=True)
            wanted = {steps.get((name, mode)), known[-1] if known else None} - {None}
            saved = sorted(each for each in wanted if each is not None)
            requests += [("value", {**at, "step": str(step)}) for step in saved]
        yield requests


def _tensors_of(run: OpenRun) -> int:
    """Return the number of tensors of a run whose series the report includes."""
    rows = len(run.names) * len(run.steps(ModeKeys.GLOBAL.name).steps)
    return max(_FEWEST_TENSORS, min(_MOST_TENSORS, _MOST_TENSORS * _ROWS // max(rows, 1)))


def _address(request: str, given: dict[str, str]) -> str:
    """Return the address of a request in the spelling of JavaScript's URLSearchParams."""
    query = "&".join(f"{key}={_quoted(value)}" for key, value in given.items() if value != "")
    return f"api/{request}?{query}" if query else f"api/{request}"


def _quoted(text: str) -> str:
    return quote_plus(text, safe="*", errors="replace").replace("~", "%7E")


def _json(values: list[str]) -> str:
    """Return a list in the spelling of JavaScript's JSON.stringify."""
    return json.dumps(values, separators=(",", ":"), ensure_ascii=False)


# The file.


def _html(answers: dict[str, Any]) -> str:
    """Return the page with its answers. '<' is escaped, so that no text of a run can end its element."""
    modules = {path.relative_to(STATIC).as_posix(): path.read_text(encoding="utf-8") for path in STATIC.rglob("*.js")}
    plain = {name: text for name, text in modules.items() if name.startswith("vendor/")}
    imports = {f"page/{name}": _data_url(_bare(name, text)) for name, text in modules.items() if name not in plain}
    styles = "\n".join((STATIC / name).read_text(encoding="utf-8") for name in ("vendor/uPlot.min.css", "page.css"))
    head = [
        f'<meta http-equiv="content-security-policy" content="{_POLICY}">',
        '<meta name="referrer" content="no-referrer">',
        f"<style>{styles}</style>",
        f'<script type="application/json" id="answers">{_inside_script(answers)}</script>',
        f'<script type="importmap">{_inside_script({"imports": imports})}</script>',
        *(f"<script>{text}</script>" for text in plain.values()),
    ]
    page = (STATIC / "index.html").read_text(encoding="utf-8")
    page = re.sub(r"<(link rel=\"stylesheet\"|meta name=\"referrer\")[^>]*>\n|<script[^>]*></script>\n", "", page)
    start = '<script type="module">import "page/app.js";</script>\n</body>'
    return page.replace("</head>", "\n".join([*head, "</head>"])).replace("</body>", start)


def _bare(name: str, text: str) -> str:
    """Return a module that imports by names, because a data: URL cannot resolve relative paths."""
    folder = Path(name).parent

    def named(found: re.Match[str]) -> str:
        return f'{found[1]}"page/{posixpath.normpath((folder / found[2]).as_posix())}";'

    return _IMPORT.sub(named, text)


def _data_url(text: str) -> str:
    return f"data:text/javascript;base64,{base64.b64encode(text.encode()).decode()}"


def _inside_script(value: Any) -> str:
    return dump(value).decode().replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
