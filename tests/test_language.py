"""Words that this project replaces by the terms of its readers, and that mean nothing else here, are in no file."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
# Each word with what to write instead. Only words without another meaning, in code as in prose.
REPLACED = {
    "anew": "again, new",
    "beside": "next to",
    "for ever": "forever",
    "ladder": "layers",
    "lender": "buffer pool",
    "rung": "layer",
    "seam": "interface",
    "spoilt": "corrupt, damaged",
    "told(?! apart)": "configured, notified, passed",
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
