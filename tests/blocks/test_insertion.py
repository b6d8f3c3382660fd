"""Skips for finished models, in place."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg_nn
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.testing import assert_close

from geoskip.blocks import AffineSkip, PolynomialSkip, ResidualSkip, Skip, add_skips
from geoskip.operators import GCNConv, MoNetConv
from tests.blocks.pyg_recipes import EDGES, IN, OUT, features, network

HIDDEN = 8


class Nested(nn.Module):
    """Convolutions in a list, a dictionary, a model inside, twice the same, and one of ours."""

    def __init__(self) -> None:
        super().__init__()
        self.first = pyg_nn.GATConv(IN, HIDDEN // 2, heads=2)
        self.stack = nn.ModuleList([pyg_nn.GCNConv(HIDDEN, HIDDEN), nn.ReLU(), pyg_nn.SAGEConv(HIDDEN, HIDDEN)])
        self.named = nn.ModuleDict({"gin": pyg_nn.GINConv(network(HIDDEN, HIDDEN))})
        self.shared = pyg_nn.GraphConv(HIDDEN, HIDDEN)
        self.again = self.shared
        self.directed = pyg_nn.DirGNNConv(pyg_nn.GCNConv(HIDDEN, HIDDEN))
        self.inner = pyg_nn.models.GCN(HIDDEN, HIDDEN, 2, dropout=0.5)
        self.ours = GCNConv(HIDDEN, OUT)
        self.nothing = None

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.first(x, edge_index)
        for layer in self.stack:
            x = layer(x) if isinstance(layer, nn.ReLU) else layer(x, edge_index)
        x = self.named["gin"](x, edge_index)
        x = self.again(self.shared(x, edge_index), edge_index)
        return self.ours(self.inner(self.directed(x, edge_index), edge_index), edge_index)


NESTED = [
    ("first", "GATConv"),
    ("stack.0", "GCNConv"),
    ("stack.2", "SAGEConv"),
    ("named.gin", "GINConv"),
    ("shared, again", "GraphConv"),
    ("directed", "DirGNNConv"),
    ("inner.convs.0", "GCNConv"),
    ("inner.convs.1", "GCNConv"),
    ("ours", "GCNConv"),
]


def sequential() -> nn.Module:
    layers = [
        (pyg_nn.GCNConv(IN, HIDDEN), "x, edge_index -> x"),
        nn.ReLU(inplace=True),
        (pyg_nn.ChebConv(HIDDEN, HIDDEN, 2), "x, edge_index -> x"),
        nn.Linear(HIDDEN, OUT),
    ]
    return pyg_nn.Sequential("x, edge_index", layers)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "Nested": Nested,
    "Sequential": sequential,
    "GCN": lambda: pyg_nn.models.GCN(IN, HIDDEN, 3, OUT, dropout=0.5, norm="batch_norm", jk="cat"),
    "GraphSAGE": lambda: pyg_nn.models.GraphSAGE(IN, HIDDEN, 3, OUT),
    "GAT": lambda: pyg_nn.models.GAT(IN, HIDDEN, 3, OUT, heads=2, v2=True, dropout=0.3),
    "GIN": lambda: pyg_nn.models.GIN(IN, HIDDEN, 2, OUT),
    "EdgeCNN": lambda: pyg_nn.models.EdgeCNN(IN, HIDDEN, 2, OUT),
    "lazy GCN": lambda: pyg_nn.models.GCN(-1, HIDDEN, 2, OUT),
    "GAE": lambda: pyg_nn.models.GAE(pyg_nn.models.GCN(IN, HIDDEN, 2)),
    "DeepGCN": lambda: pyg_nn.Sequential(
        "x, edge_index",
        [(pyg_nn.DeepGCNLayer(pyg_nn.GENConv(IN, IN), nn.LayerNorm(IN), nn.ReLU()), "x, edge_index -> x")],
    ),
}
every_model = pytest.mark.parametrize("name", sorted(MODELS))


def run(model: nn.Module) -> Tensor:
    torch.manual_seed(0)
    return (model.encode if isinstance(model, pyg_nn.models.GAE) else model)(features(), EDGES)


@every_model
@pytest.mark.parametrize("kind", ["affine", "polynomial"])
def test_zeros_change_nothing(name: str, kind: str) -> None:
    """In training mode too: dropout draws what it drew, batch norms see what they saw."""
    plain = MODELS[name]()
    run(plain)
    model = copy.deepcopy(plain)
    summary = add_skips(model, kind, init="zeros")
    assert summary.wrapped
    first, expected = run(model), run(plain)
    # At its first call a polynomial skip that learns its channels there draws W, between the draws of dropout.
    if kind == "affine":
        assert torch.equal(first, expected)
    assert torch.equal(run(model), run(plain))
    if kind == "affine":
        assert_close([*model.buffers()], [*plain.buffers()], rtol=0, atol=0)


@every_model
@pytest.mark.parametrize("kind", ["affine", "polynomial", "residual"])
def test_skips_act_and_learn(name: str, kind: str) -> None:
    plain = MODELS[name]()
    run(plain)
    model = copy.deepcopy(plain)
    add_skips(model, kind)
    y = run(model)
    assert not torch.allclose(y, run(plain))
    y.square().sum().backward()
    for block in (module for module in model.modules() if isinstance(module, Skip)):
        assert all(parameter.grad is not None for parameter in block.parameters(recurse=False))


def test_finds_every_convolution_once() -> None:
    model = Nested()
    summary = add_skips(model)
    assert [(row.name, row.convolution) for row in summary.wrapped] == NESTED
    assert summary.left == ()
    assert model.shared is model.again
    assert isinstance(model.directed, AffineSkip)
    assert not isinstance(model.directed.conv.conv_in, Skip), "belongs to the convolution around it"
    assert not any(isinstance(block.conv, Skip) for block in model.modules() if isinstance(block, Skip))


def test_once_only() -> None:
    model = Nested()
    add_skips(model)
    blocks = [module for module in model.modules() if isinstance(module, Skip)]
    again = add_skips(model, "residual")
    assert again.wrapped == ()
    assert [(row.name, row.convolution) for row in again.left] == NESTED
    assert {row.reason for row in again.left} == {"has AffineSkip already"}
    assert [module for module in model.modules() if isinstance(module, Skip)] == blocks
    assert add_skips(AffineSkip(pyg_nn.GCNConv(2, 2))).wrapped == ()


def test_counts() -> None:
    """What the summary says is what the model has."""
    model = MODELS["GCN"]()
    before = sum(parameter.numel() for parameter in model.parameters())
    summary = add_skips(model)
    after = sum(parameter.numel() for parameter in model.parameters())
    assert summary.num_parameters == after - before == IN * HIDDEN + HIDDEN * HIDDEN + HIDDEN * HIDDEN
    sizes = [(row.in_channels, row.out_channels) for row in summary.wrapped]
    assert sizes == [(IN, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, HIDDEN)]


@pytest.mark.parametrize(
    ("where", "chosen"),
    [
        ("inner.*", ["inner.convs.0", "inner.convs.1"]),
        (["first", "stack.?"], ["first", "stack.0", "stack.2"]),
        ("again", ["shared, again"]),
        (lambda name, module: isinstance(module, pyg_nn.SAGEConv), ["stack.2"]),
        (lambda name, module: False, []),
    ],
)
def test_where(where: Any, chosen: list[str]) -> None:
    model = Nested()
    summary = add_skips(model, where=where)
    assert [row.name for row in summary.wrapped] == chosen
    assert [row.name for row in summary.left] == [name for name, _ in NESTED if name not in chosen]
    assert {row.reason for row in summary.left} == {"not chosen by where"}
    rest = add_skips(model)
    assert [row.name for row in rest.wrapped] == [name for name, _ in NESTED if name not in chosen]


def test_prints_well() -> None:
    model = nn.ModuleDict(
        {
            "encoder": MoNetConv(16, 32, kernel_size=9),
            "attention": pyg_nn.GATConv(32, 8, heads=4),
            "gin": pyg_nn.GINConv(network(32, 32)),
            "history": pyg_nn.DNAConv(32),
            "head": AffineSkip(GCNConv(32, 10)),
        }
    )
    assert str(add_skips(model)).splitlines() == [
        "3 affine skips added: 1,536 parameters, and more at the first call",
        "  encoder    MoNetConv  16 → 32, +512",
        "  attention  GATConv    32 → 32, +1,024",
        "  gin        GINConv    channels at the first call",
        "  history    DNAConv    left: its input holds the features of every layer before it, "
        "[vertices, layers, channels]",
        "  head       GCNConv    left: has AffineSkip already",
    ]
    assert (
        str(add_skips(nn.ModuleList([GCNConv(2, 3)]))) == "1 affine skip added: 6 parameters\n  0  GCNConv  2 → 3, +6"
    )


def test_what_takes_no_features_is_left() -> None:
    """LINKX's SparseLinear is a MessagePassing module that starts from the edges."""
    model = pyg_nn.models.LINKX(7, IN, HIDDEN, OUT, num_layers=1)
    summary = add_skips(model)
    assert summary.wrapped == ()
    assert [row.convolution for row in summary.left] == ["SparseLinear"]
    assert "something else than the features" in summary.left[0].reason


