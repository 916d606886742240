"""What the hook of a framework captures, and a job of the framework for it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any, ClassVar

import pytest

from support.made_hooks import made_hooks
from tensortrial import create_trial
from tensortrial.mode import ModeKeys, modes


class Job:
    """A small training job of one framework, whose tensors a hook captures.

    Made with a hook, it builds a seeded model and registers it with the hook; made with None, it trains the same model
    without a hook. All names are the same in each job of the process, so layers and losses need explicit names where
    the framework counts them.
    """

    def train(self, steps: int, mode: ModeKeys | None = None) -> Sequence[Mapping[str, Any]]:
        """Continue for some steps of training or, for modes.EVAL, of evaluation, which changes no weight.

        With a mode, the steps must be counted in it: by `hook.set_mode`, where the framework does not do that itself.

        Returns:
            For each step the values that the hook should have captured, found without the hook: arrays by the names in
            the attributes `number`, `tensor` and, in training, `gradient` of the tests.
        """
        raise NotImplementedError

    def end(self) -> None:
        """End the training, where a framework needs a call for that. The test closes the hook afterwards."""

    def parts(self) -> Sequence[Any]:
        """Return the model, and other objects that must be freed with it although a hook has captured from them."""
        return ()


class HookTests:
    """The attributes that describe a framework, and what the tests share."""

    module: ClassVar[ModuleType]
    """The module with the public names, such as tensortrial.hooks.pytorch."""
    hook_class: ClassVar[str] = "Hook"
    """The name of the hook's class in it."""
    hook_type: ClassVar[str | None] = None
    """Its type for `get_hook`, where a module has several."""
    framework: ClassVar[str]
    """The name of the framework in run.json."""
    number: ClassVar[str]
    """A tensor of one element or a few in the first of `defaults`: a loss or a metric. It is always saved raw."""
    defaults: ClassVar[tuple[str, ...]] = ("losses",)
    """The collections that are saved in any case; `number` is in the first."""
    growing: ClassVar[tuple[str, ...]] = ()
    """The collections that a hook saves at a growing interval, and those of `defaults` at every step, if its arguments
    make no choice."""
    tensor: ClassVar[str]
    """A float tensor of several elements that is saved only if configured: a weight."""
    collection: ClassVar[str] = "weights"
    """The built-in collection of `tensor`."""
    gradient: ClassVar[str | None]
    """A tensor in `gradients`, or None where the framework has none."""
    interval: ClassVar[int] = 500
    """The default save_interval."""
    mode: ClassVar[ModeKeys] = modes.GLOBAL
    """The mode of steps without a call of set_mode."""
    step_stays_open: ClassVar[bool] = True
    """Whether values that are saved after `train` has returned belong to the last step; if not, to the next one."""

    def make_job(self, hook: Any) -> Job:
        raise NotImplementedError

    def make_hook(self, out_dir: str, **options: Any) -> Any:
        """Make a hook. To be overridden where a framework's hook needs more arguments."""
        return getattr(self.module, self.hook_class)(out_dir, **options)

    def from_json(self, path: str | None = None) -> Any:
        return getattr(self.module, self.hook_class).create_from_json_file(path)

    @pytest.fixture
    def hook(self, out: str) -> Iterator[Callable[..., Any]]:
        """Make a hook that saves each step to `out`, unless configured otherwise; it is closed at the end."""
        with made_hooks(self.make_hook, out) as make:
            yield make

    @pytest.fixture
    def lenient(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Keep errors inside a hook, as in a real job."""
        monkeypatch.delenv("TENSORTRIAL_STRICT")

    @contextmanager
    def running(self, hook: Any) -> Iterator[Job]:
        """Run a block with a job of the hook, and end both."""
        job = self.make_job(hook)
        try:
            yield job
        finally:
            job.end()
        hook.close()

    def run(self, hook: Any, steps: int, mode: ModeKeys | None = None) -> Sequence[Mapping[str, Any]]:
        """Run a whole job, and return what it computed (see `Job.train`)."""
        with self.running(hook) as job:
            return job.train(steps, mode)

    def errors(self, caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
        """Return the errors that hooks have logged, without their warnings."""
        return [each for each in caplog.records if (each.name, each.levelname) == ("tensortrial.hooks", "ERROR")]

    def steps(self, out: str, name: str, mode: ModeKeys | None = None) -> list[int]:
        trial = create_trial(out)
        return trial.tensor(name).steps(mode or self.mode) if trial.has_tensor(name) else []
