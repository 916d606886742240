"""Programs that were written for smdebug print here what they printed there, or what their `.differs` says."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest

from support.smdebug_programs import (
    FOLDER,
    PROGRAMS,
    Runner,
    counts,
    difference,
    framework_of,
    has_framework,
    name_of,
    recorded,
)

ITSELF = os.environ.get("TENSORTRIAL_SMDEBUG_PYTHON")

_LINK = re.compile(r"\(\.\./tests/smdebug/programs/(\w+/\w+)\.py\)")

Runners = Callable[[str, str | None], Runner]


@pytest.fixture(scope="module")
def runners() -> Iterator[Runners]:
    """Return the process that runs programs of a framework, with the smdebug of a Python or with the aliases."""
    with ExitStack() as stack:

        @cache
        def start(framework: str, python: str | None) -> Runner:
            return stack.enter_context(Runner(framework, python))

        yield start


@pytest.mark.parametrize("program", PROGRAMS, ids=name_of)
def test_a_program_prints_what_it_printed_with_smdebug(program: Path, runners: Runners, tmp_path: Path) -> None:
    framework = framework_of(program)
    if not has_framework(framework):
        pytest.skip(f"this environment has no {framework} that smdebug knew")
    answer = runners(framework, None).run(program, tmp_path)
    differs = difference(program)
    expected = recorded(program) if differs is None else differs[1]
    assert answer["printed"] == expected, answer["errors"]


@cache
def has_smdebug(python: str, framework: str) -> bool:
    """Return whether a Python has smdebug and a framework."""
    imports = f"import {framework}, smdebug"
    return not subprocess.run([python, "-c", imports], capture_output=True, check=False).returncode


@pytest.mark.slow
@pytest.mark.skipif(ITSELF is None, reason="TENSORTRIAL_SMDEBUG_PYTHON names no Python with smdebug")
@pytest.mark.parametrize("program", PROGRAMS, ids=name_of)
def test_smdebug_prints_what_is_recorded(program: Path, runners: Runners, tmp_path: Path) -> None:
    framework = framework_of(program)
    if not has_smdebug(ITSELF, framework):
        pytest.skip(f"the Python with smdebug has no {framework}")
    assert runners(framework, ITSELF).run(program, tmp_path)["printed"] == recorded(program)


@pytest.mark.parametrize("program", [program for program in PROGRAMS if difference(program)], ids=name_of)
def test_a_difference_has_a_reason_and_is_one(program: Path) -> None:
    reason, printed = difference(program)
    assert reason.endswith(".")
    assert printed != recorded(program)


def test_every_recording_belongs_to_a_program() -> None:
    named = {program.with_suffix(suffix) for program in PROGRAMS for suffix in (".py", ".out", ".differs")}
    assert [path for path in FOLDER.glob("*/*.*") if path not in named] == []


def test_the_page_on_migrating_lists_every_difference_with_its_program() -> None:
    lines = (FOLDER.parents[2] / "docs" / "migrating.md").read_text().splitlines()
    linked = {name: line for line in lines for name in _LINK.findall(line)}
    differing = {name_of(program): difference(program)[0] for program in PROGRAMS if difference(program)}
    assert set(linked) == set(differing)
    assert [name for name, reason in differing.items() if reason not in linked[name]] == []


@pytest.mark.parametrize(
    ("row", "framework"),
    [
        ("PyTorch, and reading runs", "torch"),
        ("TensorFlow", "tensorflow"),
        ("MXNet", "mxnet"),
        ("XGBoost", "xgboost"),
        ("all", None),
    ],
)
def test_the_page_on_migrating_counts_the_programs(row: str, framework: str | None) -> None:
    programs = [program for program in PROGRAMS if framework in (None, framework_of(program))]
    page = (FOLDER.parents[2] / "docs" / "migrating.md").read_text()
    assert f"| {row} | {' | '.join(map(str, counts(programs)))} |\n" in page
