from __future__ import annotations

import logging
from collections.abc import Mapping

from .peer import Peer
from .work import Scalars, Tensors


class MLflow(Peer):
    title = "MLflow"
    packages = ("mlflow-skinny",)
    usage = (
        "a local SQLite store, `log_metrics` of all scalars of a step, with `synchronous=False`; `get_metric_history` "
        "to read"
    )
    keeps = ("scalars",)
    scalar_limit = 10_000

    def load(self) -> None:
        import mlflow

        logging.getLogger("mlflow").setLevel(logging.ERROR)
        logging.getLogger("alembic").setLevel(logging.ERROR)
        mlflow.set_tracking_uri(f"sqlite:///{self.folder / 'mlflow.db'}")
        self._mlflow = mlflow

    def warm_up(self, work: Tensors | Scalars) -> None:
        self.load()  # its folder is the process's, and would hold the first run too

    def begin(self, work: Tensors | None, statistics: bool = False) -> None:
        self._mlflow.set_experiment("peers")
        self._mlflow.start_run()

    def save_scalars(self, step: int, scalars: Mapping[str, float]) -> None:
        self._mlflow.log_metrics(dict(scalars), step=step, synchronous=False)

    def close(self) -> None:
        self._mlflow.flush_async_logging()
        self._mlflow.end_run()

    def open(self) -> None:
        self._client = self._mlflow.MlflowClient()
        experiment = self._client.get_experiment_by_name("peers")
        self._run = self._client.search_runs([experiment.experiment_id])[0]

    def names(self) -> list[str]:
        return sorted(self._client.get_run(self._run.info.run_id).data.metrics)

    def steps(self) -> list[int]:
        history = self._client.get_metric_history(self._run.info.run_id, next(iter(self._run.data.metrics)))
        return sorted(metric.step for metric in history)

    def scalars(self, name: str) -> list[float]:
        history = self._client.get_metric_history(self._run.info.run_id, name)
        return [metric.value for metric in sorted(history, key=lambda metric: metric.step)]
