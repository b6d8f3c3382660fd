r"""Radial basis interpolants with their polynomial part (section 3 of the paper), and thin plate splines.

.. math:: \hat f(x) = \sum_i w_i\, \varphi(\lVert x - x_i \rVert) + P(x), \qquad \sum_i w_i\, q(x_i) = 0
   \text{ for all polynomials } q \text{ of P's degree}

The weights w and the coefficients a of P solve one linear system:

.. math::
    \begin{pmatrix} \Phi + \lambda I & Q \\ Q^\top & 0 \end{pmatrix}
    \begin{pmatrix} w \\ a \end{pmatrix} = \begin{pmatrix} y \\ 0 \end{pmatrix}

with Φ_ij = φ(‖x_i - x_j‖) and Q_ij the j-th monomial at x_i. The second row says that the moments vanish: the weights
are orthogonal to all polynomials of the chosen degree.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from itertools import combinations_with_replacement
from math import factorial, gamma, inf, pi
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from geoskip.arguments import check_type, real_number, whole_number
from geoskip.rbf.radial_kernels import RadialKernel, biharmonic, choose_kernel
from geoskip.shapes import Float

# Distances computed per block. On the CPU one megabyte, which stays in the cache; on a GPU enough that the cost of
# launching kernels is negligible.
_BLOCK_SIZES = {"cpu": 1 << 17}
_GPU_BLOCK_SIZE = 1 << 25
# Largest allowed residual of the solve, relative to the largest value. A well-conditioned system leaves about 1e-10.
_TOLERANCE = 1e-4
CONVERT = "convert it with torch.as_tensor"


@dataclass(frozen=True, eq=False)
class RBFInterpolant:
    """The result of :func:`fit_rbf`, to be called at points. Its value is the sum of :meth:`radial` and
    :meth:`polynomial`.

    centers: x_i, float64.
    weights: w_i, one row per center.
    coefficients: of the monomials of degree 0 to ``degree`` in (x - shift) / scale.
    shift, scale: map the bounding box of the centers to [-1, 1]. Powers of coordinates around 1000 would make the
        system ill-conditioned; the interpolant itself does not depend on this choice.
    kernel: φ.
    degree: the degree of P; -1 means no polynomial part.
    """

    centers: Float[Tensor, "*batch centers dim"]
    weights: Float[Tensor, "*batch centers out"]
    coefficients: Float[Tensor, "*batch monomials out"]
    shift: Float[Tensor, "*batch 1 dim"]
    scale: Float[Tensor, "*batch 1 dim"]
    kernel: RadialKernel
    degree: int

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
        slopes = rows[..., 1:, :] / self.scale.mT
        return slopes, (rows[..., :1, :] - self.shift @ slopes).squeeze(-2)

    def to(self, device: torch.device | str) -> "RBFInterpolant":
        """A copy on another device."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        moved: dict[str, Any] = {name: value.to(device) for name, value in values.items() if isinstance(value, Tensor)}
        return replace(self, **moved)

    def _radial(self, points: Tensor) -> Tensor:
        points = self._checked(points)
        batch = torch.broadcast_shapes(points.shape[:-2], self.centers.shape[:-2])

        def of_block(block: Tensor) -> Tensor:
            return self.kernel(squared_distances(block, self.centers)) @ self.weights

        return in_blocks(of_block, points, batch.numel() * self.centers.shape[-2])

    def _polynomial(self, points: Tensor) -> Tensor:
        return monomials((self._checked(points) - self.shift) / self.scale, self.degree) @ self.coefficients

    def _checked(self, points: Tensor) -> Tensor:
        check_type("points", points, Tensor, CONVERT)
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
    smoothing: float = 0.0,
    epsilon: float | None = None,
) -> RBFInterpolant:
    """Interpolate ``values`` at ``centers``, by one dense float64 solve per batch item.

    Args:
        centers: where the values are known. The cost grows with the cube of their number; a few thousand are fine.
        values: one row per center.
        kernel: a name (``geoskip.rbf.KERNEL_NAMES``) or a :class:`~geoskip.rbf.RadialKernel`.
        degree: of the polynomial part, -1 for none. The default is what the kernel needs, and at least 0, as in SciPy.
            With a lower degree the system is usually still solvable, but not guaranteed to be.
        smoothing: λ ≥ 0. 0 interpolates; the larger λ, the less closely the values are fitted.
        epsilon: the inverse width of a kernel given by name.

    Agrees with ``scipy.interpolate.RBFInterpolator``, including signs and λ. Gradients flow to centers and values.
    """
    _check_data(centers, values)
    kernel = choose_kernel(kernel, epsilon, centers.shape[-1])
    degree = max(kernel.min_degree, 0) if degree is None else whole_number("degree", degree, "fit_rbf", least=None)
    if degree < -1:
        raise ValueError(f"degree: must be -1 (no polynomial part) or more, got {degree}")
    smoothing = real_number("smoothing", smoothing, "fit_rbf")
    if smoothing < 0:
        raise ValueError(f"smoothing: must be at least 0, got {smoothing}")
    centers, values = centers.double(), values.double()
    if smoothing == 0:
        _check_distinct(centers)
    low, high = centers.detach().aminmax(dim=-2, keepdim=True)
    shift, scale = (high + low) / 2, torch.where(high > low, (high - low) / 2, 1)
    poly = monomials((centers - shift) / scale, degree)
    _check_unisolvent(poly, degree)
    weights, coefficients = _solve(centers, values, kernel, poly, smoothing, degree)
    return RBFInterpolant(centers, weights, coefficients, shift, scale, kernel, degree)


