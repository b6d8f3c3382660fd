"""The compactly supported form: a sparse system for 100,000 centres and more."""

from dataclasses import dataclass

import numpy as np
import torch
from scipy.sparse import coo_array, csr_array
from scipy.sparse.linalg import LinearOperator, cg
from scipy.spatial import cKDTree
from torch import Tensor

from geoskip.rbf.interpolant import check_data, check_smoothing, choose_degree
from geoskip.rbf.kernels import Kernel, make_kernel
from geoskip.rbf.polynomials import Domain, monomials
from geoskip.rbf.saddle import check_distinct, check_fixes_polynomials
from geoskip.rbf.vecchia import inverse_factor
from geoskip.shapes import Float

_POINTS_AT_ONCE = 20_000
_STEPS = 1000
# By how much of the largest value an interpolant may miss any of them.
_TOLERANCE = 1e-6


@dataclass(frozen=True, eq=False)
class SparseRBF:
    """What :func:`fit_sparse` found: the parts of its value are :meth:`radial` and :meth:`polynomial`."""

    centres: Float[Tensor, "centres dim"]
    weights: Float[Tensor, "centres out"]
    coefficients: Float[Tensor, "monomials out"]
    kernel: Kernel
    degree: int
    domain: Domain
    tree: cKDTree

    def __call__(self, points: Float[Tensor, "points dim"]) -> Float[Tensor, "points out"]:
        return self.radial(points) + self.polynomial(points)

    def radial(self, points: Float[Tensor, "points dim"]) -> Float[Tensor, "points out"]:
        """The sum over the centres within the support; 0 where there are none."""
        weights = self.weights.numpy()
        parts = [
            _kernel_matrix(_distances(cKDTree(block), self.tree, self.kernel), self.kernel) @ weights
            for block in np.array_split(_checked(points, self.centres), len(points) // _POINTS_AT_ONCE + 1)
        ]
        return torch.from_numpy(np.concatenate(parts)).to(points.dtype)

    def polynomial(self, points: Float[Tensor, "points dim"]) -> Float[Tensor, "points out"]:
        at = torch.from_numpy(_checked(points, self.centres))
        return (monomials(self.domain(at), self.degree) @ self.coefficients).to(points.dtype)


def fit_sparse(
    centres: Float[Tensor, "centres dim"],
    values: Float[Tensor, "centres out"],
    radius: float,
    *,
    smoothness: int = 2,
    degree: int | None = None,
    smoothing: float | Float[Tensor, " centres"] = 0.0,
    tolerance: float = 1e-12,
) -> SparseRBF:
    r"""The interpolant with Wendland's kernel of class C^smoothness that is 0 beyond ``radius``.

    The matrix Φ is sparse, positive definite and solved by preconditioned conjugate gradients to the relative residual
    ``tolerance``; the polynomial part by the Schur complement Pᵀ Φ⁻¹ P. Choose the radius so that 30 to 150 centres lie
    within it: fewer leave dents, more cost time. On the CPU, without gradients.
    """
    check_data(centres, values)
    if centres.dim() != 2:
        raise ValueError(f"centres: the sparse form takes one set, [centres, dim], got {list(centres.shape)}")
    if centres.requires_grad or values.requires_grad or centres.device.type != "cpu":
        raise ValueError(
            "centres, values: the sparse form is for the CPU and gives no gradients; detach them, or use fit_rbf"
        )
    if not 0 < radius < float("inf"):
        raise ValueError(f"radius: of the kernel's support, a number above 0, got {radius}")
    if not 0 < tolerance < 1:
        raise ValueError(f"tolerance: of the relative residual, a number above 0 and below 1, got {tolerance}")
    kernel = make_kernel(f"wendland_c{smoothness}", 1 / radius, centres.shape[1])
    degree = choose_degree(kernel, degree)
    centres, values = centres.double(), values.double()
    domain = Domain.of(centres)
    poly = monomials(domain(centres), degree)
    check_fixes_polynomials(poly, degree)
    ridge = check_smoothing(smoothing, centres)
    check_distinct(centres, ridge)
    tree = cKDTree(centres.numpy())
    solved = _solve(centres.numpy(), tree, kernel, ridge.numpy(), torch.cat([values, poly], dim=1).numpy(), tolerance)
    weights, of_poly = torch.from_numpy(solved).split([values.shape[1], poly.shape[1]], dim=1)
    coefficients = torch.linalg.solve(poly.T @ of_poly, poly.T @ weights)
    return SparseRBF(centres, weights - of_poly @ coefficients, coefficients, kernel, degree, domain, tree)


def _solve(
    centres: np.ndarray, tree: cKDTree, kernel: Kernel, ridge: np.ndarray, right: np.ndarray, tolerance: float
) -> np.ndarray:
    distances = _distances(tree, tree, kernel)
    matrix = _kernel_matrix(distances, kernel)
    matrix.setdiag(matrix.diagonal() + ridge)
    factor = inverse_factor(centres, distances, kernel, ridge)
    transposed = factor.T.tocsr()
    inverse = LinearOperator(matrix.shape, lambda vector: transposed @ (factor @ vector), dtype=np.float64)
    solved = np.stack([cg(matrix, column, rtol=tolerance, maxiter=_STEPS, M=inverse)[0] for column in right.T], axis=1)
    # The solver believes its own running residual, which drifts from the true one where the system is bad.
    if not (np.abs(matrix @ solved - right).max(axis=0) <= _TOLERANCE * np.abs(right).max(axis=0)).all():
        raise ValueError(
            f"radius: with {matrix.nnz / len(centres):.0f} centres within {kernel.support:g} the system does not "
            "converge; make it smaller, the smoothness lower, or give smoothing"
        )
    return solved


def _distances(tree: cKDTree, centres: cKDTree, kernel: Kernel) -> csr_array:
    """Within the support; zeros are kept."""
    found = tree.sparse_distance_matrix(centres, kernel.support, output_type="coo_matrix")
    return csr_array(coo_array(found))


def _kernel_matrix(distances: csr_array, kernel: Kernel) -> csr_array:
    values = kernel(torch.from_numpy(distances.data).square()).numpy()
    return csr_array((values, distances.indices, distances.indptr), shape=distances.shape)


def _checked(points: Tensor, centres: Tensor) -> np.ndarray:
    if points.dim() != 2 or points.shape[1] != centres.shape[1]:
        raise ValueError(f"points: expected [points, {centres.shape[1]}], got {list(points.shape)}")
    return points.detach().double().cpu().numpy()
