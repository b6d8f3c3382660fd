"""The JSON document of a glTF file, and access to its values that trusts none of them."""

import struct
from typing import Any

from geoskip.meshes.mesh import MeshError
from geoskip.records.reading import ReadError, parse_json

Json = dict[str, Any]
JSON_CHUNK, BINARY_CHUNK = 0x4E4F534A, 0x004E4942
MAX_INTEGER, MAX_NUMBER = 1 << 53, 1e300


def split(data: bytes) -> tuple[Json, bytes]:
    """The document and the binary chunk of a GLB; of a ``.gltf``, the document and nothing."""
    if not data.startswith(b"glTF"):
        return _document(data), b""
    if len(data) < 12 or struct.unpack_from("<II", data, 4) != (2, len(data)):
        raise MeshError("GLB that is truncated or not of version 2")
    chunks: dict[int, bytes] = {}
    at = 12
    while at + 8 <= len(data):
        length, kind = struct.unpack_from("<II", data, at)
        chunks.setdefault(kind, data[at + 8 : at + 8 + length])
        at += 8 + length
    if at != len(data):
        raise MeshError("GLB whose chunks do not fill the file")
    return _document(chunks.get(JSON_CHUNK, b"")), chunks.get(BINARY_CHUNK, b"")


def _document(text: bytes) -> Json:
    try:
        document = parse_json(text)
    except ReadError as error:
        raise MeshError(f"glTF without a JSON document: {str(error)[:100]}") from None
    if not isinstance(document, dict):
        raise MeshError("glTF whose JSON is no object")
    return document


def natural(holder: Json, key: str, default: int | None = None) -> int:
    """A whole number from 0, such as an index, a count or an offset."""
    value = holder.get(key, default)
    if type(value) is not int or not 0 <= value <= MAX_INTEGER:
        raise MeshError(f"glTF {key!r} should be a whole number, not {value!r:.40}")
    return value


def naturals(holder: Json, key: str) -> list[int]:
    values = holder.get(key, [])
    if not isinstance(values, list):
        raise MeshError(f"glTF {key!r} should be a list")
    return [natural({key: value}, key) for value in values]


def numbers(holder: Json, key: str, default: list[float]) -> list[float]:
    """A list of finite numbers, as long as ``default``."""
    values = holder.get(key, default)
    if not isinstance(values, list) or len(values) != len(default):
        raise MeshError(f"glTF {key!r} should be a list of {len(default)} numbers")
    if any(type(value) not in (int, float) or not abs(value) <= MAX_NUMBER for value in values):
        raise MeshError(f"glTF {key!r} holds what is no number")
    return [float(value) for value in values]


def objects(holder: Json, key: str) -> list[Json]:
    """A list of objects, empty where the key is missing."""
    values = holder.get(key, [])
    if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
        raise MeshError(f"glTF {key!r} should be a list of objects")
    return values


def pick(values: list[Json], index: int, name: str) -> Json:
    if index >= len(values):
        raise MeshError(f"glTF names {name} {index} of {len(values)}")
    return values[index]
