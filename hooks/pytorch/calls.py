"""What a forward is called by, as far as it makes a difference: found on the stack of Python's frames.

Nothing is kept from one forward to the next, so that an exception, an interrupt or another thread leaves nothing wrong
behind.
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
    """Who calls a forward."""

    TRAINING = enum.auto()
    """The training, or whatever else wants its result."""
    ITSELF = enum.auto()
    """The same module's forward, which is still running."""
    PIPELINE = enum.auto()
    """A stage of a pipeline, with one microbatch of several."""
    TRIAL = enum.auto()
    """Something that compares what is traced with the module, or infers shapes from values that mean nothing."""


def caller_of(module: torch.nn.Module) -> Caller:
    """Return who calls this module's forward. Only its forward pre-hook may call this."""
    callers = _callers()
    in_forward = False
    frame = sys._getframe(1)
    while frame is not None:
        caller, _ = callers.get(id(frame.f_code), _NOBODY)
        if caller is Caller.ITSELF:
            # The nearest one is the call whose pre-hook this is.
            if in_forward and frame.f_locals.get("self") is module:
                return caller
            in_forward = True
        elif caller is not None:
            return caller
        frame = frame.f_back  # type: ignore[assignment]
    return Caller.TRAINING


def in_trial() -> bool:
    """Return whether the calling code is run for a trial, whichever module runs."""
    callers = _callers()
    frame = sys._getframe(1)
    while frame is not None:
        if callers.get(id(frame.f_code), _NOBODY)[0] is Caller.TRIAL:
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


# By the code's id, because a code object computes its hash from all that it contains; the code is kept beside it.
_known: dict[int, tuple[Caller | None, CodeType | None]] = {}
_NOBODY: tuple[Caller | None, CodeType | None] = (None, None)
_found_pipelining = False


def _callers() -> dict[int, tuple[Caller | None, CodeType | None]]:
    global _found_pipelining
    if not _known:
        _note(Caller.ITSELF, torch.nn.Module, "_wrapped_call_impl")
        _note(Caller.TRIAL, torch.jit._trace, "_check_trace")
    if not _found_pipelining and _PIPELINING in sys.modules:
        _found_pipelining = True
        stage = sys.modules[_PIPELINING]
        _note(Caller.PIPELINE, getattr(stage, "_PipelineStageBase", None), "forward_one_chunk")
        for name in ("_forward_metadata_inference", "_backward_metadata_inference", "_shape_inference"):
            _note(Caller.TRIAL, getattr(stage, "PipelineStage", None), name)
    return _known


def _note(caller: Caller, owner: Any, name: str) -> None:
    # Releases of torch differ in these: what one lacks is not looked for.
    function = inspect.unwrap(getattr(owner, name, None) or (lambda: None))
    code = getattr(function, "__code__", None)
    if code is not None:
        _known[id(code)] = caller, code
