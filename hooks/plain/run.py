"""A run without a framework: the program saves values by calls, with their steps.

import tensortrial

with tensortrial.Run("runs/x") as run:
    for step in range(100):
        run.log({"loss": 1 / (step + 1)}, step=step)
"""

from __future__ import annotations

import numpy as np

from tensortrial.config.collection import CollectionKeys

from ..core import current_hook
from ..core.called_hook import CalledHook
from ..core.configuration.options import Framework, HookOptions, accepts_fields_of
from ..core.process.rank import rank_of_process
from ..core.recorder import Recorder

_FRAMEWORK = Framework(
    "none",
    {"numpy": np.__version__},
    builtin=[CollectionKeys.LOSSES, CollectionKeys.METRICS, CollectionKeys.SM_METRICS],
)


class Run(CalledHook):
    """A run of a program without a framework.

    `log`, `save_scalar` and `save_tensor` save at their argument `step`, or inside `with run.step():`. Otherwise they
    save at the open step. Saving a name that the open step already has begins the next step, so that no value is lost.

    `help(Run.__init__)` lists the arguments, which every hook has. After construction no error of the run
    reaches the program: the first one is logged, and the run turns itself off (TENSORTRIAL_STRICT=1 raises it instead).

    Raises:
        ConfigurationError: An argument has an invalid value.
        RunExists: out_dir holds a run already.
    """

    @accepts_fields_of(HookOptions)
    def __init__(self, options: HookOptions) -> None:
        self.recorder = Recorder(options, _FRAMEWORK, rank_of_process)
        current_hook.made(self)
