"""What the affine skip is for: affine maps exactly, and depth without smoothing."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from geoskip.blocks import AffineSkip, ResidualSkip
from geoskip.graphs import Graph
from geoskip.operators import GCNConv, MoNetConv, SplineConv
from tests.operators.cases import CASES, IN, OUT, Case
from tests.specimens import features, specimen, undirected

DEPTH = 64


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_block_is_any_affine_map(case: Case) -> None:
    """Θ = 0 leaves x A + b, whatever the graph, the pseudo-coordinates and the other parameters are."""
    block: Any = AffineSkip(case.make())
    x, graph = features(7, IN), case.specimen().graph()
    matrix, b = features(IN, OUT, seed=3), features(OUT, seed=4)
    with torch.no_grad():
        for name in ("theta", "hidden_bias", "theta_out"):
            if hasattr(block.conv, name):
                getattr(block.conv, name).zero_()
        block.weight.copy_(matrix)
        block.bias.copy_(b)
    assert_close(block(x, graph), x @ matrix + b, rtol=0, atol=1e-14)


CENTRELESS = [case for case in CASES if case.operator in (MoNetConv, SplineConv) and case.dim == 2]


@pytest.mark.parametrize("case", CENTRELESS, ids=lambda case: case.name)
def test_an_operator_without_a_centre_cannot_tell_twins_apart(case: Case) -> None:
    """Vertices 0 and 1 hear the same neighbours from the same places. Whatever the weights, they get the same y, so at
    one of them any affine map with x_0 A ≠ x_1 A is missed by |x_0 A - x_1 A| / 2 or more. The skip parts them."""
    edges = undirected([(twin, other) for twin in (0, 1) for other in (2, 3, 4)])
    place = torch.rand(3, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    others = edges.max(dim=0).values - 2
    graph = Graph.from_edge_index(edges, 5, place[others])
    x = features(5, IN)
    for seed in range(5):
        conv = case.make(seed=seed)
        y = conv(x, graph)
        assert_close(y[0], y[1], rtol=0, atol=1e-14)
        assert (y[2] - y[0]).abs().max() > 0.1, "and that is not because y is constant"
        block = AffineSkip(conv)
        parted = block(x, graph)
        assert_close(parted[0] - parted[1], (x[0] - x[1]) @ block.weight)


def spread(columns: Tensor, wanted: Tensor) -> Tensor:
    """Relative distance of ``wanted`` from the span of ``columns`` and the constants."""
    basis = torch.cat([columns, torch.ones_like(columns[:, :1])], dim=1)
    fitted = basis @ torch.linalg.lstsq(basis, wanted).solution
    return torch.linalg.norm(wanted - fitted) / torch.linalg.norm(wanted)


def test_gcn_fits_no_affine_map() -> None:
    """y = L̃ x Θ + b is linear in Θ and b: least squares find the best of all weights, and it is off by more than a
    tenth, for the identity as for other maps; the block's normal equations have residual 0."""
    x, smooth = features(7, IN), smoothing(*ring_with_chord())
    graph = ring_with_chord()[0]
    conv = GCNConv(IN, IN, bias=False).double()
    with torch.no_grad():
        conv.theta.copy_(torch.eye(IN))
    assert_close(conv(x, graph), smooth @ x)
    for wanted in (x, x @ features(IN, OUT, seed=3) + features(OUT, seed=4)):
        assert spread(smooth @ x, wanted) > 0.1
        assert spread(torch.cat([smooth @ x, x], dim=1), wanted) < 1e-14


def ring_with_chord(length: int = 7) -> tuple[Graph, Tensor]:
    edges = undirected([*((v, (v + 1) % length) for v in range(length)), (0, 3)])
    return Graph.from_edge_index(edges, length), edges


def smoothing(graph: Graph, edges: Tensor) -> Tensor:
    """D̃^-½ (A + I) D̃^-½, dense."""
    adjacency = torch.eye(graph.num_vertices, dtype=torch.float64)
    adjacency[edges[1], edges[0]] = 1
    root = adjacency.sum(1).rsqrt()
    return root[:, None] * adjacency * root


def test_deep_affine_gcn_can_be_the_identity() -> None:
    graph, x = ring_with_chord()[0], features(7, IN)
    y = x
    for _ in range(DEPTH):
        block: Any = AffineSkip(GCNConv(IN, IN).double())
        with torch.no_grad():
            block.conv.theta.zero_()
            block.weight.copy_(torch.eye(IN))
        y = block(y, graph)
    assert torch.equal(y, x)


@pytest.mark.parametrize("seed", range(3))
def test_deep_gcn_damps_every_component(seed: int) -> None:
    """Linear layers give y = L̃^64 x Θ_1 … Θ_64. Let x hold each eigenvector v_λ with the same features r: then the
    component of y at λ is λ^64 times the one at the largest eigenvalue, 1, whatever the weights are."""
    graph, edges = ring_with_chord(30)
    values, vectors = torch.linalg.eigh(smoothing(graph, edges))
    assert_close(values[-1].item(), 1.0)
    torch.manual_seed(seed)
    y = vectors.sum(1, keepdim=True) * features(1, IN, seed=seed + 10)
    for _ in range(DEPTH):
        conv = GCNConv(IN, IN).double()
        conv.theta.data = torch.linalg.qr(torch.randn(IN, IN, dtype=torch.float64)).Q * (0.5 + torch.rand(()))
        y = conv(y, graph)
    damping = values**DEPTH
    components = (vectors.t() @ y).detach()
    components /= components[-1].abs().max()
    # What 64 roundings of the largest component leave behind lies below 1e-14.
    assert_close(components, damping[:, None] * components[-1], rtol=1e-6, atol=1e-14)
    assert (damping > 1e-8).sum() >= 8, "enough that the comparison can fail"
    assert (damping < 1e-7).sum() >= 15, "half of all detail is lost in float32"


@pytest.mark.parametrize(("inputs", "outputs"), [(3, 5), (5, 3), (4, 4), (1, 6), (6, 1)])
def test_rectangular_identity(inputs: int, outputs: int) -> None:
    """x I: leading channels, zeros after them; and the affine skip with that matrix is the same block."""
    graph, x = ring_with_chord()[0], features(2, 7, inputs)
    conv = GCNConv(inputs, outputs).double()
    with torch.no_grad():
        conv.theta.zero_()
    y = ResidualSkip(conv)(x, graph)
    kept = min(inputs, outputs)
    assert torch.equal(y[..., :kept], x[..., :kept])
    assert not y[..., kept:].any()
    conv.reset_parameters()
    residual, affine = ResidualSkip(conv), AffineSkip(conv)
    affine.weight.data.copy_(torch.eye(inputs, outputs))
    assert_close(residual(x, graph), affine(x, graph))


def test_isolated_vertices_keep_their_features() -> None:
    """A vertex without neighbours has nothing but the skip: MoNet gives it b, the block x A + b."""
    graph = specimen(simple=True).graph()
    alone = graph.degrees == 0
    assert alone.any()
    conv = MoNetConv(IN, OUT, kernel_size=4, dim=2).double()
    x = features(7, IN)
    block: Any = AffineSkip(conv)
    block.bias.data.copy_(features(OUT, seed=3))
    assert_close(block(x, graph)[alone], block.affine(x)[alone])
    assert_close(conv(x, graph)[alone], block.bias.expand_as(conv(x, graph)[alone]))
