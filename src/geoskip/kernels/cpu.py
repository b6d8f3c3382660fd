r"""The CPU kernels: cache-sized blocks of rows, one slot at a time, on the cores that torch uses.

A slot of z is a sparse product, and a sparse product is an *embedding bag*: a weighted sum of rows of a table. torch
runs it close to memory speed. A block of z is computed, used while it is in the cache, and dropped. If the items of a
batch share their weights, a row of the table holds a vertex's features in all items. float64 is supported, so
gradients can be checked; lower precisions are computed in float32.

Shapes: x is [batch, senders, in], weights are [slots or 1, edges, batch or 1].
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from geoskip.kernels.pattern import Pattern, sizes_of
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
    "segment_mean",
    "segment_mean_gradients",
    "softmax_basis",
    "softmax_basis_gradients",
    "sparse_product",
    "sparse_product_gradients",
]

BLOCK_BYTES = 2 << 20


def basis_convolution(
    x: Tensor, weights: Tensor, theta: Tensor, pattern: Pattern, skip: Tensor | None, bias: Tensor | None
) -> Tensor:
    dtype, work = x.dtype, _work_dtype(x)
    x, theta = x.to(work), theta.to(work)
    if theta.shape[0] == weights.shape[2] == 1:
        y = _convolve_once(x, weights[0, :, 0].to(work), theta[0], pattern)
    else:
        y = x.new_empty(x.shape[0], pattern.num_receivers, theta.shape[2])
        for items, table, slots in _shared_weights(x, weights, None):
            copies = table.shape[1] // x.shape[2]
            for low, high in _blocks(y.shape[1], table.shape[1] * table.element_size()):
                sums = table.new_empty((high - low) * copies, theta.shape[2])
                for m, matrix in enumerate(theta):
                    offsets = pattern.offsets[m % pattern.groups, low : high + 1]
                    z = _aggregate(table, slots[m % len(slots)], pattern.senders, offsets)
                    sums.addmm_(z.view(-1, x.shape[2]), matrix, beta=min(m, 1))
                y[items, low:high] = sums.view(high - low, copies, theta.shape[2]).transpose(0, 1)
    if skip is not None:
        y.flatten(0, 1).addmm_(x.flatten(0, 1), skip.to(work))
    if bias is not None:
        y += bias.to(work)
    return y.to(dtype)


def basis_convolution_gradients(
    grad_y: Tensor, needs: Sequence[bool], x: Tensor, weights: Tensor, theta: Tensor, pattern: Pattern,
    skip: Tensor | None, bias: Tensor | None,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    grad_y, work = grad_y.contiguous(), _work_dtype(x)
    features, grads, matrices = x.to(work), grad_y.to(work), theta.to(work)
    needs_x, needs_weights, needs_theta = needs[:3]
    grad_x = grad_theta = None
    grad_weights = torch.zeros_like(weights, dtype=work) if needs_weights else None
    out_neighbors = pattern.receivers[pattern.by_sender]
    # With one slot, x and Θ have gradients of their own kind.
    once = theta.shape[0] == weights.shape[2] == 1
    if once and (needs_x or needs_theta):
        slot = weights[0, :, 0].to(work)[pattern.by_sender]
        edges = slot, out_neighbors, pattern.sender_offsets[0]
        grad_x, grad_theta = _gradients_once(grads, features, matrices[0], edges, needs_x, needs_theta)
    elif needs_x or needs_theta:
        grad_x = torch.empty_like(features) if needs_x else None
        grad_theta = torch.zeros_like(matrices) if needs_theta else None
    if needs_weights or not once:
        for items, table, slots in _shared_weights(grads, weights, pattern.by_sender):
            if not once and (needs_x or needs_theta):
                part = None if grad_x is None else grad_x[items]
                edges = slots, out_neighbors, pattern.sender_offsets
                _gather_gradients(part, grad_theta, features[items], table, matrices, edges)
            if grad_weights is not None:
                own = features[items].transpose(0, 1).flatten(1)
                part = grad_weights[..., 0 if weights.shape[2] == 1 else items.start]
                _fill_weight_gradients(part, table, own, matrices, pattern)
    if grad_x is not None and skip is not None:
        grad_x.flatten(0, 1).addmm_(grads.flatten(0, 1), skip.to(work).t())
    return (
        None if grad_x is None else grad_x.to(x.dtype),
        None if grad_weights is None else grad_weights.to(weights.dtype),
        None if grad_theta is None else grad_theta.to(theta.dtype),
        None,
        *add_parts(over_rows(x, grad_y, needs[4], needs[5]), (skip, bias)),
    )


def over_rows(x: Tensor, g: Tensor, needs_product: bool, needs_sum: bool) -> tuple[Tensor | None, Tensor | None]:
    """xᵀ g and the sums of the columns of g, of x [*rows, in] and g [*rows, out]: in parts, of which there is one."""
    x, g = x.flatten(0, -2), g.flatten(0, -2)
    return (x.t() @ g).unsqueeze(0) if needs_product else None, g.sum(0, keepdim=True) if needs_sum else None


def add_parts(parts: Sequence[Tensor | None], like: Sequence[Tensor | None]) -> list[Tensor | None]:
    """The sum of each tensor over its first axis, of length 1."""
    return [None if part is None else part.squeeze(0) for part in parts]


def spmm(
    x: Tensor, weights: Tensor, neighbors: Tensor, order: Tensor | None, offsets: Tensor, scale: float = 1.0,
    minus: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """``scale * W x - minus``. Row i of W has the edges ``offsets[0, i] : offsets[0, i + 1]``, or of ``order``."""
    work = _work_dtype(x)
    if order is not None:
        neighbors, weights = neighbors[order], weights[order]
    items = x.view(sizes_of(x)).to(work)
    sums = _aggregate(items.transpose(0, 1).flatten(1), weights.to(work) * scale, neighbors, offsets[0])
    y = x.new_empty(*x.shape[:-2], len(sums), x.shape[-1])
    y.view(len(items), len(sums), x.shape[-1]).copy_(sums.view(len(sums), len(items), x.shape[-1]).transpose(0, 1))
    return y if minus is None else y.sub_(minus)


def softmax_basis(
    sender_scores: Tensor, receiver_scores: Tensor, offset: Tensor, edge_scale: Tensor, pattern: Pattern
) -> Tensor:
    """q [slots, edges, batch] of scores [batch, vertices, slots]: item by item, so that the edges of one stay in the
    cache. The weights of an item are contiguous."""
    batch, _, slots = sender_scores.shape
    work = _work_dtype(sender_scores)
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
        rows.copy_(embedding_bag(edges, pulled.contiguous(), offsets[0], mode="sum", include_last_offset=True))
    return out


def max_pool(x: Tensor, pattern: Pattern) -> tuple[Tensor, Tensor]:
    """y, and nothing: the gradients count the members that are equal to it."""
    y = _segment_reduce(x.index_select(-2, pattern.senders), pattern.offsets[0], "max")
    return y, y.new_empty(0, dtype=torch.int32)


def max_pool_gradients(
    grad_y: Tensor, needs: Sequence[bool], x: Tensor, pattern: Pattern, counts: Tensor, y: Tensor
) -> tuple[Tensor | None, ...]:
    members, offsets = x.index_select(-2, pattern.senders), pattern.offsets[0]
    # Torch divides a gradient among equal maxima only if it is positive.
    shares = _segment_gradients(torch.ones_like(y), y, members, offsets, "max")
    grad_members = torch.where(shares > 0, shares * _segment_gradients(grad_y, y, members, offsets, "sum"), 0)
    return torch.zeros_like(x).index_add_(-2, pattern.senders, grad_members), None


def mean_pool(x: Tensor, pattern: Pattern) -> Tensor:
    return segment_mean(x.index_select(-2, pattern.senders), pattern.offsets[0])


def mean_pool_gradients(
    grad_y: Tensor, needs: Sequence[bool], x: Tensor, pattern: Pattern
) -> tuple[Tensor | None, ...]:
    members = x.new_empty(*x.shape[:-2], pattern.num_edges, x.shape[-1])
    grad_members, _ = segment_mean_gradients(grad_y, needs, members, pattern.offsets[0])
    return torch.zeros_like(x).index_add_(-2, pattern.senders, grad_members), None


def segment_mean(x: Tensor, offsets: Tensor) -> Tensor:
    return _segment_reduce(x, offsets, "sum") / _counts(offsets)


def segment_mean_gradients(grad_y: Tensor, needs: Sequence[bool], x: Tensor, offsets: Tensor) -> tuple[Tensor, None]:
    grad_sums = grad_y / _counts(offsets)
    return _segment_gradients(grad_sums, grad_sums, x, offsets, "sum"), None


def _counts(offsets: Tensor) -> Tensor:
    """The sizes of segments; 1 for empty ones, whose sum is 0."""
    return offsets.diff().clamp(min=1).unsqueeze(1)


def _segment_reduce(x: Tensor, offsets: Tensor, how: str) -> Tensor:
    y = torch.segment_reduce(x.movedim(-2, 0), how, offsets=offsets, axis=0)
    return y.movedim(0, -2).contiguous()


def _segment_gradients(grad_y: Tensor, y: Tensor, x: Tensor, offsets: Tensor, how: str) -> Tensor:
    """The gradient of x, of which the reduction is y."""
    grad_y, y, x = (tensor.movedim(-2, 0).contiguous() for tensor in (grad_y, y, x))
    grad_x = torch.ops.aten._segment_reduce_backward(grad_y, y, x, how, offsets=offsets, axis=0)
    return grad_x.movedim(0, -2).contiguous()


def _work_dtype(x: Tensor) -> torch.dtype:
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def _shared_weights(x: Tensor, weights: Tensor, order: Tensor | None) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Parts of the batch whose items share their weights: the items, their features as a table of rows, and the
    weights by slot with the edges in ``order``."""
    if weights.shape[2] == 1:
        yield slice(0, len(x)), x.transpose(0, 1).flatten(1), _slots(weights[..., 0].to(x.dtype), order)
    else:
        for i, item in enumerate(x):
            yield slice(i, i + 1), item.contiguous(), _slots(weights[..., i].to(x.dtype), order)


