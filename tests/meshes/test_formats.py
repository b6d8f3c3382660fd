"""Reading and writing: hand-written files, our own, and trimesh's as an independent witness."""

import logging
import struct
from codecs import BOM_UTF8
from pathlib import Path

import numpy as np
import pytest
import trimesh

from geoskip.meshes import Mesh, MeshError, grid, icosphere, parse_mesh, read_mesh, torus, write_mesh
from tests.meshes import mesh_files
from tests.meshes.mesh_files import SQUARE, SQUARE_FACES, encode, encode_ply_ascii, square_gltf

SUFFIXES = [".ply", ".obj", ".off", ".stl", ".gltf", ".glb"]
EXACT = [".ply", ".obj", ".off"]
# float32 keeps 24 bits
SINGLE = 2.0**-24


@pytest.fixture
def shuffled() -> Mesh:
    """No order of vertices or faces that a reader could restore by itself, and a vertex that no face uses."""
    mesh, rng = torus(9, 7), np.random.default_rng(0)
    new_index = rng.permutation(mesh.num_vertices)
    verts = np.empty_like(mesh.verts)
    verts[new_index] = mesh.verts * rng.uniform(1, 2, size=3)
    return Mesh(np.concatenate([verts, [[0.1, 0.2, 0.3]]]), new_index[rng.permutation(mesh.faces)])


@pytest.mark.parametrize("suffix", EXACT)
def test_text_and_ply_return_every_bit(tmp_path: Path, shuffled: Mesh, suffix: str) -> None:
    write_mesh(shuffled, tmp_path / f"m{suffix}")
    again = read_mesh(tmp_path / f"m{suffix}")
    assert np.array_equal(again.verts, shuffled.verts)
    assert np.array_equal(again.faces, shuffled.faces)


def test_ascii_ply_returns_every_bit(tmp_path: Path, shuffled: Mesh) -> None:
    (tmp_path / "m.PLY").write_bytes(encode_ply_ascii(shuffled))
    again = read_mesh(tmp_path / "m.PLY")
    assert np.array_equal(again.verts, shuffled.verts)
    assert np.array_equal(again.faces, shuffled.faces)


@pytest.mark.parametrize("suffix", [".gltf", ".glb"])
def test_gltf_keeps_the_order_and_rounds_to_float32(tmp_path: Path, shuffled: Mesh, suffix: str) -> None:
    write_mesh(shuffled, tmp_path / f"m{suffix}")
    again = read_mesh(tmp_path / f"m{suffix}")
    assert (np.abs(again.verts - shuffled.verts) <= SINGLE * np.abs(shuffled.verts)).all()
    assert np.array_equal(again.faces, shuffled.faces)


def test_stl_keeps_the_triangles_and_numbers_vertices_by_first_appearance(tmp_path: Path, shuffled: Mesh) -> None:
    write_mesh(shuffled, tmp_path / "m.stl")
    again = read_mesh(tmp_path / "m.stl")
    corners = again.verts[again.faces]
    assert np.array_equal(corners, shuffled.verts[shuffled.faces].astype(np.float32))
    assert again.num_vertices == shuffled.num_vertices - 1
    appearance = again.faces.reshape(-1)
    assert [int(np.argmax(appearance == v)) for v in range(again.num_vertices)] == sorted(
        int(np.argmax(appearance == v)) for v in range(again.num_vertices)
    )


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_trimesh_reads_what_is_written(tmp_path: Path, shuffled: Mesh, suffix: str) -> None:
    write_mesh(shuffled, tmp_path / f"m{suffix}")
    other = trimesh.load_mesh(tmp_path / f"m{suffix}", process=False, maintain_order=True)
    assert np.allclose(other.vertices[other.faces], shuffled.verts[shuffled.faces], rtol=2 * SINGLE, atol=0)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_trimesh_writes_is_read_in_its_order(tmp_path: Path, shuffled: Mesh, suffix: str) -> None:
    other = trimesh.Trimesh(shuffled.verts, shuffled.faces, process=False)
    exported = other.export(file_type=suffix[1:])
    # glTF comes as several files: the document and its buffers
    files = exported if isinstance(exported, dict) else {f"model{suffix}": exported}
    for name, data in files.items():
        (tmp_path / name).write_bytes(data.encode() if isinstance(data, str) else data)
    again = read_mesh(tmp_path / f"model{suffix}")
    if suffix != ".stl":
        assert np.allclose(again.verts, shuffled.verts, rtol=0, atol=4 * SINGLE)
        assert np.array_equal(again.faces, shuffled.faces)
    assert np.allclose(again.verts[again.faces], shuffled.verts[shuffled.faces], rtol=0, atol=4 * SINGLE)


