"""The index says in which order a step of Gluon computed its tensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tensortrial

mx: Any = pytest.importorskip("mxnet")


def test_tensors_of_a_step_are_in_the_order_of_execution(tmp_path: Path) -> None:
    import tensortrial.hooks.mxnet as tt

    class Net(mx.gluon.Block):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(prefix="net_")
            with self.name_scope():
                self.last = mx.gluon.nn.Dense(1, in_units=4, use_bias=False, prefix="last_")
                self.first = mx.gluon.nn.Dense(4, in_units=4, use_bias=False, prefix="first_")

        def forward(self, x: Any) -> Any:
            return self.last(self.first(x))

    model = Net()
    model.initialize(mx.init.One())
    hook = tt.Hook(str(tmp_path / "run"), save_all=True, save_config=tt.SaveConfig(save_interval=1))
    hook.register_block(model)
    trainer = mx.gluon.Trainer(model.collect_params(), "sgd", {"learning_rate": 0.1})
    for _ in range(2):
        with mx.autograd.record():
            output = model(mx.nd.ones((2, 4)))
        output.backward()
        trainer.step(2)
    hook.close()
    with tensortrial.create_trial(tmp_path / "run") as trial:
        query = """select name from tensors where global_step = 1 order by "order" """
        found = [name for (name,) in trial.sql(query).fetchall()]
    assert found == [
        "net_last_weight",
        "net_first_weight",
        "net_input_0",
        "net_first_input_0",
        "net_first_output_0",
        "net_last_input_0",
        "net_last_output_0",
        "net_output_0",
        "gradient/net_last_weight",
        "gradient/net_first_weight",
    ]
