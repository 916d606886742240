"""Callbacks in the graphs of torch.compile, where an additional output or an operator replaces them.

Compiled code cannot call Python, and the compiler keeps only the part of a callback that can be in a graph. There are
two ways to capture a tensor without a graph break:

- As an output. The graph returns a copy of the tensor, and the code that the compiler puts around the graph passes it
  to the callback. The graph itself has only operators of torch, so it can be recorded and replayed as a CUDA graph.
  Accelerators use this way.
- By an operator that has an effect and returns nothing. The compiler neither drops such operators nor reorders them. It
  calls Python while the graph runs, which cannot be recorded, but needs no copy. The CPU uses this way. The operator
  also begins steps, which must happen before the graph changes a parameter, and it captures tensors of nested graphs
  (activation checkpointing), which cannot become outputs.

A tensor is captured only where it may be saved at some step. Compiled code checks `switch.on` before each call: at
steps at which nothing is due, the model's own graph runs.

Modules of one class share their graphs, as without callbacks: a tensor with the callback's number is an input of the
graph, and a tensor is captured for all modules of the class or for none.
"""

from __future__ import annotations

import itertools
import os
import sys
import weakref
from typing import Any, Protocol

import torch

from ..core.log import logger

Keys = tuple[str | None, ...]

# If the captured tensors change, the compiler must compile again, which it refuses after a few times.
_MAX_EPOCHS = 4


class GraphCallback(Protocol):
    """A callback that may be a part of graphs."""

    def captures(self, kind: type[torch.nn.Module] | None, direction: str) -> bool:
        """Return whether it captures the inputs or outputs of a module of this class; gradients have no module."""

    def may_save(self, keys: Keys) -> bool:
        """Return whether a tensor with one of these keys may be saved at some step."""

    def receive(self, tensor: torch.Tensor, key: str | None) -> None:
        """Capture a tensor, which the graph has just computed."""


class Switch:
    """The choice between the graphs of compiled code.

    The compiler reads the attributes, and compiles once for each of their values.
    """

    def __init__(self) -> None:
        self.on = False
        """True if any hook may save something now."""
        self.epoch = "0"
        """A number that changes when the compiler must ask callbacks again."""
        self._hooks: weakref.WeakSet[Any] = weakref.WeakSet()
        self._open: weakref.WeakSet[Any] = weakref.WeakSet()
        self._raised_limit: int | None = None
        self.has_graphs = False
        """True if the compiler has made a graph with callbacks."""

    def turn(self, hook: object, on: bool) -> None:
        """Note whether a hook may save something now."""
        self._open.add(hook)
        if on:
            self._hooks.add(hook)
        else:
            self._hooks.discard(hook)
        if self.on != bool(self._hooks):
            self.on = not self.on
            self._raise_limit()

    def _raise_limit(self) -> None:
        """Let the compiler keep twice as many graphs of one function.

        With a hook there are two graphs for each one.
        """
        config: Any = sys.modules.get("torch._dynamo.config")
        if config is not None and self._raised_limit is None:
            self._raised_limit = config.recompile_limit = config.recompile_limit * 2

    def close(self, hook: object) -> None:
        """Remove a closed hook. After the last one, restore the compiler's limit.

        The limit stays if functions have graphs that capture, because these remain, and with `fullgraph=True` exceeding
        the limit is an error.
        """
        self.turn(hook, False)
        self._open.discard(hook)
        config: Any = sys.modules.get("torch._dynamo.config")
        if self._raised_limit is not None and not self._open and not self.has_graphs:
            if config.recompile_limit == self._raised_limit:  # no other code has changed it
                config.recompile_limit //= 2
            self._raised_limit = None

    def advance(self) -> None:
        """Make the compiler ask callbacks again."""
        if int(self.epoch) < _MAX_EPOCHS:
            self.epoch = str(int(self.epoch) + 1)
        else:
            _warn("that were added to collections so late")


_NAME = "tensortrial::capture"

# The environment variable that chooses one way for all devices: "output" or "operator".
_WAY_VARIABLE = "TENSORTRIAL_COMPILED_CAPTURE"

_eval_frame: Any = torch._C._dynamo.eval_frame
_frames = _eval_frame if hasattr(_eval_frame, "_FrameExecStrategy") else None
"""The module of the function that excludes code from compilation; None in older releases of torch."""

switch = Switch()
_callbacks: weakref.WeakValueDictionary[int, GraphCallback] = weakref.WeakValueDictionary()
_numbers = itertools.count()
_answers: dict[tuple[type[torch.nn.Module] | None, str, Keys], bool] = {}
_warned: set[str] = set()


def register(callback: GraphCallback) -> torch.Tensor:
    """Register a callback, and return its number as a tensor, by which graphs refer to it."""
    number = next(_numbers)
    _callbacks[number] = callback
    return torch.tensor(number, device="cpu")


def compiler_is_used() -> bool:
    """Return whether torch.compile was called. Compiled code keeps the callbacks of its compilation."""
    backends: dict[int, Any] = getattr(sys.modules.get("torch._dynamo.eval_frame"), "cached_backends", {})
    return any(each is not None for each in list(backends.values()))  # torch.compiler.disable sets None


def refresh() -> None:
    """Make the compiler compile code without callbacks again, after collections have changed.

    Callbacks that are no longer wanted stay in the graphs that have them.
    """
    now = {question: _may_save(*question) for question in _answers}
    if any(now[question] and not answer for question, answer in _answers.items()):
        _answers.clear()
        switch.advance()
    for question, wanted in now.items():
        if not wanted and _answers.get(question):
            del _answers[question]


