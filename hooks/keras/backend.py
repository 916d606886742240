"""The differences between the backends of Keras: arrays of tensors, graphs, and loss scales."""

from __future__ import annotations

import sys
import threading
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import keras
import numpy as np

from tensortrial.dtypes import Array
from tensortrial.errors import MissingExtra, UnsupportedValue

from ..core.user_values import array_of, text_of

try:
    BACKEND: str = keras.backend.backend()
except AttributeError as exc:
    raise MissingExtra("keras", "tensorflow", "the Keras hook") from exc

IS_TENSORFLOW = BACKEND == "tensorflow"
# On JAX the running step holds the values, not the variables.
HAS_VARIABLES = BACKEND in ("tensorflow", "torch")


def versions() -> dict[str, str]:
    """Return the versions of Keras and of its backend."""
    module = sys.modules.get(BACKEND)
    return {"keras": keras.__version__, **({BACKEND: module.__version__} if module else {})}


def to_array(tensor: Any) -> Array:
    """Return the tensor in host memory. A TensorFlow tensor on a CPU is not copied, because it is immutable."""
    if IS_TENSORFLOW:
        return text_of(np.asarray(tensor))
    return keras.ops.convert_to_numpy(tensor)


def variable_array(variable: Any) -> Array:
    """Return the current value of a variable.

    TensorFlow overwrites the memory of a variable only if there is no other reference to it, so a value on a CPU is not
    copied. Values of other backends are copied.
    """
    if not IS_TENSORFLOW:
        return np.array(to_array(variable.read_value() if hasattr(variable, "read_value") else variable))
    variable = variable if hasattr(variable, "read_value") else variable.value
    return to_array(variable.read_value())


def user_array(value: Any) -> Array:
    """Return a tensor, or another value of a user, as an array.

    Raises:
        UnsupportedValue: The value cannot be converted.
    """
    check_dense(value)
    return array_of(value, to_array if hasattr(value, "shape") else np.asarray)


def check_dense(value: Any) -> None:
    """Raise UnsupportedValue for a ragged or a sparse tensor, which consists of several arrays."""
    if hasattr(value, "nested_row_splits") or hasattr(value, "dense_shape"):
        raise UnsupportedValue(
            f"a {type(value).__name__} is not one array; log a number, or save its parts by hook.save_tensor"
        )


def graph() -> Any:
    """Return the graph that is being built; None in eager execution."""
    if not IS_TENSORFLOW:
        return None
    import tensorflow as tf

    return None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()


def functions_run_eagerly() -> bool:
    """Return whether TensorFlow is configured to run each `tf.function` as Python."""
    import tensorflow as tf

    return bool(tf.config.functions_run_eagerly())


class _Stance:
    """The stance of torch.compile, which is one for all threads: it is restored when the last of them leaves."""

    def __init__(self) -> None:
        self._lock, self._inside = threading.Lock(), 0
        self._forced: Any = None

    def __enter__(self) -> None:
        import torch

        with self._lock:
            if not self._inside:
                self._forced = torch.compiler.set_stance("force_eager")
            self._inside += 1

    def __exit__(self, *exc: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._forced.__exit__(*exc)


_stance = _Stance()


def uncompiled() -> AbstractContextManager[Any]:
    """Return a context manager in which code that torch.compile has compiled runs as Python, and none is compiled.

    Compiled code would keep the observers of one step, and a graph for each. Other threads run uncompiled meanwhile.
    """
    # Otherwise nothing is compiled, and to import it takes a second.
    return _stance if "torch._dynamo" in sys.modules else nullcontext()


def outside_of_graphs() -> AbstractContextManager[Any]:
    """Return a context manager for eager execution, also while a graph is being built."""
    if graph() is None:
        return nullcontext()
    import tensorflow as tf

    return tf.init_scope()


def kept(tensor: Any) -> Any:
    """Return the tensor with its current values: a copy, except on TensorFlow, whose tensors are immutable."""
    return tensor if IS_TENSORFLOW else np.array(to_array(tensor))


def dense(gradient: Any) -> Any:
    """Return a gradient as a tensor of its variable's shape. The gradient of an embedding holds only some rows."""
    if not IS_TENSORFLOW:
        return gradient
    import tensorflow as tf

    return tf.convert_to_tensor(gradient)


def unscaled(value: Any, scale: Any) -> Any:
    """Return a loss or a gradient divided by the scale of mixed precision.

    Float16 becomes float32: gradients are scaled because they would be too small for float16 otherwise.
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
    """An unscaled loss or gradient in a graph, which is computed only if it is read."""

    def __init__(self, value: Any, scale: Any) -> None:
        self._value, self._scale = value, scale

    def read_value(self) -> Any:
        return unscaled(self._value, self._scale)


def loss_scale(optimizer: Any) -> Any:
    """Return the factor of mixed precision, by which an optimizer multiplies the loss and divides the gradients.

    It may be a variable. None if the optimizer does not scale.
    """
    if hasattr(optimizer, "get_scaled_loss"):
        return optimizer.loss_scale
    if hasattr(optimizer, "initial_scale"):
        return optimizer.dynamic_scale if optimizer.built else optimizer.initial_scale
    return getattr(optimizer, "loss_scale_factor", None)


def unconverted(function: Any) -> Any:
    """Exclude a function from conversion by autograph, but not the functions that it calls."""
    function.autograph_info__ = {}
    return function
