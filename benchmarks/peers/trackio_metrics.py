from __future__ import annotations

import contextlib
import io
import json
import os
import sqlite3
from collections.abc import Mapping

from .peer import Peer
from .work import Scalars, Tensors


class Trackio(Peer):
    title = "Trackio"
    packages = ("trackio",)
    usage = (
        "`trackio.log` of all scalars of a step, kept locally; SQL on the SQLite file to read, which its documentation "
        "describes (each step is one row of JSON)"
    )
    keeps = ("scalars",)

    def load(self) -> None:
        os.environ["TRACKIO_DIR"] = str(self.folder)
        os.environ["HF_HUB_OFFLINE"] = "1"
        import trackio

        self._trackio = trackio

    def warm_up(self, work: Tensors | Scalars) -> None:
        self.load()  # its folder is the process's, and would hold the first run too

    def begin(self, work: Tensors | None, statistics: bool = False) -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            self._trackio.init(project="peers", name="run", auto_log_gpu=False, auto_log_cpu=False)

    def save_scalars(self, step: int, scalars: Mapping[str, float]) -> None:
        self._trackio.log(dict(scalars), step=step)

    def close(self) -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            self._trackio.finish()

    def open(self) -> None:
        self._database = sqlite3.connect(self.folder / "peers.db")

    def names(self) -> list[str]:
        query = "select distinct key from metrics, json_each(metrics.metrics) order by key"
        return [name for (name,) in self._database.execute(query)]

    def steps(self) -> list[int]:
        return [step for (step,) in self._database.execute("select distinct step from metrics order by step")]

    def scalars(self, name: str) -> list[float]:
        rows = self._database.execute("select metrics from metrics order by step")
        return [json.loads(text)[name] for (text,) in rows]
