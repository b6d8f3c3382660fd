r"""Radial basis interpolants with their polynomial part (section 3 of the paper).

.. math:: \hat f(x) = \sum_i w_i\, \varphi(\lVert x - x_i \rVert) + P(x), \qquad \sum_i w_i\, q(x_i) = 0
   \text{ for all polynomials } q \text{ of P's degree}
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from geoskip.rbf.kernels import RadialKernel, choose_kernel
from geoskip.rbf.system import Domain, check_distinct, in_blocks, monomials, solve_system, squared_distances
from geoskip.shapes import Float


@dataclass(frozen=True, eq=False)
class RBFInterpolant:
    """The result of :func:`fit_rbf`, to be called at points. Its value is the sum of :meth:`radial` and
    :meth:`polynomial`.

    centers: x_i, float64.
    weights: w_i, one row per center.
    coefficients: of the monomials of degree 0 to ``degree``, in the coordinates of ``domain``.
    kernel: φ.
    degree: the degree of P; -1 means no polynomial part.
    domain: the bounding box of the centers, in whose coordinates P is stored.
    """

    centers: Float[Tensor, "*batch centers dim"]
    weights: Float[Tensor, "*batch centers out"]
    coefficients: Float[Tensor, "*batch monomials out"]
    kernel: RadialKernel
    degree: int
    domain: Domain

    def __call__(self, points: Float[Tensor, "*shape points dim"]) -> Float[Tensor, "*any points out"]:
        """f̂ at points, in their dtype. Computed in float64, in blocks; differentiable in all tensors."""
        return (self._radial(points) + self._polynomial(points)).to(points.dtype)

    def radial(self, points: Float[Tensor, "*shape points dim"]) -> Float[Tensor, "*any points out"]:
        """The sum of kernels alone. It tends to oscillate where it has to approximate a polynomial."""
        return self._radial(points).to(points.dtype)

    def polynomial(self, points: Float[Tensor, "*shape points dim"]) -> Float[Tensor, "*any points out"]:
        """P alone."""
        return self._polynomial(points).to(points.dtype)

    def affine(self) -> tuple[Float[Tensor, "*batch dim out"], Float[Tensor, "*batch out"]]:
        """A and b of P(x) = x A + b, in the coordinates of the centers; 0 where the degree leaves them out."""
        if self.degree > 1:
            raise ValueError(f"degree: a polynomial part of degree {self.degree} is not affine")
        missing = self.centers.shape[-1] + 1 - self.coefficients.shape[-2]
        rows = nn.functional.pad(self.coefficients, (0, 0, 0, missing))
        slopes = rows[..., 1:, :] / self.domain.scale.mT
        return slopes, (rows[..., :1, :] - self.domain.shift @ slopes).squeeze(-2)

    def to(self, device: torch.device | str) -> "RBFInterpolant":
        """A copy on another device."""
        domain = Domain(self.domain.shift.to(device), self.domain.scale.to(device))
        centers, weights, coefficients = (each.to(device) for each in (self.centers, self.weights, self.coefficients))
        return RBFInterpolant(centers, weights, coefficients, self.kernel, self.degree, domain)

    def _radial(self, points: Tensor) -> Tensor:
        points = self._checked(points)
        batch = torch.broadcast_shapes(points.shape[:-2], self.centers.shape[:-2])
        return in_blocks(self._radial_block, points, batch.numel() * self.centers.shape[-2])

    def _radial_block(self, points: Tensor) -> Tensor:
        return self.kernel(squared_distances(points, self.centers)) @ self.weights

    def _polynomial(self, points: Tensor) -> Tensor:
        return monomials(self.domain(self._checked(points)), self.degree) @ self.coefficients

    def _checked(self, points: Tensor) -> Tensor:
        if points.dim() < 2 or points.shape[-1] != self.centers.shape[-1]:
            raise ValueError(f"points: expected [*batch, points, {self.centers.shape[-1]}], got {list(points.shape)}")
        if points.device != self.centers.device:
            raise ValueError(f"points: are on {points.device}, the interpolant on {self.centers.device}; use .to()")
        return points.double()


def fit_rbf(
    centers: Float[Tensor, "*batch centers dim"],
    values: Float[Tensor, "*batch centers out"],
    kernel: str | RadialKernel = "thin_plate",
    *,
    degree: int | None = None,
    smoothing: float | Float[Tensor, " centers"] = 0.0,
    epsilon: float | None = None,
) -> RBFInterpolant:
    """Interpolate ``values`` at ``centers``, by one dense float64 solve per batch item.

    Args:
        centers: where the values are known. The cost grows with the cube of their number; a few thousand are fine.
        values: one row per center.
        kernel: a name (``geoskip.rbf.KERNEL_NAMES``) or a :class:`~geoskip.rbf.RadialKernel`.
        degree: of the polynomial part, -1 for none. The default is what the kernel needs, and at least 0, as in SciPy.
            With a lower degree the system is usually still solvable, but not guaranteed to be.
        smoothing: λ ≥ 0, one number or one per center. 0 interpolates; the larger λ, the less closely the values are
            fitted.
        epsilon: the inverse width of a kernel given by name.

    Agrees with ``scipy.interpolate.RBFInterpolator``, including signs and λ. Gradients flow to centers and values.
    """
    check_data(centers, values)
    chosen = choose_kernel(kernel, epsilon, centers.shape[-1])
    degree = choose_degree(chosen, degree)
    centers, values = centers.double(), values.double()
    domain = Domain.of(centers)
    ridge = check_smoothing(smoothing, centers)
    check_distinct(centers, ridge)
    weights, coefficients = solve_system(centers, values, chosen, degree, ridge, domain)
    return RBFInterpolant(centers, weights, coefficients, chosen, degree, domain)


def choose_degree(kernel: RadialKernel, degree: int | None) -> int:
    """The degree that the caller asked for, or the default of the kernel."""
    if degree is not None and degree < -1:
        raise ValueError(f"degree: must be -1 (no polynomial part) or more, got {degree}")
    return max(kernel.min_degree, 0) if degree is None else degree


def check_data(centers: Tensor, values: Tensor) -> None:
    """Raise unless the shapes match and all numbers are finite."""
    if centers.dim() < 2 or 0 in centers.shape:
        raise ValueError(f"centers: expected [*batch, centers, dim], none of them 0, got {list(centers.shape)}")
    if values.shape[:-1] != centers.shape[:-1]:
        raise ValueError(
            f"values: expected [{', '.join(map(str, centers.shape[:-1]))}, out] for centers {list(centers.shape)}, got "
            f"{list(values.shape)}; for one scalar per center use values[..., None]"
        )
    if values.device != centers.device:
        raise ValueError(f"values: are on {values.device}, centers on {centers.device}; move one with .to()")
    for name, tensor in (("centers", centers), ("values", values)):
        if not tensor.is_floating_point() or not bool(tensor.isfinite().all()):
            raise ValueError(f"{name}: must be finite floating-point numbers")


def check_smoothing(smoothing: float | Tensor, centers: Tensor) -> Float[Tensor, " centers"]:
    """λ as one number per center."""
    ridge = torch.as_tensor(smoothing, dtype=centers.dtype, device=centers.device)
    fits = ridge.dim() == 0 or ridge.shape == centers.shape[-2:-1]
    if not fits or not bool(((ridge >= 0) & ridge.isfinite()).all()):
        raise ValueError(
            f"smoothing: expected a number of at least 0, or one for each of {centers.shape[-2]} centers, "
            f"got {smoothing}"
        )
    return ridge.expand(centers.shape[-2])
