"""Many rules follow one run, in Python and at the shell."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensortrial
from support.commands import run_command
from support.file_access import reads_below
from support.runs import EPOCH, TRAIN, Job
from tensortrial import rules
from tensortrial.errors import ConfigurationError, RunStalled, StepNotYetAvailable, UnknownRule
from tensortrial.format.record import Plan, Record, Step
from tensortrial.rules import ExplodingTensor, Rule, StalledTraining, VanishingGradient, invoke_rule
from tensortrial.rules.configuration import parse_rule, read_rules


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Gradients that vanish at steps 3 and 4."""
    with Job(tmp_path / "run") as job:
        for step in range(5):
            gradient = np.full(4, 1e-9 if step > 2 else 0.1)
            job.step({f"g{i}": gradient for i in range(5)}, TRAIN, collections=("gradients",))
    return tmp_path / "run"


class Broken(Rule):
    def invoke_at_step(self, step: int) -> bool:
        if step == 2:
            raise ZeroDivisionError("no such number")
        return False


def test_a_rule_that_raises_does_not_stop_the_others(folder: Path) -> None:
    trial = tensortrial.create_trial(folder)
    found = list(rules.watch(trial, [Broken(trial), VanishingGradient(trial), rules.DeadRelu(trial)]))
    assert [(f.rule, f.step, f.failed) for f in found if f.tensor in (None, "g0")] == [
        ("Broken", 2, True),
        ("VanishingGradient", 3, False),
        ("VanishingGradient", 4, False),
        ("DeadRelu", None, True),
    ]
    assert found[0].sentence == "cannot run, and is evaluated no further: it raised ZeroDivisionError: no such number"
    assert "include_regex" in found[-1].sentence
    assert trial.sql("select count(*) from findings where failed").fetchall() == [(2,)]


def test_rules_that_lack_a_statistic_fail_once(tmp_path: Path) -> None:
    with Job(tmp_path / "run") as job:
        for _ in range(3):
            job.step({"g": np.ones(2)}, raw=False, statistics=("median",), collections=("gradients",))
    trial = tensortrial.create_trial(tmp_path / "run")
    (finding,) = rules.watch(trial, [VanishingGradient(trial)], record=False)
    assert (finding.step, finding.failed) == (0, True)
    assert "abs_reductions=['mean']" in finding.sentence


def test_many_rules_share_one_pass(tmp_path: Path) -> None:
    # Few files a folder are not compacted at the end of a run: each step has an index file of its own.
    with Job(tmp_path / "run", steps_per_directory=4) as job:
        for step in range(5):
            values = {f"g{i}": np.full(4, 1e-9 if step > 2 else 0.1) for i in range(5)}
            job.publish(values, TRAIN, collections=("gradients",))
    trial = tensortrial.create_trial(tmp_path / "run")
    made = [make(trial) for make in (VanishingGradient, ExplodingTensor, rules.GradientNormSpike)]
    made += [rules.UnchangedTensor(trial, collection_names="gradients"), rules.AllZero(trial, tensor_regex=".")]
    with reads_below(tmp_path / "run" / "index") as indexes, reads_below(tmp_path / "run" / "tensors") as values_read:
        assert list(rules.watch(trial, made, record=False))
    assert len(values_read) == len(set(values_read)) == 5  # the values of a step together
    assert len(indexes) == len({path for path, _, _ in indexes}) == 5  # each step once, for all rules


def elsewhere(job: Job, **values: Any) -> None:
    """Write a step in a thread of its own, as if this were not the thread that trains."""
    in_another_thread(job, partial(job.step, collections=("gradients",)), values)


def in_another_thread(job: Job, write: Callable[[Any], Any], values: Any) -> None:
    thread = threading.Thread(target=write, args=(values,))
    thread.start()
    thread.join()
    job.flush()


class Polled(Rule):
    """Notes that the watch waits for a step."""

    def __init__(self, trial: tensortrial.Trial) -> None:
        super().__init__(trial)
        self.waits = threading.Event()

    def invoke_at_step(self, step: int) -> bool:
        return False

    def evaluate_between_steps(self) -> list[rules.Finding]:
        self.waits.set()
        return []


