"""The callback for Lightning: the tensors of a LightningModule."""

from __future__ import annotations

from typing import Any

from tensortrial.mode import ModeKeys
from tensortrial.redaction import without_credentials

from ..core.log import logger
from ..core.recorder import guarded
from ..library.integrations import continue_at
from ..library.training_steps import TrainingSteps
from ..pytorch import Hook, SaveConfig
from .base import lightning
from .logger import Logger


class Callback(TrainingSteps, lightning.Callback):  # type: ignore[misc]
    """A callback that saves the tensors of a training by Lightning.

    - A step is one update of the optimizers, with all the batches that it accumulates, in mode TRAIN and with the
      number that Lightning logs: the first is 0.
    - Gradients are those that the optimizer uses, after accumulation, averaging and clipping. With manual optimization,
      they are those of an optimizer's parameters at each call of its `step`.
    - A batch of a validation or a test is a step in mode EVAL, a batch of a prediction one in mode PREDICT. With
      several data loaders, the number of its loader is the scalar `dataloader_idx`. The sanity check is not saved.
    - The module's logs are saved, too.
    - A training that resumes from a checkpoint continues the run: its steps replace those that the first attempt saved
      after the checkpoint.

    Args:
        out_dir: The folder or URL of the run. Default: the run of the Trainer's `Logger`, if it has one of this
            package; else the environment variable TENSORTRIAL_OUT_DIR; else `tensortrial` in the Trainer's
            `default_root_dir`, with a number if a run is there.
        hook: A hook of your own, instead of `out_dir` and `options`.
        **options: Further arguments of `tensortrial.hooks.pytorch.Hook`. If they choose tensors but no steps, each step
            that is a multiple of the Trainer's `log_every_n_steps` is saved.

    Raises:
        ConfigurationError: Both `hook` and arguments for a new hook were given.
    """

    _hook_type = Hook
    _goes_back = False
    """True from the start of a training that resumes or repeats steps until its first batch."""
    _accumulates = False
    """True if a step of the training has begun, and no optimizer has stepped since."""
    _progress = (0, 0)
    """The updates before the open step."""

    @property
    def hook(self) -> Hook | None:
        """The hook; None before training begins, if it is the callback's own."""
        return self._hook

    # Methods that Lightning calls. The sanity check precedes `on_train_start`, so the model is not registered yet.

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Make the hook, and register the model, unless another training is saved already."""
        is_behind = _step_of(trainer) <= self._newest
        resumes = trainer.ckpt_path is not None and trainer.global_step > 0
        self._begin_training(is_behind and not resumes)
        if self._is_off:
            return
        self._begin(trainer, pl_module, resumes)
        self._goes_back = resumes or is_behind
        if not resumes:
            self._go_back(trainer)
            self._hook.register_module(pl_module)
        self._hook.save_gradients_at_updates()
        # Logs before the first batch are kept for its step.
        self.recorder.clock.numbered.add(ModeKeys.TRAIN)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Begin a step, unless the open one accumulates."""
        self._go_back(trainer)
        if not self._saves:
            return
        self._hook.register_module(pl_module)
        for optimizer in trainer.optimizers:  # they may have been replaced; before the step, of which they save values
            self._hook.register_optimizer(optimizer)
        if not self._accumulates:
            self._begin_step(_step_of(trainer), ModeKeys.TRAIN)
            self._accumulates = True
            self._progress = self._progress_of(trainer)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """End the step, if an optimizer has stepped."""
        if self._saves and (self._progress != self._progress_of(trainer) or not trainer.optimizers):
            self._accumulates = False
            self._end_step()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Publish saved steps. The run stays open, because a test may follow."""
        self.teardown(trainer)
        self._end_training()

    def teardown(self, trainer: Any, *_: Any, **__: Any) -> None:
        """Publish all that was saved, because a spawned process ends after this. After an error, so may any process."""
        if self._saves:
            self._save_unused_gradients(trainer)
            self._accumulates = False
            self._publish()

    on_exception = teardown

    def on_validation_batch_start(
        self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Begin the step of a batch of a validation."""
        if not trainer.sanity_checking:
            self._begin_batch(trainer, pl_module, ModeKeys.EVAL, trainer.num_val_batches, dataloader_idx)

    def on_test_batch_start(
        self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Begin the step of a batch of a test."""
        self._begin_batch(trainer, pl_module, ModeKeys.EVAL, trainer.num_test_batches, dataloader_idx)

    def on_predict_batch_start(
        self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Begin the step of a batch of a prediction."""
        self._begin_batch(trainer, pl_module, ModeKeys.PREDICT, trainer.num_predict_batches, dataloader_idx)

    def on_validation_batch_end(self, *_: Any, **__: Any) -> None:
        """End the step of a batch of a validation, a test or a prediction. The sanity check has begun none."""
        if self._saves:
            self._end_step()

    on_test_batch_end = on_predict_batch_end = on_validation_batch_end

    # Steps.

    def _begin(self, trainer: Any, pl_module: Any, resumes: bool = False) -> None:
        """Make the hook, if there is none, and a logger that passes it the values of `self.log`."""
        ours = [each for each in trainer.loggers if isinstance(each, Logger)]
        theirs = [each for each in ours if not isinstance(each, _JoinedLogger)]
        if self._hook is None and theirs and self._out_dir is None and not self._options:
            self._hook = theirs[0].make_hook(resumes)
        elif self._hook is None:
            save_config = SaveConfig(save_interval=max(1, int(trainer.log_every_n_steps or 1)))
            self._make_hook(trainer.default_root_dir, resumes, save_config=save_config)
            self.recorder.run.add_metadata(pl_module.hparams)
            logger.info("tensors of this training are saved to %s", without_credentials(self.recorder.run.out_dir))
        self._hook.capture.unsaved.losses_are_logged = True
        if all(each.make_hook() is not self._hook for each in ours):
            # Lightning passes the values of `self.log` to loggers only.
            trainer.loggers = [*trainer.loggers, _JoinedLogger(self._hook, trainer)]

    def _go_back(self, trainer: Any) -> None:
        """Continue at the checkpoint, once, when the first batch begins.

        Before the first batch, Lightning does not count the step in which the checkpoint was saved.
        """
        if self._goes_back and self._saves:
            self._goes_back = False
            continue_at(self._hook, _step_of(trainer))

    def _progress_of(self, trainer: Any) -> tuple[int, int]:
        """Return the number of updates by the hook's count and by Lightning's.

        Lightning does not count updates of `optimizers(use_pl_optimizer=False)`.
        """
        return self._hook.capture.num_updates, trainer.global_step

    def _save_unused_gradients(self, trainer: Any) -> None:
        """Save the gradients of a training step that ends before an update uses them."""
        if self._accumulates and self._open is not None and self._progress == self._progress_of(trainer):
            self._hook.save_gradients()

    def _begin_batch(self, trainer: Any, pl_module: Any, mode: ModeKeys, loaders: Any, dataloader_idx: int) -> None:
        if self._hook is None:  # an evaluation without a training
            self._begin(trainer, pl_module)
        if trainer.state.fn == "fit":
            self._go_back(trainer)
        if self._saves:
            self._hook.register_module(pl_module)
            self._save_unused_gradients(trainer)
            self._begin_evaluation_step(
                mode, dataloader_idx if isinstance(loaders, list) and len(loaders) > 1 else None
            )

    @guarded
    def _begin_evaluation_step(self, mode: ModeKeys, dataloader_idx: int | None) -> None:
        if self._open is not None:
            self.recorder.failures.warn_once(
                "step %d of the training is saved without the batches after a validation, because that ran while the "
                "step accumulated batches; make val_check_interval a multiple of accumulate_grad_batches",
                self._newest,
            )
        self._begin_step(None, mode)
        if dataloader_idx is not None:
            self._hook.save_scalar("dataloader_idx", dataloader_idx)


class _JoinedLogger(Logger, lightning.loggers.logger.DummyLogger):  # type: ignore[misc]
    """A logger that a `Callback` adds to the user's own.

    Without those, the module's `self.logger` is this one instead of None: it accepts any call.
    """

    experiment = lightning.loggers.logger.DummyLogger.experiment

    def __init__(self, hook: Hook, trainer: Any) -> None:
        super().__init__(hook=hook)
        self._others, self._root = list(trainer.loggers), str(trainer.default_root_dir)

    @property
    def save_dir(self) -> str:
        """The folder that `trainer.log_dir` is without a logger."""
        return self._root

    @property
    def version(self) -> str:
        """The version of the user's logger. The progress bar shows all different versions of loggers."""
        return str(self._others[0].version) if self._others else ""


def _step_of(trainer: Any) -> int:
    """Return the step at which Lightning logs the next update. `global_step` counts several optimizers separately."""
    loop = trainer.fit_loop.epoch_loop
    return int(getattr(loop, "_batches_that_stepped", trainer.global_step))
