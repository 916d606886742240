"""Environment variables that turn something on or off take the same words."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tensortrial import Run, create_trial
from tensortrial.errors import ConfigurationError, UnsupportedValue

ON, OFF = ("1", "true", "Yes", " ON "), ("0", "false", "No", "OFF")


def saved(folder: Path) -> bool:
    with Run(folder) as run, run.step(0):
        run.log({"loss": 1.0})
    return folder.exists()


@pytest.mark.parametrize("variable", ["TENSORTRIAL", "USE_SMDEBUG"])
@pytest.mark.parametrize("word", [*ON, "", *OFF])
def test_a_word_turns_hooks_on_or_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, word: str
) -> None:
    monkeypatch.setenv(variable, word)
    assert saved(tmp_path / "run") is (word not in OFF)


@pytest.mark.parametrize("word", [*ON, "", *OFF])
def test_a_word_turns_strict_mode_on_or_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str) -> None:
    monkeypatch.setenv("TENSORTRIAL_STRICT", word)
    with Run(tmp_path / "run") as run, run.step(0):
        run.log({"loss": 1.0})
        if word in ON:
            with pytest.raises(UnsupportedValue, match="a scalar must be a number"):
                run.log({"words": "none"})
        else:
            run.log({"words": "none"})
    assert create_trial(tmp_path / "run").tensor_names() == ["loss"]


@pytest.mark.parametrize("variable", ["TENSORTRIAL", "USE_SMDEBUG", "TENSORTRIAL_STRICT", "TENSORTRIAL_FORCE"])
def test_another_word_is_an_error_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "of")
    with pytest.raises(ConfigurationError, match=f"{variable} must be 1, true, yes or on, .* got 'of'"):
        Run(tmp_path / "run")
    assert os.listdir(tmp_path) == []
