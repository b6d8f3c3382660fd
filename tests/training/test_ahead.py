"""Kernels that are compiled ahead: a step is taken without its kernels, whose launches are those of the step itself."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch.nn.functional import dropout

import geoskip
from geoskip import AffineSkip, FeaStConv, GCNConv, Graph
from geoskip.kernels import paths, use_path
from geoskip.kernels.triton.launch import Pointer
from geoskip.meshes import icosphere
from geoskip.pyg import accelerate
from geoskip.training.compiling import compile_step, model_launches, start_device, traced_launches
from geoskip.training.learner import Learner
from geoskip.training.session import Session
from geoskip.training.tasks import Task, make_task
from geoskip.training.tasks.correspondence import Correspondence
from tests.training import sets

CHOSEN: list[dict[str, Any]] = [
    {"task": "reconstruction", "operator": "gcn", "skip": "affine"},
    {"task": "correspondence", "operator": "monet", "skip": "affine"},
    {"task": "correspondence", "operator": "feast"},
    {"task": "correspondence", "operator": "spline"},
    {"task": "classification", "operator": "cheb"},
    {"task": "classification", "operator": "gcn", "coarsening": {"drawn": "epoch", "matchings": 1}},
]


def padded(task: Task, monkeypatch: pytest.MonkeyPatch) -> Task:
    """A task whose batches are padded, as they are on CUDA."""
    if isinstance(task, Correspondence):
        task.store = task.store.to("cpu", padded=True)
    module = importlib.import_module("geoskip.training.tasks.classification")
    store_set = module.store_set
    monkeypatch.setattr(module, "store_set", lambda *args, **given: store_set(*args, **{**given, "padded": True}))
    return task


def prepared(chosen: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Learner:
    config = sets.config(**chosen)
    task = padded(make_task(config, sets.data(config.task)), monkeypatch)
    task.begin_epoch(0)
    learner = Learner(task, task.make_model(), config)
    for group in learner.optimizer.param_groups:
        group["lr"] = torch.tensor(group["lr"])
    return learner


def version(kernel: Any, arguments: tuple[Any, ...], warps: int, registers: int | None) -> tuple[Any, ...]:
    """What a compiled kernel depends on."""

    def kind(value: Any) -> Any:
        if isinstance(value, Tensor):
            value = Pointer(value.dtype, value.data_ptr() & 15)
        return (value.dtype, value.alignment == 0) if isinstance(value, Pointer) else value

    return kernel.fn.__name__, tuple(map(kind, arguments)), warps, registers


def spied_launches(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """A list that grows with every launch from now on."""
    launched = []
    plan_class = importlib.import_module("geoskip.kernels.triton.launch").LaunchPlan
    launch = plan_class.__call__

    def spied(plan: Any, *tensors: Any) -> None:
        launched.append(version(plan._kernel, (*tensors, *plan._arguments), plan._warps, plan._registers))
        launch(plan, *tensors)

    monkeypatch.setattr(plan_class, "__call__", spied)
    return launched


class Model(nn.Module):
    """With everything that a call may change: running statistics, random numbers, an attribute, a remembered result."""

    def __init__(self) -> None:
        super().__init__()
        self.first = AffineSkip(GCNConv(3, 8))
        self.second = FeaStConv(8, 4, kernel_size=2)
        self.normalize, self.calls = nn.BatchNorm1d(8), 0

    def forward(self, x: Tensor, *, graph: Graph) -> dict[str, Tensor]:
        self.calls += 1
        hidden = self.normalize(dropout(self.first(x, graph), 0.5))
        return {"y": self.second(hidden, graph), "mean": hidden.detach().mean()}


def model_and_inputs(device: str) -> tuple[Model, Tensor, Graph]:
    mesh = icosphere(1)
    graph = Graph.from_faces(mesh.faces, mesh.num_vertices).to(device)
    return Model().to(device), torch.randn(mesh.num_vertices, 3, device=device, requires_grad=True), graph


def one_step(model: Model, x: Tensor, graph: Graph) -> Tensor:
    y = model(x, graph=graph)["y"]
    y.square().mean().backward()
    return y


@pytest.mark.compiled
def test_traced_launches_are_those_of_the_users_model(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x, graph = model_and_inputs("cpu")
    tensors = [x, *model.parameters(), *model.buffers()]
    before = [tensor.detach().clone() for tensor in tensors]
    untouched = deepcopy(model)
    with use_path("interpreter"):
        generator = torch.get_rng_state()
        traced = [version(*launch) for launch in model_launches(model, (x,), {"graph": graph}, x.device)]
        assert torch.equal(generator, torch.get_rng_state())
        assert all(torch.equal(tensor, old) for tensor, old in zip(tensors, before, strict=True))
        assert model.calls == 0
        assert all(tensor.grad is None for tensor in (x, *model.parameters()))
        launched = spied_launches(monkeypatch)
        y = one_step(model, x, graph)
        # Nothing is remembered from the trace.
        _, _, other = model_and_inputs("cpu")
        torch.set_rng_state(generator)
        assert torch.equal(y, one_step(untouched, x, other))
    assert launched == traced * 2
    assert len(traced) > 5


class OnEdges(nn.Module):
    """Two ways to reach what remembers results and is not part of the model: an edge_index, a graph outside of it."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.layers = nn.ModuleList([pyg.GCNConv(3, 4), pyg.ChebConv(4, 4, 3), pyg.SAGEConv(4, 4), pyg.GATConv(4, 4)])
        accelerate(self.layers)
        self.last = AffineSkip(GCNConv(4, 2))
        self.graph = lambda: graph

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x, edge_index)
        return self.last(x, self.graph())


