"""The MXNet hook does what every hook must."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from mxnet import autograd, gluon

import tensortrial.hooks.mxnet as tt
from support.gluon_training import batches, seeded, softmax_loss
from support.hook_conformance import HookConformance, Job
from tensortrial.mode import ModeKeys, modes

NUMBER, TENSOR, GRADIENT = "loss_output_0", "net_fc1_weight", "gradient/net_fc1_weight"


class MXNetJob(Job):
    hybridized: ClassVar[bool] = False

    def __init__(self, hook: Any) -> None:
        self.hook, self.net, self.loss = hook, seeded(), softmax_loss()
        self.trainer = gluon.Trainer(self.net.collect_params(), "sgd", {"learning_rate": 0.1})
        if self.hybridized:
            self.net.hybridize()
        if hook is not None:
            hook.register_block(self.net)
            hook.register_block(self.loss)

    def train(self, steps: int, mode: ModeKeys | None = None) -> list[dict[str, np.ndarray[Any, Any]]]:
        if mode is not None:
            self.hook.set_mode(mode)
        return [self.step(x, y, mode is not modes.EVAL) for x, y in batches(steps)]

    def step(self, x: Any, y: Any, updates: bool) -> dict[str, Any]:
        weight = self.net.fc1.weight
        seen = {TENSOR: weight.data().asnumpy()}
        if not updates:
            return {**seen, NUMBER: self.loss(self.net(x), y).asnumpy()}
        with autograd.record():
            loss = self.loss(self.net(x), y)
        loss.backward()
        seen[GRADIENT] = weight.grad().asnumpy()
        self.trainer.step(len(x))
        return {**seen, NUMBER: loss.asnumpy()}

    def parts(self) -> list[Any]:
        return [self.net, self.loss, self.trainer, self.net.fc1.weight]


class HybridizedJob(MXNetJob):
    hybridized = True


class TestMXNet(HookConformance):
    module, framework = tt, "mxnet"
    growing = ("health",)
    number, tensor, gradient = NUMBER, TENSOR, GRADIENT

    def make_job(self, hook: Any) -> MXNetJob:
        return MXNetJob(hook)


class TestHybridized(TestMXNet):
    def make_job(self, hook: Any) -> HybridizedJob:
        return HybridizedJob(hook)
