"""No message shows the password or the token of a URL, whatever the message is about."""

from __future__ import annotations

import logging
import pickle
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tensortrial
from support.runs import Job
from tensortrial.errors import StorageError, TensorTrialError
from tensortrial.hooks.core.failures import Failures
from tensortrial.rules.action import Webhook, parse_actions

WORD = "S3cretWord"
NOBODY = "127.0.0.1:1"


def wrong_webhook(**options: Any) -> Callable[[Path], Any]:
    return lambda run: Webhook(**{"url": "https://host/x", **options})


CASES: dict[str, Callable[[Path], Any]] = {
    "a run": lambda run: tensortrial.create_trial(f"webhdfs://me:{WORD}@{NOBODY}/run"),
    "a run behind a token": lambda run: tensortrial.create_trial(f"http://{NOBODY}/run?token={WORD}"),
    "runs": lambda run: tensortrial.open_runs(f"ftp://me:{WORD}@{NOBODY}/run"),
    "a list of runs": lambda run: tensortrial.open_runs([run / "x", f"ftp://me:{WORD}@{NOBODY}/run"]),
    "a bucket": lambda run: tensortrial.open_runs(f"s3://key:{WORD}@bucket/run"),
    "a chain of URLs": lambda run: tensortrial.open_runs(f"simplecache::ftp://me:{WORD}@{NOBODY}/run"),
    "a password that is not encoded": lambda run: tensortrial.create_trial(f"ftp://me:a/{WORD}@{NOBODY}/run"),
    "a new run": lambda run: tensortrial.Run(f"ftp://me:{WORD}@{NOBODY}/run"),
    "an unknown target": lambda run: tensortrial.export(run, f"me:{WORD}@host/db"),
    "a target": lambda run: tensortrial.export(run, f"csv:ftp://me:{WORD}@{NOBODY}/x"),
    "a webhook of another scheme": wrong_webhook(url=f"ftp://me:{WORD}@host/x"),
    "a webhook without a scheme": wrong_webhook(url=f"hooks.example.com/{WORD}"),
    "a webhook with a password": wrong_webhook(url=f"https://me:{WORD}@host/x"),
    "a webhook with a blank": wrong_webhook(url=f"https://host/{WORD} x"),
    "a webhook with a port": wrong_webhook(url=f"https://me:{WORD}/x@host"),
    "a header of two lines": wrong_webhook(headers={"Authorization": f"Bearer {WORD}\n"}),
    "headers as a text": wrong_webhook(headers=f"Authorization: {WORD}"),
    "actions that are no JSON": lambda run: parse_actions(f'[{{"name": "webhook", "headers": "{WORD}"'),
    "a program that is missing": lambda run: parse_actions({"name": "command", "command": f"no-such --token {WORD}"}),
}


@pytest.mark.parametrize("of", CASES)
def test_an_error_shows_no_password_and_no_token(tmp_path: Path, of: str) -> None:
    with Job(tmp_path / "run") as job:
        job.step({"x": 1.0})
    with pytest.raises(TensorTrialError) as raised:
        CASES[of](tmp_path / "run")
    error = raised.value
    shown = [str(error), repr(error), str(pickle.loads(pickle.dumps(error))), *traceback.format_exception(error)]
    # The lines of this file are part of the traceback, which names the variable alone.
    assert not any(WORD in text for text in (*shown, *map(str, vars(error).values())))


@pytest.mark.parametrize("command", ["info", "ls", "diagnose", "verify", "show", "compact", "sql"])
def test_a_server_that_cannot_be_reached_is_an_error_of_each_command(command: str) -> None:
    pytest.importorskip("click")
    from click.testing import CliRunner

    from tensortrial.cli.commands import main

    arguments = ["select 1"] if command == "sql" else []
    for more in (["--storage-option", WORD], []):
        done = CliRunner().invoke(main, [command, f"ftp://me:{WORD}@{NOBODY}/run", *arguments, *more])
        assert done.exit_code
        assert isinstance(done.exception, SystemExit)
        assert WORD not in done.output
    assert "Connection refused" in done.output


@pytest.mark.parametrize("make", [tensortrial.Run, tensortrial.create_trial])
def test_a_server_that_cannot_be_reached_is_an_error_of_storage(make: Callable[[str], Any]) -> None:
    with pytest.raises(StorageError, match=r"ftp://127\.0\.0\.1:1/run: cannot list: Connection refused"):
        make(f"ftp://{NOBODY}/run")


def test_the_log_of_a_hook_shows_no_password(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="tensortrial"):
        Failures(f"ftp://me:{WORD}@host/run").warn_of_loss()
    assert "ftp://***@host/run" in caplog.text


def test_paths_and_addresses_without_a_password_are_shown_as_they_are() -> None:
    for text in ("s3://bucket/run@2: gone", "hdfs://node:9000/a@b", "a@b.c: no", "/runs/a:b@c", "see https://host/a?"):
        assert str(TensorTrialError(text)) == text
