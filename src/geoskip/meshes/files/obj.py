"""Wavefront OBJ: ``v`` and ``f`` statements; everything else that the format knows is skipped.

Corners ``v/vt/vn`` keep their vertex only, so texture seams do not split vertices. Negative indices count back
from the last vertex so far. A statement that the format does not know is refused: it may be a damaged ``v``,
and leaving one out would shift every later index.
"""

import numpy as np

from geoskip.meshes.files.polygons import Polygons, float_array, int_array
from geoskip.meshes.mesh import Mesh, MeshError

SKIPPED = frozenset(
    b"vt vn vp g o s mg usemtl mtllib usemap maplib l p deg bmat step cstype curv curv2 surf parm trim hole scrv"
    b" sp end con bevel c_interp d_interp lod shadow_obj trace_obj ctech stech call csh vc".split()
)


def parse(data: bytes) -> Polygons:
    coordinates: list[list[bytes]] = []
    polygons: list[list[bytes]] = []
    seen: list[int] = []
    for line in data.replace(b"\\\r\n", b" ").replace(b"\\\n", b" ").split(b"\n"):
        words = line.split()
        if not words:
            continue
        if words[0] == b"v":
            coordinates.append(words[1:])
        elif words[0] == b"f":
            polygons.append(words[1:])
            seen.append(len(coordinates))
        elif words[0] not in SKIPPED and not words[0].startswith(b"#"):
            raise MeshError(f"OBJ has no statement {words[0][:20].decode('latin-1')!r}")
    return Polygons(_verts(coordinates), *_corners(polygons, seen))


def _verts(coordinates: list[list[bytes]]) -> np.ndarray:
    # x y z, then nothing, a weight, a colour, or both
    bad = next((i for i, words in enumerate(coordinates) if len(words) not in (3, 4, 6, 7)), None)
    if bad is not None:
        raise MeshError(f"OBJ vertex {bad + 1} has {len(coordinates[bad])} values")
    return float_array([word for words in coordinates for word in words[:3]]).reshape(-1, 3)


def _corners(polygons: list[list[bytes]], seen: list[int]) -> tuple[np.ndarray, np.ndarray]:
    sizes = np.array([len(words) for words in polygons], dtype=np.int64)
    one_based = int_array([word.split(b"/", 1)[0] for words in polygons for word in words])
    # 0 stays out of range: it is no index in OBJ
    backwards = np.repeat(np.array(seen, dtype=np.int64), sizes) + one_based
    return sizes, np.where(one_based < 0, backwards, one_based - 1)


def text(mesh: Mesh) -> bytes:
    verts = [f"v {x!r} {y!r} {z!r}\n" for x, y, z in mesh.verts.tolist()]
    faces = [f"f {a} {b} {c}\n" for a, b, c in (mesh.faces + 1).tolist()]
    return "".join(verts + faces).encode()
