"""What reading a run in S3 costs where each request takes 20 ms longer: how many requests, and how long.

A server of S3's protocol runs on loopback, and between it and the reader a proxy that holds each request back and
counts it. An object store in the same region answers after 10 to 30 ms.

    python benchmarks/s3.py
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from common import header, line, seconds

sys.path.append(str(Path(__file__).parent.parent / "tests"))
from support.servers import free_ports, running_moto, wait_for

LATENCY = 0.02
TENSORS, SIDE = 20, 32


# The proxy, in a process of its own.


async def serve(port: int, upstream: str) -> None:
    from aiohttp import ClientSession, DummyCookieJar, web

    seen: Counter[str] = Counter()

    async def pass_on(request: web.Request) -> web.Response:
        if request.path == "/_requests":
            answer = web.json_response(dict(seen))
            seen.clear()
            return answer
        seen[_kind(request.method, request.raw_path, request.headers.get("Range", ""))] += 1
        await asyncio.sleep(LATENCY)
        headers = {key: value for key, value in request.headers.items() if key.lower() != "host"}
        body = await request.read()
        async with session.request(
            request.method, upstream + request.raw_path, headers=headers, data=body, allow_redirects=False
        ) as answer:
            kept = {k: v for k, v in answer.headers.items() if k.lower() not in ("transfer-encoding", "connection")}
            return web.Response(status=answer.status, headers=kept, body=await answer.read())

    app = web.Application(client_max_size=1 << 30)
    app.router.add_route("*", "/{path:.*}", pass_on)
    async with ClientSession(cookie_jar=DummyCookieJar(), auto_decompress=False) as session:
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        await asyncio.Event().wait()


def _kind(method: str, path: str, part: str) -> str:
    if method == "GET" and "list-type=2" in path:
        return "LIST"
    return f"{method} {path} {part}"


# The reader's side.


@dataclass
class Requests:
    """What went through the proxy."""

    lists: int
    gets: int
    heads: int
    twice: int
    """How many requests were for parts of objects that were requested before."""

    def __str__(self) -> str:
        kinds = {"LIST": self.lists, "GET": self.gets, "HEAD": self.heads, "of them again": self.twice}
        return ", ".join(f"{count} {kind}" for kind, count in kinds.items() if count) or "no request"


def requests(proxy: str) -> Requests:
    """Return the requests since the last call."""
    with urllib.request.urlopen(f"{proxy}/_requests") as answer:
        seen: dict[str, int] = json.load(answer)
    gets = {kind: count for kind, count in seen.items() if kind.startswith("GET ")}
    heads = sum(count for kind, count in seen.items() if kind.startswith("HEAD "))
    return Requests(seen.get("LIST", 0), sum(gets.values()), heads, sum(gets.values()) - len(gets))


def measured(proxy: str, what: str, call: Callable[[], object], aim: str = "") -> None:
    requests(proxy)
    taken = seconds(call)
    line(what, f"{1e3 * taken:.0f} ms: {requests(proxy)}", aim)


def write(url: str, options: dict[str, str], flushes: int) -> None:
    """A run of so many flushes, four steps each."""
    import tensortrial

    value = np.arange(SIDE * SIDE, dtype=np.float32).reshape(SIDE, SIDE)
    with tensortrial.Run(url, storage_options=options, flush_seconds=3600) as run:
        for flush in range(flushes):
            for _ in range(4):
                with run.step():
                    for number in range(TENSORS):
                        run.save_tensor(f"layer{number}/weight", value + flush)
                    run.save_scalar("loss", 1 / (1 + flush))
            run.flush()


def read(proxy: str, url: str, options: dict[str, str], flushes: int) -> None:
    import tensortrial

    options = {**options, "endpoint_url": proxy}
    trials: list[tensortrial.Trial] = []
    measured(
        proxy,
        "open it, its names and steps",
        lambda: (
            trials.append(tensortrial.create_trial(url, storage_options=options)),
            trials[0].tensor_names(),
            trials[0].steps(),
        ),
        f"listing, and {flushes} reads, 16 at a time: {1e3 * LATENCY * (flushes / 16):.0f} ms and a little",
    )
    (trial,) = trials
    tensor = trial.tensor("layer3/weight")
    half = 2 * flushes
    measured(proxy, "nothing new: names again", trial.tensor_names)
    measured(proxy, "the first value of a step", lambda: tensor.value(half))
    measured(proxy, "another value of that step", lambda: trial.tensor("layer4/weight").value(half), "1 GET")
    measured(proxy, "the same value again", lambda: tensor.value(half), "1 GET")
    steps = trial.steps()
    measured(proxy, "one tensor at every step", lambda: trial.values(["layer7/weight"], steps))
    measured(proxy, "the same again", lambda: trial.values(["layer7/weight"], steps), "the values only")
    measured(proxy, "SQL: mean loss", lambda: trial.sql("select avg(value) from scalars").fetchall())


@contextmanager
def proxied(upstream: str) -> Iterator[str]:
    """Run the proxy, and yield its URL."""
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    process = subprocess.Popen([sys.executable, __file__, "--serve", str(port), upstream])
    try:
        wait_for(f"{url}/_requests", lambda: process.poll() is None)
        yield url
    finally:
        process.terminate()
        process.wait(10)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve", nargs=2, metavar=("PORT", "UPSTREAM"))
    parser.add_argument("--flushes", type=int, nargs="+", default=[20, 200])
    arguments = parser.parse_args()
    if arguments.serve:
        asyncio.run(serve(int(arguments.serve[0]), arguments.serve[1]))
        return

    import tensortrial
    from tensortrial.format.schema import MANIFEST
    from tensortrial.storage.open import open_storage

    header(f"S3 with {1e3 * LATENCY:.0f} ms of latency, a flush of 4 steps of {TENSORS} tensors of {4 * SIDE**2} bytes")
    with running_moto() as store, proxied(store.endpoint_url) as proxy:
        options, bucket = store.storage_options, store.new_bucket()
        for flushes in arguments.flushes:
            url = f"{bucket}/run{flushes}"
            write(url, options, flushes)
            print(f"a run of {flushes} flushes, closed with a manifest")
            read(proxy, url, options, flushes)
            print("  without the manifest")
            open_storage(url, options).remove(MANIFEST)
            read(proxy, url, options, flushes)
            tensortrial.compact(url, delete_older_than=0, storage_options=options)
            print("  compacted")
            read(proxy, url, options, flushes)


if __name__ == "__main__":
    main()
