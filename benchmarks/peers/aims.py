"""The project's aims next to the measurements. A missed aim is reported, and nothing fails."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

OURS = "tensortrial"
_COMPACTED = "compacted"


@dataclass(frozen=True)
class Aim:
    """A ratio or figure, and what it should be at least or at most."""

    what: str
    value: float
    bound: float
    unit: str = "x"
    at_least: bool = False
    spread: str = ""

    @property
    def measured(self) -> str:
        return f"{self.value:.3g}{self.unit}"

    @property
    def wanted(self) -> str:
        return f"{'at least' if self.at_least else 'at most'} {self.bound:g}{self.unit}"

    @property
    def verdict(self) -> str:
        missed_by = self.bound / self.value if self.at_least else self.value / self.bound
        return "met" if missed_by <= 1 else f"missed by {missed_by:.2f}x"


def judge(rounds: Sequence[dict[str, Any]]) -> Iterator[Aim]:
    """Judge each aim that was measured by the median of the rounds."""
    measured: dict[str, list[Aim]] = {}
    for each in rounds:
        for aim in _aims(each):
            measured.setdefault(aim.what, []).append(aim)
    for aims in measured.values():
        values = [aim.value for aim in aims]
        yield replace(aims[0], value=statistics.median(values), spread=f"{min(values):.3g} to {max(values):.3g}")


def _aims(found: dict[str, Any]) -> Iterator[Aim]:
    """The aims of one round."""
    peers, limits = found["peers"], found["limits"]
    ours = peers.get(OURS, {})
    others = {name: each for name, each in peers.items() if name not in (OURS, _COMPACTED)}
    yield from _writing(ours, others, limits)
    yield from _scalars(ours, others)
    yield from _reading(ours, peers.get(_COMPACTED, {}), others, limits)
    yield from _discovering(ours, others)
    yield from _aggregating(ours, limits)
    yield from _storing(ours, limits)


def _ahead(what: str, rivals: list[float], own: float) -> Iterator[Aim]:
    """The time of the fastest peer over our own."""
    if rivals := [time for time in rivals if time > 0]:  # what is not less than the noise
        yield Aim(f"{what}: time of the fastest peer over ours", min(rivals) / own, 1, at_least=True)


def _writing(ours: dict[str, Any], others: dict[str, Any], limits: dict[str, Any]) -> Iterator[Aim]:
    for size in limits:
        if size not in ours:
            continue
        own = ours[size]["write"]["steady"]
        rivals = [each[size]["write"]["steady"] for each in others.values() if _reads(each, size)]
        yield from _ahead(f"(a) write, {size}", rivals, own)
        if size == "4 MB":
            plain = limits[size]["write"] / limits[size]["count"]
            yield Aim("(a) write, 4 MB: times one plain file", own / plain, 1.2)
        yield Aim(f"(a) open and close a short run, {size}", ours[size]["write"]["short"] * 1e3, 20, " ms")


def _scalars(ours: dict[str, Any], others: dict[str, Any]) -> Iterator[Aim]:
    if "scalars" not in ours:
        return
    written = ours["scalars"]["write"]
    yield Aim("(b) a scalar, on the training thread", written["each"] * 1e6, 5, " us")
    if "scalars" in others.get("smdebug", {}):
        other = others["smdebug"]["scalars"]["write"]
        ratio = other["seconds"] / other["count"] / (written["seconds"] / written["count"])
        yield Aim("(b) speed over smdebug's, until all is written", ratio, 20, at_least=True)


def _reading(
    ours: dict[str, Any], compacted: dict[str, Any], others: dict[str, Any], limits: dict[str, Any]
) -> Iterator[Aim]:
    for size in limits:
        if size not in ours:
            continue
        for what in ("value", "series", "at"):
            for state in ("first", "again"):
                rivals = [each[size]["read"][state][what] for each in others.values() if _reads(each, size)]
                yield from _ahead(f"(c) {what}, {size}, {state}", rivals, ours[size]["read"][state][what])
        if _reads(compacted, size):
            ratio = compacted[size]["read"]["first"]["series"] / limits[size]["series"]
            yield Aim(f"(c) a tensor at all steps, compacted, {size}: times one plain read", ratio, 2)
    if "4 kB" in ours:
        yield Aim("(c) a value, 4 kB, again", ours["4 kB"]["read"]["again"]["value"] * 1e6, 10, " us")


def _discovering(ours: dict[str, Any], others: dict[str, Any]) -> Iterator[Aim]:
    for kind in ("4 kB", "scalars"):
        if kind not in ours:
            continue
        if kind in others.get("smdebug", {}):
            ratio = others["smdebug"][kind]["discover"]["first"] / ours[kind]["discover"]["first"]
            yield Aim(f"(d) speed over smdebug's from a cold start, {kind}", ratio, 100, at_least=True)
        yield Aim(f"(d) nothing is new, {kind}", ours[kind]["discover"]["again"] * 1e6, 60, " us")


def _aggregating(ours: dict[str, Any], limits: dict[str, Any]) -> Iterator[Aim]:
    for size in limits:
        for state, key in (("first", "group by, first"), ("again", "group by")):
            if size in ours:
                ratio = ours[size]["statistics"][state] / limits[size][key]
                yield Aim(f"(e) times DuckDB over one sorted file, {size}, {state}", ratio, 2)


def _storing(ours: dict[str, Any], limits: dict[str, Any]) -> Iterator[Aim]:
    for size in limits:
        if size in ours:
            written = ours[size]["write"]
            raw = written["count"] * ours[size]["work"]["nbytes"]
            yield Aim(f"(f) bytes for each byte, {size}", written["bytes"] / raw, 1.02)
    if "scalars" in ours:
        written = ours["scalars"]["write"]
        yield Aim("(f) bytes a scalar", written["bytes"] / written["count"], 40, " bytes")


def _reads(peer: dict[str, Any], size: str) -> bool:
    return bool(peer.get(size, {}).get("read"))
