"""The tables of a measurement, in Markdown: one a question, each figure with how many times tensortrial's it is.

python -m peers.report FILE     # the tables of docs/peers.md, and that of the README
"""

from __future__ import annotations

import json
import platform
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import NAMES, adapter
from .aims import OURS, judge

NOT_OFFERED = "not offered"
_READS = {"value": "one tensor, one step", "series": "one tensor, all steps", "at": "all tensors, one step"}
_STATES = ("first", "again", "cold")

Found = dict[str, Any]
"""The measurements of one round, of a peer or of the limits."""
Figure = Callable[[Found], float]


def _time(value: float) -> str:
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if value * factor >= 1 or unit == "us":
            return f"{value * factor:.3g} {unit}"
    raise AssertionError


@dataclass(frozen=True)
class Column:
    """A figure that all peers have, or some."""

    head: str
    figure: Figure
    form: Callable[[float], str] = _time
    is_compared: bool = True
    limits: Mapping[str, Figure] = field(default_factory=dict)
    """Limits of the same figure, by the names of their rows."""


def taken(figure: Figure, found: Found) -> float | None:
    """Return a figure, or None if the round has none."""
    try:
        return figure(found)
    except (KeyError, TypeError):
        return None


def report(found: Found) -> str:
    """Return the tables: medians of the rounds, and of their ratios."""
    return "\n".join(_lines(found))


def _lines(found: Found) -> Iterator[str]:
    rounds = found["rounds"]
    yield f"`{found['command']}`: {found['machine']}, Python {platform.python_version()}."
    yield (
        f"{found['megabytes']} MB of each size. Medians of {len(rounds)} rounds; in brackets the median of the ratios "
        "to tensortrial in a round, with the least and the most."
    )
    yield "No peer waits for the disk; the SQLite of MLflow and Trackio may at its commits."
    yield ""
    yield "**How each was used**"
    yield ""
    for name, version in found["versions"].items():
        yield f"- {adapter(name).title} {version}: {adapter(name).usage}."
    for failed in found["failed"]:
        yield f"- Failed, and left out: {failed}"
    for title, columns in tables(rounds):
        yield from _table(title, columns, rounds)
    yield from _aims(rounds)


def tables(rounds: Sequence[Found]) -> Iterator[tuple[str, list[Column]]]:
    """Yield the title and the columns of each table that these rounds fill."""
    sizes = list(rounds[0]["limits"])
    has_scalars = any("scalars" in each for each in rounds[0]["peers"].values())
    if sizes:
        yield "(a) Write tensors: the steady state, each", [_steady(size) for size in sizes]
        yield (
            "(a) Write a run of two steps: in a new process, with its imports, and again in the same process",
            [_short(size, what) for size in sizes for what in ("new process", "short")],
        )
        yield "(f) Bytes on disk for each byte", [_size(size) for size in sizes]
    if has_scalars:
        yield "(b) Write scalars, and (f) bytes on disk for each", _scalars()
    for size in sizes:
        yield f"(c) Read tensors of {size}", [_read(size, what, state) for what in _READS for state in _STATES]
    kinds = [*sizes, *(["scalars"] if has_scalars else [])]
    yield (
        "(d) List tensors and steps in a new process: without and with imports, and again when nothing is new",
        [column for kind in kinds for column in _listing(kind)],
    )
    if sizes:
        yield (
            "(e) Mean and l2 of each tensor, over all steps: first and again",
            [
                _summary(size, what)
                for size in sizes
                for what in ("start", "first", "again")
                if _has(rounds, size, what)
            ],
        )


def _aims(rounds: Sequence[Found]) -> Iterator[str]:
    yield ""
    yield "**Aims**"
    yield ""
    yield "| | measured | least to most | aim | |"
    yield "|---|---|---|---|---|"
    for aim in judge(rounds):
        yield f"| {aim.what} | {aim.measured} | {aim.spread} | {aim.wanted} | {aim.verdict} |"


def page_tables(rounds: Sequence[Found]) -> list[str]:
    """Return the tables of the page on performance: medians without their spread."""
    return ["\n".join(_table(title, columns, rounds, has_spread=False)).strip() for title, columns in tables(rounds)]


def claims(rounds: Sequence[Found]) -> list[str]:
    """Return the rows of the README's table: a peer, a task, and how many times tensortrial's time the peer's is."""
    rows = []
    for name, task, figure in _CLAIMED:
        if ratios := _ratios(figure, rounds, name):
            rows.append(f"| {adapter(name).title} | {task} | {_times(statistics.median(ratios))} |")
    return rows


def _table(title: str, columns: list[Column], rounds: Sequence[Found], has_spread: bool = True) -> Iterator[str]:
    yield ""
    yield f"**{title}**"
    yield ""
    yield f"| | {' | '.join(column.head for column in columns)} |"
    yield "|---" * (len(columns) + 1) + "|"
    for name in NAMES:
        if name in rounds[0]["peers"]:
            cells = [_cell(column, rounds, name, has_spread) for column in columns]
            if set(cells) != {NOT_OFFERED}:
                yield f"| {adapter(name).title} | {' | '.join(cells)} |"
    for what in dict.fromkeys(what for column in columns for what in column.limits):
        yield f"| *{what}* | {' | '.join(_limit(column, what, rounds) for column in columns)} |"


def _cell(column: Column, rounds: Sequence[Found], name: str, has_spread: bool) -> str:
    measured = [taken(column.figure, each["peers"].get(name, {})) for each in rounds]
    values = [value for value in measured if value is not None]
    if not values:
        return NOT_OFFERED
    if statistics.median(values) <= 0:  # the short run took longer than the long one
        return "less than the noise"
    text = column.form(statistics.median(values))
    ratios = _ratios(column.figure, rounds, name)
    if name == OURS or not column.is_compared or not ratios:
        return text
    spread = f", {_times(min(ratios))} to {_times(max(ratios))}" if has_spread else ""
    return f"{text} ({_times(statistics.median(ratios))}{spread})"


