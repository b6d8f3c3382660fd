r"""ChebNet's recursion on CUDA.

Forward, :math:`y = \sum_k T_k(L)\, x\, \Theta_k`: each term is computed from the last two, as one sparse product.
Terms are stored one after the other, as many as fit in the memory that is set aside for them, and one kernel
multiplies all of them into y. Backward, with :math:`G_k = T_k(L^\top)\, \partial y`, the same recursion gives both
gradients:

.. math:: \partial x = \sum_k G_k \Theta_k^\top, \qquad \partial \Theta_k = x^\top G_k
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from geoskip.kernels.branches import branches, run_inline
from geoskip.kernels.pattern import Pattern
from geoskip.kernels.triton.launch import ceil_div
from geoskip.kernels.triton.products import OwnTerm, add_parts_into, multiply_terms, over_rows, spmm, spmm_plan

# Terms that are stored at a time may take this many bytes.
TERMS_BYTES = 192 << 20

# Which edges a row of a sparse matrix has: neighbors, order and offsets, as :func:`spmm` takes them.
Edges = tuple[Tensor, Tensor | None, Tensor]


def chebyshev_convolution(
    x: Tensor, weights: Tensor, theta: Tensor, pattern: Pattern, first: int, skip: Tensor | None,
    bias: Tensor | None,
) -> Tensor:  # fmt: skip
    """y = Σ_m T_{m+first}(L) x Θ_m + x A + b of x [*batch, vertices, in], with the entries of L in weights [edges]."""
    y = x.new_empty(*x.shape[:-1], theta.shape[2])
    own: OwnTerm | None = OwnTerm(x, None if first else theta[0], skip, bias)
    edges = pattern.senders, None, pattern.offsets
    for low, high, terms in _terms(x, weights, edges, first, len(theta)):
        multiply_terms(y, own, terms, theta[low:high], False)
        own = None
    return y


def chebyshev_convolution_gradients(
    grad_y: Tensor, needs: Sequence[bool], x: Tensor, weights: Tensor, theta: Tensor, pattern: Pattern, first: int,
    skip: Tensor | None, bias: Tensor | None,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    grad_y, (needs_x, _, needs_theta, _, _, needs_skip, needs_bias) = grad_y.contiguous(), needs
    grad_x, grad_theta, grad_skip, grad_bias = (
        torch.empty_like(tensor) if need and tensor is not None else None
        for tensor, need in ((x, needs_x), (theta, needs_theta), (skip, needs_skip), (bias, needs_bias))
    )
    has_center = first == 0 and grad_theta is not None
    own: OwnTerm | None = OwnTerm(grad_y, None if first else theta[0], skip, None)
    edges = pattern.receivers, pattern.by_sender, pattern.sender_offsets
    with branches(x) as fork:
        products, columns = fork(over_rows, x, grad_y, has_center or needs_skip, needs_bias)
        sums = [(products, grad_skip), (columns, grad_bias)]
        if first == 0 and grad_theta is not None:
            # Both multiply x.
            sums.append((products, grad_theta[0]))
        if grad_x is not None or grad_theta is not None:
            for low, high, terms in _terms(grad_y, weights, edges, first, len(theta)):
                if grad_theta is not None and low < high:
                    # No branch reads terms that will be overwritten.
                    run = fork if high == len(theta) else run_inline
                    products, _ = run(over_rows, x, terms, True, False, high - low)
                    sums.append((products, grad_theta[low:high]))
                if grad_x is not None:
                    multiply_terms(grad_x, own, terms, theta[low:high], True)
                    own = None
    add_parts_into(sums)
    return grad_x, None, grad_theta, None, None, grad_skip, grad_bias


def _terms(x: Tensor, weights: Tensor, edges: Edges, first: int, count: int) -> Iterator[tuple[int, int, Tensor]]:
    """T_{m+first}(L) x for each of ``count`` slots m, except T_0: as many at a time as memory allows, [slots,
    *x.shape], with the first of their slots and the one after the last. The next ones overwrite them. If T_0 is the
    only term, there is one empty share."""
    last = first + count - 1
    if last == 0:
        yield 1, 1, x.new_empty(0, *x.shape)
        return
    # Two at least: a term is written over the one before the last, which only the same row of it needs.
    shares = ceil_div(last, max(2, TERMS_BYTES // max(1, x.numel() * x.element_size())))
    at_once = ceil_div(last, shares)
    stored = x.new_empty(at_once, *x.shape)
    slots, before, term = stored.unbind(), x, x
    neighbors, order, offsets = edges
    # One lookup for all terms but the first, whose launches differ in addresses alone.
    _, plan = spmm_plan(x.shape, offsets.shape, 2.0, order is not None, True)
    for lowest in range(1, last + 1, at_once):
        highest = min(lowest + at_once, last + 1)
        for k in range(lowest, highest):
            y = slots[k - lowest]
            if k == 1:
                spmm(x, weights, *edges, out=y)
            elif plan is not None:
                plan(term, weights, before, y, neighbors, order, offsets)
            before, term = term, y
        low = max(lowest, first)
        if low < highest:
            yield low - first, highest - first, stored[low - lowest : highest - lowest]
