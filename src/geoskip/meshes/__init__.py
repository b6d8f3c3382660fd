"""Geometry in float64, independent of networks: meshes, mesh files, hierarchies, spirals, geodesics."""

from geoskip.meshes.decimation import Decimation, decimate
from geoskip.meshes.formats import parse_mesh, read_mesh, write_mesh
from geoskip.meshes.geodesics import geodesic_diameter, geodesic_distances
from geoskip.meshes.hierarchy import ClosestPoints, MeshHierarchy, closest_points, mesh_hierarchy
from geoskip.meshes.mesh import Mesh, MeshError, grid, icosphere, summary, torus
from geoskip.meshes.spiral_order import spirals

__all__ = [
    "ClosestPoints",
    "Decimation",
    "Mesh",
    "MeshError",
    "MeshHierarchy",
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
