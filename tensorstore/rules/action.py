"""Actions that run when a rule fires: stop the training, post to a URL, run a command.

An action never delays the rule: slow actions run in a separate thread.
"""

from __future__ import annotations

import atexit
import json
import logging
import math
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
from ..format.checksum import document_bytes
from ..format.schema import STOP_FILE
from ..read.trial import Trial, run_reader_of
from ..visible import in_a_line
from .finding import Finding

logger = logging.getLogger("tensortrial.rules")

_AT_EXIT_SECONDS = 5.0


@dataclass(frozen=True)
class Firing:
    """The event that a rule fired at a step."""

    trial: Trial
    rule: str
    step: int | None
    findings: list[Finding]

    def to_json(self) -> dict[str, Any]:
        """Return the event as JSON values, for a webhook or a command."""
        findings = [finding.to_json() for finding in self.findings]
        return {"run": self.trial.path, "rule": self.rule, "step": self.step, "findings": findings}


class Action(ABC):
    """An action that runs when a rule fires."""

    @abstractmethod
    def act(self, firing: Firing) -> None:
        """Run the action. It must return at once, and must not raise when something outside this process fails."""

    def close(self, timeout: float) -> None:  # noqa: B027  # most actions have nothing to wait for
        """Wait up to `timeout` seconds for unfinished deliveries."""


class StopTraining(Action):
    """An action that stops training: it writes `stop.json` into the run, and each hook stops at its next step.

    The arguments, which SageMaker's configurations have, are ignored: the run identifies the job.
    """

    def __init__(self, training_job_prefix: str = "", use_default_training_job_prefix: bool | str = True) -> None:
        self._stopped: set[str] = set()

    def act(self, firing: Firing) -> None:
        if firing.trial.path in self._stopped:
            return
        self._stopped.add(firing.trial.path)
        sentence = in_a_line(firing.findings[0].sentence) if firing.findings else ""
        reason = f"rule {firing.rule} fired at step {firing.step}: {sentence}"
        document = {
            "requested_at": datetime.now(UTC).isoformat(),
            "rule": firing.rule,
            "step": firing.step,
            "reason": reason,
        }
        try:
            run_reader_of(firing.trial).storage.replace(STOP_FILE, document_bytes(document))
        except (StorageError, OSError) as exc:
            logger.error(
                "run %s: training cannot be stopped, because stop.json cannot be written: %s", firing.trial.path, exc
            )


class _Background(Action):
    """A slow action, which runs in a thread, one firing after another."""

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
        """Deliver a firing. It may take any time, and an exception is logged."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A handler that treats a redirect as the final answer."""

    def redirect_request(self, *_: Any) -> None:
        return None


class Webhook(_Background):
    """An action that posts each firing to a URL as JSON: `{"run", "rule", "step", "findings": […]}`.

    A redirect is neither followed, because the headers may hold a password for this server only, nor tried again. The
    firing is then not delivered, which is logged.

    Args:
        url: The URL, http or https.
        headers: Further HTTP headers.
        timeout: Seconds for each attempt.
        attempts: The number of attempts, if the request fails or the status is not 2xx.
        pause: Seconds between the first two attempts. Each further pause is twice as long.

    Raises:
        ConfigurationError: An argument has an invalid value.
    """

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str] | None = None,
        timeout: float | str = 10.0,
        attempts: int | str = 5,
        pause: float | str = 1.0,
    ) -> None:
        _check_url(url)
        _check_headers(headers or {})
        super().__init__()
        self.url, self.headers = url, {"Content-Type": "application/json", **(headers or {})}
        self.timeout, self.pause = _positive("timeout", timeout), _positive("pause", pause)
        self.attempts = math.ceil(_positive("attempts", attempts))
        self._opener = urllib.request.build_opener(_NoRedirect)

    def deliver(self, firing: Firing) -> None:
        body = json.dumps(firing.to_json()).encode()
        for attempt in range(1, self.attempts + 1):
            try:
                self._post(body)
                return
            except (OSError, urllib.error.URLError) as exc:
                if attempt == self.attempts:
                    raise OSError(f"no success in {attempt} attempts: {exc}") from exc
            time.sleep(self.pause * 2 ** (attempt - 1))

    def _post(self, body: bytes) -> None:
        request = urllib.request.Request(self.url, body, self.headers, method="POST")
        try:
            with self._opener.open(request, timeout=self.timeout):
                pass
        except urllib.error.HTTPError as exc:
            # The error is also an open response.
            exc.close()
            if exc.code // 100 == 3:
                reason = f"the server redirects to another URL ({exc.code}), which is not followed: set url to that one"
                raise ConfigurationError(reason) from None
            raise OSError(f"{exc.code} {exc.reason}") from None

    def __str__(self) -> str:
        parts = urlsplit(self.url)
        # The path and the query of a webhook often contain its password.
        return f"webhook {parts.scheme}://{parts.netloc.rpartition('@')[2]}"


