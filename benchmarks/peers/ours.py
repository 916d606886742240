from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from .peer import NotOffered, Peer
from .work import Tensors


class Tensortrial(Peer):
    title = "tensortrial"
    usage = (
        "`Run`, `save_tensors` and `log`; `create_trial` to read; for (e) mean and l2 are saved "
        "with the values, and the run is compacted"
    )
    keeps = ("tensors", "scalars")
    keeps_statistics = True

    @classmethod
    def versions(cls) -> str:
        from tensortrial import __version__

        return __version__

    def load(self) -> None:
        from tensortrial import create_trial

        self._create_trial = create_trial

    def begin(self, work: Tensors | None, statistics: bool = False) -> None:
        from tensortrial import ReductionConfig, Run

        os.environ["TENSORTRIAL_STRICT"] = "1"  # an error ends the measurement, not the hook
        config = ReductionConfig(reductions=["mean"], norms=["l2"], save_raw_tensor=True) if statistics else None
        self._run = Run(self.folder / "run", reduction_config=config)

    def save_tensors(self, step: int, tensors: Mapping[str, np.ndarray]) -> None:
        with self._run.step():
            self._run.save_tensors(tensors)

    def save_scalars(self, step: int, scalars: Mapping[str, float]) -> None:
        with self._run.step():
            self._run.log(scalars)

    def close(self) -> None:
        self._run.close()

    def compact(self) -> None:
        from tensortrial import compact

        compact(self.folder / "run", delete_older_than=0)

    def open(self) -> None:
        self._trial: Any = self._create_trial(self.folder / "run")

    def names(self) -> list[str]:
        return self._trial.tensor_names()

    def steps(self) -> list[int]:
        return self._trial.steps()

    def value(self, name: str, step: int) -> np.ndarray:
        return self._trial.tensor(name).value(step)

    def series(self, name: str) -> list[np.ndarray]:
        return list(self._trial.tensor(name).values().values())

    def at(self, step: int) -> dict[str, np.ndarray]:
        names = self._trial.tensor_names(step=step)
        return {name: values[step] for name, values in self._trial.values(names, [step]).items()}

    def scalars(self, name: str) -> list[float]:
        query = "select value from scalars where name = $name order by global_step"
        return [value for (value,) in self._trial.sql(query, {"name": name}).fetchall()]

    def start_queries(self) -> None:
        self._trial.sql("select 1").fetchall()

    def statistics(self) -> dict[str, tuple[float, float]]:
        query = "select name, avg(mean), avg(l2) from tensors group by name"
        return {name: (mean, norm) for name, mean, norm in self._trial.sql(query).fetchall()}


class Compacted(Tensortrial):
    title = "tensortrial, compacted"
    usage = "the same; the run is compacted when it ends, which counts as writing"
    keeps = ("tensors",)
    keeps_statistics = False

    def close(self) -> None:
        super().close()
        self.compact()

    def statistics(self) -> dict[str, tuple[float, float]]:
        raise NotOffered  # as of `Tensortrial`, which is compacted for it
