"""Hooks in jobs of several processes: real ones, with gloo."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
import tensortrial.hooks.pytorch as tt  # noqa: E402
from support.gloo import launch  # noqa: E402
from tensortrial import create_trial  # noqa: E402
from tensortrial.errors import InvalidWorker, RunError  # noqa: E402


@pytest.mark.distributed
class TestData:
    """DistributedDataParallel."""

    PROGRAM = """
    from torch.nn.parallel import DistributedDataParallel
    net = DistributedDataParallel(seeded())
    hook, loss = begin(net, save_all=True, include_workers="WORKERS")
    go_on(net, loss, 3)
    """

    @pytest.mark.slow
    def test_all_workers_of_ddp_save_with_include_workers_all(self, tmp_path: Path) -> None:
        launch(self.PROGRAM.replace("WORKERS", "all"), tmp_path)
        trial = create_trial(tmp_path / "run")
        assert trial.num_workers == 2
        assert trial.workers() == ["worker_0", "worker_1"]
        assert trial.steps() == [0, 1, 2]
        assert trial.loaded_all_steps
        names = trial.tensor_names()
        assert {"Net_fc1.weight", "gradient/Net_fc1.weight", "fc1_output_0", "Net_output_0"} <= set(names)
        assert not [name for name in names if "module" in name]
        one, two = (trial.tensor("Net_fc1.weight").value(2, worker=f"worker_{i}") for i in range(2))
        assert np.array_equal(one, two)
        loss = trial.tensor("CrossEntropyLoss_output_0")
        assert loss.workers(1) == ["worker_0", "worker_1"]
        assert loss.value(1, worker="worker_0") != loss.value(1, worker="worker_1")

    @pytest.mark.slow
    def test_gradients_of_the_optimizer_are_averaged_over_the_workers_of_ddp(self, tmp_path: Path) -> None:
        program = """
    from torch.nn.parallel import DistributedDataParallel
    net = DistributedDataParallel(seeded())
    hook, loss = begin(net, include_collections=["gradients"], include_workers="all", gradients="local,optimizer")
    optimizer = torch.optim.Adam(net.parameters())
    hook.register_optimizer(optimizer)
    for x, y in batches(4)[rank::2]:
        optimizer.zero_grad()
        loss(net(x), y).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.1)
        hook.save_tensor("expected", net.module.fc1.weight.grad)
        optimizer.step()
    """
        launch(program, tmp_path)
        trial = create_trial(tmp_path / "run")
        assert trial.steps() == [0, 1]
        for step in trial.steps():
            values = {
                name: [trial.tensor(name).value(step, worker=worker) for worker in trial.workers()]
                for name in ("expected", "optimizer_gradient/Net_fc1.weight", "gradient/Net_fc1.weight")
            }
            expected, used, own = values.values()
            assert np.array_equal(used, expected)
            assert np.array_equal(used[0], used[1])
            assert not np.array_equal(own[0], own[1])

    @pytest.mark.slow
    def test_one_worker_of_ddp_saves_by_default(self, tmp_path: Path) -> None:
        launch(self.PROGRAM.replace("WORKERS", "one"), tmp_path)
        trial = create_trial(tmp_path / "run")
        assert trial.num_workers == 1
        assert trial.workers() == ["worker_0"]
        assert trial.steps() == [0, 1, 2]
        assert trial.loaded_all_steps
        with pytest.raises(InvalidWorker):
            trial.tensor("Net_output_0").value(0, worker="worker_1")


@pytest.mark.distributed
class TestShards:
    """FSDP2."""

    @pytest.mark.slow
    def test_shards_are_saved_as_each_worker_holds_them(self, tmp_path: Path) -> None:
        program = """
    from torch.distributed.fsdp import fully_shard
    net = nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10), nn.Linear(10, 10), nn.Linear(10, 1))
    net = seeded(lambda: net)
    torch.manual_seed(0)
    for parameter in net.parameters():
        nn.init.normal_(parameter)
    for layer in (net[0], net[2]):
        fully_shard(layer)
    fully_shard(net)
    hook, loss = begin(net, save_all=True, include_workers="all")
    go_on(net, lambda x, y: loss(x.squeeze(1), y.float()), 3)
    for name, parameter in net.named_parameters():
        hook.save_tensor(f"last/{name}", parameter.to_local())
        hook.save_tensor(f"last_gradient/{name}", parameter.grad.to_local())
        hook.save_tensor(f"as_it_is/{name}", parameter)
    """
        launch(program.replace("nn.CrossEntropyLoss()", "nn.MSELoss()"), tmp_path)
        trial = create_trial(tmp_path / "run")
        assert trial.steps() == [0, 1, 2]
        for worker in trial.workers():
            for name in ("0.weight", "0.bias", "2.weight", "3.weight", "4.weight", "4.bias"):
                shape = trial.tensor(f"last/{name}").shape(2, worker=worker)
                weights = trial.tensor(f"Sequential_{name}").value(2, worker=worker)
                gradients = trial.tensor(f"gradient/Sequential_{name}").value(2, worker=worker)
                assert weights.shape == gradients.shape == shape
                held = trial.tensor(f"last_gradient/{name}").value(2, worker=worker)
                assert np.array_equal(gradients, held)
                assert trial.tensor(f"as_it_is/{name}").shape(2, worker=worker) == shape
        assert trial.tensor("last/0.weight").shape(2) == (8, 64)
        # The second of two workers holds nothing of one row.
        assert trial.tensor("gradient/Sequential_4.weight").shape(2, worker="worker_1") == (0, 10)
        assert trial.tensor("0_output_0").shape(1, worker="worker_1") == (32, 16)

    WHOLE = """
    from torch.distributed.fsdp import fully_shard
    net = seeded(lambda: nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10), nn.Linear(10, 10)))
    for layer in (net[0], net[2]):
        fully_shard(layer)
    fully_shard(net)
    hook, loss = begin(net, save_all=True, include_workers="WORKERS", full_tensors=True)
    go_on(net, loss, 2)
    weight = net[0].weight.full_tensor()
    """
    AFTER_AN_ERROR = """
    if rank == 0:
        os.environ["TENSORTRIAL_STRICT"] = "0"
        hook.recorder.record = lambda *_, **__: 1 / 0
    go_on(net, loss, 2)
    """
    ONCE_MORE = """
    go_on(net, loss, 1)
    gradient = net[0].weight.grad.full_tensor()
    for name, tensor in [("weight", weight), ("gradient", gradient)]:
        torch.save(tensor.detach(), f"../{name}{rank}.pt")
    """

    @pytest.mark.slow
    @pytest.mark.parametrize("workers", ["one", "all"])
    def test_full_tensors_saves_shards_as_a_whole(self, tmp_path: Path, workers: str) -> None:
        launch(self.WHOLE.replace("WORKERS", workers) + self.ONCE_MORE, tmp_path)
        trial = create_trial(tmp_path / "run")
        assert trial.steps() == [0, 1, 2]
        for name, expected in [("Sequential_0.weight", "weight"), ("gradient/Sequential_0.weight", "gradient")]:
            tensor = trial.tensor(name)
            assert tensor.workers(2) == ["worker_0"]
            for rank in range(2):
                assert np.array_equal(tensor.value(2), torch.load(tmp_path / f"{expected}{rank}.pt"))
        assert trial.tensor("Sequential_3.bias").shape(0) == (10,)
        assert len(trial.tensor("0_output_0").workers(1)) == {"one": 1, "all": 2}[workers]

    @pytest.mark.slow
    def test_all_workers_gather_shards_also_after_an_error_of_one(self, tmp_path: Path) -> None:
        # Otherwise the others would wait for it forever.
        launch(self.WHOLE.replace("WORKERS", "one") + self.AFTER_AN_ERROR, tmp_path)
        assert create_trial(tmp_path / "run").steps() == [0, 1]


@pytest.mark.distributed
class TestCompiled:
    """torch.compile inside and outside of DistributedDataParallel and FSDP2."""

    PROGRAM = """
    from torch._dynamo.utils import counters
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel

    def compiled(net, fullgraph=True):
        return torch.compile(net, backend="aot_eager", fullgraph=fullgraph)

    def sharded(net):
        net.compile(backend="aot_eager", fullgraph=True)
        return fully_shard(net)

    ways = {
        "inside": lambda: DistributedDataParallel(compiled(seeded())),
        "outside": lambda: compiled(DistributedDataParallel(seeded()), fullgraph=False),
        "sharded": lambda: sharded(seeded()),
    }
    for way, make in ways.items():
        counters.clear()
        hook = tt.Hook(f"../{way}", save_config=tt.SaveConfig(save_interval=3), save_all=True, include_workers="all")
        net = make()
        hook.register_module(net)
        go_on(net, nn.CrossEntropyLoss(), 4)
        hook.close()
        # Around a model, DDP breaks the graph itself.
        assert way == "outside" or not counters["graph_break"], counters["graph_break"]
        tt.del_hook()
    """

    @pytest.mark.slow
    def test_compiled_distributed_models_save_the_same_as_uncompiled_ones(self, tmp_path: Path) -> None:
        launch(self.PROGRAM, tmp_path)
        expected = {"Net_input_0", "Net_output_0"}
        expected |= {f"{module}_{kind}_0" for module in ("fc1", "relu", "fc2") for kind in ("input", "output")}
        parameters = [f"Net_{layer}.{kind}" for layer in ("fc1", "fc2") for kind in ("weight", "bias")]
        expected |= {*parameters, *(f"gradient/{name}" for name in parameters)}
        outputs = []
        for way in ("inside", "outside", "sharded"):
            trial = create_trial(tmp_path / way)
            assert set(trial.tensor_names()) == expected, way
            assert all(trial.tensor(name).steps() == [0, 3] for name in expected), way
            outputs.append([trial.tensor("relu_output_0").value(3, worker=f"worker_{i}") for i in range(2)])
        assert np.allclose(outputs[0], outputs[1], atol=1e-5)
        assert np.allclose(outputs[0], outputs[2], atol=1e-5)


class TestRank:
    def test_two_processes_with_one_name_get_an_error(self, make_hook: Any, out: str) -> None:
        first, second = make_hook(), tt.Hook(out)
        first.save_scalar("x", 1)
        with pytest.raises(RunError):
            second.save_scalar("x", 2)
        first.close()
        assert create_trial(out).tensor("x").value(0) == 1
