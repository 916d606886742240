"""The replay of a training step from the same state, to find a processor that computes wrong numbers."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np
import torch

from tensortrial.errors import ConfigurationError, UnsupportedValue
from tensortrial.statistics.digest import digest_of_array

from ..core.log import logger
from ..core.recorder import guarded
from ..library.unique_names import take_name
from .arrays import tensors_in, to_array
from .hook import Hook
from .names import class_name, modules_of, tensors_of

_COLLECTION = "replays"
_T = TypeVar("_T")


class Replay:
    """A replay of the forward and backward of some steps, which saves how many results differ in any bit.

    `replay(compute)` calls `compute`, which runs forward and backward of one batch. At each due step it then calls
    `compute` again, with the same gradients, buffers and random numbers, and compares the digests of the results, the
    gradients and the buffers. Training continues from the state after the first call. For each tensor, `replay/<name>`
    in the collection `replays` is the number of runs that differ from the most frequent result: 0 on a correct
    processor. The rule `SilentCorruption` fires above 0.

    The same kernels must give the same bits, so call `torch.use_deterministic_algorithms(True)` first on an
    accelerator. In a distributed job every worker must replay the same steps.

    Args:
        hook: The hook that saves the result.
        modules: The models that `compute` runs.
        every: The number of calls from one replay to the next. The first call is replayed.
        times: How often such a step is repeated. With 2 or more, the run that differs from the others is the wrong one.

    Raises:
        ConfigurationError: An argument has an invalid value.
    """

    def __init__(self, hook: Hook, *modules: torch.nn.Module, every: int = 1000, times: int = 1) -> None:
        if not isinstance(hook, Hook):
            raise ConfigurationError(f"Replay takes a hook for PyTorch, got a {type(hook).__name__}")
        if not modules or not all(isinstance(each, torch.nn.Module) for each in modules):
            raise ConfigurationError("Replay takes the models after the hook, each a torch.nn.Module")
        for name, value in (("every", every), ("times", times)):
            if type(value) is not int or value < 1:
                raise ConfigurationError(f"{name} must be a whole number above 0, got {value!r}")
        self._hook, self.recorder = hook, hook.recorder
        self._modules, self._every, self._times = modules, every, times
        self._calls = 0
        self._is_off = False
        hook.recorder.collections.require(_COLLECTION).include(f"^{_COLLECTION[:-1]}/")

    def __call__(self, compute: Callable[[], _T]) -> _T:
        """Run a step, and repeat it if a replay is due.

        Args:
            compute: Runs forward and backward. It must not fetch the batch or step an optimizer, because each call must
                do the same.

        Returns:
            The result of the first call of `compute`.
        """
        due = self._calls % self._every == 0 and not self._is_off
        self._calls += 1
        if not due:
            return compute()
        before = _State(self._modules)
        versions = self._versions()
        result = compute()
        if self._versions() != versions:
            self._turn_off("the replayed function changes parameters; leave the optimizer's step out of it")
        else:
            self._replay(compute, before, result)
        return result

    @guarded
    def _replay(self, compute: Callable[[], Any], before: _State, result: Any) -> None:
        after = _State(self._modules)
        runs = [self._digests(result)]
        try:
            with self._hook.capture.not_capturing():
                for _ in range(self._times):
                    before.restore()
                    runs.append(self._digests(compute()))
        except Exception as exc:
            if isinstance(exc, self.recorder.errors_of_training):
                raise
            self._turn_off(f"the step cannot be run again: {type(exc).__name__}: {exc}")
            return
        finally:
            after.restore()
        self._save(runs)

    def _save(self, runs: list[dict[str, int]]) -> None:
        different = 0
        for name in dict.fromkeys(name for run in runs for name in run):
            ((_, most),) = Counter(run.get(name) for run in runs).most_common(1)
            different += most < len(runs)
            self._hook.save_tensor(f"replay/{name}", float(len(runs) - most), _COLLECTION)
        if different:
            logger.error(
                "%d of %d results have other bits when the same step is run again: this processor computes wrong "
                "numbers, or a kernel is not deterministic",
                different,
                len(runs[0]),
            )

    def _turn_off(self, why: str) -> None:
        self._is_off = True
        logger.warning("no step is replayed from here on: %s", why)

    def _versions(self) -> list[int]:
        return [parameter._version for module in self._modules for parameter in module.parameters()]

    def _digests(self, result: Any) -> dict[str, int]:
        """Return the digests of all results by name, in the order of their computation."""
        found = {}
        for name, tensor in self._results(result):
            try:
                found[name] = digest_of_array(to_array(tensor))
            except UnsupportedValue as exc:
                self.recorder.refuse(f"replay/{name}", exc)
        return found

    def _results(self, result: Any) -> Iterator[tuple[str, torch.Tensor]]:
        for number, (key, tensor) in enumerate(tensors_in(result)):
            yield f"result_{number if key is None else key}", tensor
        taken = set[str]()
        for root in self._modules:
            prefix = take_name(taken, class_name(root))
            for path, module in modules_of(root):
                for of_tensor, tensor, is_parameter in tensors_of(path, module):
                    if not is_parameter:
                        yield f"{prefix}_{of_tensor}", tensor
                    elif tensor.grad is not None:
                        yield f"gradient/{prefix}_{of_tensor}", tensor.grad


class _State:
    """The state that forward and backward change: gradients, buffers and random number generators."""

    def __init__(self, modules: tuple[torch.nn.Module, ...]) -> None:
        self._parameters = [each for module in modules for each in module.parameters()]
        self._gradients = [None if each.grad is None else each.grad.detach().clone() for each in self._parameters]
        self._buffers = [(each, each.detach().clone()) for module in modules for each in module.buffers()]
        self._random = random.getstate(), np.random.get_state(), torch.get_rng_state()
        on_devices = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        self._devices = torch.cuda.get_rng_state_all() if on_devices else []

    def restore(self) -> None:
        for parameter, gradient in zip(self._parameters, self._gradients, strict=True):
            if gradient is None or parameter.grad is None:
                parameter.grad = None if gradient is None else gradient.clone()
            else:
                parameter.grad.copy_(gradient)  # a wrapper may hold a view of it
        with torch.no_grad():
            for buffer, value in self._buffers:
                buffer.copy_(value)
        python, numpy, host = self._random
        random.setstate(python)
        np.random.set_state(numpy)
        torch.set_rng_state(host)
        if self._devices:
            torch.cuda.set_rng_state_all(self._devices)
