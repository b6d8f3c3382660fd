r"""The sparse product and ChebNet's recursion of sparse products, on the CPU and on CUDA.

Forward, :math:`y = \sum_k T_k(L)\, x\, \Theta_k`: each term is computed from the last two, multiplied into y and
dropped. Backward, with :math:`G_k = T_k(L^\top)\, \partial y`, the same recursion gives both gradients:

.. math:: \partial x = \sum_k G_k \Theta_k^\top, \qquad \partial \Theta_k = x^\top G_k
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from geoskip.kernels.paths import kernels_for
from geoskip.kernels.pattern import Pattern


def sparse_product(x: Tensor, weights: Tensor, pattern: Pattern) -> Tensor:
    """W x for every item of x [batch, senders, channels], with the entries of W in weights [edges]."""
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
        products = grad_y[:, pattern.receivers] * x[:, pattern.senders]
        grad_weights = products.sum((0, 2), dtype=weights.dtype)
    return grad_x, grad_weights, None


def chebyshev_convolution(
    x: Tensor, weights: Tensor, theta: Tensor, pattern: Pattern, first: int, skip: Tensor | None,
    bias: Tensor | None,
) -> Tensor:  # fmt: skip
    """y = Σ_m T_{m+first}(L) x Θ_m + x A + b of x [batch, vertices, in], with the entries of L in weights [edges]."""
    batch, vertices, _ = x.shape
    out = theta.shape[2]
    y = x.new_zeros(batch * vertices, out) if bias is None else bias.to(x.dtype).repeat(batch * vertices, 1)
    if skip is not None:
        y.addmm_(x.flatten(0, 1), skip)
    terms = _terms(x, weights, (pattern.senders, None, pattern.offsets), first, len(theta))
    for term, matrix in zip(terms, theta, strict=True):
        y.addmm_(term, matrix)
    return y.view(batch, vertices, out)


def chebyshev_convolution_gradients(
    grad_y: Tensor, needs: Sequence[bool], x: Tensor, weights: Tensor, theta: Tensor, pattern: Pattern, first: int,
    skip: Tensor | None, bias: Tensor | None,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    grad_y, kernels = grad_y.contiguous(), kernels_for(x)
    flat, flat_grad = x.flatten(0, 1), grad_y.flatten(0, 1)
    grad_x = torch.zeros_like(flat) if skip is None else flat_grad @ skip.t()
    grad_theta = torch.empty_like(theta)
    transposed = pattern.receivers, pattern.by_sender, pattern.sender_offsets
    for m, term in enumerate(_terms(grad_y, weights, transposed, first, len(theta))):
        grad_x.addmm_(term, theta[m].t())
        grad_theta[m] = kernels.over_rows(flat, term, True, False)[0]
    own = kernels.own_gradients(grad_y, x, needs[5], needs[6])
    return grad_x.view_as(x) if needs[0] else None, None, grad_theta if needs[2] else None, None, None, *own


def _terms(
    x: Tensor, weights: Tensor, edges: tuple[Tensor, Tensor | None, Tensor], first: int, count: int
) -> Iterator[Tensor]:
    """T_first(L) x, T_{first+1}(L) x, … as matrices [batch · vertices, channels]."""
    spmm = kernels_for(x).spmm
    before, term = x, x
    for k in range(first + count):
        if k == 1:
            term = spmm(x, weights, *edges)
        elif k > 1:
            before, term = term, spmm(term, weights, *edges, 2.0, before)
        if k >= first:
            yield term.flatten(0, 1)
