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

BLOCK_BYTES = 2 << 20

# senders, receivers, offsets, by_sender, sender_offsets: see Pattern
Edges = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]
Gradients = tuple[Tensor | None, Tensor | None, Tensor | None]


def convolve(
    x: Tensor,
    weights: Tensor,
    theta: Tensor,
    neighbours: Tensor,
    order: Tensor | None,
    offsets: Tensor,
    skip: Tensor | None,
    bias: Tensor | None,
) -> Tensor:
    dtype, work = x.dtype, _work_dtype(x)
    x, theta = x.to(work), theta.to(work)
    if order is not None:
        neighbours, weights = neighbours[order], weights[:, order]
    y = x.new_zeros(x.shape[0], offsets.shape[1] - 1, theta.shape[2])
    for item, table, slots in _items(x, weights):
        copies = table.shape[1] // x.shape[2]
        for low, high in _blocks(y.shape[1], table.shape[1] * table.element_size()):
            sums = table.new_zeros((high - low) * copies, theta.shape[2])
            for m, matrix in enumerate(theta):
                z = _aggregate(table, slots[m % len(slots)], neighbours, offsets[m % len(offsets), low : high + 1])
                sums.addmm_(z.view(-1, x.shape[2]), matrix)
            y[item, low:high] = sums.view(high - low, copies, theta.shape[2]).transpose(0, 1)
    if skip is not None:
        y += x @ skip.to(work)
    if bias is not None:
        y += bias.to(work)
    return y.to(dtype)


def convolve_gradients(
    grad_y: Tensor,
    x: Tensor,
    weights: Tensor,
    theta: Tensor,
    edges: Edges,
    skip: Tensor | None,
    needs: Sequence[bool],
) -> Gradients:
    """Gradients of x, of the weights and of Θ, where ``needs`` asks for them."""
    senders, receivers, offsets, by_sender, sender_offsets = edges
    grad_x = grad_weights = grad_theta = None
    if needs[0]:
        # The same operator on the reversed graph with each Θ_m transposed.
        skip = None if skip is None else skip.t()
        grad_x = convolve(grad_y, weights, theta.transpose(1, 2), receivers, by_sender, sender_offsets, skip, None)
    work = _work_dtype(x)
    x, grad_y, matrices = x.to(work), grad_y.to(work), theta.to(work)
    if needs[1]:
        grad_weights = torch.zeros_like(weights, dtype=work)
    if needs[2]:
        grad_theta = torch.zeros_like(matrices)
    for item, table, slots in _items(x, weights):
        grads = grad_y[item].transpose(0, 1).flatten(1)
        if grad_theta is not None:
            _add_theta_gradient(grad_theta, grads, table, slots, senders, offsets)
        if grad_weights is not None:
            place = grad_weights[..., 0 if weights.shape[2] == 1 else item.start]
            _fill_weight_gradient(place, grads, table, matrices, senders, offsets)
    return (
        grad_x,
        None if grad_weights is None else grad_weights.to(weights.dtype),
        None if grad_theta is None else grad_theta.to(theta.dtype),
    )


def product(
    x: Tensor,
    weights: Tensor,
    neighbours: Tensor,
    order: Tensor | None,
    offsets: Tensor,
    scale: float = 1.0,
    minus: Tensor | None = None,
) -> Tensor:
    dtype, work = x.dtype, _work_dtype(x)
    if order is not None:
        neighbours, weights = neighbours[order], weights[order]
    table = x.to(work).transpose(0, 1).flatten(1)
    y = _aggregate(table, weights.to(work) * scale, neighbours, offsets[0])
    y = y.view(len(y), x.shape[0], x.shape[2]).transpose(0, 1).to(dtype)
    return y.contiguous() if minus is None else y - minus


def _work_dtype(x: Tensor) -> torch.dtype:
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def _items(x: Tensor, weights: Tensor) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Parts of the batch with equal weights: which items, their features as a table of rows, weights by slot."""
    if weights.shape[2] == 1:
        yield slice(0, len(x)), x.transpose(0, 1).flatten(1), weights[..., 0].to(x.dtype)
    else:
        for i, item in enumerate(x):
            yield slice(i, i + 1), item.contiguous(), weights[..., i].to(x.dtype).contiguous()


def _blocks(rows: int, bytes_per_row: int) -> Iterator[tuple[int, int]]:
    step = max(16, BLOCK_BYTES // max(bytes_per_row, 1))
    return ((low, min(low + step, rows)) for low in range(0, rows, step))


def _aggregate(table: Tensor, weights: Tensor, neighbours: Tensor, offsets: Tensor) -> Tensor:
    """One slot of z for a block of rows, whose edges are consecutive."""
    low, high = int(offsets[0]), int(offsets[-1])
    if low == high or table.numel() == 0:
        return table.new_zeros(len(offsets) - 1, table.shape[1])
    return embedding_bag(
        neighbours[low:high],
        table,
        offsets - low,
        mode="sum",
        per_sample_weights=weights[low:high],
        include_last_offset=True,
    )


def _add_theta_gradient(
    grad_theta: Tensor, grads: Tensor, table: Tensor, slots: Tensor, senders: Tensor, offsets: Tensor
) -> None:
    channels, out = grad_theta.shape[1:]
    for low, high in _blocks(grads.shape[0], table.shape[1] * table.element_size()):
        block = grads[low:high].reshape(-1, out)
        for m, matrix in enumerate(grad_theta):
            z = _aggregate(table, slots[m % len(slots)], senders, offsets[m % len(offsets), low : high + 1])
            matrix.addmm_(z.view(-1, channels).t(), block)


def _fill_weight_gradient(
    grad_weights: Tensor, grads: Tensor, table: Tensor, theta: Tensor, senders: Tensor, offsets: Tensor
) -> None:
    r""":math:`\partial w_m(i,j) = \langle x_j, \partial y_i \Theta_m^\top \rangle`.

    Rows are taken in the order of their number of neighbours, so that a block wastes little on padding.
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
