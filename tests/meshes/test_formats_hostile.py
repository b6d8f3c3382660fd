"""Damaged and malicious files: a MeshError or a valid mesh, and never more memory than the file is worth."""

import os
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from geoskip.meshes import Mesh, MeshError, grid, parse_mesh, read_mesh, write_mesh
from geoskip.meshes.formats.gltf import encode_glb
from geoskip.meshes.formats.obj_off_stl import encode_stl
from geoskip.meshes.formats.ply import encode_ply
from geoskip.records import reading
from tests.fuzz.mutations import mutate_bytes, mutate_json
from tests.meshes.mesh_files import encode, seeds, square_gltf, square_ply, square_stl

PLY = "ply\nformat ascii 1.0\nelement vertex 3\nproperty float x\nproperty float y\nproperty float z\n"
PLY_FACE = "element face 1\nproperty list uchar int vertex_indices\nend_header\n"
PLY_BODY = "0 0 0\n1 0 0\n0 1 0\n3 0 1 2\n"
OBJ = "v 0 0 0\nv 1 0 0\nv 0 1 0\n"
OFF = "OFF\n3 1 0\n0 0 0\n1 0 0\n0 1 0\n"

BROKEN_TEXT = [
    (".ply", PLY + "property float w\n" + PLY_BODY, "no header from 'ply' to 'end_header'"),
    (".ply", "plyx\nend_header\n", "first line is not 'ply'"),
    (
        ".ply",
        PLY.replace("1.0", "2.0") + PLY_FACE + PLY_BODY,
        "expected a format of version 1.0, got 'format ascii 2.0'",
    ),
    (
        ".ply",
        PLY.replace("ascii", "utf8") + PLY_FACE + PLY_BODY,
        "expected a format of version 1.0, got 'format utf8 1.0'",
    ),
    (".ply", PLY + "property quad w\n" + PLY_FACE + PLY_BODY, "cannot read 'property quad w'"),
    (".ply", PLY.replace("vertex 3", "vertex -3") + PLY_FACE + PLY_BODY, "cannot read 'element vertex -3'"),
    (".ply", "ply\nformat ascii 1.0\nproperty float x\nend_header\n", "cannot read 'property float x'"),
    (
        ".ply",
        PLY + PLY_FACE.replace("uchar", "float") + PLY_BODY,
        "'vertex_indices' has a length that is not an integer",
    ),
    (".ply", PLY + "property float x\n" + PLY_FACE + PLY_BODY, "two properties 'x'"),
    (".ply", PLY + "".join(f"property int p{i}\n" for i in range(2000)) + PLY_FACE, "more than 1000 properties"),
    (".ply", PLY + "element vertex 0\n" + PLY_FACE + PLY_BODY, "two elements have the same name"),
    (".ply", PLY.replace("float z", "float w") + PLY_FACE + PLY_BODY, "PLY file without vertices"),
    (".ply", PLY + "end_header\n0 0 0 1 0 0 0 1 0", "PLY file without faces"),
    (".ply", PLY + PLY_FACE.replace("face 1", "face 0") + "0 0 0 1 0 0 0 1 0", "PLY file without faces"),
    (".ply", PLY + PLY_FACE.replace("int", "float") + PLY_BODY, "face indices must be integers"),
    (
        ".ply",
        PLY.replace("float x", "list uchar float x") + PLY_FACE + "2 9 9 0 0\n" * 3 + "3 0 1 2",
        "coordinates must be scalars",
    ),
    (".ply", PLY + PLY_FACE + PLY_BODY + "9", "data after the last element"),
    (".ply", PLY + PLY_FACE + PLY_BODY[:-3], "truncated"),
    (".ply", PLY + PLY_FACE + PLY_BODY.replace("3 0", "9 0"), "truncated"),
    (".ply", PLY + PLY_FACE + PLY_BODY.replace("3 0", "-3 0"), "the list 'vertex_indices' has length -3"),
    (".ply", PLY + PLY_FACE + PLY_BODY.replace("3 0 1 2", "2 0 1"), "face 0 has 2 corners"),
    (".ply", PLY + PLY_FACE + PLY_BODY.replace("1 2\n", "1 7\n"), "outside 0 to 2"),
    (".ply", PLY + PLY_FACE + PLY_BODY.replace("1 2\n", "1 1.5\n"), "'1.5' is not an integer"),
    (".ply", PLY + PLY_FACE + PLY_BODY.replace("1 2\n", f"1 {10**30}\n"), "is not an integer"),
    (".ply", PLY + PLY_FACE + PLY_BODY.replace("1 0 0", "1_0 0 0"), "'1_0' is not a number"),
    (".ply", PLY + PLY_FACE + PLY_BODY.replace("1 0 0", "nan 0 0"), "1 of 3 vertices are not finite"),
    (".obj", "", "no faces"),
    (".obj", OBJ + "w 0 0 0\nf 1 2 3", "unknown OBJ statement 'w'"),
    (".obj", OBJ + "v 0 0\nf 1 2 3", "OBJ vertex 4 has 2 values"),
    (".obj", OBJ + "f 0 1 2", "outside 0 to 2"),
    (".obj", OBJ + "f -4 1 2", "outside 0 to 2"),
    (".obj", OBJ + "f 1 2", "face 0 has 2 corners"),
    (".obj", OBJ + "f 1 2 x", "'x' is not an integer"),
    (".obj", OBJ + "v 0 1e999 0\nf 1 2 3", "1 of 4 vertices are not finite"),
    (".off", "FOO", "does not start with OFF"),
    (".off", "OFF BINARY\n", "line of vertex and face counts|not an integer"),
    (".off", "OFF\n", "line of vertex and face counts"),
    (".off", OFF, "announces 3 vertices and 1 faces, but 3 lines follow"),
    (".off", OFF.replace("3 1 0", "999999999999 -1 0"), "announces 999999999999 vertices and -1 faces"),
    (".off", OFF.replace("1 0 0", "1 0") + "3 0 1 2", "OFF vertex 2 has 2 values"),
    (".off", OFF + "4 0 1 2", "OFF face 0 announces 4 corners but has 3"),
    (".off", OFF + "-1 0 1 2", "OFF face 0 announces -1 corners"),
    (".stl", "solid\nfacet normal 0 0 1\n", "truncated or not a sequence of facets"),
    (".stl", square_stl().decode().replace("endloop", "endloops"), "not a sequence of facets"),
    (".stl", square_stl().decode().rsplit("endsolid", 1)[0], "truncated"),
    (".stl", square_stl().decode().replace("vertex 0.0 0.0", "vertex 0.0"), "STL vertex 1 has 2 values"),
    (".stl", square_stl().decode().replace("vertex 1.0 0.0", "vertex inf 0.0"), "not finite"),
    (".stl", "hello", "not an STL file"),
    (".gltf", "{", "without a valid JSON document"),
    (".gltf", "[" * 100_000, "without a valid JSON document"),
    (".gltf", "[]", "glTF file is not an object"),
    (".gltf", "{}", "no faces"),
]


