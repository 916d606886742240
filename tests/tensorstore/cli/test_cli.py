"""The command line: what its commands print, and their status."""

from __future__ import annotations

import errno
import io
import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from support.commands import run_command
from support.file_access import before
from support.permissions import bound_by_modes
from support.runs import Job
from tensortrial.cli import main
from tensortrial.cli.console import print_table
from tensortrial.format.record import Plan, Record, Step
from tensortrial.format.schema import RunInfo, WorkerInfo
from tensortrial.hooks.plain import Run
from tensortrial.mode import ModeKeys
from tensortrial.storage.open import open_storage
from tensortrial.write.claim import claim
from tensortrial.write.writer import Writer


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of five TRAIN steps, every tenth, and one EVAL step."""
    storage = open_storage(tmp_path / "run")
    worker = WorkerInfo("worker_0", 1, "2026-01-01", [{"name": "weights"}])
    claim(storage, RunInfo("2026-01-01T00:00:00+00:00", "none", id="a"), worker)
    writer = Writer(storage, "worker_0")
    weight, loss = Plan("net.weight", ("weights",), True, ("l2",)), Plan("loss", (), True)
    for number in range(5):
        records = [Record(weight, np.full(3, number, np.float32), 0), Record(loss, float(number), 0)]
        writer.put(Step(ModeKeys.TRAIN, 10 * number, number), records, closes=True)
    writer.put(Step(ModeKeys.EVAL, 0, 5), [Record(loss, 0.5, 0)], closes=True)
    writer.close()
    return tmp_path / "run"


def test_the_program_prints_what_its_command_does(run: Path) -> None:
    program = [sys.executable, "-m", "tensortrial"]
    done = subprocess.run([*program, "info", str(run)], capture_output=True, text=True, timeout=60)
    called = run_command("info", run)
    assert (done.returncode, done.stdout, done.stderr) == (0, called.stdout, called.stderr)
    done = subprocess.run([*program, "names", str(run), "--regex", "("], capture_output=True, text=True, timeout=60)
    called = run_command("names", run, "--regex", "(", status=1)
    assert (done.returncode, done.stdout, done.stderr) == (1, called.stdout, called.stderr)


def test_info_describes_a_run(run: Path) -> None:
    printed = run_command("info", run).stdout
    for fact in ("ended", "worker_0", "steps TRAIN  0-40:10", "steps EVAL   0", "weights      1"):
        assert fact in printed, printed


def test_names_are_selected_by_options(run: Path) -> None:
    assert run_command("names", run).stdout.split() == ["loss", "net.weight"]
    assert run_command("names", run, "--regex", "^net").stdout.split() == ["net.weight"]
    assert run_command("names", run, "--collection", "weights").stdout.split() == ["net.weight"]
    assert run_command("names", run, "--step", 0, "--mode", "eval").stdout.split() == ["loss"]


def test_steps_are_ranges(run: Path) -> None:
    assert run_command("steps", run).stdout.split() == ["0-5"]
    assert run_command("steps", run, "--mode", "TRAIN").stdout.split() == ["0-40:10"]


def test_sql_prints_a_table_csv_or_json(run: Path) -> None:
    query = "select name, count(*) as n, max(value) as top from scalars group by name"
    assert "loss" in run_command("sql", run, query).stdout
    assert run_command("sql", run, query, "--format", "csv").stdout.split() == ["name,n,top", "loss,6,4.0"]
    assert json.loads(run_command("sql", run, query, "--format", "json").stdout) == {"name": "loss", "n": 6, "top": 4.0}


def test_sql_prints_values_as_programs_read_them(run: Path) -> None:
    query = "select true as a, [1, 2] as b, 'nan'::double as c, '\\x01'::blob as d, 1.5 as e, null as f"
    query += ", timestamptz '2026-01-31 12:00:00+09' as g"
    found = json.loads(run_command("sql", run, query, "--format", "json").stdout)
    assert found == {
        "a": True,
        "b": [1, 2],
        "c": "nan",
        "d": "01",
        "e": 1.5,
        "f": None,
        "g": "2026-01-31T03:00:00+00:00",
    }
    assert run_command("sql", run, query, "--format", "csv").stdout == (
        'a,b,c,d,e,f,g\ntrue,"[1, 2]",nan,01,1.5,,2026-01-31 03:00:00+00:00\n'
    )


@pytest.mark.parametrize("guard", [[], ["--guard-formulas"]])
def test_sql_tells_an_empty_text_from_null_in_csv(run: Path, guard: list[str]) -> None:
    rows = "(null, '', 'a'), ('', null, 'b,\"c\"'), (''::blob::text, concat('d', chr(13)), chr(10))"
    query = f'from (values {rows}) as rows(a, b, "c,d")'
    expected = 'a,b,"c,d"\n,"",a\n"",,"b,""c"""\n"","d\r","\n"\n'
    assert run_command("sql", run, query, "--format", "csv", *guard).stdout == expected
    assert run_command("sql", run, "from (values (null), ('')) as rows(a)", "--format", "csv").stdout == 'a\n\n""\n'


