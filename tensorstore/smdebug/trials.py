"""The names of smdebug.trials: open runs with the interface that scripts for smdebug use."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import cached_property
from typing import Any

from tensortrial import dtypes
from tensortrial.config.collection import NUMBERS, Collection, Collections, check_collection_name
from tensortrial.errors import UnavailableError
from tensortrial.mode import GLOBAL, ModeKeys
from tensortrial.read import tensor, trial
from tensortrial.read.opening import wait_for_run
from tensortrial.read.trial import run_reader_of
from tensortrial.snapshot.saved_steps import StepRange
from tensortrial.storage.open import as_location, open_storage

from .constants import SCALAR_PREFIX

__all__ = ["LocalTrial", "S3Trial", "Trial", "create_trial"]

_FRAMEWORKS_OF_NUMBERS = ("keras", "xgboost")
"""The frameworks whose tensors in the collections of numbers have one element."""


class Tensor(tensor.Tensor):
    """A tensor of a run, as scripts for smdebug use it: a scalar is an array of one element."""

    original_name: str | None = None
    """Always None: a tensor has one name."""
    framework: str = ""
    """The framework of the run."""

    def value(self, step_num: int, mode: ModeKeys = GLOBAL, worker: str | None = None) -> dtypes.Array:
        """Return the result of `tensortrial.read.tensor.Tensor.value`, but for a scalar an array of shape (1,)."""
        return self._shaped(super().value(step_num, mode, worker))

    def values(self, mode: ModeKeys = GLOBAL, worker: str | None = None) -> dict[int, dtypes.Array]:
        """Return the result of `tensortrial.read.tensor.Tensor.values`, but for a scalar arrays of shape (1,)."""
        return {step: self._shaped(value) for step, value in super().values(mode, worker).items()}

    def _shaped(self, value: dtypes.Array) -> dtypes.Array:
        return value.reshape(1) if value.ndim == 0 and self._is_number else value

    @cached_property
    def _is_number(self) -> bool:
        """True if smdebug saved the tensor as an array of one element."""
        if self.name.startswith(SCALAR_PREFIX):
            return True
        if self.framework not in _FRAMEWORKS_OF_NUMBERS:
            return False
        return not NUMBERS.isdisjoint(dict(self._reader.tensors(GLOBAL)).get(self.name, ()))


class Trial(trial.Trial):
    """A run that is open for reading, as scripts for smdebug use it.

    Args:
        path: The run's folder, or a URL.
        name: The name of the trial; the last part of the path if None.
        range_steps: Restricts the trial to global steps a <= s < b of (a, b).
        timeout: Seconds to wait for a run to appear; None raises at once if there is none.
        parallel: Has no effect, as all that follow: smdebug had it.
        check: Has no effect.
        index_mode: Has no effect.
        cache: Has no effect.
        profiler: Has no effect.
        output_dir: Has no effect.
    """

    def __init__(  # noqa: PLR0913 - a script may pass them, and a misspelled one is an error
        self,
        path: str | os.PathLike[str],
        name: str | None = None,
        range_steps: StepRange | None = None,
        timeout: float | None = None,
        *,
        parallel: Any = None,
        check: Any = None,
        index_mode: Any = None,
        cache: Any = None,
        profiler: Any = None,
        output_dir: Any = None,
    ) -> None:
        storage = open_storage(as_location(path).strip())
        super().__init__(storage, wait_for_run(storage, timeout), name, range_steps)

    def tensor(self, tname: str) -> Tensor:
        """Return the tensor of `tensortrial.read.trial.Trial.tensor`, as scripts for smdebug use it."""
        found = Tensor(super().tensor(tname).name, self._reader)
        found.framework = self.info.framework
        return found

    def steps(self, mode: ModeKeys = GLOBAL, show_incomplete_steps: bool = False) -> list[int]:
        """Return the steps at which other tensors than scalars were saved; all steps if only scalars were.

        Args:
            mode: The mode that steps are counted in; GLOBAL counts over all modes.
            show_incomplete_steps: Return incomplete steps, too.

        Returns:
            The steps, ascending.
        """
        mode = ModeKeys.parse(mode)
        found = super().steps(mode, show_incomplete_steps)
        if not any(_is_scalar(name) for name, _ in self._reader.tensors(GLOBAL)):
            return found
        more = [step for step in found if not all(_is_scalar(name) for name, _ in self._reader.tensors(mode, step))]
        return more or found

    def collections(self) -> Collections:
        """Return the collections of the job, and those that `collection` made.

        Returns:
            The collections, by name.
        """
        return Collections({**super().collections(), **self._own_collections()})

    def collection(self, coll_name: str) -> Collection:
        """Return a collection. A missing one is made, by which names can be matched.

        Args:
            coll_name: The name of the collection.

        Returns:
            The collection.
        """
        collections = self.collections()
        if coll_name not in collections:
            check_collection_name(coll_name)
            self._own_collections()[coll_name] = collections[coll_name] = Collection(coll_name)
        return collections[coll_name]

    def tensor_names(self, show_prefixed_tensors: bool = False, **selection: Any) -> list[str]:
        """Return the names of saved tensors, as `tensortrial.read.trial.Trial.tensor_names` does.

        Args:
            show_prefixed_tensors: Has no effect.
            selection: `step`, `mode`, and `regex` or `collection`.

        Returns:
            The names, sorted.
        """
        own = self._own_collections().get(str(selection.get("collection")))
        return super().tensor_names(**{**selection, "collection": own} if own is not None else selection)

    def tensors(self, **selection: Any) -> list[str]:
        """Return the names of saved tensors, as `tensor_names` does: the documents' first rule calls it.

        Args:
            selection: `step`, `mode`, and `regex` or `collection`.

        Returns:
            The names, sorted.
        """
        return self.tensor_names(**selection)

    @property
    def last_complete_step(self) -> int:
        """The newest complete step; -1 if there is none."""
        return max(self.steps(), default=-1)

    def refresh_data(self) -> None:
        """Find new data now."""
        self.refresh()

    def maybe_refresh(self, name: str | None = None) -> None:
        """Find new data now, unless inside `no_refresh`.

        Args:
            name: Has no effect.
        """
        if run_reader_of(self).is_refreshing:
            self.refresh()

    @property
    def _global_to_mode(self) -> dict[int, tuple[ModeKeys, int]]:
        found = {}
        for step in self.steps(show_incomplete_steps=True):
            with suppress(UnavailableError):
                found[step] = (self.mode(step), self.mode_step(step))
        return found

    def _own_collections(self) -> dict[str, Collection]:
        # Set outside of the constructor, because copying does not call it.
        return self.__dict__.setdefault("_made_collections", {})


class LocalTrial(Trial):
    """A run in a folder on a disk.

    Args:
        name: The name of the trial.
        dirname: The run's folder.
        range_steps: Restricts the trial to global steps a <= s < b of (a, b).
        options: Further arguments of `Trial`.
    """

    def __init__(
        self, name: str | None, dirname: str | os.PathLike[str], range_steps: StepRange | None = None, **options: Any
    ) -> None:
        super().__init__(dirname, name, range_steps, **options)


class S3Trial(Trial):
    """A run in S3.

    Args:
        name: The name of the trial.
        bucket_name: The bucket.
        prefix_name: The path in the bucket.
        range_steps: Restricts the trial to global steps a <= s < b of (a, b).
        options: Further arguments of `Trial`.
    """

    def __init__(
        self, name: str | None, bucket_name: str, prefix_name: str, range_steps: StepRange | None = None, **options: Any
    ) -> None:
        super().__init__(f"s3://{bucket_name}/{prefix_name}", name, range_steps, **options)


def create_trial(
    path: str | os.PathLike[str] | None = None,
    name: str | None = None,
    range_steps: StepRange | None = None,
    *,
    out_dir: str | os.PathLike[str] | None = None,
    **options: Any,
) -> Trial:
    """Open a run for reading, also while it is being written.

    Args:
        path: The run's folder, or an fsspec URL such as `s3://bucket/run`.
        name: The name of the trial; the last part of the path if None.
        range_steps: Restricts the trial to global steps a <= s < b of (a, b).
        out_dir: The path, by the name that the overview of smdebug's documentation has.
        options: `timeout`, in seconds, and arguments that smdebug had, without effect.

    Returns:
        The open run: a LocalTrial, an S3Trial, or for another URL a Trial.
    """
    place: Any = out_dir if path is None else path
    text = as_location(place).strip()
    scheme, separator, rest = text.partition("://")
    if not separator:
        return LocalTrial(name, text, range_steps, **options)
    if scheme == "s3":
        bucket, _, prefix = rest.partition("/")
        return S3Trial(name, bucket, prefix, range_steps, **options)
    return Trial(text, name, range_steps, **options)


def _is_scalar(name: str) -> bool:
    return name.startswith(SCALAR_PREFIX)
