"""Models that nobody here wrote, in PyTorch: what a hook saves of them, next to what plain PyTorch says."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

import tensortrial.hooks.pytorch as tt
from tensortrial import create_trial

# These models are so small that threads cost more than they bring.
torch.set_num_threads(1)

STEPS = 20
SAVED = (0, 1, 19)

Bits = tuple[tuple[int, ...], bytes]


@dataclass
class Case:
    """A model, and how to train it."""

    make: Callable[[], torch.nn.Module]
    batch: Callable[[int], Any]
    """The arguments of a step's forward: a dictionary of keywords, or a tuple."""
    loss: Callable[[Any], torch.Tensor] = lambda output: output.loss
    """The loss, from what the model returns."""
    optimizer: Callable[[Any], Any] = lambda parameters: torch.optim.SGD(parameters, lr=0.01)
    steps: int = STEPS
    path: Callable[[str], str] = str
    """The path that the hook gives a parameter or module, from PyTorch's own."""


@dataclass
class Truth:
    """What plain PyTorch says of the steps that are saved."""

    path: Callable[[str], str] = str

    state: dict[int, dict[str, Bits | None]] = field(default_factory=dict)
    gradients: dict[int, dict[str, Bits]] = field(default_factory=dict)
    values: dict[int, dict[tuple[str, str], Counter[Bits]]] = field(default_factory=dict)
    step: int = -1
    root: str = ""

    def watch(self, model: torch.nn.Module) -> None:
        """Keep what goes in and out of each module, by hooks of PyTorch's own."""
        self.root = type(getattr(model, "get_base_model", lambda: model)()).__name__
        watched: set[str] = set()
        for full_path, module in model.named_modules():
            path = self.path(full_path)
            # A wrapper has the path of the module in it, and comes first.
            if path in watched:
                continue
            watched.add(path)
            module.register_forward_pre_hook(self._sees(path, "input"), with_kwargs=True)
            module.register_forward_hook(self._sees(path, "output"), with_kwargs=True)

    def _sees(self, path: str, direction: str) -> Callable[..., None]:
        def see(module: Any, args: Any, kwargs: Any, *output: Any) -> None:
            seen = self.values.get(self.step)
            if seen is not None:
                values = output if direction == "output" else (args, kwargs)
                seen.setdefault((path, direction), Counter()).update(map(bits, tensors(values)))

        return see

    def begin(self, step: int, model: torch.nn.Module) -> None:
        """Keep the parameters and buffers before a step."""
        self.step = step
        if step in SAVED:
            self.values[step] = {}
            self.state[step] = {self.path(name): bits(each) for name, each in named_tensors(model)}

    def end(self, model: torch.nn.Module) -> None:
        """Keep the gradients after a backward, and the parameters that the forward made."""
        if self.step in SAVED:
            state = self.state[self.step]
            for name, each in named_tensors(model):
                # A buffer that the forward made, it has changed as well.
                state.setdefault(self.path(name), bits(each) if isinstance(each, torch.nn.Parameter) else None)
            self.gradients[self.step] = {
                self.path(name): bits(each.grad) for name, each in model.named_parameters() if each.grad is not None
            }


def train(case: Case, truth: Truth | None = None, hook: Any = None) -> tuple[list[bytes], dict[str, Bits]]:
    """Train a model made by the case. Return its losses and what it is in the end, to the bit."""
    torch.manual_seed(0)
    model = case.make()
    if hook is not None:
        hook.register_module(model)
    if truth is not None:
        truth.watch(model)
    trained = [each for each in model.parameters() if each.requires_grad]
    optimizer = case.optimizer(trained) if trained else None
    losses = []
    for step in range(case.steps):
        batch = case.batch(step)
        if truth is not None:
            truth.begin(step, model)
        if optimizer is not None:
            optimizer.zero_grad()
        output = model(**batch) if isinstance(batch, dict) else model(*batch)
        loss = case.loss(output)
        if optimizer is not None:
            loss.backward()
        if truth is not None:
            truth.end(model)
        if optimizer is not None:
            optimizer.step()
        losses.append(bits(loss)[1])
    return losses, {name: bits(each) for name, each in named_tensors(model)}


