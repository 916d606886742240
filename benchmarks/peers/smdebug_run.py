from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from .peer import Peer
from .work import Tensors


class Smdebug(Peer):
    title = "smdebug"
    packages = ("smdebug",)
    usage = (
        "the PyTorch hook's `save_tensor` and `save_scalar` around a module that does nothing; `create_trial` to read, "
        "without its second of waiting for the end; `reduction_value` for (e); in an environment of its own"
    )
    keeps = ("tensors", "scalars")
    scalar_limit = 100_000

    def load(self) -> None:
        os.environ.setdefault("SMDEBUG_LOG_LEVEL", "critical")
        os.environ["SMDEBUG_TRAINING_END_DELAY_REFRESH"] = "0"
        from smdebug.trials import create_trial

        self._create_trial = create_trial

    def begin(self, work: Tensors | None, statistics: bool = False) -> None:
        import smdebug.pytorch as smd
        import torch

        class Nothing(torch.nn.Module):
            def forward(self, inputs: torch.Tensor) -> torch.Tensor:
                return inputs

        self._hook = smd.Hook(out_dir=str(self.folder / "run"), save_config=smd.SaveConfig(save_interval=1))
        self._module, self._input = Nothing(), torch.zeros(1)
        self._hook.register_module(self._module)
        self._hook.set_mode(smd.modes.TRAIN)

    def save_tensors(self, step: int, tensors: Mapping[str, np.ndarray]) -> None:
        for name, array in tensors.items():
            self._hook.save_tensor(name, array)
        self._module(self._input)

    def save_scalars(self, step: int, scalars: Mapping[str, float]) -> None:
        self._module(self._input)
        for name, value in scalars.items():
            self._hook.save_scalar(name, value)

    def close(self) -> None:
        self._hook.close()

    def open(self) -> None:
        self._trial: Any = self._create_trial(str(self.folder / "run"))

    def names(self) -> list[str]:
        return [name.removeprefix("scalar/") for name in self._trial.tensor_names()]

    def steps(self) -> list[int]:
        return self._trial.steps()

    def value(self, name: str, step: int) -> np.ndarray:
        return self._trial.tensor(name).value(step)

    def series(self, name: str) -> list[np.ndarray]:
        return list(self._trial.tensor(name).values().values())

    def at(self, step: int) -> dict[str, np.ndarray]:
        return {name: self._trial.tensor(name).value(step) for name in self._trial.tensor_names(step=step)}

    def scalars(self, name: str) -> list[float]:
        tensor = self._trial.tensor(f"scalar/{name}")
        return [float(np.asarray(tensor.value(step)).item()) for step in tensor.steps()]

    def statistics(self) -> dict[str, tuple[float, float]]:
        found = {}
        for name in self._trial.tensor_names():
            tensor = self._trial.tensor(name)
            steps = tensor.steps()
            means = [float(tensor.reduction_value(step, "mean")) for step in steps]
            norms = [float(tensor.reduction_value(step, "l2")) for step in steps]
            found[name] = (sum(means) / len(steps), sum(norms) / len(steps))
        return found
