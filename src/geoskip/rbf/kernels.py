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
class Kernel:
    """A radial kernel φ(ε r), signed so that it is conditionally positive definite.

    name: as :func:`make_kernel` knows it.
    phi: φ as a function of s = (ε r)².
    order: m, the order of conditional positive definiteness; interpolation is well posed with a polynomial part of
        degree m - 1 or more. 0: positive definite, no polynomial needed.
    epsilon: ε, the inverse width; 1 where a width changes nothing (polyharmonic kernels with their polynomials).
    exponent: k of the polyharmonic kernels r^k and r^k log r, else None.
    support: r beyond which φ is 0; infinite but for Wendland's kernels.
    """

    name: str
    phi: Callable[[Tensor], Tensor]
    order: int = 0
    epsilon: float = 1.0
    exponent: int | None = None
    support: float = inf

    def __call__(self, squared: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """φ at squared distances r²."""
        return self.phi(squared if self.epsilon == 1 else squared * self.epsilon**2)

    @property
    def min_degree(self) -> int:
        """The least degree of a polynomial part that makes every interpolation problem well posed; -1 is none."""
        return self.order - 1


def polyharmonic(exponent: int) -> Kernel:
    r"""The polyharmonic spline of exponent k: ±r^k for odd k, ±r^k log r for even k.

    A fundamental solution of Δ^m in d dimensions where k = 2m - d (Duchon 1977); the sign (-1)^⌈k/2⌉, or (-1)^(k/2 + 1)
    for even k, makes it conditionally positive definite of order ⌊k/2⌋ + 1.
    """
    if exponent < 1:
        raise ValueError(f"exponent: a polyharmonic kernel needs a whole number of at least 1, got {exponent}")
    half = exponent // 2
    phi = partial(_odd_power, half=half) if exponent % 2 else partial(_even_power_log, half=half)
    name = {exponent: name for name, exponent in _EXPONENTS.items()}.get(exponent, f"polyharmonic_{exponent}")
    return Kernel(name, phi, order=half + 1, exponent=exponent)


def wendland(smoothness: int, epsilon: float, dim: int = 3) -> Kernel:
    r"""Wendland's kernel of class C^0, C^2 or C^4 with support r < 1/ε: the polynomial of least degree that is positive
    definite in ``dim`` dimensions (Wendland 1995). In up to 3 dimensions

    .. math:: (1-r)_+^2, \qquad (1-r)_+^4 (4r+1), \qquad (1-r)_+^6 (35r^2+18r+3)/3.
    """
    if smoothness not in (0, 2, 4):
        raise ValueError(f"smoothness: Wendland's kernels here are of class 0, 2 or 4, not {smoothness}")
    _check_epsilon(f"wendland_c{smoothness}", epsilon)
    # Below 3 dimensions cheaper ones exist, but everyone's are these.
    degree = max(dim, 3) // 2 + smoothness // 2 + 1
    phi = partial(_wendland, smoothness=smoothness, degree=degree)
    return Kernel(f"wendland_c{smoothness}", phi, epsilon=epsilon, support=1 / epsilon)


def make_kernel(name: str, epsilon: float | None = None, dim: int = 3) -> Kernel:
    """The kernel of that name, one of ``KERNEL_NAMES`` or ``polyharmonic_k`` for any exponent k.

    epsilon: the inverse width ε of φ(ε r), which all but the polyharmonic kernels need.
    dim: the dimension of the points; Wendland's kernels depend on it.
    """
    if name in _EXPONENTS or re.fullmatch(r"polyharmonic_\d+", name):
        if epsilon is not None:
            raise ValueError(f"epsilon: {name} has no width; leave it out")
        return polyharmonic(_EXPONENTS.get(name) or int(name.removeprefix("polyharmonic_")))
    if name not in KERNEL_NAMES:
        raise ValueError(f"kernel: {name!r} is not one of {', '.join(KERNEL_NAMES)} or polyharmonic_k")
    if epsilon is None:
        raise ValueError(f"epsilon: {name} needs its inverse width; try 1 / (distance between neighbouring centres)")
    if name.startswith("wendland"):
        return wendland(int(name[-1]), epsilon, dim)
    _check_epsilon(name, epsilon)
    phi, order = _WITH_WIDTH[name]
    return Kernel(name, phi, order, epsilon)


def choose_kernel(kernel: str | Kernel, epsilon: float | None, dim: int) -> Kernel:
    """The kernel of that name, or the one that is given, which has its own width."""
    if isinstance(kernel, str):
        return make_kernel(kernel, epsilon, dim)
    if epsilon is not None:
        raise ValueError(f"epsilon: the {kernel.name} kernel that was given has its own, {kernel.epsilon:g}")
    return kernel


def safe(squared: Tensor) -> Tensor:
    """Away from 0, so that the derivatives of roots and logarithms there stay finite, up to the second.

    They meet the factor x - c = 0, and the gradient at a centre is 0, its value by symmetry.
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
    # 0 and 1 are the common ones, and worth no pass over memory.
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
        raise ValueError(f"epsilon: the inverse width of {name} must be a number above 0, got {epsilon}")


_EXPONENTS = {"linear": 1, "thin_plate": 2, "cubic": 3, "quintic": 5}
_WITH_WIDTH: dict[str, tuple[Callable[[Tensor], Tensor], int]] = {
    "gaussian": (_gaussian, 0),
    "inverse_multiquadric": (_inverse_multiquadric, 0),
    "inverse_quadratic": (_inverse_quadratic, 0),
    "multiquadric": (_multiquadric, 1),
}
KERNEL_NAMES = (*_EXPONENTS, *_WITH_WIDTH, "wendland_c0", "wendland_c2", "wendland_c4")
