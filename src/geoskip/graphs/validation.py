"""Checks of records that come from a file. The fast kernels read memory at the stored indices without checking them."""

from __future__ import annotations

from dataclasses import fields

import torch
from torch import Tensor

from geoskip.graphs.checks import check_edge_weight, check_indices, check_pseudo, check_spirals
from geoskip.graphs.graph import Graph
from geoskip.graphs.graph_hierarchy import Hierarchy, SparseMatrix
from geoskip.kernels import Pattern, sort_edges


def check_hierarchy(hierarchy: Hierarchy, name: str) -> None:
    """Check that a hierarchy is one that its constructors could have built. The ValueError or TypeError names the
    tensor that is wrong."""
    for k, level in enumerate(hierarchy.levels):
        check_graph(level, f"{name}.levels[{k}].")
    for step in ("down", "up"):
        for k, matrix in enumerate(getattr(hierarchy, step)):
            check_matrix(matrix, f"{name}.{step}[{k}].")
    Hierarchy.from_matrices(hierarchy.levels, hierarchy.down, hierarchy.up)


def check_matrix(matrix: SparseMatrix, prefix: str = "") -> None:
    check_pattern(matrix.pattern, f"{prefix}pattern.")
    if matrix.values.shape != matrix.pattern.senders.shape or not matrix.values.is_floating_point():
        raise ValueError(f"{prefix}values: expected {matrix.pattern.num_edges} floating-point numbers")
    if not bool(matrix.values.isfinite().all()):
        raise ValueError(f"{prefix}values: not finite")


def check_pattern(pattern: Pattern, prefix: str = "") -> None:
    """A pattern must be what sorting its own edges gives."""
    tensors = {field.name: getattr(pattern, field.name) for field in fields(pattern)}
    if pattern.groups_of is None:
        del tensors["groups_of"]
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor) or tensor.dtype != torch.int64:
            raise TypeError(f"{prefix}{name}: expected a tensor of int64, got {getattr(tensor, 'dtype', tensor)}")
        dim = 2 if name.endswith("offsets") else 1
        if tensor.dim() != dim or (dim == 2 and not tensor.numel()):
            raise ValueError(f"{prefix}{name}: cannot have the shape {list(tensor.shape)}")
        if dim == 1 and len(tensor) != pattern.num_edges:
            raise ValueError(f"{prefix}{name}: has {len(tensor)} entries, but there are {pattern.num_edges} senders")
    if pattern.groups != 1 and pattern.groups_of is None:
        raise ValueError(f"{prefix}groups_of: missing, and there are {pattern.groups} groups")
    if pattern.groups_of is not None:
        check_indices(f"{prefix}groups_of", pattern.groups_of, pattern.groups)
    check_indices(f"{prefix}senders", pattern.senders, pattern.num_senders)
    check_indices(f"{prefix}receivers", pattern.receivers, pattern.num_receivers)
    edges = pattern.senders, pattern.receivers, pattern.num_senders, pattern.num_receivers
    built, _ = sort_edges(*edges, pattern.groups_of, pattern.groups)
    for name, tensor in tensors.items():
        if not torch.equal(tensor, getattr(built, name)):
            raise ValueError(f"{prefix}{name}: does not belong to these edges: the file is damaged")


def check_graph(graph: Graph, prefix: str = "") -> None:
    check_pattern(graph.pattern, f"{prefix}pattern.")
    pattern, offsets = graph.pattern, graph.graph_offsets
    if pattern.groups != 1 or pattern.num_senders != pattern.num_receivers:
        raise ValueError(f"{prefix}pattern: a graph has one group of edges, and as many senders as receivers")
    edges = torch.arange(graph.num_edges, device=graph.device)
    if graph.order.dtype != torch.int64 or not torch.equal(graph.order.sort().values, edges):
        raise ValueError(f"{prefix}order: not an order of {graph.num_edges} edges")
    if graph.pseudo is not None:
        check_pseudo(f"{prefix}pseudo", graph.pseudo, graph.num_edges, graph.device)
    if graph.given_edge_weight is not None:
        check_edge_weight(graph.given_edge_weight, graph.num_edges, graph.device)
    if graph.spirals is not None:
        check_spirals(graph.spirals, graph.num_vertices, graph.device)
        if graph.spirals.dtype != torch.int64:
            raise TypeError(f"{prefix}spirals: expected a tensor of int64, got {graph.spirals.dtype}")
    if offsets is not None:
        if offsets.dtype != torch.int64 or offsets.dim() != 1 or not len(offsets):
            raise TypeError(
                f"{prefix}graph_offsets: expected a list of int64, got {list(offsets.shape)} of {offsets.dtype}"
            )
        if offsets[0] != 0 or offsets[-1] != graph.num_vertices or bool((offsets.diff() < 0).any()):
            raise ValueError(f"{prefix}graph_offsets: must ascend from 0 to {graph.num_vertices}")
