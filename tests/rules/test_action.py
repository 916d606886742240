"""What is done when a rule fires, with a real server and a real program."""

from __future__ import annotations

import json
import logging
import math
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import tensortrial
from support.runs import TRAIN, Job
from tensortrial.errors import ConfigurationError
from tensortrial.rules import LossNotDecreasing, Rule, invoke_rule, watch
from tensortrial.rules.action import Command, StopTraining, Webhook, parse_actions


class Always(Rule):
    def invoke_at_step(self, step: int) -> bool:
        return True


@pytest.fixture
def trial(tmp_path: Path) -> tensortrial.Trial:
    with Job(tmp_path / "run") as job:
        job.step({"x": 1.0}, TRAIN)
    return tensortrial.create_trial(tmp_path / "run")


class Server(ThreadingHTTPServer):
    """Answers each request with the next status; with none, not at all until it is closed."""

    def __init__(self, *statuses: int) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.statuses, self.received, self.closing = list(statuses), list[Any](), threading.Event()
        self.location = self.url

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/hook"

    def stop(self) -> None:
        self.closing.set()
        self.shutdown()
        self.server_close()


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if not self.server.statuses:
            self.server.closing.wait()
            return
        self.server.received.append(json.loads(body))
        self.send_response(self.server.statuses.pop(0))
        self.send_header("Location", self.server.location)
        self.end_headers()

    def do_GET(self) -> None:
        self.server.received.append("GET")
        self.send_response(200)
        self.end_headers()

    def log_message(self, *arguments: Any) -> None:
        return


@pytest.fixture
def serve() -> Iterator[Any]:
    servers: list[Server] = []

    def start(*statuses: int) -> Server:
        servers.append(Server(*statuses))
        threading.Thread(target=servers[-1].serve_forever, daemon=True).start()
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


def test_a_webhook_tries_again_until_the_server_takes_it(trial: tensortrial.Trial, serve: Any) -> None:
    server = serve(500, 503, 200)
    webhook = Webhook(server.url, pause=0.001)
    invoke_rule(Always(trial, action_str=webhook))
    webhook.close(timeout=30)
    assert len(server.received) == 3
    assert server.received[-1]["rule"] == "Always"
    assert server.received[-1]["run"] == trial.path
    assert [finding["step"] for finding in server.received[-1]["findings"]] == [0]


def test_a_number_that_is_not_finite_is_text_in_json(tmp_path: Path, serve: Any) -> None:
    with Job(tmp_path / "run") as job:
        for loss in (0.0, math.inf, math.nan):
            job.step({"loss": loss}, TRAIN, collections=("losses",))
    server, trial = serve(500, 200, 200), tensortrial.create_trial(tmp_path / "run")
    rule = LossNotDecreasing(trial, num_steps=1, action_str=Webhook(server.url, pause=0.2))
    # A watch ends once its actions have ended.
    assert [finding.to_json()["observed"] for finding in watch(trial, [rule])] == ["inf", "nan"]
    observed = [finding["observed"] for body in server.received for finding in body["findings"]]
    assert observed == ["inf", "inf", "nan"]


def test_a_webhook_that_is_not_answered_never_holds_up_the_rule(trial: tensortrial.Trial, serve: Any) -> None:
    # The server holds the request until it is closed, so this returns only if it does not wait for an answer.
    server = serve()
    webhook = Webhook(server.url, timeout=3600, pause=0.001)
    assert len(invoke_rule(Always(trial, action_str=webhook))) == 1
    webhook.close(timeout=0)
    server.stop()
    webhook.close(timeout=60)  # which logs an error that would otherwise be found in a later test


def test_a_url_where_nobody_is_is_logged(
    trial: tensortrial.Trial, serve: Any, caplog: pytest.LogCaptureFixture
) -> None:
    server = serve()
    url = server.url
    server.stop()
    webhook = Webhook(url, pause=0.001)
    with caplog.at_level(logging.ERROR, logger="tensortrial.rules"):
        assert len(invoke_rule(Always(trial, action_str=webhook))) == 1
        webhook.close(timeout=60)
    assert "not delivered" in caplog.text


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_webhook_follows_no_redirect_and_logs_that_nothing_was_delivered(
    trial: tensortrial.Trial, serve: Any, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    server, other = serve(status, 200), serve(200)
    server.location = f"{other.url}?token=of-that-server"
    webhook = Webhook(server.url, headers={"Authorization": "Bearer of-this-server"}, pause=0.001)
    with caplog.at_level(logging.ERROR, logger="tensortrial.rules"):
        assert len(invoke_rule(Always(trial, action_str=webhook))) == 1
        webhook.close(timeout=60)
    assert (len(server.received), other.received) == (1, [])
    assert "not delivered: the server redirects to another URL" in caplog.text
    assert "of-th" not in caplog.text


def test_a_command_receives_what_fired(trial: tensortrial.Trial, tmp_path: Path) -> None:
    program = "import sys, pathlib; pathlib.Path(sys.argv[1]).write_text(sys.stdin.read())"
    command = Command([sys.executable, "-c", program, str(tmp_path / "received")])
    invoke_rule(Always(trial, action_str=command))
    command.close(timeout=30)
    assert json.loads((tmp_path / "received").read_text())["rule"] == "Always"


def test_a_part_of_an_attempt_is_an_attempt() -> None:
    assert Webhook("http://host/", attempts="0.5").attempts == 1


def test_stop_training_leaves_a_request_in_the_run(trial: tensortrial.Trial) -> None:
    invoke_rule(Always(trial, action_str='{"name": "StopTraining"}'))
    request = json.loads((Path(trial.path) / "stop.json").read_text())
    assert request["rule"] == "Always"
    assert isinstance(parse_actions("StopTraining").actions[0], StopTraining)


@pytest.mark.parametrize(
    ("action", "sentence"),
    [
        ("StopTrainin", "StopTraining"),
        ('{"name": "Email", "email_address": "a@b.c"}', "Webhook"),
        ('{"name": "SMS", "phone_number": "123"}', "Webhook"),
        ('{"name": "Webhook", "url": "nowhere"}', "HTTP server"),
        ('{"name": "Webhook", "url": "http://host/", "timeout": Infinity}', "timeout must be a finite number above 0"),
        ('{"name": "Webhook", "url": "http://host/", "attempts": 0}', "attempts must be a finite number above 0"),
        ('{"name": "Command", "command": "no-such-program-here"}', "no-such-program-here"),
        ("{", "JSON"),
    ],
)
def test_an_action_that_cannot_be_used_is_refused_at_construction(
    trial: tensortrial.Trial, action: str, sentence: str
) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        Always(trial, action_str=action)
