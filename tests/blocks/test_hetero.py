"""PyTorch Geometric's ``to_hetero`` and skips: transform first, then add skips; the other order is refused."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg_nn
from torch import Tensor, nn
from torch.testing import assert_close

from geoskip.blocks import AffineSkip, Skip, add_skips, make_block
from geoskip.operators import OPERATORS, make_operator

# Two edge types into "item", two into "user"; one of them within a type, the others bipartite.
NODES = ["user", "item"]
EDGE_TYPES = [("user", "buys", "item"), ("user", "rates", "item"), ("item", "of", "user"), ("user", "knows", "user")]
METADATA = (NODES, EDGE_TYPES)
WIDTHS = {"user": 4, "item": 7}
COUNTS = {"user": 6, "item": 5}
OUT = 6

CONVOLUTIONS: dict[str, Callable[[], nn.Module]] = {
    "SAGEConv": lambda: pyg_nn.SAGEConv((-1, -1), OUT),
    "GATConv": lambda: pyg_nn.GATConv((-1, -1), OUT // 2, heads=2, add_self_loops=False),
    "GraphConv": lambda: pyg_nn.GraphConv((-1, -1), OUT),
}
EVEN: dict[str, Callable[[], nn.Module]] = {
    "SAGEConv": lambda: pyg_nn.SAGEConv((OUT, OUT), OUT),
    "GATConv": lambda: pyg_nn.GATConv(OUT, OUT // 2, heads=2, add_self_loops=False),
    "GraphConv": lambda: pyg_nn.GraphConv(OUT, OUT),
}
every_convolution = pytest.mark.parametrize("name", sorted(CONVOLUTIONS))


class Net(nn.Module):
    """Two layers, the second in a list."""

    def __init__(self, make: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.first = make()
        self.others = nn.ModuleList([make()])

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.others[0](self.first(x, edge_index).relu(), edge_index)


def inputs(widths: dict[str, int]) -> tuple[dict[str, Tensor], dict[tuple[str, str, str], Tensor]]:
    random = torch.Generator().manual_seed(0)
    x = {kind: torch.randn(COUNTS[kind], widths[kind], generator=random) for kind in NODES}
    ends = {key: (COUNTS[key[0]], COUNTS[key[2]]) for key in EDGE_TYPES}
    edges = {
        key: torch.stack([torch.randint(count, (9,), generator=random) for count in counts])
        for key, counts in ends.items()
    }
    return x, edges


def literal_layer(layer: Any, x: dict[str, Tensor], edges: dict[Any, Tensor], aggr: str) -> dict[str, Tensor]:
    """The definition: the block of each edge type, conv + x A + b, then all that arrive at a type together."""
    arriving: dict[str, list[Tensor]] = {kind: [] for kind in NODES}
    for source, relation, target in EDGE_TYPES:
        block = layer[f"{source}__{relation}__{target}"]
        given = x[source] if source == target else (x[source], x[target])
        y = block.conv(given, edges[source, relation, target]) + block.shortcut(x[target])
        arriving[target].append(y + block.bias if block.adds_bias else y)
    stacked = {kind: torch.stack(parts) for kind, parts in arriving.items()}
    return {kind: getattr(y, "amax" if aggr == "max" else aggr)(dim=0) for kind, y in stacked.items()}


@every_convolution
@pytest.mark.parametrize("kind", ["affine", "residual"])
@pytest.mark.parametrize("aggr", ["sum", "mean", "max"])
@pytest.mark.parametrize("known", [True, False], ids=["channels known", "channels at the first call"])
def test_transform_first(name: str, kind: str, aggr: str, known: bool) -> None:
    x, edges = inputs(WIDTHS)
    model: Any = pyg_nn.to_hetero(Net(CONVOLUTIONS[name]), METADATA, aggr=aggr)
    if known:
        model(x, edges)
    summary = add_skips(model, kind)
    assert len(summary.wrapped) == 2 * len(EDGE_TYPES)
    y = model(x, edges)
    hidden = {key: value.relu() for key, value in literal_layer(model.first, x, edges, aggr).items()}
    assert_close(y, literal_layer(model.others[0], hidden, edges, aggr))
    assert_close(copy.deepcopy(model)(x, edges), y)
    assert_close(pickle.loads(pickle.dumps(model))(x, edges), y)


@pytest.mark.parametrize("name", ["GraphConv", "SAGEConv"])  # PyTorch Geometric's bases cannot weight GATConv's heads
@pytest.mark.parametrize("kind", ["affine", "residual", "polynomial"])
def test_bases_first(name: str, kind: str) -> None:
    """One skip for each layer, around all its bases."""
    x, edges = inputs(dict.fromkeys(NODES, OUT))
    model: Any = pyg_nn.to_hetero_with_bases(Net(EVEN[name]), METADATA, num_bases=3, in_channels={"x": OUT})
    plain = copy.deepcopy(model)
    summary = add_skips(model, kind)
    assert [(row.name, row.convolution) for row in summary.wrapped] == [
        ("first", "HeteroBasisConv"),
        ("others.0", "HeteroBasisConv"),
    ]
    assert [(row.in_channels, row.out_channels) for row in summary.wrapped] == [(OUT, OUT)] * 2
    y = model(x, edges)
    assert_close(y, literal_bases(model, x, edges))
    torch.cat([*y.values()]).sum().backward()
    assert all(p.grad is not None for block in (model.first, model.others[0]) for p in block.parameters(recurse=False))
    model.load_state_dict(plain.state_dict())


def literal_bases(model: Any, x: dict[str, Tensor], edges: dict[Any, Tensor]) -> dict[str, Tensor]:
    starts = {"user": 0, "item": COUNTS["user"]}
    joined = torch.cat([edges[key] + torch.tensor([[starts[key[0]]], [starts[key[2]]]]) for key in EDGE_TYPES], dim=1)
    types = torch.arange(len(EDGE_TYPES)).repeat_interleave(torch.tensor([edges[key].shape[1] for key in EDGE_TYPES]))
    h = torch.cat([model.align_lin__x.lins[kind](x[kind]) for kind in NODES])

    def layer(block: Skip, h: Tensor) -> Tensor:
        y = block.conv(types, h, joined) + block.shortcut(h)
        return y + block.bias if block.adds_bias else y

    out = layer(model.others[0], layer(model.first, h).relu())
    return dict(zip(NODES, out.split([COUNTS[kind] for kind in NODES]), strict=True))


def test_zeros_change_nothing_with_bases() -> None:
    x, edges = inputs(WIDTHS)
    model: Any = pyg_nn.to_hetero_with_bases(Net(EVEN["SAGEConv"]), METADATA, num_bases=2, in_channels={"x": OUT})
    plain = model(x, edges)
    add_skips(model, init="zeros")
    assert_close(model(x, edges), plain, rtol=0, atol=0)


@every_convolution
@pytest.mark.parametrize("kind", ["affine", "residual", "polynomial"])
def test_skips_first_are_refused(name: str, kind: str) -> None:
    model = Net(EVEN[name])
    add_skips(model, kind)
    block = rf"{kind.capitalize()}Skip\({name}\)"
    says = rf"model: .*to_hetero.* {block}.*Transform the model without skips, then call add_skips"
    with pytest.raises(TypeError, match=says):
        pyg_nn.to_hetero(model, METADATA)
    with pytest.raises(TypeError, match=says):
        pyg_nn.to_hetero_with_bases(model, METADATA, num_bases=2, in_channels={"x": OUT})
    x, edges = inputs(dict.fromkeys(NODES, OUT))
    assert model(x["user"], edges["user", "knows", "user"]).shape == (COUNTS["user"], OUT), "it still works on its own"


class Sequential(nn.Module):
    """Convolutions called by keyword, with a pair, in containers: however it is written, it is noticed."""

    def __init__(self, call: str) -> None:
        super().__init__()
        self.conv, self.call = AffineSkip(pyg_nn.SAGEConv(OUT, OUT)), call

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        calls: dict[str, Callable[[], Tensor]] = {
            "keywords": lambda: self.conv(x=x, edge_index=edge_index),
            "pair": lambda: self.conv((x, x), edge_index),
        }
        return calls[self.call]()


@pytest.mark.parametrize("call", ["keywords", "pair"])
def test_refused_however_it_is_called(call: str) -> None:
    with pytest.raises(TypeError, match="Transform the model without skips"):
        pyg_nn.to_hetero(Sequential(call), METADATA)


@pytest.mark.parametrize("name", OPERATORS.names())
@pytest.mark.parametrize("skip", ["none", "affine"])
def test_our_operators_are_refused(name: str, skip: str) -> None:
    """They are no MessagePassing modules either, and would lose the sum over edge types without a word."""
    size = None if name in ("gcn", "gin") else 2
    model = Net(lambda: make_block(make_operator(name, OUT, OUT, kernel_size=size), skip=skip))
    with pytest.raises(TypeError, match=r"model: .*to_hetero.* do not treat \w+"):
        pyg_nn.to_hetero(model, METADATA)


def test_fixed_size_works_in_both_orders() -> None:
    """It traces the model in the same way, but changes poolings alone."""

    class Pooled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = EVEN["SAGEConv"]()
            self.pool = pyg_nn.MeanAggregation()

        def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
            return self.pool(self.conv(x, edge_index), batch)

    x, edges = inputs(dict.fromkeys(NODES, OUT))
    given = x["user"], edges["user", "knows", "user"], torch.tensor([0, 0, 0, 1, 1, 1])
    model = Pooled()
    add_skips(model)
    expected = model(*given)
    fixed = pyg_nn.to_fixed_size(model, 3)
    assert_close(fixed(*given)[:2], expected)
    later = pyg_nn.to_fixed_size(Pooled(), 3)
    assert len(add_skips(later).wrapped) == 1
    assert later(*given).shape == (3, OUT)
