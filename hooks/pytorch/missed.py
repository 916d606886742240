"""What should have been heard from compiled code in the first step that was saved, and was not."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator

import torch

from .names import Root, is_compiled, modules_of, unwrapped

logger = logging.getLogger("tensortrial.hooks")


class Unheard:
    """Compares what a model's compiled parts gave at its first saved step with what was due of them.

    A part that was compiled before its modules had taps goes on without them, and a backward that was compiled together
    with its forward does not call the taps of gradients. Neither says so.
    """

    def __init__(self) -> None:
        self._heard: set[str] = set()
        self._waiting: list[Root] = []

    def expect(self, root: Root) -> None:
        """A model was registered."""
        self._waiting.append(root)

    def note(self, name: str) -> None:
        """A module, by its path, or a gradient was heard."""
        if self._waiting:
            self._heard.add(name)

    def tell(self, step: object, is_due: Callable[[str], bool]) -> None:
        """At the end of a step that was saved: warn of what was due and not heard of the models that ran in it."""
        for root in [each for each in self._waiting if each.ran_at is step]:
            self._waiting.remove(root)
            for text in self._silent(root, is_due):
                logger.warning("%s", text)
        if not self._waiting:
            self._heard.clear()

    def _silent(self, root: Root, is_due: Callable[[str], bool]) -> Iterator[str]:
        module = root.module
        if module is None:
            return
        for part, inside in _compiled_parts(root, module):
            due = [path for path in inside if is_due(f"{path}_output_0") or is_due(f"{path}_input_0")]
            if due and self._heard.isdisjoint(due):
                yield (
                    f"what goes in and out of the modules inside {part} is not captured: it was compiled before it was "
                    "registered; call torch.compiler.reset() after registering it"
                )
        config = sys.modules.get("torch._dynamo.config")
        if root.inside and getattr(config, "trace_autograd_ops", False):
            gradients = [f"gradient/{root.tensor_name(path)}" for path, _ in module.named_parameters()]
            due = [name for name in gradients if is_due(name)]
            if due and self._heard.isdisjoint(due):
                yield f"the gradients of {root.name} are not captured: its backward is a part of compiled code"


def _compiled_parts(root: Root, model: torch.nn.Module) -> Iterator[tuple[str, list[str]]]:
    """The compiled modules of a model, and what the modules inside each are called."""
    for path, module in modules_of(model):
        if is_compiled(module):
            own = {module, unwrapped(module)}
            inside = [_joined(path, inner) for inner, each in modules_of(module) if each not in own and inner]
            yield root.module_name(path), [root.module_name(each) for each in inside]


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
