"""The report: one file with the page and its answers inside."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest
from click.testing import CliRunner

import tensortrial
from support.limits import set_limits
from support.runs import EPOCH, EVAL, TRAIN, Job
from tensortrial.cli.commands import main
from tensortrial.diagnosis import diagnose
from tensortrial.format.record import Plan, Record
from tensortrial.pages.report import report
from tensortrial.rules import invoke_rule, make_rule

HOSTILE = "</script><script>alert(1)</script><!--~ *"


def embedded(page: str) -> dict[str, Any]:
    (text,) = re.findall(r'<script type="application/json" id="answers">(.*?)</script>', page, re.DOTALL)
    answers: dict[str, Any] = json.loads(text)
    return answers


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of few tensors: a report asks several queries for each. The loss of `right` is NaN at its last step."""
    folder = tmp_path_factory.mktemp("runs")
    for name, scale in (("left", 1.0), ("right", 2.0)):
        with Job(folder / name) as job:
            for step in range(12):
                loss = np.nan if (name, step) == ("right", 11) else scale / (1 + step)
                values = {"net.w": np.full(4, scale * step, np.float32), "loss": loss}
                job.step(values, EVAL if step % 4 == 3 else TRAIN, statistics=("l2",))
    return folder


def test_a_report_on_standard_output_keeps_what_is_there(runs: Path, tmp_path: Path) -> None:
    with (tmp_path / "page.html").open("w+") as file:
        for text in ("<!-- before -->\n", "<!-- after -->\n"):
            file.write(text)
            file.flush()
            command = [sys.executable, "-m", "tensortrial", "report", str(runs), "-o", "-"]
            subprocess.run(command, stdout=file, stderr=subprocess.PIPE, check=True, timeout=120)
            file.seek(0, 2)
    text = (tmp_path / "page.html").read_text()
    assert text.startswith("<!-- before -->\n<!doctype html>")
    assert text.count("<!doctype html>") == text.count("<!-- after -->\n<!doctype html>") + 1 == 2


