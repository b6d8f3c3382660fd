"""The small formats: OBJ, OFF and STL.

OBJ: ``v`` and ``f`` statements are read, all others that the format defines are skipped. Of a corner ``v/vt/vn`` only
the vertex is used, so texture seams do not split vertices. Negative indices count back from the last vertex so far. An
unknown statement is an error: it could be a damaged ``v``, and skipping that would shift all later indices.

OFF (text): ``OFF``, the three counts, one line per vertex, one line per face; ``#`` starts a comment. The prefixes for
texture, color and normals (ST, C, N) are accepted, and those values are ignored, as are face colors.

STL (binary and ASCII): triangles without a vertex list. Corners with exactly equal coordinates become one vertex;
vertices are numbered by first appearance. Normals are ignored. Files are written as binary float32.
"""

import re
from collections.abc import Container

import numpy as np

from geoskip.meshes.formats.polygons import Polygons, float_array, int_array, split_lines
from geoskip.meshes.mesh import Mesh, MeshError, float64_copy

_OBJ_SKIPPED = frozenset(
    b"vt vn vp g o s mg usemtl mtllib usemap maplib l p deg bmat step cstype curv curv2 surf parm trim hole scrv"
    b" sp end con bevel c_interp d_interp lod shadow_obj trace_obj ctech stech call csh vc".split()
)
# Some well-known data sets write the counts directly after the keyword, without a space.
_OFF_KEYWORD = re.compile(rb"(?:ST)?C?N?OFF(?![A-Za-z])")
_STL_RECORD = np.dtype([("normal", "<f4", 3), ("corners", "<f4", (3, 3)), ("attribute", "<u2")])
_STL_HEADER_BYTES = 84
_STL_FACET = [b"facet", b"outer", b"vertex", b"vertex", b"vertex", b"endloop", b"endfacet"]


def parse_obj(data: bytes) -> Polygons:
    coordinates: list[list[bytes]] = []
    polygons: list[list[bytes]] = []
    num_vertices_so_far: list[int] = []
    for words in split_lines(data):
        if words[0] == b"v":
            coordinates.append(words[1:])
        elif words[0] == b"f":
            polygons.append(words[1:])
            num_vertices_so_far.append(len(coordinates))
        elif words[0] not in _OBJ_SKIPPED:
            raise MeshError(f"unknown OBJ statement {words[0][:20].decode('latin-1')!r}")
    # x y z, optionally followed by a weight, a color, or both
    verts = _positions("OBJ", coordinates, (3, 4, 6, 7))
    return Polygons(verts, *_obj_corners(polygons, num_vertices_so_far))


def _positions(kind: str, lines: list[list[bytes]], counts: Container[int]) -> np.ndarray:
    """The first three of the numbers in each line; ``counts`` says how many a line may have."""
    for i, words in enumerate(lines):
        if len(words) not in counts:
            raise MeshError(f"{kind} vertex {i + 1} has {len(words)} values")
    return float_array([word for words in lines for word in words[:3]]).reshape(-1, 3)


def _obj_corners(polygons: list[list[bytes]], num_vertices_so_far: list[int]) -> tuple[np.ndarray, np.ndarray]:
    sizes = np.array([len(words) for words in polygons], dtype=np.int64)
    one_based = int_array([word.split(b"/", 1)[0] for words in polygons for word in words])
    # OBJ has no index 0; it becomes -1, which the mesh rejects.
    from_end = np.repeat(np.array(num_vertices_so_far, dtype=np.int64), sizes) + one_based
    return sizes, np.where(one_based < 0, from_end, one_based - 1)


def encode_obj(mesh: Mesh) -> bytes:
    verts = [f"v {x!r} {y!r} {z!r}\n" for x, y, z in mesh.verts.tolist()]
    faces = [f"f {a} {b} {c}\n" for a, b, c in (mesh.faces + 1).tolist()]
    return "".join(verts + faces).encode()


