"""What an export costs compared with the target's own time for the same rows.

PostgreSQL is compared with psql's own COPY, in binary, of the same rows from a file; a DuckDB file with DuckDB's
own `create table as` from the index files; Parquet, Delta Lake, Iceberg and CSV with pyarrow's writers, which have the
same rows in memory, and write them into one file with the options that an export has: on our side alone are opening
the run, reading and decoding its files, adding the run's name, and the commit. All write one table, `tensors`, of a
compacted index. PostgreSQL is started by this program, or is at --postgres URL.

    python benchmarks/export.py [--rows 1000000] [--postgres postgresql://…]
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from adbc_driver_postgresql import dbapi
from common import header, line, scratch
from growth import PER_STEP, write

import tensortrial
from tensortrial.exports.batches import ROWS
from tensortrial.exports.tables import SCHEMAS
from tensortrial.exports.targets.parquet_file import write_options

sys.path.append(str(Path(__file__).parent.parent / "tests"))
from support.servers import running_postgres

REPEAT = 5
TABLES = ["tensors"]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rows", type=int, default=1_000_000)
    arguments.add_argument("--postgres", help="the URL of a database")
    options = arguments.parse_args()
    header(f"Export of {options.rows:,} rows of the index, {REPEAT} times each: medians, also of the ratios")
    with scratch() as folder:
        run = folder / "run"
        write(str(run), options.rows // PER_STEP)
        with server(options.postgres) as url:
            compare("PostgreSQL, to COPY by psql", "1.1", *to_postgres(run, url, folder / "copied"))
        compare("DuckDB file, to DuckDB's own", "", *to_duckdb(run, folder))
        compare("Parquet, to pyarrow's own", "", *to_lake(run, folder, f"parquet:{folder}/out", options.rows))
        compare(
            "Delta Lake, to Parquet of pyarrow's own", "1.1", *to_lake(run, folder, f"delta:{folder}/out", options.rows)
        )
        compare(
            "Iceberg, to Parquet of pyarrow's own",
            "1.1",
            *to_lake(run, folder, f"iceberg:sqlite:///{folder}/out/lake.db", options.rows),
        )
        compare("CSV, to pyarrow's own", "", *to_csv(run, folder, options.rows))
        line("the same again, nothing being new", f"{taken(lambda: export(run, f'csv:{folder}/out')).clock:.2f} s")


class Times(NamedTuple):
    """Seconds that a call took."""

    clock: float
    cpu: float
    """Of all threads of this process and of the programs that it ran, without a server's."""


def taken(call: Callable[[], object]) -> Times:
    clock, cpu = time.perf_counter(), sum(os.times()[:4])
    call()
    return Times(time.perf_counter() - clock, sum(os.times()[:4]) - cpu)


def compare(what: str, aim: str, ours: Callable[[], Times], theirs: Callable[[], Times]) -> None:
    """In turns, so that both meet the same weather."""
    pairs = [(ours(), theirs()) for _ in range(REPEAT)]
    for kind in Times._fields:
        values = [(getattr(one, kind), getattr(two, kind)) for one, two in pairs]
        mine, other = (statistics.median(times) for times in zip(*values, strict=True))
        ratio = statistics.median(one / two for one, two in values)
        of_clock = kind == "clock"
        line(what if of_clock else "  CPU", f"{mine:.2f} s / {other:.2f} s = {ratio:.2f}", aim if of_clock else "")


def export(run: Path, target: str) -> None:
    tensortrial.export(run, target, tables=TABLES, progress=False)


def to_postgres(run: Path, url: str, copied: Path) -> tuple[Callable[[], Times], Callable[[], Times]]:
    def ours() -> Times:
        execute(url, "drop schema if exists bench cascade", "drop table if exists peer", "checkpoint")
        return taken(lambda: export(run, f"{url}?schema=bench"))

    def theirs() -> Times:
        if not copied.exists():
            psql(url, f"\\copy bench.tensors to '{copied}' (format binary)")
        execute(url, "create table peer (like bench.tensors)", "drop schema bench cascade", "checkpoint")
        return taken(lambda: psql(url, f"\\copy peer from '{copied}' (format binary)"))

    return ours, theirs


def to_duckdb(run: Path, folder: Path) -> tuple[Callable[[], Times], Callable[[], Times]]:
    out = folder / "out.duckdb"
    files = f"{run}/index/*/*/*.parquet"

    def theirs() -> Times:
        out.unlink(missing_ok=True)
        with duckdb.connect(str(out)) as database:
            return taken(lambda: database.execute(f"create table tensors as select 'run' as run, * from '{files}'"))

    def ours() -> Times:
        out.unlink(missing_ok=True)
        return taken(lambda: export(run, f"duckdb:{out}"))

    return ours, theirs


def to_lake(run: Path, folder: Path, target: str, count: int) -> tuple[Callable[[], Times], Callable[[], Times]]:
    def theirs() -> Times:
        rows = exported(folder, count)
        return taken(lambda: pq.write_table(rows, folder / "peer.parquet", ROWS, **write_options(rows.schema)))

    return lambda: into_fresh_folder(run, folder / "out", target), theirs


def to_csv(run: Path, folder: Path, count: int) -> tuple[Callable[[], Times], Callable[[], Times]]:
    def theirs() -> Times:
        paths = (folder / "out/tensors").rglob("*.csv")
        parse = pyarrow.csv.ParseOptions(newlines_in_values=True)
        tables = [pyarrow.csv.read_csv(path, parse_options=parse) for path in paths]
        rows = pa.concat_tables(tables, promote_options="permissive")
        assert len(rows) == count
        return taken(lambda: pyarrow.csv.write_csv(rows, folder / "peer.csv"))

    return lambda: into_fresh_folder(run, folder / "out", f"csv:{folder}/out"), theirs


def into_fresh_folder(run: Path, out: Path, target: str) -> Times:
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    return taken(lambda: export(run, target))


def exported(folder: Path, count: int) -> pa.Table:
    rows = pa.concat_tables([pq.ParquetFile(path).read() for path in (folder / "out").rglob("tensors/**/*.parquet")])
    assert len(rows) == count
    return rows.cast(pa.schema(list(SCHEMAS["tensors"])))


@contextmanager
def server(url: str | None) -> Iterator[str]:
    if url:
        yield url
        return
    with running_postgres() as started:
        yield started.url()


def execute(url: str, *statements: str) -> None:
    with dbapi.connect(url, autocommit=True) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def psql(url: str, command: str) -> None:
    subprocess.run(["psql", url, "--quiet", "--command", command], check=True)


if __name__ == "__main__":
    main()
