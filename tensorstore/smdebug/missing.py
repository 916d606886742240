"""Names of smdebug that this project lacks. They can be imported, and raise an error when they are used."""

from __future__ import annotations

import sys
from difflib import get_close_matches
from types import ModuleType
from typing import Any, NoReturn

from .exceptions import SMDebugNotImplementedError

_PROFILER = (
    "SageMaker's profiler is not part of tensortrial; a hook with system_metrics=True samples CPU, memory and GPUs, "
    "torch.profiler, tf.profiler and py-spy profile a job, and the query step_times shows how long its steps took"
)
# Advice by the prefix of a name.
_NEAREST = {
    "smdebug.profiler": _PROFILER,
    "smdebug.core.writer": "save tensors with hook.save_tensor and hook.save_scalar; tensortrial.export writes files",
    "smdebug.core.index_reader": "open a run with create_trial, and import one of smdebug with import_run",
    "smdebug.core.access_layer": "create_trial opens a run, trial.loaded_all_steps tells its end; fsspec reads files",
    "smdebug.core.config_constants": (
        "write the value itself, such as 'SMDEBUG_CONFIG_FILE_PATH', the variable that names the JSON configuration"
    ),
    "smdebug.core.json_config": "create_from_json_file of a hook reads the JSON configuration",
    "smdebug.core.hook": "use the hook of a framework, such as smdebug.pytorch.Hook",
    "smdebug.analysis": "no_refresh and refresh are in smdebug.analysis.utils",
}
_ELSEWHERE = "see docs/migrating.md for its replacement"
# Special methods of other uses: operators, formatting, isinstance, os.path.join, iteration, `with`, numbers.
_USES = (
    *("__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__", "__truediv__", "__rtruediv__", "__mod__"),
    *("__lt__", "__le__", "__gt__", "__ge__", "__str__", "__format__", "__fspath__", "__instancecheck__"),
    *("__subclasscheck__", "__iter__", "__len__", "__contains__", "__getitem__", "__setitem__", "__enter__"),
    *("__exit__", "__int__", "__index__", "__float__"),
)


class Missing:
    """A name that can be imported, and raises SMDebugNotImplementedError when it is used.

    Args:
        name: The full name, such as `smdebug.profiler.profiler_config.ProfilerConfig`.
    """

    def __init__(self, name: str) -> None:
        object.__setattr__(self, "_name", name)

    def _raise(self) -> NoReturn:
        raise SMDebugNotImplementedError(f"{self._name} is not part of tensortrial: {_nearest(self._name)}")

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise SMDebugNotImplementedError."""
        self._raise()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        self._raise()

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        self._raise()

    def __bool__(self) -> bool:
        return True

    def __or__(self, other: Any) -> Any:
        # Annotations such as `Name | None` are evaluated at import.
        return self

    __ror__ = __or__

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type[Any], ...]:
        missing = self

        class Base:
            """A base class that raises when it is instantiated."""

            def __init__(self, *args: Any, **kwargs: Any) -> None:
                missing._raise()

        return (Base,)

    def __repr__(self) -> str:
        return f"<{self._name}, which is not part of tensortrial>"


def _refuse(missing: Missing, *_: Any) -> NoReturn:
    missing()


for _use in _USES:
    setattr(Missing, _use, _refuse)


class MissingModule(ModuleType):
    """A module that can be imported, with names that are missing.

    `from smdebug.pytorch import Name` imports a module, too, if the package has no such name. Used like a class or a
    function, it raises the error of a missing name.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise SMDebugNotImplementedError."""
        Missing(self.__name__)()

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type[Any], ...]:
        return Missing(self.__name__).__mro_entries__(bases)

    def __instancecheck__(self, instance: Any) -> bool:
        Missing(self.__name__)()


def _nearest(name: str) -> str:
    """Return a replacement for a name: a similar name of the same module, or the sentence in `_NEAREST`."""
    module, _, last = name.rpartition(".")
    alike = get_close_matches(last, getattr(sys.modules.get(module), "__all__", ()), n=1)
    if alike:
        return f"did you mean {module}.{alike[0]}?"
    if "profiler" in name.lower():
        return _PROFILER
    return next((text for prefix, text in _NEAREST.items() if name.startswith(prefix)), _ELSEWHERE)
