"""The paper's three networks as a user of PyTorch Geometric builds them, with the parameters of ours.

The meshes of a batch that share a template become one graph of disjoint copies, and the matrices of the hierarchy
block-diagonal ones: both are made once for the batch size, since they never change. Coarsenings of superpixels come
with the data, likewise made once.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, elu, l1_loss

from benchmarks.training.peer_layers import Edges, PeerLayer, prepare, sorted_edges
from geoskip.blocks.pooling import POOLINGS
from geoskip.graphs import Graph, SparseMatrix
from geoskip.models import CorrespondenceNet, GraphClassifier, MeshAutoencoder

Pool = Callable[[Tensor], Tensor]
# How a product with a fixed sparse matrix may be written.
PRODUCTS = ("scatter", "COO matrix", "CSR matrix")


class PeerAutoencoder(nn.Module):
    """:class:`~geoskip.models.MeshAutoencoder` for batches of ``batch`` meshes, one after the other in x."""

    def __init__(self, ours: MeshAutoencoder, batch: int, product: str = "scatter", edges: str = "edge_index") -> None:
        super().__init__()
        hierarchy = ours.hierarchy()
        self.batch, self.coarsest = batch, ours.coarsest
        self.encoder, self.decoder = (_layers(blocks) for blocks in (ours.encoder, ours.decoder))
        self.output = PeerLayer(ours.output)
        self.to_code, self.from_code = deepcopy(ours.to_code), deepcopy(ours.from_code)
        self.levels = [copies_of(level, batch, self.output.operator, edges) for level in hierarchy.levels[:-1]]
        self.down = [_product(matrix, batch, product) for matrix in hierarchy.down]
        self.up = [_product(matrix, batch, product) for matrix in hierarchy.up]

    def forward(self, data: Any) -> Tensor:
        x = data.x
        for conv, level, down in zip(self.encoder, self.levels, self.down, strict=True):
            x = down(elu(conv(x, level)))
        code = self.to_code(x.view(self.batch, -1))
        x = self.from_code(code).view(-1, self.coarsest[1])
        for conv, level, up in zip(self.decoder, self.levels[::-1], self.up[::-1], strict=True):
            x = elu(conv(up(x), level))
        return self.output(x, self.levels[0])

    def loss(self, data: Any) -> Tensor:
        return l1_loss(self(data), data.x)


class PeerCorrespondence(nn.Module):
    """:class:`~geoskip.models.CorrespondenceNet`; the graph comes with the data."""

    def __init__(self, ours: CorrespondenceNet) -> None:
        super().__init__()
        self.lift, self.head, self.output = (deepcopy(part) for part in (ours.lift, ours.head, ours.output))
        self.convs, self.dropout = _layers(ours.convs), deepcopy(ours.dropout)

    def forward(self, data: Any) -> Tensor:
        edges = Edges(data.edge_index, data.edge_attr)
        x = elu(self.lift(data.x))
        for conv in self.convs:
            x = elu(conv(x, edges))
        return self.output(self.dropout(self.head(x)))

    def loss(self, data: Any) -> Tensor:
        return cross_entropy(self(data), data.y, ignore_index=-1)


class PeerClassifier(nn.Module):
    """:class:`~geoskip.models.GraphClassifier`; see :func:`~benchmarks.training.loaders.graph_data`."""

    def __init__(self, ours: GraphClassifier) -> None:
        super().__init__()
        self.head, self.output, self.dropout = (deepcopy(part) for part in (ours.head, ours.output, ours.dropout))
        self.convs = _layers(ours.convs)
        self.norms = nn.ModuleList(_plain_norm(norm) for norm in ours.norms)
        self.pooling = next(name for name, pool in POOLINGS.items() if pool is ours.pool)

    def forward(self, data: Any) -> Tensor:
        from torch_geometric.nn import global_mean_pool
        from torch_geometric.utils import scatter

        x = data.x
        for step, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            if step:
                x = scatter(x, data[f"cluster{step}"], 0, data[f"rows{step}"].size(0), reduce=self.pooling)
            edges = Edges(data[f"edge_index{step}"], getattr(data, f"values{step}", None))
            x = elu(norm(conv(x, edges)))
        x = global_mean_pool(x, data[f"rows{len(self.convs) - 1}_batch"], data.y.size(0))
        return self.output(self.dropout(elu(self.head(x))))

    def loss(self, data: Any) -> Tensor:
        return cross_entropy(self(data), data.y)


def copies_of(graph: Graph, batch: int, operator: str, edges: str) -> Edges:
    """Disjoint copies of a graph, edges in receiver order, as the peer of an operator takes them."""
    starts = torch.arange(batch, device=graph.device) * graph.num_vertices
    index = (graph.edge_index.unsqueeze(1) + starts[None, :, None]).flatten(1)
    pseudo = None if graph.pseudo is None else graph.pseudo.repeat(batch, 1)
    size = batch * graph.num_vertices
    prepared = prepare(operator, index, pseudo, size)
    return (
        prepared if edges == "edge_index" else Edges(sorted_edges(prepared.index, size).fill_cache_(), prepared.values)
    )


def _layers(blocks: Sequence[nn.Module] | nn.ModuleList) -> nn.ModuleList:
    return nn.ModuleList(PeerLayer(block) for block in blocks)


def _plain_norm(norm: nn.Module) -> nn.Module:
    """Vertices of all items already stand in one axis."""
    if isinstance(norm, nn.Identity):
        return nn.Identity()
    assert isinstance(norm, nn.BatchNorm1d)
    plain = nn.BatchNorm1d(norm.num_features)
    plain.load_state_dict(norm.state_dict())
    return plain


def _product(matrix: SparseMatrix, batch: int, product: str) -> Pool:
    """The matrix on each of ``batch`` items, by one of the ways of ``PRODUCTS``."""
    from torch_geometric.utils import scatter

    starts = torch.arange(batch, device=matrix.values.device).unsqueeze(1)
    rows = (matrix.pattern.receivers + starts * matrix.shape[0]).flatten()
    columns = (matrix.pattern.senders + starts * matrix.shape[1]).flatten()
    values, height = matrix.values.repeat(batch), batch * matrix.shape[0]
    if product == "scatter":
        return lambda x: scatter(x[columns] * values.unsqueeze(1), rows, 0, height, reduce="sum")
    entries, size = torch.stack([rows, columns]), (height, batch * matrix.shape[1])
    whole = torch.sparse_coo_tensor(entries, values, size, is_coalesced=True, check_invariants=True)
    if product == "CSR matrix":
        with warnings.catch_warnings():
            # Torch announces that its CSR matrices are in beta.
            warnings.simplefilter("ignore", UserWarning)
            whole = whole.to_sparse_csr()
    return lambda x: torch.sparse.mm(whole, x)
