r"""Are learned kernels smoother with skips? The paper's conclusion leaves the question open.

A layer's filter is :math:`f(u) = \sum_m w_m(u)\, \Theta_m`, over its own domain: MoNet's and SplineCNN's over
pseudo-coordinates, ChebNet's over the spectrum of the Laplacian. Compare an operator with and without skips, not
different operators with each other.

The roughness of f is the energy that thin plate splines minimize, of first and of second derivatives (Wahba, Spline
models for observational data, 1990). It is quadratic in Θ, so three M × M matrices of inner products describe a basis.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from statistics import fmean
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from geoskip.graphs import Graph
from geoskip.kernels.reference import gaussian_basis
from geoskip.operators import ChebConv, MoNetConv, Operator, SplineConv
from geoskip.operators.spline import bspline, bspline_products
from geoskip.shapes import Float
from geoskip.training.tasks.base import spread_evenly

# Gauss-Legendre nodes in each span. Eight integrate polynomials up to degree 15 exactly: cubic splines multiply to 6.
NODES = 8
# Spans of [0, 1] for Gaussians: scales down to 0.003 are integrated to six digits.
GAUSSIAN_SPANS = 128
# Edges at which a filter is measured.
MOST_EDGES = 2000


@dataclass(frozen=True, eq=False)
class Grams:
    r"""Inner products of basis functions over a region, or over points.

    Attributes:
        size: :math:`\int w_m w_n`.
        slope: :math:`\int \langle \nabla w_m, \nabla w_n \rangle`.
        bend: :math:`\int \langle \nabla^2 w_m, \nabla^2 w_n \rangle`, over all entries of the Hessians.
    """

    size: Float[Tensor, "slots slots"]
    slope: Float[Tensor, "slots slots"]
    bend: Float[Tensor, "slots slots"]


@dataclass(frozen=True)
class Roughness:
    r"""How fast a filter changes, whatever its scale: neither number changes when f is multiplied.

    Attributes:
        slope: :math:`\int \|\nabla f\|^2 \big/ \int \|f\|^2`; 0 for constants.
        bend: :math:`\int \|\nabla^2 f\|^2 \big/ \int \|f\|^2`; 0 for affine functions.
    """

    slope: float
    bend: float


def filter_roughness(theta: Float[Tensor, "slots channels out"], grams: Grams) -> Roughness:
    """The roughness of the filter, all its channels together."""
    inner = torch.einsum("mio,nio->mn", theta.double(), theta.double())
    return _quotients(*(float((inner * gram).sum()) for gram in (grams.size, grams.slope, grams.bend)))


def basis_roughness(grams: Grams) -> Roughness:
    r"""The roughness of the basis functions: the mean of their quotients, weighted by :math:`\int w_m^2`.

    A function that hardly reaches into the region therefore hardly counts.
    """
    return _quotients(*(float(gram.trace()) for gram in (grams.size, grams.slope, grams.bend)))


def _quotients(size: float, slope: float, bend: float) -> Roughness:
    if not size > 0:
        raise ValueError("theta: the filter is zero where it is measured, so it has no roughness")
    return Roughness(slope / size, bend / size)


def sampled_grams(
    basis: Callable[[Float[Tensor, "points dim"]], Float[Tensor, "points slots"]],
    points: Float[Tensor, "points dim"],
    weights: Float[Tensor, " points"] | None = None,
) -> Grams:
    """Weighted sums over points, for any basis that autograd can differentiate.

    The points are the edges of a graph, by default with equal weights, or the nodes of a quadrature.
    """
    u = points.detach().double().requires_grad_()
    share = u.new_full((len(u),), 1 / max(len(u), 1)) if weights is None else weights.double()
    values = basis(u)
    # One function at a time: derivatives of all of them together would go through the graphs of all, for each.
    slopes = [_gradient(value, u) for value in values.unbind(1)]
    bends = [torch.cat([_gradient(slope, u) for slope in of_value.unbind(1)], dim=1) for of_value in slopes]
    parts = values.unsqueeze(2), torch.stack(slopes, dim=1), torch.stack(bends, dim=1)
    return Grams(*(torch.einsum("p,pmk,pnk->mn", share, part, part).detach() for part in parts))


def _gradient(values: Tensor, u: Tensor) -> Tensor:
    """Zero where the values do not depend on u, as with a constant basis."""
    if not values.requires_grad:
        return torch.zeros_like(u)
    gradient = torch.autograd.grad(values.sum(), u, create_graph=True, allow_unused=True)[0]
    return torch.zeros_like(u) if gradient is None else gradient


def separable_grams(axes: Sequence[Grams]) -> Grams:
    r"""Grams of products :math:`w_m(u) = \prod_d g_{md}(u_d)` over a box, from those along each axis."""
    dim = len(axes)

    def term(*derived: int) -> Tensor:
        """With one derivative along each axis that is named, two where it is named twice."""
        orders = [(axis.size, axis.slope, axis.bend)[derived.count(d)] for d, axis in enumerate(axes)]
        return torch.stack(orders).prod(0)

    slope = torch.stack([term(a) for a in range(dim)]).sum(0)
    bend = torch.stack([term(a, b) for a in range(dim) for b in range(dim)]).sum(0)
    return Grams(term(), slope, bend)


def _integrated(basis: Callable[[Tensor], Tensor], low: float, high: float, spans: int) -> Grams:
    """Grams of functions of one variable, by quadrature in equal spans. No node lies on a border of spans."""
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    points = [(a + b) / 2 + (b - a) / 2 * nodes for a, b in pairwise(np.linspace(low, high, spans + 1))]
    shares = np.tile(weights * (high - low) / spans / 2, spans)
    u = torch.from_numpy(np.concatenate(points)).unsqueeze(1)
    return sampled_grams(lambda u: basis(u[:, 0]), u, torch.from_numpy(shares))


def gaussian_grams(mean: Float[Tensor, "slots dim"], scale: Float[Tensor, "slots dim"]) -> Grams:
    r"""Grams of :math:`w_m(u) = \exp(-\tfrac12 \sum_d (u_d - \mu_{md})^2 / \sigma_{md}^2)` over [0, 1]^dim."""
    if bool((scale == 0).any()):
        raise ValueError("scale: a Gaussian of scale 0 has no roughness")

    def along(center: Tensor, width: Tensor) -> Grams:
        return _integrated(lambda u: (-((u.unsqueeze(1) - center) / width).square() / 2).exp(), 0, 1, GAUSSIAN_SPANS)

    return separable_grams([along(*axis) for axis in zip(mean.double().t(), scale.double().t(), strict=True)])


def bspline_grams(sizes: tuple[int, ...], degree: int = 1, closed: tuple[bool, ...] | None = None) -> Grams:
    r"""Grams of SplineCNN's products of B-splines over [0, 1]^dim.

    Splines of degree 1 have kinks, whose second derivatives are not square integrable. For them ``bend`` is what
    P-splines penalize instead, second differences of neighboring coefficients (Eilers and Marx, Flexible smoothing
    with B-splines and penalties, 1996), :math:`\sum_k h\, (\Delta^2 \theta_k / h^2)^2` along an axis with spans of
    length h. It becomes the integral as h goes to 0.
    """
    indices = torch.cartesian_prod(*(torch.arange(size) for size in sizes)).reshape(-1, len(sizes))
    axes = []
    for d, (size, loop) in enumerate(zip(sizes, closed or (False,) * len(sizes), strict=True)):
        spans = 1 if size == 1 else size if loop else size - degree
        grams = _integrated(partial(bspline, size=size, degree=degree, closed=loop), 0, 1, spans)
        bend = _second_differences(size, loop) if degree == 1 else grams.bend
        at = indices[:, d].unsqueeze(1), indices[:, d]
        axes.append(Grams(grams.size[at], grams.slope[at], bend[at]))
    return separable_grams(axes)


def _second_differences(size: int, closed: bool) -> Tensor:
    """Eilers and Marx's penalty as a matrix, for B-splines of degree 1."""
    if size < 3:
        return torch.zeros(size, size, dtype=torch.float64)
    eye = torch.eye(size, dtype=torch.float64)
    rows = eye.roll(1, 0) - 2 * eye + eye.roll(-1, 0)
    spacing = 1 / (size if closed else size - 1)
    kept = rows if closed else rows[1:-1]
    return kept.t() @ kept / spacing**3


