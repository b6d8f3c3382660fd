"""The fast path: the signatures of :mod:`geoskip.kernels.reference`, on the operators of :mod:`geoskip.kernels.ops`.

Here batches are flattened to one axis, and autocast is followed: features and matrices in the lower precision,
basis weights and sums in float32. On the CPU the Gaussian basis is the reference's own: it has no large intermediates.
"""

from __future__ import annotations

import torch
from torch import Tensor

from geoskip.kernels import ops, reference
from geoskip.kernels.pattern import Pattern
from geoskip.kernels.tracing import is_traced

# A row of scores is held in the registers of one program.
MOST_CLASSES = 16384


def basis_convolution(
    x: Tensor,
    weights: Tensor,
    theta: Tensor,
    pattern: Pattern,
    skip: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    x, theta, skip, bias = _ready(x, theta, skip, bias)
    slots = _by_slot(weights)
    if ops.on_triton(x):
        # The order in which the kernels read them best; on the CPU items are taken one by one, as they lie.
        slots = slots.contiguous()
    return _batched(ops.convolve(_items(x), slots, theta, *_edges(pattern), skip, bias), x)


def sparse_product(x: Tensor, weights: Tensor, pattern: Pattern) -> Tensor:
    return _batched(ops.product(_items(x), weights, *_edges(pattern)), x)


def chebyshev_convolution(
    x: Tensor,
    weights: Tensor,
    theta: Tensor,
    pattern: Pattern,
    first: int = 0,
    skip: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    if _differentiates(weights):
        # The kernel of the whole recursion has no gradient of the weights; the sparse product has.
        return reference.chebyshev_convolution(x, weights, theta, pattern, first, skip, bias, sparse_product)
    x, theta, skip, bias = _ready(x, theta, skip, bias)
    return _batched(ops.chebyshev(_items(x), weights, theta, *_edges(pattern), first, skip, bias), x)


def gaussian_basis(pseudo: Tensor, mean: Tensor, scale: Tensor, floor: float = 1e-15) -> Tensor:
    if not ops.on_triton(pseudo):
        return reference.gaussian_basis(pseudo, mean, scale, floor)
    return ops.gaussian(pseudo.contiguous(), mean.contiguous(), scale.contiguous(), floor).t()


def softmax_basis(
    sender_scores: Tensor, receiver_scores: Tensor, offset: Tensor, edge_scale: Tensor, pattern: Pattern
) -> Tensor:
    if _differentiates(edge_scale):
        return reference.softmax_basis(sender_scores, receiver_scores, offset, edge_scale, pattern)
    scores = _items(sender_scores), _items(receiver_scores)
    weights = ops.softmax(*scores, offset, edge_scale, *_edges(pattern)).permute(2, 1, 0)
    batch = sender_scores.shape[:-2]
    return weights.unflatten(0, batch) if batch else weights.squeeze(0)


def gaussian_convolution(
    x: Tensor,
    pseudo: Tensor,
    mean: Tensor,
    scale: Tensor,
    theta: Tensor,
    pattern: Pattern,
    skip: Tensor | None = None,
    bias: Tensor | None = None,
    floor: float = 1e-15,
) -> Tensor:
    if not _is_eager_on_triton(x):
        return basis_convolution(x, gaussian_basis(pseudo, mean, scale, floor), theta, pattern, skip, bias)
    basis = pseudo.contiguous(), mean.contiguous(), scale.contiguous(), floor
    x, theta, skip, bias = _ready(x, theta, skip, bias)
    return _batched(ops.GaussianConvolve.apply(*basis, _items(x), theta, _edges(pattern), skip, bias), x)


def softmax_convolution(
    x: Tensor,
    attention: Tensor,
    receiver_attention: Tensor | None,
    offset: Tensor,
    edge_scale: Tensor,
    theta: Tensor,
    pattern: Pattern,
    skip: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    if not _is_eager_on_triton(x) or _differentiates(edge_scale):
        scores = reference.both_scores(x, attention, receiver_attention)
        weights = softmax_basis(*scores, offset, edge_scale, pattern)
        return basis_convolution(x, weights, theta, pattern, skip, bias)
    x, theta, skip, bias = _ready(x, theta, skip, bias)
    steering = [None if a is None else a.to(x.dtype).contiguous() for a in (attention, receiver_attention)]
    basis = *steering, offset, edge_scale
    return _batched(ops.SoftmaxConvolve.apply(*basis, _items(x), theta, _edges(pattern), skip, bias), x)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    if not _is_eager_on_triton(x):
        return reference.linear(x, weight, bias)
    x, weight, bias, _ = _ready(x, weight, bias, None)
    return ops.Linear.apply(x.reshape(x.shape[:-1].numel(), x.shape[-1]), weight, bias).view(*x.shape[:-1], len(weight))


def linear_cross_entropy(x: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, shares: Tensor) -> Tensor:
    if not _is_eager_on_triton(x) or len(weight) > MOST_CLASSES or _differentiates(shares):
        return reference.linear_cross_entropy(x, weight, bias, labels, shares)
    x, weight, bias, _ = _ready(x, weight, bias, None)
    return ops.LinearCrossEntropy.apply(x, weight, bias, labels, shares)


def _differentiates(fixed: Tensor) -> bool:
    """Whether a gradient is wanted of an input for which the fast kernels have none."""
    return fixed.requires_grad and torch.is_grad_enabled()


def _is_eager_on_triton(x: Tensor) -> bool:
    return ops.on_triton(x) and not is_traced(x)


def _items(x: Tensor) -> Tensor:
    """[*batch, vertices, channels] as [batch, vertices, channels]."""
    return (x.unsqueeze(0) if x.dim() == 2 else x.flatten(0, -3)).contiguous()


def _batched(y: Tensor, x: Tensor) -> Tensor:
    """[batch, vertices, out] with the batch axes of x."""
    return y if x.dim() == 3 else y.view(*x.shape[:-2], *y.shape[1:])


def _by_slot(weights: Tensor) -> Tensor:
    """[*batch, edges, slots] as [slots, edges, batch or 1]."""
    return (weights.unsqueeze(0) if weights.dim() == 2 else weights.flatten(0, -3)).permute(2, 1, 0)


def _edges(pattern: Pattern) -> tuple[Tensor, ...]:
    return pattern.senders, pattern.receivers, pattern.offsets, pattern.by_sender, pattern.sender_offsets


def _ready(
    x: Tensor, theta: Tensor, skip: Tensor | None, bias: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """As autocast wants them, and matrices row by row in memory, as the kernels of the gradients read them."""
    device = x.device.type
    if torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
        x, theta = x.to(dtype), theta.to(dtype)
        skip, bias = (None if tensor is None else tensor.to(dtype) for tensor in (skip, bias))
    return x, theta.contiguous(), None if skip is None else skip.contiguous(), bias