def test_a_report_holds_the_answers_and_needs_no_network(runs: Path, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    result = CliRunner().invoke(main, ["report", str(runs), "--output", str(path)])
    assert result.exit_code == 0, result.output
    page = path.read_text()
    assert len(page) < 5_000_000
    assert not re.search(r'(src|href)="(?!data:)', page)
    answers = embedded(page)
    assert answers["api/info"]["runs"][0]["name"] == "left"
    assert answers["api/difference?a=left&b=right"]["rows"][0]["first"]
    assert "api/tiles?run=left&statistic=l2&mode=TRAIN" in answers
    assert answers["api/series?run=right&name=net.w&mode=TRAIN"]["steps"] == list(range(9))


def test_a_report_of_raw_values_imports_no_pandas(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    with Job(tmp_path / "run") as job:
        for step in range(3):
            job.step({"w": np.full(4, float(step))}, TRAIN)
    program = """
import sys
from tensortrial.pages.report import report
report("run", "report.html")
assert "pandas" not in sys.modules, "somebody imported pandas"
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_a_run_that_cannot_be_opened_is_one_marked_row_of_a_report(tmp_path: Path) -> None:
    for name in "abc":
        with Job(tmp_path / name) as job:
            job.step({"loss": 1.0}, TRAIN)
    (tmp_path / "b" / "index").rename(tmp_path / "b" / "moved")
    (tmp_path / "b" / "index").symlink_to("index")
    report(tmp_path, tmp_path / "report.html")
    answers = embedded((tmp_path / "report.html").read_text())
    damaged = {run["name"]: run["damaged"] for run in answers["api/info"]["runs"]}
    assert "symbolic link" in damaged.pop("b")[0]
    assert damaged == {"a": [], "c": []}
    assert "api/names?run=b" not in answers


def test_a_report_of_a_long_run_holds_some_steps_of_each_tensor(tmp_path: Path) -> None:
    with Job(tmp_path / "run") as job:
        for step in range(3000):
            job.step({"a": np.full(1, float(step)), "b": np.ones(1)}, TRAIN, raw=False, statistics=("l2",))
    path = tmp_path / "report.html"
    assert CliRunner().invoke(main, ["report", str(tmp_path / "run"), "--output", str(path)]).exit_code == 0
    answers = embedded(path.read_text())
    steps = answers["api/tensor?run=run&name=b&mode=TRAIN"]["steps"]
    assert len(steps) == 1000
    assert (steps[0], steps[-1]) == (0, 2999)
    # No step is left out of the series.
    assert max(answers["api/series?run=run&name=a&mode=TRAIN"]["statistics"][0]["max"]) == 2999


def test_each_run_of_a_report_has_its_first_tensor_before_any_has_its_second(runs: Path, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    CliRunner().invoke(main, ["report", str(runs), "--output", str(path)])
    tensors = [each for each in embedded(path.read_text()) if each.startswith("api/tensor?")]
    named = dict.fromkeys((parse_qs(each)["name"][0], parse_qs(urlsplit(each).query)["run"][0]) for each in tensors)
    assert [run for _, run in named] == ["left", "right"] * 2


def test_no_name_of_a_tensor_ends_the_answers(tmp_path: Path) -> None:
    job = Job(tmp_path / "run")
    step = job.begin(TRAIN)
    job.writer.put(step, [Record(Plan(HOSTILE, (), True, ("l2",)), np.ones(3), EPOCH)], closes=True)
    job.close()
    path = tmp_path / "report.html"
    assert CliRunner().invoke(main, ["report", str(tmp_path / "run"), "--output", str(path)]).exit_code == 0
    assert "alert(1)</script>" not in path.read_text()
    (address,) = [each for each in embedded(path.read_text()) if each.startswith("api/tensor?")]
    assert parse_qs(urlsplit(address).query)["name"] == [HOSTILE]
    assert "%7E+*" in address  # as URLSearchParams spells it


def test_rules_decide_the_exit_status(runs: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "report.html"
    arguments = ["report", str(runs / "right"), "--output", str(path), "--rules"]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 1, result.output
    assert not caplog.records
    assert any(found["rule"] == "ExplodingTensor" for found in embedded(path.read_text())["api/findings?run=right"])
    assert CliRunner().invoke(main, ["report", str(tmp_path / "nothing"), "--output", str(path)]).exit_code == 2


def test_a_report_of_many_runs_lists_all_and_opens_those_with_findings_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_limits(monkeypatch, runs_opened_by_a_report=2)
    for name in "abcd":
        with Job(tmp_path / "runs" / name) as job:
            job.step({"net.w": np.full(4, np.nan if name == "d" else 1.0)})
    invoke_rule(make_rule("ExplodingTensor", tensortrial.create_trial(tmp_path / "runs" / "d")))
    path = tmp_path / "report.html"
    result = CliRunner().invoke(main, ["report", str(tmp_path / "runs"), "--output", str(path)])
    assert (result.exit_code, result.output) == (1, f"{path}: 4 runs, 1 finding\n")
    answers = embedded(path.read_text())
    assert [run["name"] for run in answers["api/info"]["runs"]] == list("abcd")
    assert [run["findings"] for run in answers["api/info"]["runs"]] == [0, 0, 0, 1]
    assert [name for name in "abcd" if f"api/names?run={name}" in answers] == ["a", "d"]


def test_a_report_begins_with_the_diagnosis_unless_that_is_refused(runs: Path, tmp_path: Path) -> None:
    run, path = str(runs / "right"), tmp_path / "report.html"
    address = "api/diagnosis?run=right"
    CliRunner().invoke(main, ["report", run, "--output", str(path), "--no-diagnose"])
    assert address not in embedded(path.read_text())
    CliRunner().invoke(main, ["report", run, "--output", str(path)])
    held, expected = embedded(path.read_text())[address], diagnose(run)
    assert held["summary"] == expected.summary
    problems = [problem for problem, _ in expected.paragraphs()]
    assert [each["advice"] for each in held["problems"]] == [f"What to try: {each.advice}." for each in problems]
    assert [each["lines"] for each in held["problems"]] == [each.lines() for each in problems]
    assert held["problems"][0]["headline"] == expected.headline != ""
    assert held["problems"][0]["tensor"] == expected.problems[0].tensor
    assert {each["rule"] for each in held["unchecked"]} == {each.rule for each in expected.unchecked} != set()


def test_reports_that_are_written_to_one_file_at_once_are_whole(runs: Path, tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as threads:
        written = [threads.submit(report, runs, tmp_path / "report.html", diagnose=False) for _ in range(4)]
    assert len({each.result() for each in written}) == 1
    assert embedded((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
