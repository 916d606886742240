"""The hook for estimators does what every hook must."""

from __future__ import annotations

import tempfile
from typing import Any

import numpy as np

import tensortrial.hooks.tensorflow as tt
from support.estimator_training import make_estimator, take
from support.graph_training import LOSS, v1
from support.hook_conformance import HookConformance, Job
from tensortrial.mode import ModeKeys, modes

GRADIENT = "gradients/logits/MatMul_grad/tuple/control_dependency_1:0"


class Witness(v1.train.SessionRunHook):
    """Sees what a run computes, and reads the weights before it."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []

    def before_run(self, run_context: Any) -> Any:
        session = run_context.session
        self.seen.append({"logits/kernel:0": np.array(session.run("logits/kernel/Read/ReadVariableOp:0"))})
        names = [LOSS]
        if session.graph.get_collection(v1.GraphKeys.TRAIN_OP):
            names.append(GRADIENT)
        return v1.train.SessionRunArgs({name: name for name in names})

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self.seen[-1].update(run_values.results)


class EstimatorJob(Job):
    def __init__(self, hook: Any) -> None:
        self.hook = hook
        self.folder = tempfile.TemporaryDirectory()
        self.estimator = make_estimator(self.folder.name, None if hook is None else hook.wrap_optimizer)

    def train(self, steps: int, mode: ModeKeys | None = None) -> list[dict[str, Any]]:
        hooks = [witness := Witness()] + ([] if self.hook is None else [self.hook])
        if mode is modes.EVAL:
            self.estimator.evaluate(take(steps), hooks=hooks)
        else:
            self.estimator.train(take(steps), hooks=hooks)
        # The last run is the one that finds no more data.
        return witness.seen[:steps]

    def end(self) -> None:
        self.folder.cleanup()


class TestEstimator(HookConformance):
    module, framework, hook_class = tt, "tensorflow", "EstimatorHook"
    hook_type = "estimator"
    defaults = ("losses", "metrics", "sm_metrics")
    number, tensor, gradient = LOSS, "logits/kernel:0", GRADIENT
    mode = modes.TRAIN
    step_stays_open = False

    def make_job(self, hook: Any) -> EstimatorJob:
        return EstimatorJob(hook)
