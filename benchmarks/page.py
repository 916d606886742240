"""How long the first answers of the page take, each as a ratio to DuckDB's plain scan of the same files.

The scan reads the columns name, mode_step and l2 of all index files and computes a maximum for each name.

The page is served twice, each time by a fresh process: with an empty folder for tiles, and with what the first one
has kept.

    python benchmarks/page.py --tensors 1000 --steps 10000
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import duckdb
import httpx
from common import header, scratch
from growth import write


class Served:
    """The page of a run, served by the command in a fresh process."""

    def __init__(self, run: str, cache: Path) -> None:
        command = [sys.executable, "-m", "tensortrial", "page", run, "--no-browser"]
        environment = {**_environment(), "TENSORTRIAL_CACHE": str(cache), "PYTHONUNBUFFERED": "1"}
        begun = time.perf_counter()
        self.process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout
        self.url = self.process.stdout.readline().strip()
        httpx.get(self.url).raise_for_status()
        self.started = time.perf_counter() - begun

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait()

    @property
    def cpu_seconds(self) -> float:
        """The CPU time that the server has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def timed(self, path: str, **parameters: Any) -> tuple[float, int]:
        """Return the seconds that a request takes, and the bytes of its answer on the wire."""
        begun = time.perf_counter()
        with httpx.stream("GET", f"{self.url}api/{path}", params=parameters, timeout=600) as response:
            size = sum(len(part) for part in response.iter_raw())
            response.raise_for_status()
        return time.perf_counter() - begun, size


def _environment() -> dict[str, str]:
    """Return an environment in which Python keeps the modules that it has compiled."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def measure(run: str, cache: Path, what: str, scan: tuple[float, float]) -> None:
    """Print how long the first picture takes, and the requests after it."""
    name = Path(run).name
    tiles = {"run": name, "statistic": "l2", "mode": "TRAIN", "columns": 300}
    at = {"run": name, "mode": "TRAIN", "name": "layer001.weight"}
    with Served(run, cache) as served:
        print(f"\n{what}: served after {served.started:.2f} s, {served.cpu_seconds:.2f} s of CPU")
        first = sum(served.timed(path, **given)[0] for path, given in (("info", {}), ("tiles", tiles)))
        cpu = served.cpu_seconds
        print(f"  first picture {first:6.2f} s later, {first / scan[0]:5.1f} of a scan; {cpu:.2f} s of CPU in all,"
              f" {cpu / scan[1]:.1f} of a scan")  # fmt: skip
        for title, path, given in (
            ("tiles, again", "tiles", tiles),
            ("tiles, zoomed", "tiles", {**tiles, "from": 100, "to": 300}),
            ("tensor", "tensor", at),
            ("series", "series", {**at, "statistics": "l2"}),
            ("availability", "availability", {"run": name, "mode": "TRAIN"}),
        ):
            before = served.cpu_seconds
            seconds, size = served.timed(path, **given)
            print(f"  {title:13} {seconds:6.2f} s, {served.cpu_seconds - before:5.2f} s of CPU  {size / 1000:8.1f} kB")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tensors", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=10_000, help="100000 takes minutes to write, and 0.8 GB")
    parser.add_argument("--run", help="a run that an earlier call has left with --keep")
    parser.add_argument("--keep", help="where to write the run, which is not deleted")
    options = parser.parse_args()
    header(f"The page: {options.tensors} tensors x {options.steps} steps")
    with scratch() as folder:
        run = options.run or options.keep or str(folder / "run")
        if not options.run:
            write(run, options.steps, options.tensors, ends=True)
        files = str(Path(run) / "index" / "**" / "*.parquet")
        query = "select name, max(l2), max(mode_step) from read_parquet($files) group by name"
        begun = time.perf_counter(), time.process_time()
        duckdb.connect().execute(query, {"files": files}).fetchall()
        scan = time.perf_counter() - begun[0], time.process_time() - begun[1]
        print(f"a scan takes {scan[0]:.2f} s, {scan[1]:.2f} s of CPU")
        Served(run, folder / "another").__exit__()  # whose modules are compiled, as pip does
        for what in ("nothing kept", "tiles kept"):
            measure(run, folder / "kept", what, scan)


if __name__ == "__main__":
    main()
