"""The public methods that the hooks of all frameworks share."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ParamSpec, Self

import numpy as np

from tensortrial.config.collection import Collection
from tensortrial.config.reduction_config import ReductionConfig, names
from tensortrial.config.save_config import SaveConfig
from tensortrial.dtypes import Array, as_image, rgb
from tensortrial.errors import ConfigurationError, UnsupportedValue, shown
from tensortrial.mode import ModeKeys

from . import current_hook
from .configuration.json_config import read_configuration
from .current_hook import set_hook
from .process.shutdown import wait_for_end
from .recorder import Recorder, guarded
from .user_values import array_of, check_dictionary

_P = ParamSpec("_P")
_DOCUMENTED = {"tensor_name": "name", "tensor_value": "value"}


def accepts_documented_names(method: Callable[_P, None]) -> Callable[_P, None]:
    """Also accept the argument names that smdebug documents, `tensor_name` and `tensor_value`."""

    @functools.wraps(method)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> None:
        if kwargs:
            # mypy does not know that these are keywords of the method.
            kwargs = {_DOCUMENTED.get(name, name): value for name, value in kwargs.items()}  # type: ignore[assignment]
        method(*args, **kwargs)

    return call


class BaseHook:
    """A hook's methods that are the same in every framework."""

    recorder: Recorder

    def __reduce__(self) -> tuple[Any, ...]:
        """Make a copy or a pickle a hook that saves nothing, because it would write into the same run."""
        # The nearest class of this project, because a class that inherits from it may take other arguments.
        kind = next(each for each in type(self).__mro__ if each.__module__.startswith("tensortrial.hooks."))
        return _copy, (kind, self.out_dir, self.recorder.active or bool(self.recorder.copied_from))

    @classmethod
    def create_from_json_file(cls, json_file_path: str | None = None) -> Self:
        """Make a hook from a JSON configuration, as SageMaker writes it. It becomes the current hook.

        Args:
            json_file_path: The file. Default: the path in the environment variable SMDEBUG_CONFIG_FILE_PATH, else
                /opt/ml/input/config/debughookconfig.json.

        Returns:
            The hook.

        Raises:
            ConfigurationError: The file is missing, is not JSON, or has a bad value.
            RunExists: The configured folder holds a run already.
        """
        configuration = read_configuration(json_file_path)
        hook = cls(**configuration.arguments)
        configuration.apply_to(hook.recorder.collections)
        set_hook(hook)
        return hook

    @property
    def out_dir(self) -> str:
        """The folder or URL that the run is saved to."""
        return self.recorder.run.out_dir

    @property
    def mode(self) -> ModeKeys:
        """The mode that steps are counted in."""
        return self.recorder.clock.mode

    @property
    def mode_steps(self) -> dict[ModeKeys, int]:
        """The number of the newest step of each mode that has steps; GLOBAL counts over all modes, from -1."""
        return self.recorder.clock.newest()

    @property
    def worker(self) -> str:
        """The name of this process among those of the job: "worker_0", "worker_1" and so on."""
        return self.recorder.run.duty.worker

    @property
    def save_config(self) -> SaveConfig:
        """The steps to save, for collections without a SaveConfig of their own."""
        return self.recorder.save_config

    @property
    def reduction_config(self) -> ReductionConfig:
        """The form to save in, for collections without a ReductionConfig of their own."""
        return self.recorder.reduction_config

    def add_collection(self, collection: Collection) -> None:
        """Add a collection of your own. It replaces one of the same name.

        It is saved if `include_collections` names it.

        Args:
            collection: The collection.

        Raises:
            ConfigurationError: It is not a Collection, or has no valid name.
        """
        if not isinstance(collection, Collection):
            raise ConfigurationError(f"add_collection takes a Collection, got {shown(collection)}")
        self.recorder.collections.add(collection)

    def get_collection(self, name: str, create: bool = True) -> Collection | None:
        """Return a collection by its name. Change it to change what is saved.

            hook.get_collection("losses").save_config.end_step = 0       # no losses
            hook.get_collection("weights").reduction_config = ReductionConfig(["mean", "std"])
            hook.get_collection("relu").include("relu.*_output_")        # saved if include_collections names it

        Args:
            name: The name.
            create: Make the collection if it is missing.

        Returns:
            The collection; None if it is missing and `create` is False.

        Raises:
            InvalidCollectionConfiguration: A collection cannot have this name.
        """
        return self.recorder.collections.get(name, create)

    def get_collections(self) -> dict[str, Collection]:
        """Return all collections.

        Returns:
            The collections by their names.
        """
        return self.recorder.collections.by_name()

    @guarded
    def set_mode(self, mode: ModeKeys | str) -> None:
        """Close the open step, and count the following steps in another mode.

        Args:
            mode: modes.TRAIN, EVAL, PREDICT or GLOBAL, or its name. Any other value is logged and changes nothing.
        """
        self._steps.set_mode(ModeKeys.parse(mode))

    @guarded
    def resume_at(self, step: int, mode: ModeKeys | str | None = None) -> None:
        """Continue a run at the step of a checkpoint, or repeat steps of this process.

        The steps saved from there on are superseded: those of this process at once, those of earlier sessions when the
        first step begins. Nothing is deleted: SQL still finds them in the view `superseded`.

        Args:
            step: The number of the step that comes next in its mode: the number of steps that the checkpoint was
                trained for.
            mode: The mode of the step. Default: the current one.
        """
        self._steps.resume_at(step, mode)

    @contextmanager
    def step(self, step: int | None = None, mode: ModeKeys | str | None = None) -> Iterator[None]:
        """Make everything inside a `with hook.step():` block one step.

        Use it for the accumulation of gradients, or for several models in one step. If a tensor is captured several
        times, its last value is kept. For a parameter the first one is kept: its value before the step's update.

        Args:
            step: The number of the step in its mode, at least that of the next one. From then on, only the steps that
                you begin are counted in this mode, and what runs outside of them is not saved. Default: the next one.
            mode: The mode of this step. Default: the current one.

        Yields:
            None.
        """
        try:
            self._hold_step(step, mode)  # Ctrl-C may interrupt it, too
            yield
        finally:
            self._release_step()

    def begin_step(self, step: int | None = None, mode: ModeKeys | str | None = None) -> None:
        """Begin a step, which lasts until `end_step`: the same as `with hook.step():`, in two calls.

        If `begin_step` began the open step too, that step ends now.

        Args:
            step: The number of the step in its mode, at least that of the next one. From then on, only the steps that
                you begin are counted in this mode, and what runs outside of them is not saved. Default: the next one.
            mode: The mode of this step. Default: the current one.
        """
        clock = self.recorder.clock
        if clock.held > clock.begun_by_call:
            self.recorder.refuse_call("begin_step", "inside `with hook.step():`, whose block is one step")
            return
        if clock.begun_by_call:
            self._release_step()
        try:
            self._hold_step(step, mode)
        finally:  # also after Ctrl-C
            clock.begun_by_call = bool(clock.held)

    def end_step(self) -> None:
        """End the step that `begin_step` began."""
        if not self.recorder.clock.begun_by_call:
            self.recorder.refuse_call("end_step", "begin_step has begun no step that is still open")
            return
        self._release_step()

    @guarded
    def save_scalar(
        self,
        name: str,
        value: Any,
        sm_metric: bool = False,
        timestamp: float | None = None,
        *,
        step: int | None = None,
        mode: ModeKeys | str | None = None,
    ) -> None:
        """Save a number at the open step or, if none is open, at the one that begins next in this mode.

        It is saved at any step, no matter what the save configuration says.

        Args:
            name: The name.
            value: A number, or an array or a tensor of one element.
            sm_metric: Add it to the collection `sm_metrics`.
            timestamp: Seconds since 1970. Default: now.
            step: The number of a step in its mode, also of a past one. If the step has a number of this name already,
                the last one counts. Default: the open step or the next one.
            mode: The mode that the step is counted in. Default: the current one.
        """
        self._save_named(self._save_scalars, [(name, value)], sm_metric, timestamp, step=step, mode=mode)

    @guarded
    def log(self, values: Mapping[str, Any], step: int | None = None, *, mode: ModeKeys | str | None = None) -> None:
        """Save several numbers, each as `save_scalar` does.

        Args:
            values: Numbers, or arrays or tensors of one element, by their names.
            step: The number of a step in its mode, also of a past one. Default: the open step or the next one.
            mode: The mode that the step is counted in. Default: the current one.
        """
        check_dictionary(values, "numbers")
        self._save_named(self._save_scalars, values.items(), False, None, step=step, mode=mode)

    @accepts_documented_names
    @guarded
    def save_tensor(
        self,
        name: str,
        value: Any,
        collections_to_write: Iterable[str] | str = "default",
        *,
        step: int | None = None,
        mode: ModeKeys | str | None = None,
    ) -> None:
        """Save a tensor at the open step or, if none is open, at the one that begins next in this mode.

        It is saved at any step, no matter what the save configuration says.

        Args:
            name: The name.
            value: A tensor of the framework, an array, or a (nested) list or tuple of numbers. It is copied.
            collections_to_write: A list or comma-separated text of collections. Their ReductionConfig decides the form.
            step: The number of a step in its mode, also of a past one. Default: the open step or the next one.
            mode: The mode that the step is counted in. Default: the current one.
        """
        self._save_named(self._save_tensors, [(name, value)], collections_to_write, step=step, mode=mode)

    @guarded
    def save_tensors(
        self,
        tensors: Mapping[str, Any],
        collections_to_write: Iterable[str] | str = "default",
        *,
        step: int | None = None,
        mode: ModeKeys | str | None = None,
    ) -> None:
        """Save several tensors at one step, each as `save_tensor` does, in less time.

        Args:
            tensors: Tensors of the framework, arrays, or (nested) lists of numbers, by their names. They are copied.
            collections_to_write: The collections that the tensors join, as a list or a comma-separated string.
            step: The number of a step in its mode, also of a past one. Default: the open step or the next one.
            mode: The mode that the step is counted in. Default: the current one.
        """
        check_dictionary(tensors, "tensors")
        if not isinstance(collections_to_write, str):
            collections_to_write = names(collections_to_write, "collections_to_write")
        self._save_named(self._save_tensors, tensors.items(), collections_to_write, step=step, mode=mode)

    @guarded
    def save_image(self, name: str, image: Any, *, step: int | None = None, mode: ModeKeys | str | None = None) -> None:
        """Save an image as a raw tensor of height × width × channels in uint8, which the page shows as a picture.

        Args:
            name: The name. The image joins the collection `images`.
            image: An array, a tensor or a gray, RGB or RGBA image of PIL: height × width, height × width × channels or
                channels × height × width, with 1, 3 or 4 channels, of uint8, bool, or floats from 0 to 1.
            step: The number of a step in its mode, also of a past one. Default: the open step or the next one.
            mode: The mode that the step is counted in. Default: the current one.
        """
        try:
            values = [(name, as_image(self._array_of(rgb(image))[0]))]
            self._save_named(self._save_tensors, values, "images", step=step, mode=mode)
        except UnsupportedValue as exc:
            self.recorder.refuse(name, exc)

    @guarded
    def flush(self) -> None:
        """Publish every closed step now, and return when other processes can read them."""
        self.recorder.flush()
        if self.recorder.closed:  # a checkpoint that follows would be ahead of the run
            wait_for_end()

    def close(self) -> None:
        """Close the open step and the run, remove the hook's callbacks, and keep no reference to the model.

        The run is also closed at exit. Closing twice is fine. Any thread may close it: while another one trains, the
        callbacks stay and do nothing.
        """
        try:
            self.recorder.close()
        finally:
            # A framework goes through its callbacks while it calls them: only the training's thread may remove them.
            if not self.recorder.in_other_threads:
                self._let_go()

    @guarded
    def _let_go(self) -> None:
        """Remove each callback, and keep no reference to the model: a notebook keeps its closed hooks."""

    def _begin_call(self, names: Iterable[Any]) -> None:
        """Prepare the open or the next step for values of these names that the caller saves without a step number."""

    def _end_call(self, names: Iterable[Any]) -> None:
        """Note that values of these names were saved without a step number."""

    def _save_named(
        self, save: Callable[..., None], values: Iterable[tuple[str, Any]], *options: Any, step: Any, mode: Any
    ) -> None:
        if may_begin := step is None and not self.recorder.clock.held:
            self._begin_call([name for name, _ in values])
        save(values, *options, step, mode)
        if may_begin:
            self._end_call([name for name, _ in values])

    def _save_scalars(
        self, numbers: Iterable[tuple[str, Any]], sm_metric: bool, timestamp: float | None, step: Any, mode: Any
    ) -> None:
        self.recorder.save_scalars(numbers, sm_metric, timestamp, step, mode)

    def _save_tensors(self, tensors: Iterable[tuple[str, Any]], collections: Any, step: Any, mode: Any) -> None:
        for name, value in tensors:
            self._save_tensor(name, value, collections, step, mode)

    def _save_tensor(
        self, name: str, value: Any, collections_to_write: Iterable[str] | str, step: Any, mode: Any
    ) -> None:
        try:
            array, owned = self._array_of(value)
        except UnsupportedValue as exc:
            self.recorder.refuse(name, exc)
        else:
            self.recorder.save_tensor(name, array, collections_to_write, owned, step, mode)

    def _array_of(self, value: Any) -> tuple[Array, bool]:
        """Return a user's value as an array, and True if the array is a copy that nothing else changes.

        Raises:
            UnsupportedValue: It cannot be converted.
        """
        is_array = type(value) is np.ndarray and value.dtype.kind != "O"  # what most programs pass
        return value if is_array else array_of(value), False

    @property
    def _steps(self) -> Any:
        """The object that begins and ends steps."""
        return self.recorder

    @guarded
    def _hold_step(self, step: Any, mode: Any) -> None:
        self._steps.hold_step(step, mode)

    @guarded
    def _release_step(self) -> None:
        self._steps.release_step()


def _copy(kind: type[Any], out_dir: str, was_active: bool) -> Any:
    """Return a hook that saves nothing. If its original was active, it logs so when it is used."""
    before = current_hook.current()
    # The copy does not have the original's options, so it cannot open its storage.
    made = kind("copy", dry_run=True)
    current_hook.set_hook(before)
    made.recorder.run.out_dir, made.recorder.copied_from = out_dir, out_dir if was_active else ""
    return made
