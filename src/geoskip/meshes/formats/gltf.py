"""glTF 2.0, as JSON (``.gltf``, with embedded or external buffers) and binary (``.glb``): the triangles of a scene.

The meshes of the default scene are concatenated in the order of its node tree, each transformed by its node. A
mirroring transform reverses the triangles, as the standard requires. Primitives of one mesh that share their positions
share their vertices. Skins and morph targets are ignored. Modes other than triangle lists, sparse accessors, and
compressed or quantized geometry are errors. Files are written with float32 positions, as the format requires.

The values of the JSON document are never trusted: every index, count and offset is checked before it is used.
"""

from __future__ import annotations

import base64
import json
import struct
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np

from geoskip.meshes.formats.polygons import Polygons
from geoskip.meshes.mesh import Mesh, MeshError
from geoskip.records.reading import ReadError, parse_json, read_bytes

Json = dict[str, Any]
_JSON_CHUNK, _BINARY_CHUNK = 0x4E4F534A, 0x004E4942
_MAX_INTEGER, _MAX_NUMBER = 1 << 53, 1e300
_TRIANGLES = 4
_POSITION_CODES = {5126: "<f4"}
_INDEX_CODES = {5121: "<u1", 5123: "<u2", 5125: "<u4"}
_WIDTHS = {"SCALAR": 1, "VEC3": 3}
_COMPRESSIONS = {"KHR_draco_mesh_compression", "EXT_meshopt_compression", "KHR_mesh_quantization"}


@np.errstate(all="ignore")  # the mesh rejects coordinates that overflow
def parse_gltf(data: bytes, folder: Path | None = None) -> Polygons:
    """``folder`` contains the external buffers; without it they are an error."""
    document, chunk = _split(data)
    needed = document.get("extensionsRequired", [])
    if not isinstance(needed, list) or not _COMPRESSIONS.isdisjoint(map(str, needed)):
        raise MeshError(f"the glTF file requires {needed!r:.100}; save it without compression")
    buffers = _Buffers(document, chunk, folder)
    # Many nodes can show the same mesh; this keeps a small file from using unlimited memory.
    budget = sum(map(len, buffers.buffers))
    verts, faces, num_vertices = [np.empty((0, 3))], [np.empty((0, 3), dtype=np.int64)], 0
    for mesh, transform in _placed_meshes(document):
        starts: dict[int, int] = {}
        for primitive in _list(mesh, "primitives", dict):
            key, positions, triangles = _primitive(primitive, buffers)
            budget -= len(positions) + triangles.size
            if budget < 0:
                raise MeshError("glTF nodes repeat their meshes so often that the result outgrows the file")
            if key not in starts:
                starts[key], num_vertices = num_vertices, num_vertices + len(positions)
                verts.append(positions.astype(np.float64) @ transform[:3, :3].T + transform[:3, 3])
            mirrored = np.linalg.det(transform[:3, :3]) < 0
            faces.append(starts[key] + (triangles[:, ::-1] if mirrored else triangles))
    return Polygons.of_triangles(np.concatenate(verts), np.concatenate(faces))


def _primitive(primitive: Json, buffers: _Buffers) -> tuple[int, np.ndarray, np.ndarray]:
    """The index of the position accessor, the positions, and the triangles over them."""
    attributes = primitive.get("attributes")
    if _natural(primitive, "mode", _TRIANGLES) != _TRIANGLES or not isinstance(attributes, dict):
        raise MeshError("a glTF primitive is not a triangle list with attributes")
    key = _natural(attributes, "POSITION")
    positions = buffers.array(key, "VEC3", _POSITION_CODES)
    corners = np.arange(len(positions))
    if "indices" in primitive:
        corners = buffers.array(_natural(primitive, "indices"), "SCALAR", _INDEX_CODES)[:, 0].astype(np.int64)
    if len(corners) % 3 or (corners >= len(positions)).any():
        raise MeshError("glTF indices do not form triangles or are out of range")
    return key, positions, corners.reshape(-1, 3)


def _split(data: bytes) -> tuple[Json, bytes]:
    """The document and the binary chunk, which is empty for a ``.gltf`` file."""
    if not data.startswith(b"glTF"):
        return _document(data), b""
    if len(data) < 12 or struct.unpack_from("<II", data, 4) != (2, len(data)):
        raise MeshError("GLB file is truncated or not of version 2")
    chunks: dict[int, bytes] = {}
    at = 12
    while at + 8 <= len(data):
        length, kind = struct.unpack_from("<II", data, at)
        chunks.setdefault(kind, data[at + 8 : at + 8 + length])
        at += 8 + length
    if at != len(data):
        raise MeshError("the chunks of the GLB file do not add up to its size")
    return _document(chunks.get(_JSON_CHUNK, b"")), chunks.get(_BINARY_CHUNK, b"")


