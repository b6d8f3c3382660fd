"""Smoothing by depth, against the spectrum of GCN's matrix and the bounds of theory."""

from __future__ import annotations

import math

import pytest
import torch
from docs.analyze_depth import (
    DEPTHS,
    DeepGCN,
    Separation,
    depth_curve,
    depth_curves,
    dirichlet_energy,
    effective_rank,
    expected_frequency,
    mean_frequency,
    smoothing_matrix,
    sphere_graph,
    trained_points,
)
from torch import Tensor
from torch.testing import assert_close

from geoskip.blocks import make_block
from geoskip.graphs import Graph, pack
from geoskip.operators import GCNConv
from geoskip.paper.rows import SKIPS
from tests.specimens import features, undirected


def sphere() -> Graph:
    return sphere_graph(1)


def lopsided() -> Graph:
    """Degrees 1 to 4, an odd ring, a tail."""
    return Graph.from_edge_index(undirected([(0, 1), (1, 2), (2, 0), (2, 3), (3, 4), (2, 5)]), 6)


def resting(graph: Graph) -> Tensor:
    """√d̃, GCN's fixed point, of length 1."""
    return (graph.degrees + 1).double().sqrt() / (graph.num_vertices + graph.num_edges) ** 0.5


@pytest.mark.parametrize("graph", [sphere(), lopsided()], ids=["sphere", "lopsided"])
def test_energy_is_the_quadratic_form(graph: Graph) -> None:
    x, smooth = features(3, graph.num_vertices, 5), smoothing_matrix(graph)
    by_trace = torch.einsum("bic,ij,bjc->b", x, torch.eye(len(smooth)).double() - smooth, x)
    assert_close(dirichlet_energy(x, graph), by_trace)
    assert_close(mean_frequency(x, graph), by_trace / x.square().sum((1, 2)))


def test_energy_counts_each_edge_once() -> None:
    """On one edge d̃ = 2 at both ends: ‖x_0 - x_1‖² / 2."""
    graph = Graph.from_edge_index(undirected([(0, 1)]), 2)
    assert_close(dirichlet_energy(torch.tensor([[1.0], [4.0]]), graph), torch.tensor(4.5))


def test_own_self_loops_change_nothing() -> None:
    graph = lopsided()
    looped = Graph.from_edge_index(torch.cat([graph.edge_index, torch.tensor([[1], [1]])], dim=1), 6)
    x = features(6, 2)
    assert_close(dirichlet_energy(x, looped), dirichlet_energy(x, graph))


def test_energy_vanishes_on_components_at_rest_only() -> None:
    """Each component has its own multiple of √d̃; a constant is not at rest where degrees differ."""
    both = pack([lopsided(), sphere()])
    x = torch.cat([2 * resting(lopsided()), -resting(sphere())]).unsqueeze(1)
    assert float(dirichlet_energy(x, both)) < 1e-30
    assert float(dirichlet_energy(torch.ones_like(x), both)) > 0.1


@pytest.mark.parametrize("rank", [1, 3, 5])
def test_effective_rank_counts_equal_dimensions(rank: int) -> None:
    frame = torch.linalg.qr(features(9, rank))[0]
    assert_close(
        effective_rank(7 * frame @ torch.linalg.qr(features(6, rank))[0].t()), torch.tensor(float(rank)).double()
    )


def test_effective_rank_lies_below_the_rank_and_ignores_what_is_negligible() -> None:
    x = features(4, 9, 5)
    assert bool((effective_rank(x) > 1).all())
    assert bool((effective_rank(x) < 5).all())
    almost = features(9, 1) @ features(1, 5, seed=2)
    assert_close(effective_rank(almost + 1e-12 * x[0]), torch.tensor(1.0).double(), rtol=0, atol=1e-9)
    assert float(effective_rank(torch.zeros(9, 5))) == 0