def test_sql_prints_columns_of_equal_names_as_distinct_keys_of_json(run: Path) -> None:
    found = json.loads(run_command("sql", run, "select 1 as a, 2 as a_1, 3 as a, 4 as a", "--format", "json").stdout)
    assert found == {"a": 1, "a_1": 2, "a_2": 3, "a_3": 4}


def test_the_suffix_of_output_is_the_format_unless_an_option_says_otherwise(run: Path, tmp_path: Path) -> None:
    for name, expected in (("a.csv", "a\n1\n"), ("a.json", '{"a": 1}\n'), ("a", None)):
        run_command("sql", run, "select 1 as a", "--output", tmp_path / name)
        assert (tmp_path / name).read_text() == (expected or run_command("sql", run, "select 1 as a").stdout)
    run_command("sql", run, "select 1 as a", "--output", tmp_path / "a.csv", "--format", "parquet")
    assert pq.read_table(tmp_path / "a.csv").to_pylist() == [{"a": 1}]


def test_sql_that_fails_over_its_rows_leaves_the_file_as_it_was(run: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept.csv"
    kept.write_text("mine")
    done = run_command("sql", run, "select cast(name as int) from scalars", "--output", kept, status=1)
    assert done.stderr.startswith("Error: Conversion Error: Could not convert string 'loss'")
    assert kept.read_text() == "mine"


@pytest.mark.parametrize("command", [["sql", "select 1"], ["report"]])
def test_a_folder_that_is_missing_is_named_before_the_work(run: Path, tmp_path: Path, command: list[str]) -> None:
    # The run is not opened, so that its absence is not noticed.
    done = run_command(command[0], run / "no", *command[1:], "--output", tmp_path / "no/x", status=2)
    assert f"there is no folder '{tmp_path}/no' to write into" in done.stderr


@pytest.mark.parametrize("command", ["sql {run} 'from range(1000)' --format csv", "report {run} --no-diagnose"])
def test_a_file_that_cannot_be_written_whole_is_left_as_it_was(run: Path, tmp_path: Path, command: str) -> None:
    kept = tmp_path / "kept"
    kept.write_text("mine")
    # Python would also cut off the bytecode of what it imports (-B).
    program = f"ulimit -f 1; exec {sys.executable} -B -m tensortrial {command.format(run=run)} --output {kept}"
    done = subprocess.run(["sh", "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode in (1, 2)
    assert done.stderr == f"Error: {kept}: this file cannot be written: File too large\n"
    assert kept.read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept", "run"]


def test_output_replaces_a_file_and_keeps_its_permissions_and_links(run: Path, tmp_path: Path) -> None:
    kept, link = tmp_path / "kept.csv", tmp_path / "link.csv"
    kept.write_text("mine")
    kept.chmod(0o640)
    link.symlink_to(kept)
    run_command("sql", run, "select 1 as one", "--format", "csv", "--output", link)
    assert link.is_symlink()
    assert kept.read_text() == "one\n1\n"
    assert kept.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("command", ["ls", "report"])
def test_output_replaces_no_file_of_a_run(run: Path, command: str) -> None:
    before = (run / "run.json").read_bytes()
    for name in ("run.json", "stop.json", "notes.json", "index/worker=worker_0/1.parquet"):
        done = run_command(command, run, "--output", run / name, status=2 if command == "report" else 1)
        assert f"is among the files of the run {run}; choose another place" in done.stderr
    assert (run / "run.json").read_bytes() == before
    assert not (run / "stop.json").exists()
    run_command(command, run, "--output", run / "mine.html")


def test_output_goes_into_a_file_with_the_longest_name(run: Path, tmp_path: Path) -> None:
    run_command("sql", run, "select 1 as one", "--format", "csv", "--output", tmp_path / ("n" * 255))
    assert (tmp_path / ("n" * 255)).read_text() == "one\n1\n"


def test_output_goes_into_a_mount_point(run: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept.csv"
    kept.write_text("mine")

    def refuse() -> None:
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))

    with before(["publish"], kept, refuse):
        run_command("sql", run, "select 1 as one", "--format", "csv", "--output", kept)
    assert kept.read_text() == "one\n1\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept.csv", "run"]


def test_output_does_not_replace_a_read_only_file_and_is_written_in_place_in_a_read_only_folder(
    run: Path, tmp_path: Path
) -> None:
    kept = tmp_path / "folder" / "kept.csv"
    kept.parent.mkdir()
    kept.write_text("mine")
    line = ("sql", run, "select 1 as one", "--format", "csv", "--output", kept)
    kept.chmod(0o400)
    assert "Permission denied" in bound_by_modes(lambda: run_command(*line, status=None)).stderr
    assert kept.read_text() == "mine"
    kept.chmod(0o600)
    kept.parent.chmod(0o500)
    bound_by_modes(lambda: run_command(*line))
    assert kept.read_text() == "one\n1\n"


def test_output_goes_into_a_device_or_a_pipe(run: Path, tmp_path: Path) -> None:
    program = [sys.executable, "-m", "tensortrial", "sql", str(run), "select 1 as one", "--format", "csv", "--output"]
    piped = subprocess.run([*program, "/dev/stdout"], capture_output=True, text=True, timeout=60)
    assert piped.stdout == "one\n1\n"
    with open(tmp_path / "to", "w+b") as file:
        subprocess.run([*program, "/dev/stdout"], stdout=file, timeout=60, check=True)
    assert (tmp_path / "to").read_text() == "one\n1\n"


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="this system has no folder in memory")
def test_output_replaces_a_file_in_memory(run: Path) -> None:
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as before:
        before.write(b"mine")
        before.flush()
        run_command("sql", run, "select 1 as one", "--format", "csv", "--output", before.name)
        assert Path(before.name).read_text() == "one\n1\n"
        before.seek(0)
        assert before.read() == b"mine"  # a reader of the earlier file reads it to its end


