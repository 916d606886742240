"""The settings of a launched script, from a file, options of the command, and the environment."""

from __future__ import annotations

import inspect
import json
import os
import sys
import tempfile
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from tensortrial.config.save_config import SaveConfig
from tensortrial.errors import ConfigurationError, TensorTrialError
from tensortrial.storage.open import open_storage
from tensortrial.write.claim import check_out_dir

from ..core import current_hook
from ..core.configuration import sagemaker
from ..core.configuration.json_config import HookConfiguration
from ..core.configuration.options import Framework, HookOptions, at_steps
from ..core.log import logger
from ..core.process.rank import Duty, rank_of_process
from ..core.recorder import Recorder
from ..core.step_recorder import switched_on
from ..library.integrations import OUT_DIR_VARIABLE, default_out_dir
from .configuration import read_launch_configuration

CONFIG_VARIABLE = "TENSORTRIAL_CONFIG"
LAUNCH_VARIABLE = "TENSORTRIAL_LAUNCH"
"""The variable by which a process passes a launch to its child processes."""

_NO_CONFIGURATION = HookConfiguration({})


@dataclass(frozen=True)
class Launch:
    """The launch of a script."""

    name: str
    """The name of the script, which names the default folder of the run."""
    config: str | None = None
    """The configuration file."""
    out_dir: str | None = None
    """The folder or URL of the run, which takes precedence over the file's."""
    resume: bool = False
    """True if the run in the folder is continued."""
    command: list[str] = field(default_factory=list)
    """The command line."""
    found: str = ""
    """The path of a file that any process of the script creates once it finds a training."""

    @classmethod
    def of(cls, name: str, config: str | None, out_dir: str | None, resume: bool) -> Launch:
        """Return a launch. Arguments that are None have the settings of the environment."""
        config = config or os.environ.get(CONFIG_VARIABLE) or None
        if config is None and sagemaker.has_hook_configuration():
            config = sagemaker.hook_configuration_path()
        out_dir = out_dir or os.environ.get(OUT_DIR_VARIABLE) or None
        # Paths are absolute, because a child process may have another working directory.
        return cls(
            name,
            None if config is None else os.path.abspath(config),
            out_dir if out_dir is None or "://" in out_dir else os.path.abspath(out_dir),
            resume,
            found=os.path.join(tempfile.gettempdir(), f"tensortrial-{uuid.uuid4().hex}"),
        )

    @classmethod
    def from_environment(cls) -> Launch | None:
        """Return the launch in the environment; None if there is none."""
        text = os.environ.get(LAUNCH_VARIABLE)
        try:
            return cls(**json.loads(text)) if text else None
        except (TypeError, ValueError, RecursionError) as exc:
            raise ConfigurationError(f"{LAUNCH_VARIABLE} is not what `tensortrial run` puts there: {exc}") from exc

    def to_environment(self) -> None:
        """Put the launch into the environment of this process and of its child processes."""
        os.environ[LAUNCH_VARIABLE] = json.dumps(asdict(self))

    def configuration(self) -> HookConfiguration:
        """Return the configuration.

        Raises:
            ConfigurationError: The file is missing, is not JSON, or has a bad value.
        """
        found = _NO_CONFIGURATION if self.config is None else read_launch_configuration(self.config, self.out_dir)
        arguments = dict(found.arguments)
        if self.out_dir is not None:
            arguments["out_dir"] = self.out_dir
        if self.resume:
            arguments["resume"] = True
        return HookConfiguration(arguments, found.collections)

    def check(self) -> None:
        """Check the configuration, and that the folder is writable, before training begins.

        Raises:
            ConfigurationError: A value is wrong.
            RunExists: The folder holds a run already.
        """
        if not switched_on():
            return
        found = self.configuration()
        options = _accepted(HookOptions, {"out_dir": "unused", **found.arguments, "resume": False, "dry_run": True})
        recorder = Recorder(HookOptions(**options), Framework("none"), rank_of_process)
        found.apply_to(recorder.collections)
        duty = Duty(rank_of_process, found.arguments.get("include_workers", "one"))
        out_dir = found.arguments.get("out_dir")
        if out_dir is None and duty.num_workers > 1:
            raise ConfigurationError(
                'with include_workers="all" each process saves to the same run: pass --out-dir, or set out_dir in the '
                "configuration"
            )
        refuses = not found.arguments.get("resume") and options.get("on_exists", "fail") == "fail"
        if out_dir is not None and duty.saves and refuses:
            storage = open_storage(out_dir, found.arguments.get("storage_options"))
            check_out_dir(storage, duty.worker, duty.num_workers)

    def default_out_dir(self) -> str:
        """Return the default folder of a run: `runs/<script>`, with a number if a run is there."""
        return default_out_dir("runs", self.resume, self.name)

    def make_hook(self, make: Callable[..., Any], save_config: SaveConfig | None = None, **arguments: Any) -> Any:
        """Make the hook for a training that begins; None if it cannot be made, which is logged.

        `make` is the class of the hook, or a function with its arguments. `save_config` has the steps of a library's
        own log, which are used if the configuration chooses tensors but no steps. `arguments` are defaults of the
        framework, such as the folder.
        """
        if self.found:
            with suppress(OSError), open(self.found, "x", encoding="utf-8"):
                pass
        try:
            found = self.configuration()
            given = at_steps({**arguments, **found.arguments}, save_config)
            given["resume"] = bool(arguments.get("resume") or found.arguments.get("resume"))
            given.setdefault("out_dir", self.default_out_dir())
            hook = make(**_accepted(make, given))
            found.apply_to(hook.recorder.collections)
        except TensorTrialError as exc:
            logger.error("nothing of this training is saved: %s", exc)
            return None
        if hook.recorder.active:
            chosen = hook.recorder.saved_by_default
            said = f"tensortrial: tensors of this training are saved to {hook.out_dir}{chosen and ': '}{chosen}"
            print(said, file=sys.stderr)
        return hook

    def check_found(self) -> None:
        """Print, after the end of the script, that no training was found, if there was none."""
        try:
            os.remove(self.found)
        except OSError:
            if switched_on() and not has_own_hook():
                print(
                    "tensortrial: nothing was saved: the script trained no model with PyTorch, the Trainer of "
                    "transformers, Lightning, Keras or xgboost.train; of another training, such as xgboost.cv, make a "
                    "hook in the script",
                    file=sys.stderr,
                )


def active_launch() -> Launch | None:
    """Return the launch of this process; None if it was not launched, or the environment's launch is damaged."""
    try:
        return Launch.from_environment()
    except ConfigurationError:
        return None


def has_own_hook(launched: Any = None) -> bool:
    """Return whether the script has made a hook itself, or another framework's hook has been launched."""
    found = current_hook.current()
    return found is not None and found is not launched


def _accepted(make: Callable[..., Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that a hook accepts, because a configuration may be for several frameworks."""
    known = inspect.signature(make).parameters
    return {name: value for name, value in arguments.items() if name in known}
