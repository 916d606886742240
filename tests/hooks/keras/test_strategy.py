"""KerasHook under TensorFlow's distribution strategies."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tensortrial.hooks.tensorflow as tt
from support import keras_replicas, warm
from support import keras_training as kt
from tensortrial import create_trial

MODULES = ("tensorflow", "keras", "tensortrial.hooks.tensorflow")
DEVICES = [f"/job:localhost/replica:0/task:0/device:CPU:{number}" for number in range(2)]
WORKERS = ["worker_0", "worker_1"]
HALF = kt.BATCH // 2

pytestmark = pytest.mark.distributed


def run(folder: Path, kind: str, *jobs: str, variables: Sequence[Mapping[str, str]] = ({},)) -> Path:
    """Train in processes of their own, one for each set of variables, all jobs in each; return the folder."""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", "TENSORTRIAL_STRICT": "1"}
    arguments = [keras_replicas.__file__, kind, folder, *jobs]
    with ExitStack() as stack:
        processes = [
            stack.enter_context(warm.start(arguments, env={**environment, **each}, preload=MODULES))
            for each in variables
        ]
        for process in processes:
            _, err = process.communicate(timeout=200)
            assert process.returncode == 0, err
    return folder


@pytest.fixture(scope="module")
def mirrored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs of jobs with two replicas in one process, which takes longer to start than to train."""
    jobs = ("loop:all", "fit:all", "eager:all", "fit:one", "loop:one")
    return run(tmp_path_factory.mktemp("mirrored"), "mirrored", *jobs)


@pytest.fixture(scope="module")
def multiworker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs of jobs of two processes."""
    jobs = ("loop:one", "loop:all", *([] if kt.KERAS_3 else ["fit:all"]))  # Keras 3 has no such fit
    return run(tmp_path_factory.mktemp("multiworker"), "multiworker", *jobs, variables=cluster())


def half(step: int, replica: int) -> tuple[Any, Any]:
    """What a replica sees of a batch."""
    x, y = kt.data(1, step)
    return x[replica * HALF : (replica + 1) * HALF], y[replica * HALF : (replica + 1) * HALF]


def check_replicas(trial: Any, mode: Any, workers: list[str], loss: str | None) -> None:
    """Each replica's labels, loss, gradients and weights are those of training by hand on its half of each batch."""
    assert trial.workers() == workers
    assert trial.num_workers == len(workers)
    assert trial.steps(mode) == list(range(keras_replicas.STEPS))
    model = kt.small()
    for step in range(keras_replicas.STEPS):
        for replica, worker in enumerate(workers):

            def saved(name: str, worker: str = worker, step: int = step) -> Any:
                return np.asarray(trial.tensor(name).value(step, mode, worker=worker))

            x, y = half(step, replica)
            np.testing.assert_array_equal(saved("labels_0").ravel(), y)
            np.testing.assert_allclose(saved("predictions_0"), np.asarray(model(x)), atol=1e-5)
            if loss:
                expected = float(kt.classifier_loss()(y, model(x))) / 2
                assert float(saved(loss)) == pytest.approx(expected, rel=1e-5)
            # A replica's share: of the mean over the whole batch, its half.
            for name, gradient in kt.gradients(model, x, y).items():
                np.testing.assert_allclose(saved(f"gradients/{name}Grad"), gradient / 2, atol=1e-6)
            for layer in ("fc1", "fc2"):
                for leaf, value in zip(("kernel", "bias"), model.get_layer(layer).get_weights(), strict=True):
                    np.testing.assert_allclose(saved(f"{layer}/weights/{layer}/{leaf}:0"), value, atol=1e-6)
        x, y = kt.data(1, step)
        for name, gradient in kt.gradients(model, x, y).items():
            layer, leaf = name.split("/")
            variable = model.get_layer(layer).weights[leaf == "bias"]
            variable.assign(tf.convert_to_tensor(variable) - 0.1 * gradient)


@pytest.mark.parametrize(
    "how", [pytest.param("fit", marks=pytest.mark.slow), "loop", pytest.param("eager", marks=pytest.mark.slow)]
)
def test_each_replica_is_a_worker(mirrored: Path, how: str) -> None:
    trial = create_trial(mirrored / f"{how}:all")
    fitted = how == "fit"
    check_replicas(trial, tt.modes.TRAIN if fitted else tt.modes.GLOBAL, DEVICES, None if fitted else "loss")
    if fitted:
        assert trial.steps(tt.modes.EVAL) == trial.steps(tt.modes.PREDICT) == [0, 1]
    else:
        for replica, worker in enumerate(DEVICES):
            mine = [float(trial.tensor("mine").value(step, worker=worker)) for step in range(keras_replicas.STEPS)]
            assert mine == [half(step, replica)[1].sum() for step in range(keras_replicas.STEPS)]
            assert trial.tensor("accuracy").value(0, worker=worker) == 0.5


@pytest.mark.slow
@pytest.mark.parametrize("how", ["fit", "loop"])
def test_the_first_replica_is_the_only_worker_by_default(mirrored: Path, how: str) -> None:
    trial = create_trial(mirrored / f"{how}:one")
    check_replicas(trial, tt.modes.TRAIN if how == "fit" else tt.modes.GLOBAL, ["worker_0"], None)


def cluster() -> list[dict[str, str]]:
    """The variables of two workers on free ports of this machine."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(2)]
        for each in sockets:
            each.bind(("localhost", 0))
        addresses = [f"localhost:{each.getsockname()[1]}" for each in sockets]
    tasks = ({"type": "worker", "index": index} for index in range(2))
    return [{"TF_CONFIG": json.dumps({"cluster": {"worker": addresses}, "task": task})} for task in tasks]


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["one", "all"])
def test_workers_of_several_processes_are_saved(multiworker: Path, workers: str) -> None:
    trial = create_trial(multiworker / f"loop:{workers}")
    check_replicas(trial, tt.modes.GLOBAL, WORKERS if workers == "all" else WORKERS[:1], "loss")


@pytest.mark.slow
@pytest.mark.skipif(kt.KERAS_3, reason="Keras 3 has no fit under MultiWorkerMirroredStrategy")
def test_workers_of_several_processes_are_saved_in_fit(multiworker: Path) -> None:
    check_replicas(create_trial(multiworker / "fit:all"), tt.modes.TRAIN, WORKERS, None)
