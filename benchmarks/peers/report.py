"""What was measured, as Markdown: a table a question, each figure with how many times tensortrial's it is."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator
from typing import Any

from . import NAMES, adapter
from .aims import aims

OURS = "tensortrial"
NOT_OFFERED = "not offered"
_READS = {"value": "one tensor, one step", "series": "one tensor, all steps", "at": "all tensors, one step"}


def report(found: dict[str, Any]) -> str:
    """The tables, from the best round of each figure."""
    return "\n".join(_lines(found))


def _lines(found: dict[str, Any]) -> Iterator[str]:
    peers, limits, versions = found["peers"], found["limits"], found["versions"]
    yield f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}; "
    yield f"{found['megabytes']} MB of each size, best of {found['rounds']} rounds; in brackets times tensortrial's."
    yield "No peer waits for the disk; the SQLite of MLflow and Trackio may at its commits."
    yield ""
    yield "**How each was used**"
    yield ""
    for name in versions:
        yield f"- {adapter(name).title} {versions[name]}: {adapter(name).usage}."
    sizes = list(limits)
    for failed in found["failed"]:
        yield f"- Failed, and left out: {failed}"
    if sizes:
        yield from _table(
            "(a) Write tensors, and (f) bytes on disk for each byte",
            [*(f"{size}, us each" for size in sizes), *(f"{size}, bytes" for size in sizes)],
            peers,
            [*(_written(size) for size in sizes), *(_size(size) for size in sizes)],
            {
                "a copy in memory": [_time(limits[size]["copy"] / limits[size]["count"]) for size in sizes],
                "one plain file": [_time(limits[size]["write"] / limits[size]["count"]) for size in sizes],
            },
        )
    if any("scalars" in each for each in peers.values()):
        yield from _table(
            "(b) Write scalars, and (f) bytes on disk for each",
            ["in the loop, us each", "until all is written, us each", "bytes each", "measured with"],
            peers,
            [_scalar("each", 1), _scalar("seconds"), _scalar_size, _scalar_count],
            {},
        )
    for size in sizes:
        heads = [f"{what}, {state}" for what in _READS.values() for state in ("warm", "cold")]
        yield from _table(
            f"(c) Read tensors of {size}",
            heads,
            peers,
            [_read(size, state, what) for what in _READS for state in ("warm", "cold")],
            _reading_limits(limits[size]),
        )
    kinds = [*sizes, *(["scalars"] if any("scalars" in each for each in peers.values()) else [])]
    yield from _table(
        "(d) Listing tensors and steps in a new process: without and with imports, and when nothing is new",
        [f"{kind}, {what}" for kind in kinds for what in ("first", "with imports", "again")],
        peers,
        [_found(kind, what) for kind in kinds for what in ("first", "imports", "again")],
        {},
    )
    yield from _table(
        "(e) Mean and l2 of each tensor, over all steps: first and again",
        [f"{size}, {what}" for size in sizes for what in ("first", "again")],
        peers,
        [_summary(size, what) for size in sizes for what in ("first", "again")],
        {
            "DuckDB, one sorted Parquet file": [
                _time(limits[size][what]) for size in sizes for what in ("group by, first", "group by")
            ]
        },
    )
    yield ""
    yield "**Aims**"
    yield ""
    yield "| | measured | aim | |"
    yield "|---|---|---|---|"
    for aim in aims(found):
        yield f"| {aim.what} | {aim.measured} | {aim.wanted} | {aim.verdict} |"


Figure = Callable[[dict[str, Any]], tuple[float | None, Callable[[float], str], bool]]


def _table(
    title: str, heads: list[str], peers: dict[str, Any], figures: list[Figure], limits: dict[str, list[str]]
) -> Iterator[str]:
    yield ""
    yield f"**{title}**"
    yield ""
    yield f"| | {' | '.join(heads)} |"
    yield "|---" * (len(heads) + 1) + "|"
    ours = [_measured(figure, peers.get(OURS, {}))[0] for figure in figures]
    for name in NAMES:
        if name not in peers:
            continue
        cells = [_cell(figure, peers[name], base, name) for figure, base in zip(figures, ours, strict=True)]
        if set(cells) != {NOT_OFFERED}:
            yield f"| {adapter(name).title} | {' | '.join(cells)} |"
    for what, cells in limits.items():
        padded = [*cells, *[""] * (len(heads) - len(cells))]
        yield f"| *{what}* | {' | '.join(padded)} |"


def _measured(figure: Figure, peer: dict[str, Any]) -> tuple[float | None, Callable[[float], str], bool]:
    try:
        return figure(peer)
    except (KeyError, TypeError):
        return None, str, False


def _cell(figure: Figure, peer: dict[str, Any], base: float | None, name: str) -> str:
    value, form, compared = _measured(figure, peer)
    if value is None:
        return NOT_OFFERED
    if not compared or base is None or name == OURS:
        return form(value)
    return f"{form(value)} ({_times(value / base)})"


def _written(size: str) -> Figure:
    return lambda peer: (peer[size]["write"]["seconds"] / peer[size]["write"]["count"], _time, True)


def _size(size: str) -> Figure:
    def figure(peer: dict[str, Any]) -> tuple[float | None, Callable[[float], str], bool]:
        raw = peer[size]["write"]["count"] * peer[size]["work"]["nbytes"]
        return peer[size]["write"]["bytes"] / raw, "{:.4f}".format, False

    return figure


def _scalar(what: str, count: int | None = None) -> Figure:
    return lambda peer: (
        peer["scalars"]["write"][what] / (count or peer["scalars"]["write"]["count"]),
        _time,
        True,
    )


def _scalar_size(peer: dict[str, Any]) -> tuple[float | None, Callable[[float], str], bool]:
    return peer["scalars"]["write"]["bytes"] / peer["scalars"]["write"]["count"], "{:.1f}".format, False


def _scalar_count(peer: dict[str, Any]) -> tuple[float | None, Callable[[float], str], bool]:
    return peer["scalars"]["write"]["count"], "{:,.0f}".format, False


def _read(size: str, state: str, what: str) -> Figure:
    return lambda peer: (peer[size]["read"][state][what], _time, True)


def _found(kind: str, what: str) -> Figure:
    if what == "imports":
        return lambda peer: (peer[kind]["discover"]["import"] + peer[kind]["discover"]["first"], _time, True)
    return lambda peer: (peer[kind]["discover"][what], _time, True)


def _summary(size: str, what: str) -> Figure:
    return lambda peer: (peer[size]["statistics"][what], _time, True)


def _reading_limits(limits: dict[str, float]) -> dict[str, list[str]]:
    plain = [_time(limits[what]) for what in ("series", "series cold", "at", "at cold")]
    return {
        "the same bytes, alone in one file": ["", "", *plain],
        "np.load(mmap_mode), all in one file": [_time(limits["load and map"]), _time(limits["load and map cold"])],
        "the same, mapped before": [_time(limits["mapped"])],
    }


def _time(value: float) -> str:
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if value * factor >= 1 or unit == "us":
            return f"{value * factor:.3g} {unit}"
    raise AssertionError


def _times(ratio: float) -> str:
    return f"{ratio:.2f}x" if ratio < 10 else f"{ratio:.0f}x"
