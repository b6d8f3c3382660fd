"""Accelerated models compute what PyTorch Geometric's do: values and every gradient."""

from __future__ import annotations

import copy
import io
import itertools
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import geoskip
from geoskip.pyg import accelerate

pyg = pytest.importorskip("torch_geometric.nn")

IN, OUT, DIM = 6, 5, 2
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5}
PLACES = [
    pytest.param("cpu", torch.float64, id="cpu-f64"),
    pytest.param("cpu", torch.float32, id="cpu-f32"),
    pytest.param("cuda", torch.float32, id="cuda-f32", marks=pytest.mark.gpu),
    pytest.param("cuda", torch.float64, id="cuda-f64", marks=pytest.mark.gpu),
]
# The layer, and what a call takes after x: "w" an edge weight, "u" pseudo-coordinates.
LAYERS: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "GCNConv": (lambda: pyg.GCNConv(IN, OUT), ""),
    "GCNConv weighted": (lambda: pyg.GCNConv(IN, OUT), "w"),
    "GCNConv improved": (lambda: pyg.GCNConv(IN, OUT, improved=True, bias=False), "w"),
    "GCNConv cached": (lambda: pyg.GCNConv(IN, OUT, cached=True), ""),
    "GCNConv without loops": (lambda: pyg.GCNConv(IN, OUT, add_self_loops=False), ""),
    "GCNConv not normalized": (lambda: pyg.GCNConv(IN, OUT, normalize=False), "w"),
    "GCNConv reversed": (lambda: pyg.GCNConv(IN, OUT, flow="target_to_source"), "w"),
    "ChebConv": (lambda: pyg.ChebConv(IN, OUT, K=4), ""),
    "ChebConv weighted": (lambda: pyg.ChebConv(IN, OUT, K=3), "w"),
    "ChebConv K=1": (lambda: pyg.ChebConv(IN, OUT, K=1), ""),
    "ChebConv random walk": (lambda: pyg.ChebConv(IN, OUT, K=3, normalization="rw"), ""),
    "ChebConv unnormalized": (lambda: pyg.ChebConv(IN, OUT, K=2, normalization=None), "w"),
    "FeaStConv": (lambda: pyg.FeaStConv(IN, OUT, heads=3), ""),
    "FeaStConv without loops": (lambda: pyg.FeaStConv(IN, OUT, heads=2, add_self_loops=False), ""),
    "GINConv": (lambda: pyg.GINConv(nn.Sequential(nn.Linear(IN, 4), nn.ReLU(), nn.Linear(4, OUT))), ""),
    "GINConv trained eps": (lambda: pyg.GINConv(nn.Linear(IN, OUT), eps=0.5, train_eps=True), ""),
    "GINConv mean": (lambda: pyg.GINConv(nn.Linear(IN, OUT), aggr="mean"), ""),
    "GraphConv": (lambda: pyg.GraphConv(IN, OUT), ""),
    "GraphConv weighted": (lambda: pyg.GraphConv(IN, OUT), "w"),
    "GraphConv weighted mean": (lambda: pyg.GraphConv(IN, OUT, aggr="mean", bias=False), "w"),
    "SAGEConv": (lambda: pyg.SAGEConv(IN, OUT), ""),
    "SAGEConv projected": (lambda: pyg.SAGEConv(IN, OUT, project=True, normalize=True), ""),
    "SAGEConv sum without root": (lambda: pyg.SAGEConv(IN, OUT, root_weight=False, aggr="sum"), ""),
    "GMMConv": (lambda: pyg.GMMConv(IN, OUT, dim=DIM, kernel_size=3), "u"),
    "GMMConv sum": (lambda: pyg.GMMConv(IN, OUT, dim=DIM, kernel_size=3, aggr="add"), "u"),
    "GMMConv without bias": (lambda: pyg.GMMConv(IN, OUT, dim=DIM, kernel_size=1, bias=False), "u"),
}
# Layers whose features may come as a pair, of the senders and of the receivers.
BIPARTITE = {
    "FeaStConv": lambda: pyg.FeaStConv(IN, OUT, heads=2, add_self_loops=False),
    "GINConv": lambda: pyg.GINConv(nn.Linear(IN, OUT)),
    "GraphConv": lambda: pyg.GraphConv((IN, IN), OUT),
    "SAGEConv": lambda: pyg.SAGEConv((IN, IN), OUT),
    "GMMConv": lambda: pyg.GMMConv((IN, IN), OUT, dim=DIM, kernel_size=3),
}


