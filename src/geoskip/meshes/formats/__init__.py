"""Mesh files: PLY (ASCII and binary, both byte orders), OBJ, OFF, STL, glTF and GLB.

Vertices keep the order of the file, and none is merged or dropped, so that the meshes of a family stay in
correspondence. The exception is STL, which has no vertex list: exactly equal corners become one vertex, numbered by
first appearance. Polygons with more than three corners are split into a fan of triangles around their first corner,
(p0, pi, pi+1), and a message is logged. Colors, normals, textures and groups are ignored.

Every count is compared with the size of the file before memory is allocated. A truncated, padded or inconsistent file
raises a ``MeshError``.
"""

import logging
from codecs import BOM_UTF8
from collections.abc import Callable
from pathlib import Path

from geoskip.meshes.formats.gltf import encode_glb, encode_gltf, parse_gltf
from geoskip.meshes.formats.obj_off_stl import encode_obj, encode_off, encode_stl, parse_obj, parse_off, parse_stl
from geoskip.meshes.formats.ply import encode_ply, parse_ply
from geoskip.meshes.formats.polygons import Polygons
from geoskip.meshes.mesh import Mesh, MeshError, float64_copy, repeats_a_corner
from geoskip.records.files import atomic_write
from geoskip.records.reading import ReadError, read_bytes

__all__ = ["PARSERS", "WRITERS", "parse_mesh", "read_mesh", "write_mesh"]

log = logging.getLogger(__name__)

PARSERS: dict[str, Callable[[bytes], Polygons]] = {
    ".ply": parse_ply,
    ".obj": parse_obj,
    ".off": parse_off,
    ".stl": parse_stl,
    ".gltf": parse_gltf,
    ".glb": parse_gltf,
}
WRITERS: dict[str, Callable[[Mesh], bytes]] = {
    ".ply": encode_ply,
    ".obj": encode_obj,
    ".off": encode_off,
    ".stl": encode_stl,
    ".gltf": encode_gltf,
    ".glb": encode_glb,
}


def read_mesh(path: str | Path, *, drop_degenerate: bool = False) -> Mesh:
    """Read a mesh from a file; the suffix determines the format.

    ``drop_degenerate`` skips faces that repeat a vertex (for STL: that have two equal corners) instead of rejecting
    the file; the vertices stay. Raises ``MeshError`` if the file does not contain a valid mesh, and ``OSError`` if it
    cannot be opened.
    """
    path = Path(path)
    try:
        _check_suffix(path.suffix)
        return _parse(read_bytes(path), path.suffix, drop_degenerate, str(path), path.parent)
    except (MeshError, ReadError) as error:
        raise MeshError(f"{path}: {error}") from error


def parse_mesh(data: bytes, suffix: str, *, drop_degenerate: bool = False, log_polygons: bool = True) -> Mesh:
    """The mesh in the contents of a file of format ``suffix`` (".ply", …), for example a member of an archive."""
    _check_suffix(suffix)
    return _parse(data, suffix, drop_degenerate, suffix if log_polygons else "")


def write_mesh(mesh: Mesh, path: str | Path) -> None:
    """Write ``mesh`` to a file; the suffix determines the format.

    PLY, OBJ and OFF store every float64 exactly. STL and glTF round to float32, and STL loses the vertex order. A mesh
    without faces is an error, because no reader would accept the file.
    """
    path = Path(path)
    _check_suffix(path.suffix)
    if mesh.num_faces == 0:
        raise MeshError(f"{path}: cannot write a mesh without faces")
    atomic_write(path, WRITERS[path.suffix.lower()](mesh))


def _check_suffix(suffix: str) -> None:
    if suffix.lower() not in PARSERS:
        raise MeshError(f"unknown mesh format {suffix!r}; expected one of {', '.join(sorted(PARSERS))}")


def _parse(data: bytes, suffix: str, drop_degenerate: bool, name: str, folder: Path | None = None) -> Mesh:
    parse, data = PARSERS[suffix.lower()], data.removeprefix(BOM_UTF8)
    polygons = parse_gltf(data, folder) if parse is parse_gltf else parse(data)
    triangles = polygons.triangles()
    if len(triangles) == 0:
        raise MeshError("no faces")
    if len(triangles) != len(polygons.sizes) and name:
        log.info("%s: %d polygons split into %d triangles", name, len(polygons.sizes), len(triangles))
    if drop_degenerate:
        triangles = triangles[~repeats_a_corner(triangles)]
    return Mesh(float64_copy(polygons.verts), triangles)
