"""Thin plate splines, the interpolants that bend least, and the energy that measures bending."""

from math import factorial, gamma, pi

from torch import Tensor

from geoskip.rbf.interpolant import RBFInterpolant, fit_rbf
from geoskip.rbf.kernels import RadialKernel, polyharmonic
from geoskip.shapes import Float


def thin_plate_spline(
    centers: Float[Tensor, "*batch centers dim"],
    values: Float[Tensor, "*batch centers out"],
    *,
    smoothing: float | Float[Tensor, " centers"] = 0.0,
    affine: bool = True,
) -> RBFInterpolant:
    r"""The interpolant of ``values`` with the least :func:`~geoskip.rbf.bending_energy` (Duchon 1977):

    .. math:: \hat f(x) = \sum_i w_i\, \varphi(\lVert x - x_i \rVert) + x A + b

    In the plane φ = r² log r, as in the paper. On a line φ = r³, which gives the natural cubic spline. In space φ = -r,
    because r² log r does not minimize bending there. ``affine=False`` leaves out A and b; planes are then no longer
    reproduced.
    """
    return fit_rbf(centers, values, biharmonic(centers.shape[-1]), degree=1 if affine else -1, smoothing=smoothing)


def biharmonic(dim: int) -> RadialKernel:
    """The fundamental solution of Δ² in 1 to 3 dimensions. In higher dimensions it is singular at 0."""
    if not 1 <= dim <= 3:
        raise ValueError(
            f"centers: thin plate splines are for 1 to 3 dimensions, got {dim}; use fit_rbf with another kernel"
        )
    return polyharmonic(4 - dim)


def native_energy(interpolant: RBFInterpolant) -> Float[Tensor, "*batch out"]:
    r"""wᵀ Φ w for each output: the squared (semi-)norm of the kernel's native space, which the interpolant minimizes.

    The moments must vanish up to the kernel's order. With a lower degree the value could be negative: an error.
    """
    if interpolant.degree < interpolant.kernel.min_degree:
        raise ValueError(
            f"degree: the energy of the {interpolant.kernel.name} kernel needs a polynomial part of degree "
            f"{interpolant.kernel.min_degree} or more, this one has {interpolant.degree}"
        )
    return (interpolant.weights * interpolant.radial(interpolant.centers)).sum(dim=-2)


def bending_energy(interpolant: RBFInterpolant) -> Float[Tensor, "*batch out"]:
    r"""The integral over all of space that a polyharmonic spline minimizes, for each output:

    .. math::
        J_m(f) = \sum_{|\alpha| = m} \frac{m!}{\alpha!} \int (\partial^\alpha f)^2\, dx
        = w^\top \Phi\, w / \theta, \qquad 2m = k + d

    for exponent k in d dimensions, where θ is the constant of the fundamental solution (Wahba 1990, section 2.4). For
    the thin plate spline in the plane this is :math:`\int f_{xx}^2 + 2 f_{xy}^2 + f_{yy}^2 = 8\pi\, w^\top \Phi\, w`
    (the paper prints it without the squares and the 2). It is 0 exactly for polynomials of degree below m. A polynomial
    part of degree m or more has infinite energy and is an error.
    """
    kernel, dim = interpolant.kernel, interpolant.centers.shape[-1]
    if kernel.exponent is None or (kernel.exponent + dim) % 2:
        raise ValueError(
            f"kernel: {kernel.name} in {dim} dimensions is not the fundamental solution of a power of the Laplacian, "
            "so it has no bending energy; use native_energy, or polyharmonic(k) with k + dim even"
        )
    if interpolant.degree >= (kernel.exponent + dim) // 2:
        raise ValueError(
            f"degree: a polynomial part of degree {interpolant.degree} has infinite bending energy; with the "
            f"{kernel.name} kernel in {dim} dimensions use a degree below {(kernel.exponent + dim) // 2}"
        )
    return native_energy(interpolant) / abs(_fundamental_constant(kernel.exponent, dim))


def _fundamental_constant(exponent: int, dim: int) -> float:
    """θ such that θ r^k (times log r for even k) solves (-Δ)^m E = δ, up to its sign."""
    m = (exponent + dim) // 2
    if dim % 2:
        return gamma(dim / 2 - m) / (2 ** (2 * m) * pi ** (dim / 2) * factorial(m - 1))
    return 1 / (2 ** (2 * m - 1) * pi ** (dim / 2) * factorial(m - 1) * factorial(m - dim // 2))
