r"""The CPU path: cache-sized blocks of rows, one slot at a time, on the cores that torch uses.

A slot of z is a sparse product, and a sparse product is an *embedding bag*: a weighted sum of rows of a table.
That kernel of torch runs close to memory speed, so z of a block is made, used while it lies in the cache, and
forgotten. Where the items of a batch share their weights, a row of the table holds a vertex's features in all of
them. float64 is supported, so gradients can be checked; lower precisions are computed in float32.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from geoskip.kernels.branches import Beside, in_turn

BLOCK_BYTES = 2 << 20

# senders, receivers, offsets, by_sender, sender_offsets: see Pattern
Edges = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]
Gradients = tuple[Tensor | None, Tensor | None, Tensor | None]


def convolve(
    x: Tensor,
    weights: Tensor,
    theta: Tensor,
    neighbors: Tensor,
    order: Tensor | None,
    offsets: Tensor,
    skip: Tensor | None,
    bias: Tensor | None,
) -> Tensor:
    dtype, work = x.dtype, _work_dtype(x)
    x, theta = x.to(work), theta.to(work)
    if order is not None:
        neighbors = neighbors[order]
    if theta.shape[0] == weights.shape[2] == 1:
        y = _convolve_once(x, weights[0, :, 0].to(work), theta[0], neighbors, order, offsets[0])
        return _with_own(y, x, skip, bias).to(dtype)
    y = x.new_empty(x.shape[0], offsets.shape[1] - 1, theta.shape[2])
    for item, table, slots in _items(x, weights, order):
        copies = table.shape[1] // x.shape[2]
        for low, high in _blocks(y.shape[1], table.shape[1] * table.element_size()):
            sums = table.new_empty((high - low) * copies, theta.shape[2])
            for m, matrix in enumerate(theta):
                z = _aggregate(table, slots[m % len(slots)], neighbors, offsets[m % len(offsets), low : high + 1])
                sums.addmm_(z.view(-1, x.shape[2]), matrix, beta=min(m, 1))
            y[item, low:high] = sums.view(high - low, copies, theta.shape[2]).transpose(0, 1)
    return _with_own(y, x, skip, bias).to(dtype)


def convolve_gradients(
    grad_y: Tensor,
    x: Tensor,
    weights: Tensor,
    theta: Tensor,
    edges: Edges,
    skip: Tensor | None,
    needs: Sequence[bool],
    beside: Beside = in_turn,
) -> Gradients:
    """Gradients of x, of the weights and of Θ, where ``needs`` asks for them; they share their gathers, so nothing is
    done beside."""
    senders, receivers, offsets, by_sender, sender_offsets = edges
    work = _work_dtype(x)
    own, grads, matrices = x.to(work), grad_y.to(work), theta.to(work)
    grad_weights = torch.zeros_like(weights, dtype=work) if needs[1] else None
    backwards = receivers[by_sender], sender_offsets
    if once := theta.shape[0] == weights.shape[2] == 1:
        slot = weights[0, :, 0].to(work)[by_sender]
        grad_x, grad_theta = _gradients_once(grads, own, slot, matrices[0], backwards, needs)
    else:
        grad_x = torch.empty_like(own) if needs[0] else None
        grad_theta = torch.zeros_like(matrices) if needs[2] else None
    for item, table, slots in [] if once and not needs[1] else _items(grads, weights, by_sender):
        if not once and (grad_x is not None or grad_theta is not None):
            _gather_gradients(
                None if grad_x is None else grad_x[item], grad_theta, own[item], table, slots, matrices, backwards
            )
        if grad_weights is not None:
            features = own[item].transpose(0, 1).flatten(1)
            place = grad_weights[..., 0 if weights.shape[2] == 1 else item.start]
            _fill_weight_gradient(place, table, features, matrices, senders, offsets)
    if grad_x is not None and skip is not None:
        grad_x.flatten(0, 1).addmm_(grads.flatten(0, 1), skip.to(work).t())
    return (
        None if grad_x is None else grad_x.to(x.dtype),
        None if grad_weights is None else grad_weights.to(weights.dtype),
        None if grad_theta is None else grad_theta.to(theta.dtype),
    )


def product(
    x: Tensor,
    weights: Tensor,
    neighbors: Tensor,
    order: Tensor | None,
    offsets: Tensor,
    scale: float = 1.0,
    minus: Tensor | None = None,
) -> Tensor:
    dtype, work = x.dtype, _work_dtype(x)
    if order is not None:
        neighbors, weights = neighbors[order], weights[order]
    table = x.to(work).transpose(0, 1).flatten(1)
    y = _aggregate(table, weights.to(work) * scale, neighbors, offsets[0])
    y = y.view(len(y), x.shape[0], x.shape[2]).transpose(0, 1).to(dtype)
    return y.contiguous() if minus is None else y - minus


def softmax(
    sender_scores: Tensor,
    receiver_scores: Tensor,
    offset: Tensor,
    edge_scale: Tensor,
    senders: Tensor,
    receivers: Tensor,
) -> Tensor:
    """Item by item, so that the edges of one stay in the cache; weights of an item lie together."""
    batch, _, slots = sender_scores.shape
    work = _work_dtype(sender_scores)
    weights = torch.empty(batch, len(senders), slots, dtype=work)
    scale = edge_scale.to(work).unsqueeze(1)
    for i in range(batch):
        logits = sender_scores[i].to(work)[senders]
        logits += (receiver_scores[i].to(work) + offset.to(work))[receivers]
        torch.mul(torch.softmax(logits, dim=1), scale, out=weights[i])
    return weights.permute(2, 1, 0)


def softmax_gradients(
    grad: Tensor, weights: Tensor, edge_scale: Tensor, order: Tensor | None, offsets: Tensor
) -> Tensor:
    edges = torch.arange(weights.shape[1]) if order is None else order
    scale = edge_scale.to(weights.dtype).unsqueeze(1)
    scale = torch.where(scale == 0, 1, scale)
    out = weights.new_empty(weights.shape[2], offsets.shape[1] - 1, weights.shape[0])
    for i, rows in enumerate(out):
        w, g = weights[..., i].t(), grad[..., i].t()
        pulled = w * g
        pulled -= w * (pulled.sum(1, keepdim=True) / scale)
        if len(edges):
            rows.copy_(embedding_bag(edges, pulled.contiguous(), offsets[0], mode="sum", include_last_offset=True))
        else:
            rows.zero_()
    return out


def over_rows(x: Tensor, g: Tensor, needs_product: bool, needs_sum: bool) -> tuple[Tensor | None, Tensor | None]:
    """xᵀ g and the sums of the columns of g, of x [rows, in] and g [rows, out]."""
    return x.t() @ g if needs_product else None, g.sum(0) if needs_sum else None


def _work_dtype(x: Tensor) -> torch.dtype:
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def _items(x: Tensor, weights: Tensor, order: Tensor | None) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Parts of the batch with equal weights: which items, their features as a table of rows, weights by slot with
    the edges in ``order``."""
    if weights.shape[2] == 1:
        yield slice(0, len(x)), x.transpose(0, 1).flatten(1), _slots(weights[..., 0].to(x.dtype), order)
    else:
        for i, item in enumerate(x):
            yield slice(i, i + 1), item.contiguous(), _slots(weights[..., i].to(x.dtype), order)