def test_heterogeneous_models() -> None:
    """HeteroConv is a container: each of its convolutions gets a skip, which acts on the receiving type."""
    users, items = features(3, rows=5), features(4, rows=3)
    edges = torch.stack([torch.arange(5), torch.arange(5) % 3])
    buys, bought = ("user", "buys", "item"), ("item", "bought", "user")
    layer = pyg_nn.HeteroConv(
        {buys: pyg_nn.SAGEConv((3, 4), OUT), bought: pyg_nn.GATConv((4, 3), OUT, add_self_loops=False)}
    )
    inputs = {"user": users, "item": items}, {buys: edges, bought: edges.flip(0)}
    plain = layer(*inputs)
    summary = add_skips(nn.ModuleList([layer]))
    assert [(row.in_channels, row.out_channels) for row in summary.wrapped] == [(4, OUT), (3, OUT)]
    to_items, to_users = layer.convs.values()
    y = layer(*inputs)
    assert_close(y["item"], plain["item"] + items @ to_items.weight)
    assert_close(y["user"], plain["user"] + users @ to_users.weight)


def test_users_message_passing() -> None:
    class Mean(pyg_nn.MessagePassing):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.propagate(edge_index, x=x)

    model: Any = nn.ModuleList([Mean(aggr="mean")])
    summary = add_skips(model)
    assert summary.wrapped[0].convolution == "Mean"
    y = model.double()[0](features().double(), EDGES)
    assert_close(y, model[0].conv(features().double(), EDGES) + features().double() @ model[0].weight)


