"""Radial kernels φ, each a function of the squared distance s = r²."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import inf

import torch
from torch import Tensor

from geoskip.arguments import check_type
from geoskip.shapes import Float


@dataclass(frozen=True)
class RadialKernel:
    """A radial kernel φ(ε r), signed so that it is conditionally positive definite.

    name: the name that :func:`make_kernel` accepts.
    phi: φ as a function of s = (ε r)².
    order: m, the order of conditional positive definiteness. Interpolation is well posed with a polynomial part of
        degree m - 1 or more; a kernel of order 0 is positive definite and needs none.
    epsilon: ε, the inverse width; always 1 for polyharmonic kernels, where a width changes nothing.
    exponent: k of the polyharmonic kernels r^k and r^k log r, None for the others.
    """

    name: str
    phi: Callable[[Tensor], Tensor]
    order: int = 0
    epsilon: float = 1.0
    exponent: int | None = None

    def __call__(self, squared: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """φ at squared distances r²."""
        return self.phi(squared if self.epsilon == 1 else squared * self.epsilon**2)

    @property
    def min_degree(self) -> int:
        """The lowest degree of the polynomial part with which interpolation is always well posed; -1 means none."""
        return self.order - 1


def is_polyharmonic(name: str) -> bool:
    """Whether the kernel called ``name`` is a polyharmonic spline, which has no width."""
    return name in _EXPONENTS or re.fullmatch(r"polyharmonic_\d+", name) is not None


def make_kernel(name: str, epsilon: float | None = None, dim: int = 3) -> RadialKernel:
    r"""The kernel called ``name``: one of ``KERNEL_NAMES``, or ``polyharmonic_k`` for any exponent k.

    Polyharmonic splines are ±r^k for odd k and ±r^k log r for even k, fundamental solutions of Δ^m in d dimensions if
    k = 2m - d (Duchon 1977). The sign makes them conditionally positive definite of order ⌊k/2⌋ + 1.

    Wendland's kernels of class C^0, C^2 and C^4 are 0 for r ≥ 1/ε (Wendland 1995). They are the polynomials of least
    degree that are positive definite in ``dim`` dimensions. In up to 3 dimensions:

    .. math:: (1-r)_+^2, \qquad (1-r)_+^4 (4r+1), \qquad (1-r)_+^6 (35r^2+18r+3)/3.

    Args:
        name: of the kernel.
        epsilon: the inverse width ε of φ(ε r); required except for the polyharmonic kernels, which have none.
        dim: the dimension of the points, on which Wendland's kernels depend.
    """
    if is_polyharmonic(name):
        if epsilon is not None:
            raise ValueError(f"epsilon: the {name} kernel has no width; leave epsilon out")
        return _polyharmonic(_EXPONENTS.get(name) or int(name.removeprefix("polyharmonic_")))
    if name not in KERNEL_NAMES:
        raise ValueError(f"kernel: {name!r} is not one of {', '.join(KERNEL_NAMES)} or polyharmonic_k")
    if epsilon is None:
        raise ValueError(
            f"epsilon: the {name} kernel needs an inverse width; try 1 / (distance between neighboring centers)"
        )
    if not 0 < epsilon < inf:
        raise ValueError(f"epsilon: the inverse width of {name} must be above 0, got {epsilon}")
    if name in _WENDLAND:
        smoothness = _WENDLAND[name]
        # Cheaper ones exist below 3 dimensions, but these are the ones in common use.
        degree = max(dim, 3) // 2 + smoothness // 2 + 1
        return RadialKernel(name, partial(_wendland, smoothness=smoothness, degree=degree), epsilon=epsilon)
    phi, order = _WITH_WIDTH[name]
    return RadialKernel(name, phi, order, epsilon)


def biharmonic(dim: int) -> RadialKernel:
    """The fundamental solution of Δ² in 1 to 3 dimensions. In higher dimensions it is singular at 0."""
    if not 1 <= dim <= 3:
        raise ValueError(
            f"centers: thin plate splines are for 1 to 3 dimensions, got {dim}; use fit_rbf with another kernel"
        )
    return _polyharmonic(4 - dim)


def choose_kernel(kernel: str | RadialKernel, epsilon: float | None, dim: int) -> RadialKernel:
    """The kernel itself, or the one called by that name; ``epsilon`` goes with a name only."""
    if isinstance(kernel, str):
        return make_kernel(kernel, epsilon, dim)
    check_type("kernel", kernel, RadialKernel, "or give the name of a kernel")
    if epsilon is not None:
        raise ValueError(
            f"epsilon: the given {kernel.name} kernel already has epsilon {kernel.epsilon:g}; leave epsilon out"
        )
    return kernel


def _polyharmonic(exponent: int) -> RadialKernel:
    if exponent < 1:
        raise ValueError(f"kernel: a polyharmonic kernel needs an exponent of at least 1, got {exponent}")
    half = exponent // 2
    phi = partial(_odd_power, half=half) if exponent % 2 else partial(_even_power_log, half=half)
    name = {exponent: name for name, exponent in _EXPONENTS.items()}.get(exponent, f"polyharmonic_{exponent}")
    return RadialKernel(name, phi, order=half + 1, exponent=exponent)


def _safe(squared: Tensor) -> Tensor:
    """Clamped away from 0, so that the first two derivatives of roots and logarithms stay finite there.

    They are multiplied by x - c = 0, so the gradient at a center is 0, as it should be by symmetry.
    """
    return squared.clamp(min=torch.finfo(squared.dtype).tiny ** 0.5)


def _root(squared: Tensor) -> Tensor:
    return squared * _safe(squared).rsqrt()


def _odd_power(squared: Tensor, half: int) -> Tensor:
    sign = 1 if half % 2 else -1
    return sign * _root(squared) * _power(squared, half)


def _even_power_log(squared: Tensor, half: int) -> Tensor:
    # r^k log r = ½ s^(k/2) log s
    return _safe(squared).log() * _power(squared, half) * (0.5 if half % 2 else -0.5)


def _power(squared: Tensor, exponent: int) -> Tensor | float:
    # 0 and 1 are the most common exponents and need no pass over memory.
    return 1.0 if exponent == 0 else squared if exponent == 1 else squared**exponent


def _gaussian(squared: Tensor) -> Tensor:
    return squared.neg().exp()


def _multiquadric(squared: Tensor) -> Tensor:
    return (squared + 1).sqrt().neg()


def _inverse_multiquadric(squared: Tensor) -> Tensor:
    return (squared + 1).rsqrt()


def _inverse_quadratic(squared: Tensor) -> Tensor:
    return (squared + 1).reciprocal()


def _wendland(squared: Tensor, smoothness: int, degree: int) -> Tensor:
    r, power = _root(squared), degree + smoothness // 2
    hat = (1 - r).clamp(min=0) ** power
    if smoothness == 0:
        return hat
    if smoothness == 2:
        return hat * (power * r + 1)
    return hat * ((degree**2 + 4 * degree + 3) * squared + (3 * degree + 6) * r + 3) / 3


_EXPONENTS = {"linear": 1, "thin_plate": 2, "cubic": 3, "quintic": 5}
_WITH_WIDTH: dict[str, tuple[Callable[[Tensor], Tensor], int]] = {
    "gaussian": (_gaussian, 0),
    "inverse_multiquadric": (_inverse_multiquadric, 0),
    "inverse_quadratic": (_inverse_quadratic, 0),
    "multiquadric": (_multiquadric, 1),
}
_WENDLAND = {"wendland_c0": 0, "wendland_c2": 2, "wendland_c4": 4}
KERNEL_NAMES = (*_EXPONENTS, *_WITH_WIDTH, *_WENDLAND)
