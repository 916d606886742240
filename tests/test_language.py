"""The language of the files: no word that has a plainer one, and docstrings that nobody has to read twice.

SEED=7 pytest -s tests/test_language.py prints a hundred docstrings to a reader, others for each seed.
"""

from __future__ import annotations

import ast
import os
import random
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
# Each word with what to write instead. Only words without another meaning, in code as in prose.
REPLACED = {
    "anew": "again, new",
    "awaited": "pending",
    "behaviour": "behavior",
    "beside": "next to",
    "centred": "centered",
    "colour(?:s|ed)?": "color",
    "for ever": "forever",
    "foresee": "plan ahead",
    "grey": "gray",
    "initialise(?:d|s)?": "initialize",
    "labelled": "labeled",
    "ladder": "layers",
    "lender": "buffer pool",
    "recognise(?:d|s)?": "recognize",
    "rung": "layer",
    "seam": "interface",
    "settle(?:d|s)?": "finalize",
    "spoilt": "corrupt, damaged",
    "told(?! apart)": "configured, notified, passed",
    "turn_to": "select",
    "unheard": "skipped, missed",
    "whoever": "the process that, no matter who",
}
_REPLACED = re.compile(rf"\b({'|'.join(REPLACED)})\b", re.IGNORECASE)
_LETTERS = [word.partition("(")[0] for word in REPLACED]


def test_no_file_uses_a_word_that_has_a_plainer_one() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "*.py", "*.sql", "*.md"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip("this is no clone of the repository")
    paths = {ROOT / name for name in listed.stdout.split("\0") if name} - {Path(__file__).resolve()}
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in sorted(paths)
        if path.exists() and _may_use_one(text := path.read_text())
        for number, line in enumerate(text.splitlines(), 1)
        if _REPLACED.search(line)
    ]
    assert not found, f"write other words than {', '.join(REPLACED)}:\n" + "\n".join(found)


def _may_use_one(text: str) -> bool:
    """Return whether a text has the letters of a word, which is found a hundred times as quickly as the word."""
    lowered = text.lower()
    return any(letters in lowered for letters in _LETTERS)


# A relative clause without its noun, or a pronoun for what the name says.
_FRAGMENT = re.compile(
    r"(What|Whether|Which|Who|Whose|How|Where|When|Why|Those|These|That|Its?|They|Of|From|As|One of)\b", re.IGNORECASE
)


def docstrings() -> Iterator[tuple[str, str]]:
    """Yield the place and the text of each docstring, also of attributes."""
    for folder in ("hooks", "queries", "tensorstore"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                    text = node.value.value
                    if isinstance(text, str):
                        yield f"{path.relative_to(ROOT)}:{node.lineno}", text


def test_docstrings_begin_with_a_verb_or_a_noun() -> None:
    found = [f"{place}: {text.splitlines()[0]}" for place, text in docstrings() if _FRAGMENT.match(text.strip())]
    assert not found, 'write "Return …", "True if …" or "The steps of …":\n' + "\n".join(found)


def test_a_reader_may_read_a_hundred_docstrings() -> None:
    drawn = random.Random(int(os.environ.get("SEED", "1"))).sample(list(docstrings()), 100)
    for place, text in drawn:
        print(f"{place}\n    {text.strip()}\n")
    unfinished = [place for place, text in drawn if text.strip().partition("\n\n")[0][-1] not in ".:`)|"]
    assert not unfinished, "the first paragraph is no whole sentence"
