"""The tracker for Accelerate, which saves the values of `accelerator.log` and the tensors of a training loop."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tensortrial.errors import importing
from tensortrial.mode import ModeKeys

from ..core.recorder import guarded
from ..library.integrations import continue_at, numbers_in
from ..library.training_steps import TrainingSteps
from ..library.versions import check_version
from ..pytorch import Hook

with importing("accelerate", "accelerate", "the tracker for Accelerate"):
    import accelerate

check_version("accelerate", accelerate.__version__, oldest="1.1", newest_tested="1.15")

from accelerate.state import GradientState  # noqa: E402 - the error about an old accelerate comes first
from accelerate.tracking import GeneralTracker  # noqa: E402
from accelerate.utils import memory  # noqa: E402


class Tracker(TrainingSteps, GeneralTracker):  # type: ignore[misc]
    """A tracker that saves the values of `accelerator.log`, and the tensors of a training loop's steps.

    Pass it to `Accelerator(log_with=…)`. Or register the class with `accelerate.tracking.register_tracker_class` and
    pass `log_with="tensortrial"`: then the name of the project is the folder of the run.

    Args:
        out_dir: The folder or URL of the run. Default: the environment variable TENSORTRIAL_OUT_DIR, else `tensortrial`
            in the working directory, with a number if a run is there.
        hook: A hook of your own, instead of `out_dir` and `options`.
        **options: Further arguments of `tensortrial.hooks.pytorch.Hook`. With `include_workers="all"` every process
            saves.

    Raises:
        ConfigurationError: Both `hook` and arguments for a new hook were given.
    """

    name = "tensortrial"
    requires_logging_directory = False
    main_process_only = False
    """The hook itself decides which processes save, by `include_workers`."""

    _hook_type = Hook
    _first: int | None = None
    """The first step of the training; None before it begins."""
    _starts_again = False
    """True if `find_executable_batch_size` repeats the training after it ran out of memory."""

    @property
    def tracker(self) -> Hook:
        """The hook, by the name that `accelerator.get_tracker(…, unwrap=True)` uses."""
        return self.hook

    @contextmanager
    def step(self, number: int | None = None, mode: ModeKeys | str = ModeKeys.TRAIN) -> Iterator[None]:
        """Make the batches that Accelerate accumulates one step.

            with accelerator.accumulate(model), tracker.step():
                …

        In mode TRAIN the step ends with a batch after which gradients are synchronized. In another mode each block is a
        step. If Accelerate's `find_executable_batch_size` repeats the training with a smaller batch, its steps replace
        those of the first attempt.

        Args:
            number: The number of the step. Default: the next one.
            mode: modes.TRAIN, EVAL or PREDICT.
        """
        self._begin(number, mode)
        synchronizes = True
        try:
            yield
            synchronizes = self._open is not ModeKeys.TRAIN or GradientState().sync_gradients
        except Exception as exc:
            self._starts_again = memory.should_reduce_batch_size(exc) and _is_in_finder()
            raise
        finally:
            if synchronizes:
                self._end_step()

    @guarded
    def _begin(self, number: int | None, mode: ModeKeys | str) -> None:
        parsed = ModeKeys.parse(mode)
        if self._open is parsed:
            return
        self._end_step()
        if self._starts_again and self._first is not None:
            continue_at(self.hook, self._first)
        self._starts_again = False
        self._begin_step(number, parsed)
        if self._first is None and parsed is ModeKeys.TRAIN:
            self._first = self.hook.mode_steps.get(ModeKeys.TRAIN)

    # Methods that Accelerate calls.

    def start(self) -> None:
        """Make the hook when `init_trackers` is called, because Accelerate may not know the process's rank before."""
        self.hook.recorder  # noqa: B018 - made by the property

    def store_init_configuration(self, values: Mapping[str, Any]) -> None:
        """Keep the configuration of `init_trackers`, which becomes metadata of the run if it has not begun."""
        self.hook.recorder.run.add_metadata(values)

    def log(self, values: Mapping[str, Any], step: int | None = None, **_: Any) -> None:
        """Save values.

        Args:
            values: Numbers by their names. Other values are left out.
            step: The step, in mode TRAIN. Default: the open one.
        """
        self.hook.log(numbers_in(values), step=step, mode=None if step is None else ModeKeys.TRAIN)

    def finish(self) -> None:
        """Close the run, when `end_training` is called."""
        self.close()


def _is_in_finder() -> bool:
    """Return whether `find_executable_batch_size` is on the call stack."""
    return any(frame.f_code.co_filename == memory.__file__ for frame, _ in traceback.walk_stack(sys._getframe()))
