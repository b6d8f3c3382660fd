"""A linear layer whose gradients are branches where a CUDA graph is captured."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from geoskip.kernels.branches import branches
from geoskip.kernels.ops.backend import backend
from geoskip.kernels.ops.formula import formula_gradients, must_be_differentiable


class Linear(torch.autograd.Function):
    """Of x [rows, in]. torch makes the three gradients one after the other, each too small to fill a card."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight, bias)
        return functional.linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, grad_y: Tensor) -> Any:
        if must_be_differentiable(grad_y):
            return formula_gradients(functional.linear, ctx.saved_tensors, ctx.needs_input_grad, grad_y)
        x, weight, _ = ctx.saved_tensors
        grad_y = grad_y.contiguous()
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad
        grad_x = grad_weight = grad_bias = None
        with branches(x) as beside:
            if needs_bias:
                grad_bias = beside(lambda: backend(x).over_rows(grad_y, grad_y, False, True)[1].to(x.dtype))
            if needs_weight:
                grad_weight = beside(lambda: grad_y.t() @ x)
            if needs_x:
                grad_x = grad_y @ weight
        return grad_x, grad_weight, grad_bias