def _document(text: bytes) -> Json:
    try:
        document = parse_json(text)
    except ReadError as error:
        raise MeshError(f"glTF file without a valid JSON document: {str(error)[:100]}") from None
    if not isinstance(document, dict):
        raise MeshError("the JSON document of the glTF file is not an object")
    return document


def _natural(holder: Json, key: str, default: int | None = None) -> int:
    """An integer of at least 0, such as an index, a count or an offset."""
    value = holder.get(key, default)
    if type(value) is not int or not 0 <= value <= _MAX_INTEGER:
        raise MeshError(f"glTF {key!r} must be an integer of at least 0, not {value!r:.40}")
    return value


def _numbers(holder: Json, key: str, default: list[float]) -> list[float]:
    """A list of finite numbers, as long as ``default``."""
    values = holder.get(key, default)
    if not isinstance(values, list) or len(values) != len(default):
        raise MeshError(f"glTF {key!r} must be a list of {len(default)} numbers")
    if any(type(value) not in (int, float) or not abs(value) <= _MAX_NUMBER for value in values):
        raise MeshError(f"glTF {key!r} must contain finite numbers")
    return [float(value) for value in values]


def _list(holder: Json, key: str, kind: type) -> list[Any]:
    """A list of objects (dict) or of integers of at least 0; empty if the key is missing."""
    values = holder.get(key, [])
    if not isinstance(values, list) or not all(type(value) is kind for value in values):
        raise MeshError(f"glTF {key!r} must be a list of {'objects' if kind is dict else 'integers'}")
    return values if kind is dict else [_natural({key: value}, key) for value in values]


def _pick(values: list[Any], index: int, name: str) -> Any:
    if index >= len(values):
        raise MeshError(f"glTF refers to {name} {index}, but there are {len(values)}")
    return values[index]


class _Buffers:
    """The binary data of a file: buffers, views of them, and typed accessors to the views.

    chunk: the binary part of a GLB, which is the first buffer.
    folder: the folder of external buffers.
    """

    def __init__(self, document: Json, chunk: bytes, folder: Path | None) -> None:
        self.accessors = _list(document, "accessors", dict)
        self.views = _list(document, "bufferViews", dict)
        listed = _list(document, "buffers", dict)
        uris = [buffer.get("uri", "") for buffer in listed]
        if not all(isinstance(uri, str) for uri in uris) or len(set(uris)) != len(uris):
            raise MeshError("every glTF buffer must have its own uri")
        self.buffers = [_contents(buffer, chunk, folder) for buffer in listed]

    def array(self, index: int, kind: str, codes: dict[int, str]) -> np.ndarray:
        """Accessor ``index`` as [rows, width]; ``codes`` lists the allowed component types."""
        accessor = _pick(self.accessors, index, "accessor")
        component = _natural(accessor, "componentType")
        if accessor.get("type") != kind or component not in codes or "sparse" in accessor:
            raise MeshError(f"glTF accessor {index} is not a plain {kind} of a supported component type")
        dtype, width = np.dtype(codes[component]), _WIDTHS[kind]
        view = _pick(self.views, _natural(accessor, "bufferView"), "buffer view")
        buffer = _pick(self.buffers, _natural(view, "buffer"), "buffer")
        start, length = _natural(view, "byteOffset", 0), _natural(view, "byteLength")
        if start + length > len(buffer):
            raise MeshError("a glTF buffer view exceeds its buffer")
        row_bytes = dtype.itemsize * width
        rows, stride = _natural(accessor, "count"), _natural(view, "byteStride", row_bytes)
        first = _natural(accessor, "byteOffset", 0)
        if rows == 0 or stride < row_bytes or first + (rows - 1) * stride + row_bytes > length:
            raise MeshError(f"glTF accessor {index} does not fit its buffer view")
        return np.ndarray((rows, width), dtype, buffer, start + first, (stride, dtype.itemsize))


