"""The errors of smdebug.exceptions: all of `tensortrial.errors`, and smdebug's general ones."""

from __future__ import annotations

from tensortrial import errors
from tensortrial.errors import *  # noqa: F403 - scripts import all of them
from tensortrial.errors import ConfigurationError, TensorTrialError
from tensortrial.mode import modes

SMDebugError = TensorTrialError
SMDebugValueError = ConfigurationError


class SMDebugRuntimeError(TensorTrialError, RuntimeError):
    """A script raises it."""


class SMDebugTypeError(TensorTrialError, TypeError):
    """A script raises it."""


class SMDebugIndexError(TensorTrialError, IndexError):
    """A script raises it."""


class SMDebugKeyError(TensorTrialError, KeyError):
    """A script raises it."""


class SMDebugNotImplementedError(TensorTrialError, NotImplementedError):
    """A script uses a part of smdebug that this project does not have."""


class SMDebugCustomerError(SMDebugRuntimeError):
    """A script raises it for a mistake of its user."""


class IndexReaderException(TensorTrialError):
    """The error that scripts catch when they read a run."""


class NoMoreProfilerData(TensorTrialError):
    """The error that scripts catch when they read files of SageMaker's profiler."""


__all__ = [
    "IndexReaderException",
    "NoMoreProfilerData",
    "SMDebugCustomerError",
    *(name for name, each in vars(errors).items() if isinstance(each, type) and not name.startswith("_")),
    "SMDebugError",
    "SMDebugIndexError",
    "SMDebugKeyError",
    "SMDebugNotImplementedError",
    "SMDebugRuntimeError",
    "SMDebugTypeError",
    "SMDebugValueError",
    "modes",
]
