"""A parser of the messages in .wandb files, which are protocol buffers of wandb_internal.proto."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...tfevents.wire import Value, fields, floating, message, number, signed
from ..documents import json_of
from ..times import iso_time

# Fields of Record.
HISTORY, SUMMARY, CONFIG, STATS, METRIC, RUN, EXIT = 2, 3, 5, 7, 12, 17, 18
_RUN_TEXTS = {1: "run_id", 2: "entity", 3: "project", 6: "group", 7: "job_type", 8: "name", 9: "notes", 13: "host"}
_RUN_CONFIG, _RUN_TAG, _RUN_STARTED_AT, _RUN_BRANCH = 4, 10, 17, 23


def history_of(body: memoryview, path: str) -> tuple[dict[str, Any], int | None]:
    """Return the values of a history message, nested as they were logged, and its step; None if it has none."""
    values: dict[str, Any] = {}
    step = None
    for field, value in fields(body):
        if field == 1:
            _put(values, *_item(message(value), path))
        elif field == 2:
            step = next((_int(each) for inner, each in fields(message(value)) if inner == 1), 0)
    return values, step


def update_config(config: dict[str, Any], body: memoryview, path: str) -> None:
    """Apply a message that updates the configuration or the summary."""
    for field, value in fields(body):
        if field in (1, 2):
            keys, found = _item(message(value), path)
            if field == 1:
                _put(config, keys, found)
            elif keys:
                config.pop(keys[0], None)


def run_of(body: memoryview, path: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the description and the configuration of a run from its message."""
    about: dict[str, Any] = {}
    config: dict[str, Any] = {}
    for field, value in fields(body):
        if field in _RUN_TEXTS:
            about[_RUN_TEXTS[field]] = _text(value)
        elif field == _RUN_TAG:
            about.setdefault("tags", []).append(_text(value))
        elif field == _RUN_CONFIG:
            update_config(config, message(value), path)
        elif field == _RUN_STARTED_AT:
            seconds = next((_int(each) for inner, each in fields(message(value)) if inner == 1), 0)
            if (started_at := iso_time(seconds)) is not None:
                about["started_at"] = started_at
    return about, config


def branch_of(body: memoryview) -> tuple[str, int] | None:
    """Return the run and the step from which a run was resumed or forked; None if it was neither."""
    for field, value in fields(body):
        if field == _RUN_BRANCH:
            found = dict(fields(message(value)))
            step = floating(found[2]) if 2 in found else 0.0
            # The branch point's metric is always the step.
            if 1 in found and 0 <= step < 1e15:
                return _text(found[1]), int(step)
    return None


def step_metric_of(body: memoryview) -> tuple[str, str]:
    """Return the name of a metric, or a pattern of names, and its step metric; '' if it has none."""
    texts = {field: _text(value) for field, value in fields(body) if field in (1, 2, 4)}
    return texts.get(1) or texts.get(2, ""), texts.get(4, "")


def exit_code_of(body: memoryview) -> int:
    """Return the exit code of a run."""
    return next((_int(value) for field, value in fields(body) if field == 1), 0)


def _item(body: memoryview, path: str) -> tuple[list[str], Any]:
    """Return the keys of a value, from the outermost, and the value."""
    key, nested, found = "", list[str](), None
    for field, value in fields(body):
        if field == 1:
            key = _text(value)
        elif field == 2:
            nested.append(_text(value))
        elif field in (8, 16):
            found = json_of(_text(value), path)
        elif field == 4:
            found = bool(value)
        elif field == 5:
            # An sint64: the lowest bit is the sign.
            found = (number(value) >> 1) ^ -(number(value) & 1)
        elif field == 6:
            found = floating(value)
        elif field == 7:
            found = _text(value)
    return nested or [key], found


def _put(values: dict[str, Any], keys: list[str], found: Any) -> None:
    for key in keys[:-1]:
        inner = values.get(key)
        if not isinstance(inner, dict):
            inner = values[key] = {}
        values = inner
    last = keys[-1]
    if isinstance(found, Mapping) and isinstance(values.get(last), dict):
        values[last].update(found)
    else:
        values[last] = found


def _text(value: Value) -> str:
    return str(message(value), "utf-8", "replace")


def _int(value: Value) -> int:
    return signed(number(value))
