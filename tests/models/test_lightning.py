"""The callback and the logger for Lightning, in trainings by Lightning itself."""

from __future__ import annotations

import importlib.metadata
import json
import os
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
lightning = pytest.importorskip("lightning.pytorch")
from support.lightning_training import SCRIPT  # noqa: E402
from support.programs import run_training  # noqa: E402
from tensortrial import create_trial  # noqa: E402
from tensortrial.hooks.lightning import Callback, Logger, factory  # noqa: E402
from tensortrial.hooks.pytorch import SaveConfig, modes  # noqa: E402

torch.set_num_threads(1)
ROOT = Path(__file__).parent.parent.parent
EACH = {"save_config": SaveConfig(save_interval=1)}
# Lightning advises to use more processes for data, and a logger.
pytestmark = [
    pytest.mark.filterwarnings("ignore:You defined a `validation_step` but:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*does not have many workers:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*is smaller than the logging interval:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*log_every_n_steps.*:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`:UserWarning"),
    pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint that ended before:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*Checkpoint directory .* exists and is not empty:UserWarning"),
]


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TENSORTRIAL_OUT_DIR", "TENSORTRIAL_LIGHTNING"):
        monkeypatch.delenv(name, raising=False)


def loader(batches: int, seed: int = 0) -> Any:
    generator = torch.Generator().manual_seed(seed)
    data = torch.randn(2 * batches, 4, generator=generator)
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(data, data.sum(1, keepdim=True)), batch_size=2)


class Net(lightning.LightningModule):  # type: ignore[misc]
    def __init__(self, rate: float = 0.1) -> None:
        super().__init__()
        self.save_hyperparameters()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(4, 1)
        self.gradients: list[Any] = []

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1])
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        self.log("val_loss", torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1]))

    test_step = validation_step

    def predict_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> Any:
        return self.layer(batch[0])

    def optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        super().optimizer_step(*args, **kwargs)
        self.gradients.append(self.layer.weight.grad.clone().numpy())

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=self.hparams.rate)


class Adversaries(lightning.LightningModule):  # type: ignore[misc]
    """Two optimizers in one step, as in a GAN."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.generator, self.critic = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
        self.gradients: list[Any] = []

    def training_step(self, batch: Any, batch_idx: int) -> None:
        first, second = self.optimizers()
        first.zero_grad()
        self.manual_backward(self.critic(self.generator(batch[0])).mean())
        self.gradients.append(self.generator.weight.grad.clone().numpy())
        first.step()
        second.zero_grad()
        self.manual_backward(-self.critic(batch[0]).mean())
        second.step()

    def configure_optimizers(self) -> Any:
        return [torch.optim.SGD(each.parameters(), lr=0.1) for each in (self.generator, self.critic)]


def made_trainer(folder: Path, *callbacks: Any, **options: Any) -> Any:
    given = {
        "default_root_dir": folder,
        "max_epochs": 1,
        "accelerator": "cpu",
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "log_every_n_steps": 1,
        **options,
    }
    return lightning.Trainer(callbacks=list(callbacks), **given)


def test_updates_are_steps_in_mode_train_and_the_sanity_check_is_none(tmp_path: Path) -> None:
    callback = Callback(tmp_path / "run", save_all=True, **EACH)
    made_trainer(tmp_path, callback, num_sanity_val_steps=2).fit(Net(), loader(2), loader(3))
    callback.close()
    trial = create_trial(tmp_path / "run")
    assert trial.steps(mode=modes.TRAIN) == [0, 1]
    assert trial.steps(mode=modes.EVAL) == [0, 1, 2]
    assert set(trial.modes()) == {modes.TRAIN, modes.EVAL}
    assert trial.tensor("layer_output_0").steps(mode=modes.EVAL) == [0, 1, 2]
    assert json.loads((tmp_path / "run" / "run.json").read_text())["metadata"]["rate"] == 0.1


def test_accumulated_batches_are_one_step_with_the_gradients_of_the_optimizer(tmp_path: Path) -> None:
    callback, net = Callback(tmp_path / "run", include_collections=["gradients"], **EACH), Net()
    trainer = made_trainer(tmp_path, callback, accumulate_grad_batches=3, gradient_clip_val=0.01)
    trainer.fit(net, loader(7))
    callback.close()
    trial = create_trial(tmp_path / "run")
    # Three batches, three, and the one that is left.
    assert trial.steps(mode=modes.TRAIN) == [0, 1, 2]
    gradient = trial.tensor("gradient/Net_layer.weight")
    for step, expected in zip([0, 1, 2], net.gradients, strict=True):
        assert (gradient.value(step, mode=modes.TRAIN) == expected).all()


def test_a_step_of_several_optimizers_is_one_step(tmp_path: Path) -> None:
    callback, net = Callback(tmp_path / "run", include_collections=["gradients"], **EACH), Adversaries()
    made_trainer(tmp_path, callback).fit(net, loader(3))
    callback.close()
    trial = create_trial(tmp_path / "run")
    assert trial.steps(mode=modes.TRAIN) == [0, 1, 2]
    gradient = trial.tensor("gradient/Adversaries_generator.weight")
    for step, expected in enumerate(net.gradients):
        assert (gradient.value(step, mode=modes.TRAIN) == expected).all()


class ByHand(Net):
    """A module that updates after each third batch, and logs after each batch."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch: Any, batch_idx: int) -> None:
        self.manual_backward(super().training_step(batch, batch_idx))
        if batch_idx % 3 == 2:
            self.optimizers().step()
            self.gradients.append(self.layer.weight.grad.clone().numpy())
            self.optimizers().zero_grad()


