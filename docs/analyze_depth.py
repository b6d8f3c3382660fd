r"""Laplacian smoothing: what many layers of GCN leave of the features, with and without skips.

The paper's section 5.2 assumes that GCN fails on meshes because it smooths (Li et al., `Deeper insights into graph
convolutional networks <https://arxiv.org/abs/1801.07606>`_, AAAI 2018), and that its block does not have to.

    python docs/analyze_depth.py [--seeds 10] [--vertices 642] [-o results/analysis/depth.json]
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from rich.box import SIMPLE_HEAD
from torch import Tensor
from torch.nn import functional as F

from geoskip.blocks import make_block, skip_prefix
from geoskip.cli.console import print_table
from geoskip.graphs import Graph, gcn_edges, with_self_loops
from geoskip.meshes import icosphere
from geoskip.operators import GCNConv
from geoskip.paper.findings import AnalysisRecord, write_analysis
from geoskip.paper.rows import SKIPS
from geoskip.shapes import Float
from geoskip.training.loop import commit

DEPTHS = (0, 2, 4, 8, 16, 32, 64)
WIDTH = 32
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"linear": lambda x: x, "elu": F.elu, "relu": F.relu}


@dataclass(frozen=True)
class DepthPoint:
    """The state of random features after ``depth`` layers.

    Attributes:
        skip: ``"none"``, ``"residual"`` or ``"affine"``.
        activation: after each layer, one of ``ACTIVATIONS``.
        seed: of features and weights.
        depth: number of layers.
        frequency: :func:`mean_frequency` of the features.
        rank: their :func:`effective_rank`.
    """

    skip: str
    activation: str
    seed: int
    depth: int
    frequency: float
    rank: float


def depth_curve(
    graph: Graph, skip: str, activation: str = "elu", seed: int = 0, depths: Sequence[int] = DEPTHS
) -> list[DepthPoint]:
    """Normal random features of 32 channels through GCN layers with initial weights, in float64, at the given depths.

    The weights are those that training begins with: Glorot, biases 0. The first layers of a deep network are a
    shallower one, so one network serves all depths.
    """
    random = torch.Generator().manual_seed(seed)
    x = torch.randn(graph.num_vertices, WIDTH, generator=random, dtype=torch.float64)
    torch.manual_seed(seed)
    points = []
    for depth in range(max(depths) + 1):
        if depth:
            layer = make_block(GCNConv(WIDTH, WIDTH), skip).double().requires_grad_(False)
            x = ACTIVATIONS[activation](layer(x, graph))
        if depth in depths:
            measured = float(mean_frequency(x, graph)), float(effective_rank(x))
            points.append(DepthPoint(skip, activation, seed, depth, *measured))
    return points


def depth_curves(
    graph: Graph, seeds: Iterable[int], activations: Sequence[str] = ("linear", "elu")
) -> list[DepthPoint]:
    """:func:`depth_curve` of GCN, Res-GCN and Aff-GCN with every activation and seed."""
    seeds = list(seeds)
    return [
        point
        for activation in activations
        for skip in SKIPS
        for seed in seeds
        for point in depth_curve(graph, skip, activation, seed)
    ]


def expected_frequency(graph: Graph, skip: str, depths: Sequence[int] = DEPTHS) -> Float[Tensor, " depths"]:
    r"""Theory for linear layers: the mean frequency that random weights give in the mean square.

    Where :math:`\tilde L` has the eigenvalue λ, a layer multiplies the feature vector by :math:`\lambda \Theta + A`.
    Glorot's square matrices have entries of variance 1/width, so that in the mean the square of the component grows
    by :math:`g(\lambda) = \lambda^2` for GCN (A = 0) and by :math:`1 + \lambda^2` with a skip, whether A is the
    identity or drawn like Θ. If all components are alike at the start, after k layers

    .. math:: \frac{\mathbb E\, E(x)}{\mathbb E\, \|x\|^2} =
        \frac{\sum_\lambda (1 - \lambda)\, g(\lambda)^k}{\sum_\lambda g(\lambda)^k}
    """
    eigenvalues = torch.linalg.eigvalsh(smoothing_matrix(graph))
    # The largest is 1, once for each component; with a rounding error, it would be all that deep networks leave.
    eigenvalues = torch.where(eigenvalues > 1 - 1e-12, 1.0, eigenvalues)
    growth = eigenvalues.square() + (0 if skip == "none" else 1)
    # Relative to the largest, which keeps powers of 64 within range.
    weights = (growth / growth.max()) ** torch.tensor(depths, dtype=torch.float64).unsqueeze(1)
    return (weights * (1 - eigenvalues)).sum(1) / weights.sum(1)


def smoothing_matrix(graph: Graph) -> Float[Tensor, "vertices vertices"]:
    r"""GCN's :math:`\tilde L`, dense, in float64."""
    edges = gcn_edges(graph, torch.float64)
    dense = torch.zeros(graph.num_vertices, graph.num_vertices, dtype=torch.float64, device=graph.device)
    return dense.index_put((edges.pattern.receivers, edges.pattern.senders), edges.weights, accumulate=True)


