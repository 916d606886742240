"""The handler for Ignite's engines."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from tensortrial.errors import ConfigurationError, importing
from tensortrial.mode import ModeKeys

from ..library.integrations import continue_at, numbers_in
from ..library.training_steps import TrainingSteps
from ..library.versions import check_version
from ..pytorch import Hook

with importing("pytorch-ignite", "ignite", "the handler for Ignite"):
    import ignite

check_version("pytorch-ignite", ignite.__version__, oldest="0.5", newest_tested="0.5")

from ignite.engine import Engine, Events  # noqa: E402 - the error about a missing or old Ignite comes first


class Handler(TrainingSteps):
    """A handler that saves the tensors of a training with Ignite's engines.

    An iteration of the trainer is a step in mode TRAIN, with Ignite's number: the first is 1. An iteration of an
    evaluator is a step in mode EVAL. The output of the trainer is saved as `loss` if it is a number, and under its keys
    if it is a mapping. Metrics are saved at the trainer's iteration. The name of an evaluator precedes its metrics:
    `validation/error`. The steps of a trainer that continues from a checkpoint replace those saved after it.

    Args:
        out_dir: The folder or URL of the run. Default: the environment variable TENSORTRIAL_OUT_DIR, else `tensortrial`
            in the working directory, with a number if a run is there.
        hook: A hook of your own, instead of `out_dir` and `options`.
        **options: Further arguments of `tensortrial.hooks.pytorch.Hook`.

    Raises:
        ConfigurationError: Both `hook` and arguments for a new hook were given.
    """

    _hook_type = Hook
    _is_attached = False

    def attach(
        self,
        trainer: Engine,
        *,
        model: Any = None,
        optimizer: Any = None,
        evaluators: Mapping[str, Engine] | None = None,
    ) -> None:
        """Follow engines.

        Args:
            trainer: The engine that trains.
            model: The module whose tensors are saved.
            optimizer: The optimizer, for `gradients="optimizer"` and hyperparameters.
            evaluators: Engines that evaluate, by the prefix of their metrics' names.

        Raises:
            ConfigurationError: The handler follows a trainer already.
        """
        if self._is_attached:
            raise ConfigurationError(
                "a handler follows one trainer: register further models by handler.hook.register_module(model), and "
                "make a handler for each other trainer"
            )
        self._is_attached = True
        trainer.add_event_handler(Events.STARTED, self._begin, model, optimizer)
        trainer.add_event_handler(Events.ITERATION_STARTED, self._begin_iteration)
        trainer.add_event_handler(Events.ITERATION_COMPLETED, self._end_iteration)
        trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda engine: self._log(trainer, engine.state.metrics))
        for event in (Events.COMPLETED, Events.TERMINATE):
            trainer.add_event_handler(event, lambda engine: self._end_training())
        for name, evaluator in (evaluators or {}).items():
            evaluator.add_event_handler(Events.ITERATION_STARTED, self._begin_evaluation)
            evaluator.add_event_handler(Events.ITERATION_COMPLETED, lambda engine: self._end_step())
            evaluator.add_event_handler(Events.COMPLETED, partial(self._log_evaluation, trainer, name))

    def _begin(self, engine: Engine, model: Any, optimizer: Any) -> None:
        self._begin_training(not engine.state.iteration)
        if self._is_off:
            return
        continue_at(self.hook, engine.state.iteration + 1)
        if model is not None:
            self.hook.register_module(model)
        if optimizer is not None:
            self.hook.register_optimizer(optimizer)

    def _begin_iteration(self, engine: Engine) -> None:
        if self._saves:
            self._begin_step(engine.state.iteration, ModeKeys.TRAIN)

    def _begin_evaluation(self, engine: Engine) -> None:
        # An evaluation may begin before the training's current iteration has ended.
        if not self._is_off:
            self._begin_step(None, ModeKeys.EVAL)

    def _end_iteration(self, engine: Engine) -> None:
        output = engine.state.output
        self._log(engine, output if isinstance(output, Mapping) else {"loss": output})
        self._end_step()

    def _log_evaluation(self, trainer: Engine, name: str, evaluator: Engine) -> None:
        self._log(trainer, {f"{name}/{metric}": value for metric, value in evaluator.state.metrics.items()})

    def _log(self, trainer: Engine, values: Mapping[str, Any]) -> None:
        if (numbers := numbers_in(values)) and not self._is_off:
            self.hook.log(numbers, step=trainer.state.iteration, mode=ModeKeys.TRAIN)
