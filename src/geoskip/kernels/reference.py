r"""The kernels as their formulas read, in plain PyTorch.

Every fast path is tested against these, values and gradients. They materialize edge-sized intermediates and can be
differentiated any number of times; on CUDA their sums are not reproducible (``index_add`` adds atomically). Functions
that :mod:`geoskip.kernels.functional` has too take the shapes that are given there.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from geoskip.kernels.pattern import Pattern
from geoskip.shapes import Float

# Added to MoNet's σ², so that σ = 0 is no error.
FLOOR = 1e-15


def basis_aggregation(
    x: Float[Tensor, "*batch senders channels"],
    weights: Float[Tensor, "*shared edges slots"],
    pattern: Pattern,
) -> Float[Tensor, "*batch receivers all_slots channels"]:
    r""":math:`z_{i,m} = \sum_{j \in \mathcal N_m(i)} w_m(i,j)\, x_j`."""
    messages = weights.unsqueeze(-1) * x.index_select(-2, pattern.senders).unsqueeze(-2)
    batch, channels = messages.shape[:-3], x.shape[-1]
    if pattern.groups_of is None:
        z = messages.new_zeros(*batch, pattern.num_receivers, weights.shape[-1], channels)
        return z.index_add(-3, pattern.receivers, messages)
    rows = pattern.receivers * pattern.groups + pattern.groups_of
    z = messages.new_zeros(*batch, pattern.num_receivers * pattern.groups, channels)
    return z.index_add(-2, rows, messages.squeeze(-2)).unflatten(-2, (-1, pattern.groups))


def basis_convolution(
    x: Tensor, weights: Tensor, theta: Tensor, pattern: Pattern, skip: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:  # fmt: skip
    r""":math:`y_i = \sum_m z_{i,m} \Theta_m + x_i A + b`, with z from :func:`basis_aggregation`."""
    # Basis weights are at least float32, and so is z; the product has the precision of its matrix.
    y = basis_aggregation(x, weights, pattern).flatten(-2).to(theta.dtype) @ theta.reshape(-1, theta.shape[-1])
    if skip is not None:
        y = y + x @ skip
    return y if bias is None else y + bias


def sparse_product(x: Tensor, weights: Tensor, pattern: Pattern) -> Tensor:
    r""":math:`y_i = \sum_{j \in \mathcal N(i)} w_{ij}\, x_j`, a sparse matrix times every item of the batch."""
    return basis_aggregation(x, weights.unsqueeze(-1), pattern).squeeze(-2).to(x.dtype)


def chebyshev_convolution(
    x: Tensor, weights: Tensor, theta: Tensor, pattern: Pattern, first: int = 0, skip: Tensor | None = None,
    bias: Tensor | None = None, product: Callable[[Tensor, Tensor, Pattern], Tensor] = sparse_product,
) -> Tensor:  # fmt: skip
    r""":math:`y = \sum_m T_{m+f}(L)\, x\, \Theta_m + x A + b`, with
    :math:`T_0 = 1,\ T_1 = L,\ T_k = 2 L T_{k-1} - T_{k-2}` and f = ``first``. ``product`` may be the
    :func:`sparse_product` of another path."""
    terms = [x, product(x, weights, pattern)]
    while len(terms) < first + theta.shape[0]:
        terms.append(2 * product(terms[-1], weights, pattern) - terms[-2])
    pairs = zip(terms[first : first + theta.shape[0]], theta, strict=True)
    y = torch.stack([term @ matrix for term, matrix in pairs]).sum(0)
    if skip is not None:
        y = y + x @ skip
    return y if bias is None else y + bias


def gaussian_basis(
    pseudo: Float[Tensor, "edges dim"],
    mean: Float[Tensor, "slots dim"],
    scale: Float[Tensor, "slots dim"],
    floor: float = FLOOR,
) -> Float[Tensor, "edges slots"]:
    r""":math:`w_m(u) = \exp\big(-\tfrac12 \sum_d (u_d - \mu_{md})^2 / (\sigma_{md}^2 + \epsilon)\big)`."""
    distances = (pseudo.unsqueeze(1) - mean).square() / (scale.square() + floor)
    return torch.exp(-0.5 * distances.sum(-1))


def gaussian_convolution(
    x: Tensor, pseudo: Tensor, mean: Tensor, scale: Tensor, theta: Tensor, pattern: Pattern,
    skip: Tensor | None = None, bias: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """:func:`basis_convolution` with the weights of :func:`gaussian_basis`."""
    return basis_convolution(x, gaussian_basis(pseudo, mean, scale), theta, pattern, skip, bias)


def softmax_basis(
    sender_scores: Float[Tensor, "*batch vertices slots"], receiver_scores: Float[Tensor, "*batch vertices slots"],
    offset: Float[Tensor, " slots"], edge_scale: Float[Tensor, " edges"], pattern: Pattern,
) -> Float[Tensor, "*batch edges slots"]:  # fmt: skip
    r""":math:`q_m(i,j) = e_{ij}\, \mathrm{softmax}_m(s_{j,m} + r_{i,m} + c_m)`."""
    at_senders = sender_scores.index_select(-2, pattern.senders)
    at_receivers = receiver_scores.index_select(-2, pattern.receivers)
    return edge_scale.unsqueeze(-1) * torch.softmax(at_senders + at_receivers + offset, dim=-1)


def both_scores(x: Tensor, attention: Tensor, receiver_attention: Tensor | None) -> tuple[Tensor, Tensor]:
    r"""Scores :math:`\langle a_m, x\rangle` of the vertices as senders and :math:`\langle a'_m, x\rangle` as receivers;
    without a' the latter are minus the former."""
    scores = x @ attention.t()
    return scores, -scores if receiver_attention is None else x @ receiver_attention.t()


