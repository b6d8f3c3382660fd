"""A linear layer and the cross-entropy of its scores as one step of autograd."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from geoskip.kernels import reference
from geoskip.kernels.ops.backend import backend
from geoskip.kernels.ops.formula import formula_gradients, must_be_differentiable

# Matrix products on tensor cores want rows of whole 32 bytes; classes such as 6890 are padded to that.
STEP = 8


class LinearCrossEntropy(torch.autograd.Function):
    """Scores are held once and turned into their gradient in place; backward is two matrix products."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, shares: Tensor) -> Tensor:
        classes = len(weight)
        wide = pad(weight, (0, 0, 0, -classes % STEP))
        scores = x @ wide.t()
        loss, grad_bias = backend(x).entropy(scores, bias, labels, shares, classes)
        ctx.save_for_backward(x, weight, bias, labels, shares, wide, scores, grad_bias)
        ctx.classes, ctx.has_bias = classes, bias is not None
        return loss

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        *inputs, wide, scores, grad_bias = ctx.saved_tensors
        if must_be_differentiable(grad):
            return formula_gradients(reference.linear_cross_entropy, inputs, ctx.needs_input_grad, grad)
        x = inputs[0]
        # Not a matrix product first: in a fresh thread of autograd cuBLAS finds no context yet, and warns.
        grad_bias = (grad_bias * grad).to(wide.dtype)
        grad_x = (scores @ wide) * grad.to(scores.dtype) if ctx.needs_input_grad[0] else None
        grad_weight = (scores.t() @ x)[: ctx.classes] * grad.to(scores.dtype) if ctx.needs_input_grad[1] else None
        return grad_x, grad_weight, grad_bias if ctx.has_bias else None, None, None
