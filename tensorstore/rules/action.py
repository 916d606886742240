"""What is done when a rule fires: stop the training, send it to a URL, run a command.

An action never holds up the rule: what may take time is done by a thread of its own.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import queue
import shlex
import shutil
import subprocess
import threading
import time
import urllib.error
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Any
from urllib.parse import urlsplit

from ..errors import ConfigurationError, StorageError
from ..format.schema import STOP_FILE
from ..read.trial import Trial, run_reader_of
from .finding import Finding

logger = logging.getLogger("tensortrial.rules")

_AT_EXIT_SECONDS = 5.0


@dataclass(frozen=True)
class Firing:
    """A rule fired at a step."""

    trial: Trial
    rule: str
    step: int | None
    findings: list[Finding]

    def to_json(self) -> dict[str, Any]:
        """What a webhook and a command are told."""
        findings = [finding.to_json() for finding in self.findings]
        return {"run": self.trial.path, "rule": self.rule, "step": self.step, "findings": findings}


class Action(ABC):
    """Something to do when a rule fires."""

    @abstractmethod
    def act(self, firing: Firing) -> None:
        """Do it. Must return at once, and must not raise for what may fail outside."""

    def close(self, timeout: float) -> None:  # noqa: B027  # most have nothing to wait for
        """Wait at most `timeout` seconds for what is under way."""


class StopTraining(Action):
    """Asks every hook of the run to stop training at its next step, by the file `stop.json` in the run.

    The arguments are what SageMaker's configuration may give; here the run itself says which job is meant.
    """

    def __init__(self, training_job_prefix: str = "", use_default_training_job_prefix: bool | str = True) -> None:
        self._asked: set[str] = set()

    def act(self, firing: Firing) -> None:
        if firing.trial.path in self._asked:
            return
        self._asked.add(firing.trial.path)
        sentence = firing.findings[0].sentence if firing.findings else ""
        reason = f"rule {firing.rule} fired at step {firing.step}: {sentence}"
        document = {
            "requested_at": datetime.now(UTC).isoformat(),
            "rule": firing.rule,
            "step": firing.step,
            "reason": reason,
        }
        try:
            run_reader_of(firing.trial).storage.replace(STOP_FILE, json.dumps(document, indent=1).encode())
        except (StorageError, OSError) as exc:
            logger.error("run %s: training cannot be asked to stop: %s", firing.trial.path, exc)


class _Background(Action):
    """An action that may take long: a thread does it, one firing after the other."""

    def __init__(self) -> None:
        self._queue: queue.Queue[Firing] = queue.Queue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def act(self, firing: Firing) -> None:
        self._queue.put(firing)
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, daemon=True, name=type(self).__name__)
                self._thread.start()
                # A script may end right after its rule fired.
                atexit.register(self.close, _AT_EXIT_SECONDS)

    def close(self, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while self._queue.unfinished_tasks and time.monotonic() < deadline:
            time.sleep(0.01)
        if self._queue.unfinished_tasks:
            logger.error("%s: %d firings were not delivered in time", self, self._queue.unfinished_tasks)

    def _work(self) -> None:
        while True:
            firing = self._queue.get()
            try:
                self.deliver(firing)
            except Exception as exc:  # noqa: BLE001 - logged: an action never ends a rule
                logger.error(
                    "%s: rule %s fired at step %s, which was not delivered: %s", self, firing.rule, firing.step, exc
                )
            finally:
                self._queue.task_done()

    @abstractmethod
    def deliver(self, firing: Firing) -> None:
        """Do it, however long it takes. Whatever it raises is logged."""


class Webhook(_Background):
    """Sends each firing to a URL, as JSON by HTTP POST: `{"run", "rule", "step", "findings": […]}`.

    `timeout` is in seconds for each attempt; after a failure, and for an answer other than 2xx, it is tried again,
    `attempts` times in all, with `pause` seconds between the first two and twice as many each time.
    """

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str] | None = None,
        timeout: float | str = 10.0,
        attempts: int | str = 5,
        pause: float | str = 1.0,
    ) -> None:
        parts = urlsplit(url) if isinstance(url, str) else None
        if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigurationError(
                f"a webhook needs the URL of an HTTP server, such as https://host/path, not {url!r}"
            )
        super().__init__()
        self.url, self.headers = url, {"Content-Type": "application/json", **(headers or {})}
        self.timeout, self.pause = _positive("timeout", timeout), _positive("pause", pause)
        self.attempts = int(_positive("attempts", attempts))

    def deliver(self, firing: Firing) -> None:
        body = json.dumps(firing.to_json()).encode()
        for attempt in range(1, self.attempts + 1):
            try:
                self._post(body)
                return
            except (OSError, urllib.error.URLError) as exc:
                if attempt == self.attempts:
                    raise OSError(f"no answer of success in {attempt} attempts: {exc}") from exc
            time.sleep(self.pause * 2 ** (attempt - 1))

    def _post(self, body: bytes) -> None:
        request = urllib.request.Request(self.url, body, self.headers, method="POST")
        try:
            with urllib.request.urlopen(request, timeout=self.timeout):
                pass
        except urllib.error.HTTPError as exc:
            # It is an open response, too.
            exc.close()
            raise OSError(f"{exc.code} {exc.reason}") from None

    def __str__(self) -> str:
        parts = urlsplit(self.url)
        # The path and the query of a webhook are often its password.
        return f"webhook {parts.scheme}://{parts.netloc.rpartition('@')[2]}"


class Command(_Background):
    """Runs a program at each firing, with what a webhook is sent on its standard input, and in its environment
    TENSORTRIAL_RUN, TENSORTRIAL_RULE, TENSORTRIAL_STEP and TENSORTRIAL_SENTENCE. No shell comes between.

    `command` is a list, or a string split as a shell would.
    """

    def __init__(self, command: str | Iterable[str], timeout: float | str = 60.0) -> None:
        self.command = shlex.split(command) if isinstance(command, str) else [str(part) for part in command]
        if not self.command or shutil.which(self.command[0]) is None:
            raise ConfigurationError(f"a command must begin with a program that is there, not {command!r}")
        super().__init__()
        self.timeout = _positive("timeout", timeout)

    def deliver(self, firing: Firing) -> None:
        variables = {
            "TENSORTRIAL_RUN": firing.trial.path,
            "TENSORTRIAL_RULE": firing.rule,
            "TENSORTRIAL_STEP": "" if firing.step is None else str(firing.step),
            "TENSORTRIAL_SENTENCE": firing.findings[0].sentence if firing.findings else "",
        }
        done = subprocess.run(
            self.command,
            input=json.dumps(firing.to_json()).encode(),
            env={**os.environ, **variables},
            timeout=self.timeout,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            check=False,
        )
        if done.returncode:
            raise OSError(
                f"it ended with status {done.returncode}: {done.stderr.decode(errors='replace').strip()[-500:]}"
            )

    def __str__(self) -> str:
        return f"command {self.command[0]}"


class Email:
    """SageMaker's action; there is no mail service here. Raises ConfigurationError that says what to use."""

    def __init__(self, email_address: str = "", **ignored: Any) -> None:
        raise _no_service("Email", "mail", email_address)


