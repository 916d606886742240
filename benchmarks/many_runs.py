"""Many runs: what it costs to open, query, show, report and export them, and a query on the page for large values.

Three hundred runs of 200 steps are opened together, next to reading their footers by nothing but pyarrow. Runs of one
number each are opened, shown by the page, written into a report and exported: what a run costs, whatever is in it.
Times are those of the processor and memory is the peak, of a fresh process for each line.

python benchmarks/many_runs.py [--runs 300 | --runs 30] [--small 100 --small 1500] [--exported 298] [--values 2000]
"""

from __future__ import annotations

import argparse
import resource
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from common import cpu_seconds, header, in_fresh_process, line, peak_megabytes, scratch

PROGRAM = __file__
VIEWS = {"the page and its table of runs": "serve", "a report": "write_report"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument(
        "--small", type=int, action="append", help="numbers of runs with one scalar each; 100 and 1,500"
    )
    parser.add_argument("--exported", type=int, default=298)
    parser.add_argument("--values", type=int, default=2000, help="values of 1 MB that the page's SQL selects")
    parser.add_argument("--measure", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        name, *given = arguments.measure
        MEASURED[name](*given)
        return
    with scratch() as folder:
        compare_opening(folder / "long", arguments.runs)
        for runs in arguments.small or (100, 1500):
            compare_views(folder / f"small-{runs}", runs)
        compare_exports(folder, arguments.exported)
        compare_sql(folder / "wide", arguments.values)


def compare_opening(folder: Path, runs: int) -> None:
    write(folder, runs, 200, 20)
    files = list(folder.glob("*/index/*/*/*.parquet"))
    header(f"{runs} runs of 200 steps and 20 scalars each, {len(files)} index files")
    opened, of_all, of_one, chosen = measure("queries", folder)
    footers = 1e3 * cpu_seconds(lambda: [pq.read_metadata(file) for file in files])
    line("open them", f"{opened:.0f} ms ({opened / footers:.1f}x the footers by pyarrow, {footers:.0f} ms)")
    line("a mean of each run, the engine's start included", f"{of_all:.0f} ms")
    line("a mean of one run", f"{of_one:.0f} ms")
    line("runs by their metadata", f"{chosen:.0f} ms")
    for what, name in VIEWS.items():
        taken, memory = measure(name, folder)
        line(what, f"{taken:.1f} s, {memory:.0f} MB")


def compare_views(folder: Path, runs: int) -> None:
    write(folder, runs, 1, 1)
    print(f"{runs} runs of one number each")
    queried, queried_memory = measure("open_and_query", folder)
    line("open_runs and a query", f"{queried:.1f} s, {queried_memory:.0f} MB")
    for what, name in VIEWS.items():
        taken, memory = measure(name, folder)
        line(what, f"{taken:.1f} s ({taken / queried:.1f}x), {memory:.0f} MB ({memory / queried_memory:.1f}x)")


def compare_exports(folder: Path, runs: int) -> None:
    from export import server

    source, lake = folder / "exported", folder / "lake"
    write(source, runs, 1, 1)
    print(f"exports of {runs} runs of one number each; again, when nothing is new")
    with server(None) as postgres:
        lake.mkdir()
        targets = {"Iceberg": f"iceberg:sqlite:///{lake}/catalogue.db", "PostgreSQL": postgres}
        for name, target in targets.items():
            counts = []
            for again in ("", ", again"):
                taken, memory = measure("export", source, target)
                counts.append(sum(1 for each in lake.rglob("*") if each.is_file()))
                files = f", {counts[-1] - sum(counts[:-1])} new files" if name == "Iceberg" else ""
                line(f"{name}{again}", f"{taken:.1f} s, {memory:.0f} MB{files}")


def compare_sql(folder: Path, values: int) -> None:
    write_wide(folder, values)
    print(f"SQL over {values} values of 1 MB, the peak of memory of the server and of a query's process")
    for query in (
        "select name, global_step, octet_length(value) from tensor_values",
        "select * from tensor_values",
        "select list(range) from range(200000000)",
    ):
        server, of_query = measure("page_sql", folder, query)
        line(query, f"{server:.0f} MB, {of_query:.0f} MB")
    (taken,) = measure("stream", folder)
    line("five rows of a stream in Python", f"{taken:.0f} MB")


def measure(name: str, *arguments: object) -> list[float]:
    """Return the numbers that one of MEASURED prints in a fresh process."""
    return [float(each) for each in in_fresh_process(PROGRAM, "--measure", name, *arguments).split()]


def write(folder: Path, runs: int, steps: int, scalars: int) -> None:
    import tensortrial

    for number in range(runs):
        values = np.random.default_rng(number).normal(size=(steps, scalars))
        with tensortrial.Run(folder / f"run{number:04}", metadata={"lr": number / runs}, environment=False) as run:
            for step in range(steps):
                run.log({f"metric{name}": value for name, value in enumerate(values[step])}, step=step)


def write_wide(folder: Path, values: int) -> None:
    import tensortrial

    # Compressed, for the disk's sake: it is the rows that are large.
    with tensortrial.Run(folder, environment=False, codec="zstd", flush_seconds=2) as run:
        value = np.zeros(262144, np.float32)
        for step in range(values):
            value[0] = step
            run.save_tensor("w", value, step=step)


# The measurements that a fresh process makes and prints.


def query_runs(folder: str) -> None:
    """Print the milliseconds of the processor to open, to query all runs, and to query one."""
    import tensortrial

    opened = []
    taken = [cpu_seconds(lambda: opened.append(tensortrial.open_runs(folder)))]
    (runs,) = opened
    of_all = "select run, avg(value) from scalars where name = 'metric7' group by run"
    of_one = "select avg(value) from scalars where name = 'metric7' and run = 'run0007'"
    for query in (of_all, of_one, "select count(*) from runs where metadata->>'lr' > '0.5'"):
        taken.append(cpu_seconds(lambda query=query: runs.sql(query).fetchall()))
    print(*(1e3 * each for each in taken))


def open_and_query(folder: str) -> None:
    import tensortrial

    print_cost(lambda: tensortrial.open_runs(folder).sql("select count(*) from scalars").fetchall())


def serve(folder: str) -> None:
    import tensortrial

    def answer() -> None:
        with tensortrial.page(folder) as page:
            for path in ("info", "scalar_table"):
                urllib.request.urlopen(f"{page.url}api/{path}").read()

    print_cost(answer)


def write_report(folder: str) -> None:
    from tensortrial.pages.report import report

    print_cost(lambda: report(folder, Path(folder).with_suffix(".html")))


def export(folder: str, target: str) -> None:
    import tensortrial

    print_cost(lambda: tensortrial.export(folder, target, progress=False))


def page_sql(folder: str, query: str) -> None:
    import tensortrial

    with tensortrial.page(folder) as page:
        given = urllib.parse.urlencode({"run": Path(folder).name, "sql": query})
        with suppress(urllib.error.HTTPError):  # more memory than the page allows
            urllib.request.urlopen(f"{page.url}api/sql?{given}").read()
    print(peak_megabytes(), resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024)


def stream(folder: str) -> None:
    import tensortrial

    rows = iter(tensortrial.create_trial(folder).sql("select * from tensor_values"))
    for _ in range(5):
        next(rows)
    print(peak_megabytes())


def print_cost(call: Callable[[], object]) -> None:
    """Print the seconds of the processor and the peak of memory of a call, in MB."""
    print(cpu_seconds(call), peak_megabytes())


MEASURED: dict[str, Callable[..., None]] = {
    "queries": query_runs,
    "open_and_query": open_and_query,
    "serve": serve,
    "write_report": write_report,
    "export": export,
    "page_sql": page_sql,
    "stream": stream,
}


if __name__ == "__main__":
    sys.exit(main())