@pytest.mark.parametrize(
    "query",
    [
        "from sniff_csv('/etc/passwd')",
        "select * from duckdb_secrets()",
        "from sqlite_scan('a', 'b')",
        "select current_setting('s3_secret_access_key')",
        "pivot scalars on name using sum(value)",
    ],
)
def test_sql_that_reaches_elsewhere_is_refused_in_a_sentence(run: Path, query: str) -> None:
    done = run_command("sql", run, query, status=1)
    assert "INSTALL" not in done.stderr
    assert "a query can" in done.stderr or "only one SELECT" in done.stderr


def test_a_table_that_fits_is_printed_as_rich_prints_it() -> None:
    columns, rows = ["name", "層", "b"], [["x", "", "🙂"], ["a longer cell", "ü", "1"], ["", "e\u0301", ""]]
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column)
    for row in rows:
        table.add_row(*row)
    ours, by_rich = io.StringIO(), io.StringIO()
    print_table(Console(file=ours, width=80), columns, rows)
    Console(file=by_rich, width=80).print(table)
    assert ours.getvalue() == by_rich.getvalue()


def test_a_table_too_wide_for_the_terminal_has_a_line_for_each_column() -> None:
    columns, rows = (
        [f"column_{number}" for number in range(20)],
        [[f"{row}{number}" for number in range(20)] for row in "ab"],
    )
    for width, lines in ((40, 42), (400, 6)):
        file = io.StringIO()
        print_table(Console(file=file, width=width), columns, rows)
        printed = file.getvalue()
        assert len(printed.splitlines()) == lines
        assert all(column in printed for column in columns)
    bold = io.StringIO()
    print_table(Console(file=bold, width=40, force_terminal=True, color_system="standard"), columns, rows)
    assert "\x1b[1mcolumn_7\x1b[0m   a7\n" in bold.getvalue()
    folded = io.StringIO()
    print_table(Console(file=folded, width=60), ["run", "loss"], [["x" * 100, "1"]])
    assert folded.getvalue().count("x") == 100


