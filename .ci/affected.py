"""Choose which parts of the build run.

The parts of the store and of PyTorch always run. A part of another framework, an engine or a group of tools runs if a
recent change is near it, or if it is its turn:

python .ci/affected.py           prints a table of these parts: which run, which do not, and why
python .ci/affected.py --names   prints the names of those that run, and the table to stderr

Changes are recent if they came after the newest commit that is HOURS older than the last one. They are near a part in

- the commands of `make test-PART`, and tests, constraints and documents that these name;
- a package that the part is about (PARTS), and modules that no other package imports;
- a helper in tests/ that the part's tests import, directly or through other helpers;
- this folder, what pyproject.toml says of installation and pytest, and files that nothing here knows.

Nearly every module is imported by nearly every package, through others. The parts that always run test such modules.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
HOURS = 4  # a build begins at most so long after the oldest commit that no build has seen
TURNS = 3  # the number of commits says which third of the parts has its turn


@dataclass(frozen=True)
class Part:
    """A part of the build that does not always run.

    Attributes:
        turn: The group of parts that it takes turns with. Each group takes about as long.
        about: The files and folders that its tests are about.
    """

    turn: int
    about: tuple[str, ...]


def _in(folder: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{folder}/{name}" for name in names)


_TENSORFLOW = _in("hooks", "keras", "session", "tensorflow")
# Each is the target `test-NAME` of the Makefile. They begin in this order, those that take long first.
PARTS = {
    "page": Part(0, ("tensorstore/pages",)),
    "tf": Part(2, _TENSORFLOW),
    "tf215": Part(1, (*_TENSORFLOW, *_in("tests/smdebug", "jobs/keras_job.py", "programs/tensorflow"))),
    "emulators": Part(2, ("queries/named", *_in("tensorstore/exports/targets", "bigquery.py", "snowflake.py"))),
    "models": Part(
        0,
        (
            "examples",
            *_in("hooks", "accelerate", "catboost", "jax", "keras", "lightgbm"),
            *_in("hooks", "lightning", "mxnet", "pytorch", "transformers"),
        ),
    ),
    "spark": Part(1, ("queries", "tensorstore/engines/spark.py")),
    "trackers": Part(
        1,
        (
            *_in("hooks", "hydra", "ignite", "nvdlfw_inspect", "torchtitan"),
            *_in("tensorstore/importers", "aim", "mlflow", "trackio.py", "wandb"),
        ),
    ),
    "horovod": Part(0, ("constraints/tf215.txt", "hooks/session")),
    "mxnet": Part(2, ("hooks/mxnet", *_in("tests/smdebug", "jobs/gluon_job.py", "programs/mxnet"))),
}

# A change of these is near every part; so is one of a file that is in no place that is known here.
_SETTINGS = re.compile(r"\.ci/(?!release_check).*")
_KNOWN = re.compile(
    r"(benchmarks|constraints|docs|examples|hooks|queries|tensorstore|tests|\.ci|\.github)/.*"
    r"|\w+\.md|CITATION\.cff|LICENSE|MANIFEST\.in|Makefile|mkdocs\.yml|pyproject\.toml|\.gitignore|\.pre-commit-config\.yaml"
)
# The import name of each folder's modules (see setup.py); tests/ itself is on the path.
_IMPORTED_AS = {
    "tensorstore": ("tensortrial",),
    "hooks": ("tensortrial", "hooks"),
    "queries": ("tensortrial", "queries"),
    "tests": (),
}

_IMPORT = re.compile(r"^\s*(?:from +(\.*)([\w.]*) +import +(\([^)]*\)|.+)|import +(.+))", re.MULTILINE)
_ASIDE = re.compile(r"#.*| as \w+")
_PROGRAM = re.compile(r"\w+\.py\b")


class Tree:
    """The files of a repository, what they import, and what changed in them lately."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.files = self.run("git", "ls-files").splitlines()
        python = [path for path in self.files if path.endswith(".py")]
        self.modules = {".".join(_dotted(path)).removesuffix(".__init__"): path for path in python}
        self.programs = {PurePosixPath(path).name: path for path in python if path.startswith("tests/")}

    def run(self, *command: str, text: str = "", check: bool = True) -> str:
        """Return what a command prints, given `text`; nothing if it fails and `check` is false."""
        done = subprocess.run(command, cwd=self.root, input=text, stdout=subprocess.PIPE, text=True, check=check)
        return "" if done.returncode else done.stdout

    @cached_property
    def base(self) -> str:
        """The newest commit that is HOURS older than the last one; empty if there is none."""
        begin = int(self.run("git", "log", "-1", "--format=%ct")) - HOURS * 3600
        return self.run("git", "rev-list", "--max-count=1", f"--before={begin}", "HEAD").strip()

    @cached_property
    def changed(self) -> list[str]:
        """The files that changed since the base, in commits or after them."""
        return self.run("git", "diff", "--name-only", "--no-renames", self.base).splitlines()

    @cached_property
    def commits(self) -> int:
        """The number of commits."""
        return int(self.run("git", "rev-list", "--count", "HEAD"))

    def text(self, path: str, commit: str = "") -> str:
        """Return what a file contains today, or contained at a commit, where it may be missing."""
        if commit:
            return self.run("git", "show", f"{commit}:{path}", check=False)
        return (self.root / path).read_text(encoding="utf-8")

    def recipe(self, part: str, commit: str = "") -> str:
        """Return the commands by which `make` tests a part in an empty clone, today or at a commit."""
        command = ("make", "-f", "-", "--dry-run", "--always-make", f"test-{part}")
        return self.run(*command, text=self.text("Makefile", commit), check=not commit)

    def installed(self, commit: str = "") -> list[Any]:
        """Return what pyproject.toml says of installation and pytest, today or at a commit."""
        tables = tomllib.loads(self.text("pyproject.toml", commit))
        return [tables.get("build-system"), tables.get("project"), tables.get("tool", {}).get("pytest")]

    @cached_property
    def imports(self) -> dict[str, set[str]]:
        """The files that each module imports, also by a program in a text, or starts as a program of tests/."""
        return {path: set(self._imports(path)) for path in self.modules.values()}

    def _imports(self, path: str) -> Iterator[str]:
        text = self.text(path)
        yield from (self.programs[name] for name in _PROGRAM.findall(text) if name in self.programs)
        for name in _imported(text, _dotted(path)[:-1]):
            module = self.modules.get(name) or self.modules.get(name.rpartition(".")[0])
            if module not in (None, path):
                yield module

    @cached_property
    def importers(self) -> dict[str, set[str]]:
        """The modules that import each module of the product."""
        importers: dict[str, set[str]] = {}
        for path, imported in self.imports.items():
            for each in imported:
                if not each.startswith("tests/"):
                    importers.setdefault(each, set()).add(path)
        return importers

    def near(self, part: str) -> set[str]:
        """Return the files and folders that are near a part."""
        recipe = self.recipe(part)
        # Of tests/test_docs.py, a part runs the tests of its pages.
        places = {*PARTS[part].about, *re.findall(r"(?:constraints|tests)/[\w./-]+\w(?!\S*::)", recipe)}
        places |= {f"docs/{page}" for page in re.findall(r"\[([\w-]+\.md)\]", recipe)}
        found = {path for path in self.files if _within(path, places)}
        folders = {folder for path in found for folder in PurePosixPath(path).parents}
        found |= {
            path for path in self.files if path.endswith("/conftest.py") and PurePosixPath(path).parent in folders
        }
        near = set(found)
        while found:
            helpers = {each for path in found if path.startswith("tests/") for each in self.imports.get(path, ())}
            found = {path for path in helpers if path.startswith("tests/")} - near
            found |= {path for path, importers in self.importers.items() if importers <= near} - near
            near |= found
        return near | places


