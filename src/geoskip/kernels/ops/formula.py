"""Gradients by a formula in plain PyTorch, for those who differentiate them again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from geoskip.kernels.pattern import Pattern
from geoskip.kernels.tracing import is_transformed


def must_be_differentiable(grad_y: Tensor) -> bool:
    """Inside a backward pass: whether its result will be differentiated (``create_graph=True``) or transformed
    (``torch.func``, ``is_grads_batched=True``). The fast kernels of the gradients have no gradients themselves."""
    return torch.is_grad_enabled() or is_transformed() or torch._C._functorch.is_legacy_batchedtensor(grad_y)


def formula_gradients(
    formula: Callable[..., Tensor], inputs: Sequence[Any], needs: Sequence[bool], grad_y: Tensor
) -> tuple[Tensor | None, ...]:
    """The gradients of ``formula(*inputs)`` that are needed, None for the others; differentiable if they must be."""
    with torch.enable_grad():
        # Each input gets a node of its own, so that an input which depends on another one adds nothing to its gradient.
        leaves = [value.view_as(value) if need else value for value, need in zip(inputs, needs, strict=True)]
        y = formula(*leaves)
    wanted = [leaf for leaf, need in zip(leaves, needs, strict=True) if need]
    create_graph = torch.is_grad_enabled()
    grads = iter(torch.autograd.grad(y, wanted, grad_y.to(y.dtype), create_graph=create_graph, materialize_grads=True))
    return tuple(next(grads) if need else None for need in needs)


def pattern_of(
    senders: Tensor, receivers: Tensor, offsets: Tensor, by_sender: Tensor, sender_offsets: Tensor
) -> Pattern:
    """The pattern whose tensors a kernel was given."""
    groups_of = None
    if offsets.shape[0] > 1:
        edges = torch.arange(senders.shape[0], device=senders.device)
        groups_of = torch.searchsorted(offsets[:, -1].contiguous(), edges, right=True)
    return Pattern(senders, receivers, groups_of, offsets, by_sender, sender_offsets)
