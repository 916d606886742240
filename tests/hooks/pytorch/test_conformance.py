"""The PyTorch hook does what every hook must."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import tensortrial.hooks.pytorch as tt  # noqa: E402
from support.hook_conformance import HookConformance, Job  # noqa: E402
from support.training import array, batches, seeded  # noqa: E402
from tensortrial.mode import ModeKeys, modes  # noqa: E402

NUMBER, TENSOR, GRADIENT = "CrossEntropyLoss_output_0", "Net_fc1.weight", "gradient/Net_fc1.weight"


class PyTorchJob(Job):
    def __init__(self, hook: Any) -> None:
        self.hook, self.net, self.loss = hook, seeded(), nn.CrossEntropyLoss()
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        if hook is not None:
            hook.register_module(self.net)
            hook.register_loss(self.loss)

    def train(self, steps: int, mode: ModeKeys | None = None) -> list[dict[str, Any]]:
        if mode is not None:
            self.hook.set_mode(mode)
        return [self.step(x, y, mode is not modes.EVAL) for x, y in batches(steps)]

    def step(self, x: Any, y: Any, updates: bool) -> dict[str, Any]:
        seen = {TENSOR: array(self.net.fc1.weight)}
        with torch.set_grad_enabled(updates):
            loss = self.loss(self.net(x), y)
        if updates:
            self.optimizer.zero_grad()
            loss.backward()
            seen[GRADIENT] = array(self.net.fc1.weight.grad)
            self.optimizer.step()
        return {**seen, NUMBER: array(loss)}

    def parts(self) -> list[Any]:
        return [self.net, self.loss, self.optimizer]


class TestPyTorch(HookConformance):
    module, framework = tt, "pytorch"
    number, tensor, gradient = NUMBER, TENSOR, GRADIENT
    growing = ("health",)

    def make_job(self, hook: Any) -> PyTorchJob:
        return PyTorchJob(hook)
