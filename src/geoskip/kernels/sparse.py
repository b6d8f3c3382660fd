r"""The sparse product on the CPU and on CUDA, and ChebNet's recursion of sparse products on the CPU.

Forward, :math:`y = \sum_k T_k(L)\, x\, \Theta_k`: each term is computed from the last two, multiplied into y, and
dropped. Backward, with :math:`G_k = T_k(L^\top)\, \partial y`, the same recursion gives both gradients:

.. math:: \partial x = \sum_k G_k \Theta_k^\top, \qquad \partial \Theta_k = x^\top G_k

On CUDA, :mod:`geoskip.kernels.triton.polynomials` multiplies many terms at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from geoskip.kernels.cpu_tables import gradients_of_own, parts_of_batch, rows_of, work_dtype
from geoskip.kernels.paths import kernels_for
from geoskip.kernels.pattern import Pattern


def sparse_product(x: Tensor, weights: Tensor, pattern: Pattern) -> Tensor:
    """W x for every item of x [*batch, senders, channels], with the entries of W in weights [edges]."""
    return kernels_for(x).spmm(x, weights, pattern.senders, None, pattern.offsets)


def sparse_product_gradients(
    grad_y: Tensor, needs: Sequence[bool], x: Tensor | None, weights: Tensor, pattern: Pattern
) -> tuple[Tensor | None, ...]:
    grad_y = grad_y.contiguous()
    grad_x = grad_weights = None
    if needs[0]:
        transposed = pattern.receivers, pattern.by_sender, pattern.sender_offsets
        grad_x = kernels_for(grad_y).spmm(grad_y, weights, *transposed)
    if needs[1] and x is not None:
        products = grad_y.index_select(-2, pattern.receivers) * x.index_select(-2, pattern.senders)
        grad_weights = products.sum((*range(x.dim() - 2), -1), dtype=weights.dtype)
    return grad_x, grad_weights, None


def chebyshev_convolution(
    x: Tensor, weights: Tensor, theta: Tensor, pattern: Pattern, first: int, skip: Tensor | None,
    bias: Tensor | None,
) -> Tensor:  # fmt: skip
    """y = Σ_m T_{m+first}(L) x Θ_m + x A + b of x [*batch, vertices, in], with the entries of L in weights [edges]."""
    y, matrix = x.new_empty(*x.shape[:-1], theta.shape[2]), _matrix_of_x(theta, first, skip)
    edges = pattern.senders, None, pattern.offsets
    for part, part_of_y in parts_of_batch(x, y):
        flat, flat_y = rows_of(part), rows_of(part_of_y)
        if matrix is None:
            flat_y.copy_(torch.zeros_like(flat_y[:1]) if bias is None else bias)
        elif bias is None:
            torch.mm(flat, matrix, out=flat_y)
        else:
            torch.addmm(bias.to(x.dtype), flat, matrix, out=flat_y)
        for m, term in _terms(part, weights, edges, first, len(theta)):
            flat_y.addmm_(term, theta[m])
    return y


def chebyshev_convolution_gradients(
    grad_y: Tensor, needs: Sequence[bool], x: Tensor, weights: Tensor, theta: Tensor, pattern: Pattern, first: int,
    skip: Tensor | None, bias: Tensor | None,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    grad_y = grad_y.contiguous()
    matrix, grad_x, products = _matrix_of_x(theta, first, skip), torch.empty_like(x), theta.new_empty(theta.shape[1:])
    # Over the parts of a batch, lower precisions are summed in float32.
    grad_theta = torch.zeros_like(theta, dtype=work_dtype(x))
    grad_skip, grad_bias = gradients_of_own(x, grad_y, needs[5] or first == 0, needs[6])
    if first == 0 and grad_skip is not None:
        # Both multiply x.
        grad_theta[0] = grad_skip
    transposed = pattern.receivers.index_select(0, pattern.by_sender), None, pattern.sender_offsets
    weights = weights.index_select(0, pattern.by_sender)
    for part, part_of_grad, part_of_grad_x in parts_of_batch(x, grad_y, grad_x):
        flat, flat_grad = rows_of(part), rows_of(part_of_grad_x)
        if matrix is None:
            flat_grad.zero_()
        else:
            torch.mm(rows_of(part_of_grad), matrix.t(), out=flat_grad)
        for m, term in _terms(part_of_grad, weights, transposed, first, len(theta)):
            flat_grad.addmm_(term, theta[m].t())
            grad_theta[m] += torch.mm(flat.t(), term, out=products)
    return (
        *(grad_x if needs[0] else None, None, grad_theta.to(theta.dtype) if needs[2] else None, None, None),
        *(grad_skip if needs[5] else None, grad_bias),
    )


def _matrix_of_x(theta: Tensor, first: int, skip: Tensor | None) -> Tensor | None:
    """The matrix that multiplies x itself: A, plus Θ_0 if the polynomials start with T_0 = 1."""
    if first > 0:
        return skip
    return theta[0] if skip is None else theta[0] + skip


def _terms(
    x: Tensor, weights: Tensor, edges: tuple[Tensor, Tensor | None, Tensor], first: int, count: int
) -> Iterator[tuple[int, Tensor]]:
    """Each slot m and T_{m+first}(L) x [rows, channels], except T_0."""
    before, term, twice = x, x, 2 * weights
    for k in range(1, first + count):
        arguments = (weights, *edges) if k == 1 else (twice, *edges, 1.0, before)
        before, term = term, kernels_for(x).spmm(term, *arguments)
        if k >= first:
            yield k - first, term.view(-1, x.shape[-1])
