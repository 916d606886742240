"""The handler for Ignite, on engines that train."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

torch = pytest.importorskip("torch")
with warnings.catch_warnings():
    # Ignite imports what PyTorch compiles by torch.jit.script.
    warnings.simplefilter("ignore", DeprecationWarning)
    from ignite.engine import Engine, Events, create_supervised_evaluator, create_supervised_trainer
    from ignite.metrics import Accuracy, RunningAverage

from tensortrial import create_trial  # noqa: E402
from tensortrial.errors import ConfigurationError  # noqa: E402
from tensortrial.hooks.ignite import Handler  # noqa: E402
from tensortrial.hooks.pytorch import Hook, SaveConfig, modes  # noqa: E402

torch.set_num_threads(1)
EACH: dict[str, Any] = {"save_config": SaveConfig(save_interval=1)}


def loader(count: int) -> Any:
    images, labels = load_digits(return_X_y=True)
    data = torch.utils.data.TensorDataset(
        torch.tensor(images[: count * 8] / 16, dtype=torch.float32), torch.tensor(labels[: count * 8])
    )
    return torch.utils.data.DataLoader(data, batch_size=8)


class Training:
    """Two epochs of three iterations each, with an evaluation of two batches after each epoch."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = torch.nn.Sequential(torch.nn.Linear(64, 10))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.loss = torch.nn.CrossEntropyLoss()
        self.trainer = create_supervised_trainer(self.model, self.optimizer, self.loss)
        self.evaluator = create_supervised_evaluator(self.model, metrics={"accuracy": Accuracy()})
        self.losses: list[float] = []
        self.gradients: list[Any] = []
        self.accuracies: list[float] = []
        self.trainer.add_event_handler(Events.ITERATION_COMPLETED, self._note)

    def _note(self, engine: Engine) -> None:
        self.losses.append(engine.state.output)
        self.gradients.append(self.model[0].weight.grad.clone().numpy())

    def evaluate(self, _: Engine) -> None:
        self.accuracies.append(self.evaluator.run(loader(2)).metrics["accuracy"])

    def states(self) -> dict[str, Any]:
        model = {name: tensor.clone() for name, tensor in self.model.state_dict().items()}
        return {"model": model, "trainer": self.trainer.state_dict()}

    def run(self, evaluate_at: Any = Events.EPOCH_COMPLETED) -> None:
        self.trainer.add_event_handler(evaluate_at, self.evaluate)
        self.trainer.run(loader(3), max_epochs=2)


