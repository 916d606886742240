"""The command line in a terminal and outside of one: completion by a shell, progress bars, and paths with mistakes."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import subprocess
import sys
import termios
from contextlib import chdir
from pathlib import Path

import numpy as np
import pytest

import tensortrial
from support.commands import run_command
from support.runs import TRAIN, Job
from tensortrial.cli import main

PROGRAM = "import sys; from tensortrial.cli import main; sys.exit(main(prog_name='tensortrial'))"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the run `good`, of many small index files."""
    place = tmp_path_factory.mktemp("terminal")
    with Job(place / "good") as job:
        for step in range(8):
            job.publish({"loss": 1.0, "w": np.full(3, np.nan if step == 7 else 1.0)}, TRAIN, statistics=("l2",))
    return place


def in_terminal(place: Path, *arguments: str, columns: int = 100, before: str = "") -> bytes:
    """Return what a command writes to a terminal, after a statement."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, columns))
    process = subprocess.Popen(
        [sys.executable, "-c", f"from tensortrial import progress\n{before}\n{PROGRAM}", *arguments],
        cwd=place,
        env={**os.environ, "COLUMNS": str(columns), "TERM": "dumb"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    written = b""
    try:
        while part := os.read(ours, 65536):
            written += part
    except OSError:
        pass  # Linux: the terminal has no other end any more
    finally:
        os.close(ours)
    process.wait(timeout=60)
    assert b"Traceback" not in written, written.decode()
    return written.replace(b"\r\n", b"\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ("ls", "."),
        ("info", "*"),
        ("show", "good"),
        ("names", "good"),
        ("steps", "good"),
        ("follow", "good", "-n", "1"),
        ("sql", "good", "from steps"),
        ("query", "good", "losses"),
        ("watch", "good", "--rule", "ExplodingTensor", "--no-record"),
        ("verify", "good"),
        ("compare", "good", "good"),
        ("export", "good", "csv:exported"),
        ("compact", "copy", "--delete-older-than", "0"),
        ("repair", "good"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_no_command_overwrites_lines_of_a_file(
    place: Path, capfdbinary: pytest.CaptureFixture[bytes], arguments: tuple[str, ...]
) -> None:
    shutil.rmtree(place / "copy", ignore_errors=True)
    if "copy" in arguments:
        shutil.copytree(place / "good", place / "copy")
    # Not by `run_command`, because libraries in C write to the descriptors.
    with chdir(place), pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code in (0, 1)
    written = b"".join(capfdbinary.readouterr())
    assert written
    assert b"\r" not in written
    assert b"\x1b" not in written


def lines_of(place: Path, *arguments: str) -> list[str]:
    """Return the lines that a command writes to a terminal of 80 columns."""
    written = in_terminal(place, *arguments, columns=80).decode()
    return [line.strip() for line in re.sub("\x1b\\[[0-9;]*m", "", written).splitlines() if line.strip()]


def test_ls_prints_a_line_a_run_in_80_columns(tmp_path: Path) -> None:
    names = [f"lr=0.0002-adamw-seed-{number:03d}" for number in range(3)]
    for name in names:
        with Job(tmp_path / name) as job:
            job.step({"loss": 1.0})
    assert [line.split()[0] for line in lines_of(tmp_path, "ls", ".")[2:]] == names


def test_no_binary_rows_are_written_to_a_terminal(place: Path) -> None:
    for form in ("parquet", "arrow"):
        assert f"Error: {form} is no text for a terminal".encode() in in_terminal(place, "ls", ".", "--format", form)


def test_show_prints_a_line_a_scalar_in_80_columns(tmp_path: Path) -> None:
    names = ["loss", "train/cross_entropy_of_decoder"]
    with Job(tmp_path / "run") as job:
        for step in range(60):
            job.step(dict.fromkeys(names, -1234567.0 if step < 59 else float("nan")), TRAIN)
    _, _, _, *rows = lines_of(tmp_path, "show", "run", "--worst", "0")
    assert [row.split()[:2] + row.split()[-2:] for row in rows] == [
        [name, "TRAIN", "-1.235e+06", "nan"] for name in names
    ]
    for row in rows:
        line = row.split()[2]
        assert len(line) >= 8
        assert line[:-1] == "▁" * (len(line) - 1)
        assert line.endswith("!")


@pytest.fixture(scope="module")
def long_names(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two runs whose names, and the names of whose tensors, are long."""
    place = tmp_path_factory.mktemp("long")
    tensors = [f"model.decoder.layers.{layer}.self_attn.q_proj.lora_A.default.weight" for layer in (1, 11)]
    scalar = "train/a/long/group/of/losses/cross_entropy_of_the_decoder"
    for name, factor in (("fine-tuning-of-a-model-with-a-long-name-lr=0.001", 1.0), ("other", 2.0)):
        with Job(place / name) as job:
            for step in range(60):
                weight = np.full(4, factor * (1 + step) * 123456.0)
                job.step({scalar: -weight[0], **dict.fromkeys(tensors, weight)}, TRAIN, statistics=("l2",))
    return place


