"""CoMA, FAUST and a user's own meshes, on tiny archives of the real layout."""

import os
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from geoskip.data import coma, correspondence_folder, faust, geodesics, mesh_files, mesh_folder
from geoskip.data.archives import ArchiveError
from geoskip.data.cache import entries
from geoskip.data.declaration import MissingData
from geoskip.data.people import EXPRESSIONS
from geoskip.meshes.formats import write_mesh
from geoskip.meshes.mesh import Mesh, MeshError, grid, icosphere

BASE = grid(2, 2)


def shifted(amount: float, base: Mesh = BASE) -> Mesh:
    return base.with_verts(base.verts + np.array([amount, 0, 0]))


def write_all(folder: Path, meshes: dict[str, Mesh]) -> Path:
    for name, mesh in meshes.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write_mesh(mesh, folder / name)
    return folder


def zipped(folder: Path, archive: Path, top: str = "") -> Path:
    with zipfile.ZipFile(archive, "w") as file:
        for path in sorted(folder.rglob("*"), reverse=True):
            file.write(path, f"{top}{path.relative_to(folder)}")
    return archive


def coma_folder(folder: Path, frames: int = 2) -> Path:
    """Two subjects, each with every expression; the x offset says which frame of the sorted listing it is."""
    meshes: dict[str, Mesh] = {}
    for subject in ("FaceTalk_170725_00137_TA", "FaceTalk_170728_03272_TA"):
        for expression in EXPRESSIONS:
            for frame in range(1, frames + 1):
                name = f"{subject}/{expression}/{expression}.{frame:06d}.ply"
                meshes[name] = shifted(float(len(meshes)))
    return write_all(folder, meshes)


@pytest.mark.parametrize("top", ["", "COMA_data/"])
def test_coma_is_the_same_from_archive_and_folder(tmp_path: Path, top: str) -> None:
    folder = coma_folder(tmp_path / "unpacked")
    archive = zipped(folder, tmp_path / "COMA_data.zip", top)
    from_folder, from_archive = (coma(place, cache=tmp_path / "cache") for place in (folder, archive))
    assert from_folder.names == from_archive.names == tuple(sorted(from_folder.names))
    items = torch.arange(48)
    assert torch.equal(from_folder.verts(items), from_archive.verts(items))
    assert from_folder.verts(items)[:, 0, 0].tolist() == list(range(48))
    assert (from_folder.template.faces == BASE.faces).all()
    assert from_folder.unit_mm == 1000


