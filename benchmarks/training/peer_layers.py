"""A layer of PyTorch Geometric with our parameters, and the edges as its fastest documented call takes them.

What depends on the graph alone is prepared before training, as its users can: FeaStNet's self-loops, and GCN's
weights (``normalize=False``). ``GMMConv(root_weight=False)`` raises in 2.8, because the attribute ``root`` that its
forward pass asks for was never set; set to None it computes MoNet without a centre term.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.peers import HAS_PEER
from benchmarks.translation import translated
from geoskip.blocks import AffineSkip
from geoskip.operators import Operator
from geoskip.shapes import Float

# As a user may write the edges: a tensor, or the sorted EdgeIndex that remembers its other orders.
EDGES = ("edge_index", "EdgeIndex")


@dataclass(frozen=True)
class Edges:
    """What a convolution takes after x: edges in receiver order, and pseudo-coordinates or weights, if any."""

    index: Tensor
    values: Tensor | None


def prepare(operator: str, index: Tensor, pseudo: Tensor | None, num_vertices: int) -> Edges:
    """Edges as the peer of an operator takes them."""
    if operator == "monet":
        return Edges(index, pseudo)
    if operator not in ("feast", "gcn"):
        return Edges(index, None)
    loops = torch.arange(num_vertices, device=index.device).repeat(2, 1)
    looped = torch.cat([index, loops], dim=1)
    looped = looped[:, torch.argsort(looped[1], stable=True)]
    return Edges(looped, None if operator == "feast" else _gcn_weights(looped, num_vertices))


def sorted_edges(index: Tensor, num_vertices: int) -> Any:
    """As PyTorch Geometric's EdgeIndex; edges stand in receiver order already."""
    from torch_geometric import EdgeIndex

    return EdgeIndex(index, sparse_size=(num_vertices, num_vertices), sort_order="col", is_undirected=True)


class PeerLayer(nn.Module):
    """The peer of a block of ours, with the block's parameters; an affine skip is a linear layer beside it."""

    largest: Tensor

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        conv = block.conv if isinstance(block, AffineSkip) else block
        if not isinstance(conv, Operator):
            raise ValueError(f"skip: the peer has none or the affine one, got a {type(block).__name__}")
        self.operator = operator_of(conv)
        skip = isinstance(block, AffineSkip)
        self.conv = _CONVS[self.operator](conv, skip)
        self.linear: nn.Linear | None = None
        if skip and self.operator != "monet":
            self.linear = nn.Linear(conv.in_channels, conv.out_channels, bias=False)
        # The largest eigenvalue as ChebNet takes it; PyTorch Geometric wants it on the device.
        self.register_buffer("largest", torch.tensor(2.0), persistent=False)
        # What is no parameter of ours, GIN's fixed ε, stays as it is.
        self.load_state_dict(self.state_dict() | _state(self.operator, block))

    def forward(self, x: Float[Tensor, "vertices channels"], edges: Edges) -> Float[Tensor, "vertices out"]:
        y = self.conv(x, edges.index, *self._rest(edges))
        return y if self.linear is None else y + self.linear(x)

    def _rest(self, edges: Edges) -> tuple[Any, ...]:
        if self.operator == "cheb":
            return None, None, self.largest
        return () if edges.values is None else (edges.values,)


def operator_of(conv: Operator) -> str:
    """The name of an operator that has a peer."""
    name = type(conv).__name__.removesuffix("Conv").lower()
    if name not in HAS_PEER:
        raise ValueError(f"operator: PyTorch Geometric alone has no {name}; choose from {', '.join(HAS_PEER)}")
    return name


def _state(operator: str, block: nn.Module) -> dict[str, Tensor]:
    theirs = translated(operator, {name: value.detach().clone() for name, value in block.named_parameters()})
    own = any(name.startswith("conv.") for name in theirs)
    return theirs if own else {f"conv.{name}": value for name, value in theirs.items()}


def _gcn_weights(looped: Tensor, num_vertices: int) -> Tensor:
    from torch_geometric.nn.conv.gcn_conv import gcn_norm

    _, weights = gcn_norm(looped, None, num_vertices, add_self_loops=False)
    return weights


def _monet(conv: Any, skip: bool) -> nn.Module:
    from torch_geometric.nn import GMMConv

    peer = GMMConv(conv.in_channels, conv.out_channels, conv.dim, conv.kernel_size, aggr="add", root_weight=skip)
    if not skip:
        peer.root = None
    return peer


def _feast(conv: Any, skip: bool) -> nn.Module:
    from torch_geometric.nn import FeaStConv

    return FeaStConv(conv.in_channels, conv.out_channels, conv.kernel_size, add_self_loops=False)


def _cheb(conv: Any, skip: bool) -> nn.Module:
    from torch_geometric.nn import ChebConv

    return ChebConv(conv.in_channels, conv.out_channels, conv.kernel_size)


def _gcn(conv: Any, skip: bool) -> nn.Module:
    from torch_geometric.nn import GCNConv

    return GCNConv(conv.in_channels, conv.out_channels, normalize=False)


def _gin(conv: Any, skip: bool) -> nn.Module:
    from torch_geometric.nn import GINConv

    i, o = conv.in_channels, conv.out_channels
    return GINConv(nn.Sequential(nn.Linear(i, o), nn.ReLU(), nn.Linear(o, o)))


_CONVS = {"monet": _monet, "feast": _feast, "cheb": _cheb, "gcn": _gcn, "gin": _gin}
