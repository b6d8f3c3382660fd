"""Edge weights: as PyTorch Geometric defines them, on every path, or refused; the property suite has them, too."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.testing import assert_close
from torch_geometric.data import Data

from geoskip.blocks import AffineSkip, PolynomialSkip, ResidualSkip, add_skips
from geoskip.graphs import Graph, gcn_edges, laplacian_edges, pack
from geoskip.kernels import use_path
from geoskip.operators import ChebConv, GCNConv, GINConv, MoNetConv
from tests.compiled import MODES, assert_trains_compiled
from tests.kernels.paths import Where
from tests.operators.cases import FIRST, IN, OUT, WEIGHTED, Case
from tests.specimens import features, specimen

OTHERS = [case for case in FIRST if not case.sees_edge_weight]
EXACT: dict[str, Any] = {"rtol": 0, "atol": 1e-10}
MADE = specimen()
NUM_EDGES = MADE.edge_index.shape[1]
X = features(7, IN)
EVERYWHERE = [
    pytest.param(Where("reference"), id="reference"),
    pytest.param(Where("fast"), id="fast"),
    pytest.param(Where("interpreter"), id="interpreter", marks=pytest.mark.compiled),
    pytest.param(Where("fast", "cuda"), id="cuda", marks=pytest.mark.gpu),
]
FIRST_WEIGHTED = [case for case in FIRST if case.sees_edge_weight]

weighted = pytest.mark.parametrize("case", WEIGHTED, ids=lambda case: case.name)


def positive(size: int = NUM_EDGES, seed: int = 7, dtype: torch.dtype = torch.float64) -> Tensor:
    return (0.2 + torch.rand(size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)).to(dtype)


@st.composite
def random_graphs(draw: st.DrawFn, undirected: bool = False) -> tuple[Tensor, Tensor, int]:
    """Edges, weights, number of vertices; with duplicates, self-loops, isolated vertices and weights of 0."""
    size = draw(st.integers(1, 6))
    vertex = st.integers(0, size - 1)
    pairs = draw(st.lists(st.tuples(vertex, vertex), max_size=14))
    values = draw(st.lists(st.sampled_from([0.0, 0.25, 1.0, 1.7, 3.0]), min_size=len(pairs), max_size=len(pairs)))
    edge_index = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).t().contiguous()
    weight = torch.tensor(values, dtype=torch.float64)
    if undirected:
        other = edge_index[0] != edge_index[1]
        edge_index = torch.cat([edge_index, edge_index.flip(0)[:, other]], dim=1)
        weight = torch.cat([weight, weight[other]])
    return edge_index, weight, size + draw(st.integers(0, 1))


def drawn(module: Any) -> Any:
    torch.manual_seed(0)
    for parameter in module.double().parameters():
        nn.init.uniform_(parameter, -1, 1)
    return module


def filled(ours: nn.Module, **values: Tensor) -> nn.Module:
    ours.double().load_state_dict(values, strict=False)
    return ours


@cache
def gcn_pair() -> tuple[nn.Module, Callable[..., Tensor]]:
    theirs = drawn(pyg.GCNConv(IN, OUT))
    return filled(GCNConv(IN, OUT), theta=theirs.lin.weight.t(), bias=theirs.bias), theirs


@cache
def cheb_pair(order: int = 4) -> tuple[nn.Module, Callable[..., Tensor]]:
    theirs = drawn(pyg.ChebConv(IN, OUT, order, normalization="sym"))
    theta = torch.stack([lin.weight.t() for lin in theirs.lins])
    ours = filled(ChebConv(IN, OUT, kernel_size=order), theta=theta, bias=theirs.bias)
    return ours, lambda x, edge_index, weight: theirs(x, edge_index, weight, lambda_max=2.0)


@cache
def gin_pair() -> tuple[nn.Module, Callable[..., Tensor]]:
    """GraphConv, with the first layer for its two matrices, is what GIN feeds to its ReLU."""
    ours = drawn(GINConv(IN, OUT, hidden_channels=5, epsilon=0.25))
    theirs = pyg.GraphConv(IN, 5).double()
    with torch.no_grad():
        theirs.lin_rel.weight.copy_(ours.theta.t())
        theirs.lin_rel.bias.copy_(ours.hidden_bias)
        theirs.lin_root.weight.copy_(1.25 * ours.theta.t())
    return ours, lambda x, edge_index, weight: theirs(x, edge_index, weight).relu() @ ours.theta_out + ours.bias


PAIRS = {"gcn": gcn_pair, "cheb": cheb_pair, "gin": gin_pair}


def value_and_gradients(call: Callable[..., Tensor], *inputs: Tensor) -> list[Tensor]:
    leaves = [tensor.clone().requires_grad_() for tensor in inputs]
    y = call(*leaves)
    grads = torch.autograd.grad((y * features(*y.shape, seed=3, dtype=y.dtype)).sum(), leaves, materialize_grads=True)
    return [y.detach(), *grads]


# As PyTorch Geometric defines them


@pytest.mark.parametrize("name", PAIRS)
@settings(max_examples=150, deadline=None)
@given(graph=random_graphs())
def test_values_are_pytorch_geometrics(name: str, graph: tuple[Tensor, Tensor, int]) -> None:
    """On directed graphs too; of several self-loops at a vertex, the last one counts in both."""
    (ours, theirs), (edge_index, weight, size) = PAIRS[name](), graph
    x = features(size, IN)
    assert_close(ours(x, edge_index, weight), theirs(x, edge_index, weight), **EXACT)
    if name != "cheb":  # without weights, ChebNet's degrees in directed graphs are the paper's
        assert_close(ours(x, edge_index), theirs(x, edge_index, None), **EXACT)


@pytest.mark.parametrize("name", PAIRS)
@settings(max_examples=150, deadline=None)
@given(graph=random_graphs())
def test_gradients_are_pytorch_geometrics(name: str, graph: tuple[Tensor, Tensor, int]) -> None:
    """Of x and of the weights. Its own are no gradients at degrees of 0 (NaN), and of self-loops that do not count."""
    (ours, theirs), (edge_index, weight, size) = PAIRS[name](), graph
    first_of_pair = ~torch.triu((edge_index[:, :, None] == edge_index[:, None]).all(0), 1).any(0)
    kept = first_of_pair | (edge_index[0] != edge_index[1])
    edge_index, weight = edge_index[:, kept], weight[kept] + 0.1
    x = features(size, IN)
    found = value_and_gradients(lambda x, w: ours(x, edge_index, w), x, weight)
    wanted = value_and_gradients(lambda x, w: theirs(x, edge_index, w), x, weight)
    assert_close(found, wanted, **EXACT)


@weighted
@settings(max_examples=40, deadline=None)
@given(graph=random_graphs())
def test_gradients_are_finite_wherever_weights_are_zero(case: Case, graph: tuple[Tensor, Tensor, int]) -> None:
    conv, (edge_index, weight, size) = case.make(), graph
    found = value_and_gradients(lambda x, w: conv(x, edge_index, w), features(size, IN), weight)
    assert all(tensor.isfinite().all() for tensor in found)


@weighted
@settings(max_examples=40, deadline=None)
@given(graph=random_graphs(undirected=True))
def test_weights_of_one_change_nothing(case: Case, graph: tuple[Tensor, Tensor, int]) -> None:
    """On undirected graphs; ChebNet's degrees in directed ones are PyTorch Geometric's only with weights."""
    conv, (edge_index, weight, size) = case.make(), graph
    x = features(size, IN)
    assert_close(conv(x, edge_index, torch.ones_like(weight)), conv(x, edge_index), **EXACT)


# On every path


@weighted
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["f32", "f64"])
@pytest.mark.parametrize("where", EVERYWHERE)
def test_paths_agree(case: Case, where: Where, dtype: torch.dtype) -> None:
    """Values and gradients of x, skip, weights and parameters, with those of the reference in float64; in float32 they
    are the same bits each time."""

    def trained(where: Where, dtype: torch.dtype) -> list[Tensor]:
        conv, inputs = case.make(dtype).to(where.device), (features(2, 3, 7, IN), features(IN, OUT), positive())
        x, skip, w = (tensor.to(where.device, dtype).requires_grad_() for tensor in inputs)
        with use_path(where.path):
            y = conv(x, MADE.edge_index.to(where.device), w, skip=skip)
        weights = features(*y.shape, seed=3, dtype=dtype).to(where.device)
        grads = torch.autograd.grad((y * weights).sum(), [x, skip, w, *conv.parameters()])
        return [tensor.detach().cpu() for tensor in (y, *grads)]

    # Triton's kernels accumulate in float32.
    if where.device == "cuda" and dtype == torch.float64:
        # The kernels of CUDA accumulate in float32: there is no fast path to compare.
        where = Where("reference", "cuda")
    exact = dtype == torch.float64 and where.path != "interpreter" and where.device == "cpu"
    tolerance = 1e-10 if exact else 1e-5
    outcome, wanted = trained(where, dtype), trained(Where("reference"), torch.float64)
    for found, expected in zip(outcome, wanted, strict=True):
        assert found.dtype == dtype
        assert_close(found.double(), expected, rtol=tolerance, atol=tolerance * float(expected.abs().max()))
    if dtype == torch.float32 and where.path != "reference":
        assert all(map(torch.equal, outcome, trained(where, dtype)))


@weighted
def test_gradients_of_several_weights_at_once(case: Case) -> None:
    """By transforms of ``torch.func``."""
    conv, weights = case.make(), torch.stack([positive(seed=k) for k in range(3)])

    def loss(weight: Tensor) -> Tensor:
        return conv(X, MADE.edge_index, weight).sigmoid().sum()

    leaf = weights.clone().requires_grad_()
    (wanted,) = torch.autograd.grad(torch.stack([loss(weight) for weight in leaf]).sum(), leaf)
    assert_close(torch.vmap(torch.func.grad(loss))(weights), wanted, **EXACT)


@weighted
def test_fixed_and_trained_weights_agree(case: Case) -> None:
    """Without a gradient of its weights, ChebNet runs on another kernel."""
    conv, weight = case.make(), positive()
    assert_close(conv(X, MADE.edge_index, weight), conv(X, MADE.edge_index, weight.requires_grad_()), **EXACT)


@pytest.mark.compiled
@pytest.mark.parametrize("case", FIRST_WEIGHTED, ids=lambda case: case.name)
@pytest.mark.parametrize("trained", [False, True], ids=["fixed", "trained"])
def test_compiled_equals_eager(case: Case, trained: bool) -> None:
    torch._dynamo.reset()
    conv, weight = case.make(torch.float32), positive(dtype=torch.float32).requires_grad_(trained)
    compiled = torch.compile(conv, fullgraph=True, backend="aot_eager")

    def outcome(call: Callable[..., Tensor]) -> list[Tensor]:
        graph = Graph.from_edge_index(MADE.edge_index, 7, edge_weight=weight)
        y = call(X.float(), graph)
        leaves = [*conv.parameters(), *([weight] if trained else [])]
        return [y.detach(), *torch.autograd.grad(y.square().sum(), leaves)]

    assert_close(outcome(compiled), outcome(conv), rtol=1e-5, atol=1e-5)


@pytest.mark.compiled
@pytest.mark.parametrize("case", FIRST_WEIGHTED, ids=lambda case: case.name)
def test_exported_equals_eager(case: Case) -> None:
    """The weights are an input of the exported program."""
    conv, bare = case.make(torch.float32), Graph.from_edge_index(MADE.edge_index, 7)
    first, second = (bare.with_edge_weight(positive(seed=seed, dtype=torch.float32)) for seed in (1, 2))
    exported = torch.export.export(conv, (X.float(), first)).module()
    assert_close(exported(X.float(), second), conv(X.float(), second), rtol=1e-5, atol=1e-5)
    assert not torch.allclose(conv(X.float(), first), conv(X.float(), second))


@pytest.mark.gpu
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", FIRST_WEIGHTED, ids=lambda case: case.name)
def test_compiled_on_cuda(case: Case, mode: str) -> None:
    torch._dynamo.reset()
    conv, weight = case.make(torch.float32).cuda(), positive(dtype=torch.float32).cuda().requires_grad_()
    graph = Graph.from_edge_index(MADE.edge_index.cuda(), 7)
    inputs = [features(batch, 7, IN, dtype=torch.float32).cuda().requires_grad_() for batch in (2, 5, 3)]
    assert_trains_compiled(conv, inputs, graph, mode, edge_weight=weight)


# Both ways to call


@weighted
def test_every_way_to_pass_weights(case: Case) -> None:
    conv, weight = case.make(), positive()
    bare = Graph.from_edge_index(MADE.edge_index, 7)
    y = conv(X, MADE.edge_index, weight)
    assert not torch.allclose(y, conv(X, MADE.edge_index))
    data = Data(edge_index=MADE.edge_index, edge_weight=weight, edge_attr=MADE.pseudo, num_nodes=7)
    for again in (
        conv(X, MADE.edge_index, edge_weight=weight),
        conv(X, bare, weight),
        conv(X, bare, edge_weight=weight),
        conv(X, bare.with_edge_weight(weight)),
        conv(X, bare.with_edge_weight(positive(seed=8)), weight),
        conv(X, Graph.from_edge_index(MADE.edge_index, 7, edge_weight=weight)),
        conv(X, Graph.from_pyg(data)),
        conv(X, bare.with_edge_weight(weight).edge_index, bare.with_edge_weight(weight).edge_weight),
    ):
        assert torch.equal(again, y)


@weighted
@pytest.mark.parametrize("block", [AffineSkip, ResidualSkip, PolynomialSkip])
def test_skips_pass_weights_on(case: Case, block: Callable[..., nn.Module]) -> None:
    conv, weight = case.make(), positive().requires_grad_()
    made: Any = block(conv)
    wanted = conv(X, MADE.edge_index, weight) + made.shortcut(X)
    for y in (
        made(X, MADE.edge_index, weight),
        made(X, MADE.edge_index, edge_weight=weight),
        made(X, Graph.from_edge_index(MADE.edge_index, 7, edge_weight=weight)),
    ):
        assert_close(y, wanted, **EXACT)
        assert_close(torch.autograd.grad(y.sum(), weight), torch.autograd.grad(wanted.sum(), weight, retain_graph=True))


def test_add_skips_passes_weights_on() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = GCNConv(IN, 5).double(), ChebConv(5, OUT, kernel_size=3).double()

        def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
            hidden = self.first(x, edge_index, edge_weight).relu()
            return self.second(hidden, edge_index, edge_weight=edge_weight)

    net, weight = Net(), positive()
    before = net(X, MADE.edge_index, weight)
    add_skips(net, init="zeros")
    assert isinstance(net.first, AffineSkip)
    assert torch.equal(net(X, MADE.edge_index, weight), before)
    assert not torch.allclose(net(X, MADE.edge_index, 2 * weight), before)


# What a graph remembers


@weighted
def test_one_graph_can_be_trained_with_twice(case: Case) -> None:
    """Nothing that depends on trained weights is kept, and updates of the weights are seen."""
    conv, weight = case.make(), positive().requires_grad_()
    graph = Graph.from_edge_index(MADE.edge_index, 7, edge_weight=weight)

    def trained() -> list[Tensor]:
        y = conv(X, graph)
        return [y.detach(), *torch.autograd.grad(y.square().sum(), weight)]

    first = trained()
    assert_close(trained(), first, **EXACT)
    with torch.no_grad():
        weight += positive(seed=9)
    assert_close(trained()[0], conv(X, MADE.edge_index, weight.detach()), **EXACT)


@weighted
def test_changed_weights_are_noticed(case: Case) -> None:
    conv, weight = case.make(), positive()
    graph = Graph.from_edge_index(MADE.edge_index, 7, edge_weight=weight)
    old = conv(X, graph)
    assert torch.equal(conv(X, graph), old)
    weight[0] += 1
    assert torch.equal(conv(X, graph), conv(X, MADE.edge_index, weight))
    other = positive(seed=8)
    assert torch.equal(conv(X, graph.with_edge_weight(other)), conv(X, MADE.edge_index, other))
    assert torch.equal(conv(X, graph.without_edge_weight()), conv(X, MADE.edge_index))


@pytest.mark.parametrize("build", [gcn_edges, laplacian_edges])
def test_normalized_weights_are_remembered_while_they_are_fixed(build: Callable[..., Any]) -> None:
    weight = positive()
    graph = Graph.from_edge_index(MADE.edge_index, 7, edge_weight=weight)
    assert build(graph, torch.float64) is build(graph, torch.float64)
    weight.requires_grad_()
    assert build(graph, torch.float64) is not build(graph, torch.float64)


# Refused


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("case", OTHERS, ids=lambda case: case.name)
def test_operators_that_cannot_use_weights_refuse_them(case: Case) -> None:
    made = case.specimen()
    conv, graph, weight = case.make(), made.graph(), positive()
    with pytest.raises(ValueError, match=r"^edge_weight: \w+\(3, 2\) does not use edge weights; leave"):
        conv(X, graph, edge_weight=weight)
    loaded = graph.with_edge_weight(weight)
    with pytest.raises(ValueError, match=r"^graph: has edge weights, which .* pass graph.without_edge_weight\(\)"):
        conv(X, loaded)
    with pytest.raises(ValueError, match=r"^graph: has edge weights"):
        AffineSkip(conv)(X, loaded)
    assert torch.equal(conv(X, loaded.without_edge_weight()), conv(X, graph))
    with pytest.raises(ValueError, match=r"^pseudo: .* got \[\d+\]; .*\[edges, 1\]" if case.sees_pseudo else "neither"):
        conv(X, made.edge_index, weight)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("case", [case for case in FIRST if not case.sees_pseudo], ids=lambda case: case.name)
def test_operators_that_cannot_use_pseudo_coordinates_refuse_them(case: Case) -> None:
    """Those that a graph carries are no mistake: a mesh has them for whichever operator needs them."""
    conv, graph = case.make(), MADE.graph()
    with pytest.raises(ValueError, match=r"^pseudo: \w+\(3, 2\) does not use pseudo-coordinates; leave pseudo out"):
        conv(X, graph, pseudo=MADE.pseudo)
    with pytest.raises(ValueError, match=r"^edge_values: "):
        conv(X, graph, MADE.pseudo)
    conv(X, graph)


WEIGHT = positive()
BARE = Graph.from_edge_index(MADE.edge_index, 7)
GCN, MONET = GCNConv(IN, OUT).double(), MoNetConv(IN, OUT, kernel_size=2, dim=2).double()
NEGATIVE = Graph.from_edge_index(torch.tensor([[0, 1], [1, 0]]), 7, edge_weight=torch.tensor([1.0, -2.5]))
MISTAKES: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: GCN(X, BARE, WEIGHT[:, None]), ValueError, r"^edge_weight: .* got \[\d+, 1\]; pass edge_weight.squeeze"),
    (lambda: GCN(X, BARE, edge_weight=WEIGHT[:3]), ValueError, r"^edge_weight: .* edges, got \[3\]; give one number"),
    (lambda: GCN(X, BARE, WEIGHT.long()), TypeError, r"^edge_weight: .* got torch.int64; convert with .float"),
    (lambda: GCN(X, BARE, WEIGHT.to("meta")), ValueError, r"^edge_weight: is on meta, the graph on cpu; move"),
    (lambda: GCN(X, BARE, WEIGHT, edge_weight=WEIGHT), ValueError, r"^edge_weight: was given twice"),
    (lambda: BARE.with_edge_weight(WEIGHT / 0), ValueError, r"^edge_weight: edge 0 has inf, not finite; fix"),
    (lambda: GCN(X, NEGATIVE), ValueError, r"^edge_weight: .* into vertex 0 sum to -1.5, .* not negative"),
    (lambda: cheb_pair()[0](X, NEGATIVE), ValueError, r"^edge_weight: .* out of vertex 1 sum to -2.5, .*not negative"),
    (lambda: pack([BARE, BARE.with_edge_weight(WEIGHT)]), ValueError, r"^graphs: 1 of 2 have edge weights; give"),
    (lambda: MONET(X, BARE, MADE.pseudo, pseudo=MADE.pseudo), ValueError, r"^pseudo: was given twice"),
]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("mistake", "error", "message"), MISTAKES, ids=[message[:50] for *_, message in MISTAKES])
def test_mistakes_are_named(mistake: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        mistake()


def test_negative_weights_are_no_mistake_where_nothing_is_normalized() -> None:
    conv, theirs = gin_pair()
    assert_close(conv(X, NEGATIVE), theirs(X, *_listed(NEGATIVE)), **EXACT)


def _listed(graph: Graph) -> tuple[Tensor, Tensor]:
    assert graph.edge_weight is not None
    return graph.edge_index, graph.edge_weight.double()
