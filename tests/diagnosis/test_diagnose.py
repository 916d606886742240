"""A diagnosis names what went wrong first, joins what follows from it, and says what it could not check."""

from __future__ import annotations

import json
import math
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensortrial
from support.runs import EVAL, TRAIN, Job
from tensortrial import modes
from tensortrial.diagnosis import Diagnosis
from tensortrial.errors import RunNotFound

EXPLODING = Path(__file__).parents[2] / "examples" / "exploding.py"
COUNTS = ("nan_count", "inf_count", "l2", "abs_mean")


def saved(run: Path, steps: int = 40, **changes: Any) -> Diagnosis:
    """Save a loss and the gradients of three layers. `changes` are the steps from which a tensor has another value."""
    rng = np.random.default_rng(0)
    with Job(run) as job:
        for step in range(steps):
            values = {f"gradient/layer{number}": rng.standard_normal((8, 8)) for number in range(3)}
            for name, (first, value) in changes.items():
                if step >= first and f"gradient/{name}" in values:
                    values[f"gradient/{name}"] = value(values[f"gradient/{name}"])
            job.step(values, TRAIN, raw=False, statistics=COUNTS, collections=("gradients",))
    return tensortrial.diagnose(run)


def with_nan(value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    value[0, 0] = np.nan
    return value


def test_a_healthy_run_has_no_problems(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    found = saved(tmp_path)
    assert not caplog.records  # what the rules lack is in the answer
    assert (found.problems, found.steps, found.is_healthy) == ((), 40, True)
    assert {"ExplodingTensor", "VanishingGradient", "GradientNormSpike"} <= set(found.checked)
    assert str(found).startswith(f"{tmp_path}: no problem in 40 steps")


@pytest.mark.parametrize("weight_learns", [True, False])
def test_a_bias_that_a_normalization_subtracts_is_no_problem(tmp_path: Path, weight_learns: bool) -> None:
    with Job(tmp_path) as job:
        for _ in range(20):
            weight = np.full((8, 8), 1.0 if weight_learns else 0.0)
            values = {"gradient/net.0.weight": weight, "gradient/net.0.bias": np.full(8, 1e-9)}
            job.step(values, TRAIN, raw=False, statistics=(*COUNTS, "zero_count"), collections=("gradients",))
    found = tensortrial.diagnose(tmp_path)
    assert found.is_healthy == weight_learns
    assert ("gradient/net.0.bias" in str(found)) != weight_learns


@pytest.mark.parametrize("bias_learns", [True, False])
def test_a_weight_without_a_gradient_whose_bias_has_one_gets_no_inputs(tmp_path: Path, bias_learns: bool) -> None:
    with Job(tmp_path) as job:
        for _ in range(20):
            values = {"gradient/net.0.weight": np.zeros((8, 8)), "gradient/net.0.bias": np.full(8, float(bias_learns))}
            job.step(values, TRAIN, raw=False, statistics=(*COUNTS, "zero_count"), collections=("gradients",))
    (problem,) = tensortrial.diagnose(tmp_path).problems
    assert problem.advice.startswith("look at the inputs of this layer") == bias_learns


def test_a_frozen_layer_is_a_note_and_one_that_does_not_learn_a_problem(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    tt = pytest.importorskip("tensortrial.hooks.pytorch")

    def diagnosed(name: str, frozen: int, not_updated: int) -> Diagnosis:
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
        net[0].requires_grad_(False)
        optimizer = torch.optim.SGD(net[not_updated:].parameters(), 0.1)
        hook = tt.Hook(tmp_path / name, include_collections=["weights", "gradients"], save_interval=1)
        hook.register_module(net)
        for step in range(12):
            if step == frozen:
                net[0].requires_grad_(True)
            net(torch.ones(2, 4) * (step + 1)).sum().backward()
            optimizer.step()
        hook.close()
        return tensortrial.diagnose(tmp_path / name)

    for name, frozen in (("frozen", 12), ("unfrozen", 6)):
        found = diagnosed(name, frozen, not_updated=0)
        (note,) = found.problems
        assert (found.is_healthy, note.is_note, note.rule) == (True, True, "WeightUpdateRatio")
        assert note.advice.startswith("nothing if this parameter is frozen")
    found = diagnosed("not updated", 0, not_updated=2)
    assert [(each.rule, each.is_note) for each in found.problems] == [("WeightUpdateRatio", False)]


@pytest.mark.parametrize(("steps", "is_updated"), [(20, True), (7, True), (20, False)])
def test_a_nan_explains_the_update_that_is_skipped_because_of_it(tmp_path: Path, steps: int, is_updated: bool) -> None:
    torch = pytest.importorskip("torch")
    tt = pytest.importorskip("tensortrial.hooks.pytorch")
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
    optimizer, loss = torch.optim.SGD(net[1 - is_updated :].parameters(), 0.01), torch.nn.MSELoss()
    hook = tt.Hook(tmp_path, save_interval=1, include_collections=["weights", "gradients", "losses"])
    hook.register_module(net)
    hook.register_loss(loss)
    for step in range(steps):
        net.zero_grad()
        (loss(net(x := torch.randn(8, 4)), x[:, :1]) * (math.nan if step == 5 else 1)).backward()
        if step != 5:
            optimizer.step()
    hook.close()
    problems = tensortrial.diagnose(tmp_path).problems
    first = next(each for each in problems if each.rule == "ExplodingTensor")
    assert (first.step, first.is_note) == (5, steps > 7)
    assert [each.split(",")[0] for each in first.explains] == ["WeightUpdateRatio at step 6"]
    assert ("WeightUpdateRatio" in [each.rule for each in problems if not each.is_note]) == (not is_updated)


def fitted(
    run: Path, build: Any, *, rate: Any = lambda step: 0.1, every: int = 1, is_tested: bool = False
) -> Diagnosis:
    """Train a network of three layers, and save what a hook saves by default.

    `build` takes the layers, and returns the parameter groups of the optimizer, and what is called after each step.
    Gradients are accumulated over `every` steps. A network that `is_tested` has a step of evaluation in the end.
    """
    torch = pytest.importorskip("torch")
    tt = pytest.importorskip("tensortrial.hooks.pytorch")
    torch.manual_seed(0)
    net = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(3)))
    groups, after = build(net)
    optimizer, loss = torch.optim.SGD(groups, 0.1), torch.nn.MSELoss()
    hook = tt.Hook(run, save_interval=1)
    hook.register_module(net)
    hook.register_loss(loss)
    hook.register_optimizer(optimizer)
    hook.set_mode(modes.TRAIN)
    for step in range(30):
        optimizer.param_groups[0]["lr"] = rate(step)
        loss(net(x := torch.randn(8, 4)), x).backward()
        if step % every == 0:
            optimizer.step()
        after(step)
        if step % every == 0:
            net.zero_grad()
    if is_tested:
        hook.set_mode(modes.EVAL)
        loss(net(x), x)
    hook.close()
    return tensortrial.diagnose(run)


def nothing(step: int) -> None:
    """Do nothing after a step."""


def outer(net: Any) -> list[Any]:
    """Return the parameters of the first and the last layer."""
    return [*net[0].parameters(), *net[2].parameters()]


@pytest.mark.parametrize(("every", "step", "is_tested"), [(1, 9, False), (1, 9, True), (2, 18, False)])
def test_a_layer_with_gradients_that_no_optimizer_updates_is_one_problem(
    tmp_path: Path, every: int, step: int, is_tested: bool
) -> None:
    found = fitted(tmp_path, lambda net: (outer(net), nothing), every=every, is_tested=is_tested)
    (problem,) = (each for each in found.problems if not each.is_note)
    assert (problem.rule, problem.tensors) == ("UntrainedParameter", ("Sequential_1.bias",))
    assert (
        found.headline
        == f"At step {step}, Sequential_1.weight has gradients, but no optimizer updated it at 10 saved steps."
    )
    assert problem.advice.startswith("check that the optimizer has this parameter")


def test_a_learning_rate_of_0_is_a_problem_unless_it_rises_later(tmp_path: Path) -> None:
    found = fitted(tmp_path / "never", lambda net: (net.parameters(), nothing), rate=lambda step: 0.0)
    assert (
        found.headline == "At step 9, Sequential_0.weight has gradients, but the learning rate was 0 at 10 saved steps."
    )
    found = fitted(tmp_path / "later", lambda net: (net.parameters(), nothing), rate=lambda step: 0.1 * (step > 15))
    assert (found.is_healthy, found.problems[0].rule) == (True, "UntrainedParameter")


def classified(
    run: Path,
    labels: Any,
    *,
    outputs: int = 3,
    zeroes: bool = True,
    calls: int = 1,
    rate: float = 0.05,
    end: tuple[Any, ...] = ("CrossEntropyLoss", "Identity"),
) -> Diagnosis:
    """Train a classifier with the labels that a function makes from a batch of 32 examples.

    `end` is its loss, its last layer, and the arguments of this layer. "CrossEntropyLoss of log" gets the logarithms of
    what the layer returns. With one output, the loss is BCEWithLogitsLoss.
    """
    torch = pytest.importorskip("torch")
    tt = pytest.importorskip("tensortrial.hooks.pytorch")
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 12), torch.nn.Tanh(), torch.nn.Linear(12, outputs))
    model.append(getattr(torch.nn, end[1])(*end[2:]))
    name, _, function = end[0].partition(" of ")
    loss = getattr(torch.nn, name if outputs > 1 else "BCEWithLogitsLoss")()
    optimizer = torch.optim.SGD(model.parameters(), rate)
    hook = tt.Hook(run)
    hook.register_module(model)
    hook.register_loss(loss)
    hook.register_optimizer(optimizer)
    for _ in range(150):
        if zeroes:
            optimizer.zero_grad()
        for call in range(calls):
            x = torch.randn(32, 6)
            y = labels(x + call)
            output = getattr(torch, function)(model(x)) if function else model(x)
            loss(output, y if outputs > 1 else y.float()[:, None]).backward()
        optimizer.step()
    hook.close()
    return tensortrial.diagnose(run)


