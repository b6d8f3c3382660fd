"""Many small graphs as matrices of ones and zeros, and back to edges: for 75 vertices faster than sorting edges."""

import numpy as np

from geoskip.shapes import Bool, Int, Shaped

LARGEST = 256  # vertices, so that numbers within a graph fit into 8 bits


def bitmap_edges(
    joined: Bool[np.ndarray, "graphs points points"],
) -> tuple[Shaped[np.ndarray, "2 edges"], Int[np.ndarray, " graphs"]]:
    """Senders and receivers of the ones at [graph, receiver, sender], sorted by receiver, and how many a graph has."""
    points = joined.shape[1]
    dtype = np.uint8 if points <= LARGEST else np.int32
    flat = joined.reshape(len(joined), points * points)
    counts = np.count_nonzero(flat, axis=1)
    cells = np.flatnonzero(flat)
    firsts = np.arange(len(joined)) * (points * points)
    # 32 bits do, for a graph of up to 46,340 points: half the memory to go through.
    within = (cells - np.repeat(firsts, counts)).astype(np.int32 if points * points < 2**31 else np.int64)
    receivers, senders = np.divmod(within, points)
    return np.stack([senders.astype(dtype), receivers.astype(dtype)]), counts


def contracted_edges(
    edges: Shaped[np.ndarray, "2 edges"],
    edge_counts: Int[np.ndarray, " graphs"],
    offsets: Int[np.ndarray, " graphs_plus_1"],
    clusters: Shaped[np.ndarray, " vertices"],
) -> tuple[Shaped[np.ndarray, "2 coarse"], Int[np.ndarray, " graphs"]]:
    """Edges between clusters, all numbered within their graph; none of a cluster with itself, no two alike."""
    num_graphs, points = len(edge_counts), int(clusters.max(initial=0)) + 1
    graphs = np.repeat(np.arange(num_graphs), edge_counts)
    senders, receivers = clusters[offsets[graphs] + edges]
    joined = np.zeros((num_graphs, points, points), dtype=bool)
    joined[graphs, receivers, senders] = True
    joined[:, np.arange(points), np.arange(points)] = False
    return bitmap_edges(joined)