def check(case: Case, folder: Path) -> None:
    """Train with and without a hook that saves everything, and compare all there is."""
    plain = train(case)
    hook = tt.Hook(folder / "run", save_all=True, save_config=tt.SaveConfig(save_steps=list(SAVED), end_step=0))
    truth = Truth(case.path)
    hooked = train(case, truth, hook)
    hook.close()
    assert hooked[0] == plain[0], "the losses differ from those of a run without a hook"
    assert hooked[1] == plain[1], "the weights differ from those of a run without a hook"
    compare(truth, folder / "run")


def compare(truth: Truth, run: Path) -> None:
    """Compare every value of a run with the truth, and that there is neither more nor less."""
    trial = create_trial(run)
    for step in truth.state:
        saved = {name: bits_of_array(trial.tensor(name).value(step)) for name in trial.tensor_names(step=step)}
        expected_gradients = truth.gradients[step]
        found = {name: saved.pop(name) for name in list(saved) if name.startswith("gradient/")}
        assert sorted(path_of(name) for name in found) == sorted(expected_gradients), f"gradients of step {step}"
        for name, value in found.items():
            assert value == expected_gradients[path_of(name)], f"{name} at step {step}"
        for name, value in truth.state[step].items():
            found_value = saved.pop(f"{truth.root}_{name}")
            assert value in (None, found_value), f"{name} at step {step}"
        _compare_values(saved, truth.values[step], truth.root, step)


def path_of(gradient: str) -> str:
    """The path of a parameter, from the name of its gradient."""
    return gradient.removeprefix("gradient/").partition("_")[2]


def _compare_values(
    saved: dict[str, Bits], truth: Mapping[tuple[str, str], Counter[Bits]], root: str, step: int
) -> None:
    # The longest paths first: `layer_input` may be a module's name.
    for (path, direction), expected in sorted(truth.items(), key=lambda item: -len(item[0][0])):
        prefix = f"{path or root}_{direction}_"
        found = Counter(saved.pop(name) for name in list(saved) if name.startswith(prefix))
        assert found == expected, f"{prefix} at step {step}: {_sizes(found)} instead of {_sizes(expected)}"
    assert not saved, f"nobody expected {sorted(saved)} at step {step}"


def _sizes(values: Counter[Bits]) -> list[tuple[int, ...]]:
    return sorted(shape for shape, _ in values.elements())


def named_tensors(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """The parameters and buffers of a model, each once."""
    seen: set[int] = set()
    for name, each in (*model.named_parameters(), *model.named_buffers()):
        if id(each) not in seen:
            seen.add(id(each))
            if not isinstance(each, torch.nn.parameter.UninitializedTensorMixin):
                yield name, each


def tensors(value: Any) -> Iterator[torch.Tensor]:
    """The tensors in nested lists, tuples, dictionaries and dataclasses."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        yield from (each for item in value.values() for each in tensors(item))
    elif isinstance(value, list | tuple):
        yield from (each for item in value for each in tensors(item))
    elif dataclasses.is_dataclass(value):
        yield from (each for item in dataclasses.fields(value) for each in tensors(getattr(value, item.name)))


def bits(tensor: torch.Tensor) -> Bits:
    """A tensor's shape and bytes."""
    value = tensor.detach()
    if value.is_sparse:
        value = value.to_dense()
    if value.is_quantized:
        value = value.int_repr()
    value = value.contiguous().clone()
    return tuple(value.shape), value.reshape(-1).view(torch.uint8).numpy().tobytes() if value.numel() else b""


def bits_of_array(value: Any) -> Bits:
    """An array's shape and bytes."""
    return tuple(value.shape), value.tobytes()
