"""The environment that a run keeps by itself."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import tensortrial
from support import warm
from support.limits import set_limits
from support.made_hooks import closed
from support.plain_hook import Hook
from tensortrial.errors import ConfigurationError, InvalidWorker
from tensortrial.hooks.core.process import environment
from tensortrial.redaction import without_secrets

EVERY = {"command", "working_directory", "host", "platform", "cpus", "process_id", "packages", "seeds"}


@pytest.fixture(autouse=True)
def no_variable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.delenv("TENSORTRIAL_ENVIRONMENT", raising=False)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    yield
    wait_for_readers()


def readers() -> list[threading.Thread]:
    """Return the threads that read an environment."""
    return [thread for thread in threading.enumerate() if thread.name == "tensortrial-environment"]


def wait_for_readers() -> None:
    for thread in readers():
        thread.join(60)
        assert not thread.is_alive()


def kept(out: str, **options: object) -> dict[str, object]:
    hook = Hook(out, **options)
    wait_for_readers()
    hook.save_scalar("x", 1.0)
    return closed(hook).environment()


def test_a_run_keeps_its_environment_by_itself(out: str) -> None:
    found = kept(out)
    assert set(found) == EVERY
    assert found["process_id"] == os.getpid()
    assert tensortrial.create_trial(out).info.metadata == {}
    with pytest.raises(InvalidWorker, match="worker_7"):
        tensortrial.create_trial(out).environment("worker_7")


@pytest.mark.parametrize(
    ("value", "variable", "expected"),
    [
        (False, None, set()),
        (["host"], None, {"host", "platform", "cpus", "process_id"}),
        ("seeds, packages", None, {"seeds", "packages"}),
        (True, "0", set()),
        (False, "1", EVERY),
        (True, "command", {"command", "working_directory"}),
    ],
)
def test_each_part_has_a_switch(
    out: str, value: object, variable: str | None, expected: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if variable is not None:
        monkeypatch.setenv("TENSORTRIAL_ENVIRONMENT", variable)
    assert set(kept(out, environment=value)) == expected


def test_an_unknown_part_is_refused(out: str) -> None:
    with pytest.raises(ConfigurationError, match=r"True, False or some of git, .*, got 'gti'"):
        Hook(out, environment=["gti"])


def test_nothing_waits_for_a_slow_git(out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "git").write_text(f"#!/bin/sh\nwhile [ ! -e {tmp_path}/ready ]; do sleep 0.01; done\n")
    (tmp_path / "bin" / "git").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    set_limits(monkeypatch, seconds_of_git=600)
    hook = Hook(out)
    hook.save_scalar("x", 1.0)
    hook.flush()
    hook.close()
    assert len(readers()) == 1
    (tmp_path / "ready").touch()
    assert set(tensortrial.create_trial(out).environment()) == EVERY


def test_what_is_read_late_is_kept_at_the_close(out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a list of many packages on a slow disk is read so late."""
    ready = threading.Event()
    whole = environment.environment
    monkeypatch.setattr(environment, "environment", lambda **parts: ready.wait(20) and whole(**parts))
    hook = Hook(out)
    hook.save_scalar("x", 1.0)
    hook.flush()
    assert tensortrial.create_trial(out).environment() == {}
    ready.set()
    wait_for_readers()
    hook.close()
    assert set(tensortrial.create_trial(out).environment()) == EVERY


