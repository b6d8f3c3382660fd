"""How to make and call each convolution of PyTorch Geometric on one small graph, and which of them take no skip."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch_geometric.nn.conv as pyg
from torch import Tensor
from torch.nn import Linear, Module, ReLU, Sequential

VERTICES, IN, OUT, DIM, RELATIONS = 7, 4, 6, 2, 3

# A ring with two chords, both directions; no vertex is without neighbours.
_RING = torch.arange(VERTICES)
_ONE_WAY = torch.cat([torch.stack([_RING, _RING.roll(-1)]), torch.tensor([[0, 1], [3, 5]])], dim=1)
EDGES = torch.cat([_ONE_WAY, _ONE_WAY.flip(0)], dim=1)
NUM_EDGES = EDGES.shape[1]

# MeshCNN's vertices are edges of a mesh: each has four neighbours.
FOUR_NEIGHBOURS = torch.stack([(_RING + step) % VERTICES for step in (1, 2, 3, 4)], dim=1).flatten()
FOUR_NEIGHBOURS = torch.stack([FOUR_NEIGHBOURS, _RING.repeat_interleave(4)])


def features(channels: int = IN, *, rows: int = VERTICES) -> Tensor:
    return torch.randn(rows, channels, generator=torch.Generator().manual_seed(channels + rows))


def coordinates() -> Tensor:
    return torch.rand(NUM_EDGES, DIM, generator=torch.Generator().manual_seed(1))


POSITIONS = features(3)
NORMALS = torch.nn.functional.normalize(features(3, rows=VERTICES + 1)[1:], dim=1)
EDGE_TYPES = torch.arange(NUM_EDGES) % RELATIONS
VERTEX_TYPES = torch.arange(VERTICES) % RELATIONS


def network(inputs: int, outputs: int) -> Module:
    return Sequential(Linear(inputs, 5), ReLU(), Linear(5, outputs))


class Recipe(NamedTuple):
    """``make()`` gives the convolution, ``conv(features(channels), *args)`` calls it."""

    make: Callable[[], Module]
    args: tuple[Any, ...] = (EDGES,)
    channels: int = IN


def _simple(name: str, *extra: Any, **options: Any) -> Recipe:
    return Recipe(lambda: getattr(pyg, name)(IN, OUT, *extra, **options))


def _degree_histogram() -> Tensor:
    return torch.bincount(torch.bincount(EDGES[1], minlength=VERTICES))


WRAPPED: dict[str, Recipe] = {
    "SimpleConv": Recipe(lambda: pyg.SimpleConv()),
    "GCNConv": _simple("GCNConv"),
    "ChebConv": _simple("ChebConv", 3),
    "SAGEConv": _simple("SAGEConv"),
    "GraphConv": _simple("GraphConv"),
    "GatedGraphConv": Recipe(lambda: pyg.GatedGraphConv(OUT, 2)),
    "ResGatedGraphConv": _simple("ResGatedGraphConv"),
    "GATConv": _simple("GATConv", heads=2),
    "GATv2Conv": _simple("GATv2Conv", heads=2, concat=False),
    "TransformerConv": _simple("TransformerConv", heads=2),
    "AGNNConv": Recipe(lambda: pyg.AGNNConv()),
    "TAGConv": _simple("TAGConv"),
    "GINConv": Recipe(lambda: pyg.GINConv(network(IN, OUT))),
    "GINEConv": Recipe(lambda: pyg.GINEConv(network(IN, OUT), edge_dim=DIM), (EDGES, coordinates())),
    "ARMAConv": _simple("ARMAConv", num_stacks=2),
    "SGConv": _simple("SGConv"),
    "SSGConv": _simple("SSGConv", 0.1),
    "APPNP": Recipe(lambda: pyg.APPNP(2, 0.1)),
    "MFConv": _simple("MFConv"),
    "RGCNConv": Recipe(lambda: pyg.RGCNConv(IN, OUT, RELATIONS), (EDGES, EDGE_TYPES)),
    "FastRGCNConv": Recipe(lambda: pyg.FastRGCNConv(IN, OUT, RELATIONS), (EDGES, EDGE_TYPES)),
    "RGATConv": Recipe(
        lambda: pyg.RGATConv(IN, OUT, RELATIONS, heads=2, dim=2, attention_mode="multiplicative-self-attention"),
        (EDGES, EDGE_TYPES),
    ),
    "SignedConv": Recipe(lambda: pyg.SignedConv(IN, OUT, first_aggr=False), (EDGES, EDGES.flip(1)), 2 * IN),
    "PointNetConv": Recipe(lambda: pyg.PointNetConv(network(IN + 3, OUT)), (POSITIONS, EDGES)),
    "GMMConv": Recipe(lambda: pyg.GMMConv(IN, OUT, DIM, 3), (EDGES, coordinates())),
    "NNConv": Recipe(lambda: pyg.NNConv(IN, OUT, network(DIM, IN * OUT)), (EDGES, coordinates())),
    "CGConv": Recipe(lambda: pyg.CGConv(IN, DIM), (EDGES, coordinates())),
    "EdgeConv": Recipe(lambda: pyg.EdgeConv(network(2 * IN, OUT))),
    "PPFConv": Recipe(lambda: pyg.PPFConv(network(IN + 4, OUT)), (POSITIONS, NORMALS, EDGES)),
    "FeaStConv": _simple("FeaStConv", heads=3),
    "PointTransformerConv": Recipe(lambda: pyg.PointTransformerConv(IN, OUT), (POSITIONS, EDGES)),
    "HypergraphConv": _simple("HypergraphConv"),
    "LEConv": _simple("LEConv"),
    "PNAConv": _simple("PNAConv", ["mean", "max"], ["identity", "linear"], _degree_histogram()),
    "ClusterGCNConv": _simple("ClusterGCNConv"),
    "GENConv": _simple("GENConv"),
    "GCN2Conv": Recipe(lambda: pyg.GCN2Conv(IN, 0.5), (features(), EDGES)),
    "WLConvContinuous": Recipe(lambda: pyg.WLConvContinuous()),
    "FiLMConv": _simple("FiLMConv"),
    "SuperGATConv": _simple("SuperGATConv", heads=2),
    "FAConv": Recipe(lambda: pyg.FAConv(IN), (features(), EDGES)),
    "EGConv": _simple("EGConv", num_heads=2),
    "PDNConv": Recipe(lambda: pyg.PDNConv(IN, OUT, DIM, 5), (EDGES, coordinates())),
    "GeneralConv": _simple("GeneralConv", heads=2, attention=True),
    "HEATConv": Recipe(
        lambda: pyg.HEATConv(IN, OUT, RELATIONS, RELATIONS, 3, DIM, 3, heads=2),
        (EDGES, VERTEX_TYPES, EDGE_TYPES, coordinates()),
    ),
    "LGConv": Recipe(lambda: pyg.LGConv()),
    "PointGNNConv": Recipe(
        lambda: pyg.PointGNNConv(network(IN, 3), network(IN + 3, 5), network(5, IN)), (POSITIONS, EDGES)
    ),
    "GPSConv": Recipe(lambda: pyg.GPSConv(IN, pyg.GCNConv(IN, IN), heads=2)),
    "AntiSymmetricConv": Recipe(lambda: pyg.AntiSymmetricConv(IN)),
    "DirGNNConv": Recipe(lambda: pyg.DirGNNConv(pyg.GCNConv(IN, OUT))),
    "MixHopConv": _simple("MixHopConv"),
    "MeshCNNConv": Recipe(lambda: pyg.MeshCNNConv(IN, OUT), (FOUR_NEIGHBOURS,)),
}


class Refusal(NamedTuple):
    """Making the convolution, wrapping it or calling the block ends in ``error``, whose message has ``says``."""

    make: Callable[[], Module]
    error: type[Exception]
    says: str
    args: tuple[Any, ...] = (EDGES,)


_METADATA = (["v"], [("v", "to", "v")])
_PYG_LIB = "requires 'pyg-lib"
_CUGRAPH = "requires 'pylibcugraphops"
_DICTIONARIES = "it maps dictionaries of features"

# What this environment lacks (pyg-lib and the like are not on PyPI) fails when made or called, before any skip could
# matter; the rest maps something else than features of vertices.
REFUSED: dict[str, Refusal] = {
    "MessagePassing": Refusal(lambda: pyg.MessagePassing(), TypeError, "returned a NoneType"),
    "CuGraphSAGEConv": Refusal(lambda: pyg.CuGraphSAGEConv(IN, OUT), ImportError, _CUGRAPH),
    "CuGraphGATConv": Refusal(lambda: pyg.CuGraphGATConv(IN, OUT), ImportError, _CUGRAPH),
    "CuGraphRGCNConv": Refusal(lambda: pyg.CuGraphRGCNConv(IN, OUT, RELATIONS), ImportError, _CUGRAPH),
    "FusedGATConv": Refusal(lambda: pyg.FusedGATConv(IN, OUT, add_self_loops=False), ImportError, "dgNN"),
    "GravNetConv": Refusal(lambda: pyg.GravNetConv(IN, OUT, 2, 2, 2), ImportError, _PYG_LIB),
    "DynamicEdgeConv": Refusal(lambda: pyg.DynamicEdgeConv(network(2 * IN, OUT), 2), ImportError, _PYG_LIB),
    "XConv": Refusal(lambda: pyg.XConv(IN, OUT, 3, 2), ImportError, _PYG_LIB),
    "SplineConv": Refusal(lambda: pyg.SplineConv(IN, OUT, DIM, 3), ImportError, _PYG_LIB),
    "PANConv": Refusal(lambda: pyg.PANConv(IN, OUT, 2), ImportError, "requires 'torch-sparse'"),
    "DNAConv": Refusal(lambda: pyg.DNAConv(IN), TypeError, "features of every layer before it"),
    "WLConv": Refusal(lambda: pyg.WLConv(), TypeError, "colors"),
    "HGTConv": Refusal(lambda: pyg.HGTConv(IN, OUT, _METADATA), TypeError, _DICTIONARIES),
    "HANConv": Refusal(lambda: pyg.HANConv(IN, OUT, _METADATA), TypeError, _DICTIONARIES),
    "HeteroConv": Refusal(
        lambda: pyg.HeteroConv({("v", "to", "v"): pyg.GCNConv(IN, OUT)}), TypeError, "wrap the convolutions in it"
    ),
}
