"""Geodesic distances on a triangle mesh from selected vertices.

heat:  solves ∇·∇φ = ∇·(-∇u/|∇u|), where u is the heat after a short time t = h² and h the mean edge length (Crane,
       Weischedel, Wardetzky 2013). Uses the tufted intrinsic Laplacian of potpourri3d, which also handles non-manifold
       and badly shaped faces. On an even mesh of a few thousand vertices the mean error is about 1 %, but up to 20 %
       within the first ring around the source. Takes milliseconds per source.
exact: the polyhedral distance by window propagation (Mitchell, Mount, Papadimitriou 1987), from pygeodesic. About 100
       times slower. Raises an error for edges with more than two faces, which crash the native code, and for faces
       thinner than ``MIN_THINNESS``, for which it silently returns wrong distances.

Connected components are solved separately, and the distance between two of them is inf. (Applied to a whole
disconnected mesh, the heat method would return meaningless finite distances.)
"""

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from geoskip.meshes.mesh import Mesh, MeshError, vertex_numbers
from geoskip.shapes import Float, Int

Method = Literal["heat", "exact"]
# Smallest altitude divided by longest edge. On meshes with a single sliver, pygeodesic exceeded Dijkstra's upper bound
# for some ratios up to 4e-6, by as much as a third of the diameter, and for none above 1e-5.
MIN_THINNESS = 1e-5
# For a component scaled to unit extent; the area that a line has by rounding is far below.
MIN_AREA = 1e-12


def geodesic_distances(
    mesh: Mesh, sources: Sequence[int] | Int[np.ndarray, "sources"], method: Method = "heat"
) -> Float[np.ndarray, "sources vertices"]:
    """The distance of every vertex from vertex ``sources[s]``, in row s; inf in other components.

    Heat distances are not exactly symmetric. Raises ``MeshError`` for invalid sources, and for components that the
    method cannot handle: those without area and, for ``exact``, non-manifold edges or too thin faces.
    """
    sources = vertex_numbers("sources", sources, mesh.num_vertices)
    solver = DistanceSolver(mesh, method)
    rows = [solver.row(source) for source in sources.tolist()]
    return np.array(rows).reshape(len(sources), mesh.num_vertices)


def geodesic_diameter(mesh: Mesh, method: Method = "heat") -> float:
    """The largest distance between two vertices of the same component."""
    if mesh.num_vertices == 0:
        raise MeshError("a diameter needs at least one vertex")
    solver = DistanceSolver(mesh, method)
    rows = (solver.row(source) for source in range(mesh.num_vertices))
    return max(float(row[np.isfinite(row)].max()) for row in rows)


class DistanceSolver:
    """Distances from any vertex of a mesh. Each component is prepared once, on first use."""

    def __init__(self, mesh: Mesh, method: Method) -> None:
        if method not in _SOLVERS:
            raise MeshError(f"method: must be one of {', '.join(sorted(_SOLVERS))}, got {method!r}")
        self.mesh, self.method = mesh, method
        self.labels = mesh.components()
        self._solvers: dict[int, Callable[[int], np.ndarray]] = {}

    def row(self, source: int) -> Float[np.ndarray, "vertices"]:
        label = int(self.labels[source])
        verts = np.flatnonzero(self.labels == label)
        try:
            if label not in self._solvers:
                self._solvers[label] = _component_solver(self.mesh.submesh(verts), self.method)
            distances = self._solvers[label](int(np.searchsorted(verts, source)))
        except (ImportError, MeshError):
            raise
        except Exception as error:  # of any type: the solvers are native code
            raise MeshError(
                f"the {self.method} method failed on a component of {len(verts)} vertices: {error}"
            ) from error
        if not np.isfinite(distances).all():
            raise MeshError(f"the {self.method} method did not reach all of a component of {len(verts)} vertices")
        row = np.full(self.mesh.num_vertices, np.inf)
        row[verts] = np.maximum(distances, 0.0)
        row[source] = 0.0
        return row


def _component_solver(part: Mesh, method: Method) -> Callable[[int], np.ndarray]:
    """Distances in a connected mesh as a function of the source, solved at unit size to avoid over- and underflow."""
    if part.num_vertices == 1:
        return lambda source: np.zeros(1)
    origin, extent = part.verts.min(axis=0), float(np.ptp(part.verts, axis=0).max())
    unit = part.with_verts((part.verts - origin) / extent) if extent > 0 else part
    if unit.face_areas().sum() < MIN_AREA:
        raise MeshError(f"a component of {part.num_vertices} vertices has no area, so it has no geodesics")
    solve = _SOLVERS[method](unit)
    return lambda source: extent * solve(source)


def _heat(part: Mesh) -> Callable[[int], np.ndarray]:
    try:
        import potpourri3d
    except ImportError as error:
        raise ImportError("the heat method needs potpourri3d: pip install 'geoskip[meshes]'") from error
    return potpourri3d.MeshHeatMethodDistanceSolver(part.verts, part.faces).compute_distance


def _exact(part: Mesh) -> Callable[[int], np.ndarray]:
    try:
        from pygeodesic.geodesic import PyGeodesicAlgorithmExact
    except ImportError as error:
        raise ImportError("exact geodesics need pygeodesic: pip install 'geoskip[meshes]'") from error
    if len(part.nonmanifold_edges()):
        raise MeshError(f"{len(part.nonmanifold_edges())} edges have more than two faces; use method='heat'")
    corners = part.verts[part.faces]
    longest = np.linalg.norm(corners - np.roll(corners, 1, axis=1), axis=2).max(axis=1)
    thin = 2 * part.face_areas() < MIN_THINNESS * longest**2
    if thin.any():
        raise MeshError(f"{thin.sum()} faces are too thin for exact geodesics; use method='heat'")
    solver = PyGeodesicAlgorithmExact(part.verts, part.faces)
    return lambda source: solver.geodesicDistances(np.array([source]))[0]


_SOLVERS: dict[str, Callable[[Mesh], Callable[[int], np.ndarray]]] = {"heat": _heat, "exact": _exact}
