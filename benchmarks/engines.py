"""The same questions to DuckDB and to Apache Spark: 1, 10 and, with --full, 100 million rows of a compacted index.

Every answer counts from a warm session, whose start is printed separately; a query runs three times, and the best
time counts.

    python benchmarks/engines.py [--full] [--master 'local-cluster[2,1,4096]']
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path

from common import header, in_fresh_process, line, scratch, seconds

ENGINES = ("duckdb", "spark")
SIZES = [1_000_000, 10_000_000, 100_000_000]
GROWTH = Path(__file__).parent / "growth.py"
QUESTIONS = {
    "group by name, all rows": "select name, avg(mean), avg(l2) from tensors group by name",
    "one step by SQL": "select name, mean from tensors where global_step = 1000",
    "one tensor by SQL": "select global_step, mean from tensors where name = 'layer250.weight'",
}
ORDER = ["start of the session", "open, first steps()", *QUESTIONS]


def read(engine: str, out: str, master: str) -> None:
    """Print the measured seconds as JSON."""
    import tensortrial

    found: dict[str, float] = {}
    begun = time.perf_counter()
    chosen = _spark(master) if engine == "spark" else None
    found["start of the session"] = time.perf_counter() - begun
    begun = time.perf_counter()
    trial = tensortrial.create_trial(out, engine=chosen)
    trial.steps()
    found["open, first steps()"] = time.perf_counter() - begun
    with tensortrial.no_refresh(trial):
        for what, query in QUESTIONS.items():
            found[what] = min(seconds(lambda query=query: trial.sql(query).to_arrow_table()) for _ in range(3))
    print(json.dumps(found))


def _spark(master: str) -> object:
    from pyspark.sql import SparkSession

    from tensortrial.engines.spark import SparkEngine

    os.environ.update(SPARK_LOCAL_IP="127.0.0.1", PYSPARK_PYTHON=sys.executable)
    builder = SparkSession.builder.master(master).config("spark.ui.enabled", "false")
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    spark.range(1000).count()
    return SparkEngine(spark)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--read", choices=ENGINES)
    parser.add_argument("--out")
    parser.add_argument("--full", action="store_true", help="100 million rows as well")
    parser.add_argument("--master", default=f"local[{os.cpu_count()}]")
    arguments = parser.parse_args()
    if arguments.read:
        read(arguments.read, arguments.out, arguments.master)
        return
    header(f"One run, two engines; Spark's master is {arguments.master}")
    for rows in SIZES if arguments.full else SIZES[:2]:
        with scratch() as folder:
            out = folder / "run"
            in_fresh_process(GROWTH, "--write", out, "--rows", rows)
            printed = [
                in_fresh_process(__file__, "--read", engine, "--out", out, "--master", arguments.master)
                for engine in ENGINES
            ]
        duckdb, spark = (json.loads(each.splitlines()[-1]) for each in printed)
        print(f"{rows // 1_000_000} million rows: DuckDB, Spark")
        for what in ORDER:
            line(what, f"{duckdb[what] * 1e3:>9.1f} ms {spark[what] * 1e3:>9.1f} ms")


if __name__ == "__main__":
    main()
