"""The hook for tf.estimator.

import tensortrial.hooks.tensorflow as tt

hook = tt.EstimatorHook(out_dir="runs/digits", include_collections=["weights", "gradients"])
estimator.train(input_fn, hooks=[hook])         # with hook.wrap_optimizer(optimizer) in its model_fn
estimator.evaluate(input_fn, hooks=[hook])
"""

from __future__ import annotations

from typing import Any

from tensortrial.errors import importing
from tensortrial.mode import ModeKeys, modes

with importing("tensorflow", "tensorflow", "the hook for estimators"):
    import tensorflow as tf

from .hook import SessionHook


class EstimatorHook(SessionHook):
    """A hook that saves the tensors of an Estimator: pass it to `train`, `evaluate` and `predict` in their `hooks`.

    It is a SessionHook whose steps are counted in the mode of the call: TRAIN, EVAL or PREDICT. Each call builds its
    own graph, and continues the steps of its mode where the last call ended. The run ends with the process, or at
    `close`.
    """

    def _mode_of(self, graph: Any) -> ModeKeys | None:
        # An Estimator adds these to graphs for training and evaluation, but not to those for prediction.
        keys = tf.compat.v1.GraphKeys
        if graph.get_collection(keys.EVAL_STEP):
            return modes.EVAL
        if graph.get_collection(keys.TRAIN_OP) or graph.get_collection(keys.LOSSES):
            return modes.TRAIN
        return modes.PREDICT