def chebyshev_grams(kernel_size: int, center: bool = True) -> Grams:
    r"""Grams of :math:`T_m(\lambda - 1)` over the eigenvalues :math:`0 \le \lambda \le 2` of the normalized Laplacian.

    m starts at 0 with ``center``, at 1 without: the filter :math:`\sum_m T_m(\lambda - 1)\, \Theta_m` of ChebNet.
    """
    return _integrated(lambda s: chebyshev(s, kernel_size, center), -1, 1, spans=kernel_size)


def chebyshev(s: Float[Tensor, " points"], kernel_size: int, center: bool = True) -> Float[Tensor, "points slots"]:
    r""":math:`T_m(s)`, from :math:`T_0` or, without ``center``, from :math:`T_1`."""
    columns = [torch.ones_like(s), s]
    while len(columns) < kernel_size + 1:
        columns.append(2 * s * columns[-1] - columns[-2])
    first = 0 if center else 1
    return torch.stack(columns[first : first + kernel_size], dim=1)


def kernel_grams(conv: Operator, points: Float[Tensor, "points dim"] | None = None) -> Grams:
    """Grams of the operator's basis functions: over all pseudo-coordinates, over all frequencies, or only at
    ``points``, such as the pseudo-coordinates of a graph's edges."""
    if isinstance(conv, MoNetConv):
        mean, scale = conv.mean.detach().double(), conv.scale.detach().double()
        if points is None:
            return gaussian_grams(mean, scale)
        return sampled_grams(lambda u: gaussian_basis(u, mean, scale), points)
    if isinstance(conv, SplineConv):
        if points is None:
            return bspline_grams(conv.sizes, conv.degree, conv.closed)
        return sampled_grams(lambda u: bspline_products(u, conv.sizes, conv.degree, conv.closed), points)
    if isinstance(conv, ChebConv):
        if points is None:
            return chebyshev_grams(len(conv.theta), conv.center)
        return sampled_grams(lambda s: chebyshev(s[:, 0] - 1, len(conv.theta), conv.center), points)
    name = type(conv).__name__
    raise TypeError(f"conv: the basis of {name} is not a function of pseudo-coordinates or frequencies")


