"""Three hundred runs, opened together: how long it takes, against reading their footers by nothing but pyarrow.

python benchmarks/many_runs.py
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from common import header, in_fresh_process, line, scratch, seconds


def write(folder: Path, runs: int, steps: int) -> None:
    from tensortrial.hooks.core.configuration.options import Framework, HookOptions
    from tensortrial.hooks.core.process.rank import Rank
    from tensortrial.hooks.core.recorder import Recorder

    for number in range(runs):
        options = HookOptions(folder / f"run{number:03}", metadata={"lr": number / runs})
        recorder = Recorder(options, Framework("benchmark"), Rank())
        values = np.random.default_rng(number).normal(size=(steps, 20))
        for step in range(steps):
            recorder.begin_step()
            for name in range(20):
                recorder.save_scalar(f"metric{name}", values[step, name])
        recorder.close()


def query_runs(folder: Path) -> None:
    """Print the milliseconds to open, to query all runs, and to query one."""
    import tensortrial

    opened = []
    taken = [seconds(lambda: opened.append(tensortrial.open_runs(folder)))]
    (runs,) = opened
    of_all = "select run, avg(value) from scalars where name = 'metric7' group by run"
    of_one = "select avg(value) from scalars where name = 'metric7' and run = 'run007'"
    for query in (of_all, of_one, "select count(*) from runs where metadata->>'lr' > '0.5'"):
        taken.append(seconds(lambda query=query: runs.sql(query).fetchall()))
    print(*(1e3 * each for each in taken))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--query", type=Path)
    parser.add_argument("--runs", type=int, default=300)
    arguments = parser.parse_args()
    if arguments.query:
        query_runs(arguments.query)
        return
    with scratch() as folder:
        write(folder, arguments.runs, 200)
        files = list(folder.glob("*/index/*/*/*.parquet"))
        header(f"{arguments.runs} runs of 200 steps and 20 scalars each, {len(files)} index files")
        opened, of_all, of_one, runs = map(float, in_fresh_process(__file__, "--query", folder).split())
        footers = 1e3 * seconds(lambda: [pq.read_metadata(file) for file in files])
    line("open them, imports and all", f"{opened:.0f} ms", f"footers by pyarrow: {footers:.0f} ms")
    line("a mean of each run", f"{of_all:.0f} ms")
    line("a mean of one run", f"{of_one:.0f} ms")
    line("runs by their metadata", f"{runs:.0f} ms")


if __name__ == "__main__":
    main()
