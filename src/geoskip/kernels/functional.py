"""The functions that the operators call: each checks which path to take and prepares the inputs of its kernel.

The CPU kernels take batches of one axis, those in Triton any batch. Under autocast, features and matrices are in the
lower precision, basis weights and sums in float32.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from geoskip.kernels import paths, reference
from geoskip.kernels.autograd import Kernel
from geoskip.kernels.paths import is_autocast, is_fast, is_traced, on_triton
from geoskip.kernels.pattern import Pattern, sizes_of
from geoskip.shapes import Float, Int

# The kernel of the cross-entropy holds a row of scores in the registers of one program.
MAX_CLASSES = 16384


def basis_convolution(
    x: Float[Tensor, "*batch senders channels"],
    weights: Float[Tensor, "*shared edges slots"] | Float[Tensor, " edges"],
    theta: Float[Tensor, "all_slots channels out"] | Float[Tensor, "channels out"],
    pattern: Pattern,
    skip: Float[Tensor, "channels out"] | None = None,
    bias: Float[Tensor, " out"] | None = None,
) -> Float[Tensor, "*batch receivers out"]:
    r"""Basis aggregation, product with the stacked :math:`\Theta`, affine skip and bias:

    .. math:: y_i = \sum_m \Big( \sum_{j \in \mathcal N_m(i)} w_m(i,j)\, x_j \Big) \Theta_m + x_i A + b

    The weights of a slot are read one after the other: weights that are used more than once should be contiguous as
    ``[slots, edges]``, then nothing is copied. Weights ``[edges]`` are those of one slot.
    """
    if not is_fast(x, 1 if theta.dim() == 2 else theta.shape[0]):
        weights = weights.unsqueeze(1) if weights.dim() == 1 else weights
        return reference.basis_convolution(x, weights, theta, pattern, skip, bias)
    x, theta, skip, bias = _prepared(x, theta, skip, bias, any_order=True)
    return _basis_convolution.on(x)(x, _slots(weights), theta, pattern, skip, bias)


def gaussian_convolution(
    x: Float[Tensor, "*batch senders channels"],
    pseudo: Float[Tensor, "edges dim"],
    mean: Float[Tensor, "slots dim"],
    scale: Float[Tensor, "slots dim"],
    theta: Float[Tensor, "slots channels out"],
    pattern: Pattern,
    skip: Float[Tensor, "channels out"] | None = None,
    bias: Float[Tensor, " out"] | None = None,
) -> Float[Tensor, "*batch receivers out"]:
    r""":func:`basis_convolution` with the weights
    :math:`w_m(u) = \exp\big(-\tfrac12 \sum_d (u_d - \mu_{md})^2 / (\sigma_{md}^2 + \epsilon)\big)`."""
    if not is_fast(x):
        return reference.gaussian_convolution(x, pseudo, mean, scale, theta, pattern, skip, bias)
    x, theta, skip, bias = _prepared(x, theta, skip, bias, any_order=True)
    if not on_triton(x):
        weights = _slots(reference.gaussian_basis(pseudo, mean, scale))
        return _basis_convolution.on(x)(x, weights, theta, pattern, skip, bias)
    basis = pseudo.contiguous(), mean.contiguous(), scale.contiguous()
    return _gaussian_convolution.on(x)(x, *basis, theta, pattern, skip, bias)


def softmax_convolution(
    x: Float[Tensor, "*batch vertices channels"],
    attention: Float[Tensor, "slots channels"],
    receiver_attention: Float[Tensor, "slots channels"] | None,
    offset: Float[Tensor, " slots"],
    edge_scale: Float[Tensor, " edges"],
    theta: Float[Tensor, "slots channels out"],
    pattern: Pattern,
    skip: Float[Tensor, "channels out"] | None = None,
    bias: Float[Tensor, " out"] | None = None,
) -> Float[Tensor, "*batch vertices out"]:
    r""":func:`basis_convolution` with the weights
    :math:`w_m(i,j) = e_{ij}\, \mathrm{softmax}_m(\langle a_m, x_j\rangle + \langle a'_m, x_i\rangle + c_m)`;
    without ``receiver_attention``, :math:`a' = -a`."""
    if not is_fast(x):
        basis = attention, receiver_attention, offset, edge_scale
        return reference.softmax_convolution(x, *basis, theta, pattern, skip, bias)
    if _is_differentiated(edge_scale):
        # The kernels have no gradient of the scale.
        scores = reference.both_scores(x, attention, receiver_attention)
        weights = reference.softmax_basis(*scores, offset, edge_scale, pattern)
        return basis_convolution(x, weights, theta, pattern, skip, bias)
    if not on_triton(x):
        if _has_small_items(x):
            copies, rows = x.shape[:-2].numel(), x.reshape(-1, x.shape[-1])
            edges = edge_scale.repeat(copies), theta, pattern.copies(copies), skip, bias
            y = softmax_convolution(rows, attention, receiver_attention, offset, *edges)
            return y.view(*x.shape[:-1], y.shape[1])
        senders, receivers = map(_items, reference.both_scores(x, attention, receiver_attention))
        weights = _softmax_basis.on(x)(senders, receivers, offset, edge_scale, pattern)
        x, theta, skip, bias = _prepared(x, theta, skip, bias, any_order=True)
        return _basis_convolution.on(x)(x, weights, theta, pattern, skip, bias)
    x, theta, skip, bias = _prepared(x, theta, skip, bias, any_order=True)
    if attention.dtype is not x.dtype:
        attention = attention.to(x.dtype)
    if receiver_attention is not None:
        receiver_attention = receiver_attention.to(x.dtype).contiguous()
    basis = attention.contiguous(), receiver_attention, offset.contiguous(), edge_scale.contiguous()
    return _softmax_convolution.on(x)(x, *basis, theta, pattern, skip, bias)


def perceptron_convolution(
    x: Float[Tensor, "*batch vertices channels"],
    weights: Float[Tensor, " edges"],
    epsilon: Float[Tensor, ""],
    theta: Float[Tensor, "channels hidden"],
    pattern: Pattern,
    hidden_bias: Float[Tensor, " hidden"],
    theta_out: Float[Tensor, "hidden out"],
    skip: Float[Tensor, "channels out"] | None,
    bias: Float[Tensor, " out"],
) -> Float[Tensor, "*batch vertices out"]:
    r"""A sum over the neighbors and the vertex itself, two layers with a ReLU between them, and an affine skip:

    .. math:: y_i = \mathrm{ReLU}\Big(\big((1 + \epsilon)\, x_i + \sum_{j \in \mathcal N(i)} w_{ij}\, x_j\big) \Theta
        + b'\Big) \Theta' + x_i A + b"""
    if not is_fast(x, slots=1):
        return reference.perceptron_convolution(x, weights, epsilon, theta, pattern, hidden_bias, theta_out, skip, bias)
    if _has_perceptron(x, weights, epsilon):
        network = _dense(theta), pattern, hidden_bias.contiguous(), theta_out, skip, bias
        return _perceptron_convolution.on(x)(x.contiguous(), weights.contiguous(), epsilon, *network)
    # Otherwise the center is a skip of the first layer.
    first, matrix, *own = _prepared(x, theta, (1 + epsilon) * theta, hidden_bias, any_order=True)
    hidden = _basis_convolution.on(x)(first, _slots(weights), matrix, pattern, *own)
    return reference.second_layer(x, hidden, theta_out, skip, bias)


def chebyshev_convolution(
    x: Float[Tensor, "*batch vertices channels"],
    weights: Float[Tensor, " edges"],
    theta: Float[Tensor, "slots channels out"],
    pattern: Pattern,
    first: int = 0,
    skip: Float[Tensor, "channels out"] | None = None,
    bias: Float[Tensor, " out"] | None = None,
) -> Float[Tensor, "*batch vertices out"]:
    r""":math:`y = \sum_m T_{m+f}(L)\, x\, \Theta_m + x A + b`, with f = ``first``; L has the entries ``weights``."""
    if not is_fast(x):
        return reference.chebyshev_convolution(x, weights, theta, pattern, first, skip, bias)
    if _is_differentiated(weights):
        # The kernel of the whole recursion has no gradient of the weights; the sparse product has.
        return reference.chebyshev_convolution(x, weights, theta, pattern, first, skip, bias, sparse_product)
    x, theta, skip, bias = _prepared(x, theta, skip, bias)
    return _chebyshev_convolution.on(x)(x, weights.contiguous(), theta, pattern, first, skip, bias)


def sparse_product(
    x: Float[Tensor, "*batch senders channels"],
    weights: Float[Tensor, " edges"],
    pattern: Pattern,
) -> Float[Tensor, "*batch receivers channels"]:
    r""":math:`y_i = \sum_{j \in \mathcal N(i)} w_{ij}\, x_j`, for every item of the batch at once."""
    if not is_fast(x, slots=1):
        return reference.sparse_product(x, weights, pattern)
    return _sparse_product.on(x)(x.contiguous(), weights.contiguous(), pattern)


def max_pool(
    x: Float[Tensor, "*batch senders channels"], pattern: Pattern
) -> Float[Tensor, "*batch receivers channels"]:
    r""":math:`y_c = \max_{i \in c} x_i`, channel by channel; the members of a cluster are its neighbors in the
    pattern. Equal maxima share the gradient."""
    if not is_fast(x):
        return reference.max_pool(x, pattern)
    return _max_pool.on(x)(x.contiguous(), pattern)


def mean_pool(
    x: Float[Tensor, "*batch senders channels"], pattern: Pattern
) -> Float[Tensor, "*batch receivers channels"]:
    r""":math:`y_c = \tfrac1{|c|} \sum_{i \in c} x_i`; 0 for an empty cluster."""
    if not is_fast(x):
        return reference.mean_pool(x, pattern)
    return _mean_pool.on(x)(x.contiguous(), pattern)


def segment_mean(
    x: Float[Tensor, "*batch vertices channels"], offsets: Int[Tensor, " segments_plus_1"]
) -> Float[Tensor, "*batch segments channels"]:
    """The mean of the vertices ``offsets[s] : offsets[s + 1]`` of each segment; 0 for an empty one."""
    if not is_fast(x):
        return reference.segment_mean(x, offsets)
    return _segment_mean.on(x)(x.contiguous(), offsets.contiguous())


def linear(
    x: Float[Tensor, "*rows channels"],
    weight: Float[Tensor, "out channels"],
    bias: Float[Tensor, " out"] | None = None,
) -> Float[Tensor, "*rows out"]:
    r""":math:`x W^\top + b`."""
    if not (on_triton(x) and is_fast(x)):
        return reference.linear(x, weight, bias)
    x, weight, bias, _ = _prepared(x, weight, bias, None)
    return _linear.on(x)(x, weight, bias)


def linear_cross_entropy(
    x: Float[Tensor, "rows channels"],
    weight: Float[Tensor, "classes channels"],
    bias: Float[Tensor, " classes"] | None,
    labels: Int[Tensor, " rows"],
    shares: Float[Tensor, " rows"],
) -> Float[Tensor, ""]:
    r""":math:`\sum_i s_i \big(\log \sum_c e^{l_{ic}} - l_{i y_i}\big)` of the scores :math:`l = x W^\top + b`, over the
    rows whose label :math:`y_i` is not -1."""
    if not _is_eager_on_triton(x) or len(weight) > MAX_CLASSES or _is_differentiated(shares):
        return reference.linear_cross_entropy(x, weight, bias, labels, shares)
    x, weight, bias, _ = _prepared(x, weight, bias, None)
    return _linear_cross_entropy.on(x)(x, weight, bias, labels.contiguous(), shares.contiguous())


def _is_differentiated(fixed: Tensor) -> bool:
    """Whether a gradient is wanted of an input for which the fast kernels have none."""
    return fixed.requires_grad and torch.is_grad_enabled()


def _is_eager_on_triton(x: Tensor) -> bool:
    return on_triton(x) and is_fast(x) and not is_traced(x)


def _has_perceptron(x: Tensor, weights: Tensor, epsilon: Tensor) -> bool:
    """Whether GIN's two layers are one kernel, which has no gradient of ε. On the CPU it has one precision, and a
    trained ε gives the same bits with gradients and without."""
    if is_traced(x) or is_autocast(x) or _is_differentiated(epsilon) or epsilon.device != x.device:
        return False
    return on_triton(x) or (x.dtype is weights.dtype and not epsilon.requires_grad)


def _has_small_items(x: Tensor) -> bool:
    """Whether items with weights of their own, which the CPU kernels take one by one, are faster as one graph."""
    return not is_traced(x) and x.shape[:-2].numel() > 1 and 0 < x.shape[-2] * x.shape[-1] < paths.SMALL


def _items(x: Tensor) -> Tensor:
    """[*batch, vertices, channels] as [batch, vertices, channels]."""
    return (x.unsqueeze(0) if x.dim() == 2 else x.flatten(0, -3)).contiguous()


def _slots(weights: Tensor) -> Tensor:
    """[*batch, edges, slots] as [slots, edges, batch], weights without a batch as [slots, edges] or [edges]: in Triton
    contiguous, on the CPU as they are in memory."""
    if weights.dim() > 2:
        slots = weights.flatten(0, -3).permute(2, 1, 0)
    elif weights.dim() == 2:
        slots = weights.t() if weights.shape[1] > 1 else weights.squeeze(1)
    else:
        slots = weights
    return slots.contiguous() if on_triton(weights) else slots


def _with_all_axes(weights: Tensor) -> Tensor:
    """[edges] and [slots, edges] as [slots, edges, batch]."""
    weights = weights.unsqueeze(0) if weights.dim() == 1 else weights
    return weights.unsqueeze(2) if weights.dim() == 2 else weights


def _prepared(
    x: Tensor, theta: Tensor, skip: Tensor | None, bias: Tensor | None, any_order: bool = False
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """In the precision of autocast, and contiguous, as the kernels read them. Those of the convolutions read matrices
    in any order of their axes."""
    if is_autocast(x):
        dtype = torch.get_autocast_dtype(x.device.type)
        x, theta = x.to(dtype), theta.to(dtype)
        skip, bias = (None if tensor is None else tensor.to(dtype) for tensor in (skip, bias))
    order = _dense if any_order else Tensor.contiguous
    skip, bias = None if skip is None else order(skip), None if bias is None else bias.contiguous()
    return x.contiguous(), order(theta), skip, bias


def _dense(matrices: Tensor) -> Tensor:
    """Matrices without gaps in memory, as they are if they have none; contiguous while torch traces."""
    if matrices.is_contiguous() or (not is_traced(matrices) and _is_dense(matrices.shape, matrices.stride())):
        return matrices
    return matrices.contiguous()


@lru_cache(1024)
def _is_dense(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    expected = 1
    for stride, size in sorted(zip(strides, shape, strict=True)):
        if size > 1 and stride != expected:
            return False
        expected *= size
    return True


def _convolved(x: Tensor, theta: Tensor, pattern: Pattern) -> Tensor:
    """An empty y, for tracing."""
    return x.new_empty(*x.shape[:-2], pattern.num_receivers, theta.shape[-1])


def _pooled(x: Tensor, pattern: Pattern) -> Tensor:
    """An empty y, for tracing."""
    return x.new_empty(*x.shape[:-2], pattern.num_receivers, x.shape[-1])


def _empty_maxima(x: Tensor, pattern: Pattern) -> tuple[Tensor, Tensor]:
    """y, and how many members are equal to it; on the CPU the gradients count them."""
    y = _pooled(x, pattern)
    return y, torch.empty(y.shape if on_triton(x) else 0, dtype=torch.int32, device=x.device)


def _convolve_by_slot(
    x: Tensor, weights: Tensor, theta: Tensor, pattern: Pattern, skip: Tensor | None, bias: Tensor | None
) -> Tensor:
    weights = _with_all_axes(weights)
    if x.dim() == 2:
        return reference.basis_convolution(x, weights.squeeze(2).t(), theta, pattern, skip, bias)
    items = x.flatten(0, -3)
    y = reference.basis_convolution(items, weights.permute(2, 1, 0), theta, pattern, skip, bias)
    return y.view(*x.shape[:-2], *y.shape[1:])


def _softmax_by_slot(senders: Tensor, receivers: Tensor, offset: Tensor, scale: Tensor, pattern: Pattern) -> Tensor:
    return reference.softmax_basis(senders, receivers, offset, scale, pattern).permute(2, 1, 0)


def _empty_softmax(senders: Tensor, receivers: Tensor, offset: Tensor, scale: Tensor, pattern: Pattern) -> Tensor:
    dtype = torch.promote_types(senders.dtype, torch.float32)
    batch, _, slots = senders.shape
    return senders.new_empty(batch, pattern.num_edges, slots, dtype=dtype).permute(2, 1, 0)


_basis_convolution = Kernel(
    "basis_convolution",
    "Tensor x, Tensor weights, Tensor theta, PATTERN, Tensor? skip, Tensor? bias",
    lambda x, weights, theta, pattern, skip, bias: _convolved(x, theta, pattern),
    _convolve_by_slot,
)
_gaussian_convolution = Kernel(
    "gaussian_convolution",
    "Tensor x, Tensor pseudo, Tensor mean, Tensor scale, Tensor theta, PATTERN, Tensor? skip, Tensor? bias",
    lambda x, pseudo, mean, scale, theta, pattern, skip, bias: (
        _convolved(x, theta, pattern),
        x.new_empty(mean.shape[0], pseudo.shape[0], dtype=torch.float32),
    ),
    num_saved=1,
)
_softmax_convolution = Kernel(
    "softmax_convolution",
    "Tensor x, Tensor attention, Tensor? receiver_attention, Tensor offset, Tensor edge_scale, Tensor theta, PATTERN, "
    "Tensor? skip, Tensor? bias",
    lambda x, attention, receiver_attention, offset, edge_scale, theta, pattern, skip, bias: (
        _convolved(x, theta, pattern),
        x.new_empty(attention.shape[0], pattern.num_edges, sizes_of(x)[0], dtype=torch.float32),
    ),
    num_saved=1,
)
# On the CPU, where it is a step of its own.
_softmax_basis = Kernel(
    "softmax_basis",
    "Tensor x, Tensor receiver_scores, Tensor offset, Tensor edge_scale, PATTERN",
    _empty_softmax,
    _softmax_by_slot,
    saves_output=True,
)
_chebyshev_convolution = Kernel(
    "chebyshev_convolution",
    "Tensor x, Tensor weights, Tensor theta, PATTERN, int first, Tensor? skip, Tensor? bias",
    lambda x, weights, theta, pattern, first, skip, bias: _convolved(x, theta, pattern),
)
_sparse_product = Kernel(
    "sparse_product",
    "Tensor x, Tensor weights, PATTERN",
    lambda x, weights, pattern: _pooled(x, pattern),
    is_linear=True,
)
_max_pool = Kernel("max_pool", "Tensor x, PATTERN", _empty_maxima, num_saved=1, saves_output=True)
_mean_pool = Kernel("mean_pool", "Tensor x, PATTERN", _pooled)
_segment_mean = Kernel(
    "segment_mean",
    "Tensor x, Tensor offsets",
    lambda x, offsets: x.new_empty(*x.shape[:-2], len(offsets) - 1, x.shape[-1]),
)
_linear = Kernel(
    "linear",
    "Tensor x, Tensor weight, Tensor? bias",
    lambda x, weight, bias: x.new_empty(*x.shape[:-1], weight.shape[0]),
)
# While torch traces, these two are the reference formulas.
_perceptron_convolution = Kernel(
    "perceptron_convolution",
    "Tensor x, Tensor weights, Tensor epsilon, Tensor theta, PATTERN, Tensor hidden_bias, Tensor theta_out, "
    "Tensor? skip, Tensor bias",
    num_saved=1,
)
_linear_cross_entropy = Kernel("linear_cross_entropy", num_saved=7)
