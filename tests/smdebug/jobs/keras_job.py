"""The job of most programs for Keras: two dense layers and three batches."""

import numpy as np
import smdebug.tensorflow as smd
import tensorflow as tf
from smdebug.trials import create_trial

x, y = np.ones((12, 4), "float32"), np.zeros((12, 2), "float32")


def hooked(save_interval=1, **options):
    """Return a hook of the run at `run`, and the model."""
    tf.keras.utils.set_random_seed(0)
    layers = [tf.keras.layers.Dense(3, activation="relu", input_shape=(4,)), tf.keras.layers.Dense(2)]
    model = tf.keras.Sequential(layers)
    return smd.KerasHook("run", save_config=smd.SaveConfig(save_interval=save_interval), **options), model


def compiled(model, optimizer=None):
    """Compile the model, by default with Adam, and return it."""
    model.compile(optimizer or tf.keras.optimizers.legacy.Adam(), "mse", metrics=["mae"])
    return model


def fit(hook, model, optimizer=None):
    """Fit the model for an epoch, and return a trial of the job, which has ended."""
    compiled(model, optimizer).fit(x, y, batch_size=4, epochs=1, verbose=0, callbacks=[hook])
    hook.close()
    return create_trial("run")


def fit_by_tape(hook, model):
    """Train the model for three steps by a GradientTape, and return a trial of the job, which has ended."""
    optimizer = hook.wrap_optimizer(tf.keras.optimizers.legacy.Adam())
    for _ in range(3):
        with hook.wrap_tape(tf.GradientTape()) as tape:
            loss = tf.reduce_mean(tf.square(model(x, training=True) - y))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    hook.close()
    return create_trial("run")


def print_tensors(trial, collection=None):
    """Print the name, the steps and the size of each tensor of a collection, or of all."""
    for name in sorted(trial.tensor_names(collection=collection) if collection else trial.tensor_names()):
        print(name, trial.tensor(name).steps(), trial.tensor(name).value(trial.tensor(name).steps()[0]).size)
