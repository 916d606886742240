"""The fixtures of all tests: the servers that `support.servers` starts, and a disk that is soon full."""

import atexit
import gc
import os
import signal
from collections.abc import Generator
from importlib.util import find_spec

import pytest

pytest.register_assert_rewrite("support.hook_conformance", "support.export_conformance", "support.storage_contract")
pytest_plugins = ["support.servers", "support.small_disk"]

# What a file's name says that its tests need, and what not every environment has.
_NEEDS = {"spark": "pyspark", "bigquery_emulator": "duckdb_extensions", "snowflake_emulator": "fakesnow"}
collect_ignore_glob = [f"*/test_*{word}*.py" for word, package in _NEEDS.items() if find_spec(package) is None]

# Hundreds of hooks would each start git. Tests of it switch it on.
os.environ.setdefault("TENSORTRIAL_ENVIRONMENT", "0")

# A process of pytest-xdist ignores Ctrl-C, and those that it starts would do so, too: tests of it would wait forever.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep what the imported modules hold out of all garbage collections.

    Those of the frameworks are a million objects. Collections while they are imported take a third of the time, one
    after them half a second, and a hook that is made before the last one is closed causes one.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@atexit.register
def _leave_garbage_to_the_end(own: int = os.getpid()) -> None:
    """Collect garbage once when the process ends: DuckDB reports its objects that no collection frees.

    A forked child ends without it.
    """
    if os.getpid() == own:
        gc.unfreeze()
        gc.disable()