def _ratios(figure: Figure, rounds: Sequence[Found], name: str) -> list[float]:
    """Return how many times tensortrial's figure that of a peer is, in each round that has both."""
    both = [[taken(figure, each["peers"].get(peer, {})) for peer in (name, OURS)] for each in rounds]
    return [value / ours for value, ours in both if value is not None and ours]


def _limit(column: Column, what: str, rounds: Sequence[Found]) -> str:
    if what not in column.limits:
        return ""
    values = [taken(column.limits[what], each["limits"]) for each in rounds]
    measured = [value for value in values if value is not None]
    return column.form(statistics.median(measured)) if measured else ""


def _steady(size: str) -> Column:
    return Column(
        size,
        lambda peer: peer[size]["write"]["steady"],
        limits={
            "a copy in memory": lambda found: found[size]["copy"] / found[size]["count"],
            "one plain file": lambda found: found[size]["write"] / found[size]["count"],
        },
    )


def _short(size: str, what: str) -> Column:
    head = f"{size}, {'new process' if what == 'new process' else 'again'}"
    return Column(head, lambda peer: peer[size]["write"][what])


def _size(size: str) -> Column:
    def figure(peer: Found) -> float:
        return peer[size]["write"]["bytes"] / (peer[size]["write"]["count"] * peer[size]["work"]["nbytes"])

    return Column(size, figure, "{:.4f}".format, is_compared=False)


def _scalars() -> list[Column]:
    return [
        Column("in the loop, each", lambda peer: peer["scalars"]["write"]["each"]),
        Column("until all is written, each", _written("seconds")),
        Column("bytes each", _written("bytes"), "{:.1f}".format, is_compared=False),
        Column("measured with", lambda peer: peer["scalars"]["write"]["count"], "{:,.0f}".format, is_compared=False),
    ]


def _read(size: str, what: str, state: str) -> Column:
    limits: dict[str, Figure] = {}
    if what == "value" and state == "cold":
        limits["np.load(mmap_mode), all in one file"] = lambda found: found[size]["load and map cold"]
    elif what == "value":
        limits["np.load(mmap_mode), all in one file"] = lambda found: found[size]["load and map"]
        limits["the same, mapped before"] = lambda found: found[size]["mapped"]
    else:
        key = f"{what} cold" if state == "cold" else what
        limits["the same bytes, alone in one file"] = lambda found: found[size][key]
    return Column(f"{_READS[what]}, {state}", lambda peer: peer[size]["read"][state][what], limits=limits)


def _listing(kind: str) -> list[Column]:
    def found(peer: Found) -> Found:
        return peer[kind]["discover"]

    return [
        Column(f"{kind}, first", lambda peer: found(peer)["first"]),
        Column(f"{kind}, with imports", lambda peer: found(peer)["import"] + found(peer)["first"]),
        Column(f"{kind}, again", lambda peer: found(peer)["again"]),
    ]


def _has(rounds: Sequence[Found], size: str, what: str) -> bool:
    return any(taken(lambda peer: peer[size]["statistics"][what], each["peers"].get(OURS, {})) for each in rounds)


def _summary(size: str, what: str) -> Column:
    key = "group by" if what == "again" else f"group by, {what}"
    limits = {"DuckDB, one sorted Parquet file": lambda found: found[size][key]}
    is_start = what == "start"
    head = f"{size}, import and start of an engine" if is_start else f"{size}, {what}"
    return Column(head, lambda peer: peer[size]["statistics"][what], limits=limits, is_compared=not is_start)


def _times(ratio: float) -> str:
    return f"{ratio:.2f}x" if ratio < 10 else f"{ratio:.0f}x"


def _written(what: str) -> Figure:
    return lambda peer: peer["scalars"]["write"][what] / peer["scalars"]["write"]["count"]


_CLAIMED: list[tuple[str, str, Figure]] = [
    ("smdebug", "write a scalar, until it can be read", _written("seconds")),
    ("trackio", "write a scalar, until it can be read", _written("seconds")),
    ("smdebug", "write a tensor of 4 kB", lambda peer: peer["4 kB"]["write"]["steady"]),
    ("safetensors", "write a tensor of 4 kB", lambda peer: peer["4 kB"]["write"]["steady"]),
    ("safetensors", "write a tensor of 4 MB", lambda peer: peer["4 MB"]["write"]["steady"]),
    ("numpy", "read a tensor of 4 kB at a step", lambda peer: peer["4 kB"]["read"]["first"]["value"]),
    ("tensorstore", "read a tensor of 4 kB at all steps", lambda peer: peer["4 kB"]["read"]["first"]["series"]),
    ("safetensors", "read all tensors of 4 kB of a step", lambda peer: peer["4 kB"]["read"]["first"]["at"]),
    ("numpy", "read a tensor of 4 kB at all steps", lambda peer: peer["4 kB"]["read"]["first"]["series"]),
    ("safetensors", "read a tensor of 100 kB at all steps", lambda peer: peer["100 kB"]["read"]["first"]["series"]),
    ("lance", "compute mean and l2 of all tensors of 4 kB, again", lambda peer: peer["4 kB"]["statistics"]["again"]),
]
"""The rows of the README's table: what is better here, and what is not."""


def main() -> None:
    rounds = json.loads(Path(sys.argv[1]).read_text())["rounds"]
    print("\n\n".join(page_tables(rounds)), *claims(rounds), sep="\n")


if __name__ == "__main__":
    main()
