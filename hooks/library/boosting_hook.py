"""The base of the hooks for boosting: a round is a step, with the metrics of each evaluation set."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tensortrial.config.collection import CollectionKeys
from tensortrial.dtypes import Array
from tensortrial.mode import ModeKeys

from ..core.base_hook import BaseHook
from ..core.configuration.options import Framework, HookOptions
from ..core.process.rank import Rank
from ..core.recorder import Recorder

SAVE_INTERVAL = 10
"""The rounds between two saves where no configuration says otherwise."""

PATTERNS = {
    CollectionKeys.METRICS: "",
    CollectionKeys.LOSSES: "",
    CollectionKeys.SM_METRICS: "",
    CollectionKeys.HYPERPARAMETERS: "^hyperparameters/",
    CollectionKeys.FEATURE_IMPORTANCE: "^feature_importance/",
    CollectionKeys.TREES: "^trees/",
}
"""The collections of a boosting hook with the patterns of their tensors. Metrics and losses are added by name."""


def boosting_framework(name: str, version: str, collections: Iterable[str] = PATTERNS) -> Framework:
    """Describe a framework for boosting."""
    return Framework(
        name,
        {name: version},
        builtin=collections,
        always_saved=[CollectionKeys.METRICS],
        by_default=[CollectionKeys.FEATURE_IMPORTANCE],
        save_interval=SAVE_INTERVAL,
        # A round of boosting is one computation.
        is_ordered=False,
    )


class BoostingHook(BaseHook):
    """A hook whose steps are rounds of boosting."""

    def _open(
        self,
        options: HookOptions,
        framework: Framework,
        rank: Callable[[], Rank],
        patterns: Mapping[str, str] = PATTERNS,
    ) -> None:
        """Make the recorder, with the patterns of the collections."""
        self.recorder = Recorder(options, framework, rank)
        for name, pattern in patterns.items():
            if pattern:
                self.recorder.collections.require(name).include(pattern)
        self._metrics: set[str] = set()
        self._has_several_models = False
        self._rounds: dict[ModeKeys, int] = {}
        """The number of rounds of each mode's newest model so far."""

    def _begin_at(self, rounds: int) -> None:
        """Begin a training whose model has some rounds already: its steps continue with the numbers of its rounds.

        Steps that the run has saved from there on are superseded. After steps of another model, the numbers continue
        from those instead.
        """
        newest = self.recorder.clock.newest().get(self.mode, -1)
        # The user may have saved steps of other modes meanwhile, which are steps of mode GLOBAL, too.
        following = self._rounds.get(self.mode, newest + 1)
        if newest < 0:
            self.recorder.start_at(rounds)
        elif not rounds:
            self._has_several_models = True
        elif not self._has_several_models and rounds != following:
            self.recorder.resume_at(rounds, None)
        self._rounds[self.mode] = rounds

    def _save_round(self, metrics: Mapping[str, float], losses: Iterable[str], capture: Callable[[], None]) -> None:
        """Save a round as a step.

        Args:
            metrics: The metrics by name.
            losses: The names of metrics that fall as the model improves.
            capture: Records what else is due.
        """
        if not self._metrics.issuperset(metrics):
            self._metrics.update(metrics)
            collections = self.recorder.collections
            collections.require(CollectionKeys.METRICS).add_tensor_names(metrics)
            collections.require(CollectionKeys.LOSSES).add_tensor_names(losses)
        if self.mode in self._rounds:
            self._rounds[self.mode] += 1
        self.recorder.begin_step()
        if self.recorder.saving:
            self._record_numbers(tuple(metrics), list(metrics.values()))
            capture()
        self.recorder.end_step()

    def _record(self, name: str, value: Array) -> None:
        plan = self.recorder.planner.plan(name)
        if plan is not None:
            self.recorder.record(plan, value)

    def _record_numbers(self, names: tuple[str, ...], numbers: Sequence[Any]) -> None:
        """Record a number for each name, or, of a model with several groups, a list of numbers."""
        if len(numbers) and isinstance(numbers[0], list):
            for name, number in zip(names, numbers, strict=True):
                self._record(name, np.array(number, np.float64))
        else:
            self.recorder.record_numbers(names, [float(number) for number in numbers])

    def _is_due(self, names: Iterable[str]) -> bool:
        return any(self.recorder.planner.plan(name) is not None for name in names)

    def _record_importances(self, kind: str, features: Sequence[str], compute: Callable[[], Sequence[Any]]) -> None:
        """Record the importance of each feature, which is computed only if one of them is due."""
        names = tuple(f"feature_importance/{kind}/{feature}" for feature in features)
        if self._is_due(names):
            self._record_numbers(names, compute())

    def _record_hyperparameters(self, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            if self._is_due([f"hyperparameters/{name}"]):
                self._record(f"hyperparameters/{name}", as_array(value))


def as_array(value: Any) -> Array:
    """Return a hyperparameter as an array.

    A number or a string has no axis, a list of either has one. Any other value is converted to text.
    """
    array = np.asarray(value) if isinstance(value, (bool, int, float, str, np.generic, np.ndarray)) else _listed(value)
    return array if array.dtype.kind in "biufU" else np.asarray(str(value))


def _listed(value: Any) -> Array:
    plain = isinstance(value, (list, tuple)) and len({isinstance(each, str) for each in value}) == 1
    try:
        return np.asarray(value if plain else str(value))
    except ValueError:  # lists of different lengths
        return np.asarray(str(value))