@pytest.mark.parametrize("kind", [Net, ByHand])
def test_what_the_module_logs_is_saved_at_the_steps_of_lightning(tmp_path: Path, kind: Any) -> None:
    callback, net = Callback(tmp_path / "run", include_collections=["gradients"], **EACH), kind()
    csv = lightning.loggers.CSVLogger(tmp_path, name="csv", version="0")
    rate = lightning.callbacks.LearningRateMonitor("epoch")
    trainer = made_trainer(tmp_path, rate, callback, logger=csv, val_check_interval=3, max_epochs=2)
    trainer.fit(net, loader(6), loader(1))
    trainer.validate(net, loader(2), verbose=False)
    callback.close()
    lines = (tmp_path / "csv" / "0" / "metrics.csv").read_text().splitlines()
    rows = [dict(zip(lines[0].split(","), line.split(","), strict=True)) for line in lines[1:]]
    trial = create_trial(tmp_path / "run")
    for name, steps in {"train_loss": list(range(12)), "val_loss": [2, 5, 8, 11, 12], "lr-SGD": [0, 6]}.items():
        logged = {int(row["step"]): float(row[name]) for row in rows if row[name]}
        assert list(logged) == steps
        assert trial.tensor(name).steps(mode=modes.TRAIN) == steps
        for step, value in logged.items():
            assert trial.tensor(name).value(step, mode=modes.TRAIN) == pytest.approx(value)
    # An update with the batches that it accumulates has the number of the first of them.
    steps = list(range(0, 12, 3)) if kind is ByHand else list(range(12))
    gradient = trial.tensor("gradient/Net_layer.weight" if kind is Net else "gradient/ByHand_layer.weight")
    assert gradient.steps(mode=modes.TRAIN) == steps
    for step, expected in zip(steps, net.gradients, strict=True):
        assert (gradient.value(step, mode=modes.TRAIN) == expected).all()


class Turns(Adversaries):
    """Two optimizers, one of which steps in each batch. Gradients of both are there at each of them."""

    by_closure = False

    def training_step(self, batch: Any, batch_idx: int) -> None:
        optimizer = self.optimizers()[batch_idx % 2]
        trained = [self.generator, self.critic][batch_idx % 2]

        def closure() -> Any:
            optimizer.zero_grad()
            loss = self.critic(self.generator(batch[0])).mean()
            self.manual_backward(loss)
            self.gradients.append(trained.weight.grad.clone().numpy())
            return loss

        if self.by_closure:
            optimizer.step(closure=closure)
        else:
            closure()
            optimizer.step()


