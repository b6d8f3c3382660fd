"""What the mathematics of each operator says."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from geoskip.graphs import Graph
from geoskip.operators import ChebConv, FeaStConv, GCNConv, GINConv, MoNetConv, Operator, SpiralConv, SplineConv
from geoskip.operators.base import glorot
from tests.operators.cases import IN, OUT
from tests.specimens import edgeless, features, specimen, undirected

# A wheel: six vertices around a hub, which is the last; no two vertices alike in every respect.
SPOKES = [(v, (v + 1) % 6) for v in range(6)] + [(v, 6) for v in range(5)]
WHEEL = Graph.from_edge_index(undirected(SPOKES), 7)
X = features(7, IN)
SKIP = features(IN, OUT, seed=2)


def adjacency() -> Tensor:
    dense = torch.zeros(7, 7, dtype=torch.float64)
    for a, b in SPOKES:
        dense[a, b] = dense[b, a] = 1
    return dense


def drawn(conv: Operator) -> Any:
    """With every parameter, biases too, away from 0. Any, since torch types a module's parameters loosely."""
    torch.manual_seed(0)
    for parameter in conv.double().parameters():
        nn.init.uniform_(parameter, 0.3, 1)
    return conv


def same_matrices(conv: Any) -> Tensor:
    """Make all Θ_m one matrix and return it: then only the sum of the basis counts."""
    theta = conv.theta
    with torch.no_grad():
        theta.copy_(theta[0].clone().expand_as(theta))
    return theta[0]


def mean_of_neighbours(x: Tensor) -> Tensor:
    return adjacency() @ x / adjacency().sum(1, keepdim=True)


def agree(found: Tensor, wanted: Tensor) -> None:
    assert_close(found, wanted, rtol=0, atol=1e-10)


def test_gcn_is_its_dense_matrix() -> None:
    conv = drawn(GCNConv(IN, OUT))
    looped = adjacency() + torch.eye(7, dtype=torch.float64)
    root = looped.sum(1).rsqrt().diag()
    agree(conv(X, WHEEL), root @ looped @ root @ X @ conv.theta + conv.bias)


def test_gcn_keeps_the_roots_of_the_degrees() -> None:
    """The eigenvector of eigenvalue 1."""
    conv: Any = GCNConv(1, 1, bias=False).double()
    nn.init.ones_(conv.theta)
    roots = (WHEEL.degrees + 1).double().sqrt().unsqueeze(1)
    agree(conv(roots, WHEEL), roots)


@pytest.mark.parametrize("center", [True, False])
def test_cheb_is_its_eigendecomposition(center: bool) -> None:
    """T_m(L) = U cos(m arccos Λ) Uᵀ."""
    conv = drawn(ChebConv(IN, OUT, kernel_size=6, center=center))
    root = adjacency().sum(1).rsqrt().diag()
    values, vectors = torch.linalg.eigh(-root @ adjacency() @ root)
    angles = values.clamp(-1, 1).arccos()
    y = torch.zeros(7, OUT, dtype=torch.float64) + conv.bias
    for m, theta in enumerate(conv.theta, start=0 if center else 1):
        y = y + vectors @ torch.diag((m * angles).cos()) @ vectors.t() @ X @ theta
    agree(conv(X, WHEEL), y)


def test_cheb_of_order_m_reaches_m_minus_one_rings() -> None:
    path = Graph.from_edge_index(undirected([(v, v + 1) for v in range(9)]), 10)
    impulse = torch.zeros(10, 1, dtype=torch.float64)
    impulse[0] = 1
    y = drawn(ChebConv(1, 1, kernel_size=4, bias=False))(impulse, path)
    assert (y[:4] != 0).all()
    assert not y[4:].any()


@pytest.mark.parametrize("self_loops", [True, False])
def test_feast_shares_each_neighbour_out_completely(self_loops: bool) -> None:
    """Σ_m q_m = 1: with equal matrices the operator is a mean over the neighbours."""
    conv = drawn(FeaStConv(IN, OUT, kernel_size=5, self_loops=self_loops))
    theta = same_matrices(conv)
    dense = adjacency() + self_loops * torch.eye(7, dtype=torch.float64)
    agree(conv(X, WHEEL), dense / dense.sum(1, keepdim=True) @ X @ theta + conv.bias)


