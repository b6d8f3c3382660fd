"""Radial kernels φ, each a function of the squared distance s = r²."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import inf

import torch
from torch import Tensor

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


def polyharmonic(exponent: int) -> RadialKernel:
    r"""The polyharmonic spline of exponent k: ±r^k for odd k, ±r^k log r for even k.

    It is a fundamental solution of Δ^m in d dimensions if k = 2m - d (Duchon 1977). The sign is (-1)^⌈k/2⌉ for odd k
    and (-1)^(k/2 + 1) for even k, which makes it conditionally positive definite of order ⌊k/2⌋ + 1.
    """
    if exponent < 1:
        raise ValueError(f"exponent: a polyharmonic kernel needs an integer of at least 1, got {exponent}")
    half = exponent // 2
    phi = partial(_odd_power, half=half) if exponent % 2 else partial(_even_power_log, half=half)
    name = {exponent: name for name, exponent in _EXPONENTS.items()}.get(exponent, f"polyharmonic_{exponent}")
    return RadialKernel(name, phi, order=half + 1, exponent=exponent)


def wendland(smoothness: int, epsilon: float, dim: int = 3) -> RadialKernel:
    r"""Wendland's kernel of class C^0, C^2 or C^4 with support r < 1/ε (Wendland 1995).

    It is the polynomial of least degree that is positive definite in ``dim`` dimensions. In up to 3 dimensions:

    .. math:: (1-r)_+^2, \qquad (1-r)_+^4 (4r+1), \qquad (1-r)_+^6 (35r^2+18r+3)/3.
    """
    if smoothness not in (0, 2, 4):
        raise ValueError(f"smoothness: must be 0, 2 or 4, got {smoothness}")
    _check_epsilon(f"wendland_c{smoothness}", epsilon)
    # Cheaper ones exist below 3 dimensions, but these are the ones in common use.
    degree = max(dim, 3) // 2 + smoothness // 2 + 1
    phi = partial(_wendland, smoothness=smoothness, degree=degree)
    return RadialKernel(f"wendland_c{smoothness}", phi, epsilon=epsilon)


def make_kernel(name: str, epsilon: float | None = None, dim: int = 3) -> RadialKernel:
    """The kernel called ``name``: one of ``KERNEL_NAMES``, or ``polyharmonic_k`` for any exponent k.

    epsilon: the inverse width ε of φ(ε r); required except for the polyharmonic kernels, which have none.
    dim: the dimension of the points, on which Wendland's kernels depend.
    """
    if name in _EXPONENTS or re.fullmatch(r"polyharmonic_\d+", name):
        if epsilon is not None:
            raise ValueError(f"epsilon: the {name} kernel has no width; leave epsilon out")
        return polyharmonic(_EXPONENTS.get(name) or int(name.removeprefix("polyharmonic_")))
    if name not in KERNEL_NAMES:
        raise ValueError(f"kernel: {name!r} is not one of {', '.join(KERNEL_NAMES)} or polyharmonic_k")
    if epsilon is None:
        raise ValueError(
            f"epsilon: the {name} kernel needs an inverse width; try 1 / (distance between neighboring centers)"
        )
    if name.startswith("wendland"):
        return wendland(int(name[-1]), epsilon, dim)
    _check_epsilon(name, epsilon)
    phi, order = _WITH_WIDTH[name]
    return RadialKernel(name, phi, order, epsilon)


def choose_kernel(kernel: str | RadialKernel, epsilon: float | None, dim: int) -> RadialKernel:
    """The kernel itself, or the one called by that name; ``epsilon`` goes with a name only."""
    if isinstance(kernel, str):
        return make_kernel(kernel, epsilon, dim)
    if epsilon is not None:
        raise ValueError(
            f"epsilon: the given {kernel.name} kernel already has epsilon {kernel.epsilon:g}; leave epsilon out"
        )
    return kernel


def safe(squared: Tensor) -> Tensor:
    """Clamped away from 0, so that the first two derivatives of roots and logarithms stay finite there.

    They are multiplied by x - c = 0, so the gradient at a center is 0, as it should be by symmetry.
    """
    return squared.clamp(min=torch.finfo(squared.dtype).tiny ** 0.5)


def _root(squared: Tensor) -> Tensor:
    return squared * safe(squared).rsqrt()


def _odd_power(squared: Tensor, half: int) -> Tensor:
    sign = 1 if half % 2 else -1
    return sign * _root(squared) * _power(squared, half)


def _even_power_log(squared: Tensor, half: int) -> Tensor:
    # r^k log r = ½ s^(k/2) log s
    return safe(squared).log() * _power(squared, half) * (0.5 if half % 2 else -0.5)


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


def _check_epsilon(name: str, epsilon: float) -> None:
    if not 0 < epsilon < inf:
        raise ValueError(f"epsilon: the inverse width of {name} must be above 0, got {epsilon}")


_EXPONENTS = {"linear": 1, "thin_plate": 2, "cubic": 3, "quintic": 5}
_WITH_WIDTH: dict[str, tuple[Callable[[Tensor], Tensor], int]] = {
    "gaussian": (_gaussian, 0),
    "inverse_multiquadric": (_inverse_multiquadric, 0),
    "inverse_quadratic": (_inverse_quadratic, 0),
    "multiquadric": (_multiquadric, 1),
}
KERNEL_NAMES = (*_EXPONENTS, *_WITH_WIDTH, "wendland_c0", "wendland_c2", "wendland_c4")
