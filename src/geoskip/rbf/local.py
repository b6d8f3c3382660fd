"""The local form: at each point the interpolant of its nearest centres alone."""

from dataclasses import dataclass

import numpy as np
import torch
from scipy.spatial import cKDTree
from torch import Tensor

from geoskip.rbf.distances import squared_distances
from geoskip.rbf.interpolant import check_data, check_smoothing, choose_degree
from geoskip.rbf.kernels import Kernel, choose_kernel
from geoskip.rbf.polynomials import Domain, monomials
from geoskip.rbf.saddle import check_distinct, solve_saddle
from geoskip.shapes import Float, Int

# Numbers of all the small systems that are solved at once.
_AT_ONCE = 1 << 22


@dataclass(frozen=True, eq=False)
class LocalRBF:
    """What :func:`fit_local` makes: nothing is solved before it is called at points."""

    centres: Float[Tensor, "centres dim"]
    values: Float[Tensor, "centres out"]
    smoothing: Float[Tensor, " centres"]
    kernel: Kernel
    degree: int
    neighbours: int
    tree: cKDTree

    def __call__(self, points: Float[Tensor, "points dim"]) -> Float[Tensor, "points out"]:
        """Solves one small system for each set of centres that is nearest to some point, many at a time."""
        if points.dim() != 2 or points.shape[1] != self.centres.shape[1]:
            raise ValueError(f"points: expected [points, {self.centres.shape[1]}], got {list(points.shape)}")
        if not len(points):
            return points.new_zeros(0, self.values.shape[1])
        nearest, owner = self._neighbourhoods(points)
        # Points in the order of their neighbourhoods, so that a run of those owns a run of points.
        order = torch.argsort(owner, stable=True)
        counts = torch.bincount(owner).split(max(1, _AT_ONCE // (self.neighbours + 10) ** 2))
        runs = zip(nearest.split([len(run) for run in counts]), counts, strict=True)
        mine = order.split([int(run.sum()) for run in counts])
        found = [
            self._evaluate(points[own].double(), sets, torch.repeat_interleave(run))
            for own, (sets, run) in zip(mine, runs, strict=True)
        ]
        return torch.cat(found)[torch.argsort(order)].to(points.dtype)

    def _neighbourhoods(self, points: Tensor) -> tuple[Int[Tensor, "sets neighbours"], Int[Tensor, " points"]]:
        """The sets of nearest centres, each once, and which of them belongs to each point."""
        found = self.tree.query(points.detach().double().cpu().numpy(), self.neighbours)[1]
        found = np.sort(found.reshape(len(points), self.neighbours), axis=1)
        sets, owner = np.unique(found, axis=0, return_inverse=True)
        device = self.centres.device
        return torch.from_numpy(sets).to(device), torch.from_numpy(owner.reshape(-1)).to(device)

    def _evaluate(self, points: Tensor, nearest: Tensor, owner: Tensor) -> Tensor:
        centres = self.centres[nearest]
        domain = Domain.of(centres)
        weights, coefficients = solve_saddle(
            centres, self.values[nearest], self.kernel, self.degree, self.smoothing[nearest], domain
        )
        at = points.unsqueeze(1)
        radial = self.kernel(squared_distances(at, centres[owner])) @ weights[owner]
        own = Domain(domain.shift[owner], domain.scale[owner])
        return (radial + monomials(own(at), self.degree) @ coefficients[owner]).squeeze(1)


def fit_local(
    centres: Float[Tensor, "centres dim"],
    values: Float[Tensor, "centres out"],
    kernel: str | Kernel = "thin_plate",
    *,
    neighbours: int = 32,
    degree: int | None = None,
    smoothing: float | Float[Tensor, " centres"] = 0.0,
    epsilon: float | None = None,
) -> LocalRBF:
    """As :func:`~geoskip.rbf.fit_rbf`, but each point sees only its ``neighbours`` nearest centres.

    For any number of centres: the work grows with the number of points. It interpolates, and polynomials of the degree
    are reproduced, but the function jumps, slightly, where the nearest centres change. Agrees with
    ``RBFInterpolator(neighbors=…)``. Gradients flow to centres, values and points; which centres are nearest is taken
    as given, and found on the CPU.
    """
    check_data(centres, values)
    if centres.dim() != 2:
        raise ValueError(f"centres: the local form takes one set, [centres, dim], got {list(centres.shape)}")
    if not 1 <= neighbours <= len(centres):
        raise ValueError(f"neighbours: expected 1 to {len(centres)}, the number of centres, got {neighbours}")
    chosen = choose_kernel(kernel, epsilon, centres.shape[-1])
    tree = cKDTree(centres.detach().double().cpu().numpy())
    centres, values = centres.double(), values.double()
    ridge = check_smoothing(smoothing, centres)
    check_distinct(centres, ridge)
    return LocalRBF(centres, values, ridge, chosen, choose_degree(chosen, degree), neighbours, tree)