@pytest.mark.parametrize("outputs", [3, 1])
def test_labels_of_one_class_are_a_problem(tmp_path: Path, outputs: int) -> None:
    found = classified(tmp_path / "one", lambda x: (x[:, 0] * 0 + 1).long(), outputs=outputs, rate=0.5)
    assert found.headline.startswith("At step 0, gradient/Sequential_2.bias has at least ")
    assert found.headline.endswith("saved steps: the labels of each batch are of one class.")
    assert found.problems[0].advice.startswith("look at the labels")
    assert "OutputBiasGradient" in found.checked
    found = classified(tmp_path / "few", lambda x: (x[:, 0] > 1.5).long(), outputs=outputs)
    assert found.is_healthy, str(found)
    # A model that has hardly begun to learn sees a rare class as none.
    found = classified(tmp_path / "slow", lambda x: (x[:, 0] > 2.3).long(), outputs=outputs, rate=1e-5)
    assert "OutputBiasGradient" not in str(found)
    # As a discriminator, which gets the real examples first, and then those of a generator.
    found = classified(tmp_path / "parts", lambda x: (x.mean() < 0.5).long().expand(len(x)), outputs=outputs, calls=2)
    assert "OutputBiasGradient" not in str(found)


def test_losses_that_are_no_better_than_a_guess_are_said_to_be_so(tmp_path: Path) -> None:
    (note,) = classified(tmp_path / "random", lambda x: (x[:, 5] * 1e4).long() % 3).problems
    assert (note.rule, note.is_note) == ("LossNotDecreasing", True)
    assert note.headline.endswith("; its last values are those of a guess among 3 classes")
    assert "guess" not in str(classified(tmp_path / "learned", lambda x: (x[:, 0] > 0).long()))


@pytest.mark.parametrize(
    ("end", "says"),
    [
        (("CrossEntropyLoss", "Softmax", 1), "gets Sequential_output_0, the output of a softmax or sigmoid"),
        (("CrossEntropyLoss", "Softmax", 0), "over the examples instead of the classes"),
        (("BCEWithLogitsLoss", "Sigmoid"), "gets Sequential_output_0, the output of a softmax or sigmoid"),
        (("BCEWithLogitsLoss", "Identity"), ""),
        (("NLLLoss", "LogSoftmax", 0), "over the examples instead of the classes"),
        (("NLLLoss", "LogSoftmax", 1), ""),
        (("NLLLoss", "Softmax", 1), "is below 0"),
        (("CrossEntropyLoss of log", "Softmax", 1), ""),
    ],
)
def test_a_wrong_input_of_a_loss_is_a_problem_while_it_falls(tmp_path: Path, end: tuple[Any, ...], says: str) -> None:
    is_binary = end[0].startswith("BCE")

    def labels(x: Any) -> Any:
        return (x[:, 0] > 0).long() + (0 if is_binary else (x[:, 1] > 0).long())

    outputs, rate = (1, 20.0) if is_binary else (3, 0.5)
    found = classified(tmp_path, labels, outputs=outputs, rate=rate, end=end)
    wrong = [each.sentence for each in found.problems if each.rule == "WrongLossInput" and not each.is_note]
    assert [says in each for each in wrong] == [True] * bool(says), str(found)
    assert "WrongLossInput" in found.checked


def test_a_warmup_that_does_not_end_and_a_large_weight_decay_are_named(tmp_path: Path) -> None:
    def headline(name: str, rate: Any, decay: float) -> str:
        found = fitted(
            tmp_path / name, lambda net: ([{"params": net.parameters(), "weight_decay": decay}], nothing), rate=rate
        )
        return next(each.headline for each in found.problems if each.rule == "LossNotDecreasing")

    assert headline("warmup", lambda step: 1e-6 * step, 0.0).endswith(
        "the learning rate has risen at all steps, to 2.9e-05"
    )
    decaying = headline("decay", lambda step: 0.01, 5.0)
    assert decaying.endswith("; weight decay takes 5 % of the weights at each step")
    assert "; " not in headline("neither", lambda step: 1e-6 * min(step, 20), 0.05)


def test_a_learning_rate_that_became_0_is_named_with_a_loss_that_does_not_fall(tmp_path: Path) -> None:
    found = fitted(tmp_path, lambda net: (net.parameters(), nothing), rate=lambda step: 0.1 if step < 5 else 0.0)
    (note,) = (each for each in found.problems if each.rule == "LossNotDecreasing")
    assert note.headline.endswith("; all learning rates are 0 since step 5")