def edge_index(num_vertices: int, num_edges: int, seed: int = 0) -> Tensor:
    """Random edges: duplicates and self-loops occur, and vertices without edges."""
    random = torch.Generator().manual_seed(seed)
    return torch.randint(0, max(num_vertices - 2, 1), (2, num_edges), generator=random)


def edge_values(kind: str, num_edges: int, dtype: torch.dtype, seed: int = 0) -> list[Tensor]:
    random = torch.Generator().manual_seed(seed)
    shapes: dict[str, list[tuple[int, ...]]] = {"": [], "w": [(num_edges,)], "u": [(num_edges, DIM)]}
    return [torch.rand(shape, dtype=dtype, generator=random) + 0.1 for shape in shapes[kind]]


def assert_same(plain: nn.Module, fast: nn.Module, inputs: list[Any], dtype: torch.dtype) -> None:
    """Both models give the same output and the same gradients of inputs and parameters."""
    outputs, gradients = [], []
    for model in (plain, fast):
        leaves = [t.detach().clone().requires_grad_() if _is_float(t) else t for t in inputs]
        out = model(*leaves)
        (out * torch.linspace(-1, 1, out.numel(), dtype=dtype, device=out.device).view_as(out)).sum().backward()
        wanted = [t for t in leaves if _is_float(t)] + list(model.parameters())
        outputs.append(out.detach())
        gradients.append([torch.zeros_like(t) if t.grad is None else t.grad for t in wanted])
        model.zero_grad()
    tolerance: dict[str, Any] = {
        "rtol": TOLERANCE[dtype],
        "atol": TOLERANCE[dtype] * max(1.0, float(outputs[0].abs().max())),
    }
    # PyTorch Geometric divides 0 by 0 in a graph without edges (ChebConv without a normalization).
    torch.testing.assert_close(outputs[1], outputs[0], equal_nan=True, **tolerance)
    if outputs[0].isnan().any():
        return
    for fast_gradient, gradient in zip(gradients[1], gradients[0], strict=True):
        scale = max(1.0, float(gradient.abs().max()))
        torch.testing.assert_close(fast_gradient, gradient, rtol=10 * TOLERANCE[dtype], atol=TOLERANCE[dtype] * scale)


