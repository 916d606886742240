"""Where two runs differ, tensor by tensor: by digests and saved statistics at the steps that both have."""

from __future__ import annotations

from typing import Any

from ..read.runs import open_runs
from ..statistics.definitions import STATISTICS
from .open_run import OpenRun
from .payload import number

_MOST_ROWS = 2_000


def difference(a: OpenRun, b: OpenRun) -> dict[str, Any]:
    """Return the tensors that differ between two runs, the first difference first; see docs/page.md."""
    with open_runs([a.trial, b.trial]) as opened:
        names = {run.storage.url: run.name for run in opened.all}
        left, right = names[a.trial.path], names[b.trial.path]
        rows = opened.sql(_QUERY, {"left": left, "right": right}).fetchall()
    places = {name: place for place, name in enumerate(a.names)}
    differing = [row for row in rows if row[3]]
    differing.sort(key=lambda row: (row[2], places.get(row[0], len(places))))
    answer = [_row(row, is_first=i == 0) for i, row in enumerate(differing[:_MOST_ROWS])]
    lonely = _only_one_has(a, b)
    agreeing = sum(1 for row in rows if not row[3])
    return {"sentence": _sentence(a, b, differing, agreeing), "rows": answer + lonely, "agreeing": agreeing}


def _row(row: tuple[Any, ...], is_first: bool) -> dict[str, Any]:
    name, mode, _, differing, first = row
    return {
        "name": name,
        "mode": mode,
        "step": first["mode_step"],
        "differing": differing,
        "what": first["what"],
        "left": number(first["left_value"]),
        "right": number(first["right_value"]),
        "first": is_first,
    }


def _only_one_has(a: OpenRun, b: OpenRun) -> list[dict[str, Any]]:
    mine, others = set(a.names), set(b.names)
    lonely = [(name, a) for name in a.names if name not in others] + [(name, b) for name in b.names if name not in mine]
    empty = {"mode": "", "step": None, "differing": None, "left": None, "right": None, "first": False}
    return [{"name": name, "what": f"only in {run.name}", **empty} for name, run in lonely[:_MOST_ROWS]]


def _sentence(a: OpenRun, b: OpenRun, differing: list[tuple[Any, ...]], agreeing: int) -> str:
    if not differing:
        if not agreeing:
            return f"{a.name} and {b.name} have no step of a tensor in common."
        return f"{a.name} and {b.name} agree in all statistics and digests at their common steps."
    name, mode, _, _, first = differing[0]
    return (
        f"{a.name} and {b.name} first differ at {mode} step {first['mode_step']}, in {first['what']} of {name}. "
        f"{len(differing)} tensors differ and {agreeing} agree."
    )


def _difference_of(name: str) -> str:
    return f'a."{name}" is distinct from b."{name}"'


_COMPARED = ("scalar", *STATISTICS)
_WHAT = " ".join(f"when {_difference_of(each)} then '{each}'" for each in ("dtype", "shape", *_COMPARED))
_LEFT = " ".join(f'when {_difference_of(each)} then a."{each}"' for each in _COMPARED)
_RIGHT = " ".join(f'when {_difference_of(each)} then b."{each}"' for each in _COMPARED)
_QUERY = f"""
    select
        name, mode, min(global_step) filter (where what is not null) as first_step,
        count(*) filter (where what is not null) as differing,
        arg_min(
            {{'mode_step': mode_step, 'what': what, 'left_value': left_value, 'right_value': right_value}}, global_step
        ) filter (where what is not null) as first
    from (
        select
            a.name, a.mode, a.mode_step, a.global_step,
            -- Equal digests are equal values, whatever else was saved; a digest says nothing where only one run has it.
            case
                when a.digest = b.digest then null
                {_WHAT}
                when a.digest <> b.digest then 'raw value'
            end as what,
            case {_LEFT} end as left_value,
            case {_RIGHT} end as right_value
        from tensors as a
        join tensors as b
            on b.run = $right and a.name = b.name and a.mode = b.mode and a.mode_step = b.mode_step
            and a.worker = b.worker
        where a.run = $left
    )
    group by name, mode
"""
