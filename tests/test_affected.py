"""The build chooses, by `.ci/affected.py`, among the parts that do not always run."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import grimp
import pytest

ROOT = Path(__file__).resolve().parents[1]
ALWAYS = {"min", "slow"}  # next to `make test`
HOUR = 3600


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("affected", ROOT / ".ci" / "affected.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["affected"] = module  # where its dataclass looks for the types of its fields
    spec.loader.exec_module(module)
    return module


affected = load()
PARTS = set(affected.PARTS)


@pytest.fixture(scope="module")
def near() -> dict[str, set[str]]:
    """Return the files and folders of this project that are near each part."""
    tree = affected.Tree(ROOT)
    return {part: tree.near(part) for part in PARTS}


@pytest.mark.parametrize(
    ("path", "parts"),
    [
        ("hooks/keras/hook.py", {"tf", "tf215", "models"}),
        ("hooks/keras/tape/a_deleted_file.py", {"tf", "tf215", "models"}),
        ("hooks/session/graph.py", {"tf", "tf215", "horovod"}),
        ("hooks/mxnet/hook.py", {"mxnet", "models"}),
        ("hooks/pytorch/hook.py", {"models"}),
        ("hooks/hydra/metadata.py", {"trackers"}),
        ("hooks/core/base_hook.py", set()),
        ("tensorstore/errors.py", set()),
        ("tensorstore/pages/static/app.js", {"page"}),
        ("tensorstore/importers/mlflow/job.py", {"trackers"}),
        ("tensorstore/exports/targets/snowflake.py", {"emulators"}),
        ("queries/named/losses.sql", {"spark", "emulators"}),
        ("queries/views/tensors.sql", {"spark"}),
        ("examples/digits.py", {"models"}),
        ("README.md", set()),
        ("docs/tensorflow.md", {"tf"}),
        ("docs/jax.md", {"models"}),
        ("docs/rules.md", set()),
        ("constraints/tf215.txt", {"tf215", "horovod"}),
        ("constraints/mxnet.txt", {"mxnet", "models"}),
        ("constraints/docs.txt", set()),
        ("tests/conftest.py", PARTS),
        ("tests/hooks/conftest.py", {"tf", "tf215", "mxnet", "horovod", "models", "trackers"}),
        ("tests/hooks/keras/test_a_deleted_file.py", {"tf", "tf215"}),
        ("tests/hooks/pytorch/test_steps.py", set()),
        ("tests/smdebug/programs/tensorflow/keras.out", {"tf215"}),
        ("tests/smdebug/jobs/gluon_job.py", {"mxnet"}),
        ("tests/test_docs.py", set()),
        ("tests/golden/format-1/none/run.json", set()),
    ],
)
def test_a_changed_file_is_near_to_the_parts_that_test_it(
    path: str, parts: set[str], near: dict[str, set[str]]
) -> None:
    assert {part for part, places in near.items() if affected._within(path, places)} == parts


@pytest.mark.parametrize(
    ("path", "part"),
    [
        ("tests/support/keras_replicas.py", "tf"),  # a test imports it
        ("tests/support/hook_conformance/capture.py", "mxnet"),  # what the test imports imports it
        ("tests/queries/in_fakesnow.py", "emulators"),  # a test starts it as a program
        ("tensorstore/engines/spark_sql.py", "spark"),  # only engines/spark.py imports it
    ],
)
def test_a_file_is_near_to_the_parts_that_need_it(path: str, part: str, near: dict[str, set[str]]) -> None:
    assert (ROOT / path).is_file()
    assert path in near[part]


def test_each_module_of_the_product_imports_here_what_grimp_says_that_it_imports() -> None:
    graph = grimp.build_graph("tensortrial", cache_dir=None)
    tree = affected.Tree(ROOT)
    missing = {
        (name, imported)
        for name in graph.modules
        for imported in graph.find_modules_directly_imported_by(name)
        if tree.modules[imported] not in tree.imports[tree.modules[name]]
    }
    assert missing == set()


# ------------------------------------------------------------------------------------------- the Makefile and the build


def makefile_targets() -> set[str]:
    return set(re.findall(r"^test-([\w-]+):(?! export)", (ROOT / "Makefile").read_text(), re.MULTILINE))


def test_every_part_in_the_makefile_always_runs_or_is_chosen() -> None:
    assert makefile_targets() == ALWAYS | PARTS
    build = (ROOT / ".ci" / "run").read_text()
    assert all(re.search(rf"\btest-{part}\b", build) for part in ALWAYS)


def ignored_by_make_test() -> list[str]:
    command = ["make", "--dry-run", "--always-make", "test"]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return re.findall(r"--ignore=(\S+)", printed)


def test_tests_that_make_test_leaves_out_belong_to_a_part(near: dict[str, set[str]]) -> None:
    ignored = ignored_by_make_test()
    assert ignored
    places = set().union(*near.values())
    assert [path for path in ignored if path not in places] == []


def test_a_framework_whose_tests_belong_to_a_part_is_what_the_part_is_about(near: dict[str, set[str]]) -> None:
    for tests in ignored_by_make_test():
        package = tests.removeprefix("tests/")
        if package.startswith("hooks/") and (ROOT / package).is_dir():
            parts = [part for part, places in near.items() if tests in places]
            assert all(package in affected.PARTS[part].about for part in parts), package


def test_what_a_part_is_about_exists() -> None:
    about = [path for part in affected.PARTS.values() for path in part.about]
    assert [path for path in about if not (ROOT / path).exists()] == []


# ------------------------------------------------------------------------------------------------------------- history


class Repository:
    """A small repository that is laid out as this project is."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.now = 1_700_000_000
        self.git("init", "--quiet")
        for name in ("Makefile", "pyproject.toml"):
            shutil.copy(ROOT / name, root / name)
        shutil.copytree(ROOT / "constraints", root / "constraints")
        self.write("hooks/keras/hook.py", "")
        self.write("hooks/mxnet/hook.py", "")
        self.write("README.md", "")

    def git(self, *arguments: str) -> None:
        when = f"{self.now} +0000"
        who = {f"GIT_{role}_{key}": "tests" for role in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")}
        variables = {**os.environ, **who, "GIT_AUTHOR_DATE": when, "GIT_COMMITTER_DATE": when}
        subprocess.run(["git", *arguments], cwd=self.root, env=variables, check=True)

    def write(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def commit(self, hours: float = 0) -> None:
        """Commit all files, so many hours after the last commit."""
        self.now += int(hours * HOUR)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message", "Change files")

    def choose(self) -> dict[str, tuple[bool, str]]:
        chosen: dict[str, tuple[bool, str]] = affected.choose(affected.Tree(self.root))
        return chosen

    def changed(self) -> set[str]:
        """Return the parts that run for another reason than that it is their turn."""
        return {part for part, (runs, why) in self.choose().items() if runs and "turn" not in why}


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    made = Repository(tmp_path)
    made.commit()
    return made


def test_a_new_repository_runs_all_parts(repository: Repository) -> None:
    repository.commit(hours=affected.HOURS - 1)
    assert repository.changed() == PARTS


def test_changes_that_came_after_the_newest_old_commit_are_recent(repository: Repository) -> None:
    repository.write("hooks/keras/hook.py", "old = 1")
    repository.commit(hours=1)
    repository.write("hooks/mxnet/hook.py", "recent = 1")
    repository.commit(hours=1)
    repository.commit(hours=affected.HOURS - 1)
    assert repository.changed() == {"mxnet", "models"}
    repository.commit(hours=1)
    assert repository.changed() == set()


@pytest.mark.parametrize("how", ["committed", "not committed", "deleted", "moved"])
def test_a_change_is_seen_however_it_is_made(how: str, repository: Repository) -> None:
    if how == "moved":
        repository.git("mv", "hooks/mxnet/hook.py", "hooks/hook.py")
    elif how == "deleted":
        repository.git("rm", "--quiet", "hooks/mxnet/hook.py")
    else:
        repository.write("hooks/mxnet/hook.py", "recent = 1")
    if how == "not committed":
        repository.git("commit", "--quiet", "--allow-empty", "--message", "Change nothing")
        repository.now += affected.HOURS * HOUR
        repository.git("commit", "--quiet", "--allow-empty", "--message", "Change nothing")
    else:
        repository.commit(hours=affected.HOURS)
    assert repository.changed() == {"mxnet", "models"}


@pytest.mark.parametrize(
    ("path", "old", "new", "parts"),
    [
        ("pyproject.toml", '"duckdb>=', '"duckdb>1,>=', PARTS),  # a requirement
        ("pyproject.toml", "timeout = 900", "timeout = 901", PARTS),  # an option of pytest
        ("pyproject.toml", "strict = true", "strict = false", set()),  # an option of mypy
        ("Makefile", "$(TESTS_SPARK)\n", "$(TESTS_SPARK) --verbose\n", {"spark"}),
        ("Makefile", "PACKAGES_MXNET := mxnet", "PACKAGES_MXNET := mxnet another", {"mxnet", "models"}),
        ("Makefile", "mkdocs build", "mkdocs build --verbose", set()),
        (".ci/run", "", "make", PARTS),
        (".ci/release_check.py", "", "0", set()),
        ("a_new_file", "", "0", PARTS),
    ],
)
def test_changed_settings_run_the_parts_that_they_may_break(
    path: str, old: str, new: str, parts: set[str], repository: Repository
) -> None:
    text = (repository.root / path).read_text() if old else ""
    assert old in text
    repository.write(path, text.replace(old, new))
    repository.commit(hours=affected.HOURS)
    assert repository.changed() == parts


def test_three_commits_in_a_row_give_each_part_its_turn(repository: Repository) -> None:
    turns = []
    for _ in range(affected.TURNS):
        repository.commit(hours=affected.HOURS)
        turns.append({part for part, (runs, _) in repository.choose().items() if runs})
    assert set().union(*turns) == PARTS
    assert sum(map(len, turns)) == len(PARTS)


def test_all_parts_run_where_it_is_asked_for() -> None:
    variables = {**os.environ, "CI_ALL": "1"}
    command = [sys.executable, ROOT / ".ci" / "affected.py", "--names"]
    printed = subprocess.run(command, env=variables, capture_output=True, text=True, check=True)
    assert printed.stdout.split() == list(affected.PARTS)
    assert all(f"test-{part}" in printed.stderr for part in PARTS)
