"""Batches as PyTorch Geometric's loader makes them, from the very items that ours are made of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from benchmarks.training.peer_layers import prepare, sorted_edges
from geoskip.graphs import Graph, PooledGraphs
from geoskip.kernels import Pattern
from geoskip.shapes import Float, Int


@dataclass(frozen=True)
class Loading:
    """How the loader is set up: data on the device already, or processes that fill pinned memory."""

    workers: int = 0

    @property
    def text(self) -> str:
        if self.workers:
            return f"DataLoader(num_workers={self.workers}, pin_memory=True)"
        return "DataLoader over data on the device"


ON_DEVICE = Loading()


def mesh_data(x: Float[Tensor, "vertices channels"]) -> Any:
    """A mesh of the autoencoder's template: its positions are all that there is to load."""
    from torch_geometric.data import Data

    return Data(x=x)


def correspondence_data(
    x: Float[Tensor, "vertices channels"],
    graph: Graph,
    labels: Int[Tensor, " vertices"],
    operator: str,
    edges: str = "edge_index",
) -> Any:
    """A mesh with its own graph and the class of each vertex."""
    from torch_geometric.data import Data

    prepared = prepare(operator, graph.edge_index, graph.pseudo, graph.num_vertices)
    return Data(x=x, y=labels, edge_index=_written(prepared.index, graph, edges), edge_attr=prepared.values)


def graph_data(
    x: Float[Tensor, "vertices channels"],
    graphs: PooledGraphs,
    label: Int[Tensor, " one"],
    operator: str,
    edges: str = "edge_index",
) -> Any:
    """A graph with its coarsenings: of level k the edges ``edge_index{k}`` with their ``values{k}``, and the vertex
    ``cluster{k}`` that each vertex of the level before goes into. ``rows{k}`` has a row for each vertex."""
    data = _levelled()(x=x, y=label)
    for k, graph in enumerate(graphs.levels):
        prepared = prepare(operator, graph.edge_index, graph.pseudo, graph.num_vertices)
        data[f"edge_index{k}"] = _written(prepared.index, graph, edges)
        if prepared.values is not None:
            data[f"values{k}"] = prepared.values
        if k:
            data[f"cluster{k}"] = _cluster_of_vertex(graphs.clusters[k - 1])
            data[f"rows{k}"] = x.new_zeros(graph.num_vertices, 1)
    return data


def batches(
    dataset: Sequence[Any], order: Sequence[Sequence[int]], device: torch.device, loading: Loading = ON_DEVICE
) -> Iterator[Any]:
    """Batches of the items in ``order``, again and again, on the device."""
    from torch_geometric.loader import DataLoader

    coarsest = sorted(key for key in dataset[0].to_dict() if key.startswith("rows"))[-1:]
    if not loading.workers:
        dataset = [data.to(device) for data in dataset]
    loader = DataLoader(
        dataset,
        batch_sampler=order,
        follow_batch=coarsest,
        num_workers=loading.workers,
        pin_memory=bool(loading.workers) and device.type == "cuda",
        persistent_workers=bool(loading.workers),
    )
    while True:
        for batch in loader:
            yield batch.to(device, non_blocking=True)


@cache
def _levelled() -> type:
    """Data whose coarser levels are numbered on when graphs are batched."""
    from torch_geometric.data import Data

    class LevelledData(Data):
        def __inc__(self, key: str, value: Any, *args: Any, **kwargs: Any) -> Any:
            level = key.removeprefix("edge_index").removeprefix("cluster")
            if level != key and level != "0":
                return self[f"rows{level}"].size(0)
            return super().__inc__(key, value, *args, **kwargs)

    LevelledData.__qualname__ = "LevelledData"
    return LevelledData


def __getattr__(name: str) -> Any:
    """The class by its name, as the loader's processes ask for it; it is made where PyTorch Geometric is there."""
    if name == "LevelledData":
        return _levelled()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _cluster_of_vertex(pattern: Pattern) -> Int[Tensor, " vertices"]:
    """From its segments alone: batches for training have nothing else."""
    counts = pattern.offsets[0].diff()
    clusters = torch.empty_like(pattern.senders)
    clusters[pattern.senders] = torch.arange(len(counts), device=counts.device).repeat_interleave(counts)
    return clusters


def _written(index: Tensor, graph: Graph, edges: str) -> Any:
    return index if edges == "edge_index" else sorted_edges(index, graph.num_vertices)
