"""Mesh files: PLY (ascii, binary of both byte orders), OBJ, OFF, STL, glTF and GLB.

Vertices keep the order of the file, and none is merged or dropped, so that meshes of one family stay in
correspondence. STL alone has no vertex list: there, exactly equal corners become one vertex, numbered by
first appearance. Polygons with more than three corners are cut by a fan from their first corner,
(p0, pi, pi+1), and the log says so. Colours, normals, textures and groups are ignored.

Every count is compared with the bytes that are there before anything is allocated, and what a file says is
believed only if all of it fits: a truncated, padded or inconsistent file is a ``MeshError``, never a guess.
"""

import logging
from collections.abc import Callable
from pathlib import Path

from geoskip.meshes.files import gltf, obj, off, ply, stl
from geoskip.meshes.files.polygons import Polygons
from geoskip.meshes.mesh import Mesh, MeshError, float64_copy, repeats_a_corner
from geoskip.records.atomic import write_whole
from geoskip.records.reading import ReadError, read_bytes

PARSERS: dict[str, Callable[[bytes], Polygons]] = {
    ".ply": ply.parse,
    ".obj": obj.parse,
    ".off": off.parse,
    ".stl": stl.parse,
    ".gltf": gltf.parse,
    ".glb": gltf.parse,
}
WRITERS: dict[str, Callable[[Mesh], bytes]] = {
    ".ply": ply.binary,
    ".obj": obj.text,
    ".off": off.text,
    ".stl": stl.binary,
    ".gltf": gltf.text,
    ".glb": gltf.binary,
}


def read_mesh(path: str | Path, *, drop_degenerate: bool = False) -> Mesh:
    """The mesh in a file whose suffix names its format.

    ``drop_degenerate`` leaves out faces that name a vertex twice (for STL: that have two equal corners)
    instead of refusing the file; the vertices stay. Raises ``MeshError`` for a file that is no mesh, and
    ``OSError`` for one that cannot be opened.
    """
    path = Path(path)
    _known(path.suffix, PARSERS)
    parse = PARSERS[path.suffix.lower()]
    try:
        data = read_bytes(path)
        polygons = gltf.parse(data, path.parent) if parse is gltf.parse else parse(data)
        return _mesh(polygons, drop_degenerate, str(path))
    except (MeshError, ReadError) as error:
        raise MeshError(f"{path}: {error}") from error


def parse_mesh(data: bytes, suffix: str, *, drop_degenerate: bool = False) -> Mesh:
    """The mesh in the bytes of a file of format ``suffix`` (".ply", …), for members of archives."""
    _known(suffix, PARSERS)
    return _mesh(PARSERS[suffix.lower()](data), drop_degenerate, suffix)


def write_mesh(mesh: Mesh, path: str | Path, *, ascii: bool = False) -> None:
    """Write ``mesh`` in the format that the suffix names; ``ascii`` asks for the text form of PLY.

    PLY, OBJ and OFF hold every float64 exactly. STL and glTF round to float32, and STL forgets the vertex
    order. A mesh without faces is refused, as no reader would take it back.
    """
    path = Path(path)
    _known(path.suffix, WRITERS)
    if mesh.num_faces == 0:
        raise MeshError(f"{path}: a mesh without faces is not written")
    if ascii and path.suffix.lower() != ".ply":
        raise MeshError(f"{path}: ascii=True is for .ply files")
    write = ply.text if ascii else WRITERS[path.suffix.lower()]
    write_whole(path, write(mesh))


def _known(suffix: str, formats: dict[str, Callable]) -> None:
    if suffix.lower() not in formats:
        raise MeshError(f"unknown mesh format {suffix!r}; known are {', '.join(sorted(formats))}")


def _mesh(polygons: Polygons, drop_degenerate: bool, name: str) -> Mesh:
    triangles = polygons.triangles()
    if len(triangles) == 0:
        raise MeshError("no faces")
    if len(triangles) != len(polygons.sizes):
        logging.getLogger(__name__).info(
            "%s: %d polygons cut into %d triangles", name, len(polygons.sizes), len(triangles)
        )
    if drop_degenerate:
        triangles = triangles[~repeats_a_corner(triangles)]
    return Mesh(float64_copy(polygons.verts), triangles)
