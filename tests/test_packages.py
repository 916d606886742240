"""The build takes every file of the three folders, under its import name, so that none is missing in the wheel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import setuptools  # noqa: F401  brings the distutils that it builds with

import tensortrial

ROOT = Path(__file__).resolve().parents[1]
IMPORTED_AS = {"tensorstore": "tensortrial", "hooks": "tensortrial/hooks", "queries": "tensortrial/queries"}


@pytest.fixture
def distribution(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return what setuptools builds, by setup.py and pyproject.toml."""
    from distutils.core import run_setup

    monkeypatch.chdir(ROOT)
    return run_setup("setup.py", stop_after="config")


@pytest.fixture
def built(distribution: Any) -> dict[str, str]:
    """Return the source of each file of the wheel."""
    command = distribution.get_command_obj("build_py")
    command.ensure_finalized()
    files = command.get_output_mapping().items()
    return {Path(made).relative_to(command.build_lib).as_posix(): source for made, source in files}


def list_files(*patterns: str) -> dict[str, str]:
    """Return each file that matches a pattern, by the path that a wheel gives it."""
    return {
        f"{package}/{path.relative_to(ROOT / folder).as_posix()}": path.relative_to(ROOT).as_posix()
        for folder, package in IMPORTED_AS.items()
        for pattern in patterns
        for path in (ROOT / folder).rglob(pattern)
        if path.is_file()
    }


def test_every_python_file_is_built(built: dict[str, str]) -> None:
    files = list_files("*.py")
    assert "tensortrial/hooks/launch/path/sitecustomize/__init__.py" in files
    assert {made: source for made, source in built.items() if made.endswith(".py")} == files


def test_every_other_file_that_the_program_reads_is_built(built: dict[str, str]) -> None:
    files = list_files("*.sql", "py.typed", "static/*", "static/*/*")
    assert {"tensortrial/py.typed", "tensortrial/pages/static/index.html"} <= set(files)
    assert {made: source for made, source in built.items() if not made.endswith(".py")} == files


def test_the_build_has_the_version_of_the_program(distribution: Any) -> None:
    assert distribution.get_version() == tensortrial.__version__
