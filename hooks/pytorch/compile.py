"""What stands for a tap in the graphs of torch.compile.

Compiled code cannot call back into Python: of a callback the compiler keeps what it can put into a graph. So there a
tap is an operator that gives nothing and has an effect, which the compiler neither drops nor moves across another one:
one node of the one graph, no break. It is in the graph only where the tensor may be saved at some step, and
`switch.on` is looked at before each call: the graph for the steps at which nothing is due is the model's own.

Modules of one class share their graphs, as they do without taps: which of the taps it is, is an input of the graph
(a tensor with its number), and whether it is wanted is answered for all modules of the class at once.
"""

from __future__ import annotations

import itertools
import logging
import sys
import weakref
from typing import Any, Protocol

import torch

logger = logging.getLogger("tensortrial.hooks")

Keys = tuple[str | None, ...]

# What changes what is wanted makes the compiler compile anew, and it gives up after a few times.
_MOST_EPOCHS = 4


class Tap(Protocol):
    """What has a place in graphs."""

    def stands_for(self, kind: type[torch.nn.Module] | None, direction: str) -> bool:
        """Whether it looks at what goes in or out of a module of this class; gradients are of no module."""

    def may_want(self, keys: Keys) -> bool:
        """Whether a tensor with one of these keys may be saved at some step."""

    def hear(self, tensor: torch.Tensor, key: str | None) -> None:
        """The graph has run as far as this tensor."""


class Switch:
    """Which of its graphs compiled code takes. The compiler reads the attributes, and compiles once for each value."""

    def __init__(self) -> None:
        self.on = False
        """Whether any hook may save something now."""
        self.epoch = "0"
        """Another one when the answers that the compiler was given are no longer right."""
        self._listeners: weakref.WeakSet[Any] = weakref.WeakSet()
        self._has_room = False

    def turn(self, listener: object, on: bool) -> None:
        """Say whether a hook listens."""
        if on:
            self._listeners.add(listener)
        else:
            self._listeners.discard(listener)
        if self.on != bool(self._listeners):
            self.on = not self.on
            self._make_room()

    def _make_room(self) -> None:
        """Let the compiler keep twice as many graphs of one function, because there are two for each that it would have
        without a hook."""
        config = sys.modules.get("torch._dynamo.config")
        if config is not None and not self._has_room:
            self._has_room = True
            config.recompile_limit *= 2  # type: ignore[attr-defined]

    def advance(self) -> None:
        """Make the compiler ask again what is wanted."""
        if int(self.epoch) < _MOST_EPOCHS:
            self.epoch = str(int(self.epoch) + 1)
        else:
            _tell("that collections were told of so late")


switch = Switch()
_taps: weakref.WeakValueDictionary[int, Tap] = weakref.WeakValueDictionary()
_numbers = itertools.count()
_answers: dict[tuple[type[torch.nn.Module] | None, str, Keys], bool] = {}
_told: set[str] = set()


def enlist(tap: Tap) -> torch.Tensor:
    """The tap's number, as the tensor by which graphs name it."""
    number = next(_numbers)
    _taps[number] = tap
    return torch.tensor(number, device="cpu")


def look_again() -> None:
    """After collections have changed: compile anew what was compiled without taps that are wanted now. Taps that are
    wanted no more stay in the graphs that have them."""
    now = {question: _may_want(*question) for question in _answers}
    if any(now[question] and not answer for question, answer in _answers.items()):
        _answers.clear()
        switch.advance()
    for question, wanted in now.items():
        if not wanted and _answers.get(question):
            del _answers[question]


def missed() -> None:
    """A step turns out to be saved after its compiled code has looked at the switch."""
    if any(_answers.values()):
        _tell("of a step that was made due when it had been foreseen otherwise")


def _may_want(kind: type[torch.nn.Module] | None, direction: str, keys: Keys) -> bool:
    return any(tap.may_want(keys) for tap in list(_taps.values()) if tap.stands_for(kind, direction))


def _is_wanted(epoch: str, kind: type[torch.nn.Module] | None, direction: str, *keys: str | None) -> bool:
    if _hear is None:
        _tell(_TOO_OLD)
        return False
    question = kind, direction, keys
    if question not in _answers:
        _answers[question] = _may_want(*question)
    if not _answers[question]:
        return False
    place = _place_in_graph()
    if place:
        _tell(f"in {place}")
    return not place


def _tell(what: str) -> None:
    if what not in _told:
        _told.add(what)
        logger.warning("tensors %s inside compiled code are not captured", what)


def _place_in_graph() -> str:
    """The construct of graphs that the compiler is inside of, if it allows of no effects (torch.cond does not)."""
    from torch._dynamo.symbolic_convert import InstructionTranslator

    tracer = InstructionTranslator.current_tx().output.current_tracer
    while tracer is not None and tracer.parent is not None:
        name = str(getattr(tracer.source_target, "__name__", tracer.source_target))
        if "checkpoint" not in name:
            return name
        tracer = tracer.parent
    return ""


# The compiler calls these itself, and keeps nothing but the answer.
_constant: Any = torch.compiler.assume_constant_result
is_wanted = _constant(_is_wanted)
tell = _constant(_tell)


def emit(tap_number: torch.Tensor, tensor: torch.Tensor, key: str | None) -> None:
    """Put a tap into the graph that is being compiled."""
    if _hear is None:
        tell(_TOO_OLD)
        return
    if hasattr(tensor, "to_local"):
        tensor = tensor.to_local()
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        tell("of classes of their own")
    else:
        _hear(tensor.detach(), tap_number, key or "")


def run_uncompiled(code: Any) -> None:
    """Have the compiler leave a callback alone where Python itself calls it: before and after the forward of a compiled
    model. Where the callback is a part of what is compiled, it still becomes a part of the graph."""
    frames = torch._C._dynamo.eval_frame
    if not hasattr(frames, "_FrameExecStrategy"):  # an older release
        return
    skip = frames._FrameAction.SKIP
    frames.set_code_exec_strategy(code, frames._FrameExecStrategy(skip, skip))


def _heard(tensor: torch.Tensor, tap: torch.Tensor, key: str) -> None:
    found = _taps.get(int(tap.item()))
    if found is not None:
        found.hear(tensor, key or None)


def _operator() -> Any:
    library: Any = torch.library
    if not hasattr(library, "EffectType"):
        return None
    operator = library.custom_op(
        "tensortrial::hear",
        _heard,
        mutates_args=(),
        schema="(Tensor tensor, Tensor tap, str key) -> ()",
        # What Python does cannot be recorded and played back as a CUDA graph.
        tags=(torch.Tag.cudagraph_unsafe,),
    )
    operator.register_fake(lambda tensor, tap, key: None)
    operator.register_effect(library.EffectType.ORDERED)
    return operator


_TOO_OLD = f"by torch {torch.__version__}, which knows no operators with effects,"
_hear = _operator()
