"""The convolutions on CUDA, fused: neighbors are gathered, weighted and multiplied into the output at once.

Edge-sized messages are never stored. Each sum is computed by one program in one order, so results repeat bitwise.
:mod:`.items` has the kernels for batches on one graph, where the rows of a block are items; in :mod:`.vertices` they
are vertices. Small graphs with many slots have the kernels of :mod:`.neighborhoods`, which store z.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from geoskip.kernels.branches import Fork, branches
from geoskip.kernels.pattern import Pattern
from geoskip.kernels.triton import items, neighborhoods, vertices
from geoskip.kernels.triton.attention import attention_gradients, attention_scores, softmax, softmax_gradients
from geoskip.kernels.triton.gaussians import Gaussians, empty_gaussian, fill_gaussian, gaussian_gradients
from geoskip.kernels.triton.launch import (
    CACHE_SIZE,
    LaunchPlan,
    Shape,
    convolution_sizes,
    forward_tiles,
    precision,
    sender_tiles,
    theta_tiles,
    weight_tiles,
)
from geoskip.kernels.triton.products import add_parts, over_rows

Gradients = tuple[Tensor | None, ...]
# From this many sums on, rows times slots, Θ is copied if its summed axis is not contiguous, as the tensor cores want
# it. With fewer, the copy takes the host longer than it saves.
MANY_SUMS = 1 << 16
# Up to this many channels, the programs of the gradient of one Θ also have room for those of the skip and of the bias.
MAX_FUSED = 128
# Up to this many pseudo-coordinates, the kernel of the gradients of Gaussian weights also sums those of μ and σ.
MAX_DIM = 3
_threshold_backward = torch.ops.aten.threshold_backward.default


def basis_convolution(
    x: Tensor, weights: Tensor, theta: Tensor, pattern: Pattern, skip: Tensor | None, bias: Tensor | None
) -> Tensor:
    """y [*batch, receivers, out] of x [*batch, senders, in], weights [slots or 1, edges, batch or 1] and Θ [slots, in,
    out], or [in, out] if there is one slot."""
    return _convolve(x, weights, theta, pattern.senders, None, pattern.offsets, skip, bias)


def basis_convolution_gradients(
    grad_y: Tensor, needs: Sequence[bool], x: Tensor, weights: Tensor, theta: Tensor, pattern: Pattern,
    skip: Tensor | None, bias: Tensor | None,
) -> Gradients:  # fmt: skip
    grad_y = grad_y.contiguous()
    with branches(x) as fork:
        grad_x, grad_weights, parts = _gradients(
            grad_y, (*needs[:3], needs[4], needs[5]), x, weights, theta, pattern, skip, fork
        )
    grad_theta, *grad_own = add_parts(parts[:3], (theta, skip, bias))
    return grad_x, grad_weights, grad_theta, None, *grad_own


def gaussian_convolution(
    x: Tensor, pseudo: Tensor, mean: Tensor, scale: Tensor, theta: Tensor, pattern: Pattern, skip: Tensor | None,
    bias: Tensor | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """y, and the Gaussian weights."""
    weights, gaussians = empty_gaussian(pseudo, mean), (pseudo, mean, scale)
    edges = pattern.senders, None, pattern.offsets
    return _convolve(x, weights, theta, *edges, skip, bias, gaussians=gaussians), weights


def gaussian_convolution_gradients(
    grad_y: Tensor, needs: Sequence[bool], x: Tensor, pseudo: Tensor, mean: Tensor, scale: Tensor, theta: Tensor,
    pattern: Pattern, skip: Tensor | None, bias: Tensor | None, weights: Tensor,
) -> Gradients:  # fmt: skip
    grad_y, needs_weights = grad_y.contiguous(), any(needs[1:4])
    grad_pseudo = None
    with branches(x) as fork:
        needed = needs[0], needs_weights, needs[4], needs[6], needs[7]
        gaussians = None if needs[1] else (pseudo, mean, scale)
        grad_x, grad_weights, (*parts, mean_parts, scale_parts) = _gradients(
            grad_y, needed, x, weights, theta, pattern, skip, fork, gaussians=gaussians
        )
        if grad_weights is not None and mean_parts is None:
            basis = weights, pseudo, mean, scale
            grad_pseudo, mean_parts, scale_parts = gaussian_gradients(grad_weights, *basis, needs[1:4])
    like = mean if needs[2] else None, scale if needs[3] else None, theta, skip, bias
    grad_mean, grad_scale, grad_theta, *grad_own = add_parts((mean_parts, scale_parts, *parts), like)
    return grad_x, grad_pseudo, grad_mean, grad_scale, grad_theta, None, *grad_own


def softmax_convolution(
    x: Tensor, attention: Tensor, receiver_attention: Tensor | None, offset: Tensor, edge_scale: Tensor,
    theta: Tensor, pattern: Pattern, skip: Tensor | None, bias: Tensor | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """y, and the softmax weights."""
    at_senders = attention_scores(x, attention)
    at_receivers = None if receiver_attention is None else attention_scores(x, receiver_attention)
    weights = softmax(at_senders, at_receivers, offset, edge_scale, pattern)
    return _convolve(x, weights, theta, pattern.senders, None, pattern.offsets, skip, bias), weights


def softmax_convolution_gradients(
    grad_y: Tensor, needs: Sequence[bool], x: Tensor, attention: Tensor, receiver_attention: Tensor | None,
    offset: Tensor, edge_scale: Tensor, theta: Tensor, pattern: Pattern, skip: Tensor | None, bias: Tensor | None,
    weights: Tensor,
) -> Gradients:  # fmt: skip
    grad_y, needs_weights = grad_y.contiguous(), any(needs[:4])
    basis_parts: Gradients = (None, None, None)
    with branches(x) as fork:
        with branches(x) as fork_x:
            needed = needs[0], needs_weights, needs[5], needs[7], needs[8]
            grad_x, grad_weights, parts = _gradients(grad_y, needed, x, weights, theta, pattern, skip, fork, fork_x)
            if grad_weights is not None:
                ends = softmax_gradients(grad_weights, weights, edge_scale, pattern, receiver_attention is None)
        if grad_weights is not None:
            # The scores depend on x, too.
            basis_parts = attention_gradients(x, *ends, attention, receiver_attention, grad_x)
    basis = attention, receiver_attention, offset
    like = (tensor if need else None for tensor, need in zip(basis, needs[1:4], strict=True))
    *grad_basis, grad_theta, grad_skip, grad_bias = add_parts((*basis_parts, *parts[:3]), (*like, theta, skip, bias))
    return grad_x, *grad_basis, None, grad_theta, None, grad_skip, grad_bias


def perceptron_convolution(
    x: Tensor, weights: Tensor, epsilon: Tensor, theta: Tensor, pattern: Pattern, hidden_bias: Tensor,
    theta_out: Tensor, skip: Tensor | None, bias: Tensor,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """y, and the hidden layer after its ReLU."""
    edges = pattern.senders, None, pattern.offsets
    hidden = _convolve(x, weights, theta, *edges, None, hidden_bias, epsilon, relu=True)
    y = torch.addmm(bias, _rows(hidden), theta_out)
    if skip is not None:
        y.addmm_(_rows(x), skip)
    return y if x.dim() == 2 else y.view(*x.shape[:-1], y.shape[1]), hidden


def perceptron_convolution_gradients(
    grad_y: Tensor, needs: Sequence[bool], x: Tensor, weights: Tensor, epsilon: Tensor, theta: Tensor,
    pattern: Pattern, hidden_bias: Tensor, theta_out: Tensor, skip: Tensor | None, bias: Tensor, hidden: Tensor,
) -> Gradients:  # fmt: skip
    """There is no gradient of ε: one that is trained has its own formula."""
    grad_y = grad_y.contiguous()
    with branches(x) as fork:
        out_parts, bias_parts = fork(over_rows, hidden, grad_y, needs[6], needs[8])
        skip_parts, _ = fork(over_rows, x, grad_y, needs[7], False)
        grad_hidden = _threshold_backward(functional.linear(grad_y, theta_out), hidden, 0)
        grad_x, grad_weights, (theta_parts, _, hidden_parts, *_) = _gradients(
            grad_hidden, (needs[0], needs[1], needs[3], False, needs[5]), x, weights, theta, pattern, None, fork,
            epsilon=epsilon,
        )  # fmt: skip
    if skip is not None and grad_x is not None:
        _rows(grad_x).addmm_(_rows(grad_y), skip.t())
    parts = theta_parts, hidden_parts, out_parts, skip_parts, bias_parts
    grad_theta, *grad_own = add_parts(parts, (theta, hidden_bias, theta_out, skip, bias))
    return grad_x, grad_weights, None, grad_theta, None, *grad_own


def _rows(x: Tensor) -> Tensor:
    """[*batch, vertices, channels] as a matrix."""
    return x if x.dim() == 2 else x.view(-1, x.shape[-1])


def _convolve(
    x: Tensor, weights: Tensor, theta: Tensor, neighbors: Tensor, order: Tensor | None, offsets: Tensor,
    skip: Tensor | None, bias: Tensor | None, epsilon: Tensor | None = None, relu: bool = False,
    gaussians: Gaussians | None = None,
) -> Tensor:  # fmt: skip
    """The convolution on the graph; with ``order``, on the reversed graph, with each Θ_m and the skip transposed. With
    ``epsilon``, which is for one slot, a vertex is one more neighbor of itself, of weight 1 + ε. ``gaussians`` are
    written into the weights first."""
    shape, plan, is_dense, copies = _convolve_plan(
        x.shape, weights.shape, theta.shape, theta.stride(), None if skip is None else skip.stride(),
        offsets.shape, offsets.stride(0), order is not None, bias is not None, epsilon is not None, relu, precision(),
    )  # fmt: skip
    if is_dense:
        return neighborhoods.convolve(x, weights, theta, neighbors, order, offsets, skip, bias, gaussians)
    if gaussians is not None:
        fill_gaussian(weights, *gaussians)
    if plan is None:
        return x.new_zeros(*shape)
    if copies:
        theta = theta.contiguous() if order is not None else theta.mT.contiguous()
    y = x.new_empty(*shape)
    plan(x, weights, theta, skip, bias, epsilon, y, neighbors, order, offsets)
    return y


@lru_cache(CACHE_SIZE)
def _convolve_plan(
    x: Shape, weights: Shape, theta: Shape, theta_strides: Shape, skip_strides: Shape | None, offsets: Shape,
    group_stride: int, reverse: bool, has_bias: bool, has_center: bool, relu: bool, precision: str,
) -> tuple[Shape, LaunchPlan | None, bool, bool]:  # fmt: skip
    """The shape of y; how to launch its kernel, None if there is nothing to sum; whether :mod:`.neighborhoods` computes
    it instead; and whether to copy Θ first, so that its summed axis is contiguous: then the plan is for the copy."""
    sizes = convolution_sizes(x, weights, theta, theta_strides, skip_strides, offsets, group_stride, reverse=reverse)
    shape = *x[:-2], sizes.num_receivers, sizes.out
    if sizes.batch == 0 or sizes.num_receivers == 0:
        return shape, None, False, False
    if neighborhoods.pays(sizes):
        return shape, None, True, False
    tiles = forward_tiles(*sizes.of_tiles, sizes.num_receivers, precision == "tf32")
    kernels = items if tiles.of_items else vertices
    is_matrix = sizes.channels > 1 and sizes.out > 1
    many = sizes.batch * sizes.num_receivers * sizes.slots >= MANY_SUMS
    copies = many and is_matrix and sizes.theta_strides[1] != 1
    if copies:
        sizes = sizes._replace(theta_strides=(sizes.channels * sizes.out, 1, sizes.channels))
    return shape, kernels.convolve_plan(sizes, tiles, precision, reverse, has_bias, has_center, relu), False, copies


class _GradientPlans(NamedTuple):
    """How to launch the kernels of the needed gradients, None for the others.

    Attributes:
        theta: of Θ, in ``theta_parts`` parts of ``theta_length`` numbers.
        is_fused: whether the same kernel computes the gradients of the skip and of the bias.
        both: of x and of the weights, the latter in ``weight_parts`` parts.
        weights: of the weights alone, from ``zeros`` if items add to the same.
        gaussian_parts: in how many parts the same kernel computes the gradients of μ and σ; 0 if it does not.
        is_dense: whether :mod:`.neighborhoods` computes all of them instead.
    """

    is_empty: bool
    is_dense: bool = False
    theta: LaunchPlan | None = None
    theta_parts: int = 0
    theta_length: int = 0
    is_fused: bool = False
    both: LaunchPlan | None = None
    weight_parts: int = 1
    weights: LaunchPlan | None = None
    zeros: bool = False
    gaussian_parts: int = 0


@lru_cache(CACHE_SIZE)
def _gradient_plans(
    x: Shape, weights: Shape, theta: Shape, theta_strides: Shape, skip_strides: Shape | None, offsets: Shape,
    group_stride: int, sender_group_stride: int, needs: tuple[bool, ...], has_center: bool, dim: int,
    precision: str,
) -> _GradientPlans:  # fmt: skip
    needs_x, needs_weights, needs_theta, needs_skip, needs_bias = needs
    strides = group_stride, sender_group_stride
    sizes = convolution_sizes(x, weights, theta, theta_strides, skip_strides, offsets, *strides)
    if sizes.is_empty:
        return _GradientPlans(is_empty=True)
    if neighborhoods.pays(sizes):
        return _GradientPlans(is_empty=False, is_dense=True)
    plans = _GradientPlans(is_empty=False, theta_length=sizes.slots * sizes.channels * sizes.out)
    if needs_theta:
        tiles = theta_tiles(*sizes.of_tiles)
        kernels = items if tiles.of_items else vertices
        # Batches of many items keep a GPU busy: there a captured step sums skip and bias faster in a branch.
        is_fused = sizes.channels <= MAX_FUSED if sizes.slots == 1 else not tiles.of_items
        own = is_fused and needs_skip, is_fused and needs_bias
        plan, parts = kernels.theta_gradients_plan(sizes, tiles, precision, has_center, *own)
        plans = plans._replace(theta=plan, theta_parts=parts, is_fused=is_fused)
    if needs_weights:
        both = sender_tiles(*sizes.of_tiles)
        if both is not None:
            plan, parts = items.sender_gradients_plan(sizes, both, precision, has_center, needs_x)
            plans = plans._replace(both=plan, weight_parts=parts)
        else:
            tiles = weight_tiles(sizes.slots, sizes.channels, sizes.grouped, sizes.num_receivers)
            adds = sizes.batch > 1 and not sizes.per_item
            dim = dim if dim <= MAX_DIM else 0
            plan, parts = vertices.weight_gradients_plan(sizes, tiles, precision, adds, dim)
            plans = plans._replace(weights=plan, zeros=adds, gaussian_parts=parts if dim else 0)
    return plans


def _gradients(
    grad_y: Tensor, needs: tuple[bool, ...], x: Tensor, weights: Tensor, theta: Tensor, pattern: Pattern,
    skip: Tensor | None, fork: Fork, fork_x: Fork | None = None, epsilon: Tensor | None = None,
    gaussians: Gaussians | None = None,
) -> tuple[Tensor | None, Tensor | None, tuple[Tensor | None, ...]]:  # fmt: skip
    """The needed gradients of x and of the weights, and those of Θ, the skip and the bias in parts; with ``gaussians``,
    which are (u, μ, σ), also those of μ and σ, None if the kernel of the weights does not sum them. The gradients of
    the weights are computed at once, because other kernels wait for them; the others are branches, unless one kernel
    computes both. ``fork_x`` is for the branch of x, if it ends before the others."""
    needs_x, _, _, needs_skip, needs_bias = needs
    offsets, sender_offsets = pattern.offsets, pattern.sender_offsets
    plans = _gradient_plans(
        x.shape, weights.shape, theta.shape, theta.stride(), None if skip is None else skip.stride(),
        offsets.shape, offsets.stride(0), sender_offsets.stride(0), needs, epsilon is not None,
        0 if gaussians is None else gaussians[0].shape[1], precision(),
    )  # fmt: skip
    grad_x = grad_weights = theta_parts = None
    own: Sequence[Tensor | None] = (None, None)
    of_gaussians: Sequence[Tensor | None] = (None, None)
    if plans.is_dense:
        forks = fork, fork_x or fork
        summed = gaussians if gaussians is not None and gaussians[1].shape[1] <= MAX_DIM else None
        grad_x, grad_weights, parts = neighborhoods.gradients(
            grad_y, needs, x, weights, theta, pattern, skip, *forks, summed
        )
        return grad_x, None if grad_weights is None else _in_dtype_of(weights, grad_weights), parts
    if not plans.is_fused:
        own = fork(over_rows, x, grad_y, needs_skip, needs_bias)
    if plans.is_empty:
        zeros = [torch.zeros_like(t) if need else None for t, need in zip((x, weights, theta), needs, strict=False)]
        return zeros[0], zeros[1], (None if zeros[2] is None else zeros[2].unsqueeze(0), *own, *of_gaussians)
    if plans.theta is not None:
        theta_parts, *fused = fork(_theta_gradients, grad_y, x, weights, epsilon, pattern, plans, needs)
        own = fused if plans.is_fused else own
    if plans.both is not None:
        grad_x, grad_weights = _sender_gradients(grad_y, x, weights, theta, pattern, skip, epsilon, needs_x, plans)
        return grad_x, _in_dtype_of(weights, grad_weights), (theta_parts, *own, *of_gaussians)
    if needs_x:
        # The same operator on the reversed graph.
        backwards = pattern.receivers, pattern.by_sender, sender_offsets
        grad_x = (fork_x or fork)(_convolve, grad_y, weights, theta, *backwards, skip, None, epsilon)
    if plans.weights is not None:
        grad_weights = (torch.zeros_like if plans.zeros else torch.empty_like)(weights, dtype=torch.float32)
        basis: Sequence[Tensor | None] = (None,) * 4
        if gaussians is not None and plans.gaussian_parts:
            shape = plans.gaussian_parts, *gaussians[1].shape
            of_gaussians = [x.new_empty(*shape, dtype=torch.float32), x.new_empty(*shape, dtype=torch.float32)]
            basis = weights, *gaussians
        plans.weights(grad_y, x, theta, grad_weights, pattern.senders, offsets, *basis, *of_gaussians)
        grad_weights = _in_dtype_of(weights, grad_weights)
    return grad_x, grad_weights, (theta_parts, *own, *of_gaussians)


def _in_dtype_of(tensor: Tensor, gradient: Tensor) -> Tensor:
    """Without calling torch if there is nothing to do."""
    return gradient if gradient.dtype is tensor.dtype else gradient.to(tensor.dtype)


def _theta_gradients(
    grad_y: Tensor, x: Tensor, weights: Tensor, epsilon: Tensor | None, pattern: Pattern, plans: _GradientPlans,
    needs: tuple[bool, ...],
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """The gradients of Θ and, if the kernel computes them, of the skip and of the bias, in parts."""
    assert plans.theta is not None
    parts, out, of_skip, of_bias = plans.theta_parts, grad_y.shape[-1], None, None
    of_theta = x.new_empty(parts, plans.theta_length, dtype=torch.float32)
    if plans.is_fused:
        of_skip = of_theta.new_empty(parts, x.shape[-1] * out) if needs[3] else None
        of_bias = of_theta.new_empty(parts, out) if needs[4] else None
    plans.theta(grad_y, x, weights, epsilon, of_theta, of_skip, of_bias, pattern.senders, pattern.offsets)
    return of_theta, of_skip, of_bias


def _sender_gradients(
    grad_y: Tensor, x: Tensor, weights: Tensor, theta: Tensor, pattern: Pattern, skip: Tensor | None,
    epsilon: Tensor | None, needs_x: bool, plans: _GradientPlans,
) -> tuple[Tensor | None, Tensor]:  # fmt: skip
    """Gradients of x, if needed, and of the weights."""
    assert plans.both is not None
    grad_x, parts = torch.empty_like(x if needs_x else x[:0]), plans.weight_parts
    grad_weights = x.new_empty(weights.shape if parts == 1 else (parts, *weights.shape), dtype=torch.float32)
    matrices = theta.contiguous(), None if skip is None else skip.contiguous()
    backwards = pattern.receivers, pattern.by_sender, pattern.sender_offsets
    plans.both(grad_y, x, weights, *matrices, epsilon, grad_x, grad_weights, *backwards)
    return grad_x if needs_x else None, grad_weights if parts == 1 else grad_weights.sum(0)