def test_coma_interpolation_takes_ten_of_each_hundred(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    faces = coma(coma_folder(tmp_path / "coma", frames=5), cache=tmp_path / "cache")
    assert len(faces) == 120
    assert "coma: 120 of 20466 frames" in caplog.text  # as after an extraction that ended early
    assert faces.split.test.tolist() == [*range(10), *range(100, 110)]
    assert len(faces.split.train) == 100


def test_coma_extrapolation_keeps_an_expression_of_everyone_for_the_test(tmp_path: Path) -> None:
    folder = coma_folder(tmp_path / "coma")
    faces = coma(folder, "lips_up", cache=tmp_path / "cache")
    test = [faces.names[item] for item in faces.split.test]
    assert len(test) == 4
    assert all("/lips_up/" in name for name in test)
    assert not any("/lips_up/" in faces.names[item] for item in faces.split.train)
    with pytest.raises(ValueError, match="split: expected interpolation or one of bareteeth"):
        coma(folder, "extrapolation")


def test_files_beside_the_frames_are_left_alone(tmp_path: Path) -> None:
    folder = coma_folder(tmp_path / "coma")
    (folder / "readme.txt").write_text("hello")
    write_all(folder, {"FaceTalk_170725_00137_TA/other/a.ply": icosphere(0), "template.ply": icosphere(0)})
    (folder / "FaceTalk_170725_00137_TA" / "lips_up" / "._hidden.ply").write_bytes(b"resource fork")
    assert len(coma(folder, cache=tmp_path / "cache")) == 48


def test_a_frame_of_another_connectivity_is_named(tmp_path: Path) -> None:
    folder = coma_folder(tmp_path / "coma")
    name = "FaceTalk_170728_03272_TA/mouth_up/mouth_up.000001.ply"
    size = f"{BASE.num_vertices} vertices and {BASE.num_faces} faces"
    for other, difference in (
        (icosphere(0), f"12 vertices and 20 faces, not {size}"),
        (Mesh(BASE.verts, BASE.faces[::-1]), rf"as many vertices and faces \({size}\), but in another order"),
        (Mesh(np.eye(5, 3), BASE.faces), f"5 vertices and {BASE.num_faces} faces, not {size}"),
    ):
        write_all(folder, {name: other})
        fault = rf"{name} has another connectivity than FaceTalk.*bareteeth\.000001.*: {difference}"
        with pytest.raises(MeshError, match=fault):
            coma(folder, cache=tmp_path / "cache")
    (folder / name).write_bytes(b"ply\nformat ascii 1.0\nelement vertex 9\n")
    with pytest.raises(MeshError, match=f"{name}: "):
        coma(folder, cache=tmp_path / "cache")


def test_a_second_load_comes_from_the_cache_until_a_file_changes(tmp_path: Path) -> None:
    folder, cache = coma_folder(tmp_path / "coma"), tmp_path / "cache"
    coma(folder, cache=cache)
    coma(folder, "eyebrow", cache=cache)
    assert len(entries(cache)) == 1
    first = folder / "FaceTalk_170725_00137_TA" / "bareteeth" / "bareteeth.000001.ply"
    write_mesh(shifted(99.0), first)
    os.utime(first, ns=(1, 1))
    assert coma(folder, cache=cache).verts(torch.tensor([0]))[0, 0, 0] == 99


def test_missing_data_says_what_to_fetch_and_where_to_put_it(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("GEOSKIP_DATA", str(tmp_path / "data"))
    with pytest.raises(
        MissingData, match=rf"https://coma\.is.*COMA_data\.zip.*Put it at {tmp_path}/data/coma/COMA_data"
    ):
        coma()
    with pytest.raises(MissingData, match=r"https://faust.*MPI-FAUST\.zip.*Put it at .*/faust/MPI-FAUST\.zip"):
        faust()
    with pytest.raises(MissingData, match=r"not found at .*elsewhere"):
        coma(tmp_path / "elsewhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ArchiveError, match="has no meshes"):
        coma(tmp_path / "empty", cache=tmp_path / "cache")


def test_what_is_put_in_the_data_folder_is_found(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("GEOSKIP_DATA", str(tmp_path / "data"))
    (tmp_path / "data" / "coma").mkdir(parents=True)
    zipped(coma_folder(tmp_path / "coma"), tmp_path / "data" / "coma" / "COMA_data.zip")
    assert len(coma(cache=tmp_path / "cache")) == 48


def faust_folder(folder: Path, count: int = 100) -> Path:
    names = [f"training/registrations/tr_reg_{i:03d}.ply" for i in range(count)]
    write_all(folder, {name: shifted(float(i)) for i, name in enumerate(names)})
    return write_all(folder, {"training/scans/tr_scan_000.ply": icosphere(1)})


def test_faust_from_archive_and_folder(tmp_path: Path) -> None:
    folder = faust_folder(tmp_path / "MPI-FAUST")
    for place in (folder, zipped(folder, tmp_path / "MPI-FAUST.zip", "MPI-FAUST/")):
        bodies = faust(place, cache=tmp_path / "cache")
        assert len(bodies) == 100
        assert bodies.num_classes == 4
        assert bodies.split.train.tolist() == list(range(80))
        assert bodies.split.test.tolist() == list(range(80, 100))
        assert [mesh.verts[0, 0] for mesh in bodies.meshes] == list(range(100))
        assert all((labels == torch.arange(4)).all() for labels in bodies.labels)
        assert bodies.unit_mm == 1000


def test_faust_without_a_registration_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match=r"1 of 100 registrations are missing, the first tr_reg_099\.ply"):
        faust(faust_folder(tmp_path / "faust", 99), cache=tmp_path / "cache")


def test_geodesics_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sphere = icosphere(1)
    first = geodesics(sphere, cache=tmp_path)
    monkeypatch.setattr("geoskip.data.mesh_sets.DistanceSolver", None)
    again = geodesics(sphere, cache=tmp_path)
    assert (first == again).all()
    assert first.dtype == np.float32
    assert (np.diag(first) == 0).all()
    assert first.max() == pytest.approx(np.pi, rel=0.1)


def test_a_folder_of_meshes_is_a_reconstruction_set(tmp_path: Path) -> None:
    names = [f"{kind}/{i:02d}.{suffix}" for kind in ("a", "b") for i, suffix in enumerate(("ply", "obj", "OFF") * 4)]
    folder = write_all(tmp_path / "mine", {name: shifted(i) for i, name in enumerate(names)})
    meshes = mesh_folder(folder, unit_mm=10.0, cache=tmp_path / "cache")
    assert meshes.names == tuple(sorted(names))
    assert meshes.split.test.tolist() == [0, 10, 20]
    assert meshes.unit_mm == 10
    write_mesh(shifted(-5.0), tmp_path / "rest.obj")
    rested = mesh_folder(
        folder, unit_mm=1.0, test=["b/03.ply"], template=tmp_path / "rest.obj", cache=tmp_path / "cache"
    )
    assert rested.template.verts[0, 0] == -5
    assert [rested.names[item] for item in rested.split.test] == ["b/03.ply"]


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        (["b"], [2, 3]),
        ("b", [2, 3]),
        (["b/"], [2, 3]),
        (["*_s1.ply"], [1, 3]),
        (["a/x_s0.ply", "c[1].ply"], [0, 4]),
        (["b", "b/y_s1.ply"], [2, 3]),
    ],
)
def test_the_test_is_chosen_by_file_folder_or_pattern(
    tmp_path: Path, test: str | list[str], expected: list[int]
) -> None:
    names = ("a/x_s0.ply", "a/x_s1.ply", "b/y_s0.ply", "b/y_s1.ply", "c[1].ply")
    folder = write_all(tmp_path / "mine", {name: shifted(i) for i, name in enumerate(names)})
    meshes = mesh_folder(folder, unit_mm=1.0, test=test, cache=tmp_path / "cache")
    assert meshes.split.test.tolist() == expected
    assert torch.equal(meshes.verts(expected), meshes.verts(meshes.split.test))


@pytest.mark.parametrize(("scale", "than"), [(1000.0, "larger"), (0.001, "smaller")])
def test_a_mesh_in_another_unit_is_refused(scale: float, than: str, tmp_path: Path) -> None:
    other = BASE.with_verts(scale * BASE.verts)
    folder = write_all(tmp_path / "mine", {"a.ply": BASE, "b.ply": shifted(5), "c.ply": other})
    with pytest.raises(MeshError, match=rf"mine: c\.ply: 1,000 times {than} than most meshes .* unit"):
        mesh_folder(folder, unit_mm=1.0, cache=tmp_path / "cache")
    folder = correspondences(tmp_path / "any")
    write_mesh(other, folder / "a.ply")
    with pytest.raises(MeshError, match=rf"a\.ply: 1,000 times {than} than target\.obj"):
        correspondence_folder(folder, unit_mm=1.0)


@pytest.mark.parametrize(("scale", "offset"), [(1.0, 5e6), (1e-44, 0.0)])
def test_a_mesh_that_float32_would_blur_is_refused(scale: float, offset: float, tmp_path: Path) -> None:
    """As in map coordinates: at 5,000 km, float32 has steps of half a meter."""
    blurred = BASE.with_verts(scale * BASE.verts * 1.1 + offset)
    folder = write_all(tmp_path / "mine", {"a.ply": blurred})
    with pytest.raises(MeshError, match=r"mine: a\.ply: float32 rounds its positions by up to .*move it to the origin"):
        mesh_folder(folder, unit_mm=1.0, cache=tmp_path / "cache")
    folder = write_all(tmp_path / "any", {"target.ply": blurred, "a.ply": blurred})
    (folder / "a.txt").write_text("0 1 2 3")
    with pytest.raises(MeshError, match="float32 rounds its positions"):
        correspondence_folder(folder, unit_mm=1.0)


def test_one_mesh_in_two_formats_is_refused(tmp_path: Path) -> None:
    """Otherwise one could be for training and its copy for the test."""
    folder = write_all(tmp_path / "mine", {"a.obj": BASE, "b.obj": shifted(1.0), "b.ply": shifted(1.0)})
    with pytest.raises(MeshError, match=r"mine: b\.obj and b\.ply are one mesh in two formats; keep one"):
        mesh_folder(folder, unit_mm=1.0, cache=tmp_path / "cache")


def test_polygons_are_reported_once_for_a_set(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("a.obj", "b.obj", "c.obj"):
        (tmp_path / name).write_text("v 0 0 0\nv 1 0 0\nv 1 1 0\nv 0 1 0\nf 1 2 3 4\n")
    with caplog.at_level("INFO", logger="geoskip"):
        mesh_folder(tmp_path, unit_mm=1.0, cache=tmp_path / "cache")
    assert caplog.text.count("1 polygons split into 2 triangles") == 1


def test_a_folder_without_meshes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match=r"has no meshes in \.ply, \.obj"):
        mesh_folder(tmp_path, unit_mm=1.0, cache=tmp_path / "cache")
    with pytest.raises(ArchiveError, match=r"has no meshes laid out as in coma$"):
        coma(tmp_path, cache=tmp_path / "cache")


def test_a_folder_may_have_links_but_no_pipes(tmp_path: Path) -> None:
    folder = write_all(tmp_path / "mine", {"a.ply": BASE})
    (folder / "more").symlink_to(write_all(tmp_path / "elsewhere", {"b.ply": shifted(1.0)}))
    (folder / "folder.ply").mkdir()
    assert mesh_folder(folder, unit_mm=1.0, cache=tmp_path / "cache").names == ("a.ply", "more/b.ply")
    os.mkfifo(folder / "c.ply")  # reading it would wait for ever
    with pytest.raises(ArchiveError, match=r"c\.ply is not a regular file"):
        mesh_folder(folder, unit_mm=1.0, cache=tmp_path / "cache")


def test_a_template_of_another_connectivity_is_refused(tmp_path: Path) -> None:
    folder = write_all(tmp_path / "mine", {"a.ply": BASE})
    write_mesh(icosphere(0), tmp_path / "rest.ply")
    with pytest.raises(MeshError, match=r"rest\.ply: another connectivity"):
        mesh_folder(folder, unit_mm=1.0, template=tmp_path / "rest.ply", cache=tmp_path / "cache")
    with pytest.raises(ValueError, match="test: z is not a file or folder of the set; names are such as a"):
        mesh_folder(folder, unit_mm=1.0, test=["z"], cache=tmp_path / "cache")


def correspondences(folder: Path) -> Path:
    write_all(folder, {"target.obj": BASE, "a.ply": BASE, "b.ply": Mesh(BASE.verts[:3], np.array([[0, 1, 2]]))})
    (folder / "a.txt").write_text("3\n2\n1\n0\n")
    np.save(folder / "b.npy", np.array([0, -1, 2]))
    return folder


def test_a_folder_with_correspondences_is_a_correspondence_set(tmp_path: Path) -> None:
    pairs = correspondence_folder(correspondences(tmp_path), unit_mm=1.0, test=["b.ply"])
    assert pairs.names == ("a.ply", "b.ply")
    assert [labels.tolist() for labels in pairs.labels] == [[3, 2, 1, 0], [0, -1, 2]]
    assert pairs.split.train.tolist() == [0]
    assert pairs.num_classes == 4


def test_correspondences_may_be_in_subfolders_and_written_by_savetxt(tmp_path: Path) -> None:
    folder = write_all(tmp_path, {"target.ply": BASE, "a/1.ply": BASE, "b/1.ply": shifted(1.0)})
    (folder / "a" / "._1.ply").write_bytes(b"resource fork")
    np.savetxt(folder / "a" / "1.txt", np.array([3, 2, -1, 0]))
    np.save(folder / "b" / "1.npy", np.array([0.0, 1.0, 2.0, 3.0]))
    pairs = correspondence_folder(folder, unit_mm=1.0, test="b")
    assert pairs.names == ("a/1.ply", "b/1.ply")
    assert [labels.tolist() for labels in pairs.labels] == [[3, 2, -1, 0], [0, 1, 2, 3]]
    assert pairs.split.test.tolist() == [1]


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("1 2 3", "4 whole numbers are needed"),
        ("0 1 2 x", "not a list of whole numbers"),
        ("0 1 2 0.5", "not a list of whole numbers"),
        ("0 1 2 99999999999999999999", "not a list of whole numbers"),
        ("0 1 2 4", "labels outside -1 to 3, such as 4"),
        (",".join(["1"] * 4000), "not a list of whole numbers: .{,100}$"),
    ],
)
def test_bad_correspondences_are_refused(tmp_path: Path, content: str, fault: str) -> None:
    (correspondences(tmp_path) / "a.txt").write_text(content)
    with pytest.raises(ValueError, match=f"a.*{fault}"):
        correspondence_folder(tmp_path, unit_mm=1.0)


