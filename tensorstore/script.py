"""The running of a script or a module as by Python itself, in a process that a command has prepared."""

from __future__ import annotations

import importlib.util
import os
import runpy
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import CodeType, ModuleType

from .errors import ConfigurationError

# The command's own `__main__`, which the script's replaces, is kept for its functions until the process ends.
_replaced: list[ModuleType] = []


def prepared_script(arguments: Sequence[str]) -> Callable[[], None]:
    """Prepare to run a script as `python SCRIPT ARGUMENT …` does.

    Args:
        arguments: The path of the script, or of a folder or an archive with a `__main__.py`, and its arguments.

    Returns:
        A function that runs it once. Errors of the script, including SystemExit, are raised.

    Raises:
        ConfigurationError: The path does not exist, or is a folder without a `__main__.py`.
    """
    path = arguments[0]
    if not os.path.exists(path):
        raise ConfigurationError(f"script {path!r} does not exist")
    if os.path.isdir(path) and not {"__main__.py", "__main__.pyc"}.intersection(os.listdir(path)):
        raise ConfigurationError(f"script {path!r} is a folder without a __main__.py")

    def run() -> None:
        sys.argv = list(arguments)
        file = os.path.abspath(path)
        _set_first_folder(os.path.dirname(file))
        if os.path.isdir(path) or not path.endswith((".py", ".pyw")):
            runpy.run_path(path, run_name="__main__")
            return
        loader = SourceFileLoader("__main__", file)
        main = ModuleType("__main__")
        vars(main).update(__file__=file, __loader__=loader, __builtins__=__builtins__, __cached__=None)
        _execute(compile(loader.get_data(file), file, "exec", dont_inherit=True), main)

    return run


def prepared_module(arguments: Sequence[str]) -> Callable[[], None]:
    """Prepare to run a module as `python -m MODULE ARGUMENT …` does.

    Args:
        arguments: The name of the module, and its arguments.

    Returns:
        A function that runs it once. Errors of the module, including SystemExit, are raised.

    Raises:
        ConfigurationError: There is no module of this name, or it cannot be run.
    """
    _set_first_folder(os.getcwd())
    sys.argv = ["-m", *arguments[1:]]
    spec, code = _module(arguments[0])

    def run() -> None:
        main = ModuleType("__main__")
        vars(main).update(
            __file__=spec.origin,
            __loader__=spec.loader,
            __builtins__=__builtins__,
            __cached__=spec.cached,
            __package__=spec.parent,
            __spec__=spec,
        )
        sys.argv[0] = spec.origin or arguments[0]
        _execute(code, main)

    return run


def add_to_python_path(folder: str) -> None:
    """Put a folder first on the module search path of all child processes, also those that a shell starts."""
    folders = [folder, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(folders))


def _execute(code: CodeType, main: ModuleType) -> None:
    # Not restored afterwards: threads, functions at exit and pickle need the script's names until the process ends.
    _replaced.append(sys.modules["__main__"])
    sys.modules["__main__"] = main
    exec(code, vars(main))


def _module(name: str) -> tuple[ModuleSpec, CodeType]:
    """Return the module that `python -m` runs: the module itself, or `__main__` of a package."""
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{name}.__main__")
    except ModuleNotFoundError as exc:
        # Another module is missing in a package that was imported to find this one.
        if exc.name is None or not f"{name}.__main__".startswith(exc.name):
            raise
        spec = None
    code = getattr(spec.loader, "get_code", lambda _: None)(spec.name) if spec is not None else None
    if spec is None or code is None:
        raise ConfigurationError(f"module {name!r} does not exist, or cannot be run")
    return spec, code


def _set_first_folder(folder: str) -> None:
    """Put a folder first on the module search path, in place of the command's own folder."""
    if not sys.flags.safe_path and sys.path:
        sys.path[0] = folder
    else:
        sys.path.insert(0, folder)