@pytest.mark.parametrize(
    ("suffix", "number"), [(s, n) for s, files in mesh_files.seeds().items() for n in range(len(files))]
)
def test_hand_written_files(suffix: str, number: int) -> None:
    mesh = parse_mesh(mesh_files.seeds()[suffix][number], suffix)
    if mesh.num_vertices == 4:
        assert np.array_equal(mesh.verts, SQUARE)
        assert mesh.faces.tolist() == SQUARE_FACES
    else:
        assert np.allclose(mesh.verts[mesh.faces], icosphere(0).verts[icosphere(0).faces], atol=2 * SINGLE)


def test_polygons_become_fans_and_the_log_says_so(caplog: pytest.LogCaptureFixture) -> None:
    pentagon = b"v 0 0 0\nv 1 0 0\nv 2 1 0\nv 1 2 0\nv 0 1 0\nf 2 3 4 5 1\n"
    with caplog.at_level(logging.INFO, logger="geoskip"):
        mesh = parse_mesh(pentagon, ".obj")
    assert mesh.faces.tolist() == [[1, 2, 3], [1, 3, 4], [1, 4, 0]]
    assert "1 polygons split into 3 triangles" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.INFO, logger="geoskip"):
        parse_mesh(pentagon[: pentagon.index(b"f")] + b"f 1 2 3", ".obj")
    assert caplog.text == ""


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("suffix", [".off", ".obj", ".ply", ".stl"])
def test_text_may_have_any_line_ends_and_a_byte_order_mark(suffix: str, line_end: bytes) -> None:
    for data in mesh_files.seeds()[suffix]:
        if data.isascii() and b"\0" not in data:
            again = parse_mesh(BOM_UTF8 + data.replace(b"\n", line_end), suffix)
            assert np.array_equal(again.verts, parse_mesh(data, suffix).verts)
            assert np.array_equal(again.faces, parse_mesh(data, suffix).faces)


def test_text_may_have_comments_anywhere() -> None:
    obj = b"# made by hand\nv 0 0 0 # first\nv 1 0 0\nv 0 1 0#\n  # f 1 1 1\nf 1 2 3 # end"
    off = b"# made by hand\n\nOFF # three\n3 1 0\n0 0 0 # first\n1 0 0\n0 1 0\n#\n3 0 1 2 # end"
    windows = b"# from C:\\meshes\\\nv 9 9 9\n" + obj.replace(b"1 2 3", b"2 3 4")
    assert parse_mesh(windows, ".obj").num_vertices == 4
    for data, suffix in ((obj, ".obj"), (off, ".off")):
        assert parse_mesh(data, suffix).faces.tolist() == [[0, 1, 2]]


@pytest.mark.parametrize("first", [b"OFF3 1 0", b"OFF 3 1 0", b"OFF\n3 1", b"STCNOFF\n3 1 3", b"\n COFF 3 1 0\n"])
def test_off_first_lines_found_in_the_wild(first: bytes) -> None:
    assert parse_mesh(first + b"\n0 0 0 9 9\n1 0 0 9 9\n0 1 0 9 9\n3 2 0 1", ".off").faces.tolist() == [[2, 0, 1]]


def test_ply_lists_of_one_size_that_are_not_triangles() -> None:
    header = "ply\nformat binary_big_endian 1.0\nelement vertex 4\nproperty char x\nproperty char y\nproperty char z\n"
    header += "element face 1\nproperty list int int vertex_indices\nend_header\n"
    body = struct.pack(">12b", 0, 0, 0, 1, 0, 0, 1, 1, 0, 0, 1, 0) + struct.pack(">5i", 4, 0, 1, 2, 3)
    assert parse_mesh(header.encode() + body, ".ply").faces.tolist() == [[0, 1, 2], [0, 2, 3]]


def test_stl_merges_equal_corners_only() -> None:
    corners = np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 0, -0.0], [1, 1, 0], [0, 1 + 1e-7, 0]], dtype="<f4")
    facet = np.zeros(2, dtype=[("normal", "<f4", 3), ("corners", "<f4", (3, 3)), ("attribute", "<u2")])
    facet["corners"] = corners.reshape(2, 3, 3)
    data = b"solid, but binary".ljust(80) + struct.pack("<I", 2) + facet.tobytes()
    assert parse_mesh(data, ".stl").faces.tolist() == [[0, 1, 2], [1, 3, 4]]


