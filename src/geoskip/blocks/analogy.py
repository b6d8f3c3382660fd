r"""The paper's analogy, executable: an RBF interpolant with its affine part is one convolution with an affine skip.

.. math::
    \hat f(x_i) = \sum_j \varphi(\lVert c_j - x_i \rVert)\, w_j + x_i A + b \qquad\text{and}\qquad
    y_i = \sum_{j \in \mathcal N(i)} w(u_{ij})\, x_j\, \Theta + x_i A + b

are the same sum on the graph where every center sends to every point, with pseudo-coordinates u_ij = c_j - x_i. A
vertex has two kinds of features: its radial weights, which it sends to others, and its position, which only its own
skip uses. Θ selects the former and A the latter.
"""

from __future__ import annotations

import torch
from torch import Tensor

from geoskip.blocks.skips import AffineSkip
from geoskip.graphs import Graph
from geoskip.operators.rbf import RBFConv
from geoskip.rbf.interpolant import RBFInterpolant
from geoskip.shapes import Float


def interpolant_block(interpolant: RBFInterpolant) -> AffineSkip:
    """The block that computes ``interpolant`` on its :func:`interpolant_graph`: one slot, centered at u = 0."""
    dim, out = interpolant.centers.shape[-1], interpolant.weights.shape[-1]
    slopes, offset = interpolant.affine()
    conv = RBFConv(out + dim, out, kernel_size=1, dim=dim, kernel=interpolant.kernel)
    block = AffineSkip(conv).to(interpolant.weights)
    values = {
        "conv.theta": torch.eye(out + dim, out).unsqueeze(0),
        "conv.mean": torch.zeros(1, dim),
        "conv.scale": torch.ones(1, dim),
        "conv.bias": offset,
        "weight": torch.cat([slopes.new_zeros(out, out), slopes]),
    }
    block.load_state_dict(values)
    return block


def interpolant_graph(
    interpolant: RBFInterpolant, points: Float[Tensor, "points dim"]
) -> tuple[Float[Tensor, "vertices channels"], Graph]:
    """Features and graph for the block: first the points, which receive from every center, then the centers.

    A point sends nothing, so its weight is 0. Only the first rows of the block's output are values of f̂.
    """
    centers, weights = interpolant.centers, interpolant.weights
    points = points.to(centers)
    no_weights = weights.new_zeros(len(points), weights.shape[1])
    x = torch.cat([torch.cat([no_weights, points], dim=1), torch.cat([weights, centers], dim=1)])
    receivers, senders = torch.cartesian_prod(
        torch.arange(len(points), device=x.device), torch.arange(len(points), len(x), device=x.device)
    ).T
    pseudo = centers[senders - len(points)] - points[receivers]
    return x, Graph.from_edge_index(torch.stack([senders, receivers]), len(x), pseudo)
