"""The one place that chooses a path for a kernel."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from importlib.util import find_spec
from types import ModuleType

import torch
from torch import Tensor

from geoskip.kernels import fast, reference
from geoskip.kernels.ops import interpreted
from geoskip.kernels.pattern import Pattern
from geoskip.kernels.tracing import is_transformed
from geoskip.shapes import Float, Int

PATHS: dict[str, ModuleType] = {"reference": reference, "fast": fast, "interpreter": fast}
_HAS_TRITON = find_spec("triton") is not None
_forced: ModuleType | None = None


@contextmanager
def use_path(name: str) -> Iterator[None]:
    """Run every kernel on one path, whatever the device: ``"reference"``, ``"fast"``, or ``"interpreter"``, which
    runs the CUDA kernels in Triton's interpreter on the CPU."""
    global _forced
    if name not in PATHS:
        raise ValueError(f"use_path: unknown path {name!r}; choose from {sorted(PATHS)}")
    before, _forced = _forced, PATHS[name]
    try:
        with interpreted() if name == "interpreter" else nullcontext():
            yield
    finally:
        _forced = before


def _path(x: Tensor) -> ModuleType:
    if is_transformed():
        return reference
    if _forced is not None:
        return _forced
    if x.is_cuda:
        # Triton's kernels accumulate in float32.
        return fast if _HAS_TRITON and x.dtype != torch.float64 else reference
    return fast if x.device.type == "cpu" else reference


def basis_convolution(
    x: Float[Tensor, "*batch senders channels"],
    weights: Float[Tensor, "*shared edges slots"],
    theta: Float[Tensor, "all_slots channels out"],
    pattern: Pattern,
    skip: Float[Tensor, "channels out"] | None = None,
    bias: Float[Tensor, " out"] | None = None,
) -> Float[Tensor, "*batch receivers out"]:
    r"""Basis aggregation, product with the stacked :math:`\Theta`, affine skip and bias:

    .. math:: y_i = \sum_m \Big( \sum_{j \in \mathcal N_m(i)} w_m(i,j)\, x_j \Big) \Theta_m + x_i A + b
    """
    return _path(x).basis_convolution(x, weights, theta, pattern, skip, bias)


def sparse_product(
    x: Float[Tensor, "*batch senders channels"],
    weights: Float[Tensor, " edges"],
    pattern: Pattern,
) -> Float[Tensor, "*batch receivers channels"]:
    r""":math:`y_i = \sum_{j \in \mathcal N(i)} w_{ij}\, x_j`, for every item of the batch at once."""
    return _path(x).sparse_product(x, weights, pattern)


def chebyshev_convolution(
    x: Float[Tensor, "*batch vertices channels"],
    weights: Float[Tensor, " edges"],
    theta: Float[Tensor, "slots channels out"],
    pattern: Pattern,
    first: int = 0,
    skip: Float[Tensor, "channels out"] | None = None,
    bias: Float[Tensor, " out"] | None = None,
) -> Float[Tensor, "*batch vertices out"]:
    r""":math:`y = \sum_m T_{m+f}(L)\, x\, \Theta_m + x A + b`, with L given by its ``weights`` and f = ``first``."""
    return _path(x).chebyshev_convolution(x, weights, theta, pattern, first, skip, bias)


def gaussian_basis(
    pseudo: Float[Tensor, "edges dim"],
    mean: Float[Tensor, "slots dim"],
    scale: Float[Tensor, "slots dim"],
) -> Float[Tensor, "edges slots"]:
    r""":math:`w_m(u) = \exp\big(-\tfrac12 \sum_d (u_d - \mu_{md})^2 / (\sigma_{md}^2 + \epsilon)\big)`."""
    return _path(pseudo).gaussian_basis(pseudo, mean, scale)


def softmax_basis(
    sender_scores: Float[Tensor, "*batch vertices slots"],
    receiver_scores: Float[Tensor, "*batch vertices slots"],
    offset: Float[Tensor, " slots"],
    edge_scale: Float[Tensor, " edges"],
    pattern: Pattern,
) -> Float[Tensor, "*batch edges slots"]:
    r""":math:`q_m(i,j) = e_{ij}\, \mathrm{softmax}_m(s_{j,m} + r_{i,m} + c_m)`."""
    return _path(sender_scores).softmax_basis(sender_scores, receiver_scores, offset, edge_scale, pattern)


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
    """:func:`basis_convolution` with the weights of :func:`gaussian_basis`."""
    return _path(x).gaussian_convolution(x, pseudo, mean, scale, theta, pattern, skip, bias)


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
    r""":func:`basis_convolution` with the weights of :func:`softmax_basis`, of scores :math:`\langle a_m, x_j\rangle`
    and :math:`\langle a'_m, x_i\rangle`; without a' the latter are :math:`-\langle a_m, x_i\rangle`."""
    basis = attention, receiver_attention, offset, edge_scale
    return _path(x).softmax_convolution(x, *basis, theta, pattern, skip, bias)


def linear(
    x: Float[Tensor, "*rows channels"],
    weight: Float[Tensor, "out channels"],
    bias: Float[Tensor, " out"] | None = None,
) -> Float[Tensor, "*rows out"]:
    r""":math:`x W^\top + b`."""
    return _path(x).linear(x, weight, bias)


def linear_cross_entropy(
    x: Float[Tensor, "rows channels"],
    weight: Float[Tensor, "classes channels"],
    bias: Float[Tensor, " classes"] | None,
    labels: Int[Tensor, " rows"],
    shares: Float[Tensor, " rows"],
) -> Float[Tensor, ""]:
    r""":math:`\sum_i s_i \big(\log \sum_c e^{l_{ic}} - l_{i y_i}\big)` of the scores :math:`l = x W^\top + b`, over the
    rows whose label :math:`y_i` is not -1."""
    return _path(x).linear_cross_entropy(x, weight, bias, labels, shares)