def warn_of_unplanned_step() -> None:
    """Warn of a step that became due after its compiled code had checked the switch."""
    if any(_answers.values()):
        _warn("of a step that became due after its compiled code had started")


def _may_save(kind: type[torch.nn.Module] | None, direction: str, keys: Keys) -> bool:
    return any(each.may_save(keys) for each in list(_callbacks.values()) if each.captures(kind, direction))


def _is_wanted(epoch: str, kind: type[torch.nn.Module] | None, direction: str, *keys: str | None) -> bool:
    if _operator is None:
        _warn(_TOO_OLD)
        return False
    switch.has_graphs = True
    question = kind, direction, keys
    if question not in _answers:
        _answers[question] = _may_save(*question)
    if not _answers[question]:
        return False
    construct = _construct_in_graph()
    if construct:
        _warn(f"in {construct}")
    return not construct


def _warn(what: str) -> None:
    if what not in _warned:
        _warned.add(what)
        logger.warning("tensors %s inside compiled code are not captured", what)


def _construct_in_graph() -> str:
    """Return the construct that the compiler is tracing if it forbids effects, as torch.cond does; else ''."""
    from torch._dynamo.symbolic_convert import InstructionTranslator

    tracer = InstructionTranslator.current_tx().output.current_tracer
    while tracer is not None and tracer.parent is not None:
        name = str(getattr(tracer.source_target, "__name__", tracer.source_target))
        if "checkpoint" not in name:
            return name
        tracer = tracer.parent
    return ""


def _constant(function: Any) -> Any:
    """Let the compiler call a function while it traces, and keep only the result.

    torch.compiler.assume_constant_result does the same, and imports the compiler, which takes as long as torch itself.
    """
    vars(function)["_dynamo_marked_constant"] = True
    return function


is_wanted = _constant(_is_wanted)
warn = _constant(_warn)


def emit_begin(number: torch.Tensor) -> None:
    """Add a call of a callback without a tensor to the graph that is being compiled."""
    if _operator is None:
        warn(_TOO_OLD)
    else:
        _leave_unrecorded()
        _operator(number, number, "")


def emit(number: torch.Tensor, tensor: torch.Tensor, key: str | None) -> None:
    """Make the graph that is being compiled pass a tensor to the callback with this number."""
    if hasattr(tensor, "to_local"):
        tensor = tensor.to_local()
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        warn("of classes of their own")
    elif _becomes_output(tensor.device.type):
        # A copy, because later in-place operations of the graph would change the output.
        _receive(tensor.detach().clone(), number, key or "")
        _keep_calls()
    else:
        _leave_unrecorded()
        _operator(tensor.detach(), number, key or "")


def _may_become_output(device: str) -> bool:
    """Return whether the next captured tensor can and should be an output of its graph."""
    way = os.environ.get(_WAY_VARIABLE) or ("operator" if device == "cpu" else "output")
    if way != "output" or _frames is None:
        return False
    from torch._dynamo import config
    from torch._dynamo.symbolic_convert import InstructionTranslator

    graph: Any = InstructionTranslator.current_tx().output
    functions: Any = getattr(config, "reorderable_logging_functions", None)
    is_inside_another = getattr(graph.current_tracer, "parent", None) is not None
    if is_inside_another or functions is None or not hasattr(graph.root_tx, "debug_locals"):
        return False
    functions.add(_receive)  # the compiler calls these in their order after the graph has run
    return True


def _move_calls_to_frame() -> None:
    """Move calls that follow the graph to the frame that is being compiled.

    The compiler keeps them with each function that it inlines, but makes only those of the frame itself.
    """
    from torch._dynamo.symbolic_convert import InstructionTranslator

    graph: Any = InstructionTranslator.current_tx().output
    function = graph.current_tx
    while function is not None and function is not graph.root_tx:
        graph.root_tx.debug_locals += function.debug_locals
        function.debug_locals.clear()
        function = function.parent


def _split_recordings() -> None:
    """Make inductor record separate CUDA graphs before and after the operator.

    Inductor does not see the tag of an operator with effects, and would record it with its neighbors.
    """
    config = sys.modules.get("torch._inductor.config")
    operators: Any = getattr(config, "custom_should_partition_ops", None)
    if operators is not None and _NAME not in operators:
        operators.append(_NAME)


_becomes_output = _constant(_may_become_output)
_keep_calls = _constant(_move_calls_to_frame)
_leave_unrecorded = _constant(_split_recordings)


def leave_uncompiled(code: Any) -> None:
    """Exclude a callback from compilation where Python calls it.

    Python calls it before and after the forward of a compiled model. Inside compiled code it still becomes a part of
    the graph.
    """
    if _frames is not None:
        skip = _frames._FrameAction.SKIP
        _frames.set_code_exec_strategy(code, _frames._FrameExecStrategy(skip, skip))


def _receive(tensor: torch.Tensor, number: torch.Tensor, key: str) -> None:
    callback = _callbacks.get(int(number.item()))
    if callback is not None:
        callback.receive(tensor, key or None)


def _make_operator() -> Any:
    library: Any = torch.library
    if not hasattr(library, "EffectType"):
        return None
    operator = library.custom_op(
        _NAME,
        _receive,
        mutates_args=(),
        schema="(Tensor tensor, Tensor number, str key) -> ()",
        # Python calls cannot be recorded and replayed as a CUDA graph.
        tags=(torch.Tag.cudagraph_unsafe,),
    )
    operator.register_fake(lambda tensor, number, key: None)
    operator.register_effect(library.EffectType.ORDERED)
    return operator


_TOO_OLD = f"by torch {torch.__version__}, which has no operators with effects,"
_operator = _make_operator()
leave_uncompiled(_receive.__code__)
