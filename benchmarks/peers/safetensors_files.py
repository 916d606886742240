from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from .peer import Peer


class Safetensors(Peer):
    title = "safetensors"
    packages = ("safetensors",)
    usage = "`safetensors.numpy.save_file`, one file a step; `safe_open` and `get_tensor`, which maps the file, to read"

    def load(self) -> None:
        import safetensors
        import safetensors.numpy

        self._save_file, self._open_file = safetensors.numpy.save_file, safetensors.safe_open

    def save_tensors(self, step: int, tensors: Mapping[str, np.ndarray]) -> None:
        self._save_file(dict(tensors), self.folder / f"{step:08}.safetensors")

    def open(self) -> None:
        self._paths = {int(path.stem): path for path in sorted(self.folder.glob("*.safetensors"))}

    def names(self) -> list[str]:
        with self._open_file(next(iter(self._paths.values())), framework="np") as file:
            return sorted(file.keys())

    def steps(self) -> list[int]:
        self.open()
        return list(self._paths)

    def value(self, name: str, step: int) -> np.ndarray:
        with self._open_file(self._paths[step], framework="np") as file:
            return file.get_tensor(name)

    def at(self, step: int) -> dict[str, np.ndarray]:
        with self._open_file(self._paths[step], framework="np") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, not a dict
