r"""The CPU kernels: cache-sized blocks of rows, one slot at a time, on the cores that torch uses.

A slot of z is a sparse product (see :mod:`geoskip.kernels.cpu_tables`). A block of z is computed, used while it is in
the cache, and dropped. float64 is supported, so gradients can be checked; lower precisions are computed in float32.

Shapes: x is [*batch, senders, in]; weights are [slots or 1, edges, batch or 1], [slots, edges] or [edges]; Θ is
[slots, in, out] or [in, out].
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from geoskip.kernels.cpu_pooling import (
    max_pool,
    max_pool_gradients,
    mean_pool,
    mean_pool_gradients,
    segment_mean,
    segment_mean_gradients,
)
from geoskip.kernels.cpu_tables import (
    fits_cache,
    gather,
    gradients_of_own,
    in_own_precision,
    items_of,
    parts_of_batch,
    rows_of,
    spmm,
    table_of,
    weighted_sums,
    work_dtype,
)
from geoskip.kernels.pattern import Pattern
from geoskip.kernels.sparse import (
    chebyshev_convolution,
    chebyshev_convolution_gradients,
    sparse_product,
    sparse_product_gradients,
)

__all__ = [
    "basis_convolution",
    "basis_convolution_gradients",
    "chebyshev_convolution",
    "chebyshev_convolution_gradients",
    "max_pool",
    "max_pool_gradients",
    "mean_pool",
    "mean_pool_gradients",
    "perceptron_convolution",
    "perceptron_convolution_gradients",
    "segment_mean",
    "segment_mean_gradients",
    "softmax_basis",
    "softmax_basis_gradients",
    "sparse_product",
    "sparse_product_gradients",
    "spmm",
]

BLOCK_BYTES = 2 << 20

_threshold_backward = torch.ops.aten.threshold_backward.default


def basis_convolution(
    x: Tensor, weights: Tensor, theta: Tensor, pattern: Pattern, skip: Tensor | None, bias: Tensor | None
) -> Tensor:
    work = work_dtype(x)
    if x.dtype is not work or weights.dtype is not work:
        inputs = *_in_dtype(work, x, weights, theta), pattern, *_in_dtype(work, skip, bias)
        return in_own_precision(basis_convolution)(*inputs).to(x.dtype)
    if _has_one_slot(weights, theta):
        return _convolve_once(x, weights, theta, pattern, skip, bias)
    y = _convolve(x, _with_all_axes(weights), _stack(theta), pattern)
    if skip is not None:
        rows_of(y).addmm_(rows_of(x), skip)
    return y if bias is None else y.add_(bias)


@in_own_precision
def basis_convolution_gradients(
    grad_y: Tensor, needs: Sequence[bool], x: Tensor, weights: Tensor, theta: Tensor, pattern: Pattern,
    skip: Tensor | None, bias: Tensor | None,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    work, grad_y = work_dtype(x), grad_y.contiguous()
    if x.dtype is not work or weights.dtype is not work:
        inputs = *_in_dtype(work, x, weights, theta), pattern, *_in_dtype(work, skip, bias)
        gradients = basis_convolution_gradients(grad_y.to(work), needs, *inputs)
        given = x, weights, theta, None, skip, bias
        return tuple(g if g is None or t is None else g.to(t) for g, t in zip(gradients, given, strict=True))
    gradients = _gradients(grad_y, needs, x, weights, theta, pattern)
    return *_with_skip(gradients, grad_y, skip), None, *gradients_of_own(x, grad_y, needs[4], needs[5])


def perceptron_convolution(
    x: Tensor, weights: Tensor, epsilon: Tensor, theta: Tensor, pattern: Pattern, hidden_bias: Tensor,
    theta_out: Tensor, skip: Tensor | None, bias: Tensor,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """y, and the hidden layer after its ReLU."""
    hidden = _convolve_once(x, weights, theta, pattern, None, hidden_bias, 1 + epsilon.item()).relu_()
    y = torch.addmm(bias, rows_of(hidden), theta_out)
    if skip is not None:
        y.addmm_(rows_of(x), skip)
    return y if x.dim() == 2 else y.view(*x.shape[:-1], y.shape[1]), hidden


@in_own_precision
def perceptron_convolution_gradients(
    grad_y: Tensor, needs: Sequence[bool], x: Tensor, weights: Tensor, epsilon: Tensor, theta: Tensor,
    pattern: Pattern, hidden_bias: Tensor, theta_out: Tensor, skip: Tensor | None, bias: Tensor, hidden: Tensor,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """There is no gradient of ε: one that is trained has its own formula."""
    grad_y = grad_y.contiguous()
    grad_hidden = _threshold_backward(linear(grad_y, theta_out), hidden, 0)
    own = needs[0], needs[1], needs[3]
    gradients = _gradients(grad_hidden, own, x, weights, theta, pattern, 1 + epsilon.item())
    grad_x, grad_weights, grad_theta = _with_skip(gradients, grad_y, skip)
    grad_hidden_bias = rows_of(grad_hidden).sum(0) if needs[5] else None
    grad_out, grad_bias = gradients_of_own(hidden, grad_y, needs[6], needs[8])
    grad_skip, _ = gradients_of_own(x, grad_y, needs[7], False)
    return grad_x, grad_weights, None, grad_theta, None, grad_hidden_bias, grad_out, grad_skip, grad_bias


def softmax_basis(
    sender_scores: Tensor, receiver_scores: Tensor, offset: Tensor, edge_scale: Tensor, pattern: Pattern
) -> Tensor:
    """q [slots, edges, batch] of scores [batch, vertices, slots]: item by item, so that the edges of one stay in the
    cache. The weights of an item are contiguous."""
    batch, _, slots = sender_scores.shape
    work = work_dtype(sender_scores)
    weights = sender_scores.new_empty(batch, pattern.num_edges, slots, dtype=work)
    scale = edge_scale.to(work).unsqueeze(1)
    for i in range(batch):
        logits = sender_scores[i].to(work)[pattern.senders]
        logits += (receiver_scores[i].to(work) + offset.to(work))[pattern.receivers]
        torch.mul(torch.softmax(logits, dim=1), scale, out=weights[i])
    return weights.permute(2, 1, 0)


def softmax_basis_gradients(
    grad: Tensor, needs: Sequence[bool], sender_scores: Tensor, receiver_scores: Tensor, offset: Tensor,
    edge_scale: Tensor, pattern: Pattern, weights: Tensor,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    if weights.is_contiguous():
        grad = grad.contiguous()
    grad_senders = grad_receivers = grad_offset = None
    if needs[0]:
        sums = _softmax_gradients(grad, weights, edge_scale, pattern.by_sender, pattern.sender_offsets)
        grad_senders = sums.to(sender_scores)
    if needs[1] or needs[2]:
        edges = torch.arange(pattern.num_edges, device=grad.device)
        sums = _softmax_gradients(grad, weights, edge_scale, edges, pattern.offsets)
        grad_receivers = sums.to(receiver_scores) if needs[1] else None
        grad_offset = sums.sum((0, 1)).to(offset) if needs[2] else None
    return grad_senders, grad_receivers, grad_offset, None, None


def _softmax_gradients(grad: Tensor, weights: Tensor, edge_scale: Tensor, edges: Tensor, offsets: Tensor) -> Tensor:
    """The gradient of the scores at one end of the edges, which are given in the order of that end."""
    scale = edge_scale.to(weights.dtype).unsqueeze(1)
    scale = torch.where(scale == 0, 1, scale)
    out = weights.new_zeros(weights.shape[2], offsets.shape[1] - 1, weights.shape[0])
    for i, rows in enumerate(out if len(edges) else ()):
        w, g = weights[..., i].t(), grad[..., i].t()
        pulled = w * g
        pulled -= w * (pulled.sum(1, keepdim=True) / scale)
        rows.copy_(torch.embedding_bag(pulled.contiguous(), edges, offsets[0], False, 0, False, None, True)[0])
    return out


def _in_dtype(dtype: torch.dtype, *tensors: Tensor | None) -> list[Any]:
    return [None if tensor is None else tensor.to(dtype) for tensor in tensors]


def _stack(theta: Tensor) -> Tensor:
    """[in, out] as [1, in, out]."""
    return theta if theta.dim() == 3 else theta.unsqueeze(0)


def _with_all_axes(weights: Tensor) -> Tensor:
    """[edges] and [slots, edges] as [slots, edges, batch]."""
    weights = weights.unsqueeze(0) if weights.dim() == 1 else weights
    return weights.unsqueeze(2) if weights.dim() == 2 else weights


def _has_one_slot(weights: Tensor, theta: Tensor) -> bool:
    """Whether there is one slot, with weights that the batch shares."""
    return (theta.dim() == 2 or theta.shape[0] == 1) and (weights.dim() < 3 or weights.shape[2] == 1)


def _shared_weights(
    weights: Tensor, order: Tensor | None, x: Tensor, *others: Tensor
) -> Iterator[tuple[Tensor, Tensor, list[Tensor]]]:
    """Parts of the batch whose items share their weights: the weights by slot with the edges in ``order``, the features
    as a table of rows, and the same items of others."""
    if weights.shape[2] == 1:
        slots = _slots(weights[..., 0], order)
        for part, *parts in parts_of_batch(items_of(x), *others):
            yield slots, table_of(part), parts
    else:
        features, values = items_of(x), [items_of(other) for other in others]
        for i in range(len(features)):
            parts = [value[i : i + 1] for value in values]
            yield _slots(weights[..., i], order), features[i], parts


def _slots(weights: Tensor, order: Tensor | None) -> Tensor:
    # The weights of an edge are contiguous, so edges are reordered as a whole.
    return (weights if order is None else weights.t()[order].t()).contiguous()


def _blocks(rows: int, bytes_per_row: int) -> Iterator[tuple[int, int]]:
    step = max(16, BLOCK_BYTES // max(bytes_per_row, 1))
    return ((low, min(low + step, rows)) for low in range(0, rows, step))


def _aggregate(table: Tensor, weights: Tensor, neighbors: Tensor, offsets: Tensor) -> Tensor:
    """One slot of z for a block of rows, whose edges are consecutive."""
    low, high = int(offsets[0]), int(offsets[-1])
    return weighted_sums(table, weights[low:high], neighbors[low:high], offsets - low)


def _convolve(x: Tensor, weights: Tensor, theta: Tensor, pattern: Pattern) -> Tensor:
    """The sums over the neighbors, one slot after the other."""
    y = x.new_empty(*x.shape[:-2], pattern.num_receivers, theta.shape[2])
    for slots, table, (part_of_y,) in _shared_weights(weights, None, x, y):
        items, _, out = part_of_y.shape
        for low, high in _blocks(pattern.num_receivers, table.shape[1] * table.element_size()):
            sums = table.new_empty((high - low) * items, out)
            for m, matrix in enumerate(theta):
                offsets = pattern.offsets[m % pattern.groups, low : high + 1]
                z = _aggregate(table, slots[m % len(slots)], pattern.senders, offsets)
                sums.addmm_(z.view(-1, x.shape[-1]), matrix, beta=min(m, 1))
            part_of_y[:, low:high] = sums.view(high - low, items, out).transpose(0, 1)
    return y


def _convolve_once(
    x: Tensor, weights: Tensor, theta: Tensor, pattern: Pattern, skip: Tensor | None, bias: Tensor | None,
    center: float = 0.0,
) -> Tensor:  # fmt: skip
    """All of y with one slot. The fewer channels of x and y are gathered."""
    edges = weights.reshape(-1), pattern.senders, pattern.offsets[0], center
    matrix = theta if theta.dim() == 2 else theta[0]
    channels, out = matrix.shape

    def convolve(x: Tensor, y: Tensor | None = None) -> Tensor:
        if out < channels:
            sums = gather(x @ matrix, *edges)
            y = torch.add(sums, 0 if bias is None else bias, out=y)
        elif bias is None:
            y = torch.mm(gather(x, *edges), matrix, out=y)
        else:
            y = torch.addmm(bias, gather(x, *edges), matrix, out=y)
        return y if skip is None else y.addmm_(rows_of(x), skip)

    if x.dim() == 2:
        return convolve(x)
    shape = *x.shape[:-2], pattern.num_receivers, out
    if fits_cache(x):
        return convolve(items_of(x)).view(shape)
    y = x.new_empty(shape)
    for part, part_of_y in parts_of_batch(x, y):
        convolve(part, rows_of(part_of_y))
    return y


def _with_skip(gradients: tuple[Tensor | None, ...], grad_y: Tensor, skip: Tensor | None) -> tuple[Tensor | None, ...]:
    """Gradients of which the first is that of x, to which the skip adds its own."""
    if gradients[0] is not None and skip is not None:
        rows_of(gradients[0]).addmm_(rows_of(grad_y), skip.t())
    return gradients


def _gradients(
    grad_y: Tensor, needs: Sequence[bool], x: Tensor, weights: Tensor, theta: Tensor, pattern: Pattern,
    center: float = 0.0,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:  # fmt: skip
    """Gradients of x, the weights and Θ, of the sums over the neighbors."""
    needs_x, needs_weights, needs_theta = needs[:3]
    grad_x = grad_weights = grad_theta = None
    if needs_x or needs_theta:
        inputs = grad_y, needs_x, needs_theta, x, weights, theta, pattern
        if _has_one_slot(weights, theta):
            grad_x, grad_theta = _gradients_once(*inputs, center)
        else:
            grad_x, grad_theta = _gradients_by_slot(*inputs)
    if needs_weights:
        grad_weights = torch.zeros_like(weights)
        grads, features, slots = items_of(grad_y), items_of(x), _with_all_axes(grad_weights)
        parts = [slice(None)] if slots.shape[2] == 1 else [slice(i, i + 1) for i in range(len(grads))]
        for i, items in enumerate(parts):
            tables = table_of(grads[items]), table_of(features[items])
            _fill_weight_gradients(slots[..., i], *tables, _stack(theta), pattern)
    return grad_x, grad_weights, grad_theta


def _gradients_once(
    grad_y: Tensor, needs_x: bool, needs_theta: bool, x: Tensor, weights: Tensor, theta: Tensor, pattern: Pattern,
    center: float,
) -> tuple[Tensor | None, Tensor | None]:  # fmt: skip
    """Gradients of x and Θ with one slot: both from one pass over the gradients of y. That of Θ alone is from one pass
    over x if x has fewer channels than y."""
    edges = weights.reshape(-1), pattern.senders, pattern.offsets[0], center
    matrix = theta if theta.dim() == 2 else theta[0]
    if not needs_x and matrix.shape[0] < matrix.shape[1]:
        of_theta = torch.zeros_like(theta)
        for part, g in parts_of_batch(x, grad_y):
            _stack(of_theta)[0].addmm_(gather(part, *edges).t(), rows_of(g))
        return None, of_theta
    own_weights, receivers = (t.index_select(0, pattern.by_sender) for t in (edges[0], pattern.receivers))
    edges = own_weights, receivers, pattern.sender_offsets[0], center
    if x.dim() == 2 or fits_cache(grad_y):
        h = gather(grad_y if x.dim() == 2 else items_of(grad_y), *edges)
        grad_theta = (rows_of(x).t() @ h).view(theta.shape) if needs_theta else None
        return (h @ matrix.t()).view(x.shape) if needs_x else None, grad_theta
    grad_x, grad_theta = torch.empty_like(x if needs_x else x[..., :0]), torch.zeros_like(theta)
    for g, part, part_of_grad in parts_of_batch(grad_y, x, grad_x):
        h = gather(g, *edges)
        if needs_x:
            torch.mm(h, matrix.t(), out=rows_of(part_of_grad))
        if needs_theta:
            _stack(grad_theta)[0].addmm_(rows_of(part).t(), h)
    return grad_x if needs_x else None, grad_theta if needs_theta else None


def _gradients_by_slot(
    grad_y: Tensor, needs_x: bool, needs_theta: bool, x: Tensor, weights: Tensor, theta: Tensor, pattern: Pattern
) -> tuple[Tensor | None, Tensor | None]:  # fmt: skip
    """Gradients of x and Θ, one slot after the other."""
    grad_x, grad_theta = torch.empty_like(x if needs_x else x[..., :0]), torch.zeros_like(theta)
    out_neighbors, weights = pattern.receivers[pattern.by_sender], _with_all_axes(weights)
    for slots, table, (part, part_of_grad) in _shared_weights(weights, pattern.by_sender, grad_y, x, grad_x):
        of_x, of_theta = part_of_grad if needs_x else None, _stack(grad_theta) if needs_theta else None
        _gather_gradients(of_x, of_theta, part, table, _stack(theta), (slots, out_neighbors, pattern.sender_offsets))
    return grad_x if needs_x else None, grad_theta if needs_theta else None


def _gather_gradients(
    grad_x: Tensor | None, grad_theta: Tensor | None, x: Tensor, table: Tensor, theta: Tensor,
    edges: tuple[Tensor, Tensor, Tensor],
) -> None:  # fmt: skip
    r"""With :math:`h_m = \sum_i w_m(i,j)\, \partial y_i` over the edges out of j:
    :math:`\partial x_j = \sum_m h_m \Theta_m^\top` and :math:`\partial \Theta_m = \sum_j x_j^\top h_m`."""
    (slots, neighbors, offsets), (_, channels, out) = edges, theta.shape
    for low, high in _blocks(x.shape[1], table.shape[1] * table.element_size()):
        own = x[:, low:high].transpose(0, 1).reshape(-1, channels)
        sums = torch.empty_like(own)
        for m, matrix in enumerate(theta):
            h = _aggregate(table, slots[m % len(slots)], neighbors, offsets[m % len(offsets), low : high + 1])
            h = h.view(-1, out)
            if grad_x is not None:
                sums.addmm_(h, matrix.t(), beta=min(m, 1))
            if grad_theta is not None:
                grad_theta[m].addmm_(own.t(), h)
        if grad_x is not None:
            grad_x[:, low:high] = sums.view(high - low, len(x), channels).transpose(0, 1)


def _fill_weight_gradients(grad_weights: Tensor, grads: Tensor, table: Tensor, theta: Tensor, pattern: Pattern) -> None:
    r""":math:`\partial w_m(i,j) = \langle x_j, \partial y_i \Theta_m^\top \rangle`.

    Rows are taken in the order of their number of neighbors, so that a block wastes little on padding.
    """
    groups, offsets = pattern.groups, pattern.offsets
    for group in range(groups):
        matrices = theta[group : group + 1] if groups > 1 else theta
        degrees = offsets[group].diff()
        by_degree = torch.argsort(degrees, stable=True)
        by_degree = by_degree[degrees[by_degree] > 0]
        if len(by_degree) == 0 or table.numel() == 0:
            continue
        most = int(degrees.max())
        step = max(1, BLOCK_BYTES // (table.element_size() * table.shape[1] * (len(matrices) + min(most, 8))))
        for rows in by_degree.split(step):
            positions = torch.arange(int(degrees[rows[-1]]), device=table.device)
            present = positions < degrees[rows, None]
            edges = torch.where(present, offsets[group, rows, None] + positions, 0)
            block = grads[rows].view(-1, theta.shape[2])
            grad_z = torch.stack([block @ matrix.t() for matrix in matrices]).view(len(matrices), len(rows), -1)
            features = table[pattern.senders[edges]]
            dots = torch.bmm(features, grad_z.permute(1, 2, 0))
            grad_weights[:, edges[present]] = dots[present].t().to(grad_weights.dtype)