@pytest.mark.parametrize("by_closure", [False, True])
def test_optimizers_that_take_turns_have_the_gradients_that_they_use(tmp_path: Path, by_closure: bool) -> None:
    callback, net = Callback(tmp_path / "run", include_collections=["gradients"], **EACH), Turns()
    net.by_closure = by_closure
    made_trainer(tmp_path, callback).fit(net, loader(4))
    callback.close()
    trial = create_trial(tmp_path / "run")
    for number, name in enumerate(["gradient/Turns_generator.weight", "gradient/Turns_critic.weight"]):
        assert trial.tensor(name).steps(mode=modes.TRAIN) == [number, number + 2]
        for step in (number, number + 2):
            assert (trial.tensor(name).value(step, mode=modes.TRAIN) == net.gradients[step]).all()


class Foreign(torch.optim.Optimizer):  # type: ignore[misc]
    """An optimizer that changes what another one does, and does not call the constructor of torch's."""

    def __init__(self, base: Any) -> None:
        self.base = base

    param_groups = property(lambda self: self.base.param_groups)
    state = property(lambda self: self.base.state)
    defaults = property(lambda self: self.base.defaults)

    def step(self, closure: Any = None) -> Any:
        return self.base.step(closure)

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.base.zero_grad(set_to_none)


def test_optimizers_may_be_of_any_class_and_be_replaced(tmp_path: Path) -> None:
    class Replaces(Net):
        def configure_optimizers(self) -> Any:
            return Foreign(super().configure_optimizers())

        def on_train_epoch_start(self) -> None:
            if self.current_epoch:
                self.trainer.optimizers = [torch.optim.Adam(self.parameters())]

    Replaces.__name__ = "Net"
    callback, net = Callback(tmp_path / "run", include_collections=["gradients"], **EACH), Replaces()
    made_trainer(tmp_path, callback, max_epochs=2).fit(net, loader(2))
    callback.close()
    gradient = create_trial(tmp_path / "run").tensor("gradient/Net_layer.weight")
    assert gradient.steps(mode=modes.TRAIN) == [0, 1, 2, 3]
    assert all((gradient.value(step, mode=modes.TRAIN) == each).all() for step, each in enumerate(net.gradients))


def test_a_validation_within_an_accumulated_step_is_no_part_of_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    callback = Callback(tmp_path / "run", save_all=True, **EACH)
    trainer = made_trainer(tmp_path, callback, accumulate_grad_batches=2, val_check_interval=1)
    trainer.fit(Net(), loader(4), loader(1))
    callback.close()
    trial = create_trial(tmp_path / "run")
    assert trial.steps(mode=modes.TRAIN) == [0, 1]
    assert trial.steps(mode=modes.EVAL) == [0, 1, 2, 3]
    assert trial.tensor("gradient/Net_layer.weight").steps(mode=modes.EVAL) == []
    (warning,) = [each.message for each in caplog.records if "is saved without" in each.message]
    assert "step 0 of the training" in warning


def test_several_data_loaders_are_told_apart(tmp_path: Path) -> None:
    callback = Callback(tmp_path / "run", save_all=True, **EACH)
    trainer = made_trainer(tmp_path, callback)
    trainer.validate(Net(), [loader(2), loader(1, seed=1)], verbose=False)
    callback.close()
    trial = create_trial(tmp_path / "run")
    index = trial.tensor("dataloader_idx")
    assert [float(index.value(step, mode=modes.EVAL)) for step in trial.steps(mode=modes.EVAL)] == [0, 0, 1]


