r"""The linear system of a radial basis interpolant: distances, monomials, the solve, and the checks before it.

.. math::
    \begin{pmatrix} \Phi + \lambda I & P \\ P^\top & 0 \end{pmatrix}
    \begin{pmatrix} w \\ a \end{pmatrix} = \begin{pmatrix} y \\ 0 \end{pmatrix}

with Φ_ij = φ(‖x_i - x_j‖) and P_ij the j-th monomial at x_i. The second row is the vanishing moments condition: the
radial weights are orthogonal to all polynomials of the chosen degree.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations_with_replacement
from math import inf

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from geoskip.rbf.kernels import RadialKernel
from geoskip.shapes import Float

# Distances computed per block. On the CPU one megabyte, which stays in the cache; on a GPU enough that the cost of
# launching kernels is negligible.
_BLOCK_SIZES = {"cpu": 1 << 17}
_GPU_BLOCK_SIZE = 1 << 25
# Largest allowed residual of the solve, relative to the largest value. A well-conditioned system leaves about 1e-10.
_TOLERANCE = 1e-4


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
    blocks = points.split(max(1, block_size // max(width, 1)), dim=-2)
    first = compute(blocks[0])
    if len(blocks) == 1:
        return first
    rest = (_checkpointed(compute, block) if first.requires_grad else compute(block) for block in blocks[1:])
    return torch.cat([first, *rest], dim=-2)


def _checkpointed(compute: Callable[[Tensor], Tensor], block: Tensor) -> Tensor:
    result = checkpoint(compute, block, use_reentrant=False, preserve_rng_state=False)
    assert isinstance(result, Tensor)
    return result


@dataclass(frozen=True, eq=False)
class Domain:
    """The bounding box of the centers, mapped to [-1, 1] by (x - shift) / scale.

    Monomials are taken in these coordinates, because powers of coordinates around 1000 would make the system
    ill-conditioned. The interpolant itself does not depend on this choice.
    """

    shift: Float[Tensor, "*batch 1 dim"]
    scale: Float[Tensor, "*batch 1 dim"]

    @classmethod
    def of(cls, centers: Float[Tensor, "*batch centers dim"]) -> "Domain":
        low, high = centers.detach().aminmax(dim=-2, keepdim=True)
        half = (high - low) / 2
        return cls((high + low) / 2, torch.where(half > 0, half, 1))

    def __call__(self, points: Float[Tensor, "*any points dim"]) -> Float[Tensor, "*all points dim"]:
        return (points - self.shift) / self.scale


def monomials(points: Float[Tensor, "*batch points dim"], degree: int) -> Float[Tensor, "*batch points monomials"]:
    """All products of at most ``degree`` coordinates, ordered by degree: 1, x, y, x², xy, y², … Degree -1 has none."""
    columns = [points[..., :0].sum(dim=-1) + 1] if degree >= 0 else []
    for count in range(1, degree + 1):
        for axes in combinations_with_replacement(range(points.shape[-1]), count):
            columns.append(points[..., list(axes)].prod(dim=-1))
    return torch.stack(columns, dim=-1) if columns else points[..., :0]


def solve_system(
    centers: Float[Tensor, "*batch centers dim"],
    values: Float[Tensor, "*batch centers out"],
    kernel: RadialKernel,
    degree: int,
    smoothing: Float[Tensor, " centers"],
    domain: Domain,
) -> tuple[Float[Tensor, "*batch centers out"], Float[Tensor, "*batch monomials out"]]:
    """The weights w of the kernels and the coefficients a of the monomials, differentiable in all tensors."""
    num_centers = centers.shape[-2]
    poly = monomials(domain(centers), degree)
    check_unisolvent(poly, degree)
    radial = kernel_matrix(centers, centers, kernel)
    if smoothing.requires_grad or bool(smoothing.any()):
        radial = radial + torch.diag_embed(smoothing)
    # Scaled to the size of the monomials: otherwise the smaller block is lost in the rounding errors of the larger.
    size = torch.linalg.vector_norm(radial.detach(), inf, dim=(-2, -1), keepdim=True)
    size = torch.where(size > 0, size, 1)
    corner = poly.new_zeros(*poly.shape[:-2], poly.shape[-1], poly.shape[-1])
    upper = torch.cat([radial / size, poly], dim=-1)
    system = torch.cat([upper, torch.cat([poly.mT, corner], dim=-1)], dim=-2)
    right = torch.cat([values, values.new_zeros(*values.shape[:-2], poly.shape[-1], values.shape[-1])], dim=-2)
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
    weights, coefficients = solution.split([num_centers, poly.shape[-1]], dim=-2)
    return weights / size, coefficients


def kernel_matrix(
    points: Float[Tensor, "*batch points dim"], centers: Float[Tensor, "*batch centers dim"], kernel: RadialKernel
) -> Float[Tensor, "*batch points centers"]:
    """φ(‖x - c‖) for all pairs, computed in blocks of points so that temporaries stay small."""
    if centers.dim() > 2:
        # The systems of a batch are small; splitting them further would only add overhead.
        return kernel(squared_distances(points, centers))
    return in_blocks(lambda block: kernel(squared_distances(block, centers)), points, len(centers))


def check_distinct(centers: Float[Tensor, "*batch centers dim"], smoothing: Float[Tensor, " centers"]) -> None:
    """Raise if two centers coincide: without smoothing, their rows of the system are equal."""
    if bool((smoothing > 0).all()):
        return
    rows = centers.detach().flatten(0, -2)
    item = torch.arange(len(rows), device=rows.device).div(centers.shape[-2], rounding_mode="floor")
    rows = torch.cat([item.to(rows.dtype).unsqueeze(1), rows], dim=1)
    distinct, counts = torch.unique(rows, dim=0, return_counts=True)
    if len(distinct) < len(rows):
        equal = (rows == distinct[counts.argmax()]).all(dim=1).nonzero().flatten() % centers.shape[-2]
        raise ValueError(f"centers: {equal[0]} and {equal[1]} coincide; merge them, or use smoothing above 0")


def check_unisolvent(poly: Float[Tensor, "*batch centers monomials"], degree: int) -> None:
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