def parse_off(data: bytes) -> Polygons:
    lines = split_lines(data)
    keyword = _OFF_KEYWORD.match(lines[0][0]) if lines else None
    if keyword is None:
        raise MeshError("not an OFF file: it does not start with OFF")
    lines[0][0] = lines[0][0][keyword.end() :]
    lines = split_lines(b" ".join(lines[0])) + lines[1:]
    if not lines or len(lines[0]) not in (2, 3):
        raise MeshError("OFF file without a line of vertex and face counts")
    num_vertices, num_faces = int_array(lines[0][:2]).tolist()
    if min(num_vertices, num_faces) < 0 or len(lines) != 1 + num_vertices + num_faces:
        raise MeshError(
            f"OFF header announces {num_vertices} vertices and {num_faces} faces, but {len(lines) - 1} lines follow"
        )
    # x y z, optionally followed by a normal, a color and texture coordinates
    verts = _positions("OFF", lines[1 : 1 + num_vertices], range(3, 100))
    return Polygons(verts, *_off_corners(lines[1 + num_vertices :]))


def _off_corners(lines: list[list[bytes]]) -> tuple[np.ndarray, np.ndarray]:
    sizes = int_array([words[0] for words in lines])
    for i, (size, words) in enumerate(zip(sizes.tolist(), lines, strict=True)):
        if not 0 <= size < len(words):
            raise MeshError(f"OFF face {i} announces {size} corners but has {len(words) - 1}")
    corners = [word for size, words in zip(sizes.tolist(), lines, strict=True) for word in words[1 : size + 1]]
    return sizes, int_array(corners)


def encode_off(mesh: Mesh) -> bytes:
    verts = [f"{x!r} {y!r} {z!r}\n" for x, y, z in mesh.verts.tolist()]
    faces = [f"3 {a} {b} {c}\n" for a, b, c in mesh.faces.tolist()]
    return "".join(["OFF\n", f"{mesh.num_vertices} {mesh.num_faces} 0\n", *verts, *faces]).encode()


def parse_stl(data: bytes) -> Polygons:
    corners = _stl_binary_corners(data)
    if corners is None:
        corners = _stl_text_corners(data)
    verts, faces = _merge_equal(corners)
    return Polygons.of_triangles(verts, faces)


def _merge_equal(corners: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct rows of ``corners`` by first appearance, and the triangles over them."""
    corners = corners + 0.0  # turns -0 into 0
    order = np.lexsort(corners.T)  # stable, so each run of equal rows starts with its first appearance
    starts_run = np.ones(len(order), dtype=bool)
    starts_run[1:] = (corners[order[1:]] != corners[order[:-1]]).any(axis=1)
    first = order[starts_run]
    rank = np.argsort(np.argsort(first))
    vertex = np.empty(len(order), dtype=np.int64)
    vertex[order] = rank[np.cumsum(starts_run) - 1]
    return corners[np.sort(first)], vertex.reshape(-1, 3)


def _stl_binary_corners(data: bytes) -> np.ndarray | None:
    """None if the file is not binary. Only its size tells: some binary files start with "solid", as ASCII files do."""
    count, odd = divmod(len(data) - _STL_HEADER_BYTES, _STL_RECORD.itemsize)
    if count < 0 or odd or int.from_bytes(data[80:84], "little") != count:
        return None
    records = np.frombuffer(data, _STL_RECORD, count, _STL_HEADER_BYTES)
    return float64_copy(records["corners"].reshape(-1, 3))


def _stl_text_corners(data: bytes) -> np.ndarray:
    if not data.lstrip()[:5].lower() == b"solid":
        raise MeshError("not an STL file: no 'solid', and the size does not match a binary header")
    lines = split_lines(data)
    keywords = [words[0].lower() for words in lines]
    inner = [keyword for keyword in keywords if keyword not in (b"solid", b"endsolid")]
    if keywords[-1] != b"endsolid" or inner != _STL_FACET * (len(inner) // len(_STL_FACET)):
        raise MeshError("STL text is truncated or not a sequence of facets with three vertices")
    corners = [words[1:] for words, keyword in zip(lines, keywords, strict=True) if keyword == b"vertex"]
    return _positions("STL", corners, (3,))


def encode_stl(mesh: Mesh) -> bytes:
    records = np.zeros(mesh.num_faces, dtype=_STL_RECORD)
    records["normal"] = mesh.face_normals()
    records["corners"] = mesh.verts[mesh.faces]
    return bytes(80) + len(records).to_bytes(4, "little") + records.tobytes()
