"""PLY, ascii and binary of both byte orders: elements ``vertex`` (x, y, z) and ``face`` (vertex_indices)."""

import numpy as np

from geoskip.meshes.files.ply_body import BinaryBody, Body, Column, TextBody
from geoskip.meshes.files.ply_header import Header, parse_header
from geoskip.meshes.files.polygons import Polygons
from geoskip.meshes.mesh import Mesh, MeshError

WANTED = {"vertex": ("x", "y", "z"), "face": ("vertex_indices", "vertex_index")}


def parse(data: bytes) -> Polygons:
    header = parse_header(data)
    columns = _columns(header, BinaryBody(data, header) if header.order else TextBody(data, header))
    vertex, face = columns.get("vertex", {}), columns.get("face", {})
    if not vertex.keys() >= {"x", "y", "z"}:
        raise MeshError("PLY without vertices: an element 'vertex' with x, y and z is needed")
    if len(face) != 1:
        raise MeshError("PLY without faces: one list 'vertex_indices' in an element 'face' is needed")
    (indices,) = face.values()
    if indices.values.dtype.kind not in "iu":
        raise MeshError("PLY face indices are declared as fractions")
    if any((vertex[axis].sizes != 1).any() for axis in "xyz"):
        raise MeshError("PLY vertex coordinates are lists")
    verts = np.stack([vertex[axis].values for axis in "xyz"], axis=1)
    return Polygons(verts, indices.sizes, indices.values)


def _columns(header: Header, body: Body) -> dict[str, dict[str, Column]]:
    columns: dict[str, dict[str, Column]] = {}
    for element in header.elements:
        if element.name in columns:
            raise MeshError(f"PLY with two elements {element.name!r}")
        columns[element.name] = body.take(element, WANTED.get(element.name, ()))
    if body.rest().strip(b"\r\n\t \0"):
        raise MeshError("the PLY file goes on after the last element of its header")
    return columns


def binary(mesh: Mesh) -> bytes:
    """Little endian; float64 positions, so that nothing is rounded."""
    faces = np.empty(mesh.num_faces, dtype=[("size", "u1"), ("corners", "<i4", 3)])
    faces["size"], faces["corners"] = 3, mesh.faces
    return _header(mesh, "binary_little_endian") + mesh.verts.astype("<f8").tobytes() + faces.tobytes()


def text(mesh: Mesh) -> bytes:
    """The shortest decimals that read back as the same float64."""
    verts = [f"{x!r} {y!r} {z!r}\n" for x, y, z in mesh.verts.tolist()]
    faces = [f"3 {a} {b} {c}\n" for a, b, c in mesh.faces.tolist()]
    return _header(mesh, "ascii") + "".join(verts + faces).encode()


def _header(mesh: Mesh, encoding: str) -> bytes:
    lines = ["ply", f"format {encoding} 1.0", f"element vertex {mesh.num_verts}"]
    lines += [f"property double {axis}" for axis in "xyz"]
    lines += [f"element face {mesh.num_faces}", "property list uchar int vertex_indices", "end_header", ""]
    return "\n".join(lines).encode()
