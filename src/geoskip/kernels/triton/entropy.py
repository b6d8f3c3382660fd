"""Cross-entropy on CUDA: one pass over the scores gives the losses and leaves the gradients in the scores' place."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from geoskip.kernels.triton.launch import launch
from geoskip.kernels.triton.tiles import power_of_two

# Programs add up the gradient of the bias over their rows: enough of them to fill a card, few enough to sum again.
PROGRAMS = 528


@triton.jit
def _entropy_kernel(
    scores, bias, labels, shares, losses, grad_bias, num_rows, classes, stride, num_parts,
    HAS_BIAS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    i_p = tl.program_id(0)
    o_c = tl.arange(0, BLOCK)
    m_c = o_c < classes
    b_bias = tl.zeros([BLOCK], dtype=tl.float32)
    if HAS_BIAS:
        b_bias += tl.load(bias + o_c, mask=m_c, other=0.0).to(tl.float32)
    b_sum = tl.zeros([BLOCK], dtype=tl.float32)
    for i_r in range(i_p, num_rows, num_parts):
        p_row = scores + tl.cast(i_r, tl.int64) * stride + o_c
        i_label = tl.load(labels + i_r)
        b_share = tl.where(i_label < 0, 0.0, tl.load(shares + i_r).to(tl.float32))
        b_score = tl.load(p_row, mask=m_c, other=float("-inf")).to(tl.float32) + b_bias
        b_most = tl.max(b_score, axis=0)
        b_exp = tl.exp(b_score - b_most)
        b_total = tl.sum(b_exp, axis=0)
        b_own = tl.sum(tl.where(o_c == i_label, b_score, 0.0), axis=0)
        tl.store(losses + i_r, tl.where(i_label < 0, 0.0, b_share * (tl.log(b_total) + b_most - b_own)))
        b_grad = b_share * (b_exp / b_total - tl.where(o_c == i_label, 1.0, 0.0))
        b_grad = tl.where(m_c, b_grad, 0.0)
        b_sum += b_grad
        tl.store(p_row, b_grad.to(scores.dtype.element_ty), mask=o_c < stride)
    tl.store(grad_bias + i_p * stride + o_c, b_sum, mask=o_c < stride)


def entropy(scores: Tensor, bias: Tensor | None, labels: Tensor, shares: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Losses Σ of scores + bias in rows padded beyond ``classes``, and the gradient of the bias; ``scores`` is
    overwritten with its own gradient."""
    rows, stride = scores.shape
    parts = max(1, min(rows, PROGRAMS))
    losses = torch.empty(rows, device=scores.device, dtype=torch.float32)
    grad_bias = torch.empty(parts, stride, device=scores.device, dtype=torch.float32)
    arguments = (
        scores, bias, labels, shares, losses, grad_bias, rows, classes, stride, parts,
        bias is not None, power_of_two(stride),
    )  # fmt: skip
    launch(_entropy_kernel, (parts,), arguments, warps=16 if stride > 4096 else 4)
    return losses.sum(), grad_bias.sum(0)[:classes]