@dataclass(frozen=True)
class LayerSmoothness:
    """The filter of one layer.

    Attributes:
        layer: its name in the model.
        operator: its class.
        slope: of the filter; see :class:`Roughness`.
        bend: of the filter.
        basis_slope: of the basis functions, which only MoNet learns.
        basis_bend: likewise.
        size: root mean square of Θ.
        edge_slope: of the filter, at the pseudo-coordinates of the layer's edges instead of all; None for ChebNet, or
            if the graph is not known. A narrow Gaussian that no edge meets is rough, but was never trained.
    """

    layer: str
    operator: str
    slope: float
    bend: float
    basis_slope: float
    basis_bend: float
    size: float
    edge_slope: float | None = None


def model_smoothness(
    model: nn.Module, edges: Mapping[str, Float[Tensor, "edges dim"]] | None = None
) -> list[LayerSmoothness]:
    """Every MoNet, SplineCNN and ChebNet layer of a model, with or without skips, in the model's order.

    edges: the pseudo-coordinates of each layer, as :func:`edge_pseudo` collects them.
    """
    layers = [
        (name.removesuffix(".conv"), module)
        for name, module in model.named_modules()
        if isinstance(module, MoNetConv | SplineConv | ChebConv)
    ]
    if not layers:
        raise ValueError(f"model: {type(model).__name__} has no MoNet, SplineCNN or ChebNet layer to look at")
    return [_smoothness(layer, conv, (edges or {}).get(layer)) for layer, conv in layers]


def _smoothness(layer: str, conv: MoNetConv | SplineConv | ChebConv, edges: Tensor | None) -> LayerSmoothness:
    theta, grams = conv.theta.detach(), kernel_grams(conv)
    whole, basis = filter_roughness(theta, grams), basis_roughness(grams)
    at_edges = edges is not None and not isinstance(conv, ChebConv)
    return LayerSmoothness(
        layer,
        type(conv).__name__,
        whole.slope,
        whole.bend,
        basis.slope,
        basis.bend,
        float(theta.square().mean().sqrt()),
        filter_roughness(theta, kernel_grams(conv, edges)).slope if at_edges else None,
    )


def edge_pseudo(
    model: nn.Module, forward: Callable[[nn.Module], Any], most: int = MOST_EDGES
) -> dict[str, Float[Tensor, "edges dim"]]:
    """Pseudo-coordinates of the graphs that each layer gets in ``forward(model)``, by the layer's name.

    most: how many edges of a graph are taken, spread evenly.
    """
    pseudo: dict[str, Tensor] = {}

    def hook(layer: str) -> Callable[..., None]:
        def keep(conv: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            graph = args[1] if len(args) > 1 else kwargs["graph"]
            if isinstance(graph, Graph) and graph.pseudo is not None:
                pseudo[layer] = graph.pseudo[spread_evenly(graph.num_edges, most).to(graph.device)]

        return keep

    with ExitStack() as hooks, torch.no_grad():
        for name, module in model.named_modules():
            if isinstance(module, Operator):
                keep_pseudo = hook(name.removesuffix(".conv"))
                hooks.enter_context(module.register_forward_pre_hook(keep_pseudo, with_kwargs=True))
        forward(model)
    return pseudo


def overall(rows: Iterable[LayerSmoothness]) -> dict[str, float]:
    """One number for a model: geometric means over its layers, whose scales differ; 0 if a layer is exactly flat.

    Quantities that a layer does not have are left out.
    """
    layers = list(rows)
    names = ("slope", "bend", "basis_slope", "basis_bend", "size", "edge_slope")
    columns = {name: [getattr(row, name) for row in layers] for name in names}
    return {
        name: math.exp(fmean(map(math.log, values))) if min(values) > 0 else 0.0
        for name, values in columns.items()
        if None not in values
    }
