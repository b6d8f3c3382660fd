"""What an operator sees: the graph, its pseudo-coordinates, its Laplacians; many graphs packed as one."""

from geoskip.graphs.graph import Graph
from geoskip.graphs.hierarchy import Hierarchy, SparseMatrix
from geoskip.graphs.laplacian import (
    WeightedEdges,
    gcn_edges,
    laplacian_edges,
    mean_weights,
    weighted_edges,
    with_self_loops,
)
from geoskip.graphs.packing import PooledGraphs, graph_of_vertex, pack, pack_pooled, separate
from geoskip.graphs.pseudo import attach, cartesian, polar, target_degree
from geoskip.graphs.records import RecordBuffers, map_tensors, move, record_from_buffers, record_keys, register_record

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
