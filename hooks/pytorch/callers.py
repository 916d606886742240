"""The kinds of callers of a forward that matter for capturing, found in Python's stack frames.

No state is kept between forwards, so that an exception, an interrupt or another thread cannot leave a wrong one.
"""

from __future__ import annotations

import enum
import inspect
import sys
from types import CodeType
from typing import Any

import torch

_PIPELINING = "torch.distributed.pipelining.stage"


class Caller(enum.Enum):
    """The caller of a forward."""

    TRAINING = enum.auto()
    """The training, or any other code that uses the result."""
    ITSELF = enum.auto()
    """The forward of the same module, which is still running."""
    PIPELINE = enum.auto()
    """A stage of a pipeline, with one microbatch of several."""
    PROBE = enum.auto()
    """Code that compares a traced module with the original, or infers shapes, with meaningless values."""


def caller_of(module: torch.nn.Module) -> Caller:
    """Return the caller of this module's forward. Only its forward pre-hook may call this."""
    callers = _callers()
    in_forward = False
    frame = sys._getframe(1)
    while frame is not None:
        caller, _ = callers.get(id(frame.f_code), _NOBODY)
        if caller is Caller.ITSELF:
            # The nearest frame is the call of the module whose pre-hook runs now.
            if in_forward and frame.f_locals.get("self") is module:
                return caller
            in_forward = True
        elif caller is not None:
            return caller
        frame = frame.f_back  # type: ignore[assignment]
    return Caller.TRAINING


def in_probe() -> bool:
    """Return whether a probe runs the calling code, for any module."""
    callers = _callers()
    frame = sys._getframe(1)
    while frame is not None:
        if callers.get(id(frame.f_code), _NOBODY)[0] is Caller.PROBE:
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


# The key is the code's id, because hashing a code object hashes all of its contents. The code is kept alive, so that
# its id is not used again.
_known: dict[int, tuple[Caller | None, CodeType | None]] = {}
_NOBODY: tuple[Caller | None, CodeType | None] = (None, None)
_found_pipelining = False


def _callers() -> dict[int, tuple[Caller | None, CodeType | None]]:
    global _found_pipelining
    if not _known:
        _note(Caller.ITSELF, torch.nn.Module, "_wrapped_call_impl")
        _note(Caller.PROBE, torch.jit._trace, "_check_trace")
    if not _found_pipelining and _PIPELINING in sys.modules:
        _found_pipelining = True
        stage = sys.modules[_PIPELINING]
        _note(Caller.PIPELINE, getattr(stage, "_PipelineStageBase", None), "forward_one_chunk")
        for name in ("_forward_metadata_inference", "_backward_metadata_inference", "_shape_inference"):
            _note(Caller.PROBE, getattr(stage, "PipelineStage", None), name)
    return _known


def _note(caller: Caller, owner: Any, name: str) -> None:
    # Releases of torch differ in these functions. Missing ones are skipped.
    function = inspect.unwrap(getattr(owner, name, None) or (lambda: None))
    code = getattr(function, "__code__", None)
    if code is not None:
        _known[id(code)] = caller, code
