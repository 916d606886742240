"""What is captured of the steps of a Keras model: its variables, and what the step itself brings."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from tensortrial.config.collection import CollectionKeys
from tensortrial.dtypes import Array
from tensortrial.format.record import Plan, Step

from ..core.base_hook import guarded
from ..core.recorder import logger
from ..core.replicas import LeadingRecorder
from .backend import HAS_VARIABLES, to_array, variable_array
from .collection import Collection
from .layer_outputs import Taps
from .names import Names, is_built, optimizer_variables
from .step_functions import Captured, EagerStep, Function, GraphStep, is_graph
from .strategy import value_of

# More sets of names that fall due together than this are traced as one, of all that is ever saved.
_MOST_TRACES = 4
_EVERYTHING = frozenset({"everything that is ever saved"})
# What comes from Keras' own logs, and from variables: it takes no look into the step.
_LOGS = frozenset({CollectionKeys.LOSSES, CollectionKeys.METRICS, CollectionKeys.SM_METRICS})
_VARIABLES = frozenset({CollectionKeys.WEIGHTS, CollectionKeys.BIASES, CollectionKeys.OPTIMIZER_VARIABLES})


class Capture:
    """Names what a model has, reads its variables, and decides what runs each step: the model's own function, or one
    that brings what is due besides."""

    def __init__(self, recorder: LeadingRecorder) -> None:
        self.recorder = recorder
        self.optimizers: list[Any] = []
        """Those that were wrapped, whatever the model has."""
        self.blind = False
        """Whether the model's steps cannot be looked into."""
        self._names: Names | None = None
        self._held: dict[str, tuple[Plan, list[Array]] | None] = {}
        self._held_at: Step | None = None
        self._chosen: Captured | None = None
        self._told: set[str] = set()

    @property
    def names(self) -> Names:
        """Of the model that was looked at last."""
        assert self._names is not None
        return self._names

    def tell(self, sentence: str) -> None:
        """Say once what cannot be done."""
        if sentence not in self._told:
            self._told.add(sentence)
            logger.warning("%s", sentence)

    def look_at(self, model: Any) -> None:
        """Name what the model has now: it may be another one than last time, or have been changed."""
        names = Names(model)
        collections = self.recorder.collections
        if self._names is None or not names.same(self._names):
            self._names = names
            for weight in names.weights:
                collections.require(weight.collection).add_tensor_names([weight.name])
                collections.add_gradient(weight.gradient, weight.name)
        if names.weights:
            for collection in collections:
                if isinstance(collection, Collection):
                    collection.resolve(names)

    def forget(self) -> None:
        """Hold nothing of any model."""
        self.optimizers.clear()
        self._names = self._chosen = self._held_at = None
        self._held = {}

    # Variables.

    def hold_variables(self) -> None:
        """Take the variables as they are before the step's update. They are recorded once the step has run: at the end
        of data of unknown length there is none. Of several batches in one step, the first counts."""
        if self._held_at is self.recorder.step:
            return
        self._held_at = self.recorder.step
        self._held = {}
        self._hold_variables()

    def release_variables(self) -> None:
        """The step has run: record its variables."""
        for plan, arrays in filter(None, self._held.values()):
            for recorder, array in zip(self.recorder.all, arrays, strict=True):
                recorder.record(plan, array, owned=True)
        self._held = dict.fromkeys(self._held)

    def _hold_variables(self) -> None:
        if not HAS_VARIABLES:
            return
        named = [(weight.name, weight.variable) for weight in self.names.weights]
        for name, variable in [*named, *optimizer_variables(self._optimizers(self.names.model))]:
            plan = self.recorder.plan(name)
            if plan is not None and name not in self._held:
                values = (value_of(number, variable) for number in range(len(self.recorder.all)))
                self._held[name] = plan, [variable_array(each) for each in values]

    # Steps.

    def choose(self, function: Function, source: Any) -> Captured | None:
        """What runs the step that has begun, on what `source` gives: None for the model's own function."""
        self._chosen = None
        # Losses and metrics come from Keras' logs.
        if self.recorder.saving and self.recorder.due - _LOGS:
            self._prepare(function, source)
        return self._chosen

    @guarded
    def _prepare(self, function: Function, source: Any) -> None:
        function.built = function.built or is_built(function.model)
        if not function.built:
            self._build(function, source)
        if self.blind:
            return
        if is_graph(function.model):
            self._chosen = self._traced(function, source)
        elif self.recorder.due - _LOGS - _VARIABLES or self._due_names(function):
            self._chosen = EagerStep(function.own, *self._parts(function, _EVERYTHING))
        if (
            function.kind == "train"
            and CollectionKeys.OPTIMIZER_VARIABLES in self.recorder.due
            and not function.captured
        ):
            # An optimizer makes its variables when it is first applied.
            self._build(function, source)
        # Tracing may have made variables that have not been trained yet.
        self._hold_variables()

    def _build(self, function: Function, source: Any) -> None:
        """Have the variables made that the model makes only when it first runs: by tracing the step, once, which does
        not run it."""
        if function.asked_to_build:
            return
        function.asked_to_build = True
        model = function.model
        if is_graph(model) and not self.blind:
            GraphStep(model, function.kind, *self._parts(function, frozenset())).prepare(source)
            self.look_at(model)
            function.names = self.names
            function.captured.clear()
        elif not function.names.weights:
            self.tell(
                "the model is built by its first batch, of which only losses and metrics are saved; call "
                "model.build(input_shape) before `fit` to have all"
            )

    def _traced(self, function: Function, source: Any) -> Captured | None:
        key = self._due_names(function)
        if not key and (function.seen or not self._may_be_more(function)):
            return None
        if key not in function.captured:
            if len({id(each) for each in function.captured.values()}) >= _MOST_TRACES:
                key = _EVERYTHING
            if key not in function.captured:
                step = GraphStep(function.model, function.kind, *self._parts(function, key))
                step.prepare(source)
                self._check_gradients(function)
                # By now it is known what else the step brings.
                found = self._due_names(function)
                function.captured[key] = function.captured[found or key] = step if found else None
        return function.captured[key]

    def _parts(self, function: Function, key: frozenset[str]) -> tuple[Taps, list[Any], Any]:
        """What a captured step is made of."""
        recorder = self.recorder

        def wanted(name: str) -> bool:
            function.seen.add(name)
            return recorder.plan(name) is not None or (key is _EVERYTHING and recorder.may_save([name]))

        return Taps(recorder, function.names, wanted), self._optimizers(function.model), self._save

    def _optimizers(self, model: Any) -> list[Any]:
        """The model's own, and those that were wrapped for a train_step that uses others."""
        optimizers = [getattr(model, "optimizer", None), *self.optimizers]
        return list({id(each): each for each in optimizers if each is not None}.values())

    @guarded
    def _save(self, tensors: dict[str, Any]) -> None:
        for name, tensor in tensors.items():
            plan = self.recorder.plan(name)
            if plan is not None:
                # Data may lie in memory of the user's, who may write to it.
                owned = not name.startswith(("model_inputs_", "labels_"))
                for number, recorder in enumerate(self.recorder.all):
                    recorder.record(plan, to_array(value_of(number, tensor)), owned=owned)

    def _due_names(self, function: Function) -> frozenset[str]:
        """What the step can bring of what is due at it, as far as is known."""
        key = self.recorder.generation, self.recorder.due, len(function.seen)
        if key not in function.due:
            function.due[key] = frozenset(
                name for name in function.candidates() if self.recorder.plan(name) is not None
            )
        return function.due[key]

    def _may_be_more(self, function: Function) -> bool:
        """Whether a regular expression is waiting for something that is not known before the step is traced."""
        key = self.recorder.generation, self.recorder.due
        if key not in function.more:
            function.more[key] = self._awaits_more(function)
        return function.more[key]

    def _awaits_more(self, function: Function) -> bool:
        names = function.candidates().union(weight.name for weight in function.names.weights)
        due = self.recorder.due - _LOGS - _VARIABLES - {CollectionKeys.GRADIENTS}
        expressions = [each for name in due for each in self.recorder.collections.require(name).include_regex]
        return any(not _finds(expression, names) for expression in expressions)

    def _check_gradients(self, function: Function) -> None:
        gradients = set(function.names.gradients.values())
        asked = any(self.recorder.plan(name) is not None for name in gradients)
        if function.kind == "train" and asked and not gradients & function.seen:
            self.tell(
                "gradients are asked for, but the model's train_step applies none by an optimizer that the hook knows; "
                "before it is used, add: optimizer = hook.wrap_optimizer(optimizer)"
            )


def _finds(expression: str, names: Iterable[str]) -> bool:
    pattern = re.compile(expression)
    return any(pattern.search(name) for name in names)