def _is_float(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


@pytest.mark.parametrize(("device", "dtype"), PLACES)
@pytest.mark.parametrize("name", LAYERS)
def test_layers(name: str, device: str, dtype: torch.dtype) -> None:
    make, kind = LAYERS[name]
    torch.manual_seed(0)
    plain = make().to(device, dtype)
    fast = copy.deepcopy(plain)
    assert len(accelerate(fast).replaced) == 1
    for seed in (0, 1):
        edges = edge_index(20, 60, 0 if "cached" in name else seed)
        x = torch.randn(20, IN, dtype=dtype)
        inputs = [x, edges, *edge_values(kind, 60, dtype)]
        assert_same(plain, fast, [value.to(device) for value in inputs], dtype)


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_random_graphs(data: st.DataObject) -> None:
    make, kind = LAYERS[data.draw(st.sampled_from(sorted(set(LAYERS) - {"GCNConv cached"})))]
    num_vertices, num_edges = data.draw(st.integers(1, 30)), data.draw(st.integers(1, 80))
    seed = data.draw(st.integers(0, 1000))
    torch.manual_seed(seed)
    plain = make().double()
    fast = copy.deepcopy(plain)
    accelerate(fast)
    x = torch.randn(num_vertices, IN, dtype=torch.float64)
    values = edge_values(kind, num_edges, torch.float64, seed)
    assert_same(plain, fast, [x, edge_index(num_vertices, num_edges, seed), *values], torch.float64)


@pytest.mark.parametrize("name", BIPARTITE)
def test_bipartite(name: str) -> None:
    torch.manual_seed(0)
    plain = BIPARTITE[name]().double()
    fast = copy.deepcopy(plain)
    accelerate(fast)
    edges = torch.stack([torch.randint(0, 12, (40,)), torch.randint(0, 7, (40,))])
    senders, receivers = torch.randn(12, IN).double(), torch.randn(7, IN).double()
    values = edge_values("u" if name == "GMMConv" else "", 40, torch.float64)
    assert_same(_Pair(plain), _Pair(fast), [senders, receivers, edges, *values], torch.float64)
    if name in ("GraphConv", "SAGEConv"):
        out = fast((senders, None), edges, size=(12, 9))
        torch.testing.assert_close(out, plain((senders, None), edges, size=(12, 9)))


class _Pair(nn.Module):
    def __init__(self, conv: nn.Module) -> None:
        super().__init__()
        self.conv = conv

    def forward(self, senders: Tensor, receivers: Tensor, *rest: Tensor) -> Tensor:
        return self.conv((senders, receivers), *rest)


class MoNet(nn.Module):
    """A network as users of GMMConv write it."""

    def __init__(self) -> None:
        super().__init__()
        self.first = pyg.GMMConv(IN, 8, dim=DIM, kernel_size=4)
        self.second = pyg.GMMConv(8, OUT, dim=DIM, kernel_size=4)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        return self.second(self.first(x, edge_index, edge_attr).relu(), edge_index, edge_attr)


class Encoded(nn.Module):
    """A model whose output is made by ``encode``, such as an autoencoder of graphs."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.model.encode(x, edge_index)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "GCN": lambda: pyg.GCN(IN, 8, num_layers=3, out_channels=OUT, norm="layer", jk="cat"),
    "GraphSAGE": lambda: pyg.GraphSAGE(IN, 8, num_layers=3, out_channels=OUT),
    "GIN": lambda: pyg.GIN(IN, 8, num_layers=2, out_channels=OUT),
    "GraphUNet": lambda: pyg.GraphUNet(IN, 8, OUT, depth=2, pool_ratios=0.5),
    "RECT_L": lambda: pyg.RECT_L(IN, OUT, normalize=True, dropout=0.0),
    "GAE": lambda: Encoded(pyg.GAE(pyg.GCN(IN, 8, num_layers=2, out_channels=OUT))),
    "MoNet": MoNet,
}


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize(("device", "dtype"), PLACES)
@pytest.mark.parametrize("name", MODELS)
def test_models(name: str, device: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    plain = MODELS[name]().to(device, dtype)
    fast = copy.deepcopy(plain)
    summary = accelerate(fast)
    assert summary.replaced
    assert not summary.unchanged
    values = edge_values("u" if name == "MoNet" else "", 60, dtype)
    inputs = [torch.randn(20, IN, dtype=dtype), edge_index(20, 60), *values]
    assert_same(plain, fast, [value.to(device) for value in inputs], dtype)


def spline_oracle(conv: Any, x: Tensor, edge_index: Tensor, pseudo: Tensor) -> Tensor:
    """SplineConv by its formula, degree 1, with loops: the first dimension counts fastest in the weights."""
    sizes, is_open = conv.kernel_size.tolist(), conv.is_open_spline.tolist()
    rows: list[list[Tensor]] = [[] for _ in range(len(x))]
    for (j, i), u in zip(edge_index.t().tolist(), pseudo.tolist(), strict=True):
        message = torch.zeros(conv.out_channels, dtype=x.dtype)
        for corner in itertools.product((0, 1), repeat=len(sizes)):
            weight, index, stride = 1.0, 0, 1
            for d, upper in enumerate(corner):
                position = u[d] * (sizes[d] - is_open[d])
                fraction = position - int(position)
                weight *= fraction if upper else 1 - fraction
                index += (int(position) + upper) % sizes[d] * stride
                stride *= sizes[d]
            message = message + weight * (x[j] @ conv.weight[index])
        rows[i].append(message)
    zero = torch.zeros(conv.out_channels, dtype=x.dtype)
    means = torch.stack([torch.stack(row).mean(0) if row else zero for row in rows])
    return means + x @ conv.lin.weight.t() + conv.bias


def test_spline(monkeypatch: pytest.MonkeyPatch) -> None:
    """SplineConv cannot run with PyTorch Geometric from pip alone; accelerated, it can."""
    from torch_geometric.nn.conv import spline_conv

    monkeypatch.setattr(spline_conv, "spline_basis", object())  # only its presence is checked by the constructor
    torch.manual_seed(0)
    conv = pyg.SplineConv(IN, OUT, dim=2, kernel_size=[3, 4], is_open_spline=[True, False]).double()
    assert accelerate(conv).replaced
    x, edges = torch.randn(10, IN).double(), edge_index(10, 30)
    pseudo = 0.99 * torch.rand(30, 2).double()
    torch.testing.assert_close(conv(x, edges, pseudo), spline_oracle(conv, x, edges, pseudo), rtol=1e-10, atol=1e-10)


def test_splines_of_both_kinds_on_the_same_edges(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is computed from pseudo-coordinates is shared by layers, but not by an open and a closed spline."""
    from torch_geometric.nn.conv import spline_conv

    monkeypatch.setattr(spline_conv, "spline_basis", object())
    x, edges, pseudo = torch.randn(10, IN).double(), edge_index(10, 30), 0.99 * torch.rand(30, 1).double()
    for is_open in (True, False):
        conv = pyg.SplineConv(IN, OUT, dim=1, kernel_size=3, is_open_spline=is_open).double()
        accelerate(conv)
        torch.testing.assert_close(conv(x, edges, pseudo), spline_oracle(conv, x, edges, pseudo))


def test_undo_and_checkpoints() -> None:
    model = pyg.GCN(IN, 8, num_layers=2)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    parameters = list(model.parameters())
    summary = accelerate(model)
    assert [row.layer for row in summary.replaced] == ["GCNConv", "GCNConv"]
    assert list(model.state_dict()) == list(before)
    assert all(a is b for a, b in zip(model.parameters(), parameters, strict=True))
    assert str(accelerate(model)).startswith("0 of 2 convolutions moved to geoskip's kernels\n")
    assert str(accelerate(model, undo=True)).startswith("2 of 2 convolutions moved back to PyTorch Geometric's code\n")
    assert [type(conv) for conv in model.convs] == [pyg.GCNConv, pyg.GCNConv]


def test_an_existing_optimizer_keeps_training() -> None:
    torch.manual_seed(0)
    plain = pyg.GraphSAGE(IN, 8, num_layers=2, out_channels=1)
    fast = copy.deepcopy(plain)
    x, edges, results = torch.randn(20, IN), edge_index(20, 60), []
    for model in (plain, fast):
        optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
        if model is fast:
            accelerate(model)
        for _ in range(5):
            optimizer.zero_grad()
            loss = (model(x, edges) - 1).square().mean()
            loss.backward()
            optimizer.step()
        results.append(loss.detach())
    torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-5)