def _slots(weights: Tensor, order: Tensor | None) -> Tensor:
    # The weights of an edge lie together, so edges are reordered whole.
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


def _convolve_once(
    x: Tensor, weights: Tensor, theta: Tensor, neighbors: Tensor, order: Tensor | None, offsets: Tensor
) -> Tensor:
    """With one slot, x Θ comes first: the product itself brings the items of a vertex together."""
    table = x.new_empty(x.shape[1], len(x), theta.shape[1])
    torch.bmm(x, theta.expand(len(x), -1, -1), out=table.transpose(0, 1))
    y = _aggregate(table.flatten(1), weights if order is None else weights[order], neighbors, offsets)
    return y.view(len(y), *table.shape[1:]).transpose(0, 1).contiguous()


def _with_own(y: Tensor, x: Tensor, skip: Tensor | None, bias: Tensor | None) -> Tensor:
    """With what a vertex adds of its own; ``y`` is overwritten."""
    if skip is not None:
        y.flatten(0, 1).addmm_(x.flatten(0, 1), skip.to(x.dtype))
    if bias is not None:
        y += bias.to(x.dtype)
    return y


def _gradients_once(
    grads: Tensor, x: Tensor, weights: Tensor, theta: Tensor, backwards: tuple[Tensor, Tensor], needs: Sequence[bool]
) -> tuple[Tensor | None, Tensor | None]:
    """Gradients of x and Θ with one slot: both from one pass over the gradients of y."""
    table = grads.transpose(0, 1).flatten(1)
    h = _aggregate(table, weights, backwards[0], backwards[1][0])
    h = h.view(len(h), len(grads), grads.shape[2]).transpose(0, 1)
    grad_x = torch.bmm(h, theta.t().expand(len(x), -1, -1)) if needs[0] else None
    grad_theta = torch.bmm(x.transpose(1, 2), h).sum(0, keepdim=True) if needs[2] else None
    return grad_x, grad_theta


def _gather_gradients(
    grad_x: Tensor | None,
    grad_theta: Tensor | None,
    x: Tensor,
    table: Tensor,
    slots: Tensor,
    theta: Tensor,
    backwards: tuple[Tensor, Tensor],
) -> None:
    r"""With :math:`h_m = \sum_i w_m(i,j)\, \partial y_i` over the edges out of j:
    :math:`\partial x_j = \sum_m h_m \Theta_m^\top` and :math:`\partial \Theta_m = \sum_j x_j^\top h_m`."""
    (neighbors, offsets), (_, channels, out) = backwards, theta.shape
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


def _fill_weight_gradient(
    grad_weights: Tensor, grads: Tensor, table: Tensor, theta: Tensor, senders: Tensor, offsets: Tensor
) -> None:
    r""":math:`\partial w_m(i,j) = \langle x_j, \partial y_i \Theta_m^\top \rangle`.

    Rows are taken in the order of their number of neighbors, so that a block wastes little on padding.
    """
    groups = offsets.shape[0]
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
            places = torch.arange(int(degrees[rows[-1]]))
            present = places < degrees[rows, None]
            edges = torch.where(present, offsets[group, rows, None] + places, 0)
            block = grads[rows].view(-1, theta.shape[2])
            grad_z = torch.stack([block @ matrix.t() for matrix in matrices]).view(len(matrices), len(rows), -1)
            near = table[senders[edges]]
            dots = torch.bmm(near, grad_z.permute(1, 2, 0))
            grad_weights[:, edges[present]] = dots[present].t().to(grad_weights.dtype)