def test_degenerate_faces_are_rejected_or_dropped_on_request() -> None:
    data = b"v 0 0 0\nv 1 0 0\nv 0 1 0\nf 1 2 2\nf 1 2 3\n"
    with pytest.raises(MeshError, match="1 of 2 faces repeat a vertex"):
        parse_mesh(data, ".obj")
    mesh = parse_mesh(data, ".obj", drop_degenerate=True)
    assert mesh.faces.tolist() == [[0, 1, 2]]
    assert mesh.num_vertices == 3


def quarter_turn() -> dict[str, list[float]]:
    """About z, then doubled: (x, y, z) → (-2 y, 2 x, 2 z), as translation, rotation (xyzw) and scale."""
    half = float(np.sqrt(0.5))
    return {"translation": [10.0, 0.0, 0.0], "rotation": [0.0, 0.0, half, half], "scale": [2.0, 2.0, 2.0]}


def test_gltf_nodes_place_their_meshes() -> None:
    shift = [1.0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 7, 1]
    nodes = [{"matrix": shift, "children": [1]}, {"mesh": 0, **quarter_turn()}]
    mesh = parse_mesh(encode(square_gltf(nodes=nodes, scenes=[{"nodes": [0]}], scene=0)), ".gltf")
    x, y, z = SQUARE.T
    assert np.allclose(mesh.verts, np.stack([10 - 2 * y, 2 * x, 2 * z + 7], axis=1), atol=1e-6)
    assert mesh.faces.tolist() == SQUARE_FACES


def test_gltf_mirrors_turn_faces_over_and_instances_follow_each_other() -> None:
    nodes = [{"mesh": 0, "scale": [-1.0, 1, 1]}, {"mesh": 0}]
    mesh = parse_mesh(encode(square_gltf(nodes=nodes)), ".gltf")
    assert np.array_equal(mesh.verts, np.concatenate([SQUARE * [-1, 1, 1], SQUARE]))
    assert mesh.faces.tolist() == [face[::-1] for face in SQUARE_FACES] + [
        [4 + i for i in face] for face in SQUARE_FACES
    ]
    assert np.allclose(mesh.face_normals()[:3] * [-1, 1, 1], mesh.face_normals()[3:])


def test_gltf_primitives_share_positions_and_may_lack_indices() -> None:
    parts = [{"attributes": {"POSITION": 0}, "indices": 1}, {"attributes": {"POSITION": 0}, "indices": 1, "mode": 4}]
    shared = parse_mesh(encode(square_gltf(meshes=[{"primitives": parts}])), ".gltf")
    assert shared.num_vertices == 4
    assert shared.faces.tolist() == SQUARE_FACES * 2
    accessors = [square_gltf()["accessors"][0] | {"count": 3}]
    plain = square_gltf(meshes=[{"primitives": [{"attributes": {"POSITION": 0}}]}], accessors=accessors, nodes=[])
    assert parse_mesh(encode(plain), ".gltf").faces.tolist() == [[0, 1, 2]]


def test_gltf_buffer_in_the_folder_of_the_document(tmp_path: Path) -> None:
    data = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0]], dtype="<f4").tobytes()
    (tmp_path / "the data.bin").write_bytes(data)
    document = square_gltf(
        meshes=[{"primitives": [{"attributes": {"POSITION": 0}}]}],
        accessors=[{"bufferView": 0, "componentType": 5126, "count": 3, "type": "VEC3"}],
        bufferViews=[{"buffer": 0, "byteLength": 36}],
        buffers=[{"byteLength": 36, "uri": "the%20data.bin"}],
    )
    (tmp_path / "m.gltf").write_bytes(encode(document))
    assert read_mesh(tmp_path / "m.gltf").faces.tolist() == [[0, 1, 2]]
    with pytest.raises(MeshError, match=r"not a file in the folder of the document: .* save it as \.glb"):
        parse_mesh(encode(document), ".gltf")


def test_unknown_formats_are_named(tmp_path: Path) -> None:
    for attempt in (
        lambda: read_mesh(tmp_path / "m.fbx"),
        lambda: write_mesh(grid(2, 2), tmp_path / "m.fbx"),
        lambda: parse_mesh(b"", ".fbx"),
    ):
        with pytest.raises(
            MeshError, match=r"unknown mesh format '.fbx'; expected one of .glb, .gltf, .obj, .off, .ply, .stl"
        ):
            attempt()


def test_what_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(MeshError, match="cannot write a mesh without faces"):
        write_mesh(Mesh(np.eye(3), np.empty((0, 3), dtype=np.int64)), tmp_path / "m.ply")
    assert list(tmp_path.iterdir()) == []
