"""The hook for sessions does what every hook must."""

from __future__ import annotations

from typing import Any

import numpy as np

import tensortrial.hooks.tensorflow as tt
from support.graph_training import LOSS, Net, batches
from support.hook_conformance import HookConformance, Job
from tensortrial.mode import ModeKeys, modes

GRADIENT = "gradients/logits/MatMul_grad/tuple/control_dependency_1:0"


class SessionJob(Job):
    def __init__(self, hook: Any) -> None:
        self.hook = hook
        self.net = Net((lambda optimizer: optimizer) if hook is None else hook.wrap_optimizer)
        self.session = self.net.session([] if hook is None else [hook])

    def train(self, steps: int, mode: ModeKeys | None = None) -> list[dict[str, Any]]:
        if mode is not None:
            self.hook.set_mode(mode)
        seen = []
        for x, y in batches(steps):
            # What nobody watches: the session below the monitored one.
            before = self.session.run_step_fn(lambda step_context: step_context.session.run(self.net.kernel))
            fetches = [self.net.loss, self.net.gradient, *([] if mode is modes.EVAL else [self.net.train])]
            loss, gradient, *_ = self.session.run(fetches, self.net.feed(x, y))
            seen.append({"logits/kernel:0": np.array(before), LOSS: loss, self.net.gradient.name: gradient})
        return seen

    def end(self) -> None:
        self.session.close()

    def parts(self) -> list[Any]:
        # A MonitoredSession holds its hooks itself.
        return [self.net.loss.graph]


class TestSession(HookConformance):
    module, framework, hook_class = tt, "tensorflow", "SessionHook"
    hook_type = "session"
    defaults = ("losses", "metrics", "sm_metrics")
    number, tensor, gradient = LOSS, "logits/kernel:0", GRADIENT
    step_stays_open = False

    def make_job(self, hook: Any) -> SessionJob:
        return SessionJob(hook)
