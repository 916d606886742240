"""Training and reading through a network and an S3 server that fail at random: nothing is lost or wrong."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

from night.finder import Case

from support.fault_proxy import FAULTS, FaultProxy, faults_before
from support.programs import start
from support.servers import ObjectStore, running_moto

PROCESSES = Path(__file__).resolve().parent.parent / "processes"
sys.path.insert(0, str(PROCESSES))
from audit import Auditor, broken_promises, differences  # noqa: E402

STEPS = 40
WRITER = f"""
    import json, sys
    sys.path.insert(0, {str(PROCESSES)!r})
    from digits_job import JobOptions, train

    url, options = json.loads(ARGUMENTS)
    train(JobOptions(url, steps={STEPS}, flush_every=10, hook={{"storage_options": options, "flush_seconds": 0}}))
"""


def start_writer(folder: Path, url: str, options: dict[str, Any]) -> Any:
    """Start a process that trains and saves into an object store."""
    return start(WRITER.replace("ARGUMENTS", repr(json.dumps([url, options]))), folder, TENSORTRIAL_STRICT="1")


def audited(url: str, store: ObjectStore) -> Auditor:
    """Read all of a run without faults."""
    auditor = Auditor(url, store.storage_options)
    assert auditor.open()
    auditor.read_all()
    return auditor


def train_and_follow(folder: Path, url: str, store: ObjectStore, proxy: FaultProxy) -> int:
    """Train through a proxy, read through it meanwhile, and compare. Return how many values were read at the end."""
    follower = Auditor(url, proxy.store.storage_options)
    with start_writer(folder, url, proxy.store.storage_options) as process:
        while process.poll() is None:
            if follower.open():
                follower.read_new()
            time.sleep(0.05)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    found = audited(url, store).audit
    problems = follower.audit.problems + found.problems + differences(follower.audit.digests, found)
    problems += broken_promises({(0, 0): STEPS - 1}, found)
    assert problems == [], problems
    return int(found.rows)


@contextmanager
def prepared(folder: Path) -> Iterator[Case]:
    del folder
    with running_moto() as store:

        def case(random: Random, own: Path) -> Counter[str]:
            url = f"{store.new_bucket()}/run"
            with faults_before(store, random.randrange(1 << 30)) as proxy:
                # A request is repeated five times. With more faults, one in some thousand requests would fail for good.
                proxy.probability = random.uniform(0.01, 0.1)
                rows = train_and_follow(own, url, store, proxy)
                return Counter({"faults": sum(proxy.done[fault] for fault in FAULTS), "values read": rows})

        yield case
