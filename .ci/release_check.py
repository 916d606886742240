"""Check what would be released.

The version is the same everywhere, the changelog describes it, and the wheel works in a new environment with nothing
but its dependencies:

python .ci/release_check.py dist
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]

# Makes a run, reads it, and imports each public name that needs no framework.
TRIAL = """
import tensortrial, tensortrial.errors, tensortrial.rules
from tensortrial.importers.csv import import_run

for module in (tensortrial, tensortrial.rules):
    for name in module.__all__:
        getattr(module, name)
open("log.csv", "w").write("step,loss\\n0,2.5\\n10,1.5\\n")
import_run("log.csv", "run", step="step")
trial = tensortrial.create_trial("run")
assert [float(value) for value in trial.tensor("loss").values().values()] == [2.5, 1.5]
assert trial.sql("select max(value) from scalars").fetchall() == [(2.5,)]
print(tensortrial.__version__)
"""


def main(folder: str) -> int:
    """Check the files in `folder`, and return the exit status."""
    version = find_version("tensorstore/version.py", r'^__version__ = "(.+)"$')
    problems = [
        *check_citation(version),
        *check_changelog(version),
        *check_wheel(Path(folder), version),
    ]
    for problem in problems:
        print(f"release-check: {problem}", file=sys.stderr)
    if not problems:
        print(f"{version} can be released. See CONTRIBUTING.md, Release, for the last steps.")
    return 1 if problems else 0


def find_version(name: str, line: str) -> str:
    """Return the version that a line of a file states."""
    match = re.search(line, (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE)
    return match[1] if match else "nothing"


def check_citation(version: str) -> list[str]:
    """Return a sentence if CITATION.cff has another version. The build reads that of tensorstore/version.py."""
    cited = find_version("CITATION.cff", r"^version: (.+)$")
    return [] if cited == version else [f"CITATION.cff says version {cited}, tensorstore/version.py says {version}"]


def check_changelog(version: str) -> list[str]:
    """Return what the first section of the changelog lacks."""
    sections = re.split(r"^## ", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    heading, _, text = sections[1].partition("\n")
    if heading.split()[0] != version:
        return [f"the first section of CHANGELOG.md is {heading!r}; add one for {version}"]
    if "- " not in text:
        return [f"the section {heading!r} of CHANGELOG.md is empty"]
    if "unreleased" in heading:
        print(f"Before the tag: replace '(unreleased)' by the date in the heading {heading!r} of CHANGELOG.md.")
    return []


def check_wheel(folder: Path, version: str) -> list[str]:
    """Install the wheel into a new environment, and return what does not work there."""
    wheels = list(folder.glob(f"tensortrial-{version}-*.whl"))
    if len(wheels) != 1 or not (folder / f"tensortrial-{version}.tar.gz").exists():
        return [f"{folder} must hold one wheel and one source distribution of {version}: run `make dist`"]
    with tempfile.TemporaryDirectory() as name:
        python = Path(name) / "venv" / "bin" / "python"
        steps = [
            [sys.executable, "-m", "venv", Path(name) / "venv"],
            [python, "-m", "pip", "install", "--quiet", f"{wheels[0].resolve()}[ui]"],
            [python, "-m", "pip", "check"],
            [python, "-c", TRIAL],
            [python.with_name("tensortrial"), "info", "run"],
        ]
        for step in steps:
            done = subprocess.run([str(part) for part in step], cwd=name, capture_output=True, text=True)
            if done.returncode:
                return [f"in a new environment, {' '.join(map(str, step[:4]))} failed:\n{done.stdout}{done.stderr}"]
    return []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
