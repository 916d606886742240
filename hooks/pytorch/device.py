"""Asynchronous transfers from an accelerator to the host.

Copies and statistics are queued on the training's own stream, behind its kernels, so that they see the values of that
moment. The writer's thread waits for the results. On CUDA devices the results are copied into pinned memory. On other
accelerators the training's thread waits, once for a batch of statistics and for each raw value.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

from tensortrial.dtypes import Array
from tensortrial.format.record import Plan
from tensortrial.statistics.by_axis import axis_within

from .arrays import as_numpy, host_copy
from .statistics import device_statistics, device_statistics_by_axis

Ready = Callable[[], object]
_cuda: Any = torch.cuda

# Copied tensors of this many bytes are reduced together, by a few dozen kernels instead of several for each tensor.
_BATCH_BYTES = 64 << 20


class Measured(NamedTuple):
    """The statistics of a tensor, which may not have arrived from a device yet."""

    statistics: dict[str, float]
    by_axis: dict[int, dict[str, Array]]
    """Statistics for each index along the plan's axes that the tensor has."""


class Batch:
    """Statistics of tensors on one device, which arrive together in one copy.

    `add` returns mappings that are empty until `ready` was called, which any thread may do. The training's thread calls
    `send` at the end of a step; nothing can be added after that.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._staged: list[tuple[torch.Tensor, Plan, Measured]] = []
        self._staged_bytes = 0
        self._results: list[torch.Tensor] = []
        self._found: list[tuple[int, Callable[[Array], None]]] = []
        """The length of each result and the function that receives it, in order."""
        self._arriving: tuple[torch.Tensor, Ready] | None = None
        self._stream: Any = None

    def add(self, plan: Plan, tensor: torch.Tensor) -> Measured | None:
        """Queue a copy of a dense tensor, from which the plan's statistics will be computed.

        Returns:
            Mappings for the statistics, by name; None if the batch was sent already.
        """
        found = Measured({}, {})
        with self._lock:
            if self._arriving is not None:
                return None
            if tensor.is_cuda:
                self._go_on_in(torch.cuda.current_stream(tensor.device))
            self._staged.append((tensor.clone(), plan, found))
            self._staged_bytes += tensor.nbytes
            if self._staged_bytes >= _BATCH_BYTES:
                self._reduce()
        return found

    def send(self) -> None:
        """Queue the statistics that are left, and the one copy."""
        with self._lock:
            self._send()

    def ready(self) -> None:
        """Wait for the statistics, and fill in every mapping."""
        with self._lock:
            # The batch may not have been sent: the writer may need statistics while the step still runs, or at exit.
            host, wait = self._send()
            wait()
            values, begin = host.numpy(), 0
            for size, take in self._found:
                take(values[begin : begin + size])
                begin += size
            self._found.clear()

    def _send(self) -> tuple[torch.Tensor, Ready]:
        if self._arriving is None:
            self._reduce()
            with torch.cuda.stream(self._stream):
                self._arriving = _to_host(torch.cat(self._results), self._stream)
            self._results.clear()
        return self._arriving

    def _reduce(self) -> None:
        by_names: dict[tuple[str, ...], list[tuple[torch.Tensor, Measured]]] = {}
        for tensor, plan, found in self._staged:
            by_names.setdefault(plan.statistics, []).append((tensor, found))
        with torch.cuda.stream(self._stream):  # does nothing for None
            for names, members in by_names.items():
                self._results.append(device_statistics([tensor for tensor, _ in members], names).flatten())
                self._found += [(len(names), partial(_take, found, names)) for _, found in members]
            for tensor, plan, found in self._staged:
                self._reduce_by_axis(tensor, plan, found)
        self._staged, self._staged_bytes = [], 0

    def _reduce_by_axis(self, tensor: torch.Tensor, plan: Plan, found: Measured) -> None:
        for axis, names in plan.by_axis:
            if axis_within(axis, tensor.shape) is None:
                continue
            arrays = found.by_axis.setdefault(axis, {})
            for name, values in device_statistics_by_axis(tensor, names, axis).items():
                self._results.append(values)
                self._found.append((len(values), partial(_take_array, arrays, name)))

    def _go_on_in(self, stream: Any) -> None:
        """Continue on another stream, after the work that is queued on the last one.

        Backward, or a wrapper, may use a different stream from forward.
        """
        if self._stream is not None and stream != self._stream:
            stream.wait_stream(self._stream)
            for tensor in [*self._results, *(tensor for tensor, _, _ in self._staged)]:
                tensor.record_stream(stream)
        self._stream = stream


def _take(found: Measured, names: Sequence[str], values: Array) -> None:
    found.statistics.update(zip(names, values.tolist(), strict=True))


def _take_array(arrays: dict[str, Array], name: str, values: Array) -> None:
    arrays[name] = values.astype(np.float64)


def copy_later(tensor: torch.Tensor) -> tuple[Array, Ready | None]:
    """Return an array for the values of a dense tensor, and the call that waits for them.

    The call is None if the array has the values already.
    """
    if not tensor.is_cuda:
        return host_copy(tensor), None
    # The copy is on the device first. This takes a fiftieth of the transfer's time, and training continues during the
    # transfer.
    staged = tensor.clone(memory_format=torch.contiguous_format).resolve_conj().resolve_neg()
    side = _side_stream(tensor.device)
    side.wait_stream(torch.cuda.current_stream(tensor.device))
    staged.record_stream(side)
    host, wait = _to_host(staged, side)
    return as_numpy(host), wait


def _to_host(tensor: torch.Tensor, stream: Any) -> tuple[torch.Tensor, Ready]:
    if not tensor.is_cuda:
        host = tensor.cpu()
        return host, lambda: None
    host = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=True)
    with torch.cuda.stream(stream):
        host.copy_(tensor, non_blocking=True)
        event = _cuda.Event()
        event.record(stream)
    return host, event.synchronize


_sides: dict[torch.device, Any] = {}


def _side_stream(device: torch.device) -> Any:
    if device not in _sides:
        _sides[device] = _cuda.Stream(device)
    return _sides[device]