def test_feast_assigns_alike_after_a_translation() -> None:
    """y(x + t) - y(x) = (mean of q) t Θ: linear in t exactly if the assignment does not see t."""

    def responses(conv: Operator) -> tuple[Tensor, Tensor]:
        shift = features(1, IN, seed=5)
        return conv(X + shift, WHEEL) - conv(X, WHEEL), conv(X + 3 * shift, WHEEL) - conv(X, WHEEL)

    once, thrice = responses(drawn(FeaStConv(IN, OUT, kernel_size=4)))
    agree(thrice, 3 * once)
    once, thrice = responses(drawn(FeaStConv(IN, OUT, kernel_size=4, translation_invariant=False)))
    assert not torch.allclose(thrice, 3 * once, atol=1e-3)


def test_feast_with_opposite_steering_is_translation_invariant() -> None:
    invariant = drawn(FeaStConv(IN, OUT, kernel_size=4))
    general = FeaStConv(IN, OUT, kernel_size=4, translation_invariant=False).double()
    general.load_state_dict(invariant.state_dict() | {"receiver_attention": -invariant.attention})
    agree(general(X, WHEEL), invariant(X, WHEEL))


def test_gin_adds_neighbours() -> None:
    """Sums tell a vertex with one neighbour from a vertex with two equal ones; a mean would not."""
    graph = Graph.from_edge_index(torch.tensor([[1, 3, 4], [0, 2, 2]]), 5)
    y = drawn(GINConv(IN, OUT))(X[:1].abs().expand(5, IN), graph)
    assert not torch.allclose(y[0], y[2])
    agree(y[1], y[3])


def test_monet_of_wide_gaussians_is_a_sum() -> None:
    conv = drawn(MoNetConv(IN, OUT, kernel_size=3, dim=2))
    nn.init.constant_(conv.scale, 1e8)
    graph = WHEEL.with_pseudo(features(WHEEL.num_edges, 2))
    agree(conv(X, graph), adjacency() @ X @ conv.theta.sum(0) + conv.bias)


def test_monet_sees_pseudo_coordinates_relative_to_its_means() -> None:
    conv, pseudo = drawn(MoNetConv(IN, OUT, kernel_size=3, dim=2)), features(WHEEL.num_edges, 2)
    y = conv(X, WHEEL.with_pseudo(pseudo))
    shift = torch.tensor([0.5, -2.0], dtype=torch.float64)
    assert not torch.allclose(conv(X, WHEEL.with_pseudo(pseudo + shift)), y)
    with torch.no_grad():
        conv.mean.add_(shift)
    agree(conv(X, WHEEL.with_pseudo(pseudo + shift)), y)


def test_monet_survives_a_gaussian_of_no_width() -> None:
    """σ² + 1e-15: w is 0 off the mean and 1 on it, with finite gradients."""
    conv, pseudo = drawn(MoNetConv(IN, OUT, kernel_size=3, dim=2)), features(WHEEL.num_edges, 2)
    nn.init.zeros_(conv.scale)
    agree(conv(X, WHEEL.with_pseudo(pseudo)), conv.bias.expand(7, OUT))
    pseudo[:] = conv.mean[0].detach()
    graph = WHEEL.with_pseudo(pseudo)
    agree(conv(X, graph), adjacency() @ X @ conv.theta[0] + conv.bias)
    conv(X, graph).sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in conv.parameters())


def test_spline_of_one_spline_is_a_mean() -> None:
    conv = drawn(SplineConv(IN, OUT, kernel_size=1, dim=2))
    graph = WHEEL.with_pseudo(torch.rand(WHEEL.num_edges, 2, dtype=torch.float64))
    agree(conv(X, graph), mean_of_neighbours(X) @ conv.theta[0] + conv.bias)


@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize("degree", [1, 2, 3])
def test_spline_with_equal_matrices_is_a_mean(degree: int, closed: bool) -> None:
    conv = drawn(SplineConv(IN, OUT, kernel_size=(4, 5), dim=2, degree=degree, closed=closed))
    theta = same_matrices(conv)
    graph = WHEEL.with_pseudo(torch.rand(WHEEL.num_edges, 2, dtype=torch.float64))
    agree(conv(X, graph), mean_of_neighbours(X) @ theta + conv.bias)


def test_spiral_is_a_linear_map_of_the_concatenation() -> None:
    """And sees nothing of the edges."""
    spirals = specimen().spirals.clamp(min=0)
    conv = drawn(SpiralConv(IN, OUT, kernel_size=4, dilation=2))
    y = conv(X, WHEEL.with_spirals(spirals))
    agree(y, X[spirals[:, ::2]].flatten(1) @ conv.theta.flatten(0, 1) + conv.bias)
    assert torch.equal(conv(X, edgeless(7).graph().with_spirals(spirals)), y)