def test_a_test_is_evaluation_and_a_prediction_is_prediction(tmp_path: Path) -> None:
    callback, net = Callback(tmp_path / "run", save_all=True, **EACH), Net()
    trainer = made_trainer(tmp_path, callback)
    trainer.fit(net, loader(2))
    trainer.test(net, loader(3), verbose=False)
    trainer.predict(net, loader(1))
    callback.close()
    trial = create_trial(tmp_path / "run")
    found = {mode: trial.steps(mode=mode) for mode in (modes.TRAIN, modes.EVAL, modes.PREDICT)}
    # Lightning logs the metrics of the test after the last step.
    assert found == {modes.TRAIN: [0, 1, 2], modes.EVAL: [0, 1, 2], modes.PREDICT: [0]}


def test_what_was_saved_until_an_error_is_readable(tmp_path: Path) -> None:
    class Fails(Net):
        def on_before_zero_grad(self, optimizer: Any) -> None:
            if self.global_step == 2:
                raise RuntimeError("a CUDA error")

    callback = Callback(tmp_path / "run", save_all=True, **EACH)
    with pytest.raises(RuntimeError, match="a CUDA error"):
        made_trainer(tmp_path, callback).fit(Fails(), loader(4))
    trial = create_trial(tmp_path / "run")
    assert trial.steps(mode=modes.TRAIN) == [0, 1, 2]
    assert "layer_output_0" in trial.tensor_names(step=2, mode=modes.TRAIN)


def test_a_checkpoint_of_the_first_step_is_continued(tmp_path: Path) -> None:
    checkpoint = lightning.callbacks.ModelCheckpoint(tmp_path / "points", every_n_train_steps=1, save_top_k=-1)
    first = Callback(tmp_path / "run", **EACH)
    made_trainer(tmp_path, first, checkpoint, enable_checkpointing=True, max_steps=1).fit(Net(), loader(3))
    first.close()
    second = Callback(tmp_path / "run", **EACH)
    (path,) = (tmp_path / "points").glob("*step=1*")
    made_trainer(tmp_path, second).fit(Net(), loader(3), ckpt_path=path)
    second.close()
    trial = create_trial(tmp_path / "run")
    assert trial.steps(mode=modes.TRAIN) == [0, 1, 2]
    assert trial.sql("select count(*) from superseded").fetchall() == [(0,)]


def test_a_resumed_training_continues_the_run_at_its_checkpoint(tmp_path: Path) -> None:
    """The first attempt ends after three steps, its checkpoint has two. The second one's third takes its place."""
    checkpoint = lightning.callbacks.ModelCheckpoint(tmp_path / "points", every_n_train_steps=2, save_top_k=-1)
    options: dict[str, Any] = {"include_collections": ["weights"], **EACH}
    first = Callback(tmp_path / "run", **options)
    made_trainer(tmp_path, first, checkpoint, enable_checkpointing=True, max_steps=3).fit(Net(), loader(5))
    first.close()
    assert create_trial(tmp_path / "run").steps(mode=modes.TRAIN) == [0, 1, 2]

    weights: dict[int, Any] = {}

    class Seen(Net):
        def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
            weights[self.global_step] = self.layer.weight.detach().clone().numpy()

    Seen.__name__ = "Net"
    second = Callback(tmp_path / "run", **options)
    (path,) = (tmp_path / "points").glob("*step=2*")
    trained = made_trainer(tmp_path, second)
    trained.fit(Seen(), loader(5, seed=1), ckpt_path=path)
    second.close()
    trial = create_trial(tmp_path / "run")
    assert trial.steps(mode=modes.TRAIN) == [0, 1, 2, 3, 4]
    assert list(weights) == [2, 3, 4]
    weight = trial.tensor("Net_layer.weight")
    for step in (3, 4):
        assert (weight.value(step, mode=modes.TRAIN) == weights[step]).all()
    assert trial.tensor("train_loss").steps(mode=modes.TRAIN) == [0, 1, 2, 3, 4]
    query = "select mode_step, value from scalars where name = 'train_loss' and mode_step > 1 order by saved_at"
    rows = trial.sql(query).fetchall()
    assert [step for step, _ in rows] == [2, 3, 4]
    assert rows[0][1] == trial.tensor("train_loss").value(2, mode=modes.TRAIN)
    ((step, before),) = trial.sql("select mode_step, scalar from superseded where name = 'train_loss'").fetchall()
    assert step == 2
    assert before != rows[0][1]


