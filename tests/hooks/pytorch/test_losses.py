"""Losses that models return, and hooks that save nothing."""

from __future__ import annotations

import logging
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from support.made_hooks import closed  # noqa: E402
from support.training import Net, array, batches, evaluate, same, train  # noqa: E402
from tensortrial import create_trial  # noqa: E402
from tensortrial.hooks.pytorch import SaveConfig  # noqa: E402


class Returning(nn.Module):
    """A model that computes its own loss, and returns it in some form."""

    def __init__(self, form: Any) -> None:
        super().__init__()
        self.net, self.form = Net(), form

    def forward(self, x: Any, y: Any) -> Any:
        logits = self.net(x)
        return self.form(logits, nn.functional.cross_entropy(logits, y))


def saved_losses(out: str) -> list[str]:
    return list(create_trial(out).tensor_names(collection="losses"))


def run(model: Any, steps: int = 2) -> list[Any]:
    """Run a model, and return the losses that it computed."""
    losses: list[Any] = []
    form = model.form

    def kept(logits: Any, loss: Any) -> Any:
        losses.append(array(loss))
        return form(logits, loss)

    model.form = kept
    for x, y in batches(steps):
        model(x, y)
    return losses


FORMS = {
    "a tensor": (lambda logits, loss: loss, ["Returning_output_0"]),
    "a dictionary": (lambda logits, loss: {"logits": logits, "loss": loss}, ["Returning_output_loss"]),
    "a tuple": (lambda logits, loss: (logits, loss), ["Returning_output_1"]),
    "a dictionary in a tuple": (lambda logits, loss: [logits, {"x_loss": loss}], ["Returning_output_x_loss"]),
    "a name before a gradient": (
        lambda logits, loss: {"loss": loss, "scale": logits.mean(), "steps": torch.tensor(3)},
        ["Returning_output_loss"],
    ),
    "several": (
        lambda logits, loss: {"loss_box": loss, "loss_class": loss * 2},
        ["Returning_output_loss_box", "Returning_output_loss_class"],
    ),
    "one element": (lambda logits, loss: {"Loss": loss.reshape(1)}, ["Returning_output_Loss"]),
}


@pytest.mark.parametrize(("form", "names"), FORMS.values(), ids=FORMS)
def test_a_loss_that_a_model_returns_is_saved(make_hook: Any, out: str, form: Any, names: list[str]) -> None:
    model = Returning(form)
    hook = make_hook()
    hook.register_module(model)
    expected = run(model)
    hook.close()
    assert saved_losses(out) == names
    trial = create_trial(out)
    assert trial.steps() == [0, 1]
    assert trial.tensor_names() == names
    for step, loss in enumerate(expected):
        assert same(trial.tensor(names[0]).value(step).reshape(()), loss)


@pytest.mark.parametrize(
    "form",
    [
        lambda logits, loss: logits,
        lambda logits, loss: (logits, loss.detach()),
        lambda logits, loss: {"loss": logits},
        lambda logits, loss: {"loss": loss.long(), "other": None},
    ],
)
def test_other_outputs_are_no_losses(make_hook: Any, form: Any) -> None:
    model = Returning(form)
    hook = make_hook()
    hook.register_module(model)
    run(model)
    assert not hook.get_collection("losses").tensor_names


def test_a_registered_loss_is_the_only_one(make_hook: Any, out: str) -> None:
    model, criterion = Returning(lambda logits, loss: {"loss": loss, "logits": logits}), nn.CrossEntropyLoss()
    hook = make_hook()
    hook.register_module(model)
    hook.register_loss(criterion)
    x, y = batches(1)[0]
    criterion(model(x, y)["logits"], y)
    hook.close()
    assert saved_losses(out) == ["CrossEntropyLoss_output_0"]


def test_each_loss_of_a_step_of_several_forwards_is_saved(make_hook: Any, out: str) -> None:
    model = Returning(lambda logits, loss: {"loss": loss})
    hook = make_hook()
    hook.register_module(model)
    with hook.step():
        expected = run(model, 3)
    trial = closed(hook)
    assert saved_losses(out) == ["Returning_output_loss", "Returning_output_loss_1", "Returning_output_loss_2"]
    for name, loss in zip(saved_losses(out), expected, strict=True):
        assert same(trial.tensor(name).value(0), loss)


