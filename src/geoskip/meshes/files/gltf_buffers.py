"""The binary data of a glTF file: buffers, views of them, and typed accessors to the views."""

import base64
from pathlib import Path
from urllib.parse import unquote

import numpy as np

from geoskip.meshes.files.gltf_json import Json, natural, objects, pick
from geoskip.meshes.mesh import MeshError
from geoskip.records.reading import ReadError, read_bytes

WIDTHS = {"SCALAR": 1, "VEC3": 3}


class Buffers:
    """chunk: the binary part of a GLB, which is the first buffer. folder: where external buffers may lie."""

    def __init__(self, document: Json, chunk: bytes, folder: Path | None) -> None:
        self.accessors = objects(document, "accessors")
        self.views = objects(document, "bufferViews")
        listed = objects(document, "buffers")
        uris = [buffer.get("uri", "") for buffer in listed]
        if not all(isinstance(uri, str) for uri in uris) or len(set(uris)) != len(uris):
            raise MeshError("glTF buffers without a uri of their own")
        self.buffers = [_contents(buffer, chunk, folder) for buffer in listed]

    @property
    def num_bytes(self) -> int:
        return sum(map(len, self.buffers))

    def array(self, index: int, kind: str, codes: dict[int, str]) -> np.ndarray:
        """Accessor ``index`` as [rows, width]; ``codes`` gives the component types that its use allows."""
        accessor = pick(self.accessors, index, "accessor")
        component = natural(accessor, "componentType")
        if accessor.get("type") != kind or component not in codes or "sparse" in accessor:
            raise MeshError(f"glTF accessor {index} is no plain {kind} of a type for its use")
        dtype, width = np.dtype(codes[component]), WIDTHS[kind]
        view = pick(self.views, natural(accessor, "bufferView"), "buffer view")
        row_bytes = dtype.itemsize * width
        rows, stride = natural(accessor, "count"), natural(view, "byteStride", row_bytes)
        first, last = natural(accessor, "byteOffset", 0), natural(view, "byteLength")
        if rows == 0 or stride < row_bytes or first + (rows - 1) * stride + row_bytes > last:
            raise MeshError(f"glTF accessor {index} does not fit its buffer view")
        data, start = self._view(view)
        return np.ndarray((rows, width), dtype, data, start + first, (stride, dtype.itemsize))

    def _view(self, view: Json) -> tuple[bytes, int]:
        index, start = natural(view, "buffer"), natural(view, "byteOffset", 0)
        if index >= len(self.buffers) or start + natural(view, "byteLength") > len(self.buffers[index]):
            raise MeshError("glTF buffer view beyond the buffers that are there")
        return self.buffers[index], start


def _contents(buffer: Json, chunk: bytes, folder: Path | None) -> bytes:
    uri = buffer.get("uri", "")
    if uri == "":
        data = chunk
    elif uri.startswith("data:"):
        data = _embedded(uri)
    else:
        data = _beside(uri, folder)
    if natural(buffer, "byteLength") > len(data):
        raise MeshError("truncated: a glTF buffer announces more bytes than are there")
    return data


def _embedded(uri: str) -> bytes:
    head, _, body = uri.partition(";base64,")
    try:
        return base64.b64decode(body, validate=True)
    except ValueError:
        raise MeshError(f"glTF buffer that is not base64: {head[:40]!r}") from None


def _beside(uri: str, folder: Path | None) -> bytes:
    """A plain name in the document's own folder: a mesh file has no business anywhere else."""
    name = unquote(uri)
    if folder is None or name.startswith(".") or not name.isprintable() or not {*"/\\:"}.isdisjoint(name):
        raise MeshError(f"glTF buffer {uri[:60]!r} is not a file beside the document")
    try:
        return read_bytes(folder / name)
    except OSError as error:
        raise MeshError(f"glTF buffer {uri[:60]!r}: {error.strerror}") from error
    except ReadError as error:
        raise MeshError(f"glTF buffer {uri[:60]!r}: {error}") from error