@pytest.mark.parametrize("graph", [sphere(), lopsided()], ids=["sphere", "lopsided"])
def test_gcn_without_weights_rests_at_the_known_rate(graph: Graph) -> None:
    """x ← L̃ x converges to √d̃ times a constant; the distance shrinks by |λ₂| a layer."""
    conv = GCNConv(1, 1).double()
    with torch.no_grad():
        conv.theta.fill_(1)
        x, rest, distances = features(graph.num_vertices, 1), resting(graph), []
        limit = rest * (rest @ x[:, 0])
        for _ in range(120):
            x = conv(x, graph)
            distances.append(float((x[:, 0] - limit).norm()))
    second = torch.linalg.eigvalsh(smoothing_matrix(graph)).abs().sort().values[-2]
    steps = slice(10, 40)
    rate = (distances[steps.stop] / distances[steps.start]) ** (1 / (steps.stop - steps.start))
    assert rate == pytest.approx(float(second), rel=1e-2)
    assert distances[-1] < 1e-6 * distances[0]
    assert float(limit.norm()) > 0.1


@pytest.mark.parametrize("graph", [sphere(), lopsided()], ids=["sphere", "lopsided"])
def test_relu_layers_lose_energy_as_theory_bounds(graph: Graph) -> None:
    """E(ReLU(L̃ x Θ)) ≤ s² λ² E(x), s the largest singular value of Θ, λ the largest eigenvalue but 1
    (Cai and Wang 2020). With a skip the bound fails, which is the point of one."""
    second = torch.linalg.eigvalsh(smoothing_matrix(graph)).abs().sort().values[-2]
    broken = 0
    for seed in range(20):
        x, theta = features(graph.num_vertices, 4, seed=seed), features(4, 4, seed=100 + seed)
        bound = (torch.linalg.matrix_norm(theta, 2) * second).square() * dirichlet_energy(x, graph)
        smooth = smoothing_matrix(graph) @ x @ theta
        assert dirichlet_energy(smooth.relu(), graph) <= bound
        broken += int(dirichlet_energy((smooth + 5 * x @ features(4, 4, seed=200 + seed)).relu(), graph) > bound)
    assert broken > 0


