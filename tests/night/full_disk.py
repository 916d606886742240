"""A disk that fills before or while a job saves, and empties again: nothing that was published is lost."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random

from night.finder import CannotRun, always

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "processes"))
from plain_job import OFF, check, finished

STEPS = 8
"""Of a session."""
FILLING = f"""
    import json

    STEPS = {STEPS}

    ballast = pathlib.Path("disk/ballast")

    def fill(free):
        "Fill the disk, and then leave so many bytes free."
        left = os.statvfs("disk")
        left = left.f_bavail * left.f_frsize - free
        ballast.write_bytes(bytes(max(left, 0)))

    promised = {{}}
    offs = 0
    for session, (full_from, free) in enumerate(json.loads(os.environ["SESSIONS"])):
        hook = None
        for index in range(STEPS):
            if index == full_from:
                fill(free)
            if hook is None:
                hook = Hook(url, resume=True)
            if published(hook, session, index):
                promised[session] = index
        offs += not hook.recorder.active
        hook.close()
        ballast.unlink()
    print(offs, repr(promised).replace(" ", ""))
"""


class Disk:
    """A small file system of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def mount(self, options: str) -> bool:
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(self._folder)]
        return not subprocess.run(command, capture_output=True).returncode

    def unmount(self) -> None:
        subprocess.run(["umount", "-l", str(self._folder)], check=True)


def fill_again_and_again(folder: Path, sessions: Sequence[tuple[int, int]]) -> tuple[int, dict[int, int]]:
    """Save in sessions, each on a disk that fills, and check the run.

    Args:
        folder: The disk is mounted in it, at "disk".
        sessions: Of each the step before which the disk fills, and the bytes that are left free.

    Returns:
        How many hooks turned themselves off, and the last step that was published, by session.
    """
    code, lines, err = finished(FILLING, folder, SESSIONS=json.dumps(sessions))
    assert code == 0, err
    offs, promised = int(lines[0]), ast.literal_eval(lines[1])
    assert err.count(OFF) >= offs  # a hook may fail as it closes
    check(folder, promised)
    return offs, promised


def _case(random: Random, own: Path) -> Counter[str]:
    (own / "disk").mkdir()
    disk = Disk(own / "disk")
    if not disk.mount("size=8m"):
        raise CannotRun("mounting a tmpfs is not permitted here")
    try:
        # The last session publishes its first step at least.
        begins = [*(random.randrange(STEPS) for _ in range(random.randrange(20))), random.randrange(1, STEPS)]
        sessions = [(full_from, 4096 * random.randrange(37)) for full_from in begins]
        offs, _ = fill_again_and_again(own, sessions)
    finally:
        disk.unmount()
    return Counter({"sessions": len(sessions), "hooks that turned off": offs})


prepared = always(_case)
