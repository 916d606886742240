"""The public door: what is offered is there, and what is there is light."""

from __future__ import annotations

import pkgutil
import subprocess
import sys

import pytest

import tensortrial


def test_all_is_what_can_be_imported() -> None:
    assert sorted(tensortrial.__all__) == tensortrial.__all__
    for name in tensortrial.__all__:
        assert getattr(tensortrial, name) is not None


def test_no_module_hides_a_public_name() -> None:
    modules = {module.name for module in pkgutil.iter_modules(tensortrial.__path__)}
    # The package `page` can be called: it is the function, too.
    assert modules & set(tensortrial.__all__) == {"page"}
    assert callable(tensortrial.page)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = tensortrial.nothing  # type: ignore[attr-defined]


def test_importing_loads_neither_duckdb_nor_a_framework() -> None:
    program = "import sys, tensortrial; print(*{m.partition('.')[0] for m in sys.modules})"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert "tensortrial" in loaded
    assert {"duckdb", "pyarrow", "numpy", "fsspec", "torch"}.isdisjoint(loaded)
