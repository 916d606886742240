"""The callback for the Trainer."""

from __future__ import annotations

import os
import weakref
from typing import Any, ClassVar

from tensortrial.errors import importing
from tensortrial.mode import ModeKeys
from tensortrial.redaction import without_credentials

from ..core.callbacks import UncopiedCallback
from ..core.log import logger
from ..core.recorder import guarded
from ..library.integrations import arguments_in, continue_at, numbers_in
from ..library.training_steps import TrainingSteps
from ..library.versions import check_version
from ..pytorch import Hook, SaveConfig

with importing("transformers", "transformers", "the callback for the Trainer"):
    import transformers

check_version("transformers", transformers.__version__, oldest="5.0", newest_tested="5.23")

import torch  # noqa: E402 - the error about a missing or old transformers comes first
from transformers import TrainerCallback, TrainerState, TrainingArguments  # noqa: E402
from transformers.integrations import integration_utils  # noqa: E402

VARIABLE = "TENSORTRIAL_TRANSFORMERS"
"""A JSON object of arguments for callbacks without arguments, such as those of `report_to="tensortrial"`."""


class TensorTrialCallback(TrainingSteps, TrainerCallback):  # type: ignore[misc]
    """A callback that saves the tensors of a training by the Trainer.

    A step is one update of the optimizer, with all the batches that it accumulates, in mode TRAIN and with the number
    that the Trainer logs: the first is 1. Gradients are those that the optimizer uses, after accumulation, averaging
    and clipping. A batch of an evaluation or a prediction is a step in mode EVAL, even if it runs the model several
    times. The Trainer's logs, including `eval_loss`, are saved as scalars at their step. A training that resumes from a
    checkpoint continues the run: its steps replace those that the first attempt saved after the checkpoint.

    Args:
        out_dir: The folder or URL of the run. Default: the environment variable TENSORTRIAL_OUT_DIR, else
            `tensortrial` in the Trainer's `output_dir`, with a number if a run is there.
        hook: A hook of your own, instead of `out_dir` and `options`.
        **options: Further arguments of `tensortrial.hooks.pytorch.Hook`. If they choose tensors but no steps, the first
            step and each multiple of `logging_steps` are saved. Without any argument, as with
            `report_to="tensortrial"`, they come from the environment variable TENSORTRIAL_TRANSFORMERS, a JSON object
            such as {"save_interval": 10}.

    Raises:
        ConfigurationError: Both `hook` and arguments for a new hook were given.
    """

    _hook_type = Hook
    instances: ClassVar[weakref.WeakSet[TensorTrialCallback]] = weakref.WeakSet()
    """The callbacks of the process, which a launched callback checks for."""

    def __init__(
        self, out_dir: str | os.PathLike[str] | None = None, *, hook: Hook | None = None, **options: Any
    ) -> None:
        if out_dir is None and hook is None and not options:
            options = arguments_in(VARIABLE)
            out_dir = options.pop("out_dir", None)
        super().__init__(out_dir, hook=hook, **options)
        self.instances.add(self)
        self._awaits_log = False
        self._model: weakref.ref[Any] | None = None
        """The registered model."""

    @property
    def hook(self) -> Hook | None:
        """The hook; None before training begins, if it is the callback's own."""
        return self._hook

    # Methods that the Trainer calls.

    def on_train_begin(
        self, args: TrainingArguments, state: Any, control: Any, model: Any = None, optimizer: Any = None, **_: Any
    ) -> None:
        """Make the hook, and register the model, unless another training is saved already.

        A repetition after an error, as by `auto_find_batch_size` with a smaller batch, is the same training.
        """
        self._begin_training(not state.global_step)
        if self._is_off:
            return
        self._begin(args, state, model)
        if optimizer is not None and self._hook is not None:
            self._hook.register_optimizer(optimizer)

    def on_step_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        """Begin a step, with the number that the Trainer reaches at its end."""
        if self._saves:
            self._begin_step(state.global_step + 1, ModeKeys.TRAIN)

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Save the gradients that the optimizer is about to use."""
        if self._saves:
            self._hook.save_gradients()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """End the step, or leave that to the Trainer's log of the step. Models that run afterwards are evaluated."""
        self._awaits_log = control.should_log
        if self._saves and not self._awaits_log:
            self._end_step()

    def on_prediction_step(
        self, args: TrainingArguments, state: Any, control: Any, model: Any = None, **_: Any
    ) -> None:
        """End the step of a batch of an evaluation."""
        if self._hook is None:  # an evaluation without a training
            self._begin(args, state, model)
        if self._saves:
            self._end_step()

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        """Save the Trainer's logs at their step."""
        if not (self._saves and logs):
            return
        if self._open is not None and self._awaits_log:
            self._hook.log(numbers_in(logs))
            self._end_step()
        else:  # the log of an evaluation or of the whole training
            self._hook.log(numbers_in(logs), step=state.global_step, mode=ModeKeys.TRAIN)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Publish saved steps. The run stays open, because an evaluation may follow."""
        self._end_training()

    # Steps.

    def _begin(self, args: TrainingArguments, state: TrainerState, model: Any) -> None:
        if self._hook is None:
            self._make_for(args, state)
        if state.global_step or self._newest >= 0:
            self._end_step()
            continue_at(self._hook, state.global_step + 1)
        self._register(model)
        self._hook.set_mode(ModeKeys.EVAL)

    def _register(self, model: Any) -> None:
        is_known = self._model is not None and self._model() is model
        if model is not None and self._hook is not None and not is_known:
            self._model = weakref.ref(model)
            self._hook.capture.unsaved.losses_are_logged = True
            self._hook.register_module(model)
            # It precedes the hook's own callbacks, so that the step has begun when they run.
            model.register_forward_pre_hook(_BeginBatch(self), prepend=True)

    def _make_for(self, args: TrainingArguments, state: TrainerState) -> None:
        # If the strategy is not "steps", `logging_steps` is its default, 500.
        interval = max(1, int(state.logging_steps or args.logging_steps))
        save_config = SaveConfig(save_interval=interval, save_steps=[1])
        self._make_hook(args.output_dir or "runs", state.global_step > 0, save_config=save_config)
        self.recorder.run.add_metadata({"trainer": args.to_sanitized_dict()})
        logger.info("tensors of this training are saved to %s", without_credentials(self.recorder.run.out_dir))

    @guarded
    def _end_step(self) -> None:
        self._awaits_log = False
        if self._open is not None:
            super()._end_step()
            # A compiled model begins its steps without `_BeginBatch`.
            self._hook.set_mode(ModeKeys.EVAL)

    def begin_batch(self) -> None:
        """Begin the step of a batch of an evaluation, because the model is about to run."""
        if self._saves and (self._awaits_log or self._open is None):
            self._begin_step(None, ModeKeys.EVAL)


class _BeginBatch(UncopiedCallback):
    """The forward pre-hook that begins a step of an evaluation, because the Trainer has no callback there."""

    __slots__ = ("_callback",)

    def __init__(self, callback: TensorTrialCallback) -> None:
        # The reference is weak, because the model may outlive the training and its Trainer.
        self._callback = weakref.ref(callback)

    def __call__(self, module: torch.nn.Module, args: tuple[Any, ...]) -> None:
        callback = None if torch.compiler.is_compiling() else self._callback()
        if callback is not None:
            callback.begin_batch()


# transformers looks up the names of `report_to` in this dictionary.
integration_utils.INTEGRATION_TO_CALLBACK.setdefault("tensortrial", TensorTrialCallback)