def test_convolutions_without_parameters_follow_the_model() -> None:
    model = nn.ModuleList([nn.Linear(2, 2).double(), pyg_nn.APPNP(2, 0.1)]).eval()
    add_skips(model)
    model[1](features().double(), EDGES)
    assert model[1].weight.dtype == torch.float64
    assert not model[1].training


def test_frozen_models_learn_by_their_skips() -> None:
    model = MODELS["GAT"]().requires_grad_(False)
    add_skips(model, init="zeros")
    trained = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    assert trained == [f"convs.{k}.weight" for k in range(3)]


def test_reset_parameters_reaches_the_convolutions() -> None:
    model: Any = MODELS["GCN"]()
    add_skips(model, init="zeros")
    before = model.convs[0].conv.lin.weight.detach().clone()
    model.reset_parameters()
    assert not torch.equal(model.convs[0].conv.lin.weight, before)
    assert not model.convs[0].weight.any()


def test_optimiser_caveat() -> None:
    """One made before does not know the skips; add_param_group tells it."""
    model = MODELS["GCN"]()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    add_skips(model)
    known = {id(parameter) for group in optimiser.param_groups for parameter in group["params"]}
    new = [parameter for parameter in model.parameters() if id(parameter) not in known]
    assert len(new) == 3
    optimiser.add_param_group({"params": new})
    run(model).square().sum().backward()
    before = [parameter.detach().clone() for parameter in new]
    optimiser.step()
    assert not any(torch.equal(one, other) for one, other in zip(before, new, strict=True))


@pytest.mark.parametrize(
    ("kind", "made"), [("affine", AffineSkip), ("residual", ResidualSkip), ("polynomial", PolynomialSkip)]
)
def test_kinds(kind: str, made: type[Skip]) -> None:
    model = sequential()
    summary = add_skips(model, kind)
    assert summary.kind == kind
    assert {type(module) for module in model.modules() if isinstance(module, Skip)} == {made}


def test_skips_come_before_distributed_training() -> None:
    """DistributedDataParallel lists the parameters when it is made: it would leave those of the skips to each rank."""
    wrapped = DistributedDataParallel.__new__(DistributedDataParallel)  # making one needs a process group
    nn.Module.__init__(wrapped)
    wrapped.module = Nested()
    with pytest.raises(ValueError, match=r"model: DistributedDataParallel would not .* before you wrap the model"):
        add_skips(wrapped)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("model", "options", "says"),
    [
        (pyg_nn.GCNConv(2, 2), {}, ["model: GCNConv is itself a convolution", "model = AffineSkip(model)"]),
        (GCNConv(2, 2), {"kind": "residual"}, ["GCNConv is itself a convolution", "model = ResidualSkip(model)"]),
        (nn.Linear(2, 2), {}, ["model: Linear has no graph convolutions", "AffineSkip(module)"]),
        (Nested(), {"kind": AffineSkip}, ["kind: expected a name, got <class ", "choose from affine, polynomial"]),
        (Nested(), {"kind": "none"}, ["kind: unknown name 'none'; choose from affine, polynomial, residual"]),
        (Nested(), {"init": "ones"}, ["init: unknown name 'ones'; choose from glorot, zeros"]),
        (Nested(), {"kind": "residual", "init": "zeros"}, ["init: a residual skip has no parameters"]),
        (
            Nested(),
            {"where": ["first", "encoder.*"]},
            ["where: 'encoder.*' matches no convolution", "has 'first', 'stack"],
        ),
    ],
)
def test_bad_input(model: nn.Module, options: dict[str, Any], says: list[str]) -> None:
    before = [type(module) for module in model.modules()]
    with pytest.raises(ValueError, match=".*".join(map(re.escape, says))):
        add_skips(model, **options)
    assert [type(module) for module in model.modules()] == before
