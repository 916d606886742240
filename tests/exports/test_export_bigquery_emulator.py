"""Exports into BigQuery, as an emulator has it: DuckDB is underneath, so this is no proof of the real thing."""

from __future__ import annotations

import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from duckdb_extensions import import_extension
from google.auth.credentials import AnonymousCredentials
from google.cloud import bigquery

import tensortrial
from support.export_conformance import ExportConformance, write_run
from support.servers import free_ports, wait_for
from tensortrial.errors import ConfigurationError, ExportError

pytestmark = pytest.mark.filterwarnings("default")  # the emulator's libraries are not ours to keep quiet


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    import_extension("spatial")
    rest, grpc = free_ports(2)
    program = [str(Path(sys.executable).with_name("bqemulator")), "start", "--project", "p", "--log-level", "error"]
    with subprocess.Popen([*program, "--rest-port", str(rest), "--grpc-port", str(grpc)]) as process:
        try:
            url = f"http://127.0.0.1:{rest}"
            wait_for(f"{url}/bigquery/v2/projects/p/datasets", lambda: process.poll() is None)
            yield url
        finally:
            process.terminate()


class TestBigQuery(ExportConformance):
    @pytest.fixture
    def target(self, endpoint: str) -> str:
        return f"bigquery://p/runs_{secrets.token_hex(4)}?endpoint={endpoint}"

    def client(self, target: str) -> Any:
        endpoint = target.partition("endpoint=")[2]
        return bigquery.Client("p", credentials=AnonymousCredentials(), client_options={"api_endpoint": endpoint})

    def dataset(self, target: str) -> str:
        return target.removeprefix("bigquery://").partition("?")[0].replace("/", ".")

    def read(self, target: str, table: str) -> pa.Table:
        with self.client(target) as client:
            rows = client.query(f"select * from `{self.dataset(target)}.{table}`").result()
            return rows.to_arrow(create_bqstorage_client=False)

    def make_other(self, target: str) -> None:
        name = self.dataset(target)
        fields = [bigquery.SchemaField("run", "STRING"), bigquery.SchemaField("color", "STRING")]
        with self.client(target) as client:
            client.create_dataset(name)
            client.create_table(bigquery.Table(f"{name}.steps", fields))

    def test_names_are_quoted(self, tmp_path: Path, target: str) -> None:
        run = write_run(tmp_path / 'it\'s "a" \\ é', 2, "gpu:'0'")
        for rows in (2, 0):
            assert self.export(run, target).rows["steps"] == rows
        self.check(run, target, "steps", "tensors", "runs")

    def test_no_table_is_left_behind(self, run: Path, target: str) -> None:
        self.export(run, target)
        with self.client(target) as client:
            tables = {each.table_id for each in client.list_tables(self.dataset(target))}
        assert tables == {"runs", "collections", "steps", "tensors", "scalars", "reductions", "run_summary", "exports"}

    def test_a_dataset_must_be_named(self, run: Path) -> None:
        with pytest.raises(ConfigurationError, match="bigquery://project/dataset"):
            tensortrial.export(run, "bigquery://p", progress=False)

    def test_without_credentials_is_said(self, tmp_path: Path, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
        with pytest.raises(ExportError, match="bigquery://p/d"):
            tensortrial.export(run, "bigquery://p/d", progress=False)
