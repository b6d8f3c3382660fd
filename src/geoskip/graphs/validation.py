"""Checks records that come from a file, index by index: the fast kernels read memory at these indices unchecked."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from geoskip.graphs.checks import check_edge_values, check_edge_weight, check_indices, check_spirals
from geoskip.graphs.graph import Graph
from geoskip.graphs.hierarchy import Hierarchy, SparseMatrix
from geoskip.graphs.packing import PooledGraphs
from geoskip.kernels import Pattern, sort_edges


def check_record(record: Any, name: str = "") -> None:
    """ValueError or TypeError, naming the tensor, unless a Pattern, Graph, SparseMatrix, Hierarchy or PooledGraphs
    is one that the constructors of these classes could have built."""
    prefix = f"{name}." if name else ""
    if isinstance(record, Pattern):
        _check_pattern(record, prefix)
    elif isinstance(record, Graph):
        _check_graph(record, prefix)
    elif isinstance(record, SparseMatrix):
        check_record(record.pattern, f"{prefix}pattern")
        _check_values(f"{prefix}values", record.values, record.pattern)
    elif isinstance(record, Hierarchy):
        for field in fields(record):
            for k, part in enumerate(getattr(record, field.name)):
                check_record(part, f"{prefix}{field.name}[{k}]")
        Hierarchy.from_matrices(record.levels, record.down, record.up)
    elif isinstance(record, PooledGraphs):
        for k, level in enumerate(record.levels):
            check_record(level, f"{prefix}levels[{k}]")
        for k, pattern in enumerate(record.clusters):
            check_record(pattern, f"{prefix}clusters[{k}]")
        PooledGraphs.from_clusters(record.levels, [p.receivers[p.by_sender] for p in record.clusters])
    else:
        raise TypeError(f"{name or 'record'}: no record of graphs, but {type(record).__name__}")


def _check_pattern(pattern: Pattern, prefix: str) -> None:
    """A pattern is what sorting its own edges gives: true of every one that was built, and of no damaged one."""
    tensors = {field.name: getattr(pattern, field.name) for field in fields(pattern)}
    for name, tensor in tensors.items():
        if tensor is None and name == "groups_of":
            continue
        if not isinstance(tensor, Tensor) or tensor.dtype != torch.int64:
            raise TypeError(f"{prefix}{name}: expected a tensor of int64, got {getattr(tensor, 'dtype', tensor)}")
        axes = 2 if name.endswith("offsets") else 1
        if tensor.dim() != axes or (axes == 2 and not tensor.numel()):
            raise ValueError(f"{prefix}{name}: cannot have the shape {list(tensor.shape)}")
    if len({tensors[name].shape for name in ("senders", "receivers", "by_sender")}) > 1:
        raise ValueError(f"{prefix}senders: as many as there are receivers and by_sender are needed")
    groups = pattern.groups
    if groups != 1 and pattern.groups_of is None:
        raise ValueError(f"{prefix}groups_of: missing, and there are {groups} groups")
    if pattern.groups_of is not None:
        if pattern.groups_of.shape != pattern.senders.shape:
            raise ValueError(f"{prefix}groups_of: one group for each of {pattern.num_edges} edges is needed")
        check_indices(f"{prefix}groups_of", pattern.groups_of, groups)
    check_indices(f"{prefix}senders", pattern.senders, pattern.num_senders)
    check_indices(f"{prefix}receivers", pattern.receivers, pattern.num_receivers)
    edges = pattern.senders, pattern.receivers, pattern.num_senders, pattern.num_receivers
    built, _ = sort_edges(*edges, pattern.groups_of, groups)
    for name, tensor in tensors.items():
        if tensor is not None and not torch.equal(tensor, getattr(built, name)):
            raise ValueError(f"{prefix}{name}: does not belong to these edges: the file is damaged")


def _check_graph(graph: Graph, prefix: str) -> None:
    check_record(graph.pattern, f"{prefix}pattern")
    pattern = graph.pattern
    if pattern.groups != 1 or pattern.num_senders != pattern.num_receivers:
        raise ValueError(f"{prefix}pattern: a graph has one group of edges, and as many senders as receivers")
    edges = torch.arange(graph.num_edges, device=graph.device)
    if graph.order.dtype != torch.int64 or not torch.equal(graph.order.sort().values, edges):
        raise ValueError(f"{prefix}order: not an order of {graph.num_edges} edges")
    if graph.pseudo is not None:
        check_edge_values(f"{prefix}pseudo", graph.pseudo, graph.num_edges, graph.device)
    if graph.given_edge_weight is not None:
        check_edge_weight(graph.given_edge_weight, graph.num_edges, graph.device)
    if graph.spirals is not None:
        check_spirals(graph.spirals, graph.num_vertices, graph.device)
        if graph.spirals.dtype != torch.int64:
            raise TypeError(f"{prefix}spirals: expected a tensor of int64, got {graph.spirals.dtype}")
    if graph.graph_offsets is not None:
        _check_offsets(f"{prefix}graph_offsets", graph.graph_offsets, graph.num_vertices)


def _check_offsets(name: str, offsets: Tensor, end: int) -> None:
    if offsets.dtype != torch.int64 or offsets.dim() != 1 or not len(offsets):
        raise TypeError(f"{name}: expected a list of int64, got {list(offsets.shape)} of {offsets.dtype}")
    if offsets[0] != 0 or offsets[-1] != end or bool((offsets.diff() < 0).any()):
        raise ValueError(f"{name}: must ascend from 0 to {end}")


def _check_values(name: str, values: Tensor, pattern: Pattern) -> None:
    if values.shape != pattern.senders.shape or not values.is_floating_point():
        raise ValueError(f"{name}: {pattern.num_edges} floating-point numbers are needed, one for each entry")
    if not bool(values.isfinite().all()):
        raise ValueError(f"{name}: not finite")
