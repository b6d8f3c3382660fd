"""STL, binary and ascii: triangles without a vertex list.

Corners with exactly equal coordinates become one vertex; vertices are numbered by first appearance. The
normals of the file are ignored. Written as binary, float32.
"""

import numpy as np

from geoskip.meshes.files.polygons import Polygons, float_array
from geoskip.meshes.mesh import Mesh, MeshError, float64_copy

RECORD = np.dtype([("normal", "<f4", 3), ("corners", "<f4", (3, 3)), ("attribute", "<u2")])
HEADER_BYTES = 84
_FACET = [b"facet", b"outer", b"vertex", b"vertex", b"vertex", b"endloop", b"endfacet"]


def parse(data: bytes) -> Polygons:
    corners = _binary_corners(data)
    if corners is None:
        corners = _text_corners(data)
    verts, faces = merge_equal(corners)
    return Polygons.of_triangles(verts, faces)


def merge_equal(corners: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distinct rows of ``corners`` by first appearance, and the triangles over them."""
    corners = corners + 0.0  # -0 and 0 are one place
    order = np.lexsort(corners.T)  # stable, so that each run of equal rows begins with its first appearance
    starts_run = np.ones(len(order), dtype=bool)
    starts_run[1:] = (corners[order[1:]] != corners[order[:-1]]).any(axis=1)
    first = order[starts_run]
    rank = np.argsort(np.argsort(first))
    vertex = np.empty(len(order), dtype=np.int64)
    vertex[order] = rank[np.cumsum(starts_run) - 1]
    return corners[np.sort(first)], vertex.reshape(-1, 3)


def _binary_corners(data: bytes) -> np.ndarray | None:
    """The size alone tells a binary file: some begin with the word "solid" as ascii files do."""
    count, odd = divmod(len(data) - HEADER_BYTES, RECORD.itemsize)
    if count < 0 or odd or int.from_bytes(data[80:84], "little") != count:
        return None
    records = np.frombuffer(data, RECORD, count, HEADER_BYTES)
    return float64_copy(records["corners"].reshape(-1, 3))


def _text_corners(data: bytes) -> np.ndarray:
    if not data.lstrip()[:5].lower() == b"solid":
        raise MeshError("not an STL file: no 'solid', and not the size that a binary header announces")
    lines = [words for words in (line.split() for line in data.split(b"\n")) if words]
    keywords = [words[0].lower() for words in lines]
    inner = [keyword for keyword in keywords if keyword not in (b"solid", b"endsolid")]
    if keywords[-1] != b"endsolid" or inner != _FACET * (len(inner) // len(_FACET)):
        raise MeshError("STL text that is truncated or not a sequence of facets with three vertices")
    corners = [words[1:] for words, keyword in zip(lines, keywords, strict=True) if keyword == b"vertex"]
    if any(len(words) != 3 for words in corners):
        raise MeshError("an STL vertex that has not three coordinates")
    return float_array([word for words in corners for word in words]).reshape(-1, 3)


def binary(mesh: Mesh) -> bytes:
    records = np.zeros(mesh.num_faces, dtype=RECORD)
    records["normal"] = mesh.face_normals()
    records["corners"] = mesh.verts[mesh.faces]
    return bytes(80) + len(records).to_bytes(4, "little") + records.tobytes()