def test_a_live_run_is_watched(tmp_path: Path) -> None:
    job = Job(tmp_path / "run", flush_seconds=0)
    elsewhere(job, g=np.ones(2))
    trial = tensortrial.create_trial(tmp_path / "run")
    polled = Polled(trial)

    def go_on() -> None:
        polled.waits.wait(60)
        job.publish({"g": np.zeros(2)}, collections=("gradients",))
        arrived.wait(60)
        job.close()

    arrived = threading.Event()
    thread = threading.Thread(target=go_on)
    thread.start()
    watching = rules.watch(trial, [VanishingGradient(trial), polled], poll_seconds=0.02)
    assert next(watching).step == 1
    # The job is still running: findings come before its end.
    assert not trial.loaded_all_steps
    arrived.set()
    assert list(watching) == []
    thread.join()


def test_a_stalled_job(tmp_path: Path) -> None:
    job = Job(tmp_path / "run", flush_seconds=0)
    elsewhere(job, x=1.0)
    trial = tensortrial.create_trial(tmp_path / "run")
    watching = rules.watch(trial, [StalledTraining(trial, threshold="0.2")], poll_seconds=0.02)
    finding = next(watching)
    assert (finding.rule, finding.step, finding.threshold) == ("StalledTraining", 0, 0.2)
    assert "no new step for" in finding.sentence
    elsewhere(job, x=1.0)
    job.close()
    # It went on, and ended: nothing more.
    assert list(watching) == []


def test_a_stall_that_was_reported_is_not_reported_again_by_its_steps(tmp_path: Path) -> None:
    job = Job(tmp_path / "run", flush_seconds=0)

    def put(seconds: dict[int, int]) -> None:
        for step, second in seconds.items():
            record = Record(Plan("x", (), True), 1.0, EPOCH + second * 10**9)
            job.writer.put(Step(TRAIN, step, step), [record], closes=True)

    in_another_thread(job, put, {0: 0})
    trial = tensortrial.create_trial(tmp_path / "run")
    watching = rules.watch(trial, [StalledTraining(trial, threshold="0.2")], poll_seconds=0.02)
    assert next(watching).step == 0
    # Step 1 was open during the stall, and is published with the next one. A later gap is another stall.
    in_another_thread(job, put, {1: 0, 2: 100, 3: 100, 4: 200})
    job.close()
    assert [finding.step for finding in watching] == [4]


def test_watching_ends_after_a_long_stall_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    jobs = [Job(tmp_path / "run", f"worker_{rank}", 2) for rank in range(2)]
    for job in jobs:
        elsewhere(job, x=1.0)
    elsewhere(jobs[0], x=1.0)
    trial = tensortrial.create_trial(tmp_path / "run")
    (finding,) = rules.watch(trial, [StalledTraining(trial, threshold="0.2")], poll_seconds=0.02)
    assert (finding.worker, finding.step) == ("worker_1", 0)
    assert "worker_1 has saved nothing since step 0" in finding.sentence
    assert "more than twice the threshold of StalledTraining" in caplog.messages[-1]
    assert len(invoke_rule(StalledTraining(trial, threshold="0.2"))) == 1
    for job in jobs:
        job.close()


def test_watching_with_a_timeout_ends_with_what_was_found(tmp_path: Path) -> None:
    job = Job(tmp_path / "run")
    elsewhere(job, g=np.zeros(2))
    trial = tensortrial.create_trial(tmp_path / "run")
    watching = rules.watch(trial, [VanishingGradient(trial)], poll_seconds=0.02, timeout=0.2)
    assert next(watching).step == 0
    with pytest.raises(RunStalled, match=r"no new step for .*`tensortrial mark-ended") as caught:
        next(watching)
    assert isinstance(caught.value, TimeoutError)
    job.close()


