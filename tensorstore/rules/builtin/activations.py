"""Rules on the inputs and outputs of activation functions."""

from __future__ import annotations

import re

import numpy as np

from ...dtypes import Array
from ...format.index_types import SavedTensor
from ..parameter import integer, number, regexes, words
from ..reader import Selector, StepView
from .activation_modules import RELU, SIGMOID, TANH, patterns
from .base import ACTIVATIONS_OF_RELU, BuiltinRule

_BATCH = 0  # the axis of the examples; each position of the other axes is a unit


class _OfRelu(BuiltinRule):
    """A rule on the outputs of ReLU layers."""

    tensor_regex: tuple[str, ...]

    def reset(self) -> None:
        self._selector: Selector | None = None

    def activations(self) -> Selector:
        """Return the selector of the outputs, by name and, unless the user has chosen the names, by class."""
        if self._selector is None:
            of_modules = patterns(self.base_trial, RELU, "output") if self.is_default("tensor_regex") else ()
            self._selector = Selector(patterns=(*self.tensor_regex, *of_modules))
        return self._selector


class DeadRelu(_OfRelu):
    """Fires if too many units of a ReLU layer are dead.

    A unit is dead if hardly any example of the batch activates it. Axis 0 is the batch, and each position of the other
    axes is a unit. A ReLU module of PyTorch is also found by its class, under any name. Needs raw values.
    """

    tensor_regex: tuple[str, ...] = regexes(ACTIVATIONS_OF_RELU, "outputs of ReLU layers")
    threshold_inactivity: float = number(1.0, "a unit active for less than this % of the batch is dead", 0, 100)
    threshold_layer: float = number(50.0, "fires above this % of dead units in a layer", 0, 100)

    def judge(self, view: StepView) -> None:
        for row, value in self.valued(view, self.activations()):
            if value.ndim == 0 or value.size == 0:
                continue
            active = 100 * np.mean(np.asarray(value, np.float32) > 0, axis=_BATCH)
            dead = 100 * float(np.mean(active < self.threshold_inactivity))
            if dead > self.threshold_layer:
                self.fires(
                    row, dead, self.threshold_layer, f"has {dead:.1f} % dead units, above {self.threshold_layer:g} %"
                )


class SaturatedActivation(BuiltinRule):
    """Fires if too many nodes of a tanh or sigmoid layer have inputs where the function is flat.

    The range of tanh applies to tensors with `tanh` in their name, the range of sigmoid to all others. A tanh or
    sigmoid module of PyTorch is also found by its class, under any name, and has the range of its class. Axis 0 is the
    batch. The statistics `min` and `max` suffice while both are inside the range. Otherwise raw values are needed.
    """

    collection_names: tuple[str, ...] | None = words(None, "collections to evaluate")
    tensor_regex: tuple[str, ...] = regexes(
        r"(?i)tanh\w*_input,sigmoid\w*_input,(tanh|sigmoid)\w*/inputs", "inputs of tanh and sigmoid layers"
    )
    threshold_tanh_min: float = number(-9.4999, "tanh is flat below")
    threshold_tanh_max: float = number(9.4999, "tanh is flat above")
    threshold_sigmoid_min: float = number(-23.0, "sigmoid is flat below")
    threshold_sigmoid_max: float = number(16.99999, "sigmoid is flat above")
    threshold_inactivity: float = number(
        1.0, "a node with less than this % of its inputs inside the range is saturated", 0, 100
    )
    threshold_layer: float = number(50.0, "fires above this % of saturated nodes in a layer", 0, 100)

    def reset(self) -> None:
        self._of_class: tuple[tuple[str, ...], tuple[str, ...]] | None = None

    def _modules(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return patterns of the inputs of tanh and of sigmoid modules."""
        if self._of_class is None:
            trial = self.base_trial
            self._of_class = patterns(trial, TANH, "input"), patterns(trial, SIGMOID, "input")
        return self._of_class

    def judge(self, view: StepView) -> None:
        tanh, sigmoid = self._modules() if self.is_default("tensor_regex") else ((), ())
        selector = Selector(self.collection_names or (), (*self.tensor_regex, *tanh, *sigmoid))
        self.find(view, selector)  # raises if there is none
        rows = view.find(selector, view.tensors.sizes != 0)
        least, most = np.array([self._range(view.tensors.names[row]) for row in rows.tolist()]).reshape(-1, 2).T
        is_inside = (view.column("min", rows)[0] > least) & (view.column("max", rows)[0] < most)
        unclear = view.rows(rows[~is_inside])
        self.need_raw(unclear, selector)
        for row, raw in zip(unclear, view.values(unclear), strict=True):
            value = np.asarray(raw, np.float32)
            if value.ndim == 0:
                continue
            low, high = self._range(row.name)
            inside = 100 * np.mean((value > low) & (value < high), axis=_BATCH)
            saturated = 100 * float(np.mean(inside < self.threshold_inactivity))
            if saturated > self.threshold_layer:
                sentence = f"has {saturated:.1f} % saturated nodes, above {self.threshold_layer:g} %"
                self.fires(row, saturated, self.threshold_layer, sentence)

    def _range(self, name: str) -> tuple[float, float]:
        if self._is_of_tanh(name):
            return self.threshold_tanh_min, self.threshold_tanh_max
        return self.threshold_sigmoid_min, self.threshold_sigmoid_max

    def _is_of_tanh(self, name: str) -> bool:
        tanh, sigmoid = self._modules()
        return _matches(tanh, name) or ("tanh" in name.lower() and not _matches(sigmoid, name))


class DeadFeatures(_OfRelu):
    """Fires if a layer has too many units that no example activates in a whole window of steps.

    The layer never uses this part of its capacity. Axis 0 is the batch. A ReLU module of PyTorch is also found by its
    class, under any name. Needs raw values.
    """

    tensor_regex: tuple[str, ...] = regexes(ACTIVATIONS_OF_RELU, "outputs of layers whose inactive units are 0 or less")
    window: int = integer(10, "steps of a window", least=1)
    threshold: float = number(10.0, "fires above this % of units that are never active in a window", 0, 100)

    def reset(self) -> None:
        super().reset()
        self._active: dict[tuple[str, str, str], tuple[Array, int]] = {}

    def judge(self, view: StepView) -> None:
        for row, value in self.valued(view, self.activations()):
            if value.ndim < 2 or value.size == 0:
                continue
            key = row.name, row.worker, row.mode
            active, steps = self._active.get(key, (np.zeros(value.shape[1:], bool), 0))
            if active.shape != value.shape[1:]:  # the size of the input differs, so units do not correspond
                active, steps = np.zeros(value.shape[1:], bool), 0
            active, steps = active | (np.asarray(value, np.float32) > 0).any(axis=_BATCH), steps + 1
            if steps == self.window:
                self._judge_window(row, 100 * float(np.mean(~active)))
                del self._active[key]
            else:
                self._active[key] = active, steps

    def _judge_window(self, row: SavedTensor, never: float) -> None:
        if never > self.threshold:
            sentence = f"has {never:.1f} % units never active in {self.window} steps, above {self.threshold:g} %"
            self.fires(row, never, self.threshold, sentence)


def _matches(patterns: tuple[str, ...], name: str) -> bool:
    return any(re.search(pattern, name) for pattern in patterns)
