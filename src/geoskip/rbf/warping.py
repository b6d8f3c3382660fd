"""Meshes and points warped by landmarks: a smooth map that takes each landmark to its target."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from geoskip.meshes import Mesh
from geoskip.rbf.interpolant import RBFInterpolant, fit_rbf
from geoskip.rbf.kernels import Kernel, choose_kernel
from geoskip.rbf.thin_plate import biharmonic
from geoskip.shapes import Float


@dataclass(frozen=True, eq=False)
class Warp:
    """x ↦ x + u(x), u the interpolated displacement. Call it at points, of any number."""

    displacement: RBFInterpolant

    def __call__(self, points: Float[Tensor, "*batch points dim"]) -> Float[Tensor, "*batch points dim"]:
        return points + self.displacement(points)

    def affine(self) -> tuple[Float[Tensor, "dim dim"], Float[Tensor, " dim"]]:
        """A and b of the map's affine part x ↦ x A + b; I and 0 for a warp without one."""
        slopes, offset = self.displacement.affine()
        return slopes + torch.eye(slopes.shape[-1], dtype=slopes.dtype, device=slopes.device), offset


def warp(
    landmarks: Float[Tensor, "landmarks dim"],
    targets: Float[Tensor, "landmarks dim"],
    kernel: str | Kernel | None = None,
    *,
    affine: bool = True,
    smoothing: float = 0.0,
    epsilon: float | None = None,
) -> Warp:
    """The map that takes ``landmarks`` to ``targets``, by default the one that bends least (Bookstein 1989).

    Args:
        kernel: as for :func:`~geoskip.rbf.fit_rbf`; by default the thin plate spline's in this dimension.
        affine: with it, targets that are an affine image of the landmarks move everything by that affine map, and
            interpolating displacements or positions is the same. Without it, the map is the identity plus a sum of
            kernels: with one that decays (Gaussian, Wendland) an edit that ends away from the landmarks, with one that
            grows (thin plate) a map that does not even translate.
        smoothing: above 0 the landmarks are met approximately; for landmarks set by hand.
    """
    if landmarks.shape != targets.shape:
        raise ValueError(
            f"targets: expected {list(landmarks.shape)}, a point for each landmark, got {list(targets.shape)}"
        )
    dim = landmarks.shape[-1]
    chosen = choose_kernel(biharmonic(dim) if kernel is None else kernel, epsilon, dim)
    degree = max(1, chosen.min_degree) if affine else -1
    if affine and len(landmarks) <= dim:
        raise ValueError(
            f"landmarks: an affine part needs at least {dim + 1} of them, got {len(landmarks)}; add some, or leave the "
            "affine part out"
        )
    return Warp(fit_rbf(landmarks, targets - landmarks, chosen, degree=degree, smoothing=smoothing))


def warp_mesh(
    mesh: Mesh,
    landmarks: Float[np.ndarray, "landmarks 3"],
    targets: Float[np.ndarray, "landmarks 3"],
    kernel: str | Kernel | None = None,
    *,
    affine: bool = True,
    smoothing: float = 0.0,
    epsilon: float | None = None,
) -> Mesh:
    """``mesh`` under the :func:`warp` that takes ``landmarks`` to ``targets``; the faces stay.

    A landmark need not be a vertex; those that are vertices are ``mesh.verts[numbers]``.
    """
    sources, goals = (torch.from_numpy(np.array(given, dtype=np.float64)) for given in (landmarks, targets))
    return moved(mesh, warp(sources, goals, kernel, affine=affine, smoothing=smoothing, epsilon=epsilon))


def moved(mesh: Mesh, by: Warp) -> Mesh:
    """``mesh`` with its vertices where ``by`` takes them."""
    with torch.no_grad():
        return mesh.with_verts(by(torch.from_numpy(mesh.verts.copy())).numpy())