def softmax_convolution(
    x: Tensor, attention: Tensor, receiver_attention: Tensor | None, offset: Tensor, edge_scale: Tensor,
    theta: Tensor, pattern: Pattern, skip: Tensor | None = None, bias: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """:func:`basis_convolution` with the weights of :func:`softmax_basis`, of :func:`both_scores`."""
    weights = softmax_basis(*both_scores(x, attention, receiver_attention), offset, edge_scale, pattern)
    return basis_convolution(x, weights, theta, pattern, skip, bias)


def perceptron_convolution(
    x: Tensor, weights: Tensor, epsilon: Tensor, theta: Tensor, pattern: Pattern, hidden_bias: Tensor,
    theta_out: Tensor, skip: Tensor | None, bias: Tensor,
) -> Tensor:  # fmt: skip
    r""":math:`y_i = h_i^+ \Theta' + x_i A + b` with
    :math:`h_i = ((1 + \epsilon) x_i + \sum_j w_{ij} x_j) \Theta + b'`."""
    # The center's (1 + ε) x_i and the first layer together are a skip of weight (1 + ε) Θ.
    hidden = basis_convolution(x, weights.unsqueeze(1), theta, pattern, (1 + epsilon) * theta, hidden_bias)
    return second_layer(x, hidden, theta_out, skip, bias)


def second_layer(x: Tensor, hidden: Tensor, theta_out: Tensor, skip: Tensor | None, bias: Tensor) -> Tensor:
    r""":math:`h_i^+ \Theta' + x_i A + b`, where the ReLU :math:`h^+` is 0 for negative h."""
    y = hidden.relu() @ theta_out + bias
    return y if skip is None else y + x @ skip


def max_pool(x: Tensor, pattern: Pattern) -> Tensor:
    r""":math:`y_c = \max_{i \in c} x_i`."""
    members = x.index_select(-2, pattern.senders)
    # Padding is in no cluster: its receiver is after the last one.
    y = x.new_full((*x.shape[:-2], pattern.num_receivers + 1, x.shape[-1]), -torch.inf)
    index = pattern.receivers.unsqueeze(1).expand(members.shape)
    return y.scatter_reduce(-2, index, members, "amax", include_self=False)[..., :-1, :]


def mean_pool(x: Tensor, pattern: Pattern) -> Tensor:
    r""":math:`y_c = \tfrac1{|c|} \sum_{i \in c} x_i`; 0 for an empty cluster."""
    return _means(x.index_select(-2, pattern.senders), pattern.receivers, pattern.offsets[0])


def segment_mean(x: Tensor, offsets: Tensor) -> Tensor:
    """The mean of the vertices ``offsets[s] : offsets[s + 1]`` of each segment; 0 for an empty one."""
    segments = torch.searchsorted(offsets, torch.arange(x.shape[-2], device=x.device), right=True) - 1
    return _means(x, segments, offsets)


def _means(x: Tensor, segments: Tensor, offsets: Tensor) -> Tensor:
    """The mean of each segment. Those that are in none have the number after the last."""
    sums = x.new_zeros(*x.shape[:-2], len(offsets), x.shape[-1]).index_add(-2, segments, x)
    return sums[..., :-1, :] / offsets.diff().clamp(min=1).unsqueeze(1)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    r""":math:`x W^\top + b`."""
    return functional.linear(x, weight, bias)


def linear_cross_entropy(x: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, shares: Tensor) -> Tensor:
    r""":math:`\sum_i s_i \big(\log \sum_c e^{l_{ic}} - l_{i y_i}\big)` of the scores :math:`l = x W^\top + b`, over the
    rows whose label :math:`y_i` is not -1."""
    scores = linear(x, weight, bias)
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    return (functional.cross_entropy(scores, labels, ignore_index=-1, reduction="none") * shares).sum()
