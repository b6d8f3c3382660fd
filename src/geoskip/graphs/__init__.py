"""Graphs as operators take them: sorted edges, pseudo-coordinates and edge weights; packed graphs; levels."""

from geoskip.graphs.edges import (
    WeightedEdges,
    attach,
    cartesian,
    gcn_edges,
    laplacian_edges,
    mean_weights,
    polar,
    target_degree,
    weighted_edges,
    with_self_loops,
)
from geoskip.graphs.graph import Graph, graph_of_vertex, pack, separate
from geoskip.graphs.graph_hierarchy import Hierarchy, PooledGraphs, SparseMatrix, pack_pooled
from geoskip.graphs.tensor_records import (
    RecordBuffers,
    map_tensors,
    move,
    record_from_buffers,
    record_keys,
    register_record,
)

__all__ = [
    "Graph",
    "Hierarchy",
    "PooledGraphs",
    "RecordBuffers",
    "SparseMatrix",
    "WeightedEdges",
    "attach",
    "cartesian",
    "gcn_edges",
    "graph_of_vertex",
    "laplacian_edges",
    "map_tensors",
    "mean_weights",
    "move",
    "pack",
    "pack_pooled",
    "polar",
    "record_from_buffers",
    "record_keys",
    "register_record",
    "separate",
    "target_degree",
    "weighted_edges",
    "with_self_loops",
]
