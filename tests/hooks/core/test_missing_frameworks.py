"""A hook whose framework is not installed, or too old."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from support.missing import without
from tensortrial.errors import MissingExtra, UnsupportedFramework

OLD = {
    "catboost": ("0.26.1", "catboost 0.26.1 is too old.*needs 1.0"),
    "jax": ("0.4.1", "jax 0.4.1 is too old.*pip install 'jax>=0"),
    "lightgbm": ("3.3.5", "lightgbm 3.3.5 is too old.*needs 4.6"),
    "sklearn": ("0.24.2", "scikit-learn 0.24.2 is too old.*needs 1.3"),
}


@pytest.mark.parametrize("name", [*OLD, "torch"])
def test_the_import_says_which_extra_to_install(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = f"tensortrial.hooks.{'pytorch' if name == 'torch' else name}"
    without(monkeypatch, name, again=module)
    with pytest.raises(MissingExtra, match=rf"pip install 'tensortrial\[{name}\]'"):
        importlib.import_module(module)


@pytest.mark.parametrize("name", OLD)
def test_an_older_framework_is_refused_in_a_sentence(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An environment has one version of a framework."""
    version, message = OLD[name]
    monkeypatch.setattr(pytest.importorskip(name), "__version__", version)
    with pytest.raises(UnsupportedFramework, match=message):
        importlib.import_module(f"tensortrial.hooks.{name}").Hook(tmp_path / "run")