def thin_plate_spline(
    centers: Float[Tensor, "*batch centers dim"],
    values: Float[Tensor, "*batch centers out"],
    *,
    smoothing: float = 0.0,
    affine: bool = True,
) -> RBFInterpolant:
    r"""The interpolant of ``values`` with the least :func:`~geoskip.rbf.bending_energy` (Duchon 1977):

    .. math:: \hat f(x) = \sum_i w_i\, \varphi(\lVert x - x_i \rVert) + x A + b

    In the plane φ = r² log r, as in the paper. On a line φ = r³, which gives the natural cubic spline. In space φ = -r,
    because r² log r does not minimize bending there. ``affine=False`` leaves out A and b; planes are then no longer
    reproduced.
    """
    return fit_rbf(centers, values, biharmonic(centers.shape[-1]), degree=1 if affine else -1, smoothing=smoothing)


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
    kernel, dim, degree = interpolant.kernel, interpolant.centers.shape[-1], interpolant.degree
    if kernel.exponent is None or (kernel.exponent + dim) % 2:
        raise ValueError(
            f"kernel: {kernel.name} in {dim} dimensions is not the fundamental solution of a power of the Laplacian, "
            "so it has no bending energy; use polyharmonic_k with k + dim even"
        )
    m = (kernel.exponent + dim) // 2
    if not kernel.min_degree <= degree < m:
        fault = "has infinite bending energy" if degree >= m else "leaves the bending energy undefined"
        raise ValueError(
            f"degree: a polynomial part of degree {degree} {fault}; with the {kernel.name} kernel in {dim} dimensions "
            f"use a degree below {m} and of at least {kernel.min_degree}"
        )
    theta = _fundamental_constant(m, dim)
    return (interpolant.weights * interpolant.radial(interpolant.centers)).sum(dim=-2) / abs(theta)


