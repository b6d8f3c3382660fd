"""Float64 geometry, without networks: meshes, files, hierarchies, spirals, geodesics."""

from geoskip.meshes.files import parse_mesh, read_mesh, write_mesh
from geoskip.meshes.mesh import Mesh, MeshError
from geoskip.meshes.primitives import grid, icosphere, torus

__all__ = ["Mesh", "MeshError", "grid", "icosphere", "parse_mesh", "read_mesh", "torus", "write_mesh"]