def test_spiral_without_centre_cannot_see_it() -> None:
    spirals = torch.stack([(torch.arange(7) + k) % 7 for k in range(5)], dim=1)
    graph, moved = WHEEL.with_spirals(spirals), X.clone()
    moved[3] += 1
    plain, ablated = drawn(SpiralConv(IN, OUT, kernel_size=4)), drawn(SpiralConv(IN, OUT, kernel_size=4, center=False))
    assert not torch.equal(plain(moved, graph)[3], plain(X, graph)[3])
    assert torch.equal(ablated(moved, graph)[3], ablated(X, graph)[3])


def alone(conv: Operator) -> Tensor:
    """y of vertices that have no neighbours and lie at the end of their mesh."""
    return conv(X, edgeless(7, dim=2).graph(), skip=SKIP)


@pytest.mark.parametrize(
    "conv",
    [
        MoNetConv(IN, OUT, kernel_size=4, dim=2),
        SplineConv(IN, OUT, kernel_size=3, dim=2),
        FeaStConv(IN, OUT, kernel_size=4, self_loops=False),
        FeaStConv(IN, OUT, kernel_size=4, self_loops=False, translation_invariant=False),
        ChebConv(IN, OUT, kernel_size=1, center=False),
        SpiralConv(IN, OUT, kernel_size=4, center=False),
    ],
    ids=str,
)
def test_an_operator_without_centre_leaves_a_lone_vertex_to_the_skip(conv: Operator) -> None:
    ready = drawn(conv)
    agree(alone(ready), X @ SKIP + ready.bias)


def test_an_operator_with_centre_sees_a_lone_vertex() -> None:
    gcn = drawn(GCNConv(IN, OUT))
    agree(alone(gcn), X @ gcn.theta + gcn.bias + X @ SKIP)
    cheb = drawn(ChebConv(IN, OUT, kernel_size=5))
    # T_m(0) = cos(mπ/2)
    agree(alone(cheb), X @ (cheb.theta[0] - cheb.theta[2] + cheb.theta[4]) + cheb.bias + X @ SKIP)
    feast = drawn(FeaStConv(IN, OUT, kernel_size=4))
    shares = feast.offset.softmax(0)
    agree(alone(feast), X @ torch.einsum("m,mco->co", shares, feast.theta) + feast.bias + X @ SKIP)
    spiral = drawn(SpiralConv(IN, OUT, kernel_size=4))
    agree(alone(spiral), X @ spiral.theta[0] + spiral.bias + X @ SKIP)


def test_initial_values_are_the_papers() -> None:
    """Glorot bounds for the stacked matrix; N(0, 0.1) for FeaStNet."""
    torch.manual_seed(0)
    theta = torch.empty(9, 32, 64)
    glorot(theta)
    bound = math.sqrt(6 / (9 * 32 + 64))
    assert 0.99 * bound < theta.max() <= bound
    assert theta.std() == pytest.approx(bound / math.sqrt(3), rel=0.02)
    feast: Any = FeaStConv(64, 64, kernel_size=9)
    assert feast.theta.detach().std() == pytest.approx(0.1, rel=0.02)
    assert abs(feast.theta.detach().mean()) < 0.002
    assert not feast.bias.any()


@pytest.mark.parametrize(("channels", "init", "bound"), [(4, "paper", (6 / (25 * 4 + 8)) ** 0.5), (4, "authors", 0.5)])
def test_initial_values_of_monet(channels: int, init: str, bound: float) -> None:
    """The paper's text has Glorot over the whole stack; the authors' code has PyTorch's default of linear layers."""
    theta = MoNetConv(channels, 8, kernel_size=25, dim=2, init=init).theta.detach().abs()
    assert 0.95 * bound < float(theta.max()) <= bound


def test_initial_values_of_feast() -> None:
    assert not bool(FeaStConv(2, 4000, kernel_size=1).bias.any())  # type: ignore[union-attr]
    bias = FeaStConv(2, 4000, kernel_size=1, init="authors").bias
    assert bias is not None
    assert float(bias.detach().std()) == pytest.approx(0.1, rel=0.1)
    with pytest.raises(ValueError, match="init: unknown name 'zeros'; choose from paper, authors"):
        FeaStConv(2, 3, kernel_size=1, init="zeros")