def _contents(buffer: Json, chunk: bytes, folder: Path | None) -> bytes:
    uri, data = buffer.get("uri", ""), chunk
    try:
        if uri.startswith("data:"):
            data = base64.b64decode(uri.partition(";base64,")[2], validate=True)
        elif uri:
            data = read_bytes(_external(uri, folder))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise MeshError(f"glTF buffer {uri[:60]!r}: {reason}") from error
    if _natural(buffer, "byteLength") > len(data):
        raise MeshError("truncated: a glTF buffer announces more bytes than it has")
    return data


def _external(uri: str, folder: Path | None) -> Path:
    """Only plain names in the document's own folder are read, so that a mesh file cannot access other files."""
    name = unquote(uri)
    if folder is None:
        raise MeshError("is not a file in the folder of the document: a set has one file per mesh, so save it as .glb")
    if name.startswith(".") or not name.isprintable() or not {*"/\\:"}.isdisjoint(name):
        raise MeshError("is not a file in the folder of the document")
    return folder / name


def _placed_meshes(document: Json) -> list[tuple[Json, np.ndarray]]:
    """The meshes of the default scene, depth first, each with its 4 × 4 transform.

    A file without nodes shows every mesh untransformed. A node that is reached twice (a cycle, a second parent) is an
    error, as in the standard.
    """
    nodes, meshes = _list(document, "nodes", dict), _list(document, "meshes", dict)
    if not nodes:
        return [(mesh, np.eye(4)) for mesh in meshes]
    placed = []
    seen: set[int] = set()
    pending = [(index, np.eye(4)) for index in reversed(_roots(document, nodes))]
    while pending:
        index, parent = pending.pop()
        node = _pick(nodes, index, "node")
        if index in seen:
            raise MeshError(f"glTF node {index} is reached twice")
        seen.add(index)
        transform = parent @ _transform(node)
        if "mesh" in node:
            placed.append((_pick(meshes, _natural(node, "mesh"), "mesh"), transform))
        pending += [(child, transform) for child in reversed(_list(node, "children", int))]
    return placed


def _roots(document: Json, nodes: list[Json]) -> list[int]:
    scenes = _list(document, "scenes", dict)
    if scenes:
        return _list(_pick(scenes, _natural(document, "scene", 0), "scene"), "nodes", int)
    children = {child for node in nodes for child in _list(node, "children", int)}
    return [index for index in range(len(nodes)) if index not in children]


def _transform(node: Json) -> np.ndarray:
    """The node's matrix (column-major in the file), or translation · rotation · scale."""
    if "matrix" in node:
        return np.array(_numbers(node, "matrix", [0.0] * 16)).reshape(4, 4).T
    transform = np.eye(4)
    transform[:3, :3] = _rotation(_numbers(node, "rotation", [0.0, 0.0, 0.0, 1.0]))
    transform[:3, :3] *= _numbers(node, "scale", [1.0] * 3)
    transform[:3, 3] = _numbers(node, "translation", [0.0] * 3)
    return transform


def _rotation(quaternion: list[float]) -> np.ndarray:
    """1 + 2 w K + 2 K², where K v = (x, y, z) × v."""
    cross = np.cross(np.eye(3), quaternion[:3])
    return np.eye(3) + 2 * quaternion[3] * cross + 2 * cross @ cross


def encode_gltf(mesh: Mesh) -> bytes:
    """JSON with the data embedded as base64."""
    data = _data(mesh)
    uri = "data:application/octet-stream;base64," + base64.b64encode(data).decode()
    return json.dumps(_describe(mesh, {"byteLength": len(data), "uri": uri})).encode()


def encode_glb(mesh: Mesh) -> bytes:
    """A JSON chunk and a binary chunk, both padded to a multiple of four bytes."""
    data = _data(mesh)
    document = json.dumps(_describe(mesh, {"byteLength": len(data)})).encode()
    document += b" " * (-len(document) % 4)
    chunks = struct.pack("<II", len(document), _JSON_CHUNK) + document
    chunks += struct.pack("<II", len(data), _BINARY_CHUNK) + data
    return b"glTF" + struct.pack("<II", 2, 12 + len(chunks)) + chunks


def _data(mesh: Mesh) -> bytes:
    return mesh.verts.astype("<f4").tobytes() + mesh.faces.astype("<u4").tobytes()


def _describe(mesh: Mesh, buffer: Json) -> Json:
    verts = mesh.verts.astype(np.float32)
    low, high = verts.min(axis=0).tolist(), verts.max(axis=0).tolist()
    position = {"bufferView": 0, "componentType": 5126, "count": mesh.num_vertices, "type": "VEC3"}
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