def test_the_thread_that_trains_does_not_wait_for_itself(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    job = Job(tmp_path / "run")
    for _ in range(3):
        job.step({"g": np.zeros(2)}, collections=("gradients",))
    trial = tensortrial.create_trial(tmp_path / "run")
    assert [finding.step for finding in invoke_rule(VanishingGradient(trial))] == [0, 1, 2]
    assert "this thread writes the run, and would wait for itself" in caplog.messages[-1]
    assert [finding.step for finding in invoke_rule(VanishingGradient(trial), 1, 100)] == [1, 2]
    assert len(list(rules.watch(trial, [VanishingGradient(trial)]))) == 3
    with pytest.raises(StepNotYetAvailable, match="would wait for itself"):
        trial.wait_for_steps([3])
    with pytest.raises(StepNotYetAvailable, match="would wait for itself"):
        VanishingGradient(trial).invoke(3)
    job.close()


def test_a_step_that_waits_for_another_worker_is_waited_for_in_the_thread_that_trains(tmp_path: Path) -> None:
    mine, other = (Job(tmp_path / "run", f"worker_{rank}", 2) for rank in range(2))
    mine.step({"g": np.zeros(2)})
    thread = threading.Timer(0.3, elsewhere, args=(other,), kwargs={"g": np.zeros(2)})
    thread.start()
    tensortrial.create_trial(tmp_path / "run").wait_for_steps([0], timeout=60)
    thread.join()
    for job in (mine, other):
        job.close()


def test_a_stall_is_seen_afterwards(tmp_path: Path) -> None:
    job = Job(tmp_path / "run")
    for step, second in enumerate((0, 1, 100, 101)):
        job.writer.put(Step(TRAIN, step, step), [Record(Plan("x", (), True), 1.0, EPOCH + second * 10**9)], closes=True)
    job.close()
    trial = tensortrial.create_trial(tmp_path / "run")
    (finding,) = invoke_rule(StalledTraining(trial, threshold=60))
    assert (finding.step, finding.observed) == (2, 99.0)
    assert invoke_rule(StalledTraining(trial)) == []


def test_rules_of_another_trial_are_refused(folder: Path) -> None:
    trial, other = tensortrial.create_trial(folder), tensortrial.create_trial(folder)
    with pytest.raises(ConfigurationError, match="belongs to another trial"):
        rules.watch(trial, [VanishingGradient(other)])


def test_rules_from_text() -> None:
    parsed = parse_rule("UnchangedTensor:collection_names=weights,biases,num_steps=4,tensor_regex=^a=b$")
    assert parsed.rule == "UnchangedTensor"
    assert dict(parsed.parameters) == {"collection_names": "weights,biases", "num_steps": "4", "tensor_regex": "^a=b$"}
    with pytest.raises(UnknownRule, match="VanishingGradient"):
        parse_rule("VanishingGradiant")
    with pytest.raises(ConfigurationError, match="write parameter=value after the colon"):
        parse_rule("DeadRelu:50")


SAGEMAKER = [
    {
        "RuleConfigurationName": "VGRule",
        "InstanceType": "ml.t3.medium",
        "VolumeSizeInGB": 30,
        "RuleEvaluatorImage": "",
        "RuleParameters": {"rule_to_invoke": "VanishingGradient", "threshold": "20.0"},
    }
]
TOML = """
[[rules]]
rule = "VanishingGradient"
name = "tiny gradients"
parameters = { threshold = 1e-8 }
actions = ["StopTraining"]

[[rules]]
rule = "AllZero"
parameters = { collection_names = ["gradients"] }
"""


def test_rules_from_files(folder: Path, tmp_path: Path) -> None:
    trial = tensortrial.create_trial(folder)
    for document in (SAGEMAKER, {"DebugRuleConfigurations": SAGEMAKER}):
        (tmp_path / "rules.json").write_text(json.dumps(document))
        (one,) = read_rules(tmp_path / "rules.json")
        rule: Any = one.make(trial)
        assert (type(rule), rule.rule_name, rule.threshold) == (VanishingGradient, "VGRule", 20.0)
    (tmp_path / "rules.toml").write_text(TOML)
    tiny, zero = (each.make(trial) for each in read_rules(tmp_path / "rules.toml"))
    assert (tiny.rule_name, len(tiny.actions.actions), zero.rule_name) == ("tiny gradients", 1, "AllZero")


def test_the_file_of_rules_in_the_documentation_is_read(folder: Path, tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "rules.md").read_text()
    (text,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    (tmp_path / "rules.toml").write_text(text.replace("logger training", "true training"))
    trial = tensortrial.create_trial(folder)
    rules: list[Any] = [each.make(trial) for each in read_rules(tmp_path / "rules.toml")]
    assert [rule.rule_name for rule in rules] == ["VanishingGradient", "NaN in the gradients", "LossNotDecreasing"]
    assert (rules[0].threshold, rules[1].only_nan, rules[2].num_steps) == (1e-9, True, 20)
    assert len(rules[1].actions.actions) == 2


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "must be JSON, or TOML"),
        ("{}", "have one under"),
        ("[1]", "each rule must be an object"),
        ('[{"RuleParameter": {}}]', "did you mean 'RuleParameters'"),
        ("[{}]", "missing name of a rule"),
        ('[{"rule": "DeadReul"}]', "did you mean 'DeadRelu'"),
        ('[{"RuleParameters": {"rule_to_invoke": "Mine", "source_s3_uri": "s3://x"}}]', "are not downloaded"),
    ],
)
def test_a_bad_file_is_a_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "rules.json").write_text(text)
    with pytest.raises(ConfigurationError, match=sentence):
        read_rules(tmp_path / "rules.json")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_rules(tmp_path / "nothing.json")


