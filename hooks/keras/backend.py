"""What the Keras hook asks of the backend that Keras runs on: arrays of tensors, and whether a step is a graph."""

from __future__ import annotations

import sys
from typing import Any

import keras
import numpy as np

from tensortrial.dtypes import Array
from tensortrial.errors import MissingExtra

from ..core.user_values import array_of, text_of

try:
    BACKEND: str = keras.backend.backend()
except AttributeError as exc:
    raise MissingExtra("keras", "tensorflow", "the Keras hook") from exc

IS_TENSORFLOW = BACKEND == "tensorflow"
# JAX has their values with the step that runs, and not in the variables.
HAS_VARIABLES = BACKEND in ("tensorflow", "torch")


def versions() -> dict[str, str]:
    """The versions of Keras and of what it runs on."""
    module = sys.modules.get(BACKEND)
    return {"keras": keras.__version__, **({BACKEND: module.__version__} if module else {})}


def to_array(tensor: Any) -> Array:
    """The tensor in host memory; of TensorFlow's, on a CPU, the very bytes, which nobody can change."""
    if IS_TENSORFLOW:
        return text_of(np.asarray(tensor))
    found: Array = keras.ops.convert_to_numpy(tensor)
    return found


def variable_array(variable: Any) -> Array:
    """The value that a variable has now.

    TensorFlow's variables write over their memory only while nobody else holds it, so that of a CPU is taken as it is;
    that of other backends is copied.
    """
    if not IS_TENSORFLOW:
        return np.array(to_array(variable.read_value() if hasattr(variable, "read_value") else variable))
    variable = variable if hasattr(variable, "read_value") else variable.value
    return to_array(variable.read_value())


def user_array(value: Any) -> Array:
    """An array of what a user passes for a tensor. Raises UnsupportedValue."""
    return array_of(value, to_array if hasattr(value, "shape") else np.asarray)


def graph() -> Any:
    """The graph that is being built; None where code runs eagerly."""
    if not IS_TENSORFLOW:
        return None
    import tensorflow as tf

    return None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()


def kept(tensor: Any) -> Any:
    """The tensor as it is now. A graph's, and TensorFlow's eager ones, never change; others are written over."""
    return tensor if IS_TENSORFLOW else np.array(to_array(tensor))


def dense(gradient: Any) -> Any:
    """A gradient as a tensor of its variable's shape; that of an embedding comes as the rows it concerns."""
    if not IS_TENSORFLOW:
        return gradient
    import tensorflow as tf

    return tf.convert_to_tensor(gradient)


def unscaled(value: Any, scale: Any) -> Any:
    """A loss or a gradient without the scale that mixed precision multiplied it by.

    Half precision becomes single: gradients are scaled because they would be too small for it otherwise.
    """
    if IS_TENSORFLOW:
        import tensorflow as tf

        cast, half, single = tf.cast, tf.float16, tf.float32
    else:
        cast, half, single = keras.ops.cast, "float16", "float32"
    dtype = value.dtype if IS_TENSORFLOW else keras.backend.standardize_dtype(value.dtype)
    value = cast(value, single) if dtype == half else value
    return value / cast(scale, value.dtype)


class Unscaled:
    """The same of a tensor of a graph, computed only where it is read."""

    def __init__(self, value: Any, scale: Any) -> None:
        self._value, self._scale = value, scale

    def read_value(self) -> Any:
        return unscaled(self._value, self._scale)


def loss_scale(optimizer: Any) -> Any:
    """What an optimizer multiplies the loss by now, and divides the gradients by that are applied; None if by
    nothing. It may be a variable."""
    if hasattr(optimizer, "get_scaled_loss"):
        return optimizer.loss_scale
    if hasattr(optimizer, "initial_scale"):
        return optimizer.dynamic_scale if optimizer.built else optimizer.initial_scale
    return getattr(optimizer, "loss_scale_factor", None)


def unconverted(function: Any) -> Any:
    """Tell autograph to call the function as it is, and to go on converting what the function calls."""
    function.autograph_info__ = {}
    return function