class TestTheHandlerForIgnite:
    @pytest.mark.parametrize("evaluate_at", [Events.EPOCH_COMPLETED, Events.ITERATION_COMPLETED(every=3)])
    def test_saves_each_iteration_with_its_number_and_mode(self, out: str, evaluate_at: Any) -> None:
        training = Training()
        handler = Handler(out, include_collections=["gradients", "losses"], **EACH)
        handler.attach(training.trainer, model=training.model, evaluators={"validation": training.evaluator})
        training.run(evaluate_at)
        handler.close()
        trial = create_trial(out)
        assert trial.steps(mode=modes.TRAIN) == [1, 2, 3, 4, 5, 6]
        assert trial.tensor("loss").values(modes.TRAIN) == pytest.approx(dict(enumerate(training.losses, start=1)))
        assert len(trial.steps(mode=modes.EVAL)) <= 4
        accuracy = trial.tensor("validation/accuracy").values(modes.TRAIN)
        assert accuracy == pytest.approx({3: training.accuracies[0], 6: training.accuracies[1]})
        gradient = trial.tensor("gradient/Sequential_0.weight")
        for step, expected in enumerate(training.gradients, start=1):
            np.testing.assert_array_equal(gradient.value(step, mode=modes.TRAIN), expected)
        assert gradient.steps(modes.EVAL) == []

    def test_saves_evaluations_as_steps_of_their_own(self, out: str) -> None:
        training = Training()
        handler = Handler(out, include_regex=".*_output_0", **EACH)
        handler.attach(training.trainer, model=training.model, evaluators={"validation": training.evaluator})
        training.run()
        handler.close()
        trial = create_trial(out)
        assert len(trial.steps(mode=modes.EVAL)) == 4
        assert len(trial.steps(mode=modes.TRAIN)) == 6

    def test_saves_outputs_that_are_mappings_and_metrics_of_the_trainer(self, out: str) -> None:
        trainer = Engine(lambda engine, batch: {"loss": float("nan"), "size": torch.tensor(batch), "text": "x"})
        RunningAverage(output_transform=lambda output: output["size"]).attach(trainer, "average")
        handler = Handler(out, **EACH)
        handler.attach(trainer)
        trainer.run([1.0, 3.0], max_epochs=1)
        handler.close()
        trial = create_trial(out)
        assert trial.tensor("size").values(modes.TRAIN) == {1: 1.0, 2: 3.0}
        assert np.isnan(trial.tensor("loss").value(1, mode=modes.TRAIN))
        assert "average" in trial.tensor_names()
        assert "text" not in trial.tensor_names()

    def test_saves_what_was_closed_of_a_training_that_fails(self, out: str) -> None:
        def fail(engine: Engine, batch: int) -> float:
            if batch == 2:
                raise RuntimeError("no memory")
            return float(batch)

        trainer, handler = Engine(fail), Handler(out, **EACH)
        handler.attach(trainer)
        with pytest.raises(RuntimeError, match="no memory"):
            trainer.run([0, 1, 2])
        handler.close()
        assert create_trial(out).tensor("loss").values(modes.TRAIN) == {1: 0.0, 2: 1.0}

    def test_steps_after_a_checkpoint_replace_those_that_were_saved_after_it(self, out: str) -> None:
        first, state = Training(), {}
        first.trainer.add_event_handler(Events.ITERATION_COMPLETED(once=4), lambda engine: state.update(first.states()))
        handler = Handler(out, include_collections=["weights"], **EACH)
        handler.attach(first.trainer, model=first.model)
        first.run()
        handler.close()
        second = Training()
        second.model.load_state_dict(state["model"])
        second.trainer.load_state_dict(state["trainer"])
        handler = Handler(out, resume=True, include_collections=["weights"], **EACH)
        handler.attach(second.trainer, model=second.model)
        with torch.no_grad():
            second.model[0].weight.zero_()  # so that its steps differ
        second.run()
        handler.close()
        trial = create_trial(out)
        losses = [*first.losses[:4], *second.losses]
        assert trial.tensor("loss").values(modes.TRAIN) == pytest.approx(dict(enumerate(losses, start=1)))
        weight = trial.tensor("Sequential_0.weight")
        assert weight.steps(modes.TRAIN) == list(range(1, len(losses) + 1))
        assert not weight.value(5, modes.TRAIN).any()

    def test_another_training_of_the_trainer_leaves_the_steps_of_the_first(self, out: str, caplog: Any) -> None:
        training = Training()
        handler = Handler(out, **EACH)
        handler.attach(training.trainer, model=training.model, evaluators={"validation": training.evaluator})
        training.run()
        training.trainer.run(loader(3), max_epochs=2)
        handler.close()
        trial = create_trial(out)
        assert trial.tensor("loss").values(modes.TRAIN) == pytest.approx(dict(enumerate(training.losses[:6], start=1)))
        assert [record.levelname for record in caplog.records if "another one" in record.message] == ["WARNING"]

    def test_a_trainer_that_runs_for_more_epochs_continues(self, out: str) -> None:
        training = Training()
        handler = Handler(out, **EACH)
        handler.attach(training.trainer, model=training.model)
        for epochs in (1, 2):
            training.trainer.run(loader(3), max_epochs=epochs)
        handler.close()
        losses = dict(enumerate(training.losses, start=1))
        assert create_trial(out).tensor("loss").values(modes.TRAIN) == pytest.approx(losses)

    def test_follows_one_trainer(self, out: str) -> None:
        training, handler = Training(), Handler(out)
        handler.attach(training.trainer, model=training.model)
        with pytest.raises(ConfigurationError, match="follows one trainer"):
            handler.attach(Training().trainer)

    def test_accepts_a_hook_or_the_arguments_of_one(self, out: str, tmp_path: Path) -> None:
        hook = Hook(out)
        assert Handler(hook=hook).hook is hook
        with pytest.raises(ConfigurationError, match="not both"):
            Handler(tmp_path / "other", hook=hook)
        with pytest.raises(ConfigurationError, match=r"hook must be a tensortrial\.hooks\.pytorch\.Hook, got 5"):
            Handler(hook=5)
        with pytest.raises(TypeError, match="intervall"):
            Handler(tmp_path / "other", intervall=3)
