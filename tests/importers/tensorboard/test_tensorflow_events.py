"""Runs made of what TensorFlow's own writers put into event files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
import tensortrial  # noqa: E402
from tensortrial import modes  # noqa: E402
from tensortrial.importers.tensorboard import import_runs  # noqa: E402


def import_one(source: Path, target: Path, reported: list[str]) -> Any:
    (path,) = import_runs(source, target, progress=False, report=reported.append)
    return tensortrial.create_trial(path)


def test_tf_summary(tmp_path: Path) -> None:
    data = np.random.default_rng(0).normal(size=1000)
    losses = [float(np.float32(1 / (step + 1))) for step in range(200)]
    with tf.summary.create_file_writer(str(tmp_path / "logs")).as_default():
        for step, loss in enumerate(losses):
            tf.summary.write("loss", tf.constant(loss), step, metadata=_metadata("scalars"))
        tf.summary.write("buckets", _buckets(data), 3, metadata=_metadata("histograms"))
        tf.summary.write("no bucket", np.zeros((0, 3)), 3, metadata=_metadata("histograms"))
        tf.summary.write("matrix", tf.constant([[1.5, 2.5]], tf.bfloat16), 3)
        tf.summary.write("note", tf.constant("lowered"), 3, metadata=_metadata("text"))
        tf.summary.write("image", tf.constant(["8", "8", "png"]), 3, metadata=_metadata("images"))
    reported: list[str] = []
    trial = import_one(tmp_path / "logs", tmp_path / "run", reported)
    assert {step: float(value) for step, value in trial.tensor("loss").values().items()} == dict(enumerate(losses))
    edges, counts = trial.tensor("buckets").histogram(3)
    expected = np.histogram(data, 30)
    np.testing.assert_array_equal(counts, expected[0])
    np.testing.assert_allclose(edges, expected[1], rtol=1e-6)
    assert trial.tensor("matrix").value(3).tolist() == [[1.5, 2.5]]
    assert trial.tensor("matrix").value(3).dtype == "bfloat16"
    assert trial.tensor("note").value(3).tolist() == "lowered"
    assert not trial.has_tensor("no bucket")
    assert reported == [f"{tmp_path / 'logs'}: 1 images"]


def test_the_writer_of_tf1_with_its_histograms(tmp_path: Path) -> None:
    data = np.random.default_rng(0).normal(size=500).astype(np.float32)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        summaries = tf.compat.v1.summary.merge(
            [tf.compat.v1.summary.scalar("loss", 0.25), tf.compat.v1.summary.histogram("weights", data)]
        )
        with tf.compat.v1.summary.FileWriter(str(tmp_path / "logs"), session.graph) as writer:
            writer.add_summary(session.run(summaries), 7)
    reported: list[str] = []
    trial = import_one(tmp_path / "logs", tmp_path / "run", reported)
    assert trial.tensor("loss").value(7) == 0.25
    tensor = trial.tensor("weights")
    edges, counts = tensor.histogram(7)
    assert (edges[0], edges[-1]) == (data.min(), data.max())
    np.testing.assert_array_equal(np.cumsum(counts), [(data <= edge).sum() for edge in edges[1:]])
    assert tensor.reduction_value(7, "sum") == pytest.approx(data.sum(), rel=1e-5)
    assert reported == [f"{tmp_path / 'logs'}: 2 graphs"]


def test_the_callback_of_keras(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    model = tf.keras.Sequential([tf.keras.layers.Input((4,)), tf.keras.layers.Dense(2, name="dense")])
    model.compile("sgd", "mse", metrics=["mae"])
    x, y = np.random.default_rng(0).normal(size=(64, 4)), np.zeros((64, 2))
    logged = tf.keras.callbacks.TensorBoard(str(tmp_path / "logs"), histogram_freq=1, write_graph=False)
    history = model.fit(x, y, epochs=3, validation_split=0.5, verbose=0, callbacks=[logged]).history
    trial = import_one(tmp_path / "logs", tmp_path / "run", [])
    for name, mode in (("loss", modes.TRAIN), ("mae", modes.TRAIN), ("val_loss", modes.EVAL)):
        found = trial.tensor(f"epoch_{name.removeprefix('val_')}").values(mode)
        np.testing.assert_allclose([found[epoch] for epoch in range(3)], history[name], rtol=1e-5)
    kernels = [name for name in trial.tensor_names() if "kernel" in name and "histogram" in name]
    assert trial.tensor(kernels[0]).histogram(2, modes.TRAIN)[1].sum() == 8


def _metadata(plugin: str) -> Any:
    metadata = tf.compat.v1.SummaryMetadata()
    metadata.plugin_data.plugin_name = plugin
    return metadata


def _buckets(data: np.ndarray) -> np.ndarray:
    counts, edges = np.histogram(data, 30)
    return np.column_stack([edges[:-1], edges[1:], counts])