@pytest.mark.parametrize(("suffix", "text", "message"), BROKEN_TEXT)
def test_broken_text_is_rejected_with_its_reason(suffix: str, text: str, message: str) -> None:
    with pytest.raises(MeshError, match=message):
        parse_mesh(text.encode(), suffix)


def ply_of_floats(mesh: Mesh) -> bytes:
    data = encode_ply(mesh).replace(b"property double", b"property float")
    return data.replace(mesh.verts.tobytes(), mesh.verts.astype("<f4").tobytes())


def changed(name: str, number: int, **entries: Any) -> dict[str, Any]:
    """The document of a valid square with some entries of ``name[number]`` changed, or removed by None."""
    document = square_gltf()
    document[name][number] = {k: v for k, v in (document[name][number] | entries).items() if v is not None}
    return document


def primitive(**entries: Any) -> dict[str, Any]:
    return square_gltf(meshes=[{"primitives": [{"attributes": {"POSITION": 0}, "indices": 1} | entries]}])


BROKEN_GLTF = [
    (square_gltf(extensionsRequired=["KHR_draco_mesh_compression"]), "save it without compression"),
    (square_gltf(extensionsRequired=7), "save it without compression"),
    (primitive(mode=5), "not a triangle list"),
    (primitive(attributes=[]), "not a triangle list with attributes"),
    (primitive(attributes={}), "'POSITION' must be an integer of at least 0"),
    (primitive(attributes={"POSITION": True}), "'POSITION' must be an integer of at least 0"),
    (primitive(attributes={"POSITION": -1}), "'POSITION' must be an integer of at least 0"),
    (primitive(attributes={"POSITION": 1}), "accessor 1 is not a plain VEC3"),
    (primitive(indices=0), "accessor 0 is not a plain SCALAR"),
    (primitive(indices=2), "refers to accessor 2, but there are 2"),
    (changed("accessors", 0, sparse={}), "accessor 0 is not a plain VEC3"),
    (changed("accessors", 0, componentType=5123), "accessor 0 is not a plain VEC3"),
    (changed("accessors", 0, bufferView=None), "'bufferView' must be an integer of at least 0"),
    (changed("accessors", 0, count=10**15), "accessor 0 does not fit its buffer view"),
    (changed("accessors", 0, count=0), "accessor 0 does not fit its buffer view"),
    (changed("accessors", 0, count=3), "are out of range"),
    (changed("accessors", 1, count=8), "do not form triangles"),
    (changed("bufferViews", 0, byteStride=0), "accessor 0 does not fit its buffer view"),
    (changed("bufferViews", 0, byteLength=10**9, byteOffset=0), "buffer view exceeds its buffer"),
    (changed("bufferViews", 0, buffer=1), "refers to buffer 1, but there are 1"),
    (changed("buffers", 0, byteLength=83), "announces more bytes"),
    (changed("buffers", 0, uri="data:;base64,?"), "glTF buffer .data:"),
    (changed("buffers", 0, uri=7), "must have its own uri"),
    (square_gltf(buffers=[{"byteLength": 0}] * 2), "must have its own uri"),
    (changed("nodes", 0, mesh=1), "refers to mesh 1, but there are 1"),
    (changed("nodes", 0, children=[0]), "no faces"),
    (square_gltf(nodes=[{"children": [1]}, {"children": [1]}]), "node 1 is reached twice"),
    (square_gltf(scenes=[{"nodes": [0, 0]}]), "node 0 is reached twice"),
    (square_gltf(scenes=[{"nodes": 0}]), "'nodes' must be a list"),
    (square_gltf(scenes=[{}], scene=1), "refers to scene 1, but there are 1"),
    (square_gltf(meshes={}), "'meshes' must be a list of objects"),
    (square_gltf(meshes=[0]), "'meshes' must be a list of objects"),
    (changed("nodes", 0, scale=[1, 1]), "'scale' must be a list of 3 numbers"),
    (changed("nodes", 0, scale=[1, 1, "1"]), "'scale' must contain finite numbers"),
    (changed("nodes", 0, scale=[1, 1, 10**400]), "an integer does not fit"),
    (changed("nodes", 0, scale=[1, 1, float("nan")]), "contains nan, which is not finite"),
    (changed("nodes", 0, scale=[1e300] * 3, rotation=[1e300] * 4), "not finite"),
    (square_gltf(nodes=[{"mesh": 0}] * 1000), "outgrows the file"),
]