def test_a_named_loss_of_an_evaluation_is_saved(make_hook: Any, out: str) -> None:
    model = Returning(lambda logits, loss: {"loss": loss})
    hook = make_hook()
    hook.register_module(model)
    with torch.no_grad():
        run(model, 1)
    hook.close()
    assert saved_losses(out) == ["Returning_output_loss"]


@pytest.mark.parametrize("before", [False, True])
def test_a_loss_that_compiled_code_returns_is_saved(make_hook: Any, out: str, before: bool) -> None:
    torch.compiler.reset()
    model = Returning(lambda logits, loss: {"loss": loss, "logits": logits})
    hook = make_hook()
    if before:
        hook.register_module(model)
    compiled: Any = torch.compile(model, backend="eager", fullgraph=True)
    if not before:
        hook.register_module(compiled)
    expected = []
    for x, y in batches(2):
        loss = compiled(x, y)["loss"]
        expected.append(array(loss))
        loss.backward()
    trial = closed(hook)
    assert saved_losses(out) == ["Returning_output_loss"]
    assert [same(trial.tensor("Returning_output_loss").value(step), each) for step, each in enumerate(expected)] == [
        True,
        True,
    ]


@pytest.mark.parametrize("return_dict", [True, False])
def test_the_loss_of_a_transformer_is_saved(make_hook: Any, out: str, return_dict: bool) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(vocab_size=64, n_embd=16, n_layer=1, n_head=2, n_positions=32, use_cache=False)
    model = transformers.GPT2LMHeadModel(config)
    hook = make_hook()
    hook.register_module(model)
    optimizer = torch.optim.AdamW(model.parameters())
    expected = []
    for _ in range(2):
        tokens = torch.randint(0, 64, (2, 8))
        loss = model(input_ids=tokens, labels=tokens, return_dict=return_dict)[0]
        expected.append(array(loss))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    hook.close()
    (name,) = saved_losses(out)
    assert name == f"GPT2LMHeadModel_output_{'loss' if return_dict else 0}"
    assert [same(create_trial(out).tensor(name).value(step), each) for step, each in enumerate(expected)] == [
        True,
        True,
    ]


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_a_hook_that_saves_nothing_says_so_once(make_hook: Any, caplog: pytest.LogCaptureFixture, steps: int) -> None:
    net = Net()
    hook = make_hook()
    hook.register_module(net)
    train(net, steps)
    assert len(warnings_of(caplog)) == (steps > 2)
    hook.close()
    (text,) = warnings_of(caplog)
    assert "nothing was saved at the first steps that were due" in text
    assert "(losses)" in text
    assert "hook.register_loss(criterion)" in text
    assert "weights (2 tensors, such as Net_fc1.weight)" in text
    assert "fc1_output_0" in text


def test_a_value_that_is_not_saved_because_of_its_name_is_explained(
    make_hook: Any, caplog: pytest.LogCaptureFixture
) -> None:
    net = Net()
    hook = make_hook()
    hook.register_module(net)
    for x, y in batches(3):
        hook.record_tensor_value("nll", nn.functional.cross_entropy(net(x), y))
    hook.close()
    (text,) = warnings_of(caplog)
    assert "which saves other names only if they match include_regex" in text


@pytest.mark.usefixtures("lenient")
@pytest.mark.parametrize("name", [None, 5, "", ["loss"]], ids=repr)
def test_a_value_is_recorded_under_a_text_only(make_hook: Any, caplog: pytest.LogCaptureFixture, name: Any) -> None:
    net = Net()
    hook = make_hook()
    hook.register_module(net)
    for x, y in batches(2):
        loss = nn.functional.cross_entropy(net(x), y)
        hook.record_tensor_value(name, loss)
        hook.record_tensor_value("loss", loss)
    assert hook.recorder.active
    assert closed(hook).tensor_names() == ["loss_output_0"]
    assert [message[:36] for message in caplog.messages] == ["record_tensor_value had no effect: a"]


def test_a_hook_whose_second_due_step_comes_late_says_early_that_nothing_was_saved(
    make_hook: Any, caplog: pytest.LogCaptureFixture
) -> None:
    net = Net()
    hook = make_hook(save_config=SaveConfig(save_interval=500))
    hook.register_module(net)
    train(net, 25)
    assert len(warnings_of(caplog)) == 1


