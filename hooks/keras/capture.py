"""The capture of a Keras model's steps: its variables, and the tensors that a step computes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any

from tensortrial.config.collection import CollectionKeys
from tensortrial.dtypes import Array
from tensortrial.format.record import Plan, Step

from ..core.recorder import guarded
from .backend import HAS_VARIABLES, functions_run_eagerly, to_array, variable_array
from .collection import Collection
from .hyperparameters import present_numbers
from .names import Names, VariableNaming, is_built
from .replicas import LeadingRecorder
from .routers import plan_of
from .step_functions import CapturingStep, EagerStep, GraphStep, StepFunction, is_graph
from .step_tensors import StepTensors
from .strategy import value_of
from .traced_flags import TracedFlags
from .traced_numbers import TracedNumbers, type_of
from .updates import Updates

# Each set of names that are due together has a trace of its own. From the fifth set on, one trace is used for all names
# that are ever saved.
_MOST_TRACES = 4
_EVERYTHING = frozenset({"everything that is ever saved"})
# Collections whose tensors come from Keras' logs or from variables, so that the step need not be observed.
_LOGS = frozenset({CollectionKeys.LOSSES, CollectionKeys.METRICS, CollectionKeys.SM_METRICS})
_VARIABLES = frozenset(
    {
        *(CollectionKeys.WEIGHTS, CollectionKeys.BIASES, CollectionKeys.OPTIMIZER_VARIABLES),
        *(CollectionKeys.UPDATES, CollectionKeys.HYPERPARAMETERS),
    }
)


class Capture:
    """The capture of one hook.

    It names the tensors of a model, reads its variables, and chooses the function for each step: the model's own, or
    one that also collects the due tensors.
    """

    def __init__(self, recorder: LeadingRecorder, naming: VariableNaming) -> None:
        self.recorder = recorder
        self._naming = naming
        self.updates = Updates(recorder)
        self.optimizers: list[Any] = []
        """Wrapped optimizers. The model's own need not be wrapped."""
        self.is_limited = False
        """True if the tensors that the model's steps compute cannot be collected."""
        self._names: Names | None = None
        self._variables: dict[str, tuple[Plan, list[Array]] | None] = {}
        self._numbers: dict[str, float] = {}
        self._captured_at: Step | None = None
        self._chosen: CapturingStep | None = None

    @property
    def names(self) -> Names:
        """The names of the current model."""
        assert self._names is not None
        return self._names

    def refresh_names(self, model: Any) -> None:
        """Update the names of layers and variables. The model may have changed, or be another one."""
        names = Names(model)
        collections = self.recorder.collections
        if self._names is None or not names.same(self._names):
            self._names = names
            for weight in names.weights:
                collections.require(weight.collection).add_tensor_names([weight.name])
        # A layer may have been frozen, or trains again.
        for weight in self.names.trained():
            collections.add_gradient(weight.gradient, weight.name)
        if names.weights:
            for collection in collections:
                if isinstance(collection, Collection):
                    collection.resolve(names)

    def forget(self) -> None:
        """Release all models and optimizers."""
        self.optimizers.clear()
        self.updates.forget()
        self._names = self._chosen = self._captured_at = None
        self._variables, self._numbers = {}, {}

    # Variables.

    def capture_variables(self) -> None:
        """Capture the variables before the step updates them.

        They are recorded after the step, because after data of unknown length no step follows. If a step has several
        batches, the values before the first batch count.
        """
        if self._captured_at is self.recorder.clock.step:
            return
        self._captured_at = self.recorder.clock.step
        self.forget_variables()
        self._capture_variables()
        self._capture_numbers()

    def forget_variables(self) -> None:
        """Forget the captured variables, which change before the step runs: `choose` captures them again."""
        self._variables = {}
        self.updates.forget()

    def record_variables(self) -> None:
        """Record the captured variables, after the step."""
        for plan, arrays in filter(None, self._variables.values()):
            for recorder, array in zip(self.recorder.all, arrays, strict=True):
                recorder.record(plan, array, owned=True)
        self._variables = dict.fromkeys(self._variables)
        for recorder in self.recorder.all if self._numbers else ():
            recorder.record_numbers(tuple(self._numbers), list(self._numbers.values()))
        self._numbers = {}

    def _capture_variables(self) -> None:
        if not HAS_VARIABLES:
            return
        named = [(weight.name, weight.variable) for weight in self.names.weights]
        named += self._naming.optimizer_variables(self.recorder.collections, self._optimizers(self.names.model))
        for name, variable in named:
            plan, captured = self.recorder.planner.plan(name), self._variables.get(name)
            # Callbacks after the hook may have changed the learning rate at the beginning of the batch.
            is_number = captured is not None and captured[1][0].ndim == 0
            if plan is not None and (name not in self._variables or is_number):
                values = (value_of(number, variable) for number in range(len(self.recorder.all)))
                self._variables[name] = plan, [variable_array(each) for each in values]
        self.updates.begin(self.names)

    @guarded
    def _capture_numbers(self) -> None:
        """Capture the hyperparameters of the step, if they are due."""
        if HAS_VARIABLES and CollectionKeys.HYPERPARAMETERS in self.recorder.planner.due:
            self._numbers = present_numbers(self._optimizers(self.names.model))

    # Steps.

    def choose(self, function: StepFunction, source: Any) -> CapturingStep | None:
        """Return the function that runs the open step on the next batch of `source`; None for the model's own."""
        self._chosen = None
        # Losses and metrics come from Keras' logs.
        if self.recorder.saving and self.recorder.planner.due - _LOGS:
            self._prepare(function, source)
            # Callbacks after the hook may have changed variables at the beginning of the batch.
            self._capture_numbers()
        return self._chosen

    def as_traced(self, function: StepFunction, source: Any) -> ExitStack:
        """Set the optimizers' numbers and the layers' flags of the step's trace, until the returned context ends."""
        stack = ExitStack()
        self._enter_traced(function, source, stack)
        return stack

    @guarded
    def _enter_traced(self, function: StepFunction, source: Any, stack: ExitStack) -> None:
        # `train_on_batch` of Keras 3 passes a generator, and runs a step with a trace of its own.
        is_traced = is_graph(function.model) and hasattr(source, "get_next")
        if function.phase != "train" or not is_traced or functions_run_eagerly():
            return
        if self.recorder.active:
            key = type_of(source)
            if key not in function.flags or not function.built:
                function.built = is_built(function.model)
                function.flags[key] = TracedFlags(function.model)
            # Only these steps may be traced.
            if key not in function.ran_original or (self.recorder.saving and self.recorder.planner.due - _LOGS):
                optimizers = self._optimizers(function.model)
                inner = [each.inner_optimizer for each in optimizers if hasattr(each, "inner_optimizer")]
                stack.enter_context(TracedNumbers(function.original, source, [*optimizers, *inner]))
                stack.enter_context(function.flags[key])

    @guarded
    def _prepare(self, function: StepFunction, source: Any) -> None:
        function.built = function.built or is_built(function.model)
        if not function.built:
            self._build(function, source)
        if self.is_limited:
            self._capture_variables()
            return
        if is_graph(function.model):
            self._chosen = self._traced(function, source)
        elif self.recorder.planner.due - _LOGS - _VARIABLES or self._due_names(function):
            self._chosen = EagerStep(function.original, *self._parts(function, _EVERYTHING))
        if (
            function.phase == "train"
            and CollectionKeys.OPTIMIZER_VARIABLES in self.recorder.planner.due
            and not function.capturing
        ):
            # An optimizer creates its variables when it is first applied.
            self._build(function, source)
        # Tracing may have created variables that have not been trained yet.
        self._capture_variables()

    def _build(self, function: StepFunction, source: Any) -> None:
        """Create the variables that a model creates in its first step.

        The step is traced once for this, without running it.
        """
        if function.build_attempted:
            return
        function.build_attempted = True
        model = function.model
        if is_graph(model) and not self.is_limited:
            GraphStep(model, function.phase, *self._parts(function, frozenset())).trace(source)
            self.refresh_names(model)
            function.names = self.names
            function.capturing.clear()
        elif not function.names.weights:
            self.recorder.failures.warn_once(
                "only losses and metrics are saved of the first batch, because it builds the model; to save all "
                "tensors, call model.build(input_shape) before `fit`"
            )

    def _traced(self, function: StepFunction, source: Any) -> CapturingStep | None:
        key = self._due_names(function)
        if not key and (function.seen or not self._awaits_unknown(function)):
            return None
        if key not in function.capturing:
            if len({id(each) for each in function.capturing.values()}) >= _MOST_TRACES:
                key = _EVERYTHING
            if key not in function.capturing:
                step = GraphStep(function.model, function.phase, *self._parts(function, key))
                step.trace(source)
                self._check_gradients(function)
                # Now the names of all tensors of the step are known.
                found = self._due_names(function)
                function.capturing[key] = function.capturing[found or key] = step if found else None
        return function.capturing[key]

    def _parts(self, function: StepFunction, key: frozenset[str]) -> tuple[StepTensors, list[Any], Any]:
        """Return the arguments of a CapturingStep."""
        recorder = self.recorder

        def wanted(name: str) -> bool:
            function.seen.add(name)
            return recorder.planner.plan(name) is not None or (key is _EVERYTHING and recorder.may_save([name]))

        return StepTensors(recorder, function.names, wanted), self._optimizers(function.model), self._save

    def _optimizers(self, model: Any) -> list[Any]:
        """Return the model's own optimizer, and wrapped ones that its train_step may use."""
        optimizers = [getattr(model, "optimizer", None), *self.optimizers]
        return list({id(each): each for each in optimizers if each is not None}.values())

    @guarded
    def _save(self, tensors: dict[str, Any]) -> None:
        # The variables come first, because the step computed its tensors from them.
        self.record_variables()
        for name, tensor in tensors.items():
            plan = plan_of(self.recorder, name)
            if plan is not None:
                # The memory of inputs and labels may belong to the user, who may overwrite it.
                owned = not name.startswith(("model_inputs_", "labels_"))
                for number, recorder in enumerate(self.recorder.all):
                    recorder.record(plan, to_array(value_of(number, tensor)), owned=owned)

    def _due_names(self, function: StepFunction) -> frozenset[str]:
        """Return the due names at the open step, out of the known names of the step."""
        key = self.recorder.planner.generation, self.recorder.planner.due, len(function.seen)
        if key not in function.due_names:
            function.due_names[key] = frozenset(
                name for name in function.candidates() if self.recorder.planner.plan(name) is not None
            )
        return function.due_names[key]

    def _awaits_unknown(self, function: StepFunction) -> bool:
        """Return whether a collection may include a tensor that only tracing reveals."""
        key = self.recorder.planner.generation, self.recorder.planner.due
        if key not in function.awaits_unknown:
            function.awaits_unknown[key] = self._matches_nothing_yet(function)
        return function.awaits_unknown[key]

    def _matches_nothing_yet(self, function: StepFunction) -> bool:
        if CollectionKeys.GRADIENTS in self.recorder.planner.due and not function.names.trained():
            return True  # A train_step may train variables that are not `trainable`.
        names = function.candidates().union(weight.name for weight in function.names.weights)
        due = self.recorder.planner.due - _LOGS - _VARIABLES - {CollectionKeys.GRADIENTS}
        expressions = [each for name in due for each in self.recorder.collections.require(name).include_regex]
        return any(not _finds(expression, names) for expression in expressions)

    def _check_gradients(self, function: StepFunction) -> None:
        gradients = {weight.gradient for weight in function.names.weights}
        due = any(self.recorder.planner.plan(name) is not None for name in gradients)
        if function.phase == "train" and due and not gradients & function.seen:
            self.recorder.failures.warn_once(
                "no gradients are saved, because the model's train_step applies none by an optimizer that the hook "
                "knows; before the optimizer is used, add: optimizer = hook.wrap_optimizer(optimizer)"
            )


def _finds(expression: str, names: Iterable[str]) -> bool:
    pattern = re.compile(expression)
    return any(pattern.search(name) for name in names)