class SMS:
    """SageMaker's action; there is no message service here. Raises ConfigurationError that says what to use."""

    def __init__(self, phone_number: str = "", **ignored: Any) -> None:
        raise _no_service("SMS", "message", phone_number)


class ActionList(Action):
    """Several actions as one."""

    def __init__(self, *actions: Action) -> None:
        self.actions = list(actions)

    def act(self, firing: Firing) -> None:
        for action in self.actions:
            action.act(firing)

    def close(self, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        for action in self.actions:
            action.close(max(0.0, deadline - time.monotonic()))


Actions = ActionList


def parse_actions(given: Any) -> ActionList:
    """Actions from all that a rule's `action_str` may be: an Action, a name, a JSON object or list as SageMaker writes
    it (`[{"name": "StopTraining"}, {"name": "webhook", "url": "https://…"}]`), or the same as Python objects.

    Raises ConfigurationError for an unknown action, and for one that cannot be used here.
    """
    if given is None or given == "":
        return ActionList()
    if isinstance(given, ActionList):
        return given
    if isinstance(given, Action):
        return ActionList(given)
    if isinstance(given, str):
        text = given.strip()
        return parse_actions(_from_json(text)) if text.startswith(("[", "{")) else ActionList(_make(text, {}))
    if isinstance(given, Mapping):
        options = {str(key): value for key, value in given.items()}
        return ActionList(_make(str(options.pop("name", "")), options))
    if isinstance(given, Iterable):
        return ActionList(*(action for each in given for action in parse_actions(each).actions))
    raise ConfigurationError(f"{given!r} is not an action")


def _from_json(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as exc:
        raise ConfigurationError(f"actions must be JSON: {exc}: {text[:100]!r}") from exc


_KINDS: dict[str, Callable[..., Any]] = {
    "stoptraining": StopTraining,
    "webhook": Webhook,
    "command": Command,
    "email": Email,
    "sms": SMS,
}
_KNOWN = ("StopTraining", "Webhook", "Command")
# SageMaker calls the address of every action its endpoint.
_ENDPOINTS = {"webhook": "url", "command": "command", "email": "email_address", "sms": "phone_number"}


def _make(name: str, options: dict[str, Any]) -> Action:
    kind = name.lower().replace("_", "").replace(" ", "")
    if kind not in _KINDS:
        near = get_close_matches(name, _KNOWN, n=1, cutoff=0.0)
        raise ConfigurationError(f"unknown action {name!r}; did you mean {near[0]!r}? There are {', '.join(_KNOWN)}")
    if "endpoint" in options and kind in _ENDPOINTS:
        options[_ENDPOINTS[kind]] = options.pop("endpoint")
    try:
        action: Action = _KINDS[kind](**options)
    except TypeError as exc:
        raise ConfigurationError(f"action {name}: {exc}") from None
    return action


def _no_service(name: str, service: str, address: str) -> ConfigurationError:
    return ConfigurationError(
        f"action {name}({address!r}) cannot be used: there is no {service} service here. Use Webhook(url), or "
        "Command('program …') with a program that sends it"
    )


def _positive(name: str, value: Any) -> float:
    try:
        found = float(value)
    except (TypeError, ValueError):
        found = -1.0
    if not found > 0:
        raise ConfigurationError(f"{name} must be a number above 0, not {value!r}")
    return found