def test_columns_of_one_value_are_a_line_above_a_table_too_wide_for_the_terminal() -> None:
    file = io.StringIO()
    rows = [["digits", "worker_0", name, "TRAIN", "", "", "1234567.8"] for name in ("first.weight", "second.weight")]
    print_table(Console(file=file, width=50), ["run", "worker", "name", "mode", "note", "tags", "value of it"], rows)
    first, second, *table = file.getvalue().splitlines()
    assert first == "in all rows: run digits, worker worker_0, mode "  # folded at words
    assert second == "TRAIN, value of it 1234567.8; empty: note, tags"
    assert not [line for line in table if line.startswith("row 1")]


def test_a_folder_of_runs_names_them(run: Path) -> None:
    run.rename(run.parent / "my run")
    for command in ("info", "compact"):
        printed = run_command(command, run.parent, status=1).stderr
        assert f"a folder with runs; pass one of them, such as '{run.parent}/my run'\n" in printed


def test_an_empty_result_says_why(run: Path) -> None:
    assert "did you mean 'weights'?" in run_command("names", run, "--collection", "weight", status=2).stderr
    unknown = run_command("names", run, "--step", 5, "--mode", "train")
    assert (unknown.stdout, unknown.stderr) == (
        "",
        "nothing was saved at step 5 of mode TRAIN; saved steps: 0-40:10\n",
    )
    assert "no tensor matches these options; the run has 2" in run_command("names", run, "--regex", "z").stderr
    assert "no step of mode PREDICT" in run_command("steps", run, "--mode", "predict").stderr
    assert "(no rows)" in run_command("sql", run, "select 1 where false").stdout


def test_mark_ended_ends_a_run(run: Path) -> None:
    (run / "end" / "worker_0.json").unlink()
    assert "running" in run_command("info", run).stdout
    assert run_command("mark-ended", run).stdout == f"marked as ended: {run}\n"
    assert "ended" in run_command("info", run).stdout


def test_mark_ended_leaves_the_end_of_a_run_that_has_ended(run: Path) -> None:
    assert run_command("mark-ended", run).stdout == f"had ended before: {run}\n"
    assert run_command("mark-ended", run, "--worker", "worker_0").stdout == "had ended before: worker_0\n"
    assert [path.name for path in (run / "end").iterdir()] == ["worker_0.json"]


def test_mark_ended_prints_the_workers_that_it_marked_before_an_unknown_one(run: Path) -> None:
    (run / "end" / "worker_0.json").unlink()
    done = run_command("mark-ended", run, "--worker", "worker_0", "--worker", "nope", status=1)
    assert done.stdout == "marked as ended: worker_0\n"
    assert done.stderr == "Error: unknown worker 'nope'; choose one of: worker_0\n"


@pytest.mark.parametrize("worker", [[], ["--worker", "worker_0"]])
def test_mark_ended_refuses_a_run_that_a_process_writes(tmp_path: Path, worker: list[str]) -> None:
    with Run(tmp_path / "run", environment=False) as writing:
        writing.log({"loss": 1.0}, step=0)
        writing.flush()
        refused = run_command("mark-ended", tmp_path / "run", *worker, status=1)
        assert "is still alive: let it end or close its hook, or mark it as ended with --force" in refused.stderr
        assert "running" in run_command("info", tmp_path / "run").stdout
        run_command("mark-ended", tmp_path / "run", *worker, "--force")
        assert "ended" in run_command("info", tmp_path / "run").stdout


@pytest.mark.parametrize("command", ["info", "show"])
def test_a_damaged_file_is_named_once(run: Path, command: str) -> None:
    file = next(run.glob("index/*/*/*.parquet"))
    file.write_bytes(file.read_bytes()[:100])
    done = run_command(command, run)
    assert done.stderr.count(file.name) == 1
    assert command == "show" or "1: worker_0\n" in done.stdout


