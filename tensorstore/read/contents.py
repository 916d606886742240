"""A trial as a mapping of its tensors, as a table in a notebook, and as a data frame."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from ..errors import InvalidWorker, QueryLimit, TensorTrialError
from ..html_table import html_table
from ..mode import ModeKeys
from .frame import frame_of
from .tensor import Tensor

if TYPE_CHECKING:
    from ..plots import TrialPlots
    from .run_reader import RunReader
    from .trial import Trial

# A table in a notebook is shown without being requested, so what takes longer is left out.
_SIZE_SECONDS = 0.1


class TrialContents:
    """What Python and notebooks expect of a container of tensors. The keys are their names."""

    _reader: RunReader

    def environment(self, worker: str | None = None) -> dict[str, Any]:
        """Return what a worker of the newest session runs with and where, as far as the run keeps it.

        Args:
            worker: The name of the worker. Default: the first one.

        Returns:
            Values by name: those of `tensortrial.environment()`, `optimizers` and `activations`. The commit and the
            packages are kept of the first worker only; empty if nothing was kept.

        Raises:
            InvalidWorker: The run has no worker of this name.
        """
        self._reader.num_workers()  # refreshes
        by_worker = {info.worker: info for info in self._reader.workers.infos}
        if worker is None:
            return next((dict(info.environment) for info in by_worker.values()), {})
        if worker not in by_worker:
            raise InvalidWorker(worker, list(by_worker))
        return dict(by_worker[worker].environment)

    def __getitem__(self, tname: str) -> Tensor:
        return _trial(self).tensor(tname)

    def __contains__(self, tname: object) -> bool:
        return isinstance(tname, str) and _trial(self).has_tensor(tname)

    def __iter__(self) -> Iterator[str]:
        return iter(_trial(self).tensor_names())

    def __len__(self) -> int:
        return len(_trial(self).tensor_names())

    def __bool__(self) -> bool:
        # A run that has saved nothing yet is a run.
        return True

    def _ipython_key_completions_(self) -> list[str]:
        return _trial(self).tensor_names()

    @property
    def plot(self) -> TrialPlots:
        """Plots of the run with matplotlib, which the extra `plot` installs: `trial.plot.heatmap("gradients", "l2")`.

        Raises:
            MissingExtra: matplotlib is not installed.
        """
        # By its name: a layer above this one, loaded on first use.
        plots: TrialPlots = import_module("tensortrial.plots").TrialPlots(_trial(self))
        return plots

    def frame(
        self,
        names: str | Iterable[str],
        statistic: str | None = None,
        mode: ModeKeys = ModeKeys.GLOBAL,
        worker: str | None = None,
        *,
        engine: str = "pandas",
    ) -> Any:
        """Return a statistic of many tensors at all steps as a data frame.

        Args:
            names: A pattern of names such as `gradient/*`, in which `*` stands for any text, or several.
            statistic: A saved statistic, such as l2; None for the values of scalars.
            mode: The mode that steps are counted in.
            worker: The worker whose values are returned; None for the first one of each step that has one.
            engine: `pandas` or `polars`. Neither is installed with the package: the extra `frame` has both.

        Returns:
            A frame with one float64 column a tensor and one row a step, NaN where there is no value. The steps are
            pandas' index, or polars' first column.

        Raises:
            ConfigurationError: No tensor matches, none has the statistic, or `engine` is unknown.
            MissingExtra: The library is not installed.
        """
        return frame_of(_trial(self), names, statistic, mode, worker, engine)

    def _repr_html_(self) -> str | None:
        try:
            return _table(_trial(self))
        except TensorTrialError:
            return None  # it was closed, or is damaged: the notebook then shows the text


def _trial(contents: TrialContents) -> Trial:
    return cast("Trial", contents)


def _table(trial: Trial) -> str:
    rows: list[tuple[str, object]] = [
        ("path", trial.path),
        ("state", "ended" if trial.loaded_all_steps else "running"),
    ]
    for mode in trial.modes():
        rows.append((f"steps {mode.name}", steps_text(trial.steps(mode))))
    rows.append(("tensors", f"{len(trial):,}"))
    rows += [
        (f"collection {name}", f"{len(each.tensor_names):,} tensor{'s' * (len(each.tensor_names) != 1)}")
        for name, each in sorted(trial.collections().items())
        if each.tensor_names
    ]
    if (size := _size(trial)) is not None:
        rows.append(("size", f"{size / 1e6:,.1f} MB of tensors"))
    return html_table(f"Trial {trial.name}", rows)


def _size(trial: Trial) -> int | None:
    try:
        return int(trial.sql("select coalesce(sum(nbytes), 0) from tensors", timeout=_SIZE_SECONDS).fetchall()[0][0])
    except QueryLimit:
        return None


def steps_text(steps: list[int]) -> str:
    """Return how many steps there are, and the first and the last one."""
    return f"{len(steps):,}: {steps[0]} to {steps[-1]}" if steps else "none"