@pytest.mark.parametrize(
    ("arguments", "numbers"),
    [
        (["ls", "."], ["60", "00:00"]),
        (["info", "RUN"], ["0-59"]),
        (["show", "RUN"], ["-1.235e+05", "-7.407e+06", "7.531e+06", "1.481e+07"]),
        (["sql", "RUN", "from scalars select name, mode_step, value"], ["-7.40736e+06"]),
        (["query", "RUN", "step_times"], ["59"]),
        (["compare", "RUN", "other"], ["max"]),
        (["query"], ["losses"]),
    ],
    ids=lambda value: value[0],
)
def test_a_table_of_long_names_fits_80_columns_with_whole_numbers(
    long_names: Path, arguments: list[str], numbers: list[str]
) -> None:
    run = next(path.name for path in long_names.iterdir() if path.name != "other")
    lines = lines_of(long_names, *(run if each == "RUN" else each for each in arguments))
    table = lines[next(number for number, line in enumerate(lines) if set(line) == {"─"}) :]
    assert max(map(len, table)) <= 80
    assert not [line for line in lines if line.startswith("row 1 ")]
    cells = {cell for line in lines for cell in line.split()}
    assert set(numbers) <= cells


def test_info_folds_long_metadata_in_a_terminal_and_pads_no_line_of_a_file(tmp_path: Path) -> None:
    metadata = {"path": "/data/" + "x" * 150, "widths": list(range(60)), "after": "the end"}
    with tensortrial.Run(tmp_path / "run", environment=False, metadata=metadata) as run:
        run.log({"loss": 1.0}, step=0)
    lines = in_terminal(tmp_path, "info", "run", columns=80).decode().splitlines()
    assert max(map(len, lines)) <= 80
    assert json.dumps(metadata).replace(" ", "") in "".join("".join(lines).split())
    in_file = run_command("info", "run", cwd=tmp_path).stdout
    assert f"metadata      {json.dumps(metadata)}\n" in in_file
    assert "state         ended\n" in in_file


def test_a_command_that_takes_long_shows_a_bar_in_a_terminal(place: Path) -> None:
    pytest.importorskip("tqdm")
    assert b"\r" in in_terminal(place, "verify", "good", before="progress.DELAY_SECONDS = 0.0")
    assert b"\r" not in in_terminal(place, "verify", "good", before="progress.DELAY_SECONDS = 3600.0")


def test_mv_that_takes_long_says_so_in_a_terminal(place: Path) -> None:
    at_once = "import os, threading; os.environ['TERM'] = 'xterm'; threading.Timer.start = lambda it: it.function()"
    assert "moving good …" in in_terminal(place, "mv", "good", "kept", before=at_once).decode()
    assert b"moving" not in in_terminal(place, "mv", "kept", "good")