def _slots(weights: Tensor, order: Tensor | None) -> Tensor:
    # The weights of an edge are contiguous, so edges are reordered as a whole.
    return (weights if order is None else weights.t()[order].t()).contiguous()


def _blocks(rows: int, bytes_per_row: int) -> Iterator[tuple[int, int]]:
    step = max(16, BLOCK_BYTES // max(bytes_per_row, 1))
    return ((low, min(low + step, rows)) for low in range(0, rows, step))


def _aggregate(table: Tensor, weights: Tensor, neighbors: Tensor, offsets: Tensor) -> Tensor:
    """One slot of z for a block of rows, whose edges are consecutive."""
    low, high = int(offsets[0]), int(offsets[-1])
    if low == high or table.numel() == 0:
        return table.new_zeros(len(offsets) - 1, table.shape[1])
    return embedding_bag(
        neighbors[low:high],
        table,
        offsets - low,
        mode="sum",
        per_sample_weights=weights[low:high],
        include_last_offset=True,
    )


def _convolve_once(x: Tensor, weights: Tensor, theta: Tensor, pattern: Pattern) -> Tensor:
    """With one slot, x Θ comes first: the product itself brings the items of a vertex together."""
    table = x.new_empty(x.shape[1], len(x), theta.shape[1])
    torch.bmm(x, theta.expand(len(x), -1, -1), out=table.transpose(0, 1))
    y = _aggregate(table.flatten(1), weights, pattern.senders, pattern.offsets[0])
    if len(x) == 1:
        # No view, which autograd would not let users change in place.
        return y.unsqueeze_(0)
    return y.view(len(y), *table.shape[1:]).transpose(0, 1).clone(memory_format=torch.contiguous_format)


def _gradients_once(
    grads: Tensor, x: Tensor, theta: Tensor, edges: tuple[Tensor, Tensor, Tensor], needs_x: bool, needs_theta: bool
) -> tuple[Tensor | None, Tensor | None]:
    """Gradients of x and Θ with one slot: both from one pass over the gradients of y."""
    h = _aggregate(grads.transpose(0, 1).flatten(1), *edges)
    h = h.view(len(h), len(grads), grads.shape[2]).transpose(0, 1)
    grad_x = torch.bmm(h, theta.t().expand(len(x), -1, -1)) if needs_x else None
    grad_theta = torch.bmm(x.transpose(1, 2), h).sum(0, keepdim=True) if needs_theta else None
    return grad_x, grad_theta


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
