"""Geometry in float64, independent of networks: meshes, mesh files, hierarchies, spirals, geodesics."""

from geoskip.meshes.closest import ClosestPoints, closest_points
from geoskip.meshes.decimation import Decimation, decimate
from geoskip.meshes.files import parse_mesh, read_mesh, write_mesh
from geoskip.meshes.geodesics import geodesic_diameter, geodesic_distances
from geoskip.meshes.hierarchy import MeshHierarchy, mesh_hierarchy
from geoskip.meshes.mesh import Mesh, MeshError, MeshSummary, summary
from geoskip.meshes.primitives import grid, icosphere, torus
from geoskip.meshes.spirals import spirals

__all__ = [
    "ClosestPoints",
    "Decimation",
    "Mesh",
    "MeshError",
    "MeshHierarchy",
    "MeshSummary",
    "closest_points",
    "decimate",
    "geodesic_diameter",
    "geodesic_distances",
    "grid",
    "icosphere",
    "mesh_hierarchy",
    "parse_mesh",
    "read_mesh",
    "spirals",
    "summary",
    "torus",
    "write_mesh",
]
