"""The numbers of the newest steps, as a hook returns them."""

from __future__ import annotations

from pathlib import Path

from support.plain_hook import Hook
from tensortrial.mode import modes


def test_mode_steps_are_the_newest_of_each_mode_and_over_all(tmp_path: Path) -> None:
    hook = Hook(str(tmp_path / "run"))
    assert hook.mode_steps == {modes.GLOBAL: -1}
    hook.set_mode(modes.TRAIN)
    hook.recorder.begin_step()
    hook.recorder.begin_step()
    hook.set_mode(modes.EVAL)
    assert hook.mode_steps == {modes.TRAIN: 1, modes.GLOBAL: 1}
    hook.recorder.begin_step()
    assert hook.mode_steps == {modes.TRAIN: 1, modes.EVAL: 0, modes.GLOBAL: 2}
    hook.close()
