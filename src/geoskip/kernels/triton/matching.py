"""Graclus matchings of many small graphs on CUDA: a program visits the vertices of one graph."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from geoskip.kernels.triton.launch import SIZES, launch, power_of_two


@triton.jit(do_not_specialize=(*SIZES, "num_visits"))
def _match_kernel(scores, order, partners, num_vertices, num_visits, BLOCK: tl.constexpr):
    i_g = tl.program_id(0).to(tl.int64)
    o_v = tl.arange(0, BLOCK)
    m_v = o_v < num_vertices
    never = float("-inf")
    b_partner = tl.full([BLOCK], -1, dtype=tl.int32)
    for k in range(num_visits):
        i_v = tl.load(order + i_g * num_visits + k).to(tl.int32)
        i_known = tl.max(tl.where(o_v == i_v, b_partner, -1), axis=0)
        p_row = scores + (i_g * num_vertices + i_v) * num_vertices
        b_score = tl.load(p_row + o_v, mask=m_v & (b_partner < 0), other=never).to(tl.float32)
        b_best, i_mate = tl.max(b_score, axis=0, return_indices=True, return_indices_tie_break_left=True)
        i_mate = tl.where(b_best > never, i_mate, i_v)
        # A vertex that has a partner keeps it.
        i_mate = tl.where(i_known >= 0, i_known, i_mate)
        b_partner = tl.where(o_v == i_v, i_mate, b_partner)
        b_partner = tl.where(o_v == i_mate, i_v, b_partner)
    tl.store(partners + i_g * num_vertices + o_v, b_partner.to(tl.int64), mask=m_v)


def match_dense(scores: Tensor, order: Tensor) -> Tensor:
    """As :func:`geoskip.graphs.coarsening.match_dense`, of scores [graphs, vertices, vertices] in float32."""
    num_graphs, num_vertices, _ = scores.shape
    partners = torch.empty(num_graphs, num_vertices, dtype=torch.int64, device=scores.device)
    if partners.numel():
        arguments = scores.contiguous(), order.contiguous(), partners, num_vertices, order.shape[1]
        launch(_match_kernel, (num_graphs,), (*arguments, power_of_two(num_vertices, 32)), 1)
    return partners