@pytest.mark.parametrize("how", ["a scalar", "a recorded loss", "a dry run", "no step"])
def test_a_hook_that_saves_anything_says_nothing(make_hook: Any, caplog: pytest.LogCaptureFixture, how: str) -> None:
    net = Net()
    hook = make_hook(dry_run=how == "a dry run")
    if how != "no step":
        hook.register_module(net)
    for x, y in batches(3):
        loss = nn.functional.cross_entropy(net(x), y)
        if how == "a scalar":
            hook.save_scalar("x", 1)
        elif how == "a recorded loss":
            hook.record_tensor_value("loss", loss)
    hook.close()
    assert not warnings_of(caplog)


def test_batches_that_one_step_accumulates_are_not_steps_that_saved_nothing(
    make_hook: Any, caplog: pytest.LogCaptureFixture
) -> None:
    net = Net()
    hook = make_hook(include_collections=["weights"])
    hook.register_module(net)
    with hook.step():
        train(net, 3)
    hook.close()
    assert warnings_of(caplog) == []


def test_a_saved_loss_is_not_missed_because_a_module_was_added(
    make_hook: Any, caplog: pytest.LogCaptureFixture
) -> None:
    net, criterion = nn.Sequential(nn.Linear(64, 10)), nn.CrossEntropyLoss()
    hook = make_hook(save_all=True, save_config=SaveConfig(save_interval=2))
    hook.register_module(net)
    hook.register_loss(criterion)
    for step, (x, y) in enumerate(batches(5)):
        if step == 2:
            net.append(nn.Linear(10, 10))
        criterion(net(x), y).backward()
    hook.close()
    assert warnings_of(caplog) == []


@pytest.mark.parametrize("how", ["nothing", "a logged loss", "losses are off"])
def test_a_training_without_a_loss_among_what_is_saved_says_so_once(
    make_hook: Any, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    net = Net()
    hook = make_hook(include_collections=["weights"])
    hook.register_module(net)
    if how == "losses are off":
        hook.get_collection("losses").save_config.end_step = 0
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for x, y in batches(4):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        if how == "a logged loss":
            hook.log({"train/loss": loss.item()})
    hook.close()
    texts = warnings_of(caplog)
    assert len(texts) == (how == "nothing")
    assert all(
        "no loss is saved" in text and "hook.record_tensor_value('loss', loss), with 'loss' in its name" in text
        for text in texts
    )


def test_an_evaluation_without_a_loss_says_nothing(make_hook: Any, caplog: pytest.LogCaptureFixture) -> None:
    net = Net()
    hook = make_hook(include_collections=["weights", "gradients"])
    hook.register_module(net)
    evaluate(net, 4)
    hook.close()
    assert warnings_of(caplog) == []


@pytest.mark.parametrize("case", ["no mode", "modes", "in training mode", "before any training"])
def test_an_evaluation_among_the_steps_of_training_says_so_once(
    make_hook: Any, caplog: pytest.LogCaptureFixture, case: str
) -> None:
    net = Net()
    hook = make_hook(include_collections=["weights", "gradients"])
    hook.register_module(net)
    for _ in range(0 if case == "before any training" else 2):
        if case == "modes":
            hook.set_mode("TRAIN")
        train(net.train(), 2)
        if case == "modes":
            hook.set_mode("EVAL")
        evaluate(net if case == "in training mode" else net.eval(), 2)
    hook.close()
    texts = [text for text in warnings_of(caplog) if "the model is evaluated" in text]
    assert len(texts) == (case == "no mode")
    assert all("hook.set_mode(tt.modes.EVAL)" in text for text in texts)


def test_numbers_between_which_no_step_begins_are_said_to_replace_one_another(
    make_hook: Any, caplog: pytest.LogCaptureFixture
) -> None:
    hook = make_hook()
    for number in range(5):
        hook.save_scalar("loss", number)
        hook.save_scalar("rate", number)
    assert closed(hook).tensor("loss").values() == {0: 4}
    (text,) = warnings_of(caplog)
    assert "only the last 'loss' is kept" in text
    assert "hook.step()" in text
    assert "step=i" in text


@pytest.mark.parametrize("by_step", [True, False])
def test_numbers_of_steps_are_not_said_to_replace_one_another(
    make_hook: Any, caplog: pytest.LogCaptureFixture, by_step: bool
) -> None:
    hook = make_hook()
    for number in range(3):
        if by_step:
            with hook.step():
                hook.save_scalar("loss", number)
        else:
            hook.log({"loss": number}, step=number)
    assert closed(hook).tensor("loss").values() == {0: 0, 1: 1, 2: 2}
    assert warnings_of(caplog) == []