def test_a_callback_without_a_choice_saves_the_health_of_the_model(tmp_path: Path) -> None:
    callback = Callback(tmp_path / "run")
    made_trainer(tmp_path, callback).fit(Net(), loader(25))
    callback.close()
    trial = create_trial(tmp_path / "run")
    growing = [*range(10), 10, 20]
    for name in ("Net_layer.weight", "gradient/Net_layer.weight", "update/Net_layer.weight", "layer_output_0"):
        assert trial.tensor(name).steps(modes.TRAIN) == growing
        assert trial.tensor(name).reduction_value(20, "l2", mode=modes.TRAIN) is not None
    assert trial.tensor("hyperparameters/SGD/group_0/lr").steps(modes.TRAIN) == growing
    assert trial.tensor("train_loss").steps(modes.TRAIN) == list(range(25))


def test_a_loss_that_is_logged_after_the_first_steps_is_not_missed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    callback = Callback(tmp_path / "run")
    made_trainer(tmp_path, callback, log_every_n_steps=4).fit(Net(), loader(6))
    callback.close()
    assert create_trial(str(tmp_path / "run")).tensor("train_loss").steps(modes.TRAIN) == [3]
    assert not any("no loss is saved" in text for text in caplog.messages)


def test_the_logger_alone_saves_metrics_and_hyperparameters(tmp_path: Path) -> None:
    logger = Logger(tmp_path / "run")
    made_trainer(tmp_path, logger=logger).fit(Net(rate=0.2), loader(3))
    logger.log_metrics({"array": np.array([0.5]), "text": np.array("x"), "tensor": torch.tensor([0.5])}, step=2)
    logger.experiment.close()
    trial = create_trial(tmp_path / "run")
    assert trial.tensor("train_loss").steps(mode=modes.TRAIN) == [0, 1, 2]
    assert trial.tensor("array").value(2, modes.TRAIN) == trial.tensor("tensor").value(2, modes.TRAIN) == 0.5
    assert not trial.has_tensor("text")
    assert json.loads((tmp_path / "run" / "run.json").read_text())["metadata"]["rate"] == 0.2


@pytest.mark.parametrize("loggers", [0, 1, 2])
def test_the_progress_bar_shows_the_version_of_the_users_own_logger(tmp_path: Path, loggers: int) -> None:
    shown: list[Any] = []

    class Bar(lightning.callbacks.ProgressBar):  # type: ignore[misc]
        def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
            shown.append(self.get_metrics(trainer, pl_module).get("v_num"))

    def fit(*callbacks: Any) -> None:
        folder = tmp_path / f"logs-{len(callbacks)}"
        made = [lightning.loggers.CSVLogger(folder, version=7 + number) for number in range(loggers)]
        made_trainer(tmp_path, Bar(), *callbacks, enable_progress_bar=True, logger=made).fit(Net(), loader(1))

    fit()
    callback = Callback(tmp_path / "lit.run", **EACH)
    fit(callback)
    callback.close()
    assert str(shown[0]) == str(shown[1])


def test_a_callback_without_arguments_saves_to_the_run_of_the_logger(tmp_path: Path) -> None:
    logger, callback = Logger(tmp_path / "run", include_collections=["weights"], **EACH), Callback()
    made_trainer(tmp_path, callback, logger=logger).fit(Net(), loader(2))
    assert callback.hook is logger.experiment
    callback.close()
    trial = create_trial(tmp_path / "run")
    assert {"train_loss", "Net_layer.weight"} <= set(trial.tensor_names())
    assert trial.steps(mode=modes.TRAIN) == [0, 1]


