"""Batch normalisation that does not see padding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor, nn

from geoskip.shapes import Bool, Float


@contextmanager
def counting_real(norms: Sequence[nn.Module], real: Sequence[Bool[Tensor, " _"]]) -> Iterator[None]:
    """Within the context each batch normalisation takes its statistics from the vertices that are real."""
    found = [(norm, mask) for norm, mask in zip(norms, real, strict=True) if isinstance(norm, nn.BatchNorm1d)]
    try:
        for norm, mask in found:
            # An attribute of the instance hides the method of its class, until it is removed again.
            norm.forward = partial(normalise, norm, mask)  # type: ignore[method-assign]
        yield
    finally:
        for norm, _ in found:
            del norm.forward


def normalise(
    norm: nn.BatchNorm1d, real: Bool[Tensor, " vertices"], x: Float[Tensor, "vertices channels"]
) -> Float[Tensor, "vertices channels"]:
    """As :class:`torch.nn.BatchNorm1d` of the real vertices alone; the others come out finite, and without gradient."""
    if not norm.training:
        return nn.BatchNorm1d.forward(norm, x)
    weights = real.to(x.dtype).unsqueeze(1)
    count = weights.sum()
    mean = (x * weights).sum(0) / count
    variance = ((x - mean).square() * weights).sum(0) / count
    if norm.running_mean is not None and norm.running_var is not None:
        _remember(norm, mean.detach(), variance.detach() * count / (count - 1).clamp(min=1))
    y = (x - mean) * torch.rsqrt(variance + norm.eps) * weights
    return y if norm.weight is None else y * norm.weight + norm.bias


@torch.no_grad()
def _remember(norm: nn.BatchNorm1d, mean: Tensor, variance: Tensor) -> None:
    assert norm.running_mean is not None
    assert norm.running_var is not None
    assert norm.num_batches_tracked is not None
    assert norm.momentum is not None
    norm.num_batches_tracked.add_(1)
    norm.running_mean.lerp_(mean.to(norm.running_mean.dtype), norm.momentum)
    norm.running_var.lerp_(variance.to(norm.running_var.dtype), norm.momentum)