def sphere_graph(num_vertices: int) -> Graph:
    """The mesh of a sphere with at least that many vertices: 12, 42, 162, 642, …, with five or six neighbors each."""
    # k subdivisions give 10 · 4^k + 2 vertices.
    mesh = icosphere(max(0, math.ceil(math.log((num_vertices - 2) / 10, 4))))
    return Graph.from_faces(torch.tensor(mesh.faces), mesh.num_vertices)


def dirichlet_energy(x: Float[Tensor, "*batch vertices channels"], graph: Graph) -> Float[Tensor, "*batch"]:
    r"""Variation of x along the edges, in the geometry in which GCN smooths:

    .. math::
        E(x) = \operatorname{tr} x^\top (I - \tilde L)\, x =
        \tfrac12 \sum_{i,\, j \in \mathcal N(i)} \Big\| \frac{x_i}{\sqrt{\tilde d_i}} -
        \frac{x_j}{\sqrt{\tilde d_j}} \Big\|^2

    with :math:`\tilde d_i = |\mathcal N(i)| + 1` and GCN's matrix :math:`\tilde L`; the graph must have both directions
    of every edge. It is 0 exactly where each channel is a multiple of :math:`\sqrt{\tilde d}` on every connected
    component. Computed as the sum of squares, so that small energies are exact.
    """
    edges = with_self_loops(graph, x.dtype)
    degrees = x.new_zeros(graph.num_vertices).index_add(0, edges.pattern.receivers, edges.weights)
    scaled = x / degrees.sqrt().unsqueeze(1)
    jumps = scaled[..., edges.pattern.senders, :] - scaled[..., edges.pattern.receivers, :]
    return (edges.weights.unsqueeze(1) * jumps.square()).sum((-2, -1)) / 2


def mean_frequency(x: Float[Tensor, "*batch vertices channels"], graph: Graph) -> Float[Tensor, "*batch"]:
    r"""The energy of x relative to its size, :math:`E(x) / \|x\|^2`; 0 is smooth, the largest value is below 2.

    It is the mean of the eigenvalues :math:`1 - \lambda` of :math:`I - \tilde L`, weighted by their part in x.
    """
    return dirichlet_energy(x, graph) / x.square().sum((-2, -1))


def effective_rank(x: Float[Tensor, "*batch vertices channels"]) -> Float[Tensor, "*batch"]:
    r""":math:`\exp(-\sum_k p_k \log p_k)` with :math:`p_k = s_k / \sum_l s_l` and the singular values s of x.

    r dimensions of equal size count r, and negligible ones count nothing. Between 1 and the rank; 0 if x is 0.
    """
    sizes = torch.linalg.svdvals(x)
    total = sizes.sum(-1)
    shares = sizes / torch.where(total > 0, total, 1).unsqueeze(-1)
    return torch.where(total > 0, torch.special.entr(shares).sum(-1).exp(), 0)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="What 2 to 64 layers of GCN leave of random features.")
    parser.add_argument("--seeds", type=int, default=10, help="number of random networks")
    parser.add_argument("--vertices", type=int, default=642, help="least number of vertices of the sphere")
    parser.add_argument("-o", "--output", type=Path, help="write the record to this file")
    args = parser.parse_args(arguments)
    started, graph = time.perf_counter(), sphere_graph(args.vertices)
    rows: list[dict[str, Any]] = [asdict(point) for point in depth_curves(graph, range(args.seeds))]
    for skip in SKIPS:
        theory = zip(DEPTHS, expected_frequency(graph, skip).tolist(), strict=True)
        rows += [{"skip": skip, "activation": "theory", "depth": k, "frequency": value} for k, value in theory]
    print_means(rows, "frequency", f"Mean frequency (0: smooth) on a sphere of {graph.num_vertices} vertices")
    print_means(rows, "rank", f"Effective rank of {WIDTH} channels")
    if args.output is not None:
        settings = {"seeds": args.seeds, "vertices": graph.num_vertices, "width": WIDTH}
        seconds = time.perf_counter() - started
        write_analysis(args.output, AnalysisRecord("depth", settings, rows, seconds, commit=commit()))


def print_means(rows: Iterable[dict[str, Any]], quantity: str, title: str) -> None:
    """One line per method and activation, one column per depth."""
    groups: dict[tuple[str, str], dict[int, list[float]]] = {}
    for row in rows:
        if quantity in row:
            by_depth = groups.setdefault((row["skip"], row["activation"]), {})
            by_depth.setdefault(row["depth"], []).append(row[quantity])
    lines = [
        (f"{skip_prefix(skip)}GCN", activation, *(f"{fmean(values):.2g}" for values in by_depth.values()))
        for (skip, activation), by_depth in groups.items()
    ]
    # No lines between the columns: 80 characters must hold them.
    narrow: dict[str, Any] = {"box": SIMPLE_HEAD, "padding": (0, 1, 0, 0), "left": ["activation"]}
    print_table(("method", "activation", *map(str, DEPTHS)), lines, title=f"{title}, by number of layers", **narrow)


if __name__ == "__main__":
    main()
