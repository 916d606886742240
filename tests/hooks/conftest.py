"""Fixtures for the tests of hooks: errors inside a hook are raised, and no hook outlives its test."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from support.made_hooks import made_hooks

# The package that the tests of a folder, or of some files, need. Each framework has its own environment, and none has
# them all.
_NEEDS = {
    "catboost": "catboost",
    "jax": "jax",
    "lightgbm": "lightgbm",
    "sklearn": "sklearn",
    "keras": "tensorflow",
    "session": "tensorflow",
    "session/test_estimator*.py": "tensorflow_estimator",
    "session/test_horovod.py": "horovod",
    "mxnet": "mxnet",
    "xgboost": "xgboost",
    "hydra": "hydra",
    "ignite": "ignite",
    "nvdlfw_inspect": "nvdlfw_inspect",
    "ray": "ray",
    "torchtitan": "torchtitan",
}
collect_ignore_glob = [pattern for pattern, package in _NEEDS.items() if find_spec(package) is None]


@pytest.fixture(autouse=True)
def strict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSORTRIAL_STRICT", "1")
    for name in ("RANK", "WORLD_SIZE", "SMDEBUG_CONFIG_FILE_PATH", "USE_SMDEBUG", "TENSORTRIAL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def lenient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Log the errors of hooks instead of raising them, as in a user's training."""
    monkeypatch.delenv("TENSORTRIAL_STRICT")


@pytest.fixture(autouse=True)
def no_current_hook() -> Iterator[None]:
    yield
    from tensortrial.hooks.core.current_hook import del_hook

    del_hook()


@pytest.fixture
def out(tmp_path: Path) -> str:
    return str(tmp_path / "run")


@pytest.fixture
def nothing_is_compiled() -> None:
    """Forget what other tests compiled: a model keeps its callbacks in a process that has called torch.compile."""
    if "torch._dynamo" in sys.modules:
        sys.modules["torch"].compiler.reset()


# The hook of the tests of a folder; that of PyTorch for all others.
_HOOKS = {
    "keras": ("tensorflow", "KerasHook"),
    "session": ("tensorflow", "SessionHook"),
    **{name: (name, "Hook") for name in ("catboost", "jax", "lightgbm", "mxnet", "sklearn", "xgboost")},
}


@pytest.fixture
def make_hook(out: str, request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """Make hooks that save each step to `out`, unless configured otherwise. They are closed after the test."""
    module, name = _HOOKS.get(request.path.parent.name, ("pytorch", "Hook"))
    hook_type = getattr(import_module(f"tensortrial.hooks.{module}"), name)
    with made_hooks(hook_type, out) as make:
        yield make
