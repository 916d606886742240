"""Trains on two replicas, one job after another, as the arguments of the tests of distribution say.

    keras_replicas.py mirrored|multiworker FOLDER fit|loop|eager:one|all...

Each job saves a run below the folder, `fit:one`. Each replica sees one half of each batch.
"""

from __future__ import annotations

import sys
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tensortrial.hooks.tensorflow as tt
from support import keras_training as kt

STEPS = 3
COLLECTIONS = ["weights", "biases", "gradients", "predictions", "labels"]


def fit(hook: Any, strategy: Any) -> None:
    """Check that `fit` returns the same with the hook as without."""
    results = []
    for callback in (None, hook):
        with strategy.scope():
            model = kt.small()
        history = kt.fit(model, STEPS, callback).history
        results.append([history, kt.evaluate(model, 2, callback), _predict(model, callback)])
    np.testing.assert_equal(*results)


def fit_alone(hook: Any, strategy: Any) -> None:
    """Train by `fit` with the hook only."""
    with strategy.scope():
        model = kt.small()
    kt.fit(model, STEPS, hook)


def _predict(model: Any, hook: Any) -> Any:
    return model.predict(kt.data(2)[0], batch_size=kt.BATCH, verbose=0, callbacks=[hook] if hook else [])


def loop(hook: Any, strategy: Any, compiled: bool = True) -> None:
    """A loop of one's own, the tape inside of what each replica runs."""
    with strategy.scope():
        model, optimizer = kt.small(), keras.optimizers.SGD(0.1)
    losses = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")

    def on_replica(x: Any, y: Any) -> None:
        with hook.wrap_tape(tf.GradientTape()) as tape:
            loss = tf.reduce_sum(losses(y, model(x, training=True))) / kt.BATCH
        found = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(found, model.trainable_variables, strict=True))
        hook.save_scalar("mine", tf.reduce_sum(y))

    def step(x: Any, y: Any) -> None:
        strategy.run(on_replica, args=(x, y))

    dataset = tf.data.Dataset.from_tensor_slices(kt.data(STEPS)).batch(kt.BATCH)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    train = tf.function(step) if compiled else step
    for x, y in strategy.experimental_distribute_dataset(dataset.with_options(options)):
        train(x, y)
        hook.save_tape_logs({"labels": y, "accuracy": 0.5})


def main(kind: str, folder: str, *jobs: str) -> None:
    if kind == "multiworker":
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
    else:
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
        strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    for job in jobs:
        how, workers = job.split(":")
        hook = tt.KerasHook(
            f"{folder}/{job}",
            include_collections=COLLECTIONS,
            save_config=tt.SaveConfig(save_interval=1),
            include_workers=workers,
        )
        if how == "fit":
            (fit_alone if kind == "multiworker" else fit)(hook, strategy)
        else:
            loop(hook, strategy, how != "eager")
        hook.close()
        tt.del_hook()


if __name__ == "__main__":
    main(*sys.argv[1:])
