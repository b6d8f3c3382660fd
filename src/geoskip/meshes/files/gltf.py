"""glTF 2.0, JSON (``.gltf``, with its buffers inside or beside it) and binary (``.glb``): the triangles of a scene.

The meshes of the default scene are joined in the order of its node tree, each placed by its node's transform;
a mirroring transform turns its triangles over, as the standard asks. Primitives of one mesh that share their
positions share their vertices. Skins and morph targets are ignored. Other modes than triangle lists, sparse
accessors, and compressed or quantised geometry are refused. Written with float32 positions, as the format has it.
"""

import base64
import json
import struct
from pathlib import Path

import numpy as np

from geoskip.meshes.files.gltf_buffers import Buffers
from geoskip.meshes.files.gltf_json import BINARY_CHUNK, JSON_CHUNK, Json, natural, objects, split
from geoskip.meshes.files.gltf_scene import placed_meshes
from geoskip.meshes.files.polygons import Polygons
from geoskip.meshes.mesh import Mesh, MeshError

TRIANGLES = 4
POSITION_CODES = {5126: "<f4"}
COMPRESSIONS = {"KHR_draco_mesh_compression", "EXT_meshopt_compression", "KHR_mesh_quantization"}
INDEX_CODES = {5121: "<u1", 5123: "<u2", 5125: "<u4"}


def parse(data: bytes, folder: Path | None = None) -> Polygons:
    """``folder`` is where external buffers may lie; without it they are refused."""
    document, chunk = split(data)
    needed = document.get("extensionsRequired", [])
    if not isinstance(needed, list) or not COMPRESSIONS.isdisjoint(map(str, needed)):
        raise MeshError(f"glTF that needs {needed!r:.100}: save it without compression")
    with np.errstate(all="ignore"):  # what overflows is refused with every other bad coordinate
        return _joined(document, Buffers(document, chunk, folder))


def _joined(document: Json, buffers: Buffers) -> Polygons:
    # Nodes may place one mesh again and again; a small file must not ask for any amount of memory.
    budget = buffers.num_bytes
    verts, faces, num_verts = [np.empty((0, 3))], [np.empty((0, 3), dtype=np.int64)], 0
    for mesh, place in placed_meshes(document):
        starts: dict[int, int] = {}
        for primitive in objects(mesh, "primitives"):
            key, positions, triangles = _primitive(primitive, buffers)
            budget -= len(positions) + triangles.size
            if budget < 0:
                raise MeshError("glTF that shows its data so often that it outgrows its own size")
            if key not in starts:
                starts[key], num_verts = num_verts, num_verts + len(positions)
                verts.append(positions.astype(np.float64) @ place[:3, :3].T + place[:3, 3])
            mirrored = np.linalg.det(place[:3, :3]) < 0
            faces.append(starts[key] + (triangles[:, ::-1] if mirrored else triangles))
    return Polygons.of_triangles(np.concatenate(verts), np.concatenate(faces))


def _primitive(primitive: Json, buffers: Buffers) -> tuple[int, np.ndarray, np.ndarray]:
    """The index of its position accessor, the positions, and the triangles over them."""
    attributes = primitive.get("attributes")
    if natural(primitive, "mode", TRIANGLES) != TRIANGLES or not isinstance(attributes, dict):
        raise MeshError("a glTF primitive that is no triangle list with attributes")
    key = natural(attributes, "POSITION")
    positions = buffers.array(key, "VEC3", POSITION_CODES)
    corners = np.arange(len(positions))
    if "indices" in primitive:
        corners = buffers.array(natural(primitive, "indices"), "SCALAR", INDEX_CODES)[:, 0].astype(np.int64)
    if len(corners) % 3 or (corners >= len(positions)).any():
        raise MeshError("glTF indices that are no triangles or name vertices that are not there")
    return key, positions, corners.reshape(-1, 3)


def text(mesh: Mesh) -> bytes:
    """JSON with the data embedded as base64."""
    data = _data(mesh)
    uri = "data:application/octet-stream;base64," + base64.b64encode(data).decode()
    return json.dumps(_describe(mesh, {"byteLength": len(data), "uri": uri})).encode()


def binary(mesh: Mesh) -> bytes:
    """GLB: a JSON chunk and a binary chunk, both a multiple of four bytes long."""
    data = _data(mesh)
    document = json.dumps(_describe(mesh, {"byteLength": len(data)})).encode()
    document += b" " * (-len(document) % 4)
    chunks = struct.pack("<II", len(document), JSON_CHUNK) + document
    chunks += struct.pack("<II", len(data), BINARY_CHUNK) + data
    return b"glTF" + struct.pack("<II", 2, 12 + len(chunks)) + chunks


def _data(mesh: Mesh) -> bytes:
    return mesh.verts.astype("<f4").tobytes() + mesh.faces.astype("<u4").tobytes()


def _describe(mesh: Mesh, buffer: Json) -> Json:
    verts = mesh.verts.astype(np.float32)
    low, high = verts.min(axis=0).tolist(), verts.max(axis=0).tolist()
    position = {"bufferView": 0, "componentType": 5126, "count": mesh.num_verts, "type": "VEC3"}
    index = {"bufferView": 1, "componentType": 5125, "count": mesh.num_faces * 3, "type": "SCALAR"}
    return {
        "asset": {"version": "2.0", "generator": "geoskip"},
        "scene": 0,
        "scenes": [{"nodes": [0]}],
        "nodes": [{"mesh": 0}],
        "meshes": [{"primitives": [{"attributes": {"POSITION": 0}, "indices": 1}]}],
        "accessors": [{**position, "min": low, "max": high}, index],
        "bufferViews": [
            {"buffer": 0, "byteOffset": 0, "byteLength": verts.nbytes},
            {"buffer": 0, "byteOffset": verts.nbytes, "byteLength": mesh.num_faces * 12},
        ],
        "buffers": [buffer],
    }
