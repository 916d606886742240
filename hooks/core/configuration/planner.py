"""The plans of a step: for each tensor what is due, and in what form, from all collections together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from tensortrial.config.changes import Changes
from tensortrial.config.collection import NUMBERS, Collection, CollectionKeys, is_loss
from tensortrial.config.reduction_config import ReductionConfig
from tensortrial.errors import UnsupportedValue
from tensortrial.format.record import Plan, Step
from tensortrial.mode import ModeKeys

from .collections import CollectionManager
from .matcher import Matcher

# A statistic of a number would save no memory.
_ALWAYS_RAW = NUMBERS | {CollectionKeys.HYPERPARAMETERS, CollectionKeys.IMAGES}
_TRAINING_ONLY = frozenset({CollectionKeys.GRADIENTS, CollectionKeys.OPTIMIZER_VARIABLES})
_NOT_TRAINING = (ModeKeys.EVAL, ModeKeys.PREDICT)


class _Form(NamedTuple):
    """The form in which a collection keeps its tensors."""

    raw: bool
    statistics: tuple[str, ...]
    histogram: bool
    digest: bool
    sketch: bool
    axis: int | None


class Planner:
    """Plans for the tensors of one step after another.

    Steps at which the same collections are due share their plans: a name is matched against the collections once, and
    afterwards its plan is read from a dictionary.

    Args:
        collections: The collections of the hook.
        reduction_config: The form of collections without their own.
        histograms: Save histograms of collections that do not say whether to.
        refuse: Called once for a tensor whose name cannot be saved.
    """

    def __init__(
        self,
        collections: CollectionManager,
        reduction_config: ReductionConfig,
        histograms: bool,
        refuse: Callable[[str, UnsupportedValue], None],
    ) -> None:
        self._collections = collections
        self._reduction_config = reduction_config
        self._histograms = histograms
        self._refuse = refuse
        self.in_training = True
        """True if the step that was selected last is one of training."""
        self.due: frozenset[str] = frozenset()
        """The names of the collections that are due at the step that was selected last."""
        self._plans: dict[str, Plan | None] = {}
        self._plans_by_due: dict[tuple[bool, frozenset[str]], dict[str, Plan | None]] = {}
        self._together: dict[tuple[bool, frozenset[str], tuple[str, ...]], tuple[Plan | None, ...]] = {}
        self._explicit: dict[tuple[str, tuple[str, ...], bool], Plan] = {}
        self._forms: dict[str, _Form] = {}
        self._fingerprint: tuple[object, ...] = ()
        self._refreshed_at = -1
        self._matcher = Matcher(collections)
        self.generation = 0
        """The number of times that `refresh` found a change."""
        self.has_planned = False
        """True if a tensor was due because of its collections, not because of a call."""

    def follow(self, reduction_config: ReductionConfig) -> None:
        """Replace the form of collections without their own."""
        self._reduction_config = reduction_config
        self._fingerprint, self._refreshed_at = (), -1

    def refresh(self) -> bool:
        """Forget all plans if any collection has changed since the last call. Return whether one has."""
        if self._refreshed_at == Changes.count():
            return False
        self._refreshed_at = Changes.count()
        fingerprint = self._collections.fingerprint()
        if fingerprint == self._fingerprint:
            return False
        self._fingerprint = fingerprint
        self._matcher = Matcher(self._collections)  # its own counts do not show a list that was changed in place
        self._matcher.refresh()
        self._plans_by_due.clear()
        self._together.clear()
        self._explicit.clear()
        self._forms.clear()
        self.generation += 1
        return True

    def select(self, step: Step) -> bool:
        """Make this the step to plan for. Return whether anything is due at it."""
        self.in_training = step.mode not in _NOT_TRAINING
        self.due = self.due_at(step)
        self._plans = self._plans_by_due.setdefault((self.in_training, self.due), {})
        return bool(self.due)

    def due_at(self, step: Step) -> frozenset[str]:
        """Return the names of the collections that are due at a step."""
        return frozenset(collection.name for collection in self._collections.saved() if self._is_due(collection, step))

    def tensor_names(self) -> set[str]:
        """Return the names of all tensors that were planned since the last change of a collection."""
        planned = [name for plans in self._plans_by_due.values() for name in plans]
        return {*planned, *(name for name, *_ in self._explicit)}

    def made(self) -> list[Plan]:
        """Return the plans of tensors that were due since the last change of a collection."""
        plans = [plan for plans in self._plans_by_due.values() for plan in plans.values() if plan is not None]
        return [*plans, *self._explicit.values()]

    def may_save(self, names: Iterable[str]) -> bool:
        """Return whether one of these names belongs to a collection that is saved at some step."""
        saved = self._collections.saved()
        return any(collection.matches(name) for name in names for collection in saved)

    def plan(self, name: str) -> Plan | None:
        """Return what of the tensor is due; None if nothing is."""
        try:
            return self._plans[name]
        except KeyError:
            return self._plans.setdefault(name, self._make_plan(name))

    def plans(self, names: tuple[str, ...]) -> tuple[Plan | None, ...]:
        """Return the plans of tensors that are recorded together, step after step."""
        key = self.in_training, self.due, names
        plans = self._together.get(key)
        if plans is None:
            plans = self._together[key] = tuple(map(self.plan, names))
        return plans

    def explicit(self, name: str, collections: tuple[str, ...], always_raw: bool = False) -> Plan:
        """Return the plan of a tensor that the user saves by a call: it is due at every step.

        A number (`always_raw`) that is a loss by its name is one of the collection `losses`, too.
        """
        key = (name, collections, always_raw)
        plan = self._explicit.get(key)
        if plan is None:
            losses = (CollectionKeys.LOSSES,) if always_raw and is_loss(name) else ()
            named = [self._collections.fill(each) for each in (*collections, *losses)]
            matching = list({c.name: c for c in [*self._matcher.matching(name), *named]}.values())
            plan = Plan(name, _names(matching), True) if always_raw else self._plan_of(name, matching, named)
            self._explicit[key] = plan
        return plan

    def _is_due(self, collection: Collection, step: Step) -> bool:
        if collection.name in _TRAINING_ONLY and step.mode in _NOT_TRAINING:
            return False
        return collection.save_config is not None and collection.save_config.should_save_step(step.mode, step.mode_step)

    def _make_plan(self, name: str) -> Plan | None:
        matching = self._matcher.matching(name)
        # They are not saved as a part of another collection either, such as `all`.
        if not self.in_training and any(collection.name in _TRAINING_ONLY for collection in matching):
            return None
        due = [collection for collection in matching if collection.name in self.due]
        self.has_planned = self.has_planned or bool(due)
        try:
            return self._plan_of(name, matching, due) if due else None
        except UnsupportedValue as exc:
            self._refuse(name, exc)
            return None

    def _plan_of(self, name: str, matching: Sequence[Collection], due: Sequence[Collection]) -> Plan:
        raw = histogram = digest = sketch = False
        statistics: dict[str, None] = {}
        by_axis: dict[int, dict[str, None]] = {}
        for collection in due:
            form = self._forms.get(collection.name) or self._form_of(collection)
            of_form = dict.fromkeys(form.statistics)
            statistics |= of_form
            raw |= form.raw
            histogram |= form.histogram
            digest |= form.digest
            sketch |= form.sketch
            if form.axis is not None:
                by_axis.setdefault(form.axis, {}).update(of_form)
        if by_axis:
            self._collections.require(CollectionKeys.BY_AXIS)
        axes = tuple((axis, tuple(along)) for axis, along in by_axis.items())
        parameter = self._collections.parameters.get(name)
        return Plan(name, _names(matching), raw, tuple(statistics), histogram, parameter, digest, axes, sketch)

    def _form_of(self, collection: Collection) -> _Form:
        config = collection.reduction_config or self._reduction_config
        always_raw = collection.name in _ALWAYS_RAW
        histogram = self._histograms if collection.save_histogram is None else collection.save_histogram
        axis = None if always_raw else config.axis
        form = _Form(config.raw or always_raw, config.statistics, histogram, config.digest, config.quantiles, axis)
        self._forms[collection.name] = form
        return form


def _names(collections: Iterable[Collection]) -> tuple[str, ...]:
    # Every tensor is part of `all`, so that is not stored with each of them.
    return tuple(sorted({collection.name for collection in collections} - {CollectionKeys.ALL}))
