"""Sparse products, and ChebNet's recursion of them, on every fast path, against the reference."""

from __future__ import annotations

import importlib

import pytest
import torch
from torch import Tensor

from geoskip import kernels
from geoskip.kernels import use_path
from tests.kernels.paths import SMALL, Sizes, Where, cases, compare, drawn, edges, moved

pytestmark = pytest.mark.usefixtures("poisoned")
INTERPRETER_OR_GPU = [
    pytest.param("cpu", marks=pytest.mark.compiled, id="interpreter"),
    pytest.param("cuda", marks=pytest.mark.gpu, id="cuda"),
]


@pytest.mark.parametrize(("where", "sizes"), cases())
def test_sparse_product(where: Where, sizes: Sizes) -> None:
    pattern = edges(sizes)
    inputs = [drawn(*sizes.batch, sizes.vertices, sizes.channels, seed=1), drawn(pattern.num_edges, seed=2)]
    compare(lambda x, w, device: kernels.sparse_product(x, w, moved(pattern, device)), inputs, where)


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize(("where", "sizes"), cases())
def test_chebyshev_convolution(where: Where, sizes: Sizes, first: int) -> None:
    """L is scaled so that its polynomials stay of the order of 1."""
    pattern = edges(sizes)
    fixed = drawn(pattern.num_edges, seed=2) / (4 + sizes.hub)
    inputs = [
        drawn(*sizes.batch, sizes.vertices, sizes.channels, seed=1),
        drawn(sizes.slots, sizes.channels, sizes.out, seed=3),
        drawn(sizes.channels, sizes.out, seed=4),
        drawn(sizes.out, seed=5),
    ]

    def function(x, theta, skip, bias, device):
        weights = fixed.to(x.device, x.dtype)
        return kernels.chebyshev_convolution(x, weights, theta, moved(pattern, device), first, skip, bias)

    compare(function, inputs, where)


@pytest.mark.parametrize(("where", "sizes"), cases())
def test_chebyshev_convolution_with_a_gradient_of_its_weights(where: Where, sizes: Sizes) -> None:
    pattern = edges(sizes)
    inputs = [
        drawn(*sizes.batch, sizes.vertices, sizes.channels, seed=1),
        drawn(pattern.num_edges, seed=2) / (4 + sizes.hub),
        drawn(max(sizes.slots, 2), sizes.channels, sizes.out, seed=3),
        drawn(sizes.channels, sizes.out, seed=4),
        drawn(sizes.out, seed=5),
    ]

    def function(x, weights, theta, skip, bias, device):
        return kernels.chebyshev_convolution(x, weights, theta, moved(pattern, device), 0, skip, bias)

    compare(function, inputs, where)


@pytest.mark.compiled
@pytest.mark.parametrize("first", [0, 1, 3])
@pytest.mark.parametrize("at_once", [1, 2, 3, 4, 9])
def test_chebyshev_convolution_with_a_few_terms_at_a_time(
    at_once: int, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Graphs too large to store all terms in the memory that is set aside for them."""
    polynomials = importlib.import_module("geoskip.kernels.triton.polynomials")
    sizes = Sizes(4, 4, 6, (2,), 9)
    monkeypatch.setattr(polynomials, "TERMS_BYTES", at_once * 4 * 2 * sizes.vertices * sizes.channels)
    test_chebyshev_convolution(Where("interpreter"), sizes, first)


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("frozen", [{0}, {1}, {2, 3}, {0, 1}, {0, 2}, {1, 2, 3}])
@pytest.mark.parametrize("path", ["fast", pytest.param("interpreter", marks=pytest.mark.compiled)])
def test_chebyshev_convolution_with_frozen_inputs(path: str, frozen: set[int], first: int) -> None:
    pattern = edges(Sizes(2, 3, 3, (2,), 6))
    weights = drawn(pattern.num_edges, seed=9).float() / 4
    shapes = [(2, 6, 2), (3, 2, 3), (2, 3), (3,)]
    x, theta, skip, bias = inputs = [drawn(*shape, seed=i).float() for i, shape in enumerate(shapes)]
    free = [tensor.requires_grad_() for i, tensor in enumerate(inputs) if i not in frozen]

    def gradients(name: str) -> tuple[Tensor, ...]:
        with use_path(name):
            y = kernels.chebyshev_convolution(x, weights, theta, pattern, first, skip, bias)
            return torch.autograd.grad(y.square().sum(), free)

    found = gradients(path)
    for gradient, expected in zip(found, gradients("reference"), strict=True):
        assert float((gradient - expected).norm() / expected.norm()) < 1e-5
    # The optimizer changes gradients in place.
    assert len({gradient.untyped_storage().data_ptr() for gradient in found}) == len(found)


@pytest.mark.usefixtures("fresh_plans")
@pytest.mark.parametrize(("channels", "out"), [(1, 1), (3, 70), (40, 5), (32, 32), (33, 130)])
@pytest.mark.parametrize("num_terms", [1, 2, 5])
@pytest.mark.parametrize("programs", [1, 528])
@pytest.mark.parametrize("device", INTERPRETER_OR_GPU)
def test_products_over_rows(
    device: str, programs: int, num_terms: int, channels: int, out: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one program and with many; rows and columns that no block divides."""
    products = importlib.import_module("geoskip.kernels.triton.products")
    monkeypatch.setattr(products, "PROGRAMS", programs)
    monkeypatch.setattr(products, "TERM_PROGRAMS", programs)
    x, g = drawn(2, 83, channels, seed=1), drawn(num_terms, 2, 83, out, seed=2)
    given = [tensor.float().to(device) for tensor in (x, g if num_terms > 1 else g[0])]
    parts = products.over_rows(*given, True, num_terms == 1, num_terms)
    like = given[0].new_empty(num_terms, channels, out), given[0].new_empty(out)
    product, columns = products.add_parts(parts, like)
    expected = torch.einsum("brc,tbro->tco", x, g)
    assert float((product.cpu() - expected).norm() / expected.norm()) < 1e-5
    if num_terms == 1:
        assert torch.allclose(columns.cpu(), g.sum((0, 1, 2)).float(), atol=1e-4)
    else:
        assert columns is None


@pytest.mark.parametrize("device", INTERPRETER_OR_GPU)
def test_sums_of_many_parts(device: str) -> None:
    """More sums than one launch adds up, more parts than a block has, no numbers at all, and None."""
    products = importlib.import_module("geoskip.kernels.triton.products")
    shapes = [(1, 1), (600, 3), (257, 40), (2, 0), (5, 33), (3, 2), (256, 64), (31, 7)]
    parts = [drawn(*shape, seed=k).float().to(device) for k, shape in enumerate(shapes)]
    sums = [torch.full_like(part[0], torch.nan) for part in parts]
    products.add_parts_into([(None, sums[0]), (parts[0], None), *zip(parts, sums, strict=True)])
    for part, total in zip(parts, sums, strict=True):
        assert torch.allclose(total.double(), part.double().sum(0), atol=1e-4)


@pytest.mark.usefixtures("fresh_plans")
@pytest.mark.parametrize("sizes", [SMALL[1], SMALL[2], Sizes(130, 3, 1, (), 70, hub=9)])
@pytest.mark.parametrize("where", [pytest.param(Where("interpreter"), marks=pytest.mark.compiled)])
def test_sparse_products_of_large_graphs(where: Where, sizes: Sizes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every graph is taken for a large one."""
    products = importlib.import_module("geoskip.kernels.triton.products")
    monkeypatch.setattr(products, "SPMM_PROGRAMS", 1)
    test_sparse_product(where, sizes)