# No message shows a URL or a header, because either may contain a password.
def _check_url(url: Any) -> None:
    expected = "url of a webhook must be that of an HTTP server, such as https://host/path"
    if not isinstance(url, str) or not url.isprintable() or " " in url:
        raise ConfigurationError(f"{expected}; the given one is no text, or has a blank or a control character")
    try:
        parts = urlsplit(url)
        is_of_server = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_of_server = False
    if not is_of_server:
        raise ConfigurationError(f"{expected}; the given one has another scheme, no host, or a port that is no number")
    if parts.username is not None:
        raise ConfigurationError(f"{expected}, without user and password: pass them in headers")


def _check_headers(headers: Any) -> None:
    if not isinstance(headers, Mapping):
        raise ConfigurationError(f"headers must be texts by their names, got a {type(headers).__name__}")
    for name, value in headers.items():
        if not (isinstance(name, str) and isinstance(value, str) and f"{name}{value}".isprintable()):
            raise ConfigurationError(f"the header {name!r} must be text without line breaks")


class Command(_Background):
    """An action that runs a program at each firing, without a shell.

    The program receives the JSON of a webhook on its standard input, and the environment variables TENSORTRIAL_RUN,
    TENSORTRIAL_RULE, TENSORTRIAL_STEP and TENSORTRIAL_SENTENCE.

    Args:
        command: A list of the program and its arguments, or a string that is split as a shell splits it.
        timeout: Seconds after which the program is killed.

    Raises:
        ConfigurationError: The program does not exist, or `timeout` is not above 0.
    """

    def __init__(self, command: str | Iterable[str], timeout: float | str = 60.0) -> None:
        self.command = shlex.split(command) if isinstance(command, str) else [str(part) for part in command]
        if not self.command or shutil.which(self.command[0]) is None:
            program = repr(self.command[0]) if self.command else "nothing"
            raise ConfigurationError(
                f"command must begin with a program that exists, got {program}; write its full path"
            )
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
    """SageMaker's action for mail, which raises ConfigurationError: use Webhook or Command instead."""

    def __init__(self, email_address: str = "", **ignored: Any) -> None:
        raise _no_service("Email", "mail", email_address)


class SMS:
    """SageMaker's action for text messages, which raises ConfigurationError: use Webhook or Command instead."""

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


def parse_actions(value: Any) -> ActionList:
    """Return the actions that a rule's `action_str` describes.

    Args:
        value: An Action, the name of one, a JSON object or list as SageMaker writes it (`[{"name": "StopTraining"},
            {"name": "webhook", "url": "https://…"}]`), or the same as Python objects.

    Raises:
        ConfigurationError: An action is unknown, or cannot be used here.
    """
    if value is None or value == "":
        return ActionList()
    if isinstance(value, ActionList):
        return value
    if isinstance(value, Action):
        return ActionList(value)
    if isinstance(value, str):
        text = value.strip()
        return parse_actions(_from_json(text)) if text.startswith(("[", "{")) else ActionList(_make(text, {}))
    if isinstance(value, Mapping):
        options = {str(key): value for key, value in value.items()}
        return ActionList(_make(str(options.pop("name", "")), options))
    if isinstance(value, Iterable):
        return ActionList(*(action for each in value for action in parse_actions(each).actions))
    raise ConfigurationError(f"action_str must be an action, its name or JSON, got a {type(value).__name__}")


def _from_json(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as exc:
        raise ConfigurationError(f"actions must be JSON: {exc}") from None  # the text may hold a password


_CLASSES: dict[str, Callable[..., Any]] = {
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
    key = name.lower().replace("_", "").replace(" ", "")
    if key not in _CLASSES:
        near = get_close_matches(name, _KNOWN, n=1, cutoff=0.0)
        raise ConfigurationError(
            f"unknown action {name!r}; did you mean {near[0]!r}? Known actions: {', '.join(_KNOWN)}"
        )
    if "endpoint" in options and key in _ENDPOINTS:
        options[_ENDPOINTS[key]] = options.pop("endpoint")
    try:
        action: Action = _CLASSES[key](**options)
    except TypeError as exc:
        raise ConfigurationError(f"action {name}: {exc}") from None
    return action


def _no_service(name: str, service: str, address: str) -> ConfigurationError:
    return ConfigurationError(
        f"action {name}({address!r}) cannot be used, because it needs a {service} service of SageMaker; use "
        "Webhook(url), or Command('program …') with a program that sends it"
    )


def _positive(name: str, value: Any) -> float:
    try:
        found = float(value)
    except (TypeError, ValueError):
        found = -1.0
    if not 0 < found < math.inf:
        raise ConfigurationError(f"{name} must be a finite number above 0, got {value!r}")
    return found