@pytest.mark.parametrize("worker", [[], ["--worker", "worker_0"]])
def test_mark_ended_fails_if_no_mark_can_be_stored(run: Path, worker: list[str]) -> None:
    (run / "end" / "worker_0.json").unlink()
    (run / "end").chmod(0o500)
    done = bound_by_modes(lambda: run_command("mark-ended", run, *worker, status=1))
    assert "no mark was stored" in done.stderr


@pytest.mark.parametrize(
    ("status", "arguments", "sentence"),
    [
        (1, ["info", "nowhere"], "no run was found here"),
        (1, ["sql", "RUN", "drop table x"], "only one SELECT"),
        (1, ["sql", "RUN", "select nothing from tensors"], "nothing"),
        (1, ["sql", "RUN", "select '\udcff'"], "a query must be valid UTF-8, and character 8 of it is not"),
        (1, ["names", "RUN", "--regex", "("], "is not a regular expression"),
        (2, ["info", "RUN", "--storage-option", "endpoint"], "must be KEY=VALUE, and one has no ="),
        (
            2,
            ["info", "RUN", "-o", "endpoint=x"],
            "No such option: -o; for the storage write --storage-option KEY=VALUE\n",
        ),
        (2, ["lst", "RUN"], "no such command: 'lst'; did you mean 'ls'?"),
        (2, ["nothing-like-it"], "no such command: 'nothing-like-it'\n"),
        (2, ["import", "wanbd", "a", "b"], "no such format: 'wanbd'; did you mean 'wandb'?"),
        (2, ["import", "runs/old", "b"], "no such format: 'runs/old'; it must be one of aim, csv, lightning, mlflow"),
        (2, ["info", "-my-run"], "No such option: -m; if it begins a path, write ./ before it\n"),
        (2, ["info", "--my-run"], "No such option: --my-run; if it begins a path, write ./ before it\n"),
        (2, ["info", "RUN", "--jsn"], "Did you mean '--json'?"),
        (1, ["rules", "VanishingGradints"], "VanishingGradient"),
        (1, ["tensor", "RUN", "net.wait"], "did you mean 'net.weight'"),
        (1, ["tensor", "RUN", "net.weight", "--step", "7"], "its nearest step is 4"),
        (1, ["sql", "RUN", "select interval 1 month", "--format", "parquet"], "Parquet cannot hold these rows"),
        (2, ["follow", "nowhere", "--timeout", "nan"], "'nan' is no duration; write seconds"),
        (2, ["watch", "nowhere", "--timeout", "-1"], "-1.0 is not in the range x>=0"),
        (2, ["compact", "RUN", "--delete-older-than", "soon"], "'soon' is no duration; write seconds"),
        (2, ["compact", "RUN", "--delete-older-than", "nan"], "'nan' is no duration; write seconds"),
    ],
)
def test_an_error_is_one_sentence_and_no_traceback(run: Path, status: int, arguments: list[str], sentence: str) -> None:
    done = run_command(*[run if argument == "RUN" else argument for argument in arguments], status=status)
    assert sentence in done.stderr


@pytest.mark.slow
def test_sql_queries_many_runs(tmp_path: Path) -> None:
    for name, loss in (("a", 1.0), ("b", 2.0)):
        with Job(tmp_path / "project" / name) as job:
            job.step({"loss": loss})
    (tmp_path / "project" / "broken").mkdir()
    (tmp_path / "project" / "broken" / "run.json").write_text("{}")
    query = "select run, value from scalars order by run"
    for runs in (["project"], ["project/*"], ["project/a", "project/b"]):
        found = run_command("sql", *runs, query, "--format", "csv", cwd=tmp_path)
        assert found.stdout == "run,value\na,1.0\nb,2.0\n"
        reason = "its run.json cannot be read, so this is not a run: it was not written by tensortrial"
        skipped = f"skipped: {tmp_path}/project/broken: {reason}\n"
        assert found.stderr == ("" if runs == ["project/a", "project/b"] else skipped)
    for form, read in (("parquet", pq.read_table), ("arrow", lambda path: pa.ipc.open_stream(path).read_all())):
        path = tmp_path / f"rows.{form}"
        run_command("sql", "project", query, "--format", form, "--output", path, cwd=tmp_path)
        assert read(path).to_pydict() == {"run": ["a", "b"], "value": [1.0, 2.0]}
    nothing = run_command("sql", "project/broken", query, cwd=tmp_path, status=1)
    assert "not a run" in nothing.stderr


