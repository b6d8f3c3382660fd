r"""How much an interpolant bends."""

from math import factorial, gamma, pi

from torch import Tensor

from geoskip.rbf.interpolant import RBFInterpolant
from geoskip.shapes import Float


def native_energy(interpolant: RBFInterpolant) -> Float[Tensor, "*batch out"]:
    r"""wᵀ Φ w for each output: the squared (semi-)norm of the kernel's own space, which the interpolant minimises.

    Needs vanishing moments up to the kernel's order; with a lower degree it can be negative and means nothing.
    """
    if interpolant.degree < interpolant.kernel.min_degree:
        raise ValueError(
            f"degree: the energy of the {interpolant.kernel.name} kernel needs a polynomial part of degree "
            f"{interpolant.kernel.min_degree} or more, this one has {interpolant.degree}"
        )
    return (interpolant.weights * interpolant.radial(interpolant.centres)).sum(dim=-2)


def bending_energy(interpolant: RBFInterpolant) -> Float[Tensor, "*batch out"]:
    r"""The integral that a polyharmonic spline minimises, for each output, over all of space:

    .. math::
        J_m(f) = \sum_{|\alpha| = m} \frac{m!}{\alpha!} \int (\partial^\alpha f)^2\, dx
        = w^\top \Phi\, w / \theta, \qquad 2m = k + d

    for exponent k in d dimensions, θ the constant of the fundamental solution (Wahba 1990, section 2.4). Thin plate
    spline in the plane: :math:`\int f_{xx}^2 + 2 f_{xy}^2 + f_{yy}^2 = 8\pi\, w^\top \Phi\, w`; the paper prints it
    without the squares and the 2. It is 0 for polynomials of degree below m alone; with a polynomial part of degree m
    or more it would be infinite, which is refused.
    """
    kernel, dim = interpolant.kernel, interpolant.centres.shape[-1]
    if kernel.exponent is None or (kernel.exponent + dim) % 2:
        raise ValueError(
            f"kernel: {kernel.name} in {dim} dimensions is no fundamental solution of a power of the Laplacian, so it "
            "has no bending energy; use native_energy, or polyharmonic(k) with k + dim even"
        )
    if interpolant.degree >= (kernel.exponent + dim) // 2:
        raise ValueError(
            f"degree: over all of space a polynomial part of degree {interpolant.degree} bends without end; the energy "
            f"of the {kernel.name} kernel in {dim} dimensions is for degrees below {(kernel.exponent + dim) // 2}"
        )
    return native_energy(interpolant) / abs(_fundamental(kernel.exponent, dim))


def _fundamental(exponent: int, dim: int) -> float:
    """θ such that θ r^k (log r, for even k) solves (-Δ)^m E = δ, up to its sign."""
    m = (exponent + dim) // 2
    if dim % 2:
        return gamma(dim / 2 - m) / (2 ** (2 * m) * pi ** (dim / 2) * factorial(m - 1))
    return 1 / (2 ** (2 * m - 1) * pi ** (dim / 2) * factorial(m - 1) * factorial(m - dim // 2))
