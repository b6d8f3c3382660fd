r"""Are learned kernels smoother with skips? The paper's conclusion leaves the question open.

Each layer's filter is measured over its own domain: MoNet's and SplineCNN's over pseudo-coordinates, ChebNet's over the
spectrum of the Laplacian. Compare an operator with and without skips, not different operators with each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import torch
from torch import Tensor, nn

from geoskip.blocks import PolynomialSkip, Skip
from geoskip.graphs import Graph
from geoskip.kernels.reference import gaussian_basis
from geoskip.operators import ChebConv, MoNetConv, Operator, SplineConv
from geoskip.operators.spline import bspline_products
from geoskip.paper.grams import (
    Grams,
    basis_roughness,
    bspline_grams,
    chebyshev,
    chebyshev_grams,
    filter_roughness,
    gaussian_grams,
    sampled_grams,
)
from geoskip.shapes import Float


@dataclass(frozen=True)
class LayerSmoothness:
    """The filter of one layer.

    Attributes:
        layer: its name in the model.
        operator: its class.
        slope: of the filter; see :class:`~geoskip.paper.grams.Roughness`.
        bend: of the filter.
        basis_slope: of the basis functions, which only MoNet learns.
        basis_bend: likewise.
        size: root mean square of Θ.
        edge_slope: of the filter, at the pseudo-coordinates of the layer's edges in place of all; none for ChebNet, or
            where the graph is not known. A narrow Gaussian that no edge meets is rough, but was never trained.
    """

    layer: str
    operator: str
    slope: float
    bend: float
    basis_slope: float
    basis_bend: float
    size: float
    edge_slope: float | None = None


def kernel_grams(conv: Operator, points: Float[Tensor, "points dim"] | None = None) -> Grams:
    """Inner products of the operator's basis functions: over all pseudo-coordinates, all frequencies, or only at
    ``points``, such as the pseudo-coordinates of a graph's edges."""
    if points is not None:
        return _grams_at(conv, points)
    if isinstance(conv, MoNetConv):
        return gaussian_grams(conv.mean.detach(), conv.scale.detach())
    if isinstance(conv, SplineConv):
        return bspline_grams(conv.sizes, conv.degree, conv.closed)
    if isinstance(conv, ChebConv):
        return chebyshev_grams(len(conv.theta), conv.center)
    raise _no_basis(conv)


def model_smoothness(
    model: nn.Module, edges: Mapping[str, Float[Tensor, "edges dim"]] | None = None
) -> list[LayerSmoothness]:
    """Every MoNet, SplineCNN and ChebNet layer of a model, with or without skips, in the model's order. ``edges`` are
    the pseudo-coordinates that layers meet, as :func:`met_pseudo` finds them."""
    rows = []
    for name, module in model.named_modules():
        if isinstance(module, MoNetConv | SplineConv | ChebConv):
            layer = name.removesuffix(".conv")
            rows.append(_smoothness(layer, module, None if edges is None else edges.get(layer)))
    if not rows:
        raise ValueError(f"model: {type(model).__name__} has no MoNet, SplineCNN or ChebNet layer to look at")
    return rows


def met_pseudo(
    model: nn.Module, forward: Callable[[nn.Module], Any], most: int = 2000
) -> dict[str, Float[Tensor, "edges dim"]]:
    """Pseudo-coordinates of the graphs that each layer meets in ``forward(model)``, at most ``most`` of them, evenly
    chosen, by the layer's name."""
    met: dict[str, Tensor] = {}

    def watcher(layer: str) -> Callable[..., None]:
        def watch(conv: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            graph = args[1] if len(args) > 1 else kwargs["graph"]
            if isinstance(graph, Graph) and graph.pseudo is not None:
                count = min(most, graph.num_edges)
                met[layer] = graph.pseudo[torch.arange(count, device=graph.device) * graph.num_edges // max(count, 1)]

        return watch

    handles = [
        module.register_forward_pre_hook(watcher(name.removesuffix(".conv")), with_kwargs=True)
        for name, module in model.named_modules()
        if isinstance(module, Operator)
    ]
    try:
        with torch.no_grad():
            forward(model)
    finally:
        for handle in handles:
            handle.remove()
    return met


def overall(rows: Iterable[LayerSmoothness]) -> dict[str, float]:
    """One number for a model: geometric means over its layers, whose scales differ. Zero if one is exactly flat;
    what some layer does not have is left out."""
    kept = list(rows)
    names = ("slope", "bend", "basis_slope", "basis_bend", "size", "edge_slope")
    columns = {name: [getattr(row, name) for row in kept] for name in names}
    return {name: _geometric_mean(values) for name, values in columns.items() if None not in values}


def spectrum(block: nn.Module, eigenvalues: Float[Tensor, " points"], skip: bool = True) -> Float[Tensor, " points"]:
    r"""How much a ChebNet layer lets through at each eigenvalue λ of the normalized Laplacian, 0 to 2:
    :math:`\|\sum_m T_m(\lambda - 1)\, \Theta_m + A\|_F / \sqrt{in \cdot out}`, A only with ``skip`` and where the block
    has a skip. Small λ are what is smooth along the mesh."""
    conv = block.conv if isinstance(block, Skip) else block
    if not isinstance(conv, ChebConv):
        raise TypeError(f"block: a spectrum needs a ChebConv, got {type(conv).__name__}")
    if skip and isinstance(block, PolynomialSkip):
        raise TypeError("block: a polynomial skip is not linear, so it has no spectrum; ask for skip=False")
    with torch.no_grad():
        basis = chebyshev(eigenvalues.double() - 1, len(conv.theta), conv.center)
        response = torch.einsum("pm,mio->pio", basis, conv.theta.double())
        matrix = getattr(block, "weight", None) if skip and isinstance(block, Skip) else None
        if matrix is not None:
            response = response + matrix.double()
        return response.square().mean((1, 2)).sqrt()


def _smoothness(layer: str, conv: MoNetConv | SplineConv | ChebConv, edges: Tensor | None) -> LayerSmoothness:
    theta, grams = conv.theta.detach(), kernel_grams(conv)
    whole, basis = filter_roughness(theta, grams), basis_roughness(grams)
    met = None if edges is None or isinstance(conv, ChebConv) else filter_roughness(theta, kernel_grams(conv, edges))
    return LayerSmoothness(
        layer,
        type(conv).__name__,
        whole.slope,
        whole.bend,
        basis.slope,
        basis.bend,
        float(theta.square().mean().sqrt()),
        None if met is None else met.slope,
    )


def _grams_at(conv: Operator, points: Tensor) -> Grams:
    if isinstance(conv, MoNetConv):
        mean, scale = conv.mean.detach().double(), conv.scale.detach().double()
        return sampled_grams(lambda u: gaussian_basis(u, mean, scale), points)
    if isinstance(conv, SplineConv):
        return sampled_grams(lambda u: bspline_products(u, conv.sizes, conv.degree, conv.closed), points)
    if isinstance(conv, ChebConv):
        return sampled_grams(lambda s: chebyshev(s[:, 0] - 1, len(conv.theta), conv.center), points)
    raise _no_basis(conv)


def _no_basis(conv: Operator) -> TypeError:
    return TypeError(f"conv: the basis of {type(conv).__name__} is no function of pseudo-coordinates or frequencies")


def _geometric_mean(values: list[float]) -> float:
    return math.exp(fmean(math.log(value) for value in values)) if min(values) > 0 else 0.0