def test_each_of_two_callbacks_saves_what_a_module_logs_that_uses_its_logger(tmp_path: Path) -> None:
    class Drawing(Net):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            folders.append(self.trainer.log_dir)
            if self.logger is not None:
                self.logger.log_image("batch", [batch[0]])
                self.logger.experiment.add_image("batch", batch[0])
            return super().training_step(batch, batch_idx)

    folders: list[Any] = []
    callbacks = [Callback(tmp_path / "run", **EACH), Callback()]
    made_trainer(tmp_path, *callbacks).fit(Drawing(), loader(3))
    assert [Path(each) for each in folders] == [tmp_path] * 3
    for callback in callbacks:
        callback.close()
        trial = create_trial(callback.hook.out_dir)
        assert trial.steps(mode=modes.TRAIN) == trial.tensor("train_loss").steps(modes.TRAIN) == [0, 1, 2]
    assert callbacks[0].hook is not callbacks[1].hook


def test_a_callback_that_is_used_twice_saves_the_first_training_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    callback = Callback(tmp_path / "run", save_all=True, **EACH)
    made_trainer(tmp_path, callback).fit(Net(), loader(2))
    made_trainer(tmp_path, callback).fit(Net(), loader(4))
    assert create_trial(tmp_path / "run").steps(mode=modes.TRAIN) == [0, 1]
    assert "make a callback for each training" in caplog.text


def test_a_training_that_starts_again_after_an_error_takes_the_place_of_the_first_attempt(tmp_path: Path) -> None:
    callback = Callback(tmp_path / "run", include_collections=["gradients"], **EACH)
    for fails_at in (2, 9):
        model = Net()
        if fails_at == 2:
            model.on_before_zero_grad = _failing_at(model, 2)
            with pytest.raises(RuntimeError, match="out of memory"):
                made_trainer(tmp_path, callback).fit(model, loader(4))
        else:
            made_trainer(tmp_path, callback).fit(model, loader(4, seed=1))
    callback.close()
    trial = create_trial(tmp_path / "run")
    assert trial.steps(mode=modes.TRAIN) == [0, 1, 2, 3]
    gradient = trial.tensor("gradient/Net_layer.weight")
    for step, expected in enumerate(model.gradients):
        assert (gradient.value(step, mode=modes.TRAIN) == expected).all()
    assert trial.tensor("train_loss").steps(mode=modes.TRAIN) == [0, 1, 2, 3]
    assert trial.sql("select count(*) from superseded where name = 'train_loss'").fetchall() == [(2,)]


@pytest.mark.parametrize("when", ["first", "later"])
def test_batches_that_look_for_the_largest_size_are_not_saved(tmp_path: Path, when: str) -> None:
    """Lightning's batch-size finder trains for some steps, and takes them back."""

    class Finder(lightning.callbacks.BatchSizeFinder):  # type: ignore[misc]
        def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
            if when == "first":
                super().on_fit_start(trainer, pl_module)

        def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
            if when == "later" and trainer.current_epoch == 1:
                self.scale_batch_size(trainer, pl_module)
                pl_module.gradients = pl_module.gradients[: before[0]]

        def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            before[:] = [len(pl_module.gradients)]

    class Sized(Net):
        batch_size = 2

        def train_dataloader(self) -> Any:
            return torch.utils.data.DataLoader(loader(4).dataset, batch_size=self.batch_size)

        def val_dataloader(self) -> Any:
            return loader(1)

    Sized.__name__ = "Net"
    before: list[int] = []
    callback = Callback(tmp_path / "run", include_collections=["gradients"], **EACH)
    model = Sized()
    if when == "first":
        model.on_train_start = lambda: model.gradients.clear()
    made_trainer(tmp_path, callback, Finder(max_trials=2, steps_per_trial=1), max_epochs=2).fit(model)
    callback.close()
    trial = create_trial(tmp_path / "run")
    assert trial.steps(mode=modes.TRAIN) == list(range(len(model.gradients)))
    gradient = trial.tensor("gradient/Net_layer.weight")
    for step, expected in enumerate(model.gradients):
        assert (gradient.value(step, mode=modes.TRAIN) == expected).all()


