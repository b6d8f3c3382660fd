r"""The system of an interpolant with its polynomial part, and what can be wrong with it.

.. math::
    \begin{pmatrix} \Phi + \lambda I & P \\ P^\top & 0 \end{pmatrix}
    \begin{pmatrix} w \\ a \end{pmatrix} = \begin{pmatrix} y \\ 0 \end{pmatrix}

The second row is the vanishing moments condition: the radial weights see no polynomial of the given degree.
"""

from math import inf

import torch
from torch import Tensor

from geoskip.rbf.distances import in_blocks, squared_distances
from geoskip.rbf.kernels import Kernel
from geoskip.rbf.polynomials import Domain, monomials
from geoskip.shapes import Float

# By how much of the largest value an interpolant may miss any of them.
_TOLERANCE = 1e-4


def solve_saddle(
    centres: Float[Tensor, "*batch centres dim"],
    values: Float[Tensor, "*batch centres out"],
    kernel: Kernel,
    degree: int,
    smoothing: Float[Tensor, "*#batch centres"],
    domain: Domain,
) -> tuple[Float[Tensor, "*batch centres out"], Float[Tensor, "*batch monomials out"]]:
    """Weights w of the kernels and coefficients a of the monomials; differentiable in all tensors."""
    num_centres = centres.shape[-2]
    poly = monomials(domain(centres), degree)
    check_fixes_polynomials(poly, degree)
    radial = kernel_matrix(centres, centres, kernel)
    if smoothing.requires_grad or bool(smoothing.any()):
        radial = radial + torch.diag_embed(smoothing)
    # Of the size of the monomials, or one of the two blocks drowns in the rounding of the other.
    size = torch.linalg.vector_norm(radial.detach(), inf, dim=(-2, -1), keepdim=True)
    size = torch.where(size > 0, size, 1)
    corner = poly.new_zeros(*poly.shape[:-2], poly.shape[-1], poly.shape[-1])
    upper = torch.cat([radial / size, poly], dim=-1)
    system = torch.cat([upper, torch.cat([poly.mT, corner], dim=-1)], dim=-2)
    right = torch.cat([values, values.new_zeros(*values.shape[:-2], poly.shape[-1], values.shape[-1])], dim=-2)
    solution, info = torch.linalg.solve_ex(system, right)
    # Each item by itself, or the large values of one would hide what another misses.
    missed = (system.detach() @ solution.detach() - right.detach()).abs().amax(dim=(-2, -1))
    # Written so that NaN is caught; a good system leaves 1e-10 or so.
    if bool((info != 0).any()) or not bool((missed <= _TOLERANCE * right.detach().abs().amax(dim=(-2, -1))).all()):
        narrower = "a narrower kernel (a larger epsilon), " if kernel.exponent is None else ""
        wanting = f", or a degree of at least {kernel.min_degree}" if degree < kernel.min_degree else ""
        raise ValueError(
            f"centres: the system of {num_centres} centres with the {kernel.name} kernel and degree {degree} is "
            f"singular to working precision; use {narrower}centres further apart, or smoothing{wanting}"
        )
    weights, coefficients = solution.split([num_centres, poly.shape[-1]], dim=-2)
    return weights / size, coefficients


def kernel_matrix(
    points: Float[Tensor, "*batch points dim"], centres: Float[Tensor, "*batch centres dim"], kernel: Kernel
) -> Float[Tensor, "*batch points centres"]:
    """φ(‖x - c‖), by blocks of points, so that temporaries stay small."""
    if centres.dim() > 2:
        # A batch is one of small systems, of which blocks would be slivers.
        return kernel(squared_distances(points, centres))
    return in_blocks(lambda block: kernel(squared_distances(block, centres)), points, len(centres))


def check_distinct(centres: Float[Tensor, "*batch centres dim"], smoothing: Float[Tensor, " centres"]) -> None:
    """Centres that coincide give equal rows, which only smoothing tells apart."""
    if bool((smoothing > 0).all()):
        return
    rows = centres.detach().flatten(0, -2)
    item = torch.arange(len(rows), device=rows.device).div(centres.shape[-2], rounding_mode="floor")
    rows = torch.cat([item.to(rows.dtype).unsqueeze(1), rows], dim=1)
    places, counts = torch.unique(rows, dim=0, return_counts=True)
    if len(places) < len(rows):
        equal = (rows == places[counts.argmax()]).all(dim=1).nonzero().flatten() % centres.shape[-2]
        raise ValueError(f"centres: {equal[0]} and {equal[1]} coincide; merge them, or give smoothing above 0")


def check_fixes_polynomials(poly: Float[Tensor, "*batch centres monomials"], degree: int) -> None:
    """A polynomial that vanishes at all centres would be left undetermined."""
    num_centres, num_monomials = poly.shape[-2:]
    if num_centres < num_monomials:
        raise ValueError(
            f"centres: a polynomial part of degree {degree} needs at least {num_monomials} of them, got {num_centres}; "
            "lower the degree"
        )
    if num_monomials:
        spread = torch.linalg.eigvalsh(poly.detach().mT @ poly.detach())
        if bool((spread[..., 0] < 64 * torch.finfo(poly.dtype).eps * spread[..., -1]).any()):
            raise ValueError(
                f"centres: they do not fix a polynomial of degree {degree} (for degree 1 they lie in a line or plane); "
                "lower the degree, or add centres"
            )
