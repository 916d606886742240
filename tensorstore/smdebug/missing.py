"""Names of smdebug that this project does not have: they can be imported, and raise an error when they are used."""

from __future__ import annotations

from typing import Any, NoReturn

from .exceptions import SMDebugNotImplementedError

# The nearest thing here, by the beginning of a name.
_NEAREST = {
    "smdebug.profiler": (
        "SageMaker's profiler is not part of tensortrial; torch.profiler, tf.profiler and py-spy profile a job, and "
        "the query step_times shows how long its steps took"
    ),
    "smdebug.trials.profiler_trial": "SageMaker's profiler is not part of tensortrial; use create_trial for tensors",
    "smdebug.core.writer": "save tensors with hook.save_tensor and hook.save_scalar; tensortrial.export writes files",
    "smdebug.core.tfevent": "tensortrial.export(run, 'tensorboard:FOLDER') writes event files",
    "smdebug.core.tfrecord": "tensortrial.importers.smdebug.import_run reads the files of smdebug",
    "smdebug.core.index_reader": "open a run with create_trial, and import one of smdebug with import_run",
    "smdebug.core.access_layer": "open a run with create_trial; fsspec reads other files",
    "smdebug.core.sagemaker_utils": "pass out_dir to the hook, or LocalPath in its JSON configuration",
}
_ELSEWHERE = "see docs/migrating.md for what takes its place"


class Missing:
    """A name that can be imported, and raises SMDebugNotImplementedError when it is used.

    Args:
        name: The full name, such as `smdebug.profiler.profiler_config.ProfilerConfig`.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def _raise(self) -> NoReturn:
        near = (text for prefix, text in _NEAREST.items() if self._name.startswith(prefix))
        raise SMDebugNotImplementedError(f"{self._name} is not part of tensortrial: {next(near, _ELSEWHERE)}")

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise SMDebugNotImplementedError.

        Args:
            args: Not used.
            kwargs: Not used.
        """
        self._raise()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        self._raise()

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type[Any], ...]:
        missing = self

        class Base:
            """A base class that raises when it is instantiated."""

            def __init__(self, *args: Any, **kwargs: Any) -> None:
                missing._raise()

        return (Base,)

    def __repr__(self) -> str:
        return f"<{self._name}, which is not part of tensortrial>"
