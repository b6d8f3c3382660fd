"""What an operator sees: the graph, its pseudo-coordinates, its Laplacians; many graphs packed as one."""

from geoskip.graphs.graph import Graph
from geoskip.graphs.hierarchy import Hierarchy
from geoskip.graphs.laplacian import (
    WeightedEdges,
    gcn_edges,
    laplacian_edges,
    mean_weights,
    weighted_edges,
    with_self_loops,
)
from geoskip.graphs.matrix import SparseMatrix
from geoskip.graphs.packing import graph_of_vertex, pack, separate
from geoskip.graphs.pooled import PooledGraphs, pack_pooled
from geoskip.graphs.pseudo import attach, cartesian, polar, target_degree
from geoskip.graphs.records import RecordBuffers, map_tensors, move, record_keys, register_record

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
    "record_keys",
    "register_record",
    "separate",
    "target_degree",
    "weighted_edges",
    "with_self_loops",
]