def test_git_runs_no_program_of_the_repository(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    (tmp_path / "evil").write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    (tmp_path / "evil").chmod(0o755)
    who = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    subprocess.run(["git", *who, "commit", "-q", "--allow-empty", "-m", "x"], cwd=tmp_path, check=True)
    subprocess.run(["git", "config", "core.fsmonitor", str(tmp_path / "evil")], cwd=tmp_path, check=True)
    assert tensortrial.environment()["git_commit"]
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["train.py", "--api-key", "abc", "--lr", "0.1"], ["train.py", "--api-key", "***", "--lr", "0.1"]),
        (["--password=abc", "HF_TOKEN=xyz"], ["--password=***", "HF_TOKEN=***"]),
        (["--verbose-auth", "--lr", "1"], ["--verbose-auth", "--lr", "1"]),
        (
            ["--tokenizer", "gpt2", "--max-tokens=100", "--author=me"],
            ["--tokenizer", "gpt2", "--max-tokens=100", "--author=me"],
        ),
        (["s3://key:secret@host/x"], ["s3://***@host/x"]),
        (["hf_abcdefghijkl", "x=ghp_0123456789abcdef"], ["***", "x=***"]),
        (["task-sk-learn-classifier"], ["task-sk-learn-classifier"]),
        (["x" * 2000], ["x" * 1000 + "…"]),
        (["--config", '{"api_key": "abc", "lr": 0.1}'], ["--config", '{"api_key": "***", "lr": 0.1}']),
        (["--config={'password': 'a b', 'n': [1]}"], ["--config={'password': '***', 'n': [1]}"]),
        (["data={'password': 'abc', 'n': n}"], ["data={'password': ***, 'n': n}"]),
        (['{"login": {"credentials": {"user": "me"}}}'], ['{"login": {"credentials": "***"}}']),
        (["sizes=[1,2]", '{"lr":1}'], ["sizes=[1,2]", '{"lr":1}']),
        (["--header", "Authorization: Bearer abc"], ["--header", "Authorization: ***"]),
        (["curl -H 'X-Api-Key: abc' -u"], ["curl -H 'X-Api-Key: ***' -u"]),
        (["-u", "me:abc", "--user", "me"], ["-u", "***", "--user", "me"]),
        (["-ume:abc", "curl --user me:abc https://host"], ["-u***", "curl --user *** https://host"]),
        (
            ["--bearer", "abc", "--pw=abc", "-u", "train.py", "--pwm=3"],
            ["--bearer", "***", "--pw=***", "-u", "train.py", "--pwm=3"],
        ),
        (["https://host/a?X-Amz-Signature=abc&v=1"], ["https://host/a?X-Amz-Signature=***&v=***"]),
        (["ftp://me:a/b@host/x"], ["ftp://***@host/x"]),
        (["AccountName=me;AccountKey=abc==;Suffix=x"], ["AccountName=me;AccountKey=***;Suffix=x"]),
        (["host=h user=me password=abc dbname=x"], ["host=h user=me password=*** dbname=x"]),
        (["-e", "NAME_KEY=abc", "--env=OTHER_KEY=abc"], ["-e", "NAME_KEY=***", "--env=OTHER_KEY=***"]),
        (["-c", "login(token='abc')"], ["-c", "login(token=***)"]),
        (
            ["sort=key", "monkey=x", "layers:2", "a@b.c", "--public", "x"],
            ["sort=key", "monkey=x", "layers:2", "a@b.c", "--public", "x"],
        ),
        (["=".join(["a"] * 3000), ":" * 3000], ["=".join(["a"] * 500) + "=…", ":" * 1000 + "…"]),
    ],
)
def test_what_looks_like_a_secret_is_left_out(arguments: list[str], expected: list[str]) -> None:
    assert without_secrets(arguments) == expected


@pytest.mark.parametrize(
    "begin",
    [
        "hf_",
        "gho_",
        "github_pat_",
        "glpat-",
        "sk-",
        "sk_live_",
        "rk_test_",
        "whsec_",
        "xoxb-",
        "AKIA",
        "AIza",
        "ya29.",
        "npm_",
        "pypi-",
        "dckr_pat_",
        "nvapi-",
        "r8_",
        "gsk_",
        "xai-",
        "hvs.",
        "shpat_",
        "dop_v1_",
        "wandb_v1_",
        "123456789:",
        "https://hooks.slack.com/services/",
    ],
)
def test_a_token_of_a_form_that_a_vendor_documents_is_left_out(begin: str) -> None:
    secret = "A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r"
    (kept,) = without_secrets([f"x={begin}{secret}"])
    assert secret not in kept


def test_hyperparameters_of_optimizers_are_kept(out: str) -> None:
    torch = pytest.importorskip("torch")
    from tensortrial.hooks.pytorch import Hook as TorchHook

    hook = TorchHook(out, environment="optimizers")
    model = torch.nn.Linear(2, 1)
    hook.register_optimizer(torch.optim.AdamW(model.parameters(), lr=0.01, betas=(0.8, 0.9)))
    hook.save_scalar("x", 1.0)
    hook.close()
    (group,) = tensortrial.create_trial(out).environment()["optimizers"]["AdamW"].values()
    assert (group["lr"], group["betas"], group["amsgrad"]) == (0.01, [0.8, 0.9], False)


def test_a_forked_child_reads_nothing(out: str) -> None:
    program = (
        "import os, sys, tensortrial\n"
        "run = tensortrial.Run(sys.argv[1])\n"
        "child = os.fork()\n"
        "if not child: run.save_scalar('y', 1.0); run.close(); os._exit(0)\n"
        "os.waitpid(child, 0); run.save_scalar('x', 1.0); run.close()\n"
    )
    warm.run(["-c", program, out], check=True)
    trial = tensortrial.create_trial(out)
    assert trial.tensor_names() == ["x"]
    assert trial.loaded_all_steps
