from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from .peer import Peer


class NumpyFiles(Peer):
    title = "numpy .npy"
    packages = ("numpy",)
    usage = "`np.save`, a folder a step and a file a tensor; `np.load` to read"

    def save_tensors(self, step: int, tensors: Mapping[str, np.ndarray]) -> None:
        folder = self.folder / f"{step:08}"
        folder.mkdir(parents=True)
        for name, array in tensors.items():
            np.save(folder / f"{name}.npy", array)

    def open(self) -> None:
        self._folders = {int(path.name): path for path in sorted(self.folder.iterdir())}

    def names(self) -> list[str]:
        return sorted(path.stem for path in next(iter(self._folders.values())).iterdir())

    def steps(self) -> list[int]:
        self.open()
        return list(self._folders)

    def value(self, name: str, step: int) -> np.ndarray:
        return np.load(self._folders[step] / f"{name}.npy")