@pytest.mark.parametrize(("document", "message"), BROKEN_GLTF)
def test_broken_gltf_is_rejected_with_its_reason(document: dict[str, Any], message: str) -> None:
    with pytest.raises(MeshError, match=message):
        parse_mesh(encode(document), ".gltf")


@pytest.mark.parametrize(
    "uri", ["../secret.bin", "/etc/passwd", "%2e%2e%2fx", "a\\b", "file:x", ".hidden", "a%00b", "x.bin"]
)
def test_gltf_reads_only_plain_files_in_its_own_folder(tmp_path: Path, uri: str) -> None:
    folder = tmp_path / "inner"
    folder.mkdir()
    (tmp_path / "secret.bin").write_bytes(bytes(100))
    (folder / "m.gltf").write_bytes(encode(changed("buffers", 0, uri=uri)))
    message = "No such file" if uri == "x.bin" else "is not a file in the folder of the document"
    with pytest.raises(MeshError, match=message):
        read_mesh(folder / "m.gltf")


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda data: data[:-1], "truncated or not of version 2"),
        (lambda data: data[:10], "truncated or not of version 2"),
        (lambda data: data[:4] + struct.pack("<I", 1) + data[8:], "truncated or not of version 2"),
        (
            lambda data: data[:12] + struct.pack("<I", 5) + data[16:],
            "do not add up to its size|without a valid JSON document",
        ),
        (lambda data: data[:12] + struct.pack("<I", 2**32 - 1) + data[16:], "do not add up to its size"),
        (lambda data: data[:16] + b"NOPE" + data[20:], "without a valid JSON document"),
    ],
)
def test_broken_glb_containers(edit: Any, message: str) -> None:
    with pytest.raises(MeshError, match=message):
        parse_mesh(edit(encode_glb(grid(2, 2))), ".glb")


