"""Graphs of PyTorch Geometric as a classification set: a list of ``Data``, or the published MNIST superpixels.

The superpixels of Monti et al. (CVPR 2017) are in a file written by ``torch.save``: two lists (60,000 and 10,000
graphs) of mappings with x, edge_index, pos and y. It is opened with torch's restricted reader, which creates tensors
and plain containers only; a file that needs more is an error.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geoskip.data.archives import read_files
from geoskip.data.cache import CacheEntry, cached, fingerprint
from geoskip.data.catalog import PUBLISHED_SUPERPIXELS
from geoskip.data.graph_sets import GraphLevel, GraphSet, find_clusters, local_dtype, with_levels
from geoskip.data.mesh_sets import Split

# Part of the cache key: raise it when the same graphs give other clusters.
VERSION = 1
SAMPLE = 1000
MAX_CLASSES = 1 << 20
PUBLISHED = re.compile(r"(?:.*/)?(MNISTSuperpixels\.pt)")


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

    A graph has edge_index (undirected edges in both directions) and y, its class. Features x are all 1 if absent;
    positions pos are optional; edge_weight is an error. For coarser levels, edges are weighted by exp(-d² / 2σ²) with σ
    half the longest edge, or equally without positions. Clusters are computed once and kept in the cache.
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


def published_superpixels(
    path: str | Path | None = None, *, num_coarsenings: int = 2, seed: int = 0, cache: Path | None = None
) -> GraphSet:
    """The MNIST superpixels of Monti et al., with coarser levels as in our own superpixels.

    ``path`` is ``MNISTSuperpixels.zip`` or the ``.pt`` in it; by default it is looked for in the data folder.
    """
    path = PUBLISHED_SUPERPIXELS.find(path)
    parts = _load_tensors(path)
    if not (isinstance(parts, list | tuple) and len(parts) == 2 and all(isinstance(p, list | tuple) for p in parts)):
        raise ValueError(f"{path}: not two lists of graphs, for training and test")
    try:
        return graph_list(*parts, num_coarsenings=num_coarsenings, seed=seed, cache=cache)
    except (ValueError, TypeError, AttributeError, RuntimeError) as error:
        raise ValueError(f"{path}: not graphs that can be used: {error}") from error


def _load_tensors(path: Path) -> Any:
    source: Any = path
    if path.suffix == ".zip":
        files = list(read_files(path, PUBLISHED))
        if not files:
            raise ValueError(f"{path}: there is no MNISTSuperpixels.pt in it")
        source = io.BytesIO(files[0][1])
    try:
        with warnings.catch_warnings(action="ignore"):  # about pickle, of files that are not accepted
            return torch.load(source, map_location="cpu", weights_only=True)
    except Exception as error:  # of many types, which all mean the same
        raise ValueError(
            f"{path}: not a file of plain tensors. Only such files are read, as others can run code when they are "
            "opened: use MNISTSuperpixels.zip as published, not a processed copy of it."
        ) from error


def _fields(graph: Any, name: str) -> dict[str, Tensor]:
    """The four fields of one graph, checked."""
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
    arrays = (level.pos, level.offsets, level.edges, level.edge_offsets)
    key = {
        "version": VERSION,
        "graphs": fingerprint(*(array.numpy() for array in arrays)),
        "num_coarsenings": num_coarsenings,
        "seed": seed,
    }

    def build() -> CacheEntry:
        sigma = level.longest_edge(SAMPLE) / 2 or 1.0
        clusters = find_clusters(level, sigma, num_coarsenings, seed=seed)
        return CacheEntry({f"clusters{depth}": chosen.numpy() for depth, chosen in enumerate(clusters)})

    stored = cached("clusters", key, build, root=cache)
    return [torch.from_numpy(stored.arrays[f"clusters{depth}"]) for depth in range(num_coarsenings)]