def test_gradients_that_nothing_sets_to_zero_are_a_problem(tmp_path: Path) -> None:
    found = classified(tmp_path, lambda x: (x[:, 0] > 0).long() + (x[:, 1] > 0).long(), zeroes=False)
    assert "gradient/Sequential_2.bias is" in found.headline
    assert found.headline.endswith("those of earlier steps are added to it.")
    assert found.problems[0].advice.startswith("call optimizer.zero_grad()")
    assert classified(tmp_path / "zeroed", lambda x: (x[:, 0] > 0).long() + (x[:, 1] > 0).long()).is_healthy


def test_layers_that_are_trained_in_another_way_are_no_problem(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")

    def of_another_optimizer(net: Any) -> Any:
        other = torch.optim.SGD(net[1].parameters(), 0.1)
        return outer(net), lambda step: other.step() if step % 8 == 7 else None

    def of_an_average(net: Any) -> Any:
        net[1].requires_grad_(False)
        pairs = list(zip(net[1].parameters(), net[0].parameters(), strict=True))
        return outer(net), lambda step: [old.data.lerp_(new.data, 0.1) for old, new in pairs]

    def of_a_group_with_rate_0(net: Any) -> Any:
        return [{"params": outer(net)}, {"params": net[1].parameters(), "lr": 0.0}], nothing

    for build in (of_another_optimizer, of_an_average, of_a_group_with_rate_0):
        found = fitted(tmp_path / build.__name__, build)
        assert (found.is_healthy, "UntrainedParameter" in found.checked) == (True, True), str(found)
        assert "UntrainedParameter" not in [each.rule for each in found.problems], str(found)


def test_a_layer_without_gradients_is_a_note_as_it_may_be_frozen(tmp_path: Path) -> None:
    def freeze(net: Any) -> Any:
        net[0].requires_grad_(False)
        return net.parameters(), nothing

    found = fitted(tmp_path, freeze)
    (note,) = (each for each in found.problems if each.rule == "UntrainedParameter")
    assert (found.is_healthy, note.tensor, note.tensors) == (True, "Sequential_0.weight", ("Sequential_0.bias",))
    assert note.advice.startswith("nothing if this parameter is frozen")


def test_a_nan_explains_every_nan_after_it_and_what_follows(tmp_path: Path) -> None:
    found = saved(tmp_path, layer1=(20, with_nan), layer2=(21, with_nan), layer0=(25, with_nan))
    (problem,) = found.problems
    assert (problem.rule, problem.step, problem.tensor) == ("ExplodingTensor", 20, "gradient/layer1")
    assert problem.tensors == ("gradient/layer2", "gradient/layer0")
    assert problem.last_step == 39
    assert "GradientNormSpike at step 20" in problem.explains[0]
    assert not found.is_healthy
    assert found.headline == "NaN begins at step 20, first in gradient/layer1."
    assert "What to try: look at the inputs" in str(found)
    assert "First, at step 20: gradient/layer1 holds 1 NaN" in found.details


def test_a_spike_explains_the_nan_that_soon_follows_it_and_no_other(tmp_path: Path) -> None:
    def spike(value: Any) -> Any:
        return value * 1e6

    soon = saved(tmp_path / "soon", layer1=(20, spike), layer2=(25, with_nan))
    assert [(each.rule, each.step) for each in soon.problems] == [("GradientNormSpike", 20)]
    assert "ExplodingTensor at step 25, gradient/layer2 holds 1 NaN" in soon.problems[0].explains

    later = saved(tmp_path / "later", 100, layer1=(20, spike), layer2=(25, with_nan), layer0=(90, with_nan))
    assert [(each.rule, each.step) for each in later.problems] == [("GradientNormSpike", 20)]

    calls = []

    def once(value: Any) -> Any:
        calls.append(1)
        return value * 1e6 if len(calls) == 1 else value

    late = saved(tmp_path / "late", layer1=(15, once), layer2=(35, with_nan))
    assert [(each.rule, each.step) for each in late.problems] == [("ExplodingTensor", 35), ("GradientNormSpike", 15)]
    assert str(late).splitlines()[2] == "NaN begins at step 35, first in gradient/layer2."
    assert "- at step 15, the norm of all gradients" in str(late)
    assert "Also, at step 15" in late.details


def test_a_nan_comes_first_if_spikes_went_on_for_long_before_it(tmp_path: Path) -> None:
    steps = iter(range(200))

    def spikes(value: Any) -> Any:
        return value * 1e6 if next(steps) % 20 == 0 else value

    found = saved(tmp_path, 200, layer1=(15, spikes), layer2=(140, with_nan))
    assert [(each.rule, each.step) for each in found.problems] == [("ExplodingTensor", 140), ("GradientNormSpike", 15)]
    assert found.headline == "NaN begins at step 140, first in gradient/layer2."


@pytest.mark.parametrize(("last", "is_healthy"), [(60.0, False), (4.0, True)])
def test_a_loss_that_ends_far_above_its_beginning_is_a_problem(tmp_path: Path, last: float, is_healthy: bool) -> None:
    rng = np.random.default_rng(0)
    with tensortrial.Run(tmp_path, environment=False) as run:
        for step in range(80):
            run.log({"loss": 2.3 if step == 0 else last + rng.uniform(0, 0.1)}, step=step)
    found = tensortrial.diagnose(tmp_path)
    assert (found.is_healthy, found.problems[0].rule) == (is_healthy, "LossNotDecreasing")
    assert found.problems[0].advice.startswith("nothing if" if is_healthy else "lower the learning rate")


def test_a_loss_that_two_calls_compute_in_turn_has_not_diverged(tmp_path: Path) -> None:
    """As of pairs that are equal, whose loss begins near 0, and of pairs that are not."""
    with tensortrial.Run(tmp_path, environment=False) as run:
        for step in range(80):
            run.log({"loss": 0.5 * 0.95**step if step % 2 else 0.003 + 0.0001 * step}, step=step)
    found = tensortrial.diagnose(tmp_path)
    assert [(each.rule, each.is_note) for each in found.problems] == [("LossNotDecreasing", True)]


def test_a_loss_that_rises_from_its_beginning_explains_its_jumps_and_nan(tmp_path: Path) -> None:
    """As if the sign of the loss is wrong."""
    noise = np.random.default_rng(0).normal(0, 0.05, 400)

    def loss(step: int) -> float:
        rise = 1.001**step if step < 130 else 1.2 ** (step - 129)
        return float((2.3 + noise[step]) * rise) if step < 145 else math.nan

    found = rated(tmp_path, loss=loss, steps=400)
    (problem,) = (each for each in found.problems if not each.is_note)
    assert (problem.rule, problem.step) == ("LossNotDecreasing", 100)
    assert "check the sign of the loss" in problem.advice
    assert [line.partition(" ")[0] for line in problem.explains] == ["ExplodingTensor", "LossSpike"]


def test_a_part_of_a_loss_that_rises_while_the_loss_falls_is_no_problem(tmp_path: Path) -> None:
    """The divergence of a variational autoencoder begins near 0."""
    rng = np.random.default_rng(0)
    with tensortrial.Run(tmp_path, environment=False) as run:
        for step in range(80):
            run.log({"loss": 9 - step / 10 + rng.uniform(0, 0.1), "kl_loss": 0.01 + step / 10}, step=step)
    found = tensortrial.diagnose(tmp_path)
    assert [(each.tensor, each.is_note) for each in found.problems] == [("kl_loss", True)]


def test_a_rule_without_data_is_said_to_be_unchecked_with_what_to_save(tmp_path: Path) -> None:
    reasons = {each.rule: each.reason for each in saved(tmp_path).unchecked}
    assert "include_collections=['losses']" in reasons["LossSpike"]
    assert "include_collections=['weights']" in reasons["WeightUpdateRatio"]
    assert "hook.register_optimizer(optimizer)" in reasons["UpdateRatioOutOfRange"]
    assert "ReplicaDivergence" not in reasons  # one worker has no replicas
    assert not any(reason.startswith("cannot run") for reason in reasons.values())


def test_problems_begin_in_the_order_of_execution(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from sklearn.datasets import load_digits

    import tensortrial.hooks.pytorch as tt

    torch.manual_seed(0)
    x, y = (torch.tensor(each) for each in load_digits(return_X_y=True))
    x = (x / 16).float()
    layers = [
        torch.nn.Linear(64, 16),
        torch.nn.Tanh(),
        torch.nn.Linear(16, 16),
        torch.nn.Tanh(),
        torch.nn.Linear(16, 10),
    ]
    model, loss_of = torch.nn.Sequential(*layers), torch.nn.CrossEntropyLoss()
    hook = tt.Hook(
        tmp_path,
        save_all=True,
        save_config=tt.SaveConfig(save_interval=1),
        reduction_config=tt.ReductionConfig(norms=["l2"], abs_reductions=["mean"]),
    )
    hook.register_module(model)
    hook.register_loss(loss_of)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(20):
        if step == 12:
            with torch.no_grad():
                model[2].weight[3, 4] = torch.nan
        rows = slice(step * 64, step * 64 + 64)
        optimizer.zero_grad()
        loss_of(model(x[rows]), y[rows]).backward()
        optimizer.step()
    hook.close()

    (problem,) = [each for each in tensortrial.diagnose(tmp_path).problems if not each.is_note]
    assert (problem.step, problem.tensor) == (12, "Sequential_2.weight")
    assert problem.order is not None
    assert problem.tensors[:3] == ("2_output_0", "3_input_0", "3_output_0")
    assert "CrossEntropyLoss_output_0" in problem.tensors


def test_a_run_that_is_still_written_is_diagnosed_so_far(tmp_path: Path) -> None:
    job = Job(tmp_path)
    for _ in range(3):
        job.step({"w": np.array([1.0, np.nan])}, statistics=COUNTS)
    job.flush()
    found = tensortrial.diagnose(tensortrial.create_trial(tmp_path))
    assert [(each.rule, each.step, each.last_step) for each in found.problems] == [("ExplodingTensor", 0, 2)]
    assert not list(tmp_path.glob("findings/*"))
    job.close()


def test_a_run_without_a_step_and_no_run_at_all(tmp_path: Path) -> None:
    Job(tmp_path / "empty").close()
    found = tensortrial.diagnose(tmp_path / "empty")
    assert (found.steps, found.problems) == (0, ())
    with pytest.raises(RunNotFound):
        tensortrial.diagnose(tmp_path / "none")


def test_workers_of_data_parallel_training_are_compared(tmp_path: Path) -> None:
    jobs = [Job(tmp_path, f"worker_{number}", 2) for number in range(2)]
    for step in range(5):
        for number, job in enumerate(jobs):
            value = np.ones(4) + (1e-12 if number and step >= 3 else 0)
            job.step(
                {"w": value},
                raw=False,
                digest=True,
                statistics=("l2", "nan_count", "inf_count"),
                collections=("weights",),
            )
    for job in jobs:
        job.close()
    found = tensortrial.diagnose(tmp_path)
    assert [(each.rule, each.step, each.worker) for each in found.problems] == [("ReplicaDivergence", 3, "worker_1")]


def test_the_command_prints_the_diagnosis_and_its_status(tmp_path: Path) -> None:
    pytest.importorskip("click")
    from click.testing import CliRunner

    from tensortrial.cli.commands import main

    saved(tmp_path / "good")
    saved(tmp_path / "bad\x1b[31m", layer1=(20, with_nan))
    good = CliRunner().invoke(main, ["diagnose", str(tmp_path / "good")])
    assert (good.exit_code, "no problem in 40 steps" in good.output) == (0, True)
    bad = CliRunner().invoke(main, ["diagnose", str(tmp_path / "bad\x1b[31m")])
    assert bad.exit_code == 1
    assert "\x1b" not in bad.output
    document = json.loads(CliRunner().invoke(main, ["diagnose", "--json", str(tmp_path / "bad\x1b[31m")]).output)
    assert document["problems"][0]["tensor"] == "gradient/layer1"
    assert document["headline"] == "NaN begins at step 20, first in gradient/layer1."
    assert document["headline"] in document["text"]
    whole = CliRunner().invoke(main, ["diagnose", "--all", str(tmp_path / "bad\x1b[31m")]).output
    assert all(f"- {each['rule']}: " in whole for each in document["unchecked"])
    missing = CliRunner().invoke(main, ["diagnose", str(tmp_path / "none")])
    assert missing.exit_code == 2


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 3] ^= 1
    file.write_bytes(data)


def test_a_damaged_file_is_said_and_the_rest_is_evaluated(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("click")
    from click.testing import CliRunner

    from tensortrial.cli.commands import main

    # Few files a folder are not compacted at the end of a run.
    with Job(tmp_path, steps_per_directory=4) as job:
        for step in range(6):
            value = np.array([1.0, np.nan if step == 5 else 2.0])
            job.publish({"gradient/w": value}, statistics=COUNTS, collections=("gradients",))
    first, *_, last = sorted(tmp_path.glob("index/**/*.parquet"))
    flip(first)
    found = tensortrial.diagnose(tmp_path)
    assert [(each.rule, each.step) for each in found.problems] == [("ExplodingTensor", 5)]
    assert {"ExplodingTensor", "VanishingGradient"} <= set(found.checked)
    assert list(found.damaged) == [str(first.relative_to(tmp_path))]
    assert f"- {first.relative_to(tmp_path)}: " in str(found)
    assert not [record for record in caplog.records if record.exc_info]
    json.dumps(found.to_json())
    flip(last)
    assert not tensortrial.diagnose(tmp_path).problems
    assert CliRunner().invoke(main, ["diagnose", str(tmp_path)]).exit_code == 2


def test_a_hostile_name_stays_in_the_line_that_names_it(tmp_path: Path) -> None:
    names = ["\x1b[2J\nFirst, at step 0: all is well", "L" * 200_000, "plain"]
    with Job(tmp_path) as job:
        for _ in range(3):
            job.step({name: np.array([1.0, np.nan]) for name in names}, statistics=COUNTS)
    found = tensortrial.diagnose(tmp_path)
    assert {found.problems[0].tensor, *found.problems[0].tensors} == set(names)
    lines = found.details.splitlines()
    assert sum(line.startswith("First, at step 0") for line in lines) == 1
    assert not any(line.startswith("First, at step 0") for line in str(found).splitlines())
    lines += str(found).splitlines()
    assert all(line.isprintable() and len(line) < 2000 for line in lines)


def test_the_answer_says_how_many_of_the_steps_were_saved(tmp_path: Path) -> None:
    with tensortrial.Run(tmp_path, environment=False) as run:
        for step in range(200):
            with run.step():
                if step % 150 == 0:
                    run.log({"accuracy": 0.5})
    found = tensortrial.diagnose(tmp_path)
    assert (found.steps, found.steps_begun) == (2, 200)
    assert str(found).startswith(f"{tmp_path}: no problem in 2 of 200 steps")
    assert "by save_interval=10" in str(found)


@pytest.mark.parametrize("is_open", [True, False])
def test_a_job_whose_first_step_has_a_large_number_has_begun_no_step_before(tmp_path: Path, is_open: bool) -> None:
    with tensortrial.Run(tmp_path, environment=False) as run:
        for step in range(1000, 1010):
            run.log({"accuracy": 0.5}, step=step)
        if not is_open:
            run.close()
        run.flush()
        found = tensortrial.diagnose(tmp_path)
    assert found.steps_begun == found.steps == 10 - is_open
    with tensortrial.Run(tmp_path, resume=True, environment=False) as run:
        run.log({"accuracy": 0.5}, step=1010)
    assert tensortrial.diagnose(tmp_path).steps_begun == 11


def test_steps_that_are_repeated_from_before_a_mode_began_are_counted_as_begun(tmp_path: Path) -> None:
    with tensortrial.Run(tmp_path, environment=False) as run:
        run.set_mode("TRAIN")
        for step in range(10):
            run.log({"loss": 0.5}, step=step)
        run.log({"accuracy": 0.5}, step=500, mode="EVAL")
        run.resume_at(5)
        for _ in range(15):
            with run.step():
                pass
    assert tensortrial.diagnose(tmp_path).steps_begun == 20


def test_a_nan_between_two_saved_steps_began_after_the_first_of_them(tmp_path: Path) -> None:
    with Job(tmp_path) as job:
        for step in range(9):
            if step in (0, 4, 5, 8):
                job.step({"w": np.array([1.0, np.nan if step > 5 else 2.0])}, statistics=COUNTS)
            else:
                job.step({"other": np.ones(2)}, statistics=COUNTS)
    (problem,) = tensortrial.diagnose(tmp_path).problems
    assert (problem.step, problem.after_step) == (8, 5)
    assert "It began after step 5" in str(problem)
    assert problem.headline == "NaN begins between steps 5 and 8, first in w"


def test_a_diagnosis_says_why_a_worker_saved_no_more(tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.step({"loss": 1.0})
    job.writer.close("the disk is full", steps=40)
    found = tensortrial.diagnose(tmp_path)
    assert found.failures == {"worker_0": "the disk is full"}
    assert "no problem in 1 of 40 steps" in found.summary
    assert "later steps may be missing:\n- worker_0: the disk is full" in str(found)
    assert "save or log more often" not in str(found)


@pytest.mark.parametrize(("begun", "lacks_most"), [(3, False), (4, False), (5, True)])
def test_a_diagnosis_says_that_most_steps_were_not_saved_only_if_so(
    tmp_path: Path, begun: int, lacks_most: bool
) -> None:
    job = Job(tmp_path)
    for _ in range(2):
        job.step({"loss": 1.0})
    job.writer.close(steps=begun)
    assert ("Most steps were not saved" in str(tensortrial.diagnose(tmp_path))) == lacks_most


def test_a_loss_that_was_logged_by_its_name_is_diagnosed(tmp_path: Path) -> None:
    with tensortrial.Run(tmp_path, environment=False) as run:
        for step in range(40):
            run.log({"train/Loss": 100.0 if step == 30 else 1 / (step + 1), "loss_scale": 2.0**step}, step=step)
    (problem,) = [each for each in tensortrial.diagnose(tmp_path).problems if not each.is_note]
    assert (problem.rule, problem.step, problem.tensor) == ("LossSpike", 30, "train/Loss")


def trained(
    run: Path,
    growth: dict[int, float],
    *,
    from_step: int = 30,
    spike: bool = True,
    averages: bool = False,
    **plan: Any,
) -> Diagnosis:
    """Save six weights that change by a hundredth a step, and by `growth` a step more; the loss jumps at step 40.

    With `averages`, other weights take their place in an evaluation after each step.
    """
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((6, 8, 8))
    with Job(run) as job:
        for step in range(42):
            job.put(
                at := job.begin(TRAIN),
                {f"{n}.weight": w for n, w in enumerate(weights)},
                collections=("weights",),
                **plan,
            )
            loss = {"collections": ("losses",)}, 50.0 if spike and step >= 40 else 2 - 0.01 * step
            rates = [0.01 * growth.get(n, 1.0) ** max(0, step - from_step) for n in range(6)]
            job.put(at, {"loss": loss, "lr of 3": rates[3]}, closes=True)
            if averages:
                job.step({f"{n}.weight": w / 2 for n, w in enumerate(weights)}, EVAL, collections=("weights",))
            weights = weights + rng.standard_normal(weights.shape) * np.reshape(rates, (6, 1, 1))
    return tensortrial.diagnose(run)


@pytest.mark.parametrize("plan", [{}, {"raw": False, "statistics": ("l2",)}], ids=["values", "norms"])
def test_a_weight_that_left_its_past_is_the_cause_of_the_spike_that_follows(
    tmp_path: Path, plan: dict[str, Any]
) -> None:
    found = trained(tmp_path, {3: 2.0}, **plan)
    (problem,) = [each for each in found.problems if not each.is_note]
    assert (problem.rule, problem.tensor) == ("StatisticAnomaly", "3.weight")
    assert "3.weight left its own past" in found.headline
    assert "after 'lr of 3' rose from 0.01 to " in found.headline
    assert problem.advice.startswith("lower the learning rate of ")
    assert problem.origin == ("3.weight" if plan == {} else None)  # norms show less than changes
    assert any(line.startswith("LossSpike at step 40") for line in problem.explains)


def test_weights_of_an_evaluation_are_no_changes_of_training(tmp_path: Path) -> None:
    (problem,) = [each for each in trained(tmp_path, {3: 2.0}, averages=True).problems if not each.is_note]
    assert problem.origin == "3.weight"


def test_a_weight_that_leaves_its_past_with_no_consequence_is_a_note(tmp_path: Path) -> None:
    found = trained(tmp_path, {3: 2.0}, spike=False)
    assert found.is_healthy
    assert [each.tensor for each in found.problems if each.rule == "StatisticAnomaly"] == ["3.weight"]


@pytest.mark.parametrize(
    ("growth", "from_step"),
    [({}, 0), (dict.fromkeys(range(6), 2.0), 30), ({3: 2.0}, 39)],
    ids=["no weight", "all weights", "as late as the loss"],
)
def test_a_spike_names_no_weight_that_only_follows_it(tmp_path: Path, growth: dict[int, float], from_step: int) -> None:
    problem = trained(tmp_path, growth, from_step=from_step).problems[0]
    assert (problem.rule, problem.step, problem.origin) == ("LossSpike", 40, None)


@pytest.mark.parametrize("jumps", [False, True])
def test_a_weight_that_is_saved_more_rarely_has_not_left_its_past(tmp_path: Path, jumps: bool) -> None:
    saves = [*range(11), *range(20, 60, 10)]
    with Job(tmp_path) as job:
        for step in range(58):
            at = job.begin(TRAIN)
            if step in saves:
                norm = 2 + 0.002 * step + 0.00004 * step**2 + (10.0 * (step - 20) if jumps and step > 20 else 0)
                weight = {"w.weight": np.array([norm])}
                job.put(at, weight, collections=("weights",), raw=False, statistics=("l2",))
            loss = {"collections": ("losses",)}, np.nan if step >= 55 else 2 - 0.01 * step
            job.put(at, {"loss": loss}, closes=True)
    begun = "Between steps 20 and 30, w.weight left its own past" if jumps else "NaN begins at step 55"
    assert (tensortrial.diagnose(tmp_path).headline or "").startswith(begun)


def test_weights_that_are_no_numbers_have_no_changes(tmp_path: Path) -> None:
    with Job(tmp_path) as job:
        for step in range(42):
            values = {"text": np.array(["a", "b"]), "complex": np.full(3, 1 + 1j), "empty": np.empty((0, 2))}
            job.put(at := job.begin(TRAIN), values, collections=("weights",))
            job.put(at, {"loss": ({"collections": ("losses",)}, 50.0 if step >= 40 else 1.0)}, closes=True)
    found = tensortrial.diagnose(tmp_path)
    assert "WeightUpdateRatio" in found.checked
    assert [each.origin for each in found.problems if each.rule == "LossSpike"] == [None]


def test_a_nan_is_told_with_its_interval_and_the_last_loss(tmp_path: Path) -> None:
    with Job(tmp_path) as job:
        for step in range(160):
            if step % 50:
                job.skip()
                continue
            values = {f"gradient/layer{n}": np.array([1.0, np.nan if step > 50 else n]) for n in range(8)}
            loss = {"collections": ("losses",)}, np.nan if step > 50 else 0.5
            job.put(at := job.begin(), values, statistics=COUNTS, collections=("gradients",))
            job.put(at, {"loss": loss}, closes=True)
    found = tensortrial.diagnose(tmp_path)
    begun = "NaN begins between steps 50 and 100, first in gradient/layer0; the loss was 0.5 at step 50."
    assert found.headline == begun
    _, _, headline, advice, _, *lines = str(found).splitlines()
    assert headline == begun
    assert advice.startswith("What to try: ")
    assert lines[0].startswith("- the same in 8 more tensors: gradient/layer1, ")
    assert len([line for line in lines if line.startswith("- ")]) <= 5
    assert lines[-1].startswith(f"Not checked: {len(found.unchecked)} rules")


def test_the_demonstration_is_diagnosed_with_layer_step_and_learning_rate(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    runpy.run_path(str(EXPLODING))["train"](str(tmp_path), steps=230)
    found = tensortrial.diagnose(tmp_path)
    (problem,) = [each for each in found.problems if not each.is_note]
    assert problem == found.problems[0]  # notes come last
    assert found.headline.startswith("MLP_blocks.2.linear.weight left its own past at step 20")
    assert "after 'lr of the third layer' rose from 0.1 to " in found.headline
    assert found.headline.endswith("since step 200.")
    assert problem.advice == "lower the learning rate of MLP_blocks.2.linear.weight, or clip its gradient"


def test_a_rule_whose_values_are_damaged_is_not_checked_for_that_reason(tmp_path: Path) -> None:
    with Job(tmp_path) as job:
        for _ in range(3):
            job.step({"gradient/w": np.ones(500)}, collections=("gradients",))
        job.step({"loss": 1.0})
    for chunk in (tmp_path / "tensors").rglob("*.parquet"):
        chunk.write_bytes(chunk.read_bytes()[:1000])
    (rule,) = [each for each in tensortrial.diagnose(tmp_path).unchecked if each.rule == "VanishingGradient"]
    assert rule.reason.startswith("tensors/mode=GLOBAL/")


def rated(run: Path, *, steps: int = 60, saved: Any = range(60), **values: Any) -> Diagnosis:
    """Save a loss at every step, and other values at some. Each value is a function of the step."""
    with Job(run) as job:
        for step in range(steps):
            at = job.begin(TRAIN)
            if step in saved:
                others = {name: value(step) for name, value in values.items() if name not in ("loss", "gradient", "lr")}
                job.put(at, {f"update_ratio/{name}.weight": value for name, value in others.items()})
                if "gradient" in values:
                    gradient = values["gradient"](step) * np.array([1.0, -2.0])
                    plan = {"statistics": (*COUNTS, "zero_count"), "collections": ("gradients",)}
                    job.put(at, {"gradient/a.weight": gradient}, raw=False, **plan)
            if "lr" in values:
                job.put(at, {"lr": values["lr"](step)})
            loss = values.get("loss", lambda step: 1 / (1 + 0.01 * step))(step)
            job.put(at, {"loss": ({"collections": ("losses",)}, loss)}, closes=True)
    return tensortrial.diagnose(run)


def test_updates_that_are_large_only_in_the_first_steps_are_a_note(tmp_path: Path) -> None:
    found = rated(tmp_path / "first", a=lambda step: 0.2 if step < 8 else 1e-3)
    assert (found.is_healthy, [each.rule for each in found.problems]) == (True, ["UpdateRatioOutOfRange"])
    found = rated(tmp_path / "all", a=lambda step: 0.2)
    assert found.headline.startswith("At step 4, update_ratio/a.weight is 0.2, above 0.1")
    assert found.problems[0].advice.startswith("lower the learning rate")


def test_updates_that_are_too_small_need_a_higher_learning_rate(tmp_path: Path) -> None:
    found = rated(tmp_path, a=lambda step: 1e-9)
    assert found.headline.startswith("At step 4, update_ratio/a.weight is 1e-09, below 1e-07")
    assert "raise its learning rate" in found.problems[0].advice


def test_a_gradient_that_vanished_is_the_cause_of_updates_that_are_too_small_and_not_of_large_ones(
    tmp_path: Path,
) -> None:
    found = rated(tmp_path, gradient=lambda step: 0.0, a=lambda step: 0.0, b=lambda step: 0.2)
    serious = [each for each in found.problems if not each.is_note]
    assert [(each.rule, each.tensor) for each in serious] == [
        ("VanishingGradient", "gradient/a.weight"),
        ("UpdateRatioOutOfRange", "update_ratio/b.weight"),
    ]
    assert "check that the layer is part of" in serious[0].advice
    assert any("update_ratio/a.weight is 0, below" in line for line in serious[0].explains)


def test_a_gradient_that_vanished_later_was_part_of_the_loss(tmp_path: Path) -> None:
    found = rated(tmp_path, gradient=lambda step: 1.0 if step < 20 else 0.0)
    assert found.headline.startswith("At step 20, gradient/a.weight is 0 on average")
    assert found.problems[0].advice.startswith("lower the learning rate")


@pytest.mark.parametrize("value", [0.0, np.nan])
def test_a_gradient_that_recovers_is_a_note(tmp_path: Path, value: float) -> None:
    """As if a layer after it begins with zeros, or a GradScaler skips steps."""
    found = rated(tmp_path / "over", gradient=lambda step: value if step < 3 or step == 40 else 1.0)
    assert found.is_healthy, str(found)
    assert found.problems
    assert not rated(tmp_path / "to the end", gradient=lambda step: 1.0 if step < 40 else value).is_healthy


def test_a_gradient_that_vanishes_with_the_loss_is_a_note(tmp_path: Path) -> None:
    def gradient(step: int) -> float:
        return 0.5**step

    assert rated(tmp_path / "falls", gradient=gradient, loss=lambda step: 0.5**step).is_healthy
    assert rated(tmp_path / "converged", gradient=gradient, loss=lambda step: 1e-7).is_healthy  # before its first step
    assert not rated(tmp_path / "stays", gradient=gradient).is_healthy


@pytest.mark.parametrize(("name", "mode"), [("loss", modes.EVAL), ("val_loss", TRAIN)])
def test_a_validation_loss_does_not_decide_whether_training_has_converged(
    tmp_path: Path, name: str, mode: tensortrial.modes
) -> None:
    """The training examples are memorized, so that the gradient of their loss vanishes."""
    for is_memorized in (True, False):
        with Job(tmp_path / str(is_memorized)) as job:
            for step in range(60):
                falling = 0.5**step
                training, validation = (falling, 1.0) if is_memorized else (1.0, falling)
                plan = {"statistics": (*COUNTS, "zero_count"), "collections": ("gradients",)}
                at = job.begin(TRAIN)
                job.put(at, {"gradient/a.weight": np.array([1.0, -2.0]) * falling}, raw=False, **plan)
                job.put(at, {"loss": ({"collections": ("losses",)}, training)}, closes=mode is not TRAIN)
                at = at if mode is TRAIN else job.begin(mode)
                job.put(at, {name: ({"collections": ("losses",)}, validation)}, closes=True)
        assert tensortrial.diagnose(tmp_path / str(is_memorized)).is_healthy == is_memorized


def test_a_jump_of_a_loss_that_has_nearly_vanished_is_a_note(tmp_path: Path) -> None:
    def loss(step: int) -> float:
        return 1.0 if step < 10 else 0.003 + 1e-4 * (step % 3)

    found = rated(tmp_path / "late", loss=lambda step: 0.05 if step == 190 else loss(step), steps=200)
    assert (found.is_healthy, [each.rule for each in found.problems if each.step == 190]) == (True, ["LossSpike"])
    assert not rated(tmp_path / "large", loss=lambda step: 5.0 if step == 190 else loss(step), steps=200).is_healthy


def test_a_jump_that_is_usual_for_a_loss_is_a_note(tmp_path: Path) -> None:
    """The losses of a model that was trained before are small, and vary by factors."""
    noise = np.exp(np.random.default_rng(0).normal(0, 0.8, 200))

    def loss(step: int) -> float:
        return 0.003 * float(noise[step])

    found = rated(tmp_path / "usual", loss=lambda step: 0.035 if step == 100 else loss(step), steps=200)
    assert (found.is_healthy, [each.rule for each in found.problems if each.step == 100]) == (True, ["LossSpike"])
    found = rated(tmp_path / "large", loss=lambda step: 3.0 if step == 100 else loss(step), steps=200)
    assert [(each.rule, each.step) for each in found.problems if not each.is_note] == [("LossSpike", 100)]
    found = rated(tmp_path / "stays", loss=lambda step: loss(step) * (12 if step >= 100 else 1), steps=200)
    assert not found.is_healthy


@pytest.mark.parametrize("steps", [1, 2])
def test_a_jump_of_one_loss_below_the_first_one_is_a_note(tmp_path: Path, steps: int) -> None:
    """As of a batch with an example of a rare class."""
    found = rated(tmp_path, loss=lambda step: 0.4 if 170 < step <= 170 + steps else 0.7 / (step // 5 + 1), steps=200)
    assert [(each.rule, each.step, each.is_note) for each in found.problems] == [("LossSpike", 171, steps == 1)]


def test_a_jump_of_the_losses_of_tiny_batches_is_a_note(tmp_path: Path) -> None:
    """Most of them are near 0, so that the next few after a jump say little about the usual one."""
    losses = np.exp(np.random.default_rng(1).normal(-5, 2.0, 400))
    losses[300:312] = [3.0, *losses[300:311] * 3]
    found = rated(tmp_path, loss=lambda step: 0.7 if step < 5 else float(losses[step]), steps=400)
    assert "LossSpike" in [each.rule for each in found.problems]
    assert found.is_healthy, str(found)


def test_a_jump_that_is_usual_for_a_heavy_tail_is_a_note_and_a_far_larger_one_a_problem(tmp_path: Path) -> None:
    """As of targets with outliers, or of a rare class with a large weight."""
    losses = 0.3 * np.exp(0.1 * np.random.default_rng(0).standard_normal(200))
    losses[[5, 12, 70, 90]] = 1.2
    for jump, is_healthy in ((3.6, True), (20.0, False)):
        losses[120] = jump
        found = rated(tmp_path / str(jump), loss=lambda step: float(losses[step]) if step else 0.3, steps=200)
        assert (found.is_healthy, 120 in [each.step for each in found.problems]) == (is_healthy, True), str(found)


@pytest.mark.parametrize("restarts", [True, False])
def test_a_jump_below_the_first_loss_after_a_restart_of_the_learning_rate_is_a_note(
    tmp_path: Path, restarts: bool
) -> None:
    rng = np.random.default_rng(0)
    with tensortrial.Run(tmp_path, environment=False) as run:
        for step in range(200):
            loss = 2.3 if step == 0 else rng.normal(0.3 if step < 155 else 2.0, 0.05)
            rate = 0.2 * (1 - step % 150 / 150) if restarts else 0.2
            run.log({"loss": loss, "hyperparameters/SGD/group_0/lr": rate}, step=step)
    found = tensortrial.diagnose(tmp_path)
    assert (found.is_healthy, "LossSpike" in [each.rule for each in found.problems]) == (restarts, True), str(found)


def test_losses_of_evaluation_make_no_jump_of_a_training_loss_usual(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    with tensortrial.Run(tmp_path, environment=False) as run:
        for step in range(100):
            run.log({"loss": rng.normal(10 if step == 80 else 1, 0.05)}, step=step, mode=TRAIN)
            run.log({"loss": rng.normal(3, 0.05)}, step=step, mode=modes.EVAL)
    found = tensortrial.diagnose(tmp_path)
    assert [(each.rule, each.step) for each in found.problems if not each.is_note] == [("LossSpike", 160)]


def test_a_loss_of_evaluation_that_rises_while_that_of_training_falls_has_not_diverged(tmp_path: Path) -> None:
    with tensortrial.Run(tmp_path, environment=False) as run:
        for step in range(120):
            epoch = step // 12
            run.log({"loss": 2 / (1 + epoch)}, step=step, mode=TRAIN)
            if step % 12 == 11:
                for batch in range(12):
                    run.log({"loss": 1 + epoch}, step=12 * epoch + batch, mode=modes.EVAL)
    found = tensortrial.diagnose(tmp_path)
    assert not [each.advice for each in found.problems if each.rule == "LossNotDecreasing" and not each.is_note]


@pytest.mark.parametrize(
    ("name", "is_healthy"),
    [("loss", False), ("loss_value", False), ("loss_3d", False), ("policy_loss", True), ("loss_G", True)],
)
def test_a_loss_whose_target_moves_may_rise(tmp_path: Path, name: str, is_healthy: bool) -> None:
    rng = np.random.default_rng(0)
    for kind, rise in (("rises", lambda step: step / 10), ("jumps", lambda step: 40.0 * (step == 60))):
        with tensortrial.Run(tmp_path / kind, environment=False) as run:
            for step in range(80):
                run.log({name: 1.0 + rise(step) + rng.uniform(0, 0.1)}, step=step)
        found = tensortrial.diagnose(tmp_path / kind)
        assert (found.is_healthy, bool(found.problems)) == (is_healthy, True), str(found)


def test_outliers_of_activations_come_after_other_problems(tmp_path: Path) -> None:
    outliers = np.append(np.random.default_rng(0).normal(size=999), 1e4)
    with Job(tmp_path) as job:
        for step in range(40):
            at = job.begin(TRAIN)
            job.put(at, {"0_output_0": outliers if step >= 10 else outliers[:-1]}, raw=False, statistics=("kurtosis",))
            job.put(at, {"update_ratio/a.weight": 0.2 if step >= 20 else 1e-3}, closes=True)
    found = tensortrial.diagnose(tmp_path)
    assert [each.rule for each in found.problems] == ["UpdateRatioOutOfRange", "ActivationOutliers"]


@pytest.mark.parametrize("other", ["", "updates before them", "a jump after them"])
def test_outliers_of_activations_are_a_note_if_found_alone(tmp_path: Path, other: str) -> None:
    outliers = np.append(np.random.default_rng(0).normal(size=999), 1e4)
    with Job(tmp_path) as job:
        for step in range(40):
            at = job.begin(TRAIN)
            job.put(at, {"0_output_0": outliers if step >= 25 else outliers[:-1]}, raw=False, statistics=("kurtosis",))
            ratio = 0.2 if other.startswith("updates") and 15 <= step < 22 else 1e-3
            loss = 50.0 if other.startswith("a jump") and step >= 30 else 1 / (1 + 0.01 * step)
            loss_plan = {"collections": ("losses",)}
            job.put(at, {"update_ratio/a.weight": ratio, "loss": (loss_plan, loss)}, closes=True)
    found = tensortrial.diagnose(tmp_path)
    assert (found.is_healthy, "ActivationOutliers" in found.details) == (not other, True), str(found)


def test_zeros_of_activations_in_float16_are_no_problem(tmp_path: Path) -> None:
    with Job(tmp_path) as job:
        for _ in range(20):
            job.step({"relu_output_0": np.array([0, 0, 1], np.float16)}, statistics=(*COUNTS, "zero_count"))
    found = tensortrial.diagnose(tmp_path)
    assert "LowPrecisionSaturation" in found.checked + tuple(each.rule for each in found.unchecked)
    assert found.is_healthy


def test_a_consequence_may_have_begun_right_after_the_previous_save_of_its_tensor(tmp_path: Path) -> None:
    found = rated(
        tmp_path,
        steps=200,
        saved=(0, 50, 100, 150),
        gradient=lambda step: 0.0 if step > 100 else 1.0,
        loss=lambda step: 90.0 if step > 101 else 2 - 0.001 * step,
        lr=lambda step: 3.0 if step > 100 else 0.1,
    )
    (problem,) = [each for each in found.problems if not each.is_note]
    assert (problem.rule, problem.step) == ("LossSpike", 102)
    assert problem.explains[0].startswith("VanishingGradient at step 150")
    assert "'lr' rose from 0.1 to 3 since step 101" in found.headline
    assert problem.advice.startswith("raise this learning rate less, or more slowly; else look at the batch")


def test_a_nan_after_a_loss_that_had_grown_needs_a_lower_learning_rate(tmp_path: Path) -> None:
    found = rated(tmp_path, loss=lambda step: 10.0**step if step < 5 else np.nan)
    assert found.headline == "NaN begins at step 5, first in loss; it was 1e+04 at step 4, after 1 at step 0."
    assert found.problems[0].advice.startswith("lower the learning rate, clip gradients, ")
    found = rated(tmp_path / "flat", loss=lambda step: 1.0 if step < 5 else np.nan)
    assert found.problems[0].advice.startswith("look at the inputs of this tensor")


def test_a_nan_explains_a_nan_long_after_it(tmp_path: Path) -> None:
    found = rated(
        tmp_path,
        steps=100,
        saved=range(100),
        a=lambda step: 0.3,
        loss=lambda step: 1.0 if step < 10 else np.nan,
        gradient=lambda step: 1.0 if step < 70 else np.nan,
    )
    (problem,) = [each for each in found.problems if not each.is_note]
    assert problem.rule == "UpdateRatioOutOfRange"
    assert "ExplodingTensor at step 10, loss holds 1 NaN, and 1 more of the rule" in problem.explains


def test_a_nan_in_a_gradient_is_named_by_the_gradient_in_which_it_begins(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    tt = pytest.importorskip("tensortrial.hooks.pytorch")

    class Norm(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = torch.nn.Linear(4, 4, bias=False), torch.nn.Linear(1, 1)

        def forward(self, x: Any) -> Any:
            return self.last(self.first(x).square().sum(1, keepdim=True).sqrt())

    torch.manual_seed(0)
    net, loss_of = Norm(), torch.nn.MSELoss()
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    hook = tt.Hook(tmp_path, save_interval=1)
    hook.register_module(net)
    hook.register_loss(loss_of)
    for step in range(30):
        x = torch.randn(16, 4)
        x[0] *= step < 25
        optimizer.zero_grad()
        loss_of(net(x), torch.ones(16, 1)).backward()
        optimizer.step()
    hook.close()
    found = tensortrial.diagnose(tmp_path)
    assert found.headline.startswith("NaN begins at step 25, first in gradient/Norm_first.weight"), str(found)


def test_a_rise_of_gradients_while_the_loss_falls_is_a_note(tmp_path: Path) -> None:
    def gradient(step: int) -> float:
        return 30.0 if step == 40 else 1 + 0.1 * (step % 3)

    found = rated(tmp_path / "falls", gradient=gradient)
    assert (found.is_healthy, [each.rule for each in found.problems]) == (True, ["GradientNormSpike"])
    found = rated(tmp_path / "jumps", gradient=gradient, loss=lambda step: 50.0 if step == 41 else 1 - 0.001 * step)
    (problem,) = [each for each in found.problems if not each.is_note]
    assert (problem.rule, problem.step) == ("GradientNormSpike", 40)


def test_a_nan_after_a_learning_rate_rose_is_told_with_it(tmp_path: Path) -> None:
    found = rated(tmp_path, loss=lambda step: np.nan if step > 42 else 1.0, lr=lambda step: 3.0 if step > 39 else 0.1)
    begun = "NaN begins at step 43, first in loss, after 'lr' rose from 0.1 to 3 since step 40; it was 1 at step 42."
    assert found.headline == begun
    assert found.problems[0].advice.startswith("raise this learning rate less")