def _failing_at(model: Any, step: int) -> Any:
    def fail(optimizer: Any) -> None:
        if model.global_step == step:
            raise RuntimeError("CUDA out of memory.")

    return fail


def test_training_is_the_same_with_and_without_a_callback(tmp_path: Path) -> None:
    plain, hooked = Net(), Net()
    made_trainer(tmp_path).fit(plain, loader(3))
    made_trainer(tmp_path, Callback(tmp_path / "run", save_all=True, **EACH)).fit(hooked, loader(3))
    assert torch.equal(plain.layer.weight, hooked.layer.weight)


def test_an_environment_variable_adds_a_callback_to_each_trainer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert factory.callbacks() == []
    monkeypatch.setenv("TENSORTRIAL_LIGHTNING", "0")
    assert factory.callbacks() == []
    monkeypatch.setenv("TENSORTRIAL_LIGHTNING", "1")
    assert [type(each) for each in factory.callbacks()] == [Callback]
    for wrong in ('{"out_dirr": "x"}', "[", '{"out_dir": ', "[]", "5", "null", '"runs/net"'):
        caplog.clear()
        monkeypatch.setenv("TENSORTRIAL_LIGHTNING", wrong)
        assert factory.callbacks() == []
        assert "nothing is saved, because of TENSORTRIAL_LIGHTNING" in caplog.text
    assert 'must be 1, or a JSON object of arguments for a callback, got "runs/net"' in caplog.text
    arguments = {"out_dir": str(tmp_path / "run"), "include_collections": ["weights"], "save_interval": 3}
    monkeypatch.setenv("TENSORTRIAL_LIGHTNING", json.dumps(arguments))
    made_trainer(tmp_path).fit(Net(), loader(7))
    assert create_trial(tmp_path / "run").tensor("Net_layer.weight").steps(modes.TRAIN) == [0, 3, 6]


def run_script(folder: Path, options: str, **environment: str) -> None:
    """Run a script that knows nothing of this package, with its entry point installed."""
    path = [str(folder / "site"), *sys.path]
    entry_points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    group = "lightning.pytorch.callbacks_factory"
    if not any(each.name == "tensortrial" for each in importlib.metadata.entry_points(group=group)):
        # The environment was made before the entry point was: give it one, as pip would.
        info = folder / "site" / "tensortrial_entry_point-0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tensortrial-entry-point\nVersion: 0\n")
        lines = [f"{name} = {target}" for name, target in entry_points[group].items()]
        (info / "entry_points.txt").write_text("\n".join([f"[{group}]", *lines]))
    run_training(SCRIPT.replace("OPTIONS", options), folder, PYTHONPATH=os.pathsep.join(path), **environment)


def test_a_script_that_changes_in_no_line_is_saved_by_the_entry_point(tmp_path: Path) -> None:
    run_script(tmp_path, "", TENSORTRIAL_LIGHTNING=json.dumps({"out_dir": "run", "include_collections": ["weights"]}))
    trial = create_trial(tmp_path / "run")
    assert trial.steps(mode=modes.TRAIN) == [0, 1, 2, 3]
    assert set(trial.tensor_names()) >= {"Net_layer.weight", "loss"}
    assert trial.loaded_all_steps


@pytest.mark.slow
@pytest.mark.distributed
def test_each_process_of_a_distributed_training_is_a_worker(tmp_path: Path) -> None:
    arguments = {"out_dir": "run", "include_collections": ["gradients"], "include_workers": "all"}
    run_script(tmp_path, "devices=2, strategy='ddp'", TENSORTRIAL_LIGHTNING=json.dumps(arguments))
    trial = create_trial(tmp_path / "run")
    # Each process trains on two of the four batches.
    assert trial.steps(mode=modes.TRAIN) == [0, 1]
    assert trial.workers() == ["worker_0", "worker_1"]
    gradient = trial.tensor("gradient/Net_layer.weight")
    first, second = (gradient.value(0, mode=modes.TRAIN, worker=worker) for worker in trial.workers())
    assert np.array_equal(first, second)