def choose(tree: Tree, everything: bool = False) -> dict[str, tuple[bool, str]]:
    """Return for each part whether it runs, and why."""
    if everything:
        return dict.fromkeys(PARTS, (True, "CI_ALL is set"))
    if not tree.base:
        return dict.fromkeys(PARTS, (True, f"no commit is {HOURS} hours older than the last"))
    for path in tree.changed:
        if not _KNOWN.fullmatch(path):
            return dict.fromkeys(PARTS, (True, f"{path} changed, which .ci/affected.py does not know"))
        if _SETTINGS.fullmatch(path) or (path == "pyproject.toml" and tree.installed() != tree.installed(tree.base)):
            return dict.fromkeys(PARTS, (True, f"{path} changed"))
    return {part: _choose(tree, part) for part in PARTS}


def _choose(tree: Tree, part: str) -> tuple[bool, str]:
    near = tree.near(part)
    changed = [path for path in tree.changed if _within(path, near)]
    if changed:
        return True, f"{changed[0]} changed" + (f", and {len(changed) - 1} more near it" if changed[1:] else "")
    if "Makefile" in tree.changed and tree.recipe(part) != tree.recipe(part, tree.base):
        return True, "its commands in the Makefile changed"
    if tree.commits % TURNS == PARTS[part].turn:
        return True, f"it is its turn after {tree.commits} commits"
    return False, f"no change is near it, and it is not its turn after {tree.commits} commits"


def _within(path: str, places: set[str]) -> bool:
    """Return whether a file is one of some files, or in one of some folders."""
    return path in places or any(str(folder) in places for folder in PurePosixPath(path).parents)


def _dotted(path: str) -> tuple[str, ...]:
    """Return the name that a file is imported by, in parts."""
    first, *others = PurePosixPath(path).with_suffix("").parts
    return (*_IMPORTED_AS.get(first, (first,)), *others)


def _imported(text: str, package: tuple[str, ...]) -> Iterator[str]:
    """Yield the names that a module of a package imports, each with its module."""
    for dots, module, names, modules in _IMPORT.findall(text):
        yield from re.findall(r"[\w.]+", _ASIDE.sub("", modules))
        above = package[: len(package) - len(dots) + 1] if dots else ()
        for name in re.findall(r"\w+", _ASIDE.sub("", names)):
            yield ".".join([*above, *([module] if module else []), name])


def main(arguments: list[str]) -> int:
    """Print the choice, and return the exit status."""
    tree = Tree(ROOT)
    chosen = choose(tree, everything=bool(os.environ.get("CI_ALL")))
    names = arguments == ["--names"]
    for part, (runs, why) in chosen.items():
        row = f"test-{part:<10} {'runs' if runs else 'is left out':<12} {why}"
        print(row, file=sys.stderr if names else sys.stdout)
    if names:
        print(*(part for part, (runs, _) in chosen.items() if runs))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
