"""What the Keras hook asks of the backend that Keras runs on: arrays of tensors, and whether a step is a graph."""

from __future__ import annotations

import sys
from typing import Any

import keras
import numpy as np

from tensortrial.dtypes import Array
from tensortrial.errors import MissingExtra

try:
    BACKEND: str = keras.backend.backend()
except AttributeError as exc:
    raise MissingExtra("keras", "tensorflow", "the Keras hook") from exc

IS_TENSORFLOW = BACKEND == "tensorflow"


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
    """The value of a variable. It may share the variable's memory, so it must be copied before training goes on."""
    # A property of Keras 3's variables, a method of TensorFlow's own, which Keras 2 has.
    value = variable.value
    return to_array(value() if callable(value) else value)


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
