"""OFF, text: ``OFF``, the three counts, a line per vertex, a line per face; ``#`` begins a comment.

The prefixes for texture, colour and normals (ST, C, N) are accepted; those values are ignored, as are face
colours.
"""

import re

import numpy as np

from geoskip.meshes.files.polygons import Polygons, float_array, int_array
from geoskip.meshes.mesh import Mesh, MeshError

# Some well-known sets write the counts on the line of the keyword, with no space between.
_KEYWORD = re.compile(rb"\s*(?:ST)?C?N?OFF(?![A-Za-z])")


def parse(data: bytes) -> Polygons:
    keyword = _KEYWORD.match(data)
    if keyword is None:
        raise MeshError("not an OFF file: it does not begin with OFF")
    lines = [line.split() for line in re.sub(rb"#[^\n]*", b"", data[keyword.end() :]).split(b"\n")]
    lines = [words for words in lines if words]
    if not lines or len(lines[0]) not in (2, 3):
        raise MeshError("OFF without its line of vertex and face counts")
    num_verts, num_faces = int_array(lines[0][:2]).tolist()
    if min(num_verts, num_faces) < 0 or len(lines) != 1 + num_verts + num_faces:
        raise MeshError(f"OFF counts {num_verts} vertices and {num_faces} faces, but has {len(lines) - 1} lines")
    return Polygons(_verts(lines[1 : 1 + num_verts]), *_corners(lines[1 + num_verts :]))


def _verts(lines: list[list[bytes]]) -> np.ndarray:
    short = next((i for i, words in enumerate(lines) if len(words) < 3), None)
    if short is not None:
        raise MeshError(f"OFF vertex {short} has {len(lines[short])} coordinates")
    return float_array([word for words in lines for word in words[:3]]).reshape(-1, 3)


def _corners(lines: list[list[bytes]]) -> tuple[np.ndarray, np.ndarray]:
    sizes = int_array([words[0] for words in lines])
    for i, (size, words) in enumerate(zip(sizes.tolist(), lines, strict=True)):
        if not 0 <= size < len(words):
            raise MeshError(f"OFF face {i} says {size} corners and has {len(words) - 1}")
    corners = [word for size, words in zip(sizes.tolist(), lines, strict=True) for word in words[1 : size + 1]]
    return sizes, int_array(corners)


def text(mesh: Mesh) -> bytes:
    verts = [f"{x!r} {y!r} {z!r}\n" for x, y, z in mesh.verts.tolist()]
    faces = [f"3 {a} {b} {c}\n" for a, b, c in mesh.faces.tolist()]
    return "".join(["OFF\n", f"{mesh.num_verts} {mesh.num_faces} 0\n", *verts, *faces]).encode()
