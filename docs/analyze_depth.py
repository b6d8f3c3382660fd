r"""Laplacian smoothing: what many layers of GCN leave of the features, before and after training, with all skips.

The paper's section 5.2 assumes that GCN fails on meshes because it smooths (Li et al., `Deeper insights into graph
convolutional networks <https://arxiv.org/abs/1801.07606>`_, AAAI 2018), and that its block does not have to.

    python docs/analyze_depth.py [--seeds 10] [--train-seeds 3] -o results/analysis/depth.json

Two experiments: random features through layers with initial weights, against theory; and networks that are trained to
separate shapes from noise (see :class:`Separation`). All of it runs on a CPU, in about twelve minutes.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from geoskip.blocks import make_block
from geoskip.graphs import Graph, gcn_edges, with_self_loops
from geoskip.meshes import icosphere
from geoskip.operators import GCNConv
from geoskip.paper.findings import record_analysis
from geoskip.paper.rows import SKIPS
from geoskip.paper.small_sets import deformed
from geoskip.shapes import Float

DEPTHS = (0, 2, 4, 8, 16, 32, 64)
WIDTH = 32
# Of the icosahedron, for random features: 642 vertices.
SUBDIVISIONS = 3
# Of the trained networks.
TRAINED_DEPTHS = (2, 4, 8, 16, 32)
STEPS, BATCH, RATE = 900, 8, 3e-3
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"linear": lambda x: x, "elu": F.elu}


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


def depth_curves(graph: Graph, seeds: Sequence[int]) -> list[DepthPoint]:
    """:func:`depth_curve` of GCN, Res-GCN and Aff-GCN with every activation and seed."""
    return [
        point
        for activation in ACTIVATIONS
        for skip in SKIPS
        for seed in seeds
        for point in depth_curve(graph, skip, activation, seed)
    ]


@dataclass(frozen=True)
class Separation:
    """The task of the trained networks: separate the positions of deformed spheres from noise that was added to them.

    A network gets the noisy positions, and predicts both parts for each vertex, three coordinates each. The shape is
    smooth, so neighbors help. The noise is as rough as can be, so the vertex's own position is needed. Both parts are
    divided by their standard deviations: they count alike, and a prediction of 0 has about the error 1.

    Attributes:
        subdivisions: of the icosahedron; 2 give 162 vertices.
        num_train: shapes to train on.
        num_test: shapes that no network is trained on.
        noise: its standard deviation, relative to that of the positions.
    """

    subdivisions: int = 2
    num_train: int = 256
    num_test: int = 64
    noise: float = 0.2

    @cached_property
    def graph(self) -> Graph:
        return sphere_graph(self.subdivisions)

    @cached_property
    def targets(self) -> Float[Tensor, "items vertices 6"]:
        """Shapes and noise, both in units of their standard deviations; the training items first."""
        count = self.num_train + self.num_test
        shapes = torch.from_numpy(deformed(icosphere(self.subdivisions), count, seed=0)).float()
        noise = torch.randn(shapes.shape, generator=torch.Generator().manual_seed(1))
        return torch.cat([shapes / shapes[: self.num_train].std(), noise], dim=2)

    @cached_property
    def inputs(self) -> Float[Tensor, "items vertices 3"]:
        """The noisy positions."""
        shapes, noise = self.targets.split(3, dim=2)
        return shapes + self.noise * noise


class DeepGCN(nn.Module):
    """A linear map to 32 channels, ``depth`` layers of GCN with ELU, and a linear map to the targets."""

    def __init__(self, skip: str, depth: int) -> None:
        super().__init__()
        self.input = nn.Linear(3, WIDTH)
        self.blocks = nn.ModuleList(make_block(GCNConv(WIDTH, WIDTH), skip) for _ in range(depth))
        self.output = nn.Linear(WIDTH, 6)

    def features(self, x: Float[Tensor, "items vertices 3"], graph: Graph) -> Float[Tensor, "items vertices channels"]:
        """After the last layer of GCN."""
        x = self.input(x)
        for block in self.blocks:
            x = F.elu(block(x, graph))
        return x

    def forward(self, x: Float[Tensor, "items vertices 3"], graph: Graph) -> Float[Tensor, "items vertices 6"]:
        return self.output(self.features(x, graph))


@dataclass(frozen=True)
class TrainedPoint:
    """A network with ``depth`` layers before or after training.

    Attributes:
        skip: as in :class:`DepthPoint`.
        seed: of the initial weights and the order of the items.
        depth: number of layers.
        weights: ``"initial"`` or ``"trained"``.
        frequency: :func:`mean_frequency` of the features after the last layer, mean over the test items.
        rank: likewise their :func:`effective_rank`.
        train_shape: root mean square error of the shape on the training items, in standard deviations of the shape.
        train_noise: likewise of the noise.
        test_shape: of the shape on the test items.
        test_noise: of the noise on the test items.
    """

    skip: str
    seed: int
    depth: int
    weights: str
    frequency: float
    rank: float
    train_shape: float
    train_noise: float
    test_shape: float
    test_noise: float


def trained_points(task: Separation, skip: str, depth: int, seed: int, steps: int = STEPS) -> list[TrainedPoint]:
    """Train a network; its state before and after.

    Adam with a rate that rises to 0.003 and falls again (:class:`torch.optim.lr_scheduler.OneCycleLR`), batches of 8,
    and gradients cut to length 1, because the first outputs of deep networks with residual skips are in the thousands.
    """
    torch.manual_seed(seed)
    network = DeepGCN(skip, depth)
    points = [TrainedPoint(skip, seed, depth, "initial", *_state(network, task))]
    optimizer = torch.optim.Adam(network.parameters(), lr=RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps)
    order = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        items = torch.randint(task.num_train, (BATCH,), generator=order)
        loss = F.mse_loss(network(task.inputs[items], task.graph), task.targets[items])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return [*points, TrainedPoint(skip, seed, depth, "trained", *_state(network, task))]


@torch.no_grad()
def _state(network: DeepGCN, task: Separation) -> tuple[float, ...]:
    """Mean frequency and effective rank on the test items, then the errors as in :class:`TrainedPoint`."""
    features = network.features(task.inputs[task.num_train :], task.graph).double()
    squares = (network(task.inputs, task.graph) - task.targets).square()
    splits = squares.split([task.num_train, task.num_test])
    errors = (float(part.mean().sqrt()) for split in splits for part in split.split(3, dim=2))
    return float(mean_frequency(features, task.graph).mean()), float(effective_rank(features).mean()), *errors


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


def sphere_graph(subdivisions: int) -> Graph:
    """The mesh of a sphere with 12, 42, 162, 642, … vertices, with five or six neighbors each."""
    mesh = icosphere(subdivisions)
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
    parser = argparse.ArgumentParser(description="What many layers of GCN leave of features, untrained and trained.")
    add = parser.add_argument
    add("--seeds", type=int, default=10, help="number of random networks")
    add("--train-seeds", type=int, default=3, help="number of trained networks of each kind")
    add("-o", "--output", type=Path, required=True, help="write the record to this file")
    args = parser.parse_args(arguments)
    started, graph, task = time.perf_counter(), sphere_graph(SUBDIVISIONS), Separation()
    rows: list[dict[str, Any]] = [asdict(point) for point in depth_curves(graph, range(args.seeds))]
    for skip in SKIPS:
        theory = zip(DEPTHS, expected_frequency(graph, skip).tolist(), strict=True)
        rows += [{"skip": skip, "activation": "theory", "depth": k, "frequency": value} for k, value in theory]
    trained = [
        asdict(point)
        for skip in SKIPS
        for seed in range(args.train_seeds)
        for depth in TRAINED_DEPTHS
        for point in trained_points(task, skip, depth, seed, STEPS)
    ]
    settings: dict[str, Any] = {"seeds": args.seeds, "vertices": graph.num_vertices, "width": WIDTH}
    settings |= {"train_seeds": args.train_seeds, "steps": STEPS, "batch_size": BATCH, "rate": RATE}
    settings["separation"] = {**asdict(task), "vertices": task.graph.num_vertices}
    record_analysis(args.output, "depth", settings, rows + trained, started)
    print(f"wrote {args.output}; docs/make_tables.py and docs/make_figures.py show it")


if __name__ == "__main__":
    main()
