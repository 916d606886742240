"""The project's aims next to the measurements. A missed aim is reported, and nothing fails."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

OURS = "tensortrial"


@dataclass(frozen=True)
class Aim:
    """A ratio or figure, and what it should be at least or at most."""

    what: str
    value: float
    bound: float
    unit: str = "x"
    at_least: bool = False

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


def aims(found: dict[str, Any]) -> Iterator[Aim]:
    """Those aims whose figures were measured."""
    peers, limits = found["peers"], found["limits"]
    ours = peers.get(OURS, {})
    others = {name: each for name, each in peers.items() if name != OURS}
    yield from _writing(ours, others, limits)
    yield from _scalars(ours, others)
    yield from _reading(ours, others, limits)
    yield from _discovering(ours, others)
    yield from _aggregating(ours, limits)
    yield from _storing(ours, limits)


def _writing(ours: dict[str, Any], others: dict[str, Any], limits: dict[str, Any]) -> Iterator[Aim]:
    for size, bound in (("4 MB", 0.9), ("4 kB", 0.6)):
        if size in ours:
            ratio = limits[size]["write"] / limits[size]["count"] / _each(ours[size]["write"])
            yield Aim(f"(a) speed of one plain file, {size}", ratio, bound, at_least=True)
            rivals = [_each(each[size]["write"]) for each in others.values() if _reads(each, size)]
            if rivals:
                ratio = min(rivals) / _each(ours[size]["write"])
                yield Aim(f"(a) time of the fastest peer, over ours, {size}", ratio, 1, at_least=True)


def _discovering(ours: dict[str, Any], others: dict[str, Any]) -> Iterator[Aim]:
    for kind in ("4 kB", "scalars"):
        if kind not in ours:
            continue
        if kind in others.get("smdebug", {}):
            ratio = others["smdebug"][kind]["discover"]["first"] / ours[kind]["discover"]["first"]
            yield Aim(f"(d) speed over smdebug's from a cold start, {kind}", ratio, 100, at_least=True)
        yield Aim(f"(d) nothing is new, {kind}", ours[kind]["discover"]["again"] * 1e6, 100, " us")


def _aggregating(ours: dict[str, Any], limits: dict[str, Any]) -> Iterator[Aim]:
    for size in ours:
        if size in limits:
            ratio = ours[size]["statistics"]["again"] / limits[size]["group by"]
            yield Aim(f"(e) times DuckDB over the perfect file, compacted, {size}", ratio, 2)


def _storing(ours: dict[str, Any], limits: dict[str, Any]) -> Iterator[Aim]:
    for size in ours:
        if size in limits:
            written = ours[size]["write"]
            raw = written["count"] * ours[size]["work"]["nbytes"]
            yield Aim(f"(f) bytes for each byte, {size}", written["bytes"] / raw, 1.02)
    if "scalars" in ours:
        written = ours["scalars"]["write"]
        yield Aim("(f) bytes a scalar", written["bytes"] / written["count"], 40, " bytes")


def _scalars(ours: dict[str, Any], others: dict[str, Any]) -> Iterator[Aim]:
    if "scalars" not in ours:
        return
    yield Aim("(b) a scalar, on the training thread", ours["scalars"]["write"]["each"] * 1e6, 5, " us")
    if "scalars" in others.get("smdebug", {}):
        ratio = _each(others["smdebug"]["scalars"]["write"]) / _each(ours["scalars"]["write"])
        yield Aim("(b) speed over smdebug's, until all is written", ratio, 20, at_least=True)


def _reading(ours: dict[str, Any], others: dict[str, Any], limits: dict[str, Any]) -> Iterator[Aim]:
    for size in ours:
        if size not in limits:
            continue
        warm, limit = ours[size]["read"]["warm"], limits[size]
        yield Aim(f"(c) a value, warm, times np.load(mmap_mode), {size}", warm["value"] / limit["load and map"], 3)
        yield Aim(f"(c) the same, times a copy of what was mapped before, {size}", warm["value"] / limit["mapped"], 3)
        yield Aim(f"(c) a tensor at all steps, warm, times one file, {size}", warm["series"] / limit["series"], 1.5)
    if "4 kB" in ours:
        rivals = [each["4 kB"]["read"]["warm"]["value"] for each in others.values() if _reads(each, "4 kB")]
        if rivals:
            ratio = min(rivals) / ours["4 kB"]["read"]["warm"]["value"]
            yield Aim("(c) time of the fastest peer for a value, over ours, 4 kB", ratio, 1, at_least=True)


def _reads(peer: dict[str, Any], size: str) -> bool:
    return bool(peer.get(size, {}).get("read"))


def _each(written: dict[str, float]) -> float:
    return written["seconds"] / written["count"]
