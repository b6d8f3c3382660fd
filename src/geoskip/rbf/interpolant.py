r"""Radial basis interpolants with their polynomial part (section 3 of the paper).

.. math:: \hat f(x) = \sum_i w_i\, \varphi(\lVert x - x_i \rVert) + P(x), \qquad \sum_i w_i\, q(x_i) = 0
   \text{ for all polynomials } q \text{ of P's degree}
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from geoskip.rbf.distances import in_blocks, squared_distances
from geoskip.rbf.kernels import Kernel, choose_kernel
from geoskip.rbf.polynomials import Domain, monomials
from geoskip.rbf.saddle import check_distinct, solve_saddle
from geoskip.shapes import Float


@dataclass(frozen=True, eq=False)
class RBFInterpolant:
    """What :func:`fit_rbf` found. Call it at points; the two parts of its value are :meth:`radial` and
    :meth:`polynomial`.

    centres: x_i, float64.
    weights: w_i, a row for each centre.
    coefficients: of the monomials of degree 0 to ``degree`` in the coordinates of ``domain``.
    kernel, degree, domain: φ, the degree of P (-1: no polynomial part), and where the centres lie.
    """

    centres: Float[Tensor, "*batch centres dim"]
    weights: Float[Tensor, "*batch centres out"]
    coefficients: Float[Tensor, "*batch monomials out"]
    kernel: Kernel
    degree: int
    domain: Domain

    def __call__(self, points: Float[Tensor, "*shape points dim"]) -> Float[Tensor, "*any points out"]:
        """f̂ at points, in their dtype; computed in float64, block by block, differentiable in everything."""
        return (self._radial(points) + self._polynomial(points)).to(points.dtype)

    def radial(self, points: Float[Tensor, "*shape points dim"]) -> Float[Tensor, "*any points out"]:
        """The sum of kernels alone, which tends to oscillate where it must stand in for the polynomial."""
        return self._radial(points).to(points.dtype)

    def polynomial(self, points: Float[Tensor, "*shape points dim"]) -> Float[Tensor, "*any points out"]:
        """P alone: the same function wherever the centres are dense or sparse."""
        return self._polynomial(points).to(points.dtype)

    def affine(self) -> tuple[Float[Tensor, "*batch dim out"], Float[Tensor, "*batch out"]]:
        """A and b of P(x) = x A + b, in the coordinates of the centres; 0 where the degree leaves them out."""
        if self.degree > 1:
            raise ValueError(f"degree: a polynomial part of degree {self.degree} is not affine")
        missing = self.centres.shape[-1] + 1 - self.coefficients.shape[-2]
        rows = nn.functional.pad(self.coefficients, (0, 0, 0, missing))
        slopes = rows[..., 1:, :] / self.domain.scale.mT
        return slopes, (rows[..., :1, :] - self.domain.shift @ slopes).squeeze(-2)

    def to(self, device: torch.device | str) -> "RBFInterpolant":
        """On another device."""
        domain = Domain(self.domain.shift.to(device), self.domain.scale.to(device))
        centres, weights, coefficients = (each.to(device) for each in (self.centres, self.weights, self.coefficients))
        return RBFInterpolant(centres, weights, coefficients, self.kernel, self.degree, domain)

    def _radial(self, points: Tensor) -> Tensor:
        points = self._checked(points)
        batch = torch.broadcast_shapes(points.shape[:-2], self.centres.shape[:-2])
        return in_blocks(self._radial_block, points, batch.numel() * self.centres.shape[-2])

    def _radial_block(self, points: Tensor) -> Tensor:
        return self.kernel(squared_distances(points, self.centres)) @ self.weights

    def _polynomial(self, points: Tensor) -> Tensor:
        return monomials(self.domain(self._checked(points)), self.degree) @ self.coefficients

    def _checked(self, points: Tensor) -> Tensor:
        if points.dim() < 2 or points.shape[-1] != self.centres.shape[-1]:
            raise ValueError(f"points: expected [*batch, points, {self.centres.shape[-1]}], got {list(points.shape)}")
        if points.device != self.centres.device:
            raise ValueError(f"points: are on {points.device}, the interpolant on {self.centres.device}; use .to()")
        return points.double()


def fit_rbf(
    centres: Float[Tensor, "*batch centres dim"],
    values: Float[Tensor, "*batch centres out"],
    kernel: str | Kernel = "thin_plate",
    *,
    degree: int | None = None,
    smoothing: float | Float[Tensor, " centres"] = 0.0,
    epsilon: float | None = None,
) -> RBFInterpolant:
    """The interpolant of ``values`` at ``centres``, found in float64 by one dense solve for each item of the batch.

    Args:
        centres: where the values are known. Thousands of them: the work grows with their number cubed; for more see
            :func:`~geoskip.rbf.fit_local` and :func:`~geoskip.rbf.fit_sparse`.
        values: a row for each centre.
        kernel: a name (``geoskip.rbf.KERNEL_NAMES``) or a :class:`~geoskip.rbf.Kernel`.
        degree: of the polynomial part, -1 for none. By default what the kernel needs, and at least 0, as in SciPy.
            With less than the kernel needs the system is usually still solvable, but nothing promises it.
        smoothing: λ ≥ 0, for all centres or each: the values are met the less the larger it is; 0 interpolates.
        epsilon: the inverse width of a kernel given by name.

    Agrees with ``scipy.interpolate.RBFInterpolator``, its signs and its λ. Gradients flow to centres and values.
    """
    check_data(centres, values)
    chosen = choose_kernel(kernel, epsilon, centres.shape[-1])
    degree = choose_degree(chosen, degree)
    centres, values = centres.double(), values.double()
    domain = Domain.of(centres)
    ridge = check_smoothing(smoothing, centres)
    check_distinct(centres, ridge)
    weights, coefficients = solve_saddle(centres, values, chosen, degree, ridge, domain)
    return RBFInterpolant(centres, weights, coefficients, chosen, degree, domain)


def choose_degree(kernel: Kernel, degree: int | None) -> int:
    if degree is not None and degree < -1:
        raise ValueError(f"degree: of the polynomial part, -1 for none, got {degree}")
    return max(kernel.min_degree, 0) if degree is None else degree


def check_data(centres: Tensor, values: Tensor) -> None:
    """Shapes that belong together, numbers that are finite."""
    if centres.dim() < 2 or 0 in centres.shape:
        raise ValueError(f"centres: expected [*batch, centres, dim], none of them 0, got {list(centres.shape)}")
    if values.shape[:-1] != centres.shape[:-1]:
        raise ValueError(
            f"values: expected [{', '.join(map(str, centres.shape[:-1]))}, out] for centres {list(centres.shape)}, got "
            f"{list(values.shape)}; a scalar for each centre is values[..., None]"
        )
    if values.device != centres.device:
        raise ValueError(f"values: are on {values.device}, centres on {centres.device}; move one with .to()")
    for name, given in (("centres", centres), ("values", values)):
        if not given.is_floating_point() or not bool(given.isfinite().all()):
            raise ValueError(f"{name}: must be finite floating-point numbers")


def check_smoothing(smoothing: float | Tensor, centres: Tensor) -> Float[Tensor, "*#batch centres"]:
    ridge = torch.as_tensor(smoothing, dtype=centres.dtype, device=centres.device)
    fits = ridge.dim() == 0 or ridge.shape == centres.shape[-2:-1]
    if not fits or not bool(((ridge >= 0) & ridge.isfinite()).all()):
        raise ValueError(
            f"smoothing: expected a number of at least 0, or one for each of {centres.shape[-2]} centres, "
            f"got {smoothing}"
        )
    return ridge.expand(centres.shape[-2])