def test_correspondences_that_are_pickled_or_missing_are_refused(tmp_path: Path) -> None:
    folder = correspondences(tmp_path)
    np.save(folder / "b.npy", np.array([None, 1, 2]), allow_pickle=True)
    with pytest.raises(MeshError, match=r"b\.npy: not a list of whole numbers"):
        correspondence_folder(folder, unit_mm=1.0)
    (folder / "b.npy").unlink()
    with pytest.raises(MeshError, match=r"b\.txt or b\.npy, is missing"):
        correspondence_folder(folder, unit_mm=1.0)
    (folder / "target.obj").unlink()
    with pytest.raises(MeshError, match=r"needs one target\.ply"):
        correspondence_folder(folder, unit_mm=1.0)


def with_times(folder: Path, seconds: int = 1_000_000_000) -> Path:
    for path in folder.rglob("*"):
        os.utime(path, (seconds, seconds))
    return folder


def test_meshes_that_differ_in_content_alone_are_told_apart(tmp_path: Path) -> None:
    """Equal names, sizes and times; in a folder and in an archive."""
    for offset in (1.0, 2.0):
        folder = write_all(tmp_path / f"{offset}" / "set", {"a.ply": BASE, "b.ply": shifted(offset)})
        archive = zipped(with_times(folder), tmp_path / f"{offset}" / "set.zip")
        os.utime(archive, (1_000_000_000, 1_000_000_000))
        for place in (folder, archive):
            loaded = mesh_folder(place, unit_mm=1.0, cache=tmp_path / "cache")
            assert float(loaded.verts(torch.tensor([1]))[0, 0, 0]) == offset