def test_show_says_that_the_last_value_is_not_finite(place: Path) -> None:
    assert "the last value is nan" in run_command("show", place / "good").stdout


@pytest.mark.parametrize(
    "command",
    ["info", "show", "names", "steps", "follow", "note", "verify", "repair", "compact", "compare", "compare good"],
)
def test_a_mistyped_path_names_the_run_next_to_it(place: Path, command: str) -> None:
    done = run_command(*command.split(), "goood", status=None, cwd=place)
    assert done.returncode
    assert "no run was found here; did you mean 'good'?" in done.stderr


@pytest.mark.parametrize("command", ["ls", "page", "report"])
def test_a_command_of_many_runs_says_that_there_is_none(place: Path, command: str) -> None:
    pytest.importorskip("starlette")
    done = run_command(command, "goood", status=None, cwd=place)
    assert done.returncode
    assert "there is no run here" in done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_a_shell_completes_commands_runs_queries_and_rules(place: Path, tmp_path: Path, shell: str) -> None:
    pexpect = pytest.importorskip("pexpect")
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    program = tmp_path / "tensortrial"
    program.write_text(f"#!{sys.executable}\n{PROGRAM}\n")
    program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "TERM": "dumb", "HOME": str(tmp_path)}
    flags = {"bash": ["--norc", "-i"], "zsh": ["-f", "-i"]}[shell]
    terminal = pexpect.spawn(shell, flags, env=environment, cwd=str(place), encoding="utf8", timeout=60)
    try:
        prepare = "autoload -U compinit; compinit -u; " if shell == "zsh" else ""
        terminal.sendline(f'{prepare}eval "$(_TENSORTRIAL_COMPLETE={shell}_source tensortrial)"; echo REA""DY')
        terminal.expect_exact("READY")
        for typed, expected in [
            ("tensortrial nam", "names "),
            ("tensortrial info goo", "info good/"),
            ("tensortrial query good dead_l", "dead_layers"),
            ("tensortrial watch good --rule Vanish", "VanishingGradient"),
        ]:
            terminal.send(f"{typed}\t")
            terminal.expect_exact(expected)
            terminal.send("\x15")  # Ctrl-U: delete the line
    finally:
        terminal.close(force=True)


@pytest.mark.parametrize(
    ("status", "arguments"),
    [
        (1, ["names", "good"]),
        (1, ["--help"]),
        (1, ["--version"]),
        # With these, 1 says that something was found.
        (2, ["compare", "good", "good"]),
        (2, ["diagnose", "good"]),
        (2, ["verify", "good"]),
        (2, ["report", "good", "--output", "good.html"]),
    ],
    ids=str,
)
def test_a_full_disk_under_the_output_is_an_error_of_one_line(place: Path, status: int, arguments: list[str]) -> None:
    with open("/dev/full", "wb") as full:
        command = [sys.executable, "-c", PROGRAM, *arguments]
        done = subprocess.run(command, cwd=place, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == status
    *_, error = done.stderr.splitlines()
    assert error == "Error: the output cannot be written: No space left on device"
    assert "Traceback" not in done.stderr


def test_rm_without_standard_input_asks_nobody(place: Path) -> None:
    command = ["sh", "-c", 'exec "$0" -m tensortrial rm good <&-', sys.executable]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (
        2,
        "Error: there is no terminal to ask on; pass --yes to delete without a question",
    )


@pytest.mark.parametrize("streams", [">&-", ">&- 2>&-"])
def test_a_command_whose_output_was_closed_before_it_began_runs(place: Path, streams: str) -> None:
    command = f'exec "$0" -m tensortrial sql good "select 1 as one" --format csv --output one.csv {streams}'
    assert subprocess.run(["sh", "-c", command, sys.executable], cwd=place, capture_output=True).stderr == b""
    assert (place / "one.csv").read_text().split() == ["one", "1"]
    shown = subprocess.run(["sh", "-c", f'exec "$0" -m tensortrial info good {streams}', sys.executable], cwd=place)
    assert shown.returncode == 0