@pytest.mark.parametrize(("suffix", "write"), [(".stl", encode_stl), (".glb", encode_glb), (".ply", ply_of_floats)])
def test_a_signaling_nan_is_rejected_like_any_other(suffix: str, write: Callable[[Mesh], bytes]) -> None:
    """Converting one to float64 makes numpy warn, and a warning may be an error."""
    marked = grid(2, 2).with_verts(grid(2, 2).verts + 1234.5)
    data = write(marked).replace(struct.pack("<f", 1234.5), struct.pack("<I", 0x7F800001))
    with pytest.raises(MeshError, match="vertices are not finite"):
        parse_mesh(data, suffix)


@pytest.mark.parametrize("suffix", sorted(seeds()))
def test_thousands_of_mutated_files_are_rejected_or_valid(suffix: str) -> None:
    files, random = seeds()[suffix], np.random.default_rng(list(suffix.encode()))
    mutate = mutate_json if suffix == ".gltf" else mutate_bytes
    outcomes = {"mesh": 0, "rejected": 0}
    for turn in range(3000):
        data = mutate(files[random.integers(len(files))], random)
        try:
            mesh = parse_mesh(data, suffix, drop_degenerate=turn % 2 == 0)
        except MeshError:
            outcomes["rejected"] += 1
        else:
            outcomes["mesh"] += 1
            assert np.isfinite(mesh.verts).all()
            assert ((mesh.faces >= 0) & (mesh.faces < mesh.num_vertices)).all()
            assert np.isfinite(mesh.face_areas()).all()
    assert min(outcomes.values()) > 50, outcomes


@pytest.mark.parametrize("encoding", ["ascii", "binary_little_endian", "binary_big_endian"])
@pytest.mark.parametrize("element", ["vertex 4", "face 2", "edge 1"])
def test_a_promise_of_gigabytes_allocates_nothing(encoding: str, element: str) -> None:
    name = element.split()[0]
    data = square_ply(encoding).replace(f"element {element}".encode(), f"element {name} {10**11}".encode())
    tracemalloc.start()
    with pytest.raises(MeshError, match="truncated"):
        parse_mesh(data, ".ply")
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


@pytest.mark.parametrize("suffix", sorted(seeds().keys() - {".obj"}))
def test_every_truncation_is_rejected_unless_nothing_is_lost(suffix: str) -> None:
    """OBJ, which has no counts, is left out: any of its beginnings may be a file."""
    for data in seeds(grid(2, 2))[suffix]:
        whole = parse_mesh(data, suffix)
        lengths = []
        for length in range(len(data)):
            try:
                part = parse_mesh(data[:length], suffix)
            except MeshError:
                continue
            lengths.append(length)
            assert part.topology_hash() == whole.topology_hash()
        # a last line end, the name after "endsolid", the colour of the last face
        assert len(lengths) <= 10


def test_read_mesh_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "broken.ply").write_bytes(b"ply")
    with pytest.raises(MeshError, match=r"broken\.ply: not a PLY file"):
        read_mesh(tmp_path / "broken.ply")
    with pytest.raises(FileNotFoundError):
        read_mesh(tmp_path / "missing.ply")


def test_pipes_and_folders_are_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.ply")
    (tmp_path / "folder.obj").mkdir()
    for name in ("pipe.ply", "folder.obj"):
        with pytest.raises(MeshError, match=f"{name} is not a regular file"):
            read_mesh(tmp_path / name)


def test_files_beyond_the_limit_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_mesh(grid(2, 2), tmp_path / "m.ply")
    size = len(encode_ply(grid(2, 2)))
    monkeypatch.setattr(reading, "MAX_BYTES", size - 1)
    with pytest.raises(MeshError, match=f"has {size} bytes, more than the limit of {size - 1}"):
        read_mesh(tmp_path / "m.ply")