def test_the_help_of_each_command_fits_80_columns() -> None:
    context = click.Context(main)
    commands = [[name] for name in main.list_commands(context)]
    imports = main.get_command(context, "import")
    assert isinstance(imports, click.Group)
    commands += [["import", name] for name in imports.list_commands(context)]
    for command in commands:
        printed = run_command(*command, "--help", COLUMNS="80").stdout
        assert not [line for line in printed.splitlines() if len(line) > 80], command


@pytest.mark.parametrize("command", ["info", "names", "steps", "sql", "mark-ended", "compact"])
def test_help_says_what_a_command_does(command: str) -> None:
    printed = run_command(command, "--help").stdout
    assert "RUN" in printed
    assert "--storage-option" in printed


def test_a_group_without_a_command_prints_its_help() -> None:
    assert run_command("import", status=2).stderr == run_command("import", "--help").stdout


def test_a_command_imports_no_other(run: Path) -> None:
    program = f"""
import sys
import tempfile
from tensortrial.cli import main
main(["names", {str(run)!r}], standalone_mode=False)
assert "tensortrial.cli.reading.names" in sys.modules
others = [each for each in sys.modules if each.startswith(("tensortrial.comparison", "tensortrial.exports"))]
assert not others, others
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_each_command_has_the_name_by_which_it_is_called() -> None:
    context = click.Context(main)
    names = main.list_commands(context)
    assert len(names) == 26
    for name in names:
        command = main.get_command(context, name)
        assert command
        assert command.name == name
    assert main.get_command(context, "nothing") is None


def test_help_lists_every_command_in_one_of_five_groups() -> None:
    printed = run_command("--help").stdout
    titles = ["Look:", "Ask:", "Move:", "Mend:", "Run:"]
    assert [line for line in printed.splitlines() if line in titles] == titles
    listed = [line.split()[0] for line in printed.partition("Look:")[2].splitlines() if line.startswith("  ")]
    assert sorted(listed) == main.list_commands(click.Context(main))
    assert "..." not in printed.partition("Look:")[2]  # each description fits 80 columns


def test_help_lists_each_command_with_the_first_line_of_its_own_help() -> None:
    context, printed = click.Context(main), run_command("--help").stdout
    for name in main.list_commands(context):
        command = main.get_command(context, name)
        assert command
        assert f"  {name:10}  {command.get_short_help_str(200)}" in printed


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("list", "ls"), ("ui", "page"), ("tail", "follow"), ("diff", "compare"), ("delete", "rm"), ("shwo", "show")],
)
def test_the_names_of_other_programs_lead_to_the_command(wrong: str, right: str) -> None:
    assert f"did you mean {right!r}?" in run_command(wrong, "RUN", status=2).stderr


def test_o_is_the_file_that_a_command_writes(run: Path, tmp_path: Path) -> None:
    run_command("sql", run, "select 1 as one", "-o", tmp_path / "one.csv", "--format", "csv")
    assert (tmp_path / "one.csv").read_text() == "one\n1\n"
    assert run_command("sql", run, "select 1 as one", "-o", "-", "--format", "csv", cwd=tmp_path).stdout == "one\n1\n"
    assert not (tmp_path / "-").exists()
    for command in (["ls", run], ["sql", run, "select 1"], ["compare", run, run], ["report", run]):
        refused = run_command(*command, "-o", "", status=2).stderr
        assert "Invalid value for '-o' / '--output': a file needs a name, got ''" in refused
    context = click.Context(main)
    for name in main.list_commands(context):
        short = [each for each in main.get_command(context, name).params if "-o" in each.opts]
        assert all("--output" in each.opts for each in short)


def test_rules_are_listed_and_described() -> None:
    listed = [json.loads(line) for line in run_command("rules", "--json").stdout.splitlines()]
    assert len(listed) == 36
    by_name = {each["rule"]: each for each in listed}
    assert by_name["VanishingGradient"]["parameters"]["threshold"]["default"] == 1e-7
    printed = run_command("rules").stdout
    assert all(name in printed for name in by_name)
    described = run_command("rules", "WeightUpdateRatio").stdout
    assert "The rule computes mean |update|" in described
    assert "large_threshold" in described
    assert "10.0" in described


def test_tensor_shows_a_value_and_its_statistics(run: Path) -> None:
    printed = run_command("tensor", run, "net.weight", "--mode", "train", "--step", "30").stdout
    assert printed.startswith("net.weight: float32 [3]; saved at 5 steps of TRAIN: 0-40:10\n")
    assert "[3. 3. 3.]" in printed
    assert ["l2", "5.19615"] in [line.split() for line in printed.splitlines()]
    found = json.loads(run_command("tensor", run, "net.weight", "--json").stdout)
    assert (found["step"], found["shape"], found["value"]) == (4, [3], [4.0, 4.0, 4.0])
    assert found["statistics"]["mean"] == 4.0
    assert json.loads(run_command("tensor", run, "scalar/loss", "--json").stdout)["name"] == "loss"


def test_tensor_prints_values_as_text_that_json_does_not_have(tmp_path: Path) -> None:
    with Job(tmp_path) as job:
        job.step({"gap": np.array([1, np.nan, np.inf]), "wave": np.array([1 + 2j])})
    found = json.loads(run_command("tensor", tmp_path, "gap", "--json").stdout, parse_constant=pytest.fail)
    assert found["value"] == [1, "nan", "inf"]
    assert json.loads(run_command("tensor", tmp_path, "wave", "--json").stdout)["value"] == ["(1+2j)"]


def test_demo_writes_a_run_that_is_diagnosed(tmp_path: Path) -> None:
    printed = run_command("demo", tmp_path / "demo").stdout
    assert f"tensortrial diagnose {tmp_path / 'demo'}" in printed
    found = run_command("diagnose", tmp_path / "demo", status=1).stdout
    assert "layer1.weight left its own past at step 20" in found
    assert "after 'lr of layer 1' rose from 0.2 to " in found
    assert "since step 200" in found
    assert "lower the learning rate of layer1.weight" in found
    assert "holds a run already" in run_command("demo", tmp_path / "demo", status=1).stderr


def test_demo_prints_commands_that_a_shell_understands(tmp_path: Path) -> None:
    printed = run_command("demo", "--", "-my run's", cwd=tmp_path).stdout
    (line,) = [line for line in printed.splitlines() if "tensortrial show" in line]
    assert "2" in run_command(*shlex.split(line)[1:], cwd=tmp_path).stdout
    printed = run_command("demo", "--", "-my run's", cwd=tmp_path, status=1).stderr
    assert shlex.split(printed.partition("`")[2].partition("`")[0]) == ["tensortrial", "rm", "./-my run's"]


def test_demo_on_a_full_disk_is_an_error_of_one_line(small_disk: Path) -> None:
    (small_disk / "other").write_bytes(bytes((2 << 20) - (32 << 10)))
    done = run_command("demo", small_disk / "demo", status=1)
    assert done.stderr.startswith(f"Error: the run was not saved to {small_disk / 'demo'}: ")
    assert done.stderr.endswith("the disk is full\n")
    assert done.stderr.count("\n") == 1


def test_demo_says_that_hooks_are_off(tmp_path: Path) -> None:
    done = run_command("demo", tmp_path / "demo", status=1, TENSORTRIAL="0")
    assert (
        done.stderr
        == f"Error: the run was not saved to {tmp_path / 'demo'}: TENSORTRIAL=0 or USE_SMDEBUG=0 turns every hook off\n"
    )


def test_demo_says_where_it_cannot_write(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    done = run_command("demo", tmp_path / "file", status=1)
    assert f"a run cannot be saved to {tmp_path / 'file'}" in done.stderr
    assert done.stdout == ""


def test_demo_imports_no_framework(tmp_path: Path) -> None:
    program = f"""
import sys
import tempfile
from tensortrial.cli import main
main(["demo", {str(tmp_path / "demo")!r}], standalone_mode=False)
assert not {{"torch", "tensorflow", "jax", "sklearn"}} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
