"""Float64 geometry, without networks: meshes, files, hierarchies, spirals, geodesics."""

from geoskip.meshes.mesh import Mesh, MeshError
from geoskip.meshes.primitives import grid, icosphere, torus

__all__ = ["Mesh", "MeshError", "grid", "icosphere", "torus"]
