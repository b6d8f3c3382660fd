"""Graphs given one by one, as a PyTorch Geometric dataset gives them, packed into a classification set."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geoskip.data.cache import cached, fingerprint
from geoskip.data.entries import Stored
from geoskip.data.graph_set import GraphLevel, GraphSet, local_dtype
from geoskip.data.levels import find_clusters, gaussian_weights, with_levels
from geoskip.data.split import Split

VERSION = 1
SAMPLE = 1000
MAX_CLASSES = 1 << 20


def graph_list(
    train: Iterable[Any],
    test: Iterable[Any],
    *,
    class_names: tuple[str, ...] | None = None,
    num_coarsenings: int = 2,
    seed: int = 0,
    cache: Path | None = None,
) -> GraphSet:
    """A classification set of graphs for training and for the test, each a ``Data`` or a mapping of its fields.

    A graph has edge_index (an undirected edge in both directions) and y, its class; x, its features, are all 1 if it
    has none; pos, its positions, may be absent too; edge_weight is refused. Coarser levels weigh edges by
    exp(-d² / 2σ²), σ half the longest edge, and all alike without positions; their clusters are found once and kept in
    the cache.
    """
    training = [_fields(graph, f"training graph {number}") for number, graph in enumerate(train)]
    graphs = training + [_fields(graph, f"test graph {number}") for number, graph in enumerate(test)]
    if not graphs:
        raise ValueError("a classification set needs at least one graph")
    for name in ("x", "pos"):
        if len({graph[name].shape[1] for graph in graphs}) != 1:
            raise ValueError(f"all graphs of a set have {name} of the same width")
    finest = _packed(graphs)
    levels = with_levels(finest, _clusters(finest, num_coarsenings, seed, cache))
    labels = torch.cat([graph["y"] for graph in graphs])
    names = class_names or tuple(str(label) for label in range(int(labels.max()) + 1))
    x = torch.cat([graph["x"] for graph in graphs])
    arrays = (x, labels, finest.pos, finest.offsets, finest.edges, finest.edge_offsets)
    content = fingerprint(*(array.numpy() for array in arrays), np.array([num_coarsenings, seed, len(training)]))
    return GraphSet(x, levels, labels, names, Split.leading(len(graphs), len(training)), content)


def _fields(graph: Any, name: str) -> dict[str, Tensor]:
    """The four fields of one graph, checked: everything later relies on it."""
    given = graph if isinstance(graph, Mapping) else graph.to_dict()
    edge_index, y, x, pos = (given.get(field) for field in ("edge_index", "y", "x", "pos"))
    if given.get("edge_weight") is not None:
        raise ValueError(f"{name}: has edge_weight, which a classification set does not keep; remove it from the graph")
    if not (isinstance(edge_index, Tensor) and isinstance(y, Tensor)):
        raise ValueError(f"{name}: edge_index and y must be tensors")
    size = next((len(rows) for rows in (x, pos) if isinstance(rows, Tensor)), given.get("num_nodes"))
    if not isinstance(size, int) or size < 1:
        raise ValueError(f"{name}: it has no x, pos or num_nodes to say how many vertices it has")
    x = torch.ones(size, 1) if x is None else x.reshape(size, -1).float()
    pos = torch.zeros(size, 0) if pos is None else pos.float()
    if pos.dim() != 2 or len(pos) != size or not (x.isfinite().all() and pos.isfinite().all()):
        raise ValueError(f"{name}: x and pos must be finite, with one row per vertex")
    if edge_index.dim() != 2 or len(edge_index) != 2 or edge_index.is_floating_point():
        raise ValueError(f"{name}: edge_index must be integers of shape [2, edges]")
    if edge_index.numel() and not (edge_index.min() >= 0 and edge_index.max() < size):
        raise ValueError(f"{name}: edges name vertices outside 0 to {size - 1}")
    if y.numel() != 1 or y.is_floating_point() or not 0 <= int(y) < MAX_CLASSES:
        raise ValueError(f"{name}: y must be one class, a whole number from 0 to {MAX_CLASSES - 1:,}")
    return {"edge_index": edge_index, "y": y.reshape(1).long(), "x": x, "pos": pos}


def _packed(graphs: list[dict[str, Tensor]]) -> GraphLevel:
    sizes = torch.tensor([0, *(len(graph["pos"]) for graph in graphs)])
    edge_sizes = torch.tensor([0, *(graph["edge_index"].shape[1] for graph in graphs)])
    dtype = local_dtype(int(sizes.max()))
    edges = torch.cat([graph["edge_index"].to(dtype) for graph in graphs], dim=1)
    return GraphLevel(torch.cat([graph["pos"] for graph in graphs]), sizes.cumsum(0), edges, edge_sizes.cumsum(0))


def _clusters(level: GraphLevel, num_coarsenings: int, seed: int, cache: Path | None) -> list[Tensor]:
    key = {
        "version": VERSION,
        "graphs": fingerprint(
            level.pos.numpy(), level.offsets.numpy(), level.edges.numpy(), level.edge_offsets.numpy()
        ),
        "num_coarsenings": num_coarsenings,
        "seed": seed,
    }
    stored = cached("clusters", key, lambda: _find(level, num_coarsenings, seed), root=cache)
    return [torch.from_numpy(stored.arrays[f"clusters{depth}"]) for depth in range(num_coarsenings)]


def _find(level: GraphLevel, num_coarsenings: int, seed: int) -> Stored:
    sample = level.select(torch.arange(min(len(level), SAMPLE)))
    senders, receivers = sample.pos[sample.edge_index]
    longest = float((senders - receivers).norm(dim=1).max()) if len(senders) else 0.0
    sigma = longest / 2 or 1.0
    found = find_clusters(level, lambda some: gaussian_weights(some, sigma), num_coarsenings, seed=seed)
    return Stored({f"clusters{depth}": chosen.numpy() for depth, chosen in enumerate(found)})
