"""Real servers for tests, each started once a session on loopback: moto, a Ceph RADOS Gateway, and PostgreSQL.

moto is an emulator and quick; the gateway is a real server that checks signatures and enforces bucket policies.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

_CEPH = Path(__file__).with_name("ceph_rgw.sh")
_MOTO = Path(__file__).with_name("moto_server.py")


@dataclass(frozen=True)
class ObjectStore:
    """A running server of S3's protocol."""

    endpoint_url: str
    key: str
    secret: str

    @property
    def storage_options(self) -> dict[str, Any]:
        """What `open_storage` takes."""
        return {"endpoint_url": self.endpoint_url, "key": self.key, "secret": self.secret}

    @cached_property
    def client(self) -> Any:
        """A boto3 client, for what the project itself never does: buckets and policies."""
        import boto3

        keys = {"aws_access_key_id": self.key, "aws_secret_access_key": self.secret}
        return boto3.client("s3", endpoint_url=self.endpoint_url, region_name="us-east-1", **keys)

    def new_bucket(self) -> str:
        """The URL of a new, empty bucket."""
        name = f"bucket-{secrets.token_hex(6)}"
        self.client.create_bucket(Bucket=name)
        return f"s3://{name}"


@pytest.fixture(scope="session")
def moto_s3() -> Iterator[ObjectStore]:
    """moto's server in a process of its own."""
    with running_moto() as store:
        yield store


@contextmanager
def running_moto() -> Iterator[ObjectStore]:
    """moto's server in a process of its own, which ends with the block."""
    (port,) = free_ports(1)
    store = ObjectStore(f"http://127.0.0.1:{port}", "moto", "moto-secret")
    command = [sys.executable, str(_MOTO), str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(store.endpoint_url, lambda: server.poll() is None)
        yield store
    finally:
        server.terminate()
        server.wait(10)


@pytest.fixture(scope="session")
def ceph_s3() -> Iterator[ObjectStore]:
    """A Ceph RADOS Gateway. Without one the tests fail, because a skipped test of real storage goes unnoticed."""
    if os.environ.get("TENSORTRIAL_SKIP_CEPH") == "1":
        pytest.skip("TENSORTRIAL_SKIP_CEPH=1: not tested against a real object store")
    if not shutil.which("radosgw"):
        pytest.fail("radosgw is not installed: run `make servers`, or set TENSORTRIAL_SKIP_CEPH=1 to do without")
    # Not in pytest's own folder: the path of a socket may have 107 characters only.
    folder = Path(tempfile.mkdtemp(prefix="ceph-"))
    ports = free_ports(3)
    store = ObjectStore(f"http://127.0.0.1:{ports[0]}", secrets.token_hex(10), secrets.token_hex(20))
    try:
        _ceph("start", folder, *map(str, ports), store.key, store.secret)
        wait_for(store.endpoint_url, lambda: True)
        yield store
    finally:
        processes = [int(file.read_text()) for file in folder.glob("run/*.pid")]
        _ceph("stop", folder)
        _wait_until_ended(processes)
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True)
class PostgreSQLServer:
    """A running PostgreSQL."""

    port: int
    user: str
    password: str

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://{self.user}:{self.password}@127.0.0.1:{self.port}/{database}"

    def new_database(self, options: str = "") -> str:
        """The URL of a new, empty database, which is created with options of SQL."""
        from adbc_driver_postgresql import dbapi

        name = f"db_{secrets.token_hex(6)}"
        with dbapi.connect(self.url(), autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute(f"create database {name} {options}")
        return self.url(name)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgreSQLServer]:
    """A PostgreSQL cluster of its own. Without one the tests fail, because a skipped test of it goes unnoticed."""
    if os.environ.get("TENSORTRIAL_SKIP_POSTGRES") == "1":
        pytest.skip("TENSORTRIAL_SKIP_POSTGRES=1: not tested against a real PostgreSQL")
    if _postgres_programs() is None:
        pytest.fail("PostgreSQL is not installed: run `make servers`, or set TENSORTRIAL_SKIP_POSTGRES=1 to do without")
    with running_postgres() as server:
        yield server


@contextmanager
def running_postgres() -> Iterator[PostgreSQLServer]:
    """A PostgreSQL cluster of its own, which is deleted at the end."""
    programs = _postgres_programs()
    assert programs is not None
    folder = Path(tempfile.mkdtemp(prefix="postgres-"))
    server = PostgreSQLServer(free_ports(1)[0], "tester", secrets.token_hex(16))
    try:
        _start_postgres(programs, folder, server)
        yield server
    finally:
        _as_postgres([programs / "pg_ctl", "stop", "-D", folder / "data", "-m", "immediate", "-w"], folder)
        shutil.rmtree(folder, ignore_errors=True)


def _postgres_programs() -> Path | None:
    """The folder with initdb and pg_ctl; Debian does not put it on the path."""
    if found := shutil.which("initdb"):
        return Path(found).parent
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
    return folders[-1] if folders else None


def _start_postgres(bin_folder: Path, folder: Path, server: PostgreSQLServer) -> None:
    (folder / "password").write_text(server.password)
    if os.geteuid() == 0:  # PostgreSQL refuses to run as root
        for path in (folder, folder / "password"):
            shutil.chown(path, "postgres")
    data = folder / "data"
    make = ["-D", data, "-U", server.user, "--pwfile", folder / "password", "-A", "scram-sha-256", "-E", "UTF8"]
    settings = f"-p {server.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={folder} -c fsync=off"
    start = ["start", "-D", data, "-l", folder / "log", "-w", "-o", settings]
    commands: list[list[Any]] = [
        [bin_folder / "initdb", "--no-sync", "--locale=C", *make],
        [bin_folder / "pg_ctl", *start],
    ]
    for command in commands:
        if _as_postgres(command, folder):
            pytest.fail(f"{command[0].name} failed:\n{(folder / 'output').read_text(errors='replace')[-2000:]}")


def _as_postgres(command: list[Any], folder: Path) -> int:
    # To a file, not a pipe: the server inherits it and would keep a pipe open.
    user: dict[str, Any] = {"user": "postgres", "group": "postgres", "extra_groups": []} if os.geteuid() == 0 else {}
    with (folder / "output").open("ab") as output:
        words = [str(word) for word in command]
        return subprocess.run(
            words, cwd=folder, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, timeout=60, **user
        ).returncode


def _ceph(verb: str, folder: Path, *arguments: str) -> None:
    # To a file, not a pipe: the daemons inherit it and would keep a pipe open.
    log = folder / "start.log"
    with log.open("ab") as output:
        command = ["bash", str(_CEPH), verb, str(folder), *arguments]
        done = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, timeout=120)
    if done.returncode:
        pytest.fail(f"ceph_rgw.sh {verb} failed:\n{log.read_text(errors='replace')[-2000:]}")


def free_ports(count: int) -> list[int]:
    """Return ports of loopback that nothing listens on."""
    # All held at once, so that they differ.
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def wait_for(url: str, alive: Callable[[], bool], seconds: float = 60) -> None:
    """Wait until a server answers; fail when it is no longer alive, or after some seconds."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and alive():
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except urllib.error.HTTPError as answer:
            answer.close()
            return
        except OSError:
            time.sleep(0.1)
    pytest.fail(f"the server at {url} did not come up")


def _wait_until_ended(processes: list[int], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while processes and time.monotonic() < deadline:
        processes = [each for each in processes if _runs(each)]
        time.sleep(0.05)
    for each in processes:
        os.kill(each, signal.SIGKILL)


def _runs(process: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except OSError:
        return False
