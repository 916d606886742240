from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from .peer import Peer


class TorchSave(Peer):
    title = "torch.save"
    packages = ("torch",)
    usage = "`torch.save` of a dict, one file a step; `torch.load(mmap=True)` to read, values copied out"

    def load(self) -> None:
        import torch

        self._torch = torch

    def save_tensors(self, step: int, tensors: Mapping[str, np.ndarray]) -> None:
        # A view would be saved with all memory of its base.
        copies = {name: self._torch.tensor(array) for name, array in tensors.items()}
        self._torch.save(copies, self.folder / f"{step:08}.pt")

    def open(self) -> None:
        self._paths = {int(path.stem): path for path in sorted(self.folder.glob("*.pt"))}

    def names(self) -> list[str]:
        return sorted(self._load(next(iter(self._paths))))

    def steps(self) -> list[int]:
        self.open()
        return list(self._paths)

    def value(self, name: str, step: int) -> np.ndarray:
        return self._load(step)[name].numpy().copy()

    def at(self, step: int) -> dict[str, np.ndarray]:
        return {name: tensor.numpy().copy() for name, tensor in self._load(step).items()}

    def _load(self, step: int) -> dict:
        return self._torch.load(self._paths[step], mmap=True, weights_only=True)
