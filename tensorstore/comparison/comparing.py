"""The comparison of two runs, two workers of a run, or two of its steps."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from os import PathLike
from typing import Any

from ..dtypes import Array
from ..errors import ConfigurationError, FileError
from ..mode import ModeKeys, checked_step
from ..read.name_filter import name_patterns
from ..read.opening import create_trial, no_refresh
from ..read.trial import Trial, run_reader_of
from ..snapshot.snapshot import repeated
from .indexes import Counts, Indexes, Key
from .result import Comparison, Difference, FirstDifference, Only
from .statements import Side
from .tolerance import Gap, Tolerance, measure

Location = str | PathLike[str] | Trial

# The most tensors whose values are read for their distance: of the first differing step, and scalars.
_MEASURED = 20
_INPUT = re.compile(r"_output(_.*)?$|/outputs?$")


def compare(  # noqa: PLR0913 - the ways in which two runs may correspond
    a: Location,
    b: Location | None = None,
    *,
    rtol: float | None = None,
    atol: float | None = None,
    ulps: int | None = None,
    map: Mapping[str, str] | None = None,
    regex: str | Iterable[str] | None = None,
    mode: ModeKeys | str | None = None,
    workers: tuple[str, str] | None = None,
    steps: tuple[int, int] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Comparison:
    """Find where two runs first differ.

    Tensors of the same name, mode, step of the mode and worker are compared: bit by bit by their digests, or within a
    tolerance by their raw values. If a run has no raw values, its saved statistics are compared.

    Args:
        a: A run: its folder, a URL, or a Trial.
        b: The other run. None compares two workers or two steps of `a`.
        rtol: Elements agree if |a-b| <= atol + rtol*|b|. Statistics likewise.
        atol: See `rtol`.
        ulps: Floats also agree if they are at most this many representable numbers apart. Needs raw values.
        map: The names of tensors of `a` in `b`: regular expressions, each with the replacement of all matches.
        regex: Compare only tensors whose name in `b` matches this regular expression, or one of several.
        mode: Compare only the steps of this mode.
        workers: A worker of `a` and one of `b` to compare, with any names.
        steps: A global step of `a` and one of `b` to compare, with any numbers.
        storage_options: Options for fsspec.

    Returns:
        The first difference, the first one of each tensor, and the parts that only one run has.

    Raises:
        RunNotFound: There is no run.
        ConfigurationError: A tolerance is negative, a regular expression does not compile or gives two tensors one
            name, a worker or step is in neither run, or nothing says what to compare a run with.
    """
    tolerance = Tolerance(rtol, atol, ulps)
    if b is None and workers is None and steps is None:
        raise ConfigurationError("compare needs a second run, or two workers or two steps of one run")
    if not isinstance(map, Mapping | None):
        raise ConfigurationError(f"map must be a dictionary of names, got {map!r:.200}")
    for name, pair in (("workers", workers), ("steps", steps)):
        if pair is not None and not (isinstance(pair, tuple | list) and len(pair) == 2):
            raise ConfigurationError(f"{name} must be a pair, one of each side, got {pair!r:.200}")
    with ExitStack() as stack:
        trials = [_opened(each, storage_options, stack) for each in (a, a if b is None else b)]

        def compared() -> Comparison:
            for trial in trials:
                # The trials are refreshed first, because a running job must not change them during the comparison.
                trial.workers()
            with no_refresh(trials):
                comparing = _Comparing(trials[0], trials[1], tolerance, workers, steps, mode)
                with closing(comparing.indexes):
                    return comparing.run(map or {}, regex)

        def recovered() -> None:
            for trial in trials:
                run_reader_of(trial).recover()

        # Index files may be compacted and deleted while they are read. Those of both runs are then found again.
        return repeated(compared, recovered)


def _opened(location: Location, storage_options: Mapping[str, Any] | None, stack: ExitStack) -> Trial:
    if isinstance(location, Trial):
        return location
    return stack.enter_context(create_trial(location, storage_options=storage_options))


class _Comparing:
    """One comparison."""

    def __init__(
        self,
        a: Trial,
        b: Trial,
        tolerance: Tolerance,
        workers: tuple[str, str] | None,
        steps: tuple[int, int] | None,
        mode: ModeKeys | str | None,
    ) -> None:
        self._trials = a, b
        self._readers = run_reader_of(a), run_reader_of(b)
        self._tolerance = tolerance
        self._mode = None if mode is None else ModeKeys.parse(mode)
        self._workers, self._steps = workers, steps
        self._check()
        compared = "" if self._mode in (None, ModeKeys.GLOBAL) else self._mode.name
        self._only = Only(mode=compared), Only(mode=compared)
        self._incomplete = [0, 0]
        self._damaged: dict[str, FileError] = {}
        self.sides = self._sides()
        self.indexes = Indexes(a, b, self.sides, tolerance)

    def _check(self) -> None:
        for trial, worker in zip(self._trials, self._workers or (), strict=False):
            if worker not in trial.workers():
                raise ConfigurationError(
                    f"unknown worker {worker!r} of {trial.path}; its workers are: {', '.join(trial.workers())}"
                )
        for trial, step in zip(self._trials, self._steps or (), strict=False):
            if checked_step(step) not in (saved := trial.steps(show_incomplete_steps=True)):
                near = min(saved, key=lambda each: abs(each - step), default=None)
                raise ConfigurationError(f"step {step} of {trial.path} was not saved; the nearest is {near}")

    def _sides(self) -> tuple[Side, Side]:
        a, b = (set(trial.workers()) for trial in self._trials)
        common = None if a == b or self._workers else sorted(a & b)
        mode = None if self._mode in (None, ModeKeys.GLOBAL) else self._mode
        modes = [set(trial.modes()) for trial in self._trials]
        varies = {"mode": modes[0] != modes[1] or len(modes[0]) > 1, "worker": a != b or len(a) > 1}
        varying = tuple(name for name, does in varies.items() if does)
        sides = [
            Side(
                view,
                None if self._workers is None else self._workers[number],
                common,
                None if self._steps is None else self._steps[number],
                None if mode is None else mode.name,
                varying=varying,
            )
            for number, view in enumerate("ab")
        ]
        if common is not None:
            for only, here, there in ((self._only[0], a, b), (self._only[1], b, a)):
                only.workers.extend(sorted(here - there))
        return sides[0], sides[1]

    def run(self, renaming: Mapping[str, str], regex: str | Iterable[str] | None) -> Comparison:
        """Return the answer."""
        self._match_names(renaming, regex)
        common_steps = self._match_steps()
        steps, counts = self.indexes.steps_to_join()
        differences = sorted(self._differences(steps).values(), key=_by_execution)
        for trial in self._trials:
            self._damaged |= trial.damaged
        return Comparison(
            self._trials[0].path,
            self._trials[1].path,
            self._first(differences),
            differences,
            *self._only,
            common_steps,
            counts[0].rows,
            vars(self._tolerance),
            self._notes(counts),
            self._named(),
            {path: str(error).removeprefix(f"{path}: ") for path, error in self._damaged.items()},
        )

    # Matching of tensors and steps.

    def _match_names(self, renaming: Mapping[str, str], regex: str | Iterable[str] | None) -> None:
        patterns = list(zip(name_patterns(renaming), renaming.values(), strict=True))
        wanted = [] if regex is None else name_patterns(regex)
        names = [self._names(number, patterns if number == 0 else []) for number in range(2)]
        if wanted:
            names = [
                {name: saved for name, saved in each.items() if any(pattern.search(name) for pattern in wanted)}
                for each in names
            ]
        common = names[0].keys() & names[1].keys()
        for only, each in zip(self._only, names, strict=True):
            only.tensors.extend(sorted(saved for name, saved in each.items() if name not in common))
        if patterns or wanted or self._only[0].tensors or self._only[1].tensors:
            for side, each in zip(self.sides, names, strict=True):
                side.renames = True
                self.indexes.rename(side.view, [(each[name], name) for name in sorted(common)])

    def _names(self, number: int, patterns: Sequence[tuple[re.Pattern[str], str]]) -> dict[str, str]:
        """Return the tensors of a side: the name for the comparison, and the saved name."""
        trial, found = self._trials[number], dict[str, str]()
        step = None if self._steps is None else self._steps[number]
        mode = ModeKeys.GLOBAL if step is not None or self._mode is None else self._mode
        for saved in trial.tensor_names(step=step, mode=mode):
            name = saved
            for pattern, new in patterns:
                try:
                    name = pattern.sub(new, name)
                except (re.error, IndexError, TypeError) as exc:
                    raise ConfigurationError(f"{new!r} cannot replace {pattern.pattern!r}: {exc}") from exc
            if name in found:
                raise ConfigurationError(
                    f"map={{…}} gives {found[name]!r} and {saved!r} the same name {name!r}; make its regular "
                    "expressions match less"
                )
            found[name] = saved
        return found

    def _match_steps(self) -> int:
        """Leave out steps that one side lacks or has not completed, and return the number of the others."""
        if self._steps is not None:
            return 1
        modes = {mode for trial in self._trials for mode in trial.modes()}
        if self._mode not in (None, ModeKeys.GLOBAL):
            modes &= {self._mode}
        common, skipped = 0, list[tuple[str, int]]()
        for mode in sorted(modes, key=lambda each: each.value):
            (a, a_begun), (b, b_begun) = (self._steps_of(trial, mode) for trial in self._trials)
            common += len(a & b)
            skipped += [(mode.name, step) for step in a_begun | b_begun]
            self._incomplete[0] += len(a_begun)
            self._incomplete[1] += len(b_begun)
            for only, steps in zip(self._only, (a - b, b - a), strict=True):
                if steps:
                    only.steps[mode.name] = sorted(steps)
                    skipped += [(mode.name, step) for step in steps]
        if skipped:
            self.indexes.skip(skipped)
        return common

    def _steps_of(self, trial: Trial, mode: ModeKeys) -> tuple[set[int], set[int]]:
        """Return the steps of a mode that all workers have completed, and the other ones."""
        complete, saved = (set(trial.steps(mode, show_incomplete_steps=shows)) for shows in (False, True))
        return complete, saved - complete

    # Differences.

    def _differences(self, steps: Mapping[int, int]) -> dict[Key, Difference]:
        found: dict[Key, Difference] = {}
        known: set[Key] = set()
        for rows in self.indexes.differing_rows(steps, known, self._most()):
            # A value is read only if no earlier difference of its tensor is known.
            for name, mode, worker, needs_values, *cells in rows:
                key = name, mode, worker
                if key not in known and (difference := self._confirmed(Difference(*cells), needs_values)) is not None:
                    found[key] = difference
                    known.add(key)
        return found

    def _most(self) -> int:
        """Return an upper bound for the number of tensors, by mode and worker."""
        if self._steps is not None:
            return 1 << 62
        names = sum(len(self._trials[0].tensor_names(mode=mode)) for mode in self._trials[0].modes())
        return names * len(self._trials[0].workers() if self._workers is None else [""])

    def _confirmed(self, found: Difference, needs_values: bool) -> Difference | None:
        """Return a difference, or None if the raw values are needed to find one, and agree."""
        if not needs_values:
            return found
        try:
            gap = self._measure(found)
        except FileError as exc:
            self._damaged[exc.path] = exc
            return replace(found, kind="unreadable")
        return None if gap is None or gap.agrees else _with_distance(found, gap)

    def _measure(self, row: Difference) -> Gap | None:
        """Return the distance of the raw values; None if one was not saved."""
        places = [(row.name, row.global_step, row.worker), (row.name_b, row.global_step_b, row.worker_b)]
        values: list[Array] = []
        for reader, (name, step, worker) in zip(self._readers, places, strict=True):
            rows = reader.rows(name, step) if name is not None and step is not None else []
            saved = next((each for each in rows if each.worker == worker), None)
            if saved is None or not saved.has_raw:
                return None
            values += reader.read([saved])
        return measure(values[0], values[1], self._tolerance) if values[0].shape == values[1].shape else None

    def _first(self, differences: list[Difference]) -> FirstDifference | None:
        if not differences:
            return None
        first = differences[0]
        for number, each in enumerate(differences[:_MEASURED]):
            if not each.shape or (each.step == first.step and each.mode == first.mode):
                differences[number] = self._measured(each)
        first = differences[0]
        side = 1 if first.kind == "only b" else 0
        # The name of the worker for both sides, and in the rows of this side.
        worker = (first.worker_b if side else first.worker) if self._workers is None else ""
        tensors = self.indexes.tensors_of_step(side, first.mode, 0 if self._steps else first.step, worker or "")
        places = [place for _, place in tensors]
        if first.order is None or None in places:
            return FirstDifference(first, None, len(tensors), None, False)
        at = places.index(first.order) if first.order in places else 0
        before = [name for name, _ in tensors[:at]]
        label = first.name_b if self.sides[0].renames and first.name_b is not None else first.label
        module = _INPUT.sub("", str(label))
        fed = module != label and any(re.match(rf"{re.escape(module)}(_input|/inputs?)", name) for name in before)
        return FirstDifference(first, at + 1, len(tensors), before[-1] if before else None, fed)

    def _measured(self, difference: Difference) -> Difference:
        """Return the difference with the distance of the raw values, if both were saved."""
        if difference.max_abs is not None or difference.kind not in ("value", "dtype", "statistics"):
            return difference
        try:
            gap = self._measure(difference)
        except FileError as exc:
            self._damaged[exc.path] = exc
            return difference
        return difference if gap is None else _with_distance(difference, gap)

    def _named(self) -> tuple[str, str]:
        a, b = (trial.path for trial in self._trials)
        for of in (self._steps and [f"step {step}" for step in self._steps], self._workers):
            if of:
                a, b = f"{of[0]} of {a}", f"{of[1]} of {b}"
        return a, b

    def _notes(self, counts: tuple[Counts, Counts]) -> list[str]:
        notes = [
            f"steps that are not complete, and so are not compared: {count:,} of {trial.path}"
            for trial, count in zip(self._trials, self._incomplete, strict=True)
            if count
        ]
        for trial, count in zip(self._trials, counts, strict=True):
            if self._tolerance.is_exact and count.statistics_only:
                notes.append(
                    f"{count.statistics_only:,} saved tensors of {trial.path} have neither digest nor value: they were "
                    "compared by their saved statistics, which can agree where values differ"
                )
        return notes


def _with_distance(difference: Difference, gap: Gap) -> Difference:
    return replace(difference, max_abs=gap.max_abs, ulps=gap.ulps, elements=gap.elements)


def _by_execution(difference: Difference) -> tuple[Any, ...]:
    step = difference.global_step_b if difference.global_step is None else difference.global_step
    place = difference.order
    return step, place is None, place or 0, difference.label, difference.worker or difference.worker_b
