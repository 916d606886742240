"""What the Keras hook asks of the backend that Keras runs on: arrays of tensors, and whether a step is a graph."""

from __future__ import annotations

import sys
from typing import Any

import keras
import numpy as np

from tensortrial.dtypes import Array
from tensortrial.errors import MissingExtra, UnsupportedValue

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
        return np.asarray(tensor)
    found: Array = keras.ops.convert_to_numpy(tensor)
    return found


def variable_array(variable: Any) -> Array:
    """The value that a variable has now.

    TensorFlow's variables write over their memory only while nobody else holds it, so that of a CPU is taken as it is;
    that of other backends is copied.
    """
    if not IS_TENSORFLOW:
        return np.array(to_array(variable))
    variable = variable if hasattr(variable, "read_value") else variable.value
    return to_array(variable.read_value())


def user_array(value: Any) -> Array:
    """An array of what a user passes for a tensor. Raises UnsupportedValue."""
    try:
        return to_array(value) if hasattr(value, "shape") else np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as exc:
        raise UnsupportedValue(f"a {type(value).__name__} cannot be made an array: {exc}") from exc


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


def unconverted(function: Any) -> Any:
    """Tell autograph to call the function as it is, and to go on converting what the function calls."""
    function.autograph_info__ = {}
    return function
