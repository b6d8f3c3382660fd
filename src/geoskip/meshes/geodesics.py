"""Geodesic distances over a triangle mesh, from chosen vertices.

heat:  ∇·∇φ = ∇·(-∇u/|∇u|) with u the heat after a short time t = h², h the mean edge length (Crane, Weischedel,
       Wardetzky 2013), over the tufted intrinsic Laplacian of potpourri3d, which also takes non-manifold and badly
       shaped faces. On an even mesh of a few thousand vertices it is about 1 % off on the average, but up to 20 %
       within the first ring around the source. Milliseconds a source.
exact: the polyhedral distance by window propagation (Mitchell, Mount, Papadimitriou 1987) of pygeodesic. A hundred
       times slower. Refuses edges with more than two faces, which its native code does not survive, and faces thinner
       than ``MIN_THINNESS``, where it silently returns wrong distances.

Connected components are solved apart: the distance between two of them is inf. (The heat method over all of a
disconnected mesh returns finite nonsense there.)
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

import numpy as np

from geoskip.meshes.mesh import Mesh, MeshError
from geoskip.shapes import Float, Int

Method = Literal["heat", "exact"]
# Smallest altitude over longest edge. Of meshes with single slivers, pygeodesic exceeded Dijkstra's upper bound on
# some with ratios up to 4e-6, by as much as a third of the diameter, and on none above 1e-5.
MIN_THINNESS = 1e-5
# Of a component scaled to unit extent: what a line leaves by rounding is far below.
MIN_AREA = 1e-12


def geodesic_distances(
    mesh: Mesh, sources: Int[np.ndarray, "sources"], method: Method = "heat"
) -> Float[np.ndarray, "sources vertices"]:
    """Row s: the distance of every vertex from vertex ``sources[s]``; inf in other components.

    Heat distances are not exactly symmetric. Raises ``MeshError`` for sources that are no vertices, and for
    components on which the method is not defined: those without area and, if exact, non-manifold or too thin.
    """
    sources = np.asarray(sources)
    if sources.ndim != 1 or sources.dtype.kind not in "iu":
        raise MeshError(f"sources must be a list of vertex indices, not {sources.dtype} of shape {sources.shape}")
    if ((sources < 0) | (sources >= mesh.num_verts)).any():
        raise MeshError(f"sources must lie between 0 and {mesh.num_verts - 1}")
    solver = DistanceSolver(mesh, method)
    distances = np.empty((len(sources), mesh.num_verts))
    for row, source in zip(distances, sources.tolist(), strict=True):
        row[:] = solver.row(source)
    return distances


def geodesic_diameter(mesh: Mesh, method: Method = "heat", num_sources: int | None = None) -> float:
    """The largest distance between two vertices of one component.

    ``num_sources`` bounds the work: distances are then taken from that many vertices only, each the farthest from
    those before it, which finds the extremities first. The result is a lower bound, in general a close one.
    """
    if mesh.num_verts == 0 or (num_sources is not None and num_sources < 1):
        raise MeshError("a diameter needs a vertex and a source")
    solver = DistanceSolver(mesh, method)
    if num_sources is None or num_sources >= mesh.num_verts:
        return max(_largest(solver.row(source)) for source in range(mesh.num_verts))
    nearest, diameter = np.full(mesh.num_verts, np.inf), 0.0
    for _ in range(num_sources):
        row = solver.row(int(nearest.argmax()))
        nearest, diameter = np.minimum(nearest, row), max(diameter, _largest(row))
    return diameter


class DistanceSolver:
    """Distances from any vertex of one mesh; each component is prepared once, when first needed."""

    def __init__(self, mesh: Mesh, method: Method) -> None:
        if method not in _SOLVERS:
            raise MeshError(f"no geodesic method {method!r}; there are {', '.join(sorted(_SOLVERS))}")
        self.mesh, self.method = mesh, method
        self.labels = mesh.components()
        self._prepared: dict[int, Callable[[int], np.ndarray]] = {}

    def row(self, source: int) -> Float[np.ndarray, "vertices"]:
        label = int(self.labels[source])
        verts = np.flatnonzero(self.labels == label)
        if label not in self._prepared:
            self._prepared[label] = _prepare(self.mesh.submesh(verts), self.method)
        row = np.full(self.mesh.num_verts, np.inf)
        row[verts] = self._prepared[label](int(np.searchsorted(verts, source)))
        return row


def _largest(row: np.ndarray) -> float:
    return float(row[np.isfinite(row)].max())


def _prepare(part: Mesh, method: Method) -> Callable[[int], np.ndarray]:
    """Distances from a vertex of a connected mesh, solved at unit size, so that no scale under- or overflows."""
    if part.num_verts == 1:
        return lambda source: np.zeros(1)
    origin, extent = part.verts.min(axis=0), float(np.ptp(part.verts, axis=0).max())
    unit = part.with_verts((part.verts - origin) / extent) if extent > 0 else part
    if unit.face_areas().sum() < MIN_AREA:
        raise MeshError(f"a component of {part.num_verts} vertices has no area, and so no geodesics")
    with _native_errors(method, part):
        solve = _SOLVERS[method](unit)

    def distances(source: int) -> np.ndarray:
        with _native_errors(method, part):
            found = solve(source)
        if not np.isfinite(found).all():
            raise MeshError(f"the {method} method did not reach all of a component of {part.num_verts} vertices")
        found = extent * np.maximum(found, 0.0)
        found[source] = 0.0
        return found

    return distances


@contextmanager
def _native_errors(method: Method, part: Mesh) -> Iterator[None]:
    """Whatever the native solvers raise is about the mesh."""
    try:
        yield
    except (ImportError, MeshError):
        raise
    except Exception as error:
        raise MeshError(f"the {method} method failed on a component of {part.num_verts} vertices: {error}") from error


def _heat(part: Mesh) -> Callable[[int], np.ndarray]:
    try:
        import potpourri3d
    except ImportError as error:
        raise ImportError("the heat method needs potpourri3d: pip install geoskip[meshes]") from error
    return potpourri3d.MeshHeatMethodDistanceSolver(part.verts, part.faces).compute_distance


def _exact(part: Mesh) -> Callable[[int], np.ndarray]:
    try:
        from pygeodesic.geodesic import PyGeodesicAlgorithmExact
    except ImportError as error:
        raise ImportError("exact geodesics need pygeodesic: pip install geoskip[meshes]") from error
    if len(part.nonmanifold_edges()):
        raise MeshError(f"{len(part.nonmanifold_edges())} edges have more than two faces; method='heat' takes them")
    corners = part.verts[part.faces]
    longest = np.linalg.norm(corners - np.roll(corners, 1, axis=1), axis=2).max(axis=1)
    thin = 2 * part.face_areas() < MIN_THINNESS * longest**2
    if thin.any():
        raise MeshError(f"{thin.sum()} faces are too thin for exact geodesics; method='heat' takes them")
    solver = PyGeodesicAlgorithmExact(part.verts, part.faces)
    return lambda source: solver.geodesicDistances(np.array([source]))[0]


_SOLVERS: dict[str, Callable[[Mesh], Callable[[int], np.ndarray]]] = {"heat": _heat, "exact": _exact}
