"""Pooling on the CPU, over clusters and over packed graphs."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from geoskip.kernels.pattern import Pattern


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
