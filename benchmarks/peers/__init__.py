"""tensortrial and its peers side by side: the same data, the same machine, the same hour. `python -m peers`."""

from __future__ import annotations

from importlib import import_module

from .peer import Peer

# Each peer's file and class; the file imports the peer only when its work begins. The order is that of the tables.
_ADAPTERS = {
    "tensortrial": ("ours", "Tensortrial"),
    "compacted": ("ours", "Compacted"),
    "smdebug": ("smdebug_run", "Smdebug"),
    "tensorboard": ("tensorboard_events", "TensorBoard"),
    "safetensors": ("safetensors_files", "Safetensors"),
    "torch": ("torch_files", "TorchSave"),
    "numpy": ("numpy_files", "NumpyFiles"),
    "zarr": ("zarr_arrays", "Zarr"),
    "lance": ("lance_dataset", "Lance"),
    "tensorstore": ("tensorstore_arrays", "GoogleTensorstore"),
    "mlflow": ("mlflow_metrics", "MLflow"),
    "trackio": ("trackio_metrics", "Trackio"),
}
NAMES = tuple(_ADAPTERS)


def adapter(name: str) -> type[Peer]:
    file, symbol = _ADAPTERS[name]
    return getattr(import_module(f".{file}", __name__), symbol)