# At the shell.


def command(*arguments: object) -> subprocess.CompletedProcess[str]:
    return run_command("watch", *arguments, status=None)


def test_findings_are_printed_and_the_status_says_that_there_were_some(folder: Path) -> None:
    done = command(folder, "--rule", "VanishingGradient:threshold=1e-8", "--rule", "ExplodingTensor")
    assert done.stdout.splitlines()[:4] == [
        "step 3  VanishingGradient: g0 is 1e-09 on average, below 1e-08",
        "step 3  VanishingGradient: g1 is 1e-09 on average, below 1e-08",
        "step 3  VanishingGradient: g2 is 1e-09 on average, below 1e-08",
        "    … and 2 more of this rule at this step",
    ]
    assert done.returncode == 1


def test_the_status_is_0_if_nothing_fired(folder: Path) -> None:
    done = command(folder, "--rule", "ExplodingTensor", "--no-record")
    assert (done.stdout, done.returncode) == ("", 0)
    assert "nothing was found by ExplodingTensor" in done.stderr


def test_the_status_is_2_if_a_rule_could_not_run(folder: Path) -> None:
    done = command(folder, "--rule", "VanishingGradient", "--rule", "WeightUpdateRatio", "--format", "json")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert (lines[0]["rule"], lines[0]["step"]) == ("VanishingGradient", 3)
    assert lines[-1]["failed"]
    assert done.returncode == 2


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["RUN"], "missing rule; pass --rule"),
        (["RUN", "--rule", "VanishingGradeint"], "did you mean 'VanishingGradient'"),
        (["RUN", "--rule", "VanishingGradient:threshold=low"], "threshold='low' is not accepted"),
        (["RUN", "--rule", "ExplodingTensor", "--start-step", "99"], "no step was evaluated"),
        (["RUN", "--config", "nothing.toml"], "cannot be read"),
        (["nowhere", "--rule", "ExplodingTensor"], "no run was found here"),
    ],
)
def test_what_cannot_run_is_a_sentence_and_status_2(folder: Path, arguments: list[str], sentence: str) -> None:
    done = command(*[folder if argument == "RUN" else argument for argument in arguments])
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
    assert done.returncode == 2


def test_a_watch_that_starts_before_its_run_says_how_to_wait(tmp_path: Path) -> None:
    done = command(tmp_path / "run", "--rule", "AllZero")
    assert "no run was found here; pass --timeout SECONDS to wait for it" in done.stderr
    assert done.returncode == 2
    done = command(tmp_path / "run", "--rule", "AllZero", "--timeout", "0.1")
    assert "none began in 0.1 seconds" in done.stderr


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """A run whose job was killed: its gradients were zero, and it never said that it ended."""
    job = Job(tmp_path / "run")
    job.publish({"g": np.zeros(2)}, collections=("gradients",))
    job.abandon()
    return tmp_path / "run"


def test_ctrl_c_ends_a_watch_with_status_130(killed: Path) -> None:
    line = [sys.executable, "-m", "tensortrial", "watch", str(killed), "--rule", "VanishingGradient"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "VanishingGradient" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert err.startswith(f"watching {killed}")
    assert (err.splitlines()[-1], process.returncode) == ("Interrupted", 130)
