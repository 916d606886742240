"""A hook whose framework is not installed."""

from __future__ import annotations

import importlib
import sys

import pytest

from tensortrial.errors import MissingExtra

PACKAGES = {"jax": "jax", "lightgbm": "lightgbm", "catboost": "catboost", "sklearn": "sklearn"}


@pytest.mark.parametrize("name", PACKAGES)
def test_the_import_says_which_extra_to_install(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [each for each in sys.modules if each.startswith(f"tensortrial.hooks.{name}")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, PACKAGES[name], None)
    with pytest.raises(MissingExtra, match=rf"pip install 'tensortrial\[{name}\]'"):
        importlib.import_module(f"tensortrial.hooks.{name}")
