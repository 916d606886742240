"""Tensors that compiled code skipped, although they were due at the first saved step."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator

import torch

from .names import Root, is_compiled, modules_of, unwrapped

logger = logging.getLogger("tensortrial.hooks")


class MissedCapture:
    """A check, at a model's first saved step, that the tensors that were due of its compiled parts were captured.

    A part that was compiled before its modules had callbacks runs without them, and a backward that was compiled
    together with its forward does not call the callbacks of gradients. torch reports neither.
    """

    def __init__(self) -> None:
        self._captured: set[str] = set()
        self.unchecked: list[Root] = []
        """The models that have not run in a saved step yet. As long as there are any, `note` is to be called."""

    def expect(self, root: Root) -> None:
        """Check a model that was registered, at its first saved step."""
        self.unchecked.append(root)

    def note(self, name: str) -> None:
        """Note that a tensor was captured, by the path of its module or by the name of the gradient."""
        self._captured.add(name)

    def check(self, step: object, is_due: Callable[[str], bool]) -> None:
        """Check the models that ran in a step that was saved, at its end.

        Args:
            step: The step.
            is_due: Returns whether a tensor of this name was due at the step.
        """
        for root in [each for each in self.unchecked if each.ran_at is step]:
            self.unchecked.remove(root)
            for text in self._missed(root, is_due):
                logger.warning("%s", text)
        if not self.unchecked:
            self._captured.clear()

    def _missed(self, root: Root, is_due: Callable[[str], bool]) -> Iterator[str]:
        module = root.module
        if module is None:
            return
        for part, inside in _compiled_parts(root, module):
            due = [path for path in inside if is_due(f"{path}_output_0") or is_due(f"{path}_input_0")]
            if due and self._captured.isdisjoint(due):
                yield (
                    f"what goes in and out of the modules inside {part} is not captured: it was compiled before it was "
                    "registered; call torch.compiler.reset() after registering it"
                )
        config = sys.modules.get("torch._dynamo.config")
        if root.in_compiled_code and getattr(config, "trace_autograd_ops", False):
            gradients = [f"gradient/{root.tensor_name(path)}" for path, _ in module.named_parameters()]
            due = [name for name in gradients if is_due(name)]
            if due and self._captured.isdisjoint(due):
                yield f"the gradients of {root.name} are not captured: its backward is a part of compiled code"


def _compiled_parts(root: Root, model: torch.nn.Module) -> Iterator[tuple[str, list[str]]]:
    """Yield the names of a model's compiled modules, each with the names of the modules inside it."""
    for path, module in modules_of(model):
        if is_compiled(module):
            own = {module, unwrapped(module)}
            inside = [_joined(path, inner) for inner, each in modules_of(module) if each not in own and inner]
            yield root.module_name(path), [root.module_name(each) for each in inside]


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
