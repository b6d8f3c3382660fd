"""Thin plate splines, the interpolants that bend least."""

from torch import Tensor

from geoskip.rbf.interpolant import RBFInterpolant, fit_rbf
from geoskip.rbf.kernels import Kernel, polyharmonic
from geoskip.shapes import Float


def thin_plate_spline(
    centres: Float[Tensor, "*batch centres dim"],
    values: Float[Tensor, "*batch centres out"],
    *,
    smoothing: float | Float[Tensor, " centres"] = 0.0,
    affine: bool = True,
) -> RBFInterpolant:
    r"""The function through the values with the least :func:`~geoskip.rbf.bending_energy` (Duchon 1977):

    .. math:: \hat f(x) = \sum_i w_i\, \varphi(\lVert x - x_i \rVert) + x A + b

    with φ = r² log r in the plane, as in the paper; r³ on a line, where it is the natural cubic spline; -r in space,
    where r² log r would not minimise bending. ``affine=False`` leaves out A and b: then no plane is reproduced.
    """
    return fit_rbf(centres, values, biharmonic(centres.shape[-1]), degree=1 if affine else -1, smoothing=smoothing)


def biharmonic(dim: int) -> Kernel:
    """The fundamental solution of Δ² in up to 3 dimensions; beyond, it has a pole and interpolates nothing."""
    if not 1 <= dim <= 3:
        raise ValueError(
            f"centres: thin plate splines are for 1 to 3 dimensions, got {dim}; use fit_rbf with another kernel"
        )
    return polyharmonic(4 - dim)