def test_content_is_the_same_wherever_the_files_lie(tmp_path: Path) -> None:
    folder = write_all(tmp_path / "one" / "set", {"a.ply": BASE, "b.ply": shifted(1.0)})
    moved = write_all(tmp_path / "moved", {"a.ply": BASE, "b.ply": shifted(1.0)})
    other = write_all(tmp_path / "other", {"a.ply": BASE, "b.ply": shifted(2.0)})
    renamed = write_all(tmp_path / "renamed", {"a.ply": BASE, "c.ply": shifted(1.0)})
    archive = zipped(folder, tmp_path / "set.zip")
    contents = [
        mesh_folder(place, unit_mm=1.0, cache=tmp_path / "cache").content
        for place in (folder, moved, archive, other, renamed)
    ]
    assert contents[0] == contents[1] == contents[2] != ""
    assert len(set(contents)) == 3


def test_the_content_of_correspondences_is_that_of_meshes_and_labels(tmp_path: Path) -> None:
    contents = []
    for name, number, offset in (("one", 0, 0.0), ("same", 0, 0.0), ("labels", 1, 0.0), ("meshes", 0, 1.0)):
        folder = write_all(tmp_path / name, {"target.ply": BASE, "a.ply": shifted(offset)})
        (folder / "a.txt").write_text("\n".join([str(number)] * BASE.num_vertices))
        contents.append(correspondence_folder(folder, unit_mm=1.0).content)
    assert contents[0] == contents[1] != ""
    assert len(set(contents)) == 3


def test_files_that_change_while_they_are_read_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_all(tmp_path / "set", {"a.ply": BASE, "b.ply": shifted(1.0)})
    real = mesh_files.read_files

    def overtaken(*arguments: Any) -> Iterator[tuple[str, bytes]]:
        yield from real(*arguments)
        write_mesh(shifted(2.0), folder / "b.ply")

    monkeypatch.setattr(mesh_files, "read_files", overtaken)
    with pytest.raises(ArchiveError, match="changed while they were read"):
        mesh_folder(folder, unit_mm=1.0, cache=tmp_path / "cache")
    assert entries(tmp_path / "cache") == []