def test_copies_and_pickles() -> None:
    model = pyg.GCN(IN, 8, num_layers=2)
    accelerate(model)
    x, edges = torch.randn(20, IN), edge_index(20, 60)
    expected = model(x, edges)
    buffer = io.BytesIO()
    torch.save(model, buffer)
    buffer.seek(0)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), torch.load(buffer, weights_only=False)):
        torch.testing.assert_close(other(x, edges), expected, rtol=0, atol=0)


@pytest.mark.parametrize("aggr", ["add", "mean"])
def test_a_changed_epsilon_is_noticed(aggr: str) -> None:
    """The center's term of GIN is a self-loop, whose weight is cached."""
    plain = pyg.GINConv(nn.Identity(), eps=0.25, aggr=aggr)
    fast = copy.deepcopy(plain)
    accelerate(fast)
    x, edges = torch.randn(20, IN), edge_index(20, 60)
    torch.testing.assert_close(fast(x, edges), plain(x, edges))
    for epsilon in (2.0, -1.0, 0.0):
        for conv in (plain, fast):
            conv.eps.fill_(epsilon)
        torch.testing.assert_close(fast(x, edges), plain(x, edges))
    fast.load_state_dict({"eps": torch.tensor([0.5])})
    plain.eps = torch.tensor([0.5])
    torch.testing.assert_close(fast(x, edges), plain(x, edges))


