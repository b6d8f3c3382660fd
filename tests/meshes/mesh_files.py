"""Mesh files of every format, written out by hand: the seeds of the tests of the readers."""

import base64
import json
import struct
from typing import Any

import numpy as np

from geoskip.meshes import Mesh, icosphere
from geoskip.meshes.formats.gltf import encode_glb, encode_gltf
from geoskip.meshes.formats.obj_off_stl import encode_obj, encode_off, encode_stl
from geoskip.meshes.formats.ply import encode_ply

SQUARE = np.array([[0.0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0.5]])
# A quadrilateral and a triangle over it; the fan of the first is (0 1 2), (0 2 3).
SQUARE_FACES = [[0, 1, 2], [0, 2, 3], [0, 3, 1]]


def encode_ply_ascii(mesh: Mesh) -> bytes:
    """The text form, with the shortest decimals that read back as the same float64."""
    header = f"ply\nformat ascii 1.0\nelement vertex {mesh.num_vertices}\n"
    header += "".join(f"property double {axis}\n" for axis in "xyz")
    header += f"element face {mesh.num_faces}\nproperty list uchar int vertex_indices\nend_header\n"
    verts = "".join(f"{x!r} {y!r} {z!r}\n" for x, y, z in mesh.verts.tolist())
    return (header + verts + "".join(f"3 {a} {b} {c}\n" for a, b, c in mesh.faces.tolist())).encode()


def square_ply(encoding: str) -> bytes:
    """Mixed polygons, properties before and after those that matter, a second list, a third element."""
    header = f"""ply
format {encoding} 1.0
comment made by hand
obj_info with all that the format allows
element vertex 4
property uchar red
property float x
property double y
property float32 z
element face 2
property list uchar float texcoord
property list uint8 ushort vertex_index
property short flags
element edge 1
property int vertex1
property int vertex2
end_header
"""
    rows = [("BfdfN", 9, *place) for place in SQUARE.tolist()]
    rows += [("B2fB4hhN", 2, 0.5, 0.25, 4, 0, 1, 2, 3, -7), ("BB3hhN", 0, 3, 0, 3, 1, -7), ("2iN", 0, 1)]
    if encoding == "ascii":
        return (header + "\n".join(" ".join(map(str, row[1:])) for row in rows) + "\n").encode()
    order = "<" if encoding == "binary_little_endian" else ">"
    return header.encode() + b"".join(struct.pack(order + row[0].rstrip("N"), *row[1:]) for row in rows)


SQUARE_OBJ = b"""# by hand
mtllib none.mtl
o square
v 0 0 0
v 1 0 0 1.0
vt 0.5 0.5
vn 0 0 1
v 1 1 0 0.1 0.2 0.3
v 0 1 5e-1
usemtl some_name
s off
f 1/1/1 2/1/1 \\
  3//1 4
f -4 -1 -3
"""

SQUARE_OFF = b"""OFF # by hand
# a comment
4 2 0

0 0 0
1 0 0
1 1 0   # a corner
0 1 0.5
4 0 1 2 3
3 0 3 1 255 0 0
"""


def square_stl() -> bytes:
    facets = ""
    for face in SQUARE_FACES:
        corners = "".join(f"      vertex {x} {y} {z}\n" for x, y, z in SQUARE[face].tolist())
        facets += f"  facet normal 0 0 0\n    outer loop\n{corners}    endloop\n  endfacet\n"
    return f"solid by hand\n{facets}endsolid by hand\n".encode()


def square_gltf(**changes: Any) -> dict[str, Any]:
    """The JSON of a square in one embedded buffer: positions at a stride of 16 bytes, then 16-bit indices."""
    positions = np.zeros((4, 4), dtype="<f4")
    positions[:, :3] = SQUARE
    data = positions.tobytes() + np.array(SQUARE_FACES, dtype="<u2").tobytes()
    document = {
        "asset": {"version": "2.0"},
        "nodes": [{"mesh": 0}],
        "meshes": [{"primitives": [{"attributes": {"POSITION": 0}, "indices": 1}]}],
        "accessors": [
            {"bufferView": 0, "componentType": 5126, "count": 4, "type": "VEC3"},
            {"bufferView": 1, "componentType": 5123, "count": 9, "type": "SCALAR"},
        ],
        "bufferViews": [
            {"buffer": 0, "byteLength": 64, "byteStride": 16},
            {"buffer": 0, "byteOffset": 64, "byteLength": 18},
        ],
        "buffers": [{"byteLength": 82, "uri": "data:;base64," + base64.b64encode(data).decode()}],
    }
    return document | changes


def encode(document: Any) -> bytes:
    return json.dumps(document).encode()


def seeds(mesh: Mesh | None = None) -> dict[str, list[bytes]]:
    """Valid files by suffix: our own writers' and the hand-written ones."""
    mesh = mesh or icosphere(0)
    return {
        ".ply": [
            encode_ply(mesh),
            encode_ply_ascii(mesh),
            *map(square_ply, ("ascii", "binary_little_endian", "binary_big_endian")),
        ],
        ".obj": [encode_obj(mesh), SQUARE_OBJ],
        ".off": [encode_off(mesh), SQUARE_OFF],
        ".stl": [encode_stl(mesh), square_stl()],
        ".gltf": [encode_gltf(mesh), encode(square_gltf())],
        ".glb": [encode_glb(mesh)],
    }
