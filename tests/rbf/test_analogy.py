"""The analogy of the paper, as equalities: filters as interpolants, interpolants as blocks."""

from itertools import product

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck
from torch.testing import assert_close

from geoskip.blocks.analogy import interpolant_block, interpolant_graph
from geoskip.operators import MoNetConv, RBFConv
from geoskip.rbf import KERNEL_NAMES, RBFInterpolant, fit_rbf, make_kernel, thin_plate_spline
from tests.rbf.scattered import normal, scattered, uniform, widths
from tests.specimens import features, specimen

IN, OUT = 3, 2


def filter_sum(interpolant: RBFInterpolant, x: Tensor, edge_index: Tensor, pseudo: Tensor) -> Tensor:
    """Σ_j x_j G(u_ij), one edge after the other."""
    y = torch.zeros(len(x), OUT, dtype=x.dtype)
    for edge, (sender, receiver) in enumerate(edge_index.T.tolist()):
        matrix = interpolant(pseudo[edge : edge + 1]).reshape(IN, OUT)
        y[receiver] += x[sender] @ matrix
    return y


@pytest.mark.parametrize("name", KERNEL_NAMES)
def test_a_filter_is_an_interpolant_evaluated_at_the_edges(name: str) -> None:
    graph, x = specimen(dim=2), features(7, IN)
    wanted = fit_rbf(scattered(6, 2), normal(6, IN * OUT), name, degree=-1, epsilon=widths(name, 2))
    conv = RBFConv.from_interpolant(wanted, IN, OUT)
    assert_close(conv(x, graph.graph()), filter_sum(wanted, x, graph.edge_index, graph.pseudo))


def test_monets_sum_is_a_gaussian_interpolant() -> None:
    """With the centers μ, the widths 1/ε = √2 σ, and the radial weights Θ."""
    graph, x, sigma = specimen(dim=2), features(7, IN), 0.4
    epsilon = 1 / (2**0.5 * sigma)
    wanted = fit_rbf(scattered(6, 2), normal(6, IN * OUT), "gaussian", degree=-1, epsilon=epsilon)
    conv = MoNetConv(IN, OUT, kernel_size=6, dim=2, bias=False).double()
    with torch.no_grad():
        conv.mean.copy_(wanted.centers)
        conv.scale.fill_(sigma)
        conv.theta.copy_(wanted.weights.reshape(6, IN, OUT))
    assert_close(conv(x, graph.graph()), filter_sum(wanted, x, graph.edge_index, graph.pseudo))


@pytest.mark.parametrize("bias", [True, False])
def test_every_monet_is_an_rbf_network(bias: bool) -> None:
    """Also with another width for each center and axis."""
    torch.manual_seed(0)
    monet = MoNetConv(IN, OUT, kernel_size=5, dim=2, bias=bias).double()
    graph, x = specimen(dim=2).graph(), features(4, 7, IN)
    same = RBFConv.from_monet(monet)
    assert_close(same(x, graph), monet(x, graph))
    counts = [sum(p.numel() for p in conv.parameters()) for conv in (monet, same)]
    assert counts[0] == counts[1] == 5 * IN * OUT + 2 * 5 * 2 + bias * OUT
    assert "kernel=gaussian" in repr(same)


@pytest.mark.parametrize(
    ("name", "degree", "dim"), [*((name, 1, 3) for name in KERNEL_NAMES), *product(["thin_plate"], [-1, 0, 1], [1, 2])]
)
def test_an_interpolant_is_a_block_with_an_affine_skip(name: str, degree: int, dim: int) -> None:
    interpolant = fit_rbf(scattered(12, dim), normal(12, 2), name, degree=degree, epsilon=widths(name, dim))
    points = uniform(9, dim, seed=6)
    x, graph = interpolant_graph(interpolant, points)
    block = interpolant_block(interpolant)
    assert_close(block(x, graph)[:9], interpolant(points), rtol=0, atol=1e-7)
    assert_close(block.convolution(x, graph)[:9], interpolant.radial(points), rtol=0, atol=1e-7)
    assert_close(block.affine(x)[:9], interpolant.polynomial(points), rtol=0, atol=1e-7)


def test_the_skip_is_what_reproduces_a_plane() -> None:
    """A plane through the centers leaves the convolution silent, and the skip says it all."""
    centers, points = scattered(12, 2), 3 * uniform(9, 2) - 1
    interpolant = thin_plate_spline(centers, centers @ normal(2, 2) + 1)
    block, (x, graph) = interpolant_block(interpolant), interpolant_graph(interpolant, points)
    assert block.convolution(x, graph)[:9].abs().max() < 1e-9
    assert_close(block(x, graph)[:9], points @ normal(2, 2) + 1)


def test_gradients() -> None:
    torch.manual_seed(0)
    conv = RBFConv(IN, OUT, kernel_size=3, dim=2, kernel=make_kernel("inverse_quadratic", 1.5)).double()
    graph, skip = specimen(dim=2).graph(), features(IN, OUT, seed=2).requires_grad_()
    names = [name for name, _ in conv.named_parameters()]

    def forward(x: Tensor, skip: Tensor, *parameters: Tensor) -> Tensor:
        given = dict(zip(names, parameters, strict=True))
        return torch.func.functional_call(conv, given, (x, graph), {"skip": skip})

    assert gradcheck(forward, (features(7, IN).requires_grad_(), skip, *conv.parameters()))


@pytest.mark.parametrize("degree", [0, -1])
def test_a_filter_of_another_shape_or_degree_is_rejected(degree: int) -> None:
    interpolant = fit_rbf(scattered(12, 2), normal(12, 2), "linear", degree=degree)
    with pytest.raises(ValueError, match=rf"expected degree -1 and 3·2 outputs, got degree {degree} and 2"):
        RBFConv.from_interpolant(interpolant, IN, OUT)


def test_a_kernel_that_does_not_exist_is_rejected() -> None:
    with pytest.raises(ValueError, match="kernel: 'gauss' is not one of"):
        RBFConv(IN, OUT, kernel_size=3, kernel="gauss")