@pytest.fixture
def _small_graphs_are_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the CPU, too, as on CUDA."""
    for name in ("NARROW", "SMALL"):
        monkeypatch.setattr(f"geoskip.pyg.fast_layer.{name}", 0)


@pytest.mark.compiled
@pytest.mark.usefixtures("_small_graphs_are_fast")
def test_nothing_is_remembered_from_a_trace() -> None:
    _, x, graph = model_and_inputs("cpu")
    _, _, other = model_and_inputs("cpu")
    model = OnEdges(graph)
    with use_path("interpreter"):
        edge_index = graph.edge_index.clone()
        assert len(model_launches(model, (x, edge_index), {}, x.device)) > 10
        traced = model(x, edge_index)
        model.graph = lambda: other
        assert torch.equal(traced, model(x, edge_index.clone()))


@pytest.mark.compiled
@pytest.mark.usefixtures("_small_graphs_are_fast")
def test_edges_are_checked_after_a_trace() -> None:
    """Reading their values waits for the GPU, so a trace does not."""
    _, x, graph = model_and_inputs("cpu")
    model, edge_index = pyg.GINConv(nn.Linear(3, 4)), graph.edge_index.clone()
    accelerate(model)
    edge_index[0, 0] = len(x)
    with use_path("interpreter"):
        assert model_launches(model, (x, edge_index), {}, x.device)
        with pytest.raises(ValueError, match="edge_index"):
            model(x, edge_index)


@pytest.mark.compiled
def test_kernels_of_other_threads_run_meanwhile() -> None:
    conv, graphs = GCNConv(3, 4), [model_and_inputs("cpu")[2] for _ in range(3)]
    x = torch.randn(42, 3)
    with use_path("interpreter"), ThreadPoolExecutor(1) as pool:
        expected = conv(x, graphs[0])
        with paths.recorded_launches() as launches:
            found = pool.submit(conv, x, graphs[1]).result()
            assert not launches
            conv(x, graphs[2]).sum().backward()
        assert launches
        assert torch.equal(found, expected)
        assert all(torch.equal(conv(x, graph), expected) for graph in graphs[1:])


def test_errors_of_the_users_model_are_raised() -> None:
    model, x, graph = model_and_inputs("cpu")
    with pytest.raises(TypeError, match="graph"):
        model_launches(model, (x,), {}, x.device)
    assert paths.current_recording() is None
    assert torch.isfinite(one_step(model, x, graph)).all()


def test_arguments_may_be_part_of_a_graph_of_autograd() -> None:
    """Restoring them in place would break its backward pass. What the model itself changes in place is restored."""
    model, x, graph = model_and_inputs("cpu")
    features = x.exp()
    model_launches(model, (features,), {"graph": graph}, x.device)
    features.sum().backward()
    assert x.grad is not None

    class Shift(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.add_(1.0)

    numbers = torch.zeros(3)
    model_launches(Shift(), (numbers,), {}, x.device)
    assert torch.equal(numbers, torch.zeros(3))
    with torch.inference_mode():
        model_launches(model, (torch.zeros(42, 3),), {"graph": graph}, x.device)
    assert torch.isfinite(one_step(model, x, graph)).all()


def test_tensors_that_the_model_keeps_are_restored() -> None:
    """Also those that are no buffers, and those that cannot be written to."""

    class Keeps(nn.Module):
        seen: Tensor
        ones: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.linear, self.seen = nn.Linear(3, 3), torch.zeros(3)
            self.hidden = [nn.BatchNorm1d(3)]
            self.register_buffer("ones", torch.ones(1, 1).expand(4, 3))

        def forward(self, data: SimpleNamespace) -> Tensor:
            y = self.hidden[0](self.linear(data.x.mul_(2.0))) * self.ones
            self.seen += y.detach().mean(0)
            return y

    model, data = Keeps(), SimpleNamespace(x=torch.ones(4, 3))
    model_launches(model, (data,), {}, data.x.device)
    assert torch.equal(model.seen, torch.zeros(3))
    assert torch.equal(data.x, torch.ones(4, 3))
    assert torch.equal(model.hidden[0].state_dict()["running_var"], torch.ones(3))


def test_buffers_that_do_not_change_may_be_part_of_a_graph_of_autograd() -> None:
    model, x = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)).eval(), torch.randn(4, 3)
    y = model(x)
    model_launches(model, (x,), {}, x.device)
    y.sum().backward()


def test_the_graph_of_autograd_of_an_argument_is_left_alone() -> None:
    """Here that of the model itself, which is called on its own output, and overwrites it."""
    model = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(3, 3), nn.Sigmoid())
    x = model(torch.randn(4, 3))
    function = x.grad_fn
    model_launches(model, (x,), {}, x.device)
    assert x.grad_fn is function
    x.sum().backward()


@pytest.mark.compiled
def test_tensors_in_objects_have_gradients() -> None:
    class OfObject(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = GCNConv(3, 4).requires_grad_(False)

        def forward(self, data: SimpleNamespace) -> Tensor:
            return self.conv(data.x, data.graph)

    _, x, graph = model_and_inputs("cpu")
    with use_path("interpreter"):
        traced = model_launches(OfObject(), (SimpleNamespace(x=x, graph=graph),), {}, x.device)
        forward = model_launches(OfObject(), (SimpleNamespace(x=x.detach(), graph=graph),), {}, x.device)
    assert len(traced) > len(forward)


def test_without_a_gpu_there_is_nothing_to_compile() -> None:
    model, x, graph = model_and_inputs("cpu")
    assert geoskip.compile_ahead(model, x, graph=graph) == 0
    assert model.calls == 0


@pytest.mark.gpu
def test_the_users_model_finds_all_its_kernels_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    import triton

    model, x, graph = model_and_inputs("cuda")
    assert geoskip.compile_ahead(model, x, graph=graph) > 5
    compiled = []
    monkeypatch.setattr(triton.knobs.runtime, "jit_post_compile_hook", lambda *args, **given: compiled.append(given))
    assert torch.isfinite(one_step(model, x, graph)).all()
    assert [one["fn"].name for one in compiled] == []


@pytest.mark.compiled
@pytest.mark.parametrize("chosen", CHOSEN, ids=lambda chosen: "-".join(map(str, chosen.values())))
def test_traced_launches_are_those_of_the_step(chosen: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    with use_path("interpreter"):
        learner = prepared(chosen, monkeypatch)
        before = {name: tensor.clone() for name, tensor in learner.tensors().items()}
        generator = torch.get_rng_state()
        traced = [version(*launch) for launch in traced_launches(learner, 2)]
        assert torch.equal(generator, torch.get_rng_state())
        for name, tensor in learner.tensors().items():
            assert torch.equal(tensor, before[name])
        launched = spied_launches(monkeypatch)
        learner.update(torch.tensor([0, 1]))
    assert traced == launched
    assert len(traced) > 10


def test_a_step_that_cannot_be_traced_is_left_alone() -> None:
    """Here the tensors are on another device than the learner says."""
    config = sets.config()
    task = make_task(config, sets.data(config.task))
    learner = Learner(task, task.make_model(), config)
    before = {name: tensor.clone() for name, tensor in learner.tensors().items()}
    learner.device = torch.device("cuda", 7)
    compile_step(learner, 2)
    starting = start_device(learner.device)
    assert starting is not None
    assert not starting.is_alive()
    learner.device = torch.device("cpu")
    learner.update(torch.tensor([0, 1]))
    assert all(torch.isfinite(tensor).all() for tensor in learner.tensors().values())
    assert int(learner.step) == int(before["step"]) + 1


def test_training_does_not_need_the_compiler_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """It uses parts of Triton that other versions may not have."""
    config = sets.config()
    learner = Learner(task := make_task(config, sets.data(config.task)), task.make_model(), config)
    learner.device = torch.device("cuda", 7)
    monkeypatch.setattr("geoskip.training.compiling.traced_launches", lambda learner, num_items: [("a launch",)])
    # As if one of its imports failed.
    monkeypatch.setitem(sys.modules, "geoskip.kernels.triton.ahead", None)
    assert compile_step(learner, 2) == []


def test_a_device_is_started_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The current device may be given with its number or without."""
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 6)
    assert start_device(torch.device("cuda")) is start_device(torch.device("cuda", 6))
    assert start_device(torch.device("cpu")) is None