@pytest.mark.parametrize("skip", SKIPS)
def test_linear_layers_smooth_as_theory_expects(skip: str) -> None:
    """The mean over seeds of energies over the mean of sizes, at a depth where random weights still average out."""
    graph, width = sphere(), 48
    energies, sizes = torch.zeros(2, dtype=torch.float64), torch.zeros(2, dtype=torch.float64)
    for seed in range(30):
        torch.manual_seed(seed)
        # A frame of all dimensions, so that all components are alike at the start.
        x = torch.eye(graph.num_vertices, width, dtype=torch.float64)
        for depth in range(1, 5):
            with torch.no_grad():
                x = make_block(GCNConv(width, width), skip).double()(x, graph)
            if depth in (2, 4):
                energies[depth // 2 - 1] += dirichlet_energy(x, graph)
                sizes[depth // 2 - 1] += x.square().sum()
    assert_close(energies / sizes, expected_frequency(graph, skip, (2, 4)), rtol=0.05, atol=0)


def test_theory_knows_how_little_many_layers_leave() -> None:
    """On two triangles L̃ is 1/3 within each: eigenvalues 1 and 0 alone, so one layer leaves nothing at all; a
    skip halves the rest with each layer."""
    triangles = Graph.from_edge_index(undirected([(0, 1), (1, 2), (2, 0), (3, 4), (4, 5), (5, 3)]), 6)
    assert expected_frequency(triangles, "none", (1, 64)).abs().max() < 1e-30
    # Two eigenvalues 1, which grow twofold, and four 0, which stay: 4 / (4 + 2 · 2^k).
    wanted = torch.tensor([4 / (4 + 2 * 2.0**k) for k in (0, 3, 64)], dtype=torch.float64)
    assert_close(expected_frequency(triangles, "affine", (0, 3, 64)), wanted, rtol=1e-9, atol=0)


def test_a_skip_slows_smoothing_and_depth_remains() -> None:
    plain, residual, affine = (expected_frequency(sphere(), skip) for skip in SKIPS)
    assert_close(residual, affine)
    assert bool((plain[1:] < affine[1:]).all())
    assert bool((affine.diff() < 0).all())
    assert plain[0] == affine[0] == pytest.approx(1 - float(smoothing_matrix(sphere()).trace()) / 42)


def test_curves_have_every_depth_and_repeat() -> None:
    curve = depth_curve(lopsided(), "affine", seed=3)
    assert [point.depth for point in curve] == list(DEPTHS)
    assert curve == depth_curve(lopsided(), "affine", seed=3)
    assert curve != depth_curve(lopsided(), "affine", seed=4)
    assert depth_curve(lopsided(), "affine", seed=3, depths=(0, 4)) == [curve[0], curve[2]]
    assert all(math.isfinite(point.frequency) and point.rank > 0 for point in curve)


def test_deep_gcn_is_flat_where_a_skip_is_not() -> None:
    ends = {skip: depth_curve(sphere(), skip, "linear", 0, (64,))[0] for skip in SKIPS}
    assert ends["none"].frequency < 1e-2 * min(ends["residual"].frequency, ends["affine"].frequency)
    assert ends["none"].rank < 1.01 < min(ends["residual"].rank, ends["affine"].rank)


def test_all_curves_are_made() -> None:
    points = depth_curves(lopsided(), range(2))
    assert len(points) == 2 * 2 * len(SKIPS) * len(DEPTHS)
    assert {point.activation for point in points} == {"linear", "elu"}


TASK = Separation(subdivisions=1, num_train=12, num_test=4)


def test_the_parts_add_up_to_the_input() -> None:
    shapes, noise = TASK.targets.split(3, dim=2)
    assert_close(shapes + TASK.noise * noise, TASK.inputs)
    assert float(shapes[:12].std()) == pytest.approx(1)
    assert float(noise.std()) == pytest.approx(1, rel=0.05)
    # Neighbors agree on the shape, and not on the noise.
    frequencies = [float(mean_frequency(part, TASK.graph).mean()) for part in (shapes, noise)]
    assert 4 * frequencies[0] < frequencies[1]


@pytest.mark.parametrize("skip", SKIPS)
def test_training_is_measured_before_and_after(skip: str) -> None:
    before, after = trained_points(TASK, skip, depth=2, seed=1, steps=30)
    assert (before.weights, after.weights) == ("initial", "trained")
    assert after.train_shape < 0.8 * before.train_shape
    torch.manual_seed(1)
    network = DeepGCN(skip, 2)
    assert len(network.blocks) == 2
    with torch.no_grad():
        errors = (network(TASK.inputs, TASK.graph) - TASK.targets).square()
        features = network.features(TASK.inputs[12:], TASK.graph)
    # By hand: the shape is in the first three channels, the test in the last four items.
    assert before.train_shape == pytest.approx(float(errors[:12, :, :3].mean().sqrt()))
    assert before.test_noise == pytest.approx(float(errors[12:, :, 3:].mean().sqrt()))
    assert before.frequency == pytest.approx(float(mean_frequency(features, TASK.graph).mean()), rel=1e-5)
    assert before.rank == pytest.approx(float(effective_rank(features).mean()), rel=1e-4)
    assert trained_points(TASK, skip, depth=2, seed=1, steps=30) == [before, after]


def test_noise_needs_the_own_position() -> None:
    """Two layers with affine skips find it; without skips, training does not."""
    ends = {skip: trained_points(TASK, skip, depth=2, seed=0, steps=150)[1] for skip in ("none", "affine")}
    assert ends["affine"].train_noise < 0.8 < 0.95 < ends["none"].train_noise