@pytest.mark.filterwarnings("ignore:Sparse")
def test_other_inputs_run_the_original_code() -> None:
    conv = pyg.GraphConv(IN, OUT)
    plain = copy.deepcopy(conv)
    accelerate(conv)
    x, edges = torch.randn(20, IN), torch.unique(edge_index(20, 60), dim=1)
    adjacency = torch.sparse_coo_tensor(edges.flip(0), torch.ones(edges.shape[1]), (20, 20)).to_sparse_csr()
    torch.testing.assert_close(conv(x, adjacency), plain(x, adjacency))


class Halved(pyg.GCNConv):  # type: ignore[name-defined]
    def message(self, x_j: Tensor, edge_weight: Tensor) -> Tensor:
        return 0.5 * super().message(x_j, edge_weight)


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        (lambda: Halved(IN, OUT), "subclass of GCNConv"),
        (lambda: pyg.GATConv(IN, OUT), "no kernel"),
        (lambda: pyg.SAGEConv(IN, OUT, aggr="max"), "aggr='max'"),
        (lambda: pyg.SAGEConv(-1, OUT), "before the first call"),
        (lambda: pyg.GMMConv(IN, OUT, DIM, 2, separate_gaussians=True), "separate_gaussians"),
        (lambda: pyg.GCNConv(IN, OUT, node_dim=0), "node_dim=0"),
    ],
)
def test_what_stays_and_why(layer: Callable[[], nn.Module], reason: str) -> None:
    model = nn.ModuleList([layer(), pyg.GCNConv(IN, OUT)])
    before = type(model[0])
    summary = accelerate(model)
    assert type(model[0]) is before
    assert [row.name for row in summary.unchanged] == ["0"]
    assert reason in str(summary)
    assert [row.name for row in summary.replaced] == ["1"]


def test_message_hooks_are_respected() -> None:
    conv = pyg.GraphConv(IN, OUT)
    conv.register_message_forward_hook(lambda module, inputs, output: 2 * output)
    assert "hooks" in str(accelerate(conv).unchanged[0].reason)


def test_skips_around_accelerated_layers() -> None:
    torch.manual_seed(0)
    plain = pyg.GCN(IN, 8, num_layers=2)
    geoskip.add_skips(plain)
    fast = copy.deepcopy(plain)
    assert len(accelerate(fast).replaced) == 2
    assert_same(plain, fast, [torch.randn(20, IN), edge_index(20, 60)], torch.float32)
    other = pyg.GCN(IN, 8, num_layers=2)
    accelerate(other)
    assert len(geoskip.add_skips(other).wrapped) == 2


def test_nothing_to_accelerate() -> None:
    with pytest.raises(ValueError, match="no convolutions of PyTorch Geometric"):
        accelerate(nn.Linear(2, 2))
