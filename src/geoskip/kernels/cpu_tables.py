"""What the CPU kernels share: their precision, and tables of features whose rows are gathered.

A sparse product is an *embedding bag*, a weighted sum of rows of a table, which torch runs close to memory speed. If
the items of a batch share their weights, a row of the table holds a vertex's features in several items: as many as fit
into the cache together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from geoskip.kernels.pattern import sizes_of

# Of a table, whose rows are read several times: half of a core's cache.
TABLE_BYTES = 512 << 10

Function = TypeVar("Function", bound=Callable[..., Any])


def in_own_precision(function: Function) -> Function:
    """Without autocast, which would cast the products: kernels choose their precision themselves."""

    @wraps(function)
    def run(*args: Any) -> Any:
        if not torch._C._is_any_autocast_enabled():
            return function(*args)
        with torch.autocast("cpu", enabled=False):
            return function(*args)

    return cast(Function, run)


def rows_of(x: Tensor) -> Tensor:
    """[*batch, vertices, channels] as a matrix."""
    return x if x.dim() == 2 else x.view(-1, x.shape[-1])


@in_own_precision
def gradients_of_own(x: Tensor, grad_y: Tensor, of_skip: bool, of_bias: bool) -> tuple[Tensor | None, Tensor | None]:
    """Gradients of the skip and the bias."""
    g = rows_of(grad_y)
    return rows_of(x).t() @ g if of_skip else None, g.sum(0) if of_bias else None


def items_of(x: Tensor) -> Tensor:
    """[*batch, vertices, channels] as [batch, vertices, channels]."""
    return x if x.dim() == 3 else x.view(sizes_of(x))


def work_dtype(x: Tensor) -> torch.dtype:
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def fits_cache(x: Tensor) -> bool:
    return x.numel() * x.element_size() <= TABLE_BYTES


def parts_of_batch(x: Tensor, *others: Tensor) -> Iterator[list[Tensor]]:
    """Items of x [*batch, vertices, channels] that fit into the cache together, with those of others: neighbors are
    read from it several times, and many small items share the time that a kernel takes to start. Without a batch, all
    as they are."""
    if x.dim() == 2:
        yield [x, *others]
        return
    features = items_of(x), *map(items_of, others)
    bytes_per_item = x.shape[-2] * x.shape[-1] * x.element_size()
    step = max(1, TABLE_BYTES // max(bytes_per_item, 1))
    for low in range(0, len(features[0]), step):
        yield [values[low : low + step] for values in features]


def table_of(x: Tensor) -> Tensor:
    """[items, vertices, channels] as one row for each vertex."""
    # Flattening copies nothing if there is one channel, but rows of scattered numbers are slow to read.
    return x[0] if len(x) == 1 else x.transpose(0, 1).flatten(1).contiguous()


def weighted_sums(table: Tensor, weights: Tensor, neighbors: Tensor, offsets: Tensor) -> Tensor:
    """For each row i, the weighted sum of the rows ``neighbors[offsets[i] : offsets[i + 1]]`` of the table."""
    if len(neighbors) == 0 or table.numel() == 0:
        return table.new_zeros(len(offsets) - 1, table.shape[1])
    # As embedding_bag(…, mode="sum", include_last_offset=True), whose checks take as long as a small sum.
    return torch.embedding_bag(table, neighbors, offsets, False, 0, False, weights, True)[0]


def gather(x: Tensor, weights: Tensor, neighbors: Tensor, offsets: Tensor, center: float = 0.0) -> Tensor:
    """The weighted sums of the neighbors' rows of x [vertices, channels] or [items, vertices, channels], as a matrix;
    ``center`` is the weight of the row itself."""
    if x.dim() == 2:
        sums = weighted_sums(x, weights, neighbors, offsets)
    else:
        sums = weighted_sums(table_of(x), weights, neighbors, offsets)
        sums = sums.view(len(sums), len(x), x.shape[2]).transpose(0, 1).reshape(-1, x.shape[2])
    return sums.add_(rows_of(x), alpha=center) if center else sums


def gather_all(x: Tensor, weights: Tensor, neighbors: Tensor, offsets: Tensor) -> Tensor:
    """The weighted sums of the neighbors' rows of x [*batch, vertices, channels]."""
    if x.dim() == 2:
        return weighted_sums(x, weights, neighbors, offsets)
    shape = *x.shape[:-2], len(offsets) - 1, x.shape[-1]
    if fits_cache(x):
        return gather(items_of(x), weights, neighbors, offsets).view(shape)
    y = x.new_empty(shape)
    for part, sums in parts_of_batch(x, y):
        rows_of(sums).copy_(gather(part, weights, neighbors, offsets))
    return y


def spmm(
    x: Tensor, weights: Tensor, neighbors: Tensor, order: Tensor | None, offsets: Tensor, scale: float = 1.0,
    minus: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """``scale * W x - minus``. Row i of W has the edges ``offsets[0, i] : offsets[0, i + 1]``, or of ``order``."""
    work = work_dtype(x)
    if order is not None:
        neighbors, weights = neighbors.index_select(0, order), weights.index_select(0, order)
    weights = weights.to(work) if scale == 1 else weights.to(work) * scale
    y = gather_all(x.to(work), weights, neighbors, offsets[0]).to(x.dtype)
    return y if minus is None else y.sub_(minus)
