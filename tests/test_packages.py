"""The packages that pyproject.toml lists are the folders that exist, so that none is missing in the wheel."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
IMPORTED_AS = {"tensorstore": "tensortrial", "hooks": "tensortrial.hooks", "queries": "tensortrial.queries"}


@pytest.fixture(scope="module")
def setuptools() -> dict[str, Any]:
    """Return the table of setuptools in pyproject.toml."""
    tables: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    settings: dict[str, Any] = tables["setuptools"]
    return settings


def list_packages(pattern: str) -> dict[str, str]:
    """Return each folder that holds a file of that pattern, by the name that its package is imported as."""
    found = {}
    for name, package in IMPORTED_AS.items():
        for path in (ROOT / name).rglob(pattern):
            inner = path.parent.relative_to(ROOT / name).parts
            found[".".join([package, *inner])] = path.parent.relative_to(ROOT).as_posix()
    return found


def test_every_folder_with_an_init_file_is_a_listed_package(setuptools: dict[str, Any]) -> None:
    assert setuptools["package-dir"] == list_packages("__init__.py")
    assert sorted(setuptools["packages"]) == sorted(setuptools["package-dir"])


def test_every_folder_with_python_files_has_an_init_file() -> None:
    assert list_packages("*.py") == list_packages("__init__.py")


def test_every_package_with_sql_files_lists_them(setuptools: dict[str, Any]) -> None:
    listed = {package for package, patterns in setuptools["package-data"].items() if "*.sql" in patterns}
    assert listed == set(list_packages("*.sql"))