def _fundamental_constant(m: int, dim: int) -> float:
    """θ such that θ r^k (times log r for even k) solves (-Δ)^m E = δ, up to its sign, with k = 2m - dim."""
    if dim % 2:
        return gamma(dim / 2 - m) / (2 ** (2 * m) * pi ** (dim / 2) * factorial(m - 1))
    return 1 / (2 ** (2 * m - 1) * pi ** (dim / 2) * factorial(m - 1) * factorial(m - dim // 2))


def squared_distances(
    points: Float[Tensor, "*#batch points dim"], centers: Float[Tensor, "*#batch centers dim"]
) -> Float[Tensor, "*#batch points centers"]:
    """|x - c|², from differences: the expansion |x|² - 2 x·c + |c|² would lose half of the digits near a center."""
    columns = zip(points.unbind(-1), centers.unbind(-1), strict=True)
    offsets = (x.unsqueeze(-1) - c.contiguous().unsqueeze(-2) for x, c in columns)
    total = next(offsets).square()
    for offset in offsets:
        total = torch.addcmul(total, offset, offset) if total.requires_grad else total.addcmul_(offset, offset)
    return total


def in_blocks(
    compute: Callable[[Tensor], Tensor], points: Float[Tensor, "*batch points dim"], width: int
) -> Float[Tensor, "*any points out"]:
    """Apply ``compute`` to all points, a block of them at a time; ``width`` is the number of intermediates per point.

    For gradients, the intermediates of all blocks but the first are recomputed instead of stored, so that memory does
    not grow with the number of points times the number of centers.
    """
    block_size = _BLOCK_SIZES.get(points.device.type, _GPU_BLOCK_SIZE)
    first, *others = points.split(max(1, block_size // max(width, 1)), dim=-2)
    results = [compute(first)]
    for block in others:
        if results[0].requires_grad:
            results.append(checkpoint(compute, block, use_reentrant=False, preserve_rng_state=False))
        else:
            results.append(compute(block))
    return torch.cat(results, dim=-2) if others else results[0]


def monomials(points: Float[Tensor, "*batch points dim"], degree: int) -> Float[Tensor, "*batch points monomials"]:
    """All products of at most ``degree`` coordinates, ordered by degree: 1, x, y, x², xy, y², … Degree -1 has none."""
    columns = [points[..., :0].sum(dim=-1) + 1] if degree >= 0 else []
    for count in range(1, degree + 1):
        for axes in combinations_with_replacement(range(points.shape[-1]), count):
            columns.append(points[..., list(axes)].prod(dim=-1))
    return torch.stack(columns, dim=-1) if columns else points[..., :0]


def _solve(
    centers: Tensor, values: Tensor, kernel: RadialKernel, poly: Tensor, smoothing: float, degree: int
) -> tuple[Tensor, Tensor]:
    """The weights w of the kernels and the coefficients a of the monomials, differentiable in all tensors."""
    num_centers, num_monomials = poly.shape[-2:]
    width = centers.shape[:-1].numel()
    radial = in_blocks(lambda block: kernel(squared_distances(block, centers)), centers, width)
    if smoothing:
        radial = radial + smoothing * torch.eye(num_centers, dtype=radial.dtype, device=radial.device)
    # Scaled to the size of the monomials: otherwise the smaller block is lost in the rounding errors of the larger.
    size = torch.linalg.vector_norm(radial.detach(), inf, dim=(-2, -1), keepdim=True)
    size = torch.where(size > 0, size, 1)
    corner = poly.new_zeros(*poly.shape[:-2], num_monomials, num_monomials)
    upper = torch.cat([radial / size, poly], dim=-1)
    system = torch.cat([upper, torch.cat([poly.mT, corner], dim=-1)], dim=-2)
    right = nn.functional.pad(values, (0, 0, 0, num_monomials))
    solution, info = torch.linalg.solve_ex(system, right)
    # Per batch item, so that large values in one item do not hide the residual of another.
    residual = (system.detach() @ solution.detach() - right.detach()).abs().amax(dim=(-2, -1))
    # Written as "not all below", so that NaN counts as a failure.
    if bool((info != 0).any()) or not bool((residual <= _TOLERANCE * right.detach().abs().amax(dim=(-2, -1))).all()):
        narrower = "a narrower kernel (a larger epsilon), " if kernel.exponent is None else ""
        higher = f", or a degree of at least {kernel.min_degree}" if degree < kernel.min_degree else ""
        raise ValueError(
            f"centers: the system of {num_centers} centers with the {kernel.name} kernel and degree {degree} is "
            f"singular to working precision; use {narrower}centers further apart, or smoothing{higher}"
        )
    weights, coefficients = solution.split([num_centers, num_monomials], dim=-2)
    return weights / size, coefficients


def _check_data(centers: Tensor, values: Tensor) -> None:
    for name, tensor in (("centers", centers), ("values", values)):
        check_type(name, tensor, Tensor, CONVERT)
        if not tensor.is_floating_point():
            raise ValueError(f"{name}: must be finite floating-point numbers, got {tensor.dtype}; use .double()")
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
        if not bool(tensor.isfinite().all()):
            raise ValueError(f"{name}: must be finite, got NaN or infinity")


def _check_distinct(centers: Float[Tensor, "*batch centers dim"]) -> None:
    """Raise if two centers coincide: without smoothing, their rows of the system are equal."""
    rows = centers.detach().flatten(0, -2)
    item = torch.arange(len(rows), device=rows.device).div(centers.shape[-2], rounding_mode="floor")
    rows = torch.cat([item.to(rows.dtype).unsqueeze(1), rows], dim=1)
    distinct, counts = torch.unique(rows, dim=0, return_counts=True)
    if len(distinct) < len(rows):
        equal = (rows == distinct[counts.argmax()]).all(dim=1).nonzero().flatten() % centers.shape[-2]
        raise ValueError(f"centers: {equal[0]} and {equal[1]} coincide; merge them, or use smoothing above 0")


def _check_unisolvent(poly: Float[Tensor, "*batch centers monomials"], degree: int) -> None:
    """Raise if a nonzero polynomial vanishes at all centers, because its coefficient would be undetermined."""
    num_centers, num_monomials = poly.shape[-2:]
    if num_centers < num_monomials:
        raise ValueError(
            f"centers: a polynomial part of degree {degree} needs at least {num_monomials} of them, got {num_centers}; "
            "lower the degree"
        )
    if num_monomials:
        spread = torch.linalg.eigvalsh(poly.detach().mT @ poly.detach())
        if bool((spread[..., 0] < 64 * torch.finfo(poly.dtype).eps * spread[..., -1]).any()):
            raise ValueError(
                f"centers: they do not determine a polynomial of degree {degree} (for degree 1: they lie on a line or "
                "plane); lower the degree, or add centers"
            )