WITHOUT_A_GPU = """
import time
import torch
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver

class Hopper:
    def get_current_target(self):
        return GPUTarget("cuda", 90, 32)
    def get_current_device(self):
        return 0
    def get_current_stream(self, device=None):
        return 0
    def launcher_cls(self, source, metadata):
        launchers.append(tuple(source.signature.values()))

launchers = []
driver.set_active(Hopper())
from geoskip.kernels import sparse_product, use_path
from geoskip.kernels.paths import recorded_launches
from geoskip.kernels.pattern import sort_edges
from geoskip.kernels.triton import ahead

ahead.start_compiler(0)
make_ir = ahead.ASTSource.make_ir
pattern = sort_edges(torch.tensor([0, 1]), torch.tensor([1, 0]), 2, 2)[0]
with use_path("interpreter"), recorded_launches() as launches:
    for channels in (3, 32, 3):
        x = torch.zeros(1, 2, channels, requires_grad=True)
        sparse_product(x, torch.zeros(2), pattern).sum().backward()
assert len(launches) == 6, launches
compiled = ahead.compile_launches(launches)
assert len(compiled) == 4, compiled
assert all(kernel.asm["cubin"] for kernel in compiled)
# One for each signature, before the kernels are compiled.
assert sorted(launchers) == sorted({tuple(kernel.src.signature.values()) for kernel in compiled}), launchers
assert ahead.ASTSource.make_ir is make_ir
again = ahead.compile_launches(launches)
assert {id(kernel) for kernel in again} == {id(kernel) for kernel in compiled}
"""


@pytest.mark.compiled
def test_kernels_compile_for_a_gpu_that_is_not_there(tmp_path: Any) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment |= {"TRITON_CACHE_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-W", "ignore", "-c", WITHOUT_A_GPU], env=environment, check=True, timeout=300)


@pytest.mark.gpu
@pytest.mark.parametrize("chosen", CHOSEN, ids=lambda chosen: "-".join(map(str, chosen.values())))
def test_a_step_finds_all_its_kernels_compiled(chosen: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    import triton

    config = sets.config(**chosen)
    session = Session(config, make_task(config, sets.data(config.task)).to("cuda"), capture=False)
    learner, items = session.learner, session.sampler.batch(0)
    session.task.begin_epoch(0)
    compile_step(learner, len(items))
    compiled = []
    monkeypatch.setattr(triton.knobs.runtime, "jit_post_compile_hook", lambda *args, **given: compiled.append(given))
    learner.update(items)
    assert [one["fn"].name for one in compiled] == []
    assert len(traced_launches(learner, len(items))) > 10
