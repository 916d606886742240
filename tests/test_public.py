"""The public door: what is offered is there, and what is there is light."""

from __future__ import annotations

import ast
import inspect
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tensortrial
from tensortrial.hooks.core import shared_names

ROOT = Path(__file__).resolve().parents[1]
INTERNAL_HOOKS = {"core", "launch", "library", "session"}


def test_all_is_what_can_be_imported() -> None:
    assert sorted(tensortrial.__all__) == tensortrial.__all__
    for name in tensortrial.__all__:
        assert getattr(tensortrial, name) is not None


def names_in_all(package: str) -> set[str]:
    """Return the `__all__` of a package of hooks, without importing its framework."""
    text = (ROOT / "hooks" / package / "__init__.py").read_text()
    assigned = re.search(r"^__all__ = (\[.*?\])$", text, re.MULTILINE | re.DOTALL)
    assert assigned is not None
    own = ast.literal_eval(assigned.group(1))
    return {*own, *(shared_names.__all__ if "\n__all__ += shared_names.__all__\n" in text else ())}


def test_the_page_of_public_names_has_each_name_once() -> None:
    text = (ROOT / "docs" / "reference" / "names.md").read_text()
    names = re.findall(r"^\| `(\w+)` \|", text.partition("## tensortrial.hooks")[0], re.MULTILINE)
    assert sorted(names) == tensortrial.__all__


def test_the_page_of_public_names_has_the_names_of_every_hook() -> None:
    _, _, text = (ROOT / "docs" / "reference" / "names.md").read_text().partition("## tensortrial.hooks")
    documented: dict[str, set[str]] = {}
    for packages, name in re.findall(r"^\| (`.*?`) \| `(\w+)` \|", text, re.MULTILINE):
        for package in re.findall(r"`(\w+)`", packages):
            documented.setdefault(package, set()).add(name)
    shared = set(tensortrial.__all__) | {"get_hook", "set_hook", "del_hook"}
    packages = {path.parent.name for path in (ROOT / "hooks").glob("*/__init__.py")} - INTERNAL_HOOKS
    for package in packages:
        exported = names_in_all(package)
        own = exported - shared if "get_hook" in exported else exported
        assert documented.pop(package, None) == own, package
    assert documented == {}


def test_no_module_hides_a_public_name() -> None:
    modules = {module.name for module in pkgutil.iter_modules(tensortrial.__path__)}
    assert modules.isdisjoint(tensortrial.__all__)
    assert inspect.isfunction(tensortrial.page)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = tensortrial.nothing  # type: ignore[attr-defined]


def test_importing_loads_neither_duckdb_nor_a_framework() -> None:
    program = "import sys, tensortrial; print(*{m.partition('.')[0] for m in sys.modules})"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert "tensortrial" in loaded
    assert {"duckdb", "pyarrow", "numpy", "fsspec", "torch"}.isdisjoint(loaded)
