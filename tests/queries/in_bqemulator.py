"""Answers queries in bqemulator, which emulates BigQuery. Runs in an environment of its own, without tensortrial.

The folder that it is given holds tables as Parquet and `queries.json`; it prints the rows of each query, or the error.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from duckdb_extensions import import_extension
from google.api_core.exceptions import GoogleAPIError
from google.auth.credentials import AnonymousCredentials
from google.cloud import bigquery

DATASET = "project.runs"
TYPES = {pa.string(): "STRING", pa.float64(): "FLOAT64", pa.timestamp("us", "UTC"): "TIMESTAMP"}


def main(folder: Path) -> None:
    os.environ["HOME"] = str(folder)  # DuckDB looks for its extensions there
    import_extension("spatial")
    with emulator(folder) as url:
        client = bigquery.Client("project", AnonymousCredentials(), client_options={"api_endpoint": url})
        client.create_dataset(DATASET, retry=None, timeout=30)
        for file in folder.glob("*.parquet"):
            load(client, file)
        queries = json.loads((folder / "queries.json").read_text())
        print(json.dumps({name: answer(client, text) for name, text in queries.items()}))


@contextmanager
def emulator(folder: Path) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [Path(sys.executable).with_name("bqemulator"), "start", "--rest-port", str(port), "--grpc-port", "0"]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        wait_for(f"http://127.0.0.1:{port}", server)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait(10)


def wait_for(url: str, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and server.poll() is None:
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except urllib.error.HTTPError as response:
            response.close()
            return
        except OSError:
            time.sleep(0.1)
    raise SystemExit("bqemulator did not come up")


def load(client: bigquery.Client, file: Path) -> None:
    name = f"{DATASET}.{file.stem}"
    fields = [column(field) for field in pq.read_schema(file)]
    client.create_table(bigquery.Table(name, fields), retry=None, timeout=30)
    options = bigquery.ParquetOptions()
    options.enable_list_inference = True
    config = bigquery.LoadJobConfig(source_format="PARQUET", parquet_options=options)
    with file.open("rb") as rows:
        client.load_table_from_file(rows, name, job_config=config, timeout=30).result(timeout=30)


def column(field: pa.Field) -> bigquery.SchemaField:
    if pa.types.is_list(field.type):
        return bigquery.SchemaField(field.name, TYPES.get(field.type.value_type, "INT64"), "REPEATED")
    return bigquery.SchemaField(field.name, TYPES.get(field.type, "INT64"))


def answer(client: bigquery.Client, text: str) -> Any:
    config = bigquery.QueryJobConfig(default_dataset=DATASET)
    try:
        found = client.query(text, job_config=config, retry=None, job_retry=None).result(timeout=30)
        return [list(row.values()) for row in found]
    except GoogleAPIError as exc:
        return str(exc)


main(Path(sys.argv[1]))
